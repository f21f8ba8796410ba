//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::format::extent::COUNT_MAX;
use crate::format::inode::Flags;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::mount::writer::BlockReservation;
use crate::trans::reservations;

impl Xfs {
    /// Makes `bytes` a hole. The inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn punch_hole(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        let Range { start: offset, end } = bytes;
        let bits = self.geometry().block_bits;
        let mapping = inode.mapping(cx).clone();
        let on_disk = inode.disk_size(cx);
        if on_disk < mapping.size() && on_disk < end {
            // Pages that would have carried the size to the disk are about to go.
            let from = on_disk >> bits << bits;
            self.flush_file(cx, inode, from..u64::MAX, true)?;
        }
        let guard = inode.writeback.lock(cx);
        let (from, to) = (self.blocks_of(offset), end >> bits);
        self.allocate_cow_edge(cx, inode, offset)?;
        self.allocate_cow_edge(cx, inode, end)?;
        let mut result = mapping.punch(cx, offset..end);
        if from < to && result.is_ok() {
            self.drop_delalloc(cx, inode, from..to);
            result = self.unmap_range(cx, inode, from..to);
            mapping.discard(cx, from << bits..to << bits);
        }
        drop(guard);
        result
    }

    /// Gives `bytes` blocks that read as zeros. The inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn preallocate(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        let Range { start: offset, end } = bytes;
        let bits = self.geometry().block_bits;
        // Afterwards no delayed allocation lies in the range.
        self.flush_file(cx, inode, offset..end, false)?;
        if end > inode.size(cx) {
            // What is behind the end shall read as zeroes when the file gets there.
            self.clear_gap(cx, inode, end.next_multiple_of(1 << bits))?;
        }
        let (mut at, to) = (offset >> bits, self.blocks_of(end));
        while at < to {
            at = self.preallocate_step(cx, inode, at..to)?;
        }
        inode.with(cx, |state| state.core.flags.insert(Flags::PREALLOC));
        Ok(())
    }

    /// Gives unwritten blocks to the first hole of a range. Returns the block to go on with. The
    /// inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn preallocate_step(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> Result<u64, Errno> {
        let at = range.start;
        let mapped = self.map_file(cx, inode, range)?;
        if mapped.start.is_some() {
            return Ok(at + mapped.count);
        }
        let space = &self.writer()?.space;
        let free = space.available().saturating_sub(space.kept_back());
        let want = mapped.count.min(COUNT_MAX).min(free.max(1));
        let mut reserved = BlockReservation::new(space, want).map_err(|error| self.fail(error))?;
        let guard = inode.writeback.lock(cx);
        let mut result = Err(Errno::ENOSPC);
        for _ in 0..3 {
            let found = self.transact(cx, reservations::write(self.geometry()), |cx, trans| {
                trans.join_inode(cx, &inode.item);
                let found = inode
                    .edit_blocks(cx, space, |cx, file| file.allocate(cx, trans, at..at + want))?;
                let Some(found) = found else { return Ok(None) };
                reserved.take(u64::from(found.count));
                let fields = InodeFields::CORE | InodeFields::DATA;
                inode.log(cx, trans, self.geometry(), fields);
                Ok(Some(found))
            });
            result = found.and_then(|found| found.map(|extent| extent.end()).ok_or(Errno::ENOSPC));
            if result != Err(Errno::ENOSPC) {
                break;
            }
        }
        drop(guard);
        result
    }
}
