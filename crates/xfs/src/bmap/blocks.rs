//! Blocks for the content of a file: taken, marked as written, given back.
//!
//! Blocks are taken in the *unwritten* state, in which they read as zeros, and become written when
//! the content is on the device; so no crash shows what was on the disk before.

use std::ops::Range;

use base::Ino;
use rt::Cx;

use super::edit::MapEdit;
use super::{Fork, Which};
use crate::alloc::AllocRequest;
use crate::error::{Result, XfsError};
use crate::format::btree::{MapRoot, Shape};
use crate::format::extent::{COUNT_MAX, EXTENT_SIZE, Extent};
use crate::format::inode::ForkFormat;
use crate::format::log_item::RmapOp;
use crate::format::{AgBlock, At, Geometry, Kind, Owner, Section};
use crate::trans::Trans;
use crate::trans::reservations::EXTENTS_AT_ONCE;

/// Unwritten extents of a run that one transaction marks as written at the most.
const UNWRITTEN_AT_ONCE: usize = 16;

/// The data fork of a file whose blocks are changed in a transaction.
pub(crate) struct FileBlocks<'a, 'b> {
    /// The data fork.
    pub edit: &'a mut MapEdit<'b>,
    /// The file may share blocks with others: [`Flags2::REFLINK`](crate::format::inode::Flags2).
    pub reflink: bool,
}

impl FileBlocks<'_, '_> {
    pub(super) fn extents(&self) -> &[Extent] {
        self.edit.fork.extents.as_deref().expect("the extents were read")
    }

    /// Where a block of the file would best lie: behind the block before it, else in the group of
    /// its inode.
    fn goal(&self, offset: u64) -> AgBlock {
        let geometry = &self.edit.space.geometry;
        let before = self.extents().partition_point(|extent| extent.end() <= offset);
        let Some(last) = before.checked_sub(1).map(|index| self.extents()[index]) else {
            return AgBlock { block: 0, ..self.edit.near };
        };
        let place = geometry.split(last.start);
        let behind = u64::from(place.block) + offset - last.offset;
        let whole = u64::from(geometry.ag_length(place.ag));
        let block = if behind < whole { behind as u32 } else { place.block + last.count };
        AgBlock { ag: place.ag, block: block.min(whole as u32 - 1) }
    }

    /// Where `most` blocks should begin: a file's first blocks, where they are enough for it, at a
    /// unit of the stripe that the file system was made for.
    fn alignment(&self, most: u64) -> u32 {
        let unit = self.edit.space.geometry.stripe.0;
        let aligned = unit > 1 && most >= u64::from(unit) && self.extents().is_empty();
        if aligned { unit } else { 1 }
    }

    /// Takes blocks for the first ones of a range, as many as lie together. The caller has set them
    /// aside ([`Space::reserve`](crate::alloc::Space::reserve)), and the file has none there. None
    /// if no group that this transaction may look into has any: another one may find some. May
    /// park.
    ///
    /// # Errors
    /// If the map cannot grow; the device failed.
    pub fn allocate(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<Option<Extent>> {
        let (offset, most) = (range.start, range.end - range.start);
        let unwritten = true;
        let want = AllocRequest {
            goal: self.goal(offset),
            min_len: 1,
            max_len: most.clamp(1, COUNT_MAX) as u32,
            align: self.alignment(most),
            this_group: false,
            owner: Some(Owner::fork(self.edit.ino.0, false, offset, unwritten)),
            metadata: false,
        };
        let space = self.edit.space;
        let mut found = space.allocate(cx, trans, &want);
        if want.align > 1 && matches!(found, Err(XfsError::NoSpace)) {
            found = space.allocate(cx, trans, &AllocRequest { align: 1, ..want });
        }
        let found = match found {
            Err(XfsError::NoSpace) => return Ok(None),
            other => other?,
        };
        let start = space.geometry.join(found.start);
        let extent = Extent { offset, start, count: found.len, unwritten };
        self.edit.add(cx, trans, extent)?;
        *self.edit.blocks += u64::from(extent.count);
        Ok(Some(extent))
    }

    /// Marks what is unwritten of a range as written. True if something was. May park.
    ///
    /// # Errors
    /// If the map cannot grow; the device failed.
    pub fn convert(&mut self, cx: &mut Cx, trans: &mut Trans, range: Range<u64>) -> Result<bool> {
        let changed = self.edit.convert(cx, trans, range, false)?;
        for extent in &changed {
            let owner = Owner::fork(self.edit.ino.0, false, extent.offset, false);
            let blocks = extent.blocks();
            let op = if self.reflink { RmapOp::ConvertShared } else { RmapOp::Convert };
            self.edit.space.defer_rmap(trans, self.edit.place(), op, owner, blocks);
        }
        Ok(!changed.is_empty())
    }

    /// Where a transaction that marks a range as written should stop: at its end, or behind as many
    /// unwritten extents as it can take.
    pub fn unwritten_until(&self, range: Range<u64>) -> u64 {
        let Range { start: offset, end } = range;
        let first = self.extents().partition_point(|extent| extent.end() <= offset);
        let inside = self.extents()[first..].iter().take_while(|extent| extent.offset < end);
        let last = inside.filter(|extent| extent.unwritten).nth(UNWRITTEN_AT_ONCE - 1);
        last.map_or(end, |last| last.end().min(end))
    }

    /// Gives back the last few extents of `from..end`. True if there are more. May park.
    ///
    /// # Errors
    /// If the map cannot be changed; the device failed.
    pub fn unmap_last(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<bool> {
        let Range { start: from, end } = range;
        let first = self.extents().partition_point(|extent| extent.end() <= from);
        let last = self.extents().partition_point(|extent| extent.offset < end);
        if first >= last {
            return Ok(false);
        }
        let cut = last.saturating_sub(EXTENTS_AT_ONCE).max(first);
        let start = self.extents()[cut].offset.max(from);
        let gone = self.edit.remove(cx, trans, start..end)?;
        for extent in &gone {
            *self.edit.blocks -= u64::from(extent.count);
            let (ino, section) = (self.edit.ino, Section::Data);
            self.edit.space.defer_drop(trans, section, ino, Which::Data, extent, self.reflink);
        }
        Ok(cut > first)
    }
}

/// Blocks that a map may need when `extents` are added to it, each at a place of its own.
pub(crate) fn worst_case(geometry: &Geometry, ino: Ino, fork: &Fork, extents: u64) -> u64 {
    let room = (fork.room() / EXTENT_SIZE) as u64;
    if extents == 0 || fork.format == ForkFormat::Extents && fork.count + extents <= room {
        return 0;
    }
    let root = match fork.format {
        ForkFormat::Btree => MapRoot::parse(&fork.bytes, At::Inode(ino)).ok(),
        _ => None,
    };
    let levels = root.map_or(1, |root| u64::from(root.level));
    let (shape, size) = (Shape::of(Kind::Bmap), geometry.block_size as usize);
    // A block that splits leaves two halves.
    let (mut total, mut row) = (levels, extents);
    for level in 0.. {
        row = row.div_ceil(shape.min(size, level).max(1) as u64);
        total += row;
        if row <= 1 {
            break;
        }
    }
    total
}
