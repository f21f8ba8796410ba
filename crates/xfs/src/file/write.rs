//! Writing files through the page cache: a reservation of blocks, then pages.

use std::sync::Arc;

use base::Errno;
use rt::{Cx, WriteGuard};

use crate::Xfs;
use crate::bmap::Which;
use crate::inode::Inode;

/// The largest size of a file.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

impl Xfs {
    /// Locks a file for a change of its content.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` not a regular file, `ESTALE` freed meanwhile; `EROFS`, `EIO` the mount
    /// takes no changes.
    pub(crate) fn begin_write<'i>(
        &self,
        cx: &mut Cx,
        inode: &'i Inode,
    ) -> Result<WriteGuard<'i, ()>, Errno> {
        inode.kind(cx).check_regular()?;
        self.writer()?;
        inode.lock_alone(cx)
    }

    /// The content changes now; the times go to the disk with the data.
    pub(crate) fn stamp_times(&self, cx: &Cx, inode: &Inode) {
        let now = cx.realtime();
        inode.with(cx, |state| (state.core.mtime, state.core.ctime) = (now, now));
        inode.io.lock(cx).times_dirty = true;
    }

    /// Takes away what lies between the end of the file and `offset` and is marked as written: a
    /// crash in the middle of a truncation, or another implementation, may have left old content
    /// there.
    pub(crate) fn clear_gap(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
    ) -> Result<(), Errno> {
        let bits = self.geometry().block_bits;
        let (from, to) = (inode.size(cx).div_ceil(1 << bits), offset >> bits);
        if from >= to {
            return Ok(());
        }
        let old = inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= from);
            list[first..].iter().take_while(|extent| extent.offset < to).any(|e| !e.unwritten)
        });
        match old.map_err(|fault| self.fault(fault))? {
            true => self.unmap_range(cx, inode, from..to),
            false => Ok(()),
        }
    }

    /// At the end of the mount: writes everything out, and gives back what files hold ahead of
    /// need.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn close_content(&self, cx: &mut Cx) -> Result<(), Errno> {
        let result = self.sync_content(cx);
        self.backing.shutdown(cx);
        self.trim_all(cx);
        result
    }

    /// Gives back what files hold ahead of need, and what reservations hold for the worst case.
    pub(crate) fn make_room(&self, cx: &mut Cx) {
        self.trim_all(cx);
        // Errors stay with the files that have them.
        let _ = self.backing.sync(cx);
    }

    fn trim_all(&self, cx: &mut Cx) {
        let ahead = std::mem::take(&mut *self.ahead.lock(cx));
        for ino in ahead {
            if let Some(inode) = self.inodes.find(ino)
                && let Some(guard) = inode.rwsem.try_write()
            {
                // Whoever wants the space gets an error if it is not enough.
                let _ = self.trim_ahead(cx, &inode);
                drop(guard);
            } else {
                self.ahead.lock(cx).insert(ino);
            }
        }
    }
}
