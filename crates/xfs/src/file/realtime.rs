//! Files in the realtime section: their content lies on a device of its own, in extents of a fixed
//! length.
//!
//! There is no delayed allocation: a write gets its extents, unwritten, before its pages become
//! dirty. What is a part of an extent cannot be given back; it becomes unwritten, and reads as
//! zeros.

use std::ops::Range;

use base::{Errno, FsBlock, Sector};
use rt::Cx;

use super::DataFile;
use crate::Xfs;
use crate::alloc::BlockReservation;
use crate::alloc::realtime::{Realtime, RealtimeRequest};
use crate::bmap::Which;
use crate::bmap::blocks::FileBlocks as Blocks;
use crate::error::Result as XfsResult;
use crate::format::extent::Extent;
use crate::format::{FsExtent, Section};
use crate::log::inode_item::InodeFields;
use crate::trans::{Trans, reservations};

/// Blocks of the device of the data by which one change may let a map and the section's btrees
/// grow.
const TREE_BLOCKS: u64 = 24;

/// Writes all dirty pages of a file system, and waits for them.
///
/// # Errors
/// The latest write error of any file that was not reported yet.
pub(super) fn sync_pages(fs: &Xfs, cx: &mut Cx) -> Result<(), Errno> {
    let mut result = Ok(());
    for backing in fs.backings() {
        // All of them, also after an error.
        let synced = backing.sync(cx);
        result = result.and(synced);
    }
    result
}

impl DataFile<'_> {
    /// Whether the content lies in the realtime section. Cheap where there is none.
    pub(super) fn in_realtime(&self, cx: &Cx) -> bool {
        self.fs.realtime.is_some() && self.inode.is_realtime(cx)
    }

    /// Where the content lies.
    pub(super) fn section(&self, cx: &Cx) -> Section {
        Section::of(self.in_realtime(cx))
    }

    /// Where a block of the content lies on its device.
    pub(super) fn content_sector(&self, cx: &Cx, block: FsBlock) -> Sector {
        match self.in_realtime(cx) {
            true => self.fs.geometry().realtime_sector(block),
            false => self.fs.geometry().sector(block),
        }
    }

    fn realtime_space(&self) -> Result<&Realtime, Errno> {
        self.fs.writer()?.space.realtime().ok_or(Errno::EIO)
    }

    /// Blocks of the section that are free.
    pub(super) fn realtime_blocks(&self) -> Result<u64, Errno> {
        let extent = u64::from(self.fs.geometry().realtime.extent_blocks);
        Ok(self.realtime_space()?.available() * extent)
    }

    /// Runs a transaction that changes the blocks of a file in the section.
    fn change_realtime<R>(
        &self,
        cx: &mut Cx,
        change: impl FnOnce(&mut Cx, &mut Trans, &Realtime, &mut Blocks<'_, '_>) -> XfsResult<R>,
    ) -> Result<R, Errno> {
        let (space, realtime) = (&self.fs.writer()?.space, self.realtime_space()?);
        let geometry = self.fs.geometry();
        self.fs.transact(cx, reservations::realtime(geometry), |cx, trans| {
            trans.join_inode(cx, &self.inode.item);
            realtime.join(cx, trans);
            let change = |cx: &mut Cx, file: &mut Blocks<'_, '_>| change(cx, trans, realtime, file);
            let done = self.inode.edit_blocks(cx, space, change)?;
            self.inode.log(cx, trans, geometry, InodeFields::CORE | InodeFields::DATA);
            Ok(done)
        })
    }

    /// Sets blocks aside by which maps and the section's btrees may grow, so that a full device of
    /// the data is an error of the caller and not of deferred work.
    fn reserve_for_trees(&self) -> Result<BlockReservation, Errno> {
        let blocks = if self.fs.geometry().section_trees() { TREE_BLOCKS } else { 0 };
        BlockReservation::new(&self.fs.writer()?.space, blocks).map_err(|e| self.fs.fail(e))
    }

    /// Allocates blocks of the CoW fork from `from` on, which rises to where they end. May park.
    ///
    /// # Errors
    /// As [`DataFile::preallocate_realtime`].
    pub(super) fn allocate_realtime_cow(
        &self,
        cx: &mut Cx,
        from: &mut u64,
        end: u64,
    ) -> Result<(), Errno> {
        let shape = self.fs.geometry().realtime;
        let space = self.fs.writer()?.space.clone();
        while *from < end {
            let reserved = self.reserve_for_trees()?;
            let want = RealtimeRequest { goal: None, most: end - *from };
            let found = self.change_realtime(cx, |cx, trans, realtime, _| {
                let Some(run) = realtime.allocate(cx, trans, &space, want)? else {
                    return Ok(None);
                };
                let (start, len) = (shape.block_of(run.start), (run.end - run.start) as u32);
                space.defer_alloc_cow(trans, Section::Realtime, FsExtent { start, len });
                Ok(Some(Extent { offset: *from, start, count: len, unwritten: false }))
            })?;
            drop(reserved);
            let extent = found.ok_or(Errno::ENOSPC)?;
            self.inode.cow_fork.lock(cx).insert(extent, Some(&shape));
            *from = extent.end();
        }
        Ok(())
    }

    /// Gives unwritten extents to the first hole of a range. Returns the block to go on with. The
    /// inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(super) fn preallocate_realtime(
        &self,
        cx: &mut Cx,
        range: Range<u64>,
    ) -> Result<u64, Errno> {
        let at = range.start;
        let mapped = self.map_file(cx, range)?;
        if mapped.start.is_some() {
            return Ok(at + mapped.count);
        }
        if self.realtime_space()?.available() == 0 {
            return Err(Errno::ENOSPC);
        }
        let hole = at..at + mapped.count;
        let unit = u64::from(self.fs.geometry().realtime.extent_blocks);
        let count = hole.end.next_multiple_of(unit) - hole.start / unit * unit;
        let hold = self.fs.reserve_quota_blocks(cx, self.inode, count)?;
        let reserved = self.reserve_for_trees()?;
        let guard = self.inode.writeback.lock(cx);
        let found = self.change_realtime(cx, |cx, trans, realtime, file| {
            file.allocate_realtime(cx, trans, realtime, hole)
        });
        // What a failed write leaves behind the end goes when the file is closed.
        self.inode.io.lock(cx).ahead = true;
        self.fs.ahead.lock(cx).insert(self.inode.ino);
        drop((guard, reserved, hold));
        found?.map(|extent| extent.end()).ok_or(Errno::ENOSPC)
    }

    /// Gives extents to all holes of a range. Before its pages become dirty. May park.
    ///
    /// # Errors
    /// As [`DataFile::preallocate_realtime`].
    pub(super) fn reserve_realtime(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            at = self.preallocate_realtime(cx, at..range.end)?;
        }
        Ok(())
    }

    /// Takes a range of blocks out of a file: whole extents are given back, parts of them read as
    /// zeros from now on. The pages are gone already, and the caller keeps writers of pages away.
    /// May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(super) fn unmap_realtime(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let unit = u64::from(self.fs.geometry().realtime.extent_blocks);
        let (from, to) = (range.start.next_multiple_of(unit), range.end / unit * unit);
        let parts = match from < to {
            true => [range.start..from, to..range.end],
            false => [range.clone(), 0..0],
        };
        for part in parts {
            while !part.is_empty() && self.has_written(cx, &part)? {
                self.change_realtime(cx, |cx, trans, _, file| {
                    self.inode.io.lock(cx).forget(part.clone());
                    file.unwrite(cx, trans, part.clone())
                })?;
            }
        }
        let whole = from..to;
        while from < to && self.has_blocks(cx, &whole)? {
            self.change_realtime(cx, |cx, trans, realtime, file| {
                self.inode.io.lock(cx).forget(whole.clone());
                file.unmap_last_realtime(cx, trans, realtime, whole.clone())
            })?;
        }
        Ok(())
    }

    fn has_written(&self, cx: &mut Cx, range: &Range<u64>) -> Result<bool, Errno> {
        let found = self.inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= range.start);
            let mut inside = list[first..].iter().take_while(|extent| extent.offset < range.end);
            inside.any(|extent| !extent.unwritten)
        });
        found.map_err(|fault| self.fs.fault(fault))
    }
}
