//! Temporary directories, and the trees that checks look at.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use crash::host;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use super::interrupt;

/// How the names of our directories begin; the number of the process and another one follow.
const PREFIX: &str = "iopath-crash-";

/// Where something is mounted in one of them.
const MOUNT: &str = "mount";

/// What the kernel says of a mount through FUSE whose process is gone.
const NOT_CONNECTED: i32 = Errno::NOTCONN.raw_os_error();

/// A directory of our own that is removed at the end.
pub struct Scratch {
    dir: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

/// Distinguishes the directories of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Scratch {
    /// Makes one below `parent`, by default below $TMPDIR, /dev/shm or /tmp.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(parent: Option<&Path>) -> Result<Scratch> {
        let parent = parent.map_or_else(host::folder, Path::to_owned);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let made = interrupt::unless_ended(|| {
            fs::create_dir(&dir)?;
            let lock = File::open(&dir)?;
            // Where the file system has no locks, what is left is not removed by others.
            let _locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
            Ok::<_, io::Error>(lock)
        });
        let _lock = made.with_context(|| dir.display().to_string())?;
        Ok(Scratch { dir, _lock })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Where directories may have been made; `parent` is where the user wants them.
pub fn places(parent: Option<&Path>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = parent.map(Path::to_owned).into_iter().collect();
    places.extend(std::env::var_os("TMPDIR").map(PathBuf::from));
    places.extend([host::IN_MEMORY.into(), std::env::temp_dir()]);
    places
}

/// Removes what processes that were killed have left: directories of this user's whose process is
/// gone and which nobody has locked (it may live in another namespace of processes). What is
/// mounted stays, but for what such a process served itself.
pub fn remove_left(parent: Option<&Path>) {
    let places = places(parent).into_iter();
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    for entry in entries {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let Some((Ok(pid), Ok(_))) =
            number.map(|(pid, number)| (pid.parse::<i32>(), number.parse::<u64>()))
        else {
            continue;
        };
        let gone = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        let own = entry.metadata().is_ok_and(|of| of.is_dir() && of.uid() == geteuid().as_raw());
        if !gone || !own {
            continue;
        }
        let mount = entry.path().join(MOUNT);
        if mount.metadata().is_err_and(|error| error.raw_os_error() == Some(NOT_CONNECTED)) {
            let _another_may_do_it = fuse::unmount(&mount, true);
            let _another_may_do_it = fs::remove_dir(&mount);
        }
        if mount.try_exists().unwrap_or(true) {
            continue;
        }
        let Ok(dir) = File::open(entry.path()) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _another_may_do_it = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing the directory must not remove what is mounted in it.
        let mount = self.dir.join(MOUNT);
        if mount.exists() && fs::remove_dir(&mount).is_err() {
            eprintln!("iopath: {}: still in use, left there", mount.display());
            return;
        }
        // When a signal has come it is gone.
        if let Err(error) = fs::remove_dir_all(&self.dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("iopath: {}: {error}", self.dir.display());
        }
    }
}
