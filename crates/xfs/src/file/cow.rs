//! Copy on write: what is written where a file shares blocks goes to other ones.
//!
//! ```text
//! write        each shared block of the range gets a new one, *staged*: in the reference counts of
//!              its group, and here, not in the file's map
//! write-back   the content goes to the staged block
//! finish       one transaction puts it into the map in the place of the old one, which loses a
//!              reference
//! ```
//!
//! A crash before the last step leaves the file as it was; the next mount frees what is staged.
//! Who wants the space is told when he writes, so that write-back never lacks it.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::alloc::Want;
use crate::bmap::Which;
use crate::bmap::blocks::FileBlocks;
use crate::error::{Result, XfsError};
use crate::format::FsExtent;
use crate::format::extent::{COUNT_MAX, Extent};
use crate::format::inode::Flags2;
use crate::inode::Inode;
use crate::mount::writer::Reserved;
use crate::trans::{Trans, reservations};

/// Staged extents that one transaction gives back at the most.
const CANCEL_AT_ONCE: usize = 4;
/// Old extents in the place of which one transaction puts a staged one at the most.
const REMAP_AT_ONCE: usize = 2;

impl Inode {
    /// Whether the file may share blocks.
    pub(crate) fn is_reflink(&self, cx: &Cx) -> bool {
        self.with(cx, |state| state.core.flags2.contains(Flags2::REFLINK))
    }

    /// Puts the first of some blocks whose content is on the device into the map, if they were
    /// staged. Answers up to where that went, and whether there was something; where there was
    /// not, up to where nothing is staged.
    pub(crate) fn remap_staged(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        file: &mut FileBlocks<'_, '_>,
        run: Range<u64>,
    ) -> Result<(u64, bool)> {
        let found = self.staged.lock(cx).lookup(run.clone());
        let mut end = run.start + found.count;
        if found.start.is_none() {
            return Ok((end, false));
        }
        let list = file.edit.fork.extents.as_deref().unwrap_or_default();
        let first = list.partition_point(|extent| extent.end() <= run.start);
        end = list.get(first + REMAP_AT_ONCE).map_or(end, |behind| end.min(behind.offset));
        let taken = self.staged.lock(cx).take(run.start..end, 1);
        for extent in taken {
            file.remap(cx, trans, extent)?;
        }
        Ok((end, true))
    }
}

impl FileBlocks<'_, '_> {
    /// Puts a staged extent, which holds its content, in the place of what the file has there.
    fn remap(&mut self, cx: &mut Cx, trans: &mut Trans, staged: Extent) -> Result<()> {
        let (space, ino) = (self.edit.space, self.edit.ino);
        let gone = self.edit.remove(cx, trans, staged.offset..staged.end())?;
        for extent in &gone {
            *self.edit.blocks -= u64::from(extent.count);
            space.defer_drop(trans, ino, Which::Data, extent, true);
        }
        self.edit.add(cx, trans, staged)?;
        *self.edit.blocks += u64::from(staged.count);
        space.defer_take_staged(trans, ino, &staged);
        Ok(())
    }

    /// Puts an extent of another file in the place of what this one has there; both have it then.
    pub(crate) fn share(&mut self, cx: &mut Cx, trans: &mut Trans, new: Extent) -> Result<()> {
        self.drop_range(cx, trans, new.offset..new.end())?;
        self.edit.add(cx, trans, new)?;
        *self.edit.blocks += u64::from(new.count);
        self.edit.space.defer_share(trans, self.edit.ino, &new);
        Ok(())
    }

    /// Takes what the file has in a range out of its map.
    pub(crate) fn drop_range(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<()> {
        for extent in self.edit.remove(cx, trans, range)? {
            *self.edit.blocks -= u64::from(extent.count);
            self.edit.space.defer_drop(trans, self.edit.ino, Which::Data, &extent, true);
        }
        Ok(())
    }
}

impl Xfs {
    /// Sees to it that every block of a range that others share has a staged one. Before the
    /// range's pages become dirty. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn stage(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> std::result::Result<(), Errno> {
        if !inode.is_reflink(cx) {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let mapped = self.map_file(cx, inode, at..range.end)?;
            let known = inode.staged.lock(cx).lookup(at..at + mapped.count);
            let count = mapped.count.min(known.count);
            if let Some(start) = mapped.start
                && known.start.is_none()
            {
                let extent = FsExtent { start, len: count as u32 };
                for run in self.shared_runs(cx, extent)? {
                    self.stage_run(cx, inode, at + u64::from(run.start)..at + u64::from(run.end))?;
                }
            }
            at += count;
        }
        Ok(())
    }

    fn shared_runs(
        &self,
        cx: &mut Cx,
        extent: FsExtent,
    ) -> std::result::Result<Vec<Range<u32>>, Errno> {
        let writer = self.writer()?;
        let mut trans = Trans::empty(&writer.log);
        let runs = writer.space.shared_runs(cx, &mut trans, extent);
        trans.cancel();
        runs.map_err(|error| self.fail(error))
    }

    /// Stages blocks for a range.
    fn stage_run(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> std::result::Result<(), Errno> {
        let (space, Range { start: mut from, end }) = (&self.writer()?.space, range);
        let mut reserved = Reserved::new(space, end - from).map_err(|error| self.fail(error))?;
        let mut patience = 3;
        while from < end {
            let want = Want {
                goal: self.geometry().ino_place(inode.ino).0,
                min_len: 1,
                max_len: (end - from).min(COUNT_MAX) as u32,
                align: 1,
                this_group: false,
                owner: None,
                metadata: false,
            };
            let found = self.transact(cx, reservations::write(self.geometry()), |cx, trans| {
                let found = match space.allocate(cx, trans, &want) {
                    Err(XfsError::NoSpace) => return Ok(None),
                    other => other?,
                };
                let start = space.geometry.join(found.start);
                space.defer_stage(trans, FsExtent { start, len: found.len });
                Ok(Some(Extent { offset: from, start, count: found.len, unwritten: false }))
            })?;
            match found {
                Some(extent) => {
                    reserved.take(u64::from(extent.count));
                    inode.staged.lock(cx).insert(extent);
                    from = extent.end();
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

    /// Gives back what is staged for a range whose content is no longer wanted. The caller keeps
    /// writers of pages away. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn cancel_staged(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> std::result::Result<(), Errno> {
        while inode.staged.lock(cx).touches(range.clone()) {
            let space = &self.writer()?.space;
            self.transact(cx, reservations::unmap(self.geometry()), |cx, trans| {
                trans.join_inode(cx, &inode.item);
                inode.io.lock(cx).forget(range.clone());
                for extent in inode.staged.lock(cx).take(range.clone(), CANCEL_AT_ONCE) {
                    space.defer_cancel(trans, extent.blocks());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// As [`Xfs::stage`], for the block that byte `at` is inside of, if it is.
    ///
    /// # Errors
    /// As [`Xfs::stage`].
    pub(crate) fn stage_edge(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        at: u64,
    ) -> std::result::Result<(), Errno> {
        self.stage(cx, inode, at >> self.geometry().block_bits..self.blocks_of(at))
    }
}
