//! mount(2) and umount(2) of FUSE, and fusermount3 where the kernel lets only root.

use std::ffi::{CString, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::ask;
use crate::kernel::{KIND, mounted, mounts_below, numbers};
use crate::options::{Access, Options};
use crate::wire::MAX_READ;

/// The kernel's device.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// The program that mounts for others than root.
const HELPER: &str = "fusermount3";

/// Mounts on `dir`; returns the device to serve.
///
/// # Errors
/// The device cannot be opened, or the kernel and fusermount3 refuse.
pub(crate) fn mount(dir: &Path, options: &Options) -> io::Result<OwnedFd> {
    let device = open_device()?;
    let mode = std::fs::metadata(dir)?.mode();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={}",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    words_for_the_kernel(options).iter().for_each(|word| {
        data.push(',');
        data.push_str(word);
    });
    let data = CString::new(data)?;
    let source = options.source.as_str();
    match rustix::mount::mount(source, dir, KIND, flags(options), data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(rustix::io::Errno::PERM) => {
            drop(device);
            by_helper(dir, options)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the kernel's device.
///
/// # Errors
/// It is missing, or not for this user.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// What the kernel's FUSE understands.
fn words_for_the_kernel(options: &Options) -> Vec<String> {
    let words = [
        (options.access != Access::Owner).then(|| "allow_other".to_owned()),
        options.is_checked().then(|| "default_permissions".to_owned()),
        // Answers by splice(2) must fit into a pipe.
        (!options.shared && !options.io_uring).then(|| format!("max_read={MAX_READ}")),
    ];
    words.into_iter().flatten().collect()
}

/// The flags, with the words that fusermount3 has for them.
fn flags_and_words(options: &Options) -> Vec<(MountFlags, &'static str)> {
    let all = [
        (true, MountFlags::NOATIME, "noatime"),
        (options.read_only, MountFlags::RDONLY, "ro"),
        (!options.suid, MountFlags::NOSUID, "nosuid"),
        (!options.dev, MountFlags::NODEV, "nodev"),
        (options.noexec, MountFlags::NOEXEC, "noexec"),
    ];
    all.into_iter().filter(|(set, ..)| *set).map(|(_, flag, word)| (flag, word)).collect()
}

fn flags(options: &Options) -> MountFlags {
    flags_and_words(options).into_iter().map(|(flag, _)| flag).collect()
}

/// Lets fusermount3 mount, which sends the device back through its standard input.
fn by_helper(dir: &Path, options: &Options) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = words_for_the_kernel(options);
    words.extend(flags_and_words(options).into_iter().map(|(_, word)| word.to_owned()));
    words.extend([format!("fsname={source}"), "subtype=iopath".to_owned()]);
    let mut child = Command::new(HELPER)
        .args(["-o", &words.join(","), "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}")))?;
    let received = ask::receive(ours.as_fd(), &mut [0]);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // Then it has said nothing that is text.
        let _silent = stderr.read_to_string(&mut said);
    }
    child.wait()?;
    match received {
        Ok((_, Some(device))) => Ok(device),
        Ok(_) | Err(_) => Err(io::Error::other(said.trim().to_owned())),
    }
}

/// Takes a mount away: by the system call, or for others than root by fusermount3. With `lazy` at
/// once from the tree of directories, and for programs that use it when they end.
///
/// # Errors
/// It is in use, or not a mount of this user.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Err(rustix::io::Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mut command = Command::new(HELPER);
    command.args(["-u", "-q"]).args(lazy.then_some("-z")).arg("--").arg(dir);
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = OsString::from_vec(output.stderr);
            Err(io::Error::other(said.to_string_lossy().trim().to_owned()))
        }
    }
}

/// Takes away, at once and for programs that use it when they end, all that is mounted below a
/// directory, but not what is mounted at it. Where a bind mount shares what is mounted below it
/// with its original, the original keeps it. The path has no symlinks. Returns the places.
///
/// # Errors
/// The kernel's table cannot be read; something cannot be unmounted.
pub fn unmount_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut places = mounts_below(dir)?;
    places.retain(|place| place != dir);
    for place in &places {
        // For others than root nothing is shared.
        let _not_shared = rustix::mount::mount_change(place, MountPropagationFlags::PRIVATE);
    }
    places.iter().try_for_each(|place| unmount(place, true))?;
    Ok(places)
}

/// Ends the connection of a mount at once, for all who use it: they get `ENOTCONN` or `EIO`; what
/// the kernel has not handed over yet it does before. Where the kernel's control file system is not
/// mounted it is for a moment, at the empty directory `control`. Needs root.
///
/// # Errors
/// Nothing of ours is mounted there, or the kernel refuses.
pub fn abort(dir: &Path, control: &Path) -> io::Result<()> {
    sync(dir);
    let device = mounted(dir)?.ok_or(io::ErrorKind::NotFound)?;
    let (_, number) = numbers(&device).ok_or(io::ErrorKind::NotFound)?;
    let write = |place: &Path| std::fs::write(place.join(format!("{number}/abort")), "1");
    write(Path::new("/sys/fs/fuse/connections")).or_else(|_| {
        rustix::mount::mount("fusectl", control, "fusectl", MountFlags::empty(), None)?;
        let written = write(control);
        rustix::mount::unmount(control, UnmountFlags::DETACH)?;
        written
    })
}

/// Asks the kernel to hand over what it still has of a mount. Blocks the thread.
pub(crate) fn sync(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open(dir, flags, Mode::empty()) {
        // An error was or will be reported to the writer.
        let _reported_elsewhere = rustix::fs::syncfs(root.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_helper_get_the_same_words() {
        let options = Options {
            read_only: true,
            access: Access::Other,
            suid: true,
            noexec: true,
            ..Options::default()
        };
        let words: Vec<_> = flags_and_words(&options).into_iter().map(|(_, word)| word).collect();
        assert_eq!(words, ["noatime", "ro", "nodev", "noexec"]);
        assert!(!flags(&options).contains(MountFlags::NOSUID));
        assert!(words_for_the_kernel(&options).contains(&"allow_other".to_owned()));
        let rings = Options { io_uring: true, ..Options::default() };
        assert!(!words_for_the_kernel(&rings).iter().any(|word| word.starts_with("max_read")));
    }
}
