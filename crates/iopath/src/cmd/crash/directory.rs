//! Temporary directories, and the trees that checks look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use super::interrupt;

/// Where temporary trees are kept: in memory, where the host has a file system for that.
const IN_MEMORY: &str = "/dev/shm";

/// A directory of our own that is removed at the end.
pub struct Scratch {
    dir: PathBuf,
}

/// Distinguishes the directories of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Scratch {
    /// Makes one below `parent`, by default below $TMPDIR, /dev/shm or /tmp.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(parent: Option<&Path>) -> Result<Scratch> {
        let parent = match (parent, std::env::var_os("TMPDIR")) {
            (Some(parent), _) => parent.to_owned(),
            (None, Some(dir)) => dir.into(),
            (None, None) if Path::new(IN_MEMORY).is_dir() => IN_MEMORY.into(),
            (None, None) => std::env::temp_dir(),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("iopath-crash-{}-{number}", std::process::id()));
        interrupt::unless_ended(|| fs::create_dir(&dir))
            .with_context(|| dir.display().to_string())?;
        Ok(Scratch { dir })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing the directory must not remove what is mounted in it.
        let mount = self.dir.join("mount");
        if mount.exists() && fs::remove_dir(&mount).is_err() {
            eprintln!("iopath: {}: still in use, left there", mount.display());
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("iopath: {}: {error}", self.dir.display());
        }
    }
}
