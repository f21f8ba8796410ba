//! Walks over trees.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::{Errno, Ino};
use vfs::FileType;
use vfs::walk::Reached;

use crate::dir::{DirEntry, ReadDir};
use crate::error::{Error, Result};
use crate::mounted::Mounted;

/// Everything below a directory: [`Fs::walk`](crate::Fs::walk). What cannot be read is one error
/// among the entries; the walk goes on behind it.
pub struct Walk {
    mounted: Arc<Mounted>,
    /// The directories that are being listed, the deepest last.
    open: Vec<ReadDir>,
    reached: Reached,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("open", &self.open).finish()
    }
}

impl Walk {
    pub(crate) fn open(mounted: &Arc<Mounted>, path: &Path) -> Result<Walk> {
        let start = mounted.call(path, |cx, names, path| names.stat(cx, path))?.ino;
        let mut reached = mounted.enter("walk", |cx| Reached::above(cx, &*mounted.fs, start));
        // The start may be the root, which lies above itself.
        reached.insert(start);
        let open = vec![ReadDir::open(mounted, path)?];
        Ok(Walk { mounted: mounted.clone(), open, reached })
    }

    /// Goes into a directory.
    fn descend(&mut self, entry: &DirEntry) -> Result<()> {
        if !self.reached.insert(Ino(entry.ino())) {
            let words = "this directory was reached before: it lies below itself or has two names";
            return Err(Error::because(self.mounted.place(&entry.path()), Errno::ELOOP, words));
        }
        self.open.push(entry.read_dir()?);
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            let Some(entry) = self.open.last_mut()?.next() else {
                self.open.pop();
                continue;
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let went = match entry.file_type() {
                Ok(FileType::Directory) => self.descend(&entry),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            return Some(went.map(|()| entry));
        }
    }
}
