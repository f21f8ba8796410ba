//! An exchange of ranges between two files, one step of it in each transaction.
//!
//! A step exchanges the longest run that both files map alike; what both have as holes, or never
//! written, stays. The log announces what is left before each step (XMI), so recovery goes on where
//! a crash ended the chain: afterwards all is exchanged, or nothing.
//!
//! Source: kernel `Documentation/filesystems/xfs/xfs-online-fsck-design.rst`, on logged file
//! content exchanges; logs of kernel 6.18.

use std::ops::Range;

use rt::Cx;

use super::blocks::FileBlocks;
use super::{Mapped, lookup};
use crate::alloc::Space;
use crate::error::Result;
use crate::format::extent::Extent;
use crate::format::inode::{Flags2, InodeCore};
use crate::format::log_item::RmapOp;
use crate::format::{FsExtent, Owner};
use crate::trans::Trans;
use crate::trans::intent::{Exchange, exchange_flags};

/// A file whose content is exchanged.
pub(crate) trait ExchangedFile {
    /// What it has for the first blocks of a range.
    ///
    /// # Errors
    /// The extents cannot be read.
    fn lookup(&mut self, cx: &mut Cx, range: Range<u64>) -> Result<Mapped>;

    /// Changes its map.
    ///
    /// # Errors
    /// Those of `change`.
    fn edit<R>(
        &mut self,
        cx: &mut Cx,
        space: &Space,
        change: impl FnOnce(&mut Cx, &mut FileBlocks<'_, '_>) -> Result<R>,
    ) -> Result<R>;

    /// Changes its values.
    fn set(&mut self, cx: &Cx, change: impl FnOnce(&mut InodeCore));
}

/// What a list of extents has for the first blocks of a range.
pub(crate) fn mapped(extents: Option<&[Extent]>, range: Range<u64>) -> Mapped {
    lookup(extents.unwrap_or_default(), range)
}

impl FileBlocks<'_, '_> {
    fn owner_changes(&self, trans: &mut Trans, op: RmapOp, extent: &Extent) {
        let owner = Owner::fork(self.edit.ino.0, false, extent.offset, extent.unwritten);
        let blocks: FsExtent = extent.blocks();
        self.edit.space.defer_rmap(trans, self.edit.place(), op, owner, blocks);
    }

    /// Takes what the file has in a range out of its map.
    fn take(&mut self, cx: &mut Cx, trans: &mut Trans, range: Range<u64>) -> Result<Vec<Extent>> {
        let gone = self.edit.remove(cx, trans, range)?;
        let op = if self.reflink { RmapOp::UnmapShared } else { RmapOp::Unmap };
        for extent in &gone {
            *self.edit.blocks -= u64::from(extent.count);
            self.owner_changes(trans, op, extent);
        }
        Ok(gone)
    }

    /// Puts extents that lay `moved.start` blocks on to lie `moved.end` blocks on.
    fn put(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        extents: &[Extent],
        moved: &Range<u64>,
    ) -> Result<()> {
        let op = if self.reflink { RmapOp::MapShared } else { RmapOp::Map };
        for extent in extents {
            let extent = Extent { offset: extent.offset - moved.start + moved.end, ..*extent };
            self.edit.add(cx, trans, extent)?;
            *self.edit.blocks += u64::from(extent.count);
            self.owner_changes(trans, op, &extent);
        }
        Ok(())
    }
}

/// Whether two runs stay where they are.
fn stay(one: &Mapped, two: &Mapped, flags: u64) -> bool {
    let written = |mapped: &Mapped| mapped.start.is_some() && !mapped.unwritten;
    let same = one.start == two.start && one.unwritten == two.unwritten;
    let unwritten = one.unwritten && two.unwritten;
    same || unwritten || (flags & exchange_flags::WRITTEN_ONLY != 0 && !written(one))
}

/// Exchanges the first run that does not stay where it is, and counts `left` down. `files` are the
/// two, or one that exchanges with itself.
///
/// # Errors
/// A map that cannot be read or cannot grow; the device failed.
pub(crate) fn exchange_step<F: ExchangedFile>(
    cx: &mut Cx,
    space: &Space,
    trans: &mut Trans,
    files: &mut [F],
    left: &mut Exchange,
) -> Result<()> {
    let other = files.len() - 1;
    while left.blocks > 0 {
        let starts = left.sides.map(|side| side.start);
        let [one, two] = starts.map(|start| start..start + left.blocks);
        let (one, two) = (files[0].lookup(cx, one)?, files[other].lookup(cx, two)?);
        let count = one.count.min(two.count);
        left.blocks -= count;
        left.sides.iter_mut().for_each(|side| side.start += count);
        if stay(&one, &two, left.flags) {
            continue;
        }
        let [one, two] = starts;
        let first = files[0].edit(cx, space, |cx, file| file.take(cx, trans, one..one + count))?;
        let second =
            files[other].edit(cx, space, |cx, file| file.take(cx, trans, two..two + count))?;
        files[other].edit(cx, space, |cx, file| file.put(cx, trans, &first, &(one..two)))?;
        files[0].edit(cx, space, |cx, file| file.put(cx, trans, &second, &(two..one)))?;
        break;
    }
    if left.blocks == 0 {
        end_exchange(cx, files, left);
    }
    Ok(())
}

/// Sizes and flags after the last step.
fn end_exchange<F: ExchangedFile>(cx: &Cx, files: &mut [F], exchange: &Exchange) {
    let other = files.len() - 1;
    for (side, index) in [0, other].into_iter().enumerate() {
        files[index].set(cx, |core| {
            if exchange.flags & exchange_flags::SET_SIZES != 0 {
                core.size = exchange.sides[side].size;
            }
            if exchange.flags & exchange_flags::CLEAR_REFLINK[side] != 0 {
                core.flags2.remove(Flags2::REFLINK);
            }
        });
    }
}
