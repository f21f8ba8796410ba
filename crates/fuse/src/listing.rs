//! Directory listings: the file system lists under the directory's lock, and must not be called
//! from there, so that entries are collected first.

use base::{Errno, Ino};
use rt::Cx;
use vfs::{FileSystem, FileType};

/// An entry of a directory, out of its lock.
pub(crate) struct Entry {
    pub ino: Ino,
    pub kind: Option<FileType>,
    pub name: Vec<u8>,
    pub cookie: u64,
}

impl Entry {
    pub fn is_dot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }
}

/// The next `count` entries behind `cookie`; fewer only at the end. May park.
///
/// # Errors
/// Those of [`FileSystem::readdir`].
pub(crate) fn collect(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    cookie: u64,
    count: usize,
) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::with_capacity(count);
    fs.readdir(cx, dir, cookie, &mut |entry| {
        if entries.len() == count {
            return false;
        }
        let (ino, kind, cookie) = (entry.ino, entry.kind, entry.cookie);
        entries.push(Entry { ino, kind, name: entry.name.to_vec(), cookie });
        true
    })?;
    Ok(entries)
}
