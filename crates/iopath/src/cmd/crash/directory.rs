//! Temporary directories, and the trees that checks look at.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crash::host::{self, IMAGE, MOUNT, PREFIX};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use super::interrupt;

/// A directory of our own that is removed at the end.
pub struct Scratch {
    dir: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

impl Scratch {
    /// Makes one below `parent`, by default below $TMPDIR, /dev/shm or /tmp.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(parent: Option<&Path>) -> Result<Scratch> {
        let parent = parent.map_or_else(host::folder, Path::to_owned);
        // As the kernel's table of mounts names it.
        let parent = parent.canonicalize().with_context(|| parent.display().to_string())?;
        let dir = parent.join(host::own_name());
        let made = interrupt::unless_ended(|| {
            fs::create_dir(&dir)?;
            // Whatever the umask is, who becomes another user may go through; nobody may list it.
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))?;
            let lock = File::open(&dir)?;
            // Where the file system has no locks, what is left is not removed by others.
            let _locked = lock.try_lock();
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

/// Where directories may have been made, each once and without symlinks; `parents` are where the
/// user wants them.
pub fn places<'a>(parents: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let parents = parents.into_iter().map(Path::to_owned);
    let usual = [host::IN_MEMORY.into(), std::env::temp_dir()];
    parents.chain(usual).filter_map(|place| place.canonicalize().ok()).collect()
}

/// Removes what processes that were killed have left: directories and copies of states of this user
/// whose process is gone and which nobody has locked (it may live in another namespace of
/// processes). What is mounted in them is unmounted before.
pub fn remove_left<'a>(parents: impl IntoIterator<Item = &'a Path>) {
    let places = places(parents).into_iter();
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    for entry in entries {
        let name = entry.file_name();
        let Some((pid, ending)) = name.to_str().and_then(made_by) else { continue };
        let gone = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        let Ok(of) = entry.metadata() else { continue };
        if !gone || of.uid() != geteuid().as_raw() {
            continue;
        }
        match ending {
            None if of.is_dir() => directory_left(&entry.path()),
            Some(IMAGE) if of.is_file() => copy_left(&entry.path()),
            _ => {}
        }
    }
}

/// The process that made what has this name, and what the name ends in.
fn made_by(name: &str) -> Option<(i32, Option<&str>)> {
    let (pid, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (word, rest) = rest.split_once('-')?;
    word.parse::<u64>().ok()?;
    let (number, ending) = match rest.split_once('.') {
        Some((number, ending)) => (number, Some(ending)),
        None => (rest, None),
    };
    number.parse::<u64>().ok()?;
    Some((pid.parse().ok()?, ending))
}

/// Removes a directory and all that is in it. What is mounted below it is unmounted first: removing
/// goes into no mount. It may be gone already.
///
/// # Errors
/// Something cannot be unmounted; then nothing is removed. Something cannot be removed.
pub fn remove(dir: &Path) -> io::Result<()> {
    unmount_below(dir)?;
    let removed = fs::remove_dir_all(dir).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
        _ => Err(error),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Unmounts what is mounted below a directory, and says so.
///
/// # Errors
/// Something cannot be unmounted.
pub fn unmount_below(dir: &Path) -> io::Result<()> {
    for place in fuse::unmount_below(dir)? {
        eprintln!("iopath: {}: was left mounted; it is unmounted", place.display());
    }
    match fuse::unmount_below(dir)?.first() {
        Some(place) => Err(io::Error::other(format!("{}: mounted again", place.display()))),
        None => Ok(()),
    }
}

/// Lets their owner into a directory and all below it.
fn open_up(dir: &Path) -> io::Result<()> {
    let mut folders = vec![dir.to_owned()];
    while let Some(dir) = folders.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

fn directory_left(dir: &Path) {
    let Ok(lock) = File::open(dir) else { return };
    if lock.try_lock().is_ok() {
        let _another_may_do_it = remove(dir);
    }
}

fn copy_left(image: &Path) {
    let Ok(lock) = File::open(image) else { return };
    let mount = image.with_extension(MOUNT);
    if lock.try_lock().is_err() {
        return;
    }
    if mount.exists() {
        let _none_is_mounted = unmount_below(&mount);
        let _none_is_mounted = fuse::unmount(&mount, true);
        if fs::remove_dir(&mount).is_err() {
            return;
        }
    }
    let _another_may_do_it = fs::remove_file(image);
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing the directory must not remove what is mounted in it.
        let mount = self.dir.join(MOUNT);
        if mount.exists() && fs::remove_dir(&mount).is_err() {
            eprintln!("iopath: {}: still in use, left there", mount.display());
            return;
        }
        if let Err(error) = remove(&self.dir) {
            eprintln!("iopath: {}: {error}", self.dir.display());
        }
    }
}
