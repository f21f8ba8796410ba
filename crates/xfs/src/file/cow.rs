//! Copy on write: content for blocks that files share goes to other blocks.
//!
//! ```text
//! write        each shared block of the range gets a new one in the file's *CoW fork*: in memory
//!              here, and in the reference counts of its group, but not in the file's map
//! write-back   the content goes to the block in the CoW fork
//! finish       one transaction moves it to the data fork, in the place of the old one, which loses
//!              a reference
//! ```
//!
//! A crash before the last step leaves the file as it was, and the next mount frees the blocks. The
//! writer gets the error if there is no space, so that write-back never lacks it.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::DataFile;
use crate::Xfs;
use crate::alloc::{AllocRequest, BlockReservation};
use crate::bmap::Which;
use crate::bmap::blocks::FileBlocks;
use crate::error::{Result, XfsError};
use crate::format::extent::{COUNT_MAX, Extent};
use crate::format::inode::Flags2;
use crate::format::{FsExtent, Section};
use crate::inode::Inode;
use crate::log::dquot_item::Usage;
use crate::trans::{Trans, reservations};

/// Extents of a CoW fork that one transaction gives back at the most.
const CANCEL_AT_ONCE: usize = 4;
/// Old extents that one transaction replaces at the most.
const REMAP_AT_ONCE: usize = 2;

impl Inode {
    /// Whether the file may share blocks.
    pub(crate) fn is_reflink(&self, cx: &Cx) -> bool {
        self.with(cx, |state| state.core.flags2.contains(Flags2::REFLINK))
    }

    /// Moves the first of some blocks whose content is on the device from the CoW fork to the data
    /// fork. Returns up to where that went, and whether there was something; if there was not, up
    /// to where the CoW fork has nothing.
    pub(crate) fn remap_cow(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        file: &mut FileBlocks<'_, '_>,
        run: Range<u64>,
    ) -> Result<(u64, bool)> {
        let found = self.cow_fork.lock(cx).lookup(run.clone());
        let mut end = run.start + found.count;
        if found.start.is_none() {
            return Ok((end, false));
        }
        let list = file.edit.fork.extents.as_deref().unwrap_or_default();
        let first = list.partition_point(|extent| extent.end() <= run.start);
        end = list.get(first + REMAP_AT_ONCE).map_or(end, |behind| end.min(behind.offset));
        let taken = self.cow_fork.lock(cx).take(run.start..end, 1);
        if let Some(fs) = self.fs.upgrade() {
            fs.unreserve_cow(cx, self, taken.iter().map(|extent| u64::from(extent.count)).sum());
        }
        for extent in taken {
            file.remap(cx, trans, extent)?;
        }
        Ok((end, true))
    }
}

impl FileBlocks<'_, '_> {
    /// Moves an extent of the CoW fork, which holds its content, to the data fork, in the place of
    /// what the file has there.
    fn remap(&mut self, cx: &mut Cx, trans: &mut Trans, cow: Extent) -> Result<()> {
        let (space, ino, section) = (self.edit.space, self.edit.ino, self.edit.place());
        let gone = self.edit.remove(cx, trans, cow.offset..cow.end())?;
        for extent in &gone {
            *self.edit.blocks -= u64::from(extent.count);
            space.defer_drop(trans, section, ino, Which::Data, extent, true);
        }
        self.edit.add(cx, trans, cow)?;
        *self.edit.blocks += u64::from(cow.count);
        space.defer_remap_cow(trans, section, ino, &cow);
        Ok(())
    }

    /// Puts an extent of another file in the place of what this one has there; both have it then.
    pub(crate) fn share(&mut self, cx: &mut Cx, trans: &mut Trans, new: Extent) -> Result<()> {
        self.drop_range(cx, trans, new.offset..new.end())?;
        self.edit.add(cx, trans, new)?;
        *self.edit.blocks += u64::from(new.count);
        self.edit.space.defer_share(trans, self.edit.place(), self.edit.ino, &new);
        Ok(())
    }

    /// Takes what the file has in a range out of its map.
    pub(crate) fn drop_range(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<()> {
        let (space, ino, section) = (self.edit.space, self.edit.ino, self.edit.place());
        for extent in self.edit.remove(cx, trans, range)? {
            *self.edit.blocks -= u64::from(extent.count);
            space.defer_drop(trans, section, ino, Which::Data, &extent, true);
        }
        Ok(())
    }
}

impl DataFile<'_> {
    /// Gives every block of a range that others share a block in the CoW fork. Before the
    /// range's pages become dirty. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn allocate_cow(
        &self,
        cx: &mut Cx,
        range: Range<u64>,
    ) -> std::result::Result<(), Errno> {
        if !self.inode.is_reflink(cx) {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let mapped = self.map_file(cx, at..range.end)?;
            let known = self.inode.cow_fork.lock(cx).lookup(at..at + mapped.count);
            let count = mapped.count.min(known.count);
            if let Some(start) = mapped.start
                && known.start.is_none()
            {
                let extent = FsExtent { start, len: count as u32 };
                for run in shared_runs(self.fs, cx, self.section(cx), extent)? {
                    self.fill_cow(cx, at + u64::from(run.start)..at + u64::from(run.end))?;
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Gives the blocks of a range that are not in the CoW fork places there, and those around them
    /// if they can be had: see [`super::cow_surplus`].
    fn fill_cow(&self, cx: &mut Cx, range: Range<u64>) -> std::result::Result<(), Errno> {
        let (mut at, mut widen) = (range.start, true);
        while at < range.end {
            let known = self.inode.cow_fork.lock(cx).lookup(at..range.end);
            let gap = at..at + known.count;
            if known.start.is_some() {
                at = gap.end;
                continue;
            }
            let wide = if widen { self.widened_cow(cx, gap.clone())? } else { gap.clone() };
            let surplus = wide != gap;
            let done = self.allocate_cow_run(cx, wide.clone());
            if surplus && self.inode.cow_fork.lock(cx).touches(wide) {
                self.note_surplus(cx);
            }
            match done {
                Err(Errno::ENOSPC | Errno::EDQUOT) if surplus => widen = false,
                done => {
                    done?;
                    at = gap.end;
                }
            }
        }
        Ok(())
    }

    /// Allocates blocks of the CoW fork for a range. They count against the limits of the file's
    /// owners until they take the place of the old ones.
    fn allocate_cow_run(&self, cx: &mut Cx, range: Range<u64>) -> std::result::Result<(), Errno> {
        let hold = self.fs.reserve_quota_blocks(cx, self.inode, range.end - range.start)?;
        let mut from = range.start;
        let result = match self.in_realtime(cx) {
            true => self.allocate_realtime_cow(cx, &mut from, range.end),
            false => self.allocate_data_cow(cx, &mut from, range.end),
        };
        hold.keep_only(Usage::of_content(self.section(cx), from - range.start));
        result
    }

    /// Allocates blocks of the CoW fork from `from` on, which rises to where they end.
    fn allocate_data_cow(
        &self,
        cx: &mut Cx,
        from: &mut u64,
        end: u64,
    ) -> std::result::Result<(), Errno> {
        let space = &self.fs.writer()?.space;
        let mut reserved =
            BlockReservation::new(space, end - *from).map_err(|error| self.fs.fail(error))?;
        let mut patience = 3;
        while *from < end {
            let want = AllocRequest {
                goal: self.fs.geometry().ino_place(self.inode.ino).0,
                min_len: 1,
                max_len: (end - *from).min(COUNT_MAX) as u32,
                align: 1,
                this_group: false,
                owner: None,
                metadata: false,
            };
            let found =
                self.fs.transact(cx, reservations::write(self.fs.geometry()), |cx, trans| {
                    let found = match space.allocate(cx, trans, &want) {
                        Err(XfsError::NoSpace) => return Ok(None),
                        other => other?,
                    };
                    let start = space.geometry.join(found.start);
                    let blocks = FsExtent { start, len: found.len };
                    space.defer_alloc_cow(trans, Section::Data, blocks);
                    Ok(Some(Extent { offset: *from, start, count: found.len, unwritten: false }))
                })?;
            match found {
                Some(extent) => {
                    reserved.take(u64::from(extent.count));
                    self.inode.cow_fork.lock(cx).insert(extent, None);
                    *from = extent.end();
                }
                None => {
                    patience -= 1;
                    if patience == 0 {
                        return Err(Errno::ENOSPC);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives back the CoW blocks of a range whose content is no longer wanted. The caller keeps
    /// writers of pages away. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn cancel_cow(
        &self,
        cx: &mut Cx,
        range: Range<u64>,
    ) -> std::result::Result<(), Errno> {
        while self.inode.cow_fork.lock(cx).touches(range.clone()) {
            let (space, section) = (&self.fs.writer()?.space, self.section(cx));
            let reservation = match section {
                Section::Data => reservations::unmap(self.fs.geometry()),
                Section::Realtime => reservations::realtime(self.fs.geometry()),
            };
            self.fs.transact(cx, reservation, |cx, trans| {
                trans.join_inode(cx, &self.inode.item);
                self.inode.io.lock(cx).forget(range.clone());
                let taken = self.inode.cow_fork.lock(cx).take(range.clone(), CANCEL_AT_ONCE);
                let count = taken.iter().map(|extent| u64::from(extent.count)).sum();
                self.fs.unreserve_cow(cx, self.inode, count);
                for extent in taken {
                    space.defer_cancel_cow(trans, section, extent.blocks());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// As [`DataFile::allocate_cow`], for the block that byte `at` is inside of, if it is.
    ///
    /// # Errors
    /// As [`DataFile::allocate_cow`].
    pub(crate) fn allocate_cow_edge(&self, cx: &mut Cx, at: u64) -> std::result::Result<(), Errno> {
        self.allocate_cow(cx, at >> self.fs.geometry().block_bits..self.fs.geometry().blocks_of(at))
    }
}

/// The runs of an extent's blocks that others share: see [`crate::alloc::Space::shared_runs`].
pub(super) fn shared_runs(
    fs: &Xfs,
    cx: &mut Cx,
    section: Section,
    extent: FsExtent,
) -> std::result::Result<Vec<Range<u32>>, Errno> {
    let writer = fs.writer()?;
    let mut trans = Trans::empty(&writer.log);
    let runs = writer.space.shared_runs(cx, &mut trans, section, extent);
    trans.cancel();
    runs.map_err(|error| fs.fail(error))
}
