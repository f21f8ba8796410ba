//! The deferred work when extents are added to and removed from files that may share them.
//!
//! The order of the work is the format's: first the reverse map, then reference counts, then free
//! space, each kind with intents of its own; whatever a crash leaves over is carried out by
//! recovery in that order.

use base::Ino;
use rt::Cx;

use super::Space;
use super::rmap::work_flags;
use crate::error::Result;
use crate::format::extent::Extent;
use crate::format::inode::Which;
use crate::format::log_item::{RefcountOp, RmapOp};
use crate::format::record::{RMAP_OFFSET_MASK, owner};
use crate::format::{AgBlock, FsExtent, Owner, Section};
use crate::trans::intent::Work;
use crate::trans::{LogReservation, Trans};

/// Log space for giving back a few extents of CoW forks.
pub(super) const FREE_COW: LogReservation = LogReservation { bytes: 160 << 10, count: 4 };

impl Space {
    /// Defers a change of the reverse map, where the file system keeps one.
    pub(crate) fn defer_rmap(
        &self,
        trans: &mut Trans,
        section: Section,
        op: RmapOp,
        owner: Owner,
        extent: FsExtent,
    ) {
        if self.geometry.features.rmapbt() {
            let flags = work_flags(owner, op);
            let Owner { owner, offset } = owner;
            let offset = offset & RMAP_OFFSET_MASK;
            let FsExtent { start, len } = extent;
            trans.defer(Work::Rmap { section, flags, owner, start: start.0, offset, len });
        }
    }

    fn defer_count(&self, trans: &mut Trans, section: Section, op: RefcountOp, extent: FsExtent) {
        let FsExtent { start, len } = extent;
        trans.defer(Work::Refcount { section, flags: op as u32, start: start.0, len });
    }

    /// Defers what follows when a file no longer maps an extent, which was taken out of its map:
    /// it is freed, unless others share it. `reflink`: the file may share blocks
    /// ([`Flags2::REFLINK`](crate::format::inode::Flags2)).
    pub(crate) fn defer_drop(
        &self,
        trans: &mut Trans,
        section: Section,
        ino: Ino,
        which: Which,
        extent: &Extent,
        reflink: bool,
    ) {
        let attr = which == Which::Attr;
        let owner = Owner::fork(ino.0, attr, extent.offset, extent.unwritten);
        let blocks = extent.blocks();
        if reflink && !attr {
            self.defer_rmap(trans, section, RmapOp::UnmapShared, owner, blocks);
            self.defer_count(trans, section, RefcountOp::Decrease, blocks);
        } else {
            trans.defer(Work::free(extent.start.0, extent.count, Some(owner)));
        }
    }

    /// Defers what follows when a file no longer maps blocks of the realtime section, after the
    /// reverse map: they are freed, unless others share them.
    pub(crate) fn defer_drop_realtime(&self, trans: &mut Trans, blocks: FsExtent, reflink: bool) {
        let (section, FsExtent { start, len }) = (Section::Realtime, blocks);
        match reflink {
            true => self.defer_count(trans, section, RefcountOp::Decrease, blocks),
            false => trans.defer(Work::Free { section, start: start.0, len, owner: None }),
        }
    }

    /// Defers what follows when a file begins to map an extent that others have: one reference
    /// more.
    pub(crate) fn defer_share(
        &self,
        trans: &mut Trans,
        section: Section,
        ino: Ino,
        extent: &Extent,
    ) {
        let blocks = extent.blocks();
        self.defer_count(trans, section, RefcountOp::Increase, blocks);
        let owner = Owner::fork(ino.0, false, extent.offset, extent.unwritten);
        self.defer_rmap(trans, section, RmapOp::MapShared, owner, blocks);
    }

    /// Defers noting new blocks as in a CoW fork; they were allocated without an owner.
    pub(crate) fn defer_alloc_cow(&self, trans: &mut Trans, section: Section, blocks: FsExtent) {
        self.defer_count(trans, section, RefcountOp::AllocCow, blocks);
        self.defer_rmap(trans, section, RmapOp::Alloc, Owner::special(owner::COW), blocks);
    }

    /// Defers the end of a CoW extent: the blocks enter a file's map in the same transaction, or
    /// are freed by it.
    pub(crate) fn defer_free_cow(&self, trans: &mut Trans, section: Section, blocks: FsExtent) {
        self.defer_rmap(trans, section, RmapOp::Free, Owner::special(owner::COW), blocks);
        self.defer_count(trans, section, RefcountOp::FreeCow, blocks);
    }

    /// Defers what follows when blocks of the CoW fork enter a file's map.
    pub(crate) fn defer_remap_cow(
        &self,
        trans: &mut Trans,
        section: Section,
        ino: Ino,
        extent: &Extent,
    ) {
        let blocks = extent.blocks();
        self.defer_rmap(trans, section, RmapOp::Free, Owner::special(owner::COW), blocks);
        let owner = Owner::fork(ino.0, false, extent.offset, extent.unwritten);
        self.defer_rmap(trans, section, RmapOp::MapShared, owner, blocks);
        self.defer_count(trans, section, RefcountOp::FreeCow, blocks);
    }

    /// Defers giving blocks of a CoW fork back to free space.
    pub(crate) fn defer_cancel_cow(&self, trans: &mut Trans, section: Section, blocks: FsExtent) {
        self.defer_free_cow(trans, section, blocks);
        let FsExtent { start, len } = blocks;
        trans.defer(Work::Free { section, start: start.0, len, owner: None });
    }

    /// Frees what a crash has left in a CoW fork; returns the blocks. Before anybody
    /// writes. May park.
    ///
    /// # Errors
    /// A tree that is wrong; the device failed.
    pub(crate) fn recover_cow(&self, cx: &mut Cx) -> Result<u64> {
        let mut blocks = 0;
        if !self.geometry.features.reflink() {
            return Ok(blocks);
        }
        for ag in 0..self.geometry.ag_count() {
            loop {
                let mut trans = Trans::alloc(cx, &self.log, FREE_COW)?;
                let extents = self.cow_extents(cx, &mut trans, ag)?;
                for record in &extents {
                    let start = self.geometry.join(AgBlock { ag, block: record.start });
                    let extent = FsExtent { start, len: record.len };
                    self.defer_cancel_cow(&mut trans, Section::Data, extent);
                    blocks += u64::from(record.len);
                }
                trans.commit(cx)?;
                if extents.is_empty() {
                    break;
                }
            }
        }
        Ok(blocks + self.recover_realtime_cow(cx)?)
    }
}
