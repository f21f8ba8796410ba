//! Nobody else may use what we have open: locks, loop devices, mounts, and how to name the other.
//!
//! # Invariant of the unsafe code
//!
//! One `fcntl` on a descriptor that the caller keeps open, with a lock description on our stack.
//!
//! # Parts
//!
//! Who uses a part of a file (a partition) locks its bytes, so that others may use other parts;
//! whoever uses the whole file locks all of them. QEMU knows no parts: it locks what it does with
//! a file by shared locks on single bytes from 100 on, and what it forbids others to do from 200
//! on. A part forbids it everything, and is refused where QEMU is there.

#![allow(unsafe_code)]

use super::options::OpenError;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What QEMU's users of a file do with it.
const QEMU_DOES: Range<u64> = 100..104;
/// What they forbid others to do.
const QEMU_FORBIDS: Range<u64> = 200..204;

/// How often a claim is tried that this process itself may be about to give up.
const TRIES: usize = 100;

/// The locks on an open file: an open-file-description lock, which conflicts with QEMU's and with
/// ours, and a BSD lock, by which the host can name us. Both go when this is dropped, also while a
/// child that was forked a moment ago still has a copy of the descriptor.
pub(super) struct Claim {
    file: File,
}

impl Claim {
    /// Locks `file`, or the bytes of a part of it, for us alone where `write`, else shared with
    /// other readers. Waits for nobody but this process itself, and not for long: the thread that
    /// ended the last request of a device which was closed a moment ago may be the one that lets
    /// go of it.
    pub fn take(
        path: &Path,
        file: &File,
        part: Option<Range<u64>>,
        write: bool,
    ) -> Result<Claim, OpenError> {
        Claim::take_waiting(path, file, part.as_ref(), write, pause)
    }

    /// As [`Claim::take`], with `wait` between two tries.
    fn take_waiting(
        path: &Path,
        file: &File,
        part: Option<&Range<u64>>,
        write: bool,
        mut wait: impl FnMut(),
    ) -> Result<Claim, OpenError> {
        for _ in 0..TRIES {
            match Claim::try_take(path, file, part, write)? {
                Ok(claim) => return Ok(claim),
                Err(holder) if holder.is_none_or(|pid| pid == std::process::id()) => wait(),
                Err(_) => break,
            }
        }
        match Claim::try_take(path, file, part, write)? {
            Ok(claim) => Ok(claim),
            Err(holder) => {
                let by = holder.map_or_else(|| "another process".to_owned(), process);
                Err(OpenError::Locked { path: path.to_owned(), by })
            }
        }
    }

    /// The claim, or who else has one, if that can be found out.
    fn try_take(
        path: &Path,
        file: &File,
        part: Option<&Range<u64>>,
        write: bool,
    ) -> Result<Result<Claim, Option<u32>>, OpenError> {
        let kind = if write { libc::F_WRLCK } else { libc::F_RDLCK };
        let operation = if write && part.is_none() {
            rustix::fs::FlockOperation::NonBlockingLockExclusive
        } else {
            rustix::fs::FlockOperation::NonBlockingLockShared
        };
        let described = match part {
            None => lock_description(file, kind, &WHOLE),
            Some(part) => lock_part(file, kind, part),
        };
        let locked = described.and_then(|()| Ok(rustix::fs::flock(file, operation)?));
        if let Err(error) = locked {
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => {
                    // Where the first lock was ours and the second was not.
                    let _ = lock_description(file, libc::F_UNLCK, &WHOLE);
                    return Ok(Err(lock_holder(file, part.unwrap_or(&WHOLE))));
                }
                // A host file system without locks: nothing can be promised, nothing is refused.
                Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {}
                _ => return Err(OpenError::host(path, "lock", error)),
            }
        }
        let file = file.try_clone().map_err(|error| OpenError::host(path, "lock", error))?;
        Ok(Ok(Claim { file }))
    }
}

#[allow(clippy::disallowed_methods, reason = "a thread of the host waits for another one")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Both can only fail where no lock was to be had.
        let _ = lock_description(&self.file, libc::F_UNLCK, &WHOLE);
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }
}

/// All bytes that a file can have.
const WHOLE: Range<u64> = 0..1 << 63;

fn lock_description(file: &File, kind: i32, bytes: &Range<u64>) -> std::io::Result<()> {
    control(file, libc::F_OFD_SETLK, kind, bytes).map(|_| ())
}

/// Locks a part, says so to QEMU, and is refused where QEMU has said that it uses the file.
fn lock_part(file: &File, kind: i32, part: &Range<u64>) -> std::io::Result<()> {
    lock_description(file, kind, part)?;
    lock_description(file, libc::F_RDLCK, &QEMU_FORBIDS)?;
    match control(file, libc::F_OFD_GETLK, libc::F_WRLCK, &QEMU_DOES)? {
        libc::F_UNLCK => Ok(()),
        _ => Err(rustix::io::Errno::AGAIN.into()),
    }
}

/// Carries out a lock command; returns the kind of lock that it leaves in the description.
fn control(file: &File, command: i32, kind: i32, bytes: &Range<u64>) -> std::io::Result<i32> {
    let len = if *bytes == WHOLE { 0 } else { bytes.end - bytes.start };
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: len as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the command reads and writes one `flock` structure.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) };
    if result == 0 { Ok(lock.l_type.into()) } else { Err(std::io::Error::last_os_error()) }
}

/// The process that holds a lock on these bytes of the file, as the host shows; else one that holds
/// any lock on it.
fn lock_holder(file: &File, bytes: &Range<u64>) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let any = || {
        lock_pid(&locks, meta.dev(), meta.ino()).or_else(|| pid_of_description(meta.ino(), &WHOLE))
    };
    match *bytes == WHOLE {
        true => any(),
        false => pid_of_description(meta.ino(), bytes).or_else(any),
    }
}

/// The process of the first lock on the inode that names one. A line of /proc/locks is
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`, device numbers in hexadecimal.
fn lock_pid(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let exact = format!("{major:02x}:{minor:02x}:{ino}");
    let inode = format!(":{ino}");
    let pid_where = |matches: &dyn Fn(&str) -> bool| {
        locks.lines().filter(|line| !line.contains("->")).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let place = fields.get(5)?;
            let pid = fields.get(4)?.parse::<i64>().ok().filter(|&pid| pid > 0)?;
            matches(place).then_some(pid as u32)
        })
    };
    // Stacked file systems show other device numbers there than in stat.
    pid_where(&|place| place == exact).or_else(|| pid_where(&|place| place.ends_with(&inode)))
}

/// Whether a line of /proc/PID/fdinfo is of an open-file-description lock on some of these bytes of
/// the inode: `lock:  1: OFDLCK ADVISORY  WRITE -1 08:01:131 0 EOF`.
fn is_lock_on(line: &str, ino: u64, bytes: &Range<u64>) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let ["lock:", _, "OFDLCK", _, _, _, place, first, last] = fields[..] else { return false };
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    place.rsplit(':').next() == Some(&ino.to_string())
        && number(first) < bytes.end
        && bytes.start <= number(last)
}

/// Looks for an open-file-description lock on these bytes of the inode in the descriptors of all
/// processes.
fn pid_of_description(ino: u64, bytes: &Range<u64>) -> Option<u32> {
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fdinfo")) else { continue };
        for info in descriptors.flatten() {
            let text = fs::read_to_string(info.path()).unwrap_or_default();
            if text.lines().any(|line| is_lock_on(line, ino, bytes)) {
                return Some(pid);
            }
        }
    }
    None
}

fn process(pid: u32) -> String {
    if pid == std::process::id() {
        return format!("this process (pid {pid})");
    }
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (pid {pid})", name.trim()),
        Err(_) => format!("pid {pid}"),
    }
}

/// Refuses a file that is the backing of a loop device. One that is attached read-only may be read.
pub(super) fn refuse_loop(path: &Path, meta: &Metadata, write: bool) -> Result<(), OpenError> {
    let Some((name, read_only)) = loop_of(meta) else { return Ok(()) };
    if read_only && !write {
        return Ok(());
    }
    let mounted = mounts_of(&name).map(|at| format!(", mounted on {at}")).unwrap_or_default();
    let by = format!("it is the backing file of /dev/{name}{mounted}");
    Err(OpenError::Busy { path: path.to_owned(), by })
}

/// Waits until no loop device has the file as its backing file: after umount(8) a copy of the
/// mount in another mount namespace (a container that began meanwhile) may still hold it, and what
/// was written to it is not yet in the file. Blocks for `limit` at most.
///
/// # Errors
/// The loop device that still has it; the file is not there.
#[allow(clippy::disallowed_methods, reason = "other processes end in the host's time")]
pub fn wait_for_loop(path: &Path, limit: Duration) -> io::Result<()> {
    let meta = fs::metadata(path)?;
    let begin = Instant::now();
    while let Some((name, _)) = loop_of(&meta) {
        if begin.elapsed() > limit {
            let what = "(a copy of a mount in another mount namespace?)";
            let file = path.display();
            let why = format!("{file}: it is still the backing file of /dev/{name} {what}");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The loop device whose backing file this is, and whether it is attached read-only.
fn loop_of(meta: &Metadata) -> Option<(String, bool)> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if !name.starts_with("loop") {
            continue;
        }
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = PathBuf::from(backing.trim_end_matches('\n'));
        let Ok(other) = fs::metadata(&backing) else { continue };
        if (other.dev(), other.ino()) == (meta.dev(), meta.ino()) {
            let ro = fs::read_to_string(entry.path().join("ro")).unwrap_or_default();
            return Some((name, ro.trim() == "1"));
        }
    }
    None
}

/// Where a disk or one of its partitions is mounted.
fn mounts_of(disk: &str) -> Option<String> {
    let folder = PathBuf::from("/sys/block").join(disk);
    let mut numbers: Vec<String> = fs::read_to_string(folder.join("dev")).into_iter().collect();
    for entry in fs::read_dir(&folder).ok()?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(disk) {
            numbers.extend(fs::read_to_string(entry.path().join("dev")));
        }
    }
    numbers.iter().find_map(|number| mount_point(number.trim()))
}

/// The mount point of the device `major:minor`, from /proc/self/mountinfo.
fn mount_point(number: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then(|| fields.nth(1).map(str::to_owned))?
    })
}

/// Who holds a block device that could not be opened exclusively.
pub(super) fn holder_of_device(path: &Path) -> Option<String> {
    let dev = fs::metadata(path).ok()?.rdev();
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    if let Some(at) = mount_point(&number) {
        return Some(format!("mounted on {at}"));
    }
    let folder = fs::canonicalize(Path::new("/sys/dev/block").join(&number)).ok()?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    if let Some(at) = mounts_of(&name) {
        return Some(format!("a partition of it is mounted on {at}"));
    }
    if let Some(holder) = fs::read_dir(folder.join("holders")).ok()?.flatten().next() {
        return Some(format!("held by {}", holder.file_name().to_string_lossy()));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().any(|line| line.split_whitespace().next() == path.to_str()) {
        return Some("used as swap".to_owned());
    }
    // Another exclusive opener, maybe one of us.
    let file = File::open(path).ok()?;
    lock_holder(&file, &WHOLE).map(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_inode() {
        let locks = "\
1: OFDLCK ADVISORY  WRITE -1 08:01:131 0 EOF
1: -> FLOCK  ADVISORY  WRITE 99 08:01:131 0 EOF
2: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
3: POSIX  ADVISORY  READ 12 00:2f:77 0 EOF
";
        let dev = rustix::fs::makedev(8, 1);
        assert_eq!(lock_pid(locks, dev, 131), Some(4711));
        assert_eq!(lock_pid(locks, dev, 77), Some(12), "device numbers may differ");
        assert_eq!(lock_pid(locks, dev, 31), None);
    }

    /// A device that was closed a moment ago may still be held by the thread that ended its last
    /// request. Here it lets go while the third try is waited for.
    #[test]
    fn a_claim_waits_for_its_own_process() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(image.path()).expect("it opens");
        for (held_for_writing, write) in [(true, true), (true, false), (false, true)] {
            let mut held = Claim::take(image.path(), &open(), None, held_for_writing).ok();
            assert!(held.is_some(), "nobody has it");
            let mut waits = 0;
            let claim = Claim::take_waiting(image.path(), &open(), None, write, || {
                waits += 1;
                if waits == 3 {
                    held = None;
                }
            });
            assert!(claim.is_ok(), "{:?}", claim.err());
            assert_eq!(waits, 3, "no try more than it took");
        }
        let (one, two) = (open(), open());
        let _readers = [&one, &two].map(|file| {
            let claim = Claim::take_waiting(image.path(), file, None, false, || panic!("waited"));
            claim.expect("readers share")
        });
        let mut waits = 0;
        let refused = Claim::take_waiting(image.path(), &open(), None, true, || waits += 1);
        assert!(matches!(refused, Err(OpenError::Locked { .. })), "{:?}", refused.err());
        assert_eq!(waits, TRIES, "not for ever");
    }

    /// Parts beside each other are for different users; a part that is used, and the whole, are
    /// not; readers of a part share it.
    #[test]
    fn parts_are_claimed_for_themselves() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(image.path()).expect("it opens");
        let (one, other) = (4096..8192, 8192..1 << 40);
        let take = |part: Option<&Range<u64>>, write| {
            Claim::try_take(image.path(), &open(), part, write).expect("the host has locks")
        };
        let first = take(Some(&one), true).expect("nobody has it");
        let second = take(Some(&other), true).expect("nobody has this part");
        for (part, write) in
            [(Some(&one), true), (Some(&other), false), (None, true), (None, false)]
        {
            assert_eq!(take(part, write).err(), Some(Some(std::process::id())), "{part:?}");
        }
        drop(first);
        let readers = [(); 2].map(|()| take(Some(&one), false).expect("readers share"));
        assert!(take(Some(&one), true).is_err() && take(None, true).is_err());
        drop((readers, second));
        let whole = take(None, true).expect("nobody has any of it");
        assert!(take(Some(&one), false).is_err());
        drop(whole);
        // What QEMU does when it opens an image.
        let qemu = open();
        lock_description(&qemu, libc::F_RDLCK, &QEMU_DOES).expect("locked");
        assert!(take(Some(&one), true).is_err(), "QEMU is there");
        drop(qemu);
        let _part = take(Some(&one), true).expect("nobody has it");
        let qemu = control(&open(), libc::F_OFD_GETLK, libc::F_WRLCK, &QEMU_FORBIDS);
        assert_eq!(qemu.expect("it can be asked"), libc::F_RDLCK, "QEMU sees the lock");
    }

    #[test]
    fn a_child_with_a_copy_of_the_descriptor_keeps_no_lock() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(image.path()).expect("it opens");
        let file = open();
        let claim = Claim::take(image.path(), &file, None, true).expect("nobody has it");
        assert!(Claim::take(image.path(), &open(), None, true).is_err(), "it is ours");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(file)
            .spawn()
            .expect("sleep is everywhere");
        drop(claim);
        let again = Claim::take(image.path(), &open(), None, true);
        child.kill().expect("it can be killed");
        child.wait().expect("it ended");
        assert!(again.is_ok(), "{:?}", again.err());
    }
}
