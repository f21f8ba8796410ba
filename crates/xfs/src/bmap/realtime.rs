//! Blocks of the realtime section for the content of a file: taken and given back in whole extents
//! of the section, which lie in the file at multiples of their length.

use std::ops::Range;

use rt::Cx;
use smallvec::{SmallVec, smallvec};

use super::blocks::FileBlocks;
use crate::alloc::realtime::{Realtime, RealtimeRequest};
use crate::error::Result;
use crate::format::extent::{COUNT_MAX, Extent};
use crate::format::log_item::RmapOp;
use crate::format::{FsExtent, Owner, Section};
use crate::trans::Trans;
use crate::trans::reservations::EXTENTS_AT_ONCE;

impl FileBlocks<'_, '_> {
    /// Blocks of an extent of the section.
    fn unit(&self) -> u64 {
        u64::from(self.edit.space.geometry.realtime.extent_blocks)
    }

    /// Takes extents of the section for the first blocks of a range, as many as lie together. The
    /// file has none there, and the transaction has joined the section's space. None if there is
    /// none left. May park.
    ///
    /// # Errors
    /// If the map cannot grow; what the section's bitmap says; the device failed.
    pub fn allocate_realtime(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        realtime: &Realtime,
        range: Range<u64>,
    ) -> Result<Option<Extent>> {
        let (unit, unwritten) = (self.unit(), true);
        let offset = range.start / unit * unit;
        let most = (range.end - offset).div_ceil(unit).min(COUNT_MAX / unit);
        let before = self.extents().partition_point(|extent| extent.end() <= offset);
        let last = before.checked_sub(1).map(|index| self.extents()[index]);
        let (space, shape) = (self.edit.space, self.edit.space.geometry.realtime);
        let goal = last.map(|last| (shape.linear(last.start) + (offset - last.offset)) / unit);
        let want = RealtimeRequest { goal, most };
        let Some(run) = realtime.allocate(cx, trans, space, want)? else { return Ok(None) };
        let (start, count) = (shape.block_of(run.start), (run.end - run.start) * unit);
        let extent = Extent { offset, start, count: count as u32, unwritten };
        self.edit.add(cx, trans, extent)?;
        *self.edit.blocks += count;
        let owner = Owner::fork(self.edit.ino.0, false, offset, unwritten);
        space.defer_rmap(trans, Section::Realtime, RmapOp::Map, owner, extent.blocks());
        Ok(Some(extent))
    }

    /// Gives back the last few extents of a range, which begins and ends with extents of the
    /// section. True if there may be more. The transaction has joined the section's space. May
    /// park.
    ///
    /// # Errors
    /// As [`FileBlocks::allocate_realtime`].
    pub fn unmap_last_realtime(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        realtime: &Realtime,
        range: Range<u64>,
    ) -> Result<bool> {
        let (unit, space) = (self.unit(), self.edit.space);
        let behind = self.extents().partition_point(|extent| extent.offset < range.end);
        let last = behind.checked_sub(1).map(|index| self.extents()[index]);
        let Some(last) = last.filter(|last| last.end() > range.start) else { return Ok(false) };
        let end = last.end().next_multiple_of(unit).min(range.end);
        let most = realtime.run_max() * unit;
        let least = range.start.max(end.saturating_sub(most));
        let mut start = (last.offset / unit * unit).max(least);
        let first = self.extents().partition_point(|extent| extent.end() <= start);
        if behind - first > EXTENTS_AT_ONCE {
            // Those extents of the section that the last one has for itself.
            start = last.offset.next_multiple_of(unit).max(least);
            if start >= end {
                // Parts of one extent of the section: as unwritten ones they become one.
                self.unwrite(cx, trans, end - unit..end)?;
                return Ok(true);
            }
        }
        let gone = self.edit.remove(cx, trans, start..end)?;
        let Some(first) = gone.first() else { return Ok(false) };
        let op = if self.reflink { RmapOp::UnmapShared } else { RmapOp::Unmap };
        // What was cut at a border of written and unwritten lies together all the same.
        let mut runs: SmallVec<[FsExtent; 4]> = smallvec![FsExtent { start: first.start, len: 0 }];
        for extent in &gone {
            *self.edit.blocks -= u64::from(extent.count);
            let owner = Owner::fork(self.edit.ino.0, false, extent.offset, extent.unwritten);
            space.defer_rmap(trans, Section::Realtime, op, owner, extent.blocks());
            let run = runs.last_mut().expect("the first one");
            let count = u64::from(run.len) + u64::from(extent.count);
            let goes_on = extent.start.0 == run.start.0 + u64::from(run.len);
            match goes_on && space.geometry.realtime.holds(run.start, count) {
                true => run.len += extent.count,
                false => runs.push(extent.blocks()),
            }
        }
        for run in runs {
            match space.geometry.section_trees() {
                true => space.defer_drop_realtime(trans, run, self.reflink),
                false => realtime.release(cx, trans, space, run)?,
            }
        }
        let next = self.extents().partition_point(|extent| extent.end() <= range.start);
        Ok(self.extents().get(next).is_some_and(|extent| extent.offset < range.end))
    }

    /// Makes the first few written extents of a range unwritten: what reads as zeros, and cannot be
    /// given back because it is a part of an extent of the section. True if there are more. May
    /// park.
    ///
    /// # Errors
    /// If the map cannot grow; the device failed.
    pub fn unwrite(&mut self, cx: &mut Cx, trans: &mut Trans, range: Range<u64>) -> Result<bool> {
        let end = self.written_until(range.clone());
        let op = if self.reflink { RmapOp::ConvertShared } else { RmapOp::Convert };
        for extent in self.edit.convert(cx, trans, range.start..end, true)? {
            let owner = Owner::fork(self.edit.ino.0, false, extent.offset, true);
            self.edit.space.defer_rmap(trans, Section::Realtime, op, owner, extent.blocks());
        }
        Ok(end < range.end)
    }

    /// Where a transaction that makes a range unwritten should stop: at its end, or behind as many
    /// written extents as it can take.
    fn written_until(&self, range: Range<u64>) -> u64 {
        let first = self.extents().partition_point(|extent| extent.end() <= range.start);
        let inside = self.extents()[first..].iter().take_while(|extent| extent.offset < range.end);
        let last = inside.filter(|extent| !extent.unwritten).nth(EXTENTS_AT_ONCE - 1);
        last.map_or(range.end, |last| last.end().min(range.end))
    }
}
