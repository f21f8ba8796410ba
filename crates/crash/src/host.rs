//! States on the host: as an image for its checkers, and mounted by its kernel.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use block::Device;

use crate::log::{LogError, PIECE};
use crate::medium::Medium;
use crate::recover::Kind;
use crate::verdict::Refusal;

/// Lines of a program's output that are kept.
const LINES: usize = 8;
/// Where states are kept: in memory, where the host has a file system for that with some room.
pub const IN_MEMORY: &str = "/dev/shm";
/// Bytes that must be free there: less is what containers have, and soon full.
const ROOM: u64 = 512 << 20;

/// Numbers what one process makes.
static MADE: AtomicU64 = AtomicU64::new(0);

/// How the names of what this process makes begin. In another PID namespace another process may
/// have its number: a random word differs.
pub fn own_prefix() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let word = RandomState::new().build_hasher().finish();
        format!("{PREFIX}{}-{word}-", std::process::id())
    })
}

/// A name for something that this process makes, which no other has.
pub fn own_name() -> String {
    format!("{}{}", own_prefix(), MADE.fetch_add(1, Ordering::Relaxed))
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        io::Error::other(error)
    }
}

/// The folder for states, unless the user names another: $TMPDIR, /dev/shm where that has 512 MiB
/// to spare, or /tmp. Its path is absolute: programs that are given it run in other directories.
pub fn folder() -> PathBuf {
    let named = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    match named {
        // Only an empty path has no absolute one, or one of a directory that is gone.
        Some(dir) => std::path::absolute(&dir).unwrap_or(dir),
        None if free(IN_MEMORY) >= ROOM => IN_MEMORY.into(),
        None => "/tmp".into(),
    }
}

/// How the names of what is made for states begin; the number of the process, a word that is its
/// own and a number follow.
pub const PREFIX: &str = "iopath-crash-";
/// How the name of a copy of a state ends.
pub const IMAGE: &str = "img";
/// How the name of the directory ends on which the copy of that name is mounted.
pub const MOUNT: &str = "mount";

/// Bytes that a file system of the host has free for everybody; none where it is not there.
fn free(place: &str) -> u64 {
    rustix::fs::statvfs(place).map_or(0, |found| found.f_bavail * found.f_frsize)
}

/// A state as a sparse file of the host, which goes when this is dropped.
pub struct HostImage {
    path: PathBuf,
    /// Locked as long as this process lives, where the host's file system has locks.
    _lock: File,
}

impl HostImage {
    /// Writes a medium to a file below $TMPDIR, /dev/shm or /tmp.
    ///
    /// # Errors
    /// The host cannot, or the log cannot be read.
    pub fn new(medium: &Medium) -> Result<HostImage, Refusal> {
        let path = folder().join(format!("{}.{IMAGE}", own_name()));
        let file = write_new(medium, &path).map_err(|error| {
            let what = format!("{}: a copy of the state's disk", path.display());
            Refusal::host(what, format!("{error} ($TMPDIR chooses another directory)"))
        })?;
        Ok(HostImage { path, _lock: file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks e2fsck, xfs_repair or their like, which change nothing.
    ///
    /// # Errors
    /// What it says, or why it could not be asked.
    pub fn ask(&self, kind: Kind) -> Result<(), Refusal> {
        let (program, flags) = kind.checker().ok_or_else(|| {
            Refusal::Host(format!("{kind}: no checker of it is known that changes nothing"))
        })?;
        let mut command = Command::new(program);
        // Those of e2fsck(8) above 4 are errors of its own; the others have no more than two.
        run_as(command.args(flags).arg(&self.path), |code| code < 8)
    }

    /// Lets the kernel mount and so recover it, gives the directory to `work`, and unmounts.
    ///
    /// # Errors
    /// The kernel refuses it; what `work` answers.
    pub fn mounted(
        &self,
        kind: Kind,
        work: impl FnOnce(&Path) -> Result<(), Refusal>,
    ) -> Result<Result<(), Refusal>, Refusal> {
        if let Kind::Foreign(foreign) = kind
            && let Some((program, flags)) = foreign.replayer()
        {
            // What it cannot repair the mount refuses.
            let replayed = Command::new(program).args(flags).arg(&self.path).output();
            replayed.map_err(|error| Refusal::host(program, error))?;
        }
        let dir = self.path.with_extension(MOUNT);
        std::fs::create_dir(&dir).map_err(|error| Refusal::host(dir.display(), error))?;
        // States of one log have one UUID: XFS refuses a second one.
        let options = if kind == Kind::Xfs { "loop,nouuid" } else { "loop" };
        let type_name = kind.to_string();
        let mut mount = Command::new("mount");
        mount.env("LC_ALL", "C").args(["-t", &type_name, "-o", options]);
        let mounted = run(mount.arg(&self.path).arg(&dir)).map_err(of_the_host);
        let done = mounted.map(|()| {
            let done = work(&dir);
            unmount(&dir).map_err(|refusal| {
                let _it_goes_when_nobody_uses_it =
                    run(Command::new("umount").arg("--lazy").arg(&dir));
                Refusal::State(format!("the check has left its tree in use: {refusal}"))
            })?;
            // What the check wrote is in the file only then.
            let released = device::wait_for_loop(&self.path, TRIES * PAUSE);
            released.map_err(|error| Refusal::host("umount", error))?;
            done
        });
        let _stays_where_it_is_mounted = std::fs::remove_dir(&dir);
        done
    }
}

/// How often unmounting is tried, and the pause between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Unmounts a file system of the kernel in which nothing is mounted. Processes that were killed may
/// take a moment until they have closed their files: blocks for five seconds at most.
///
/// # Errors
/// Somebody still uses it.
#[allow(clippy::disallowed_methods, reason = "processes of the host end in the host's time")]
pub fn unmount(dir: &Path) -> Result<(), Refusal> {
    let mut tries = 0;
    loop {
        let done = run(Command::new("umount").arg(dir));
        tries += 1;
        if done.is_ok() || tries == TRIES {
            return done;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Writes a medium to a new sparse file, and returns it.
///
/// # Errors
/// The file is there already, or the host cannot write it; the log cannot be read.
pub fn write_new(medium: &Medium, path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    let _others_see_that_it_is_in_use = file.try_lock();
    let size = medium.info().bytes();
    let written = file.set_len(size).and_then(|()| {
        medium.each_block(|number, bytes| {
            let at = u64::from(number) * PIECE as u64;
            let len = size.saturating_sub(at).min(bytes.len() as u64);
            file.write_all_at(&bytes[..len as usize], at)
        })
    });
    if written.is_err() {
        let _half_of_it_is_no_use = std::fs::remove_file(path);
    }
    written.map(|()| file)
}

impl Drop for HostImage {
    fn drop(&mut self) {
        let _a_copy_may_stay = std::fs::remove_file(&self.path);
    }
}

/// What mount(8) says where it is the host that cannot mount, whatever the state is.
const NO_MOUNT: [&str; 5] =
    ["loop device", "unknown filesystem type", "superuser", "only root", "permission denied"];

/// A refusal of mount(8), which is the host's where the image is not to blame.
fn of_the_host(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::State(text) if NO_MOUNT.iter().any(|why| text.contains(why)) => {
            Refusal::Host(format!("{text} (--recover kernel needs root and loop devices)"))
        }
        refusal => refusal,
    }
}

/// Runs a program of the host.
///
/// # Errors
/// It cannot be started, or a signal has ended it: the host's; it failed: with the last lines that
/// it printed.
pub fn run(command: &mut Command) -> Result<(), Refusal> {
    run_as(command, |_| true)
}

/// How the lines begin that checkers print on the way, whatever they find.
const PROGRESS: [&str; 10] = [
    "Phase ",
    "        - ",
    "Cannot get host filesystem geometry",
    "Repair may fail if there is",
    "the image and the host filesystem",
    "No modify flag set",
    "Pass ",
    "e2fsck ",
    "Opening filesystem to check",
    "Checking filesystem on",
];

/// A line that says nothing of what is wrong.
fn is_progress(line: &str) -> bool {
    line.trim().is_empty() || PROGRESS.iter().any(|begin| line.starts_with(begin))
}

/// As [`run`]; a failure is about the state where `verdict` says so of the exit status.
fn run_as(command: &mut Command, verdict: impl Fn(i32) -> bool) -> Result<(), Refusal> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Refusal::host(&name, error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !is_progress(line)).take(LINES).collect();
    let said = format!("{name}: {}: {}", output.status, lines.join("; "));
    Err(match output.status.code().is_some_and(verdict) {
        true => Refusal::State(said),
        false => Refusal::Host(said),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let script = "echo 'Phase 1 - find and verify superblock...'; echo; echo \
                      '        - zero log...'; echo 'attribute entry #0 is INCOMPLETE'; exit 1";
        let refused = run(Command::new("sh").args(["-c", script])).unwrap_err();
        let Refusal::State(said) = &refused else { panic!("{refused}") };
        assert!(said.ends_with("exit status: 1: attribute entry #0 is INCOMPLETE"), "{said}");
        let refused = run(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap_err();
        assert!(matches!(refused, Refusal::Host(_)), "{refused}");
    }
}
