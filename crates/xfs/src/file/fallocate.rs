//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::DataFile;
use crate::alloc::BlockReservation;
use crate::bmap::Which;
use crate::format::extent::{COUNT_MAX, OFFSET_MAX};
use crate::format::inode::Flags;
use crate::inode::State;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl DataFile<'_> {
    /// Blocks in units of which the file gets its space, where it asks for more than one.
    pub(super) fn extent_hint(&self, cx: &Cx) -> Option<u64> {
        let core = |state: &State| (state.core.flags.contains(Flags::EXTSIZE), state.core.extsize);
        let (asked, blocks) = self.inode.with(cx, |state| core(state));
        (asked && blocks > 1).then_some(u64::from(blocks))
    }

    /// A hole of the file, or a part of it, as wide as the file wants its extents to be.
    fn widened(&self, cx: &mut Cx, hole: Range<u64>) -> Result<Range<u64>, Errno> {
        let Some(unit) = self.extent_hint(cx) else { return Ok(hole) };
        let around = self.inode.extents(cx, Which::Data, |list| {
            let next = list.partition_point(|extent| extent.end() <= hole.start);
            let before = next.checked_sub(1).map_or(0, |index| list[index].end());
            (before, list.get(next).map_or(OFFSET_MAX, |extent| extent.offset))
        });
        let (before, next) = around.map_err(|fault| self.fs.fault(fault))?;
        let (start, end) = (hole.start / unit * unit, hole.end.next_multiple_of(unit));
        Ok(start.max(before)..end.min(next))
    }

    /// Gives blocks to the holes of a range and around them, in the units that the file wants, in
    /// the place of a reservation. Before its pages become dirty. May park.
    ///
    /// # Errors
    /// As [`DataFile::preallocate_step`].
    pub(super) fn reserve_hinted(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            at = self.preallocate_step(cx, at..range.end)?;
        }
        Ok(())
    }

    /// Gives unwritten blocks to the first hole of a range. Returns the block to go on with. The
    /// inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn preallocate_step(&self, cx: &mut Cx, range: Range<u64>) -> Result<u64, Errno> {
        if self.in_realtime(cx) {
            return self.preallocate_realtime(cx, range);
        }
        let at = range.start;
        let mapped = self.map_file(cx, range)?;
        if mapped.start.is_some() {
            return Ok(at + mapped.count);
        }
        let hole = self.widened(cx, at..at + mapped.count)?;
        let space = &self.fs.writer()?.space;
        let free = space.available().saturating_sub(space.kept_back());
        let most = hole.end - hole.start;
        // Where there is little space only what is asked for.
        let (from, most) = if most <= free { (hole.start, most) } else { (at, mapped.count) };
        let want = most.min(COUNT_MAX).min(free.max(1));
        let hold = self.fs.reserve_quota_blocks(cx, self.inode, want)?;
        let mut reserved =
            BlockReservation::new(space, want).map_err(|error| self.fs.fail(error))?;
        let guard = self.inode.writeback.lock(cx);
        let mut result = Err(Errno::ENOSPC);
        for _ in 0..3 {
            let found =
                self.fs.transact(cx, reservations::write(self.fs.geometry()), |cx, trans| {
                    trans.join_inode(cx, &self.inode.item);
                    let found = self.inode.edit_blocks(cx, space, |cx, file| {
                        file.allocate(cx, trans, from..from + want)
                    })?;
                    let Some(found) = found else { return Ok(None) };
                    reserved.take(u64::from(found.count));
                    let fields = InodeFields::CORE | InodeFields::DATA;
                    self.inode.log(cx, trans, self.fs.geometry(), fields);
                    Ok(Some(found))
                });
            result = found
                .and_then(|found| found.map(|extent| extent.end().max(at)).ok_or(Errno::ENOSPC));
            if result != Err(Errno::ENOSPC) {
                break;
            }
        }
        drop((guard, hold));
        result
    }
}
