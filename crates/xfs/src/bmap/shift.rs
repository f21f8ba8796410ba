//! Extents of a file that move to another place in it; their blocks stay where they are.

use std::ops::Range;

use rt::Cx;
use smallvec::SmallVec;

use super::blocks::FileBlocks;
use super::edit::part;
use crate::error::Result;
use crate::format::Owner;
use crate::format::extent::Extent;
use crate::format::log_item::RmapOp;
use crate::trans::Trans;
use crate::trans::reservations::EXTENTS_AT_ONCE;

impl FileBlocks<'_, '_> {
    /// Moves the first few extents behind a hole to its front, as far as it is long. Returns the
    /// block to go on with; none where nothing is left to move. May park.
    ///
    /// # Errors
    /// If the map cannot grow; the device failed.
    pub fn shift_left(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        hole: Range<u64>,
    ) -> Result<Option<u64>> {
        let by = hole.end - hole.start;
        let first = self.extents().partition_point(|extent| extent.end() <= hole.end);
        let few = self.extents()[first..].iter().take(EXTENTS_AT_ONCE).copied();
        let few: SmallVec<[Extent; EXTENTS_AT_ONCE]> = few.collect();
        for extent in &few {
            self.move_extent(cx, trans, extent, extent.offset - by)?;
        }
        Ok(few.last().map(Extent::end))
    }

    /// Moves the last few extents of a range behind by so many blocks; one that reaches into the
    /// range is cut. Returns where to go on to the front; none where nothing is left. May park.
    ///
    /// # Errors
    /// As [`FileBlocks::shift_left`].
    pub fn shift_right(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
        by: u64,
    ) -> Result<Option<u64>> {
        let last = self.extents().partition_point(|extent| extent.end() <= range.end);
        let inside = self.extents()[..last].iter().rev();
        let inside = inside.take_while(|extent| extent.end() > range.start).take(EXTENTS_AT_ONCE);
        let few: SmallVec<[Extent; EXTENTS_AT_ONCE]> = inside.copied().collect();
        let mut next = None;
        for extent in few {
            let piece = part(&extent, extent.offset.max(range.start)..extent.end());
            self.move_extent(cx, trans, &piece, piece.offset + by)?;
            next = Some(piece.offset);
        }
        Ok(next)
    }

    fn move_extent(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        extent: &Extent,
        offset: u64,
    ) -> Result<()> {
        let (space, ino) = (self.edit.space, self.edit.ino.0);
        self.edit.remove(cx, trans, extent.offset..extent.end())?;
        let moved = Extent { offset, ..*extent };
        let (unmap, map) = match self.reflink {
            true => (RmapOp::UnmapShared, RmapOp::MapShared),
            false => (RmapOp::Unmap, RmapOp::Map),
        };
        let owner = |of: &Extent| Owner::fork(ino, false, of.offset, of.unwritten);
        let section = self.edit.place();
        space.defer_rmap(trans, section, unmap, owner(extent), extent.blocks());
        space.defer_rmap(trans, section, map, owner(&moved), moved.blocks());
        self.edit.add(cx, trans, moved)
    }
}
