//! Sizes, and blocks that are taken away.
//!
//! A size shrinks first, in the log, and the blocks behind it go afterwards, a few extents at a
//! time: a crash in between leaves blocks behind the end of the file, which nobody reads.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::bmap::Which;
use crate::format::extent::OFFSET_MAX;
use crate::format::inode::Flags;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl Xfs {
    /// Blocks that `size` bytes need.
    pub(crate) fn blocks_of(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.geometry().block_size))
    }

    pub(crate) fn log_size(&self, cx: &mut Cx, inode: &Arc<Inode>, size: u64) -> Result<(), Errno> {
        self.transact(cx, reservations::set_attr(self.geometry()), |cx, trans| {
            trans.join_inode(cx, &inode.item);
            inode.with(cx, |state| state.core.size = size);
            inode.io.lock(cx).times_dirty = false;
            inode.log(cx, trans, self.geometry(), InodeFields::CORE);
            Ok(())
        })
    }

    /// Frees the blocks of a range, a few extents in a transaction. The pages are gone already, and
    /// the caller keeps writers of pages away. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn unmap_range(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        self.cancel_cow(cx, inode, range.clone())?;
        let space = &self.writer()?.space;
        while self.has_blocks(cx, inode, &range)? {
            self.transact(cx, reservations::unmap(self.geometry()), |cx, trans| {
                trans.join_inode(cx, &inode.item);
                inode.edit_blocks(cx, space, |cx, file| {
                    inode.io.lock(cx).forget(range.clone());
                    file.unmap_last(cx, trans, range.clone())
                })?;
                inode.log(cx, trans, self.geometry(), InodeFields::CORE | InodeFields::DATA);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn has_blocks(&self, cx: &mut Cx, inode: &Inode, range: &Range<u64>) -> Result<bool, Errno> {
        let found = inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= range.start);
            list.get(first).is_some_and(|extent| extent.offset < range.end)
        });
        found.map_err(|fault| self.fault(fault))
    }

    /// Frees the blocks behind the end of a file that were taken ahead of their content. The caller
    /// holds the inode's `rwsem` for writing. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn trim_ahead(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        let guard = inode.writeback.lock(cx);
        self.ahead.lock(cx).remove(&inode.ino);
        let ahead = std::mem::take(&mut inode.io.lock(cx).ahead);
        let keep = inode.with(cx, |state| state.core.flags.contains(Flags::PREALLOC));
        let mut result = Ok(());
        if ahead && !keep {
            let from = self.blocks_of(inode.size(cx));
            result = self.unmap_range(cx, inode, from..OFFSET_MAX);
        }
        drop(guard);
        result
    }

    /// The last user of a file has closed it. May park.
    ///
    /// # Errors
    /// As [`Xfs::trim_ahead`].
    pub(crate) fn closed(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        let ahead = inode.io.lock(cx).ahead;
        if !ahead || self.write.is_none() {
            return Ok(());
        }
        let guard = inode.rwsem.write(cx);
        let freed = inode.with(cx, |state| state.freed);
        let result = if freed { Ok(()) } else { self.trim_ahead(cx, inode) };
        drop(guard);
        result
    }

    /// Forgets the content of a file that is about to be freed: pages and reservations. The caller
    /// holds the inode's `rwsem` for writing. May park: waits for writes under way.
    pub(crate) fn drop_content(&self, cx: &mut Cx, inode: &Arc<Inode>) {
        let Some(mapping) = inode.mapping_if_any().cloned() else { return };
        let guard = inode.writeback.lock(cx);
        mapping.set_size(0);
        mapping.discard(cx, 0..u64::MAX);
        self.drop_delalloc(cx, inode, 0..u64::MAX);
        self.ahead.lock(cx).remove(&inode.ino);
        {
            let mut io = inode.io.lock(cx);
            io.forget(0..u64::MAX);
            io.cut(0);
            (io.ahead, io.times_dirty) = (false, false);
        }
        // Whoever was about to log it has done so.
        inode.item.lock(cx, u64::MAX);
        inode.item.unlock();
        drop(guard);
    }
}
