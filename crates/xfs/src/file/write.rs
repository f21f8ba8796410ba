//! Writing files through the page cache: a reservation of blocks, then pages.

use base::Errno;
use rt::{Cx, WriteGuard};

use super::DataFile;
use super::ioend::sync_content;
use super::realtime::sync_pages;
use crate::Xfs;

/// The largest size of a file.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

impl<'a> DataFile<'a> {
    /// Locks a file for a change of its content.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` not a regular file, `ESTALE` freed meanwhile; `EROFS`, `EIO` the mount
    /// takes no changes.
    pub(crate) fn begin_write(&self, cx: &mut Cx) -> Result<WriteGuard<'a, ()>, Errno> {
        self.inode.kind(cx).check_regular()?;
        self.fs.writer()?;
        self.inode.lock_alone(cx)
    }
}

/// At the end of the mount: writes everything out, and gives back what files hold ahead of
/// need.
///
/// # Errors
/// The first write error.
pub(crate) fn close_content(fs: &Xfs, cx: &mut Cx) -> Result<(), Errno> {
    let result = sync_content(fs, cx);
    fs.backings().for_each(|backing| backing.shutdown(cx));
    trim_all(fs, cx);
    result
}

/// Gives back what files hold ahead of need, and what reservations hold for the worst case.
pub(crate) fn reclaim_space(fs: &Xfs, cx: &mut Cx) {
    trim_all(fs, cx);
    // Errors stay with the files that have them.
    let _ = sync_pages(fs, cx);
}

fn trim_all(fs: &Xfs, cx: &mut Cx) {
    let ahead = std::mem::take(&mut *fs.ahead.lock(cx));
    for ino in ahead {
        if let Some(inode) = fs.inodes.find(ino)
            && let Some(guard) = inode.rwsem.try_write()
        {
            // Whoever wants the space gets an error if it is not enough.
            let _ = DataFile::new(fs, &inode).trim_ahead(cx);
            drop(guard);
        } else {
            fs.ahead.lock(cx).insert(ino);
        }
    }
}
