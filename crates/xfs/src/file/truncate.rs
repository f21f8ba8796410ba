//! Sizes, and blocks that are taken away.
//!
//! A size shrinks first, in the log, and the blocks behind it go afterwards, a few extents at a
//! time: a crash in between leaves blocks behind the end of the file, which nobody reads.

use std::ops::Range;

use base::Errno;
use rt::Cx;
use vfs::iomap::IomapFile;

use super::DataFile;
use crate::bmap::Which;
use crate::format::extent::OFFSET_MAX;
use crate::format::inode::Flags;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl DataFile<'_> {
    pub(crate) fn log_size(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        self.fs.transact(cx, reservations::set_attr(self.fs.geometry()), |cx, trans| {
            trans.join_inode(cx, &self.inode.item);
            self.inode.with(cx, |state| state.core.size = size);
            self.inode.io.lock(cx).times_dirty = false;
            self.inode.log(cx, trans, self.fs.geometry(), InodeFields::CORE);
            Ok(())
        })
    }

    /// Frees the blocks of a range, a few extents in a transaction. The pages are gone already, and
    /// the caller keeps writers of pages away. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn unmap_range(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.cancel_cow(cx, range.clone())?;
        if self.in_realtime(cx) {
            return self.unmap_realtime(cx, range);
        }
        let space = &self.fs.writer()?.space;
        while self.has_blocks(cx, &range)? {
            self.fs.transact(cx, reservations::unmap(self.fs.geometry()), |cx, trans| {
                trans.join_inode(cx, &self.inode.item);
                self.inode.edit_blocks(cx, space, |cx, file| {
                    self.inode.io.lock(cx).forget(range.clone());
                    file.unmap_last(cx, trans, range.clone())
                })?;
                self.inode.log(
                    cx,
                    trans,
                    self.fs.geometry(),
                    InodeFields::CORE | InodeFields::DATA,
                );
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(super) fn has_blocks(&self, cx: &mut Cx, range: &Range<u64>) -> Result<bool, Errno> {
        let found = self.inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= range.start);
            list.get(first).is_some_and(|extent| extent.offset < range.end)
        });
        found.map_err(|fault| self.fs.fault(fault))
    }

    /// Frees the blocks behind the end of a file that were taken ahead of their content. The caller
    /// holds the inode's `rwsem` for writing. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn trim_ahead(&self, cx: &mut Cx) -> Result<(), Errno> {
        let guard = self.inode.writeback.lock(cx);
        self.fs.ahead.lock(cx).remove(&self.inode.ino);
        let ahead = std::mem::take(&mut self.inode.io.lock(cx).ahead);
        let keep = self.inode.with(cx, |state| state.core.flags.contains(Flags::PREALLOC));
        let mut result = Ok(());
        if ahead && !keep {
            let unit = self.extent_hint(cx).unwrap_or(1);
            let from = self.fs.geometry().blocks_of(self.inode.size(cx)).next_multiple_of(unit);
            result = self.unmap_range(cx, from..OFFSET_MAX);
        }
        if ahead {
            result = result.and(self.trim_cow(cx));
        }
        drop(guard);
        result
    }

    /// A user of a file has closed it: one that was cut begins to be written. May park.
    pub(crate) fn write_what_was_cut(&self, cx: &mut Cx) {
        let was_cut = std::mem::take(&mut self.inode.io.lock(cx).was_cut);
        if was_cut && let Some(mapping) = self.inode.mapping_if_any() {
            // The file keeps the error for its next fsync.
            let _latched = mapping.clone().start_flush(cx);
        }
    }

    /// The last user of a file has closed it. May park.
    ///
    /// # Errors
    /// As [`DataFile::trim_ahead`].
    pub(crate) fn closed(&self, cx: &mut Cx) -> Result<(), Errno> {
        let ahead = self.inode.io.lock(cx).ahead;
        if !ahead || self.fs.write.is_none() {
            return Ok(());
        }
        let guard = self.inode.rwsem.write(cx);
        let freed = self.inode.with(cx, |state| state.freed);
        let result = if freed { Ok(()) } else { self.trim_ahead(cx) };
        drop(guard);
        result
    }

    /// Forgets the content of a file that is about to be freed: pages and reservations. The caller
    /// holds the inode's `rwsem` for writing. May park: waits for writes under way.
    pub(crate) fn drop_content(&self, cx: &mut Cx) {
        let Some(mapping) = self.inode.mapping_if_any().cloned() else { return };
        let guard = self.inode.writeback.lock(cx);
        mapping.set_size(0);
        mapping.discard(cx, 0..u64::MAX);
        self.drop_delalloc(cx, 0..u64::MAX);
        self.fs.ahead.lock(cx).remove(&self.inode.ino);
        self.fs.cow_surplus.lock(cx).remove(&self.inode.ino);
        {
            let mut io = self.inode.io.lock(cx);
            io.forget(0..u64::MAX);
            io.cut(0);
            (io.ahead, io.times_dirty) = (false, false);
        }
        // Whoever was about to log it has done so.
        self.inode.item.lock(cx, u64::MAX);
        self.inode.item.unlock();
        drop(guard);
    }
}
