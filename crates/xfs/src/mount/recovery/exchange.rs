//! An exchange of ranges between two files that a log announces: one step of it in each
//! transaction.
//!
//! A step exchanges the longest run that both files map alike; what both have as holes, or never
//! written, stays.

use std::ops::Range;

use rt::Cx;

use crate::alloc::Space;
use crate::bmap::{Fork, Mapped, Which, lookup};
use crate::error::Result;
use crate::format::extent::Extent;
use crate::format::inode::Flags2;
use crate::format::log_item::RmapOp;
use crate::format::{Owner, Section};
use crate::trans::Trans;
use crate::trans::intent::{Exchange, exchange_flags};
use crate::uncached::UncachedInode;

/// A file whose content is exchanged, with its map.
pub(super) struct ExchangedFile {
    pub inode: UncachedInode,
    pub fork: Fork,
}

impl ExchangedFile {
    fn lookup(&self, range: Range<u64>) -> Mapped {
        lookup(self.fork.extents.as_deref().unwrap_or_default(), range)
    }

    fn section(&self) -> Section {
        Section::of(self.inode.core.is_realtime())
    }

    /// Whether it may share blocks.
    fn shares(&self) -> bool {
        self.inode.core.flags2.contains(Flags2::REFLINK)
    }

    fn owner_changes(&self, space: &Space, trans: &mut Trans, op: RmapOp, extent: &Extent) {
        let owner = Owner::fork(self.inode.ino.0, false, extent.offset, extent.unwritten);
        space.defer_rmap(trans, self.section(), op, owner, extent.blocks());
    }

    /// Takes what it has in a range out of its map.
    fn take(
        &mut self,
        cx: &mut Cx,
        space: &Space,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<Vec<Extent>> {
        let mut edit = self.inode.edit(space, &mut self.fork, Which::Data);
        let gone = edit.remove(cx, trans, range)?;
        let op = if self.shares() { RmapOp::UnmapShared } else { RmapOp::Unmap };
        for extent in &gone {
            self.inode.core.blocks -= u64::from(extent.count);
            self.owner_changes(space, trans, op, extent);
        }
        Ok(gone)
    }

    /// Puts extents that lay `from` a block on to lie `to` another one on.
    fn put(
        &mut self,
        cx: &mut Cx,
        space: &Space,
        trans: &mut Trans,
        extents: &[Extent],
        moved: Range<u64>,
    ) -> Result<()> {
        let op = if self.shares() { RmapOp::MapShared } else { RmapOp::Map };
        for extent in extents {
            let extent = Extent { offset: extent.offset - moved.start + moved.end, ..*extent };
            let mut edit = self.inode.edit(space, &mut self.fork, Which::Data);
            edit.add(cx, trans, extent)?;
            self.inode.core.blocks += u64::from(extent.count);
            self.owner_changes(space, trans, op, &extent);
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
pub(super) fn exchange_step(
    cx: &mut Cx,
    space: &Space,
    trans: &mut Trans,
    files: &mut [ExchangedFile],
    left: &mut Exchange,
) -> Result<()> {
    let other = files.len() - 1;
    while left.blocks > 0 {
        let starts = left.sides.map(|side| side.start);
        let [one, two] = starts.map(|start| start..start + left.blocks);
        let (one, two) = (files[0].lookup(one), files[other].lookup(two));
        let count = one.count.min(two.count);
        left.blocks -= count;
        left.sides.iter_mut().for_each(|side| side.start += count);
        if stay(&one, &two, left.flags) {
            continue;
        }
        let [one, two] = starts;
        let first = files[0].take(cx, space, trans, one..one + count)?;
        let second = files[other].take(cx, space, trans, two..two + count)?;
        files[other].put(cx, space, trans, &first, one..two)?;
        files[0].put(cx, space, trans, &second, two..one)?;
        break;
    }
    if left.blocks == 0 {
        finish(files, left);
    }
    Ok(())
}

/// Sizes and flags after the last step.
fn finish(files: &mut [ExchangedFile], exchange: &Exchange) {
    let other = files.len() - 1;
    for (side, index) in [0, other].into_iter().enumerate() {
        let core = &mut files[index].inode.core;
        if exchange.flags & exchange_flags::SET_SIZES != 0 {
            core.size = exchange.sides[side].size;
        }
        if exchange.flags & exchange_flags::CLEAR_REFLINK[side] != 0 {
            core.flags2.remove(Flags2::REFLINK);
        }
    }
}
