//! Files on file systems with clusters (bigalloc): an allocation takes a whole cluster of blocks.
//!
//! Extents count blocks, and a block has the place in its cluster on the device that it has in its
//! cluster of the file. So all blocks of a file that lie in one cluster of the file lie in one
//! cluster of the device: the first of them takes it, the others find it, and it goes with the last
//! one. `i_blocks` counts whole clusters. A node of the extent tree and an attribute block take a
//! cluster each.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::extents::FoundExtent;
use super::map::{Create, Mapped, State};
use crate::alloc::mballoc::{Prealloc, Purpose, Request};
use crate::bmap::Bmap;
use crate::format::extent::{Extent, LEN_MAX, UNWRITTEN_LEN_MAX};
use crate::format::{At, CorruptKind};
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

impl Inodes {
    /// Before blocks are mapped again that lie in a cluster which the file has kept: what took them
    /// out of the map commits, so that no crash brings the old map back with the new content. The
    /// caller has no handle, and holds the inode's `writeback`. May park.
    ///
    /// # Errors
    /// `EROFS`, `EIO` the journal was aborted.
    pub(crate) fn commit_unmapped(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        if !self.sb.geometry.has_clusters() {
            return Ok(());
        }
        match (inode.with(cx, |core| core.unmapped_tid.take()), self.sb.journal()) {
            (Some(tid), Some(journal)) => journal.commit_tid(cx, tid),
            _ => Ok(()),
        }
    }
}

impl Bmap<'_> {
    /// Only files with extents are on a file system with clusters.
    pub(super) fn clusters_need_extents(self, cx: &Cx) -> Errno {
        self.fs.sb.corrupt_kind(cx, CorruptKind::ClustersNeedExtents, At::Inode(self.inode.ino))
    }

    /// The first extent with blocks in `blocks`. Needs the map lock.
    fn extent_within(self, cx: &mut Cx, blocks: Range<u64>) -> Result<Option<Extent>, Errno> {
        let mut at = blocks.start;
        while at < blocks.end
            && let Ok(lblk) = u32::try_from(at)
        {
            match self.extent_lookup(cx, lblk)? {
                FoundExtent::Extent(extent) => return Ok(Some(extent)),
                FoundExtent::Hole { next: u32::MAX } => break,
                FoundExtent::Hole { next } => at = next.into(),
            }
        }
        Ok(None)
    }

    /// The first device block of the cluster of the file that `lblk` lies in, where one of its
    /// blocks has a place. Needs the map lock.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    fn cluster_start(self, cx: &mut Cx, lblk: u32) -> Result<Option<u64>, Errno> {
        let ratio = u64::from(self.fs.sb.geometry.cluster_ratio);
        let first = u64::from(lblk) & !(ratio - 1);
        let found = self.extent_within(cx, first..first + ratio)?;
        Ok(found.map(|extent| {
            let at = u64::from(extent.block).max(first);
            extent.start + (at - u64::from(extent.block)) - (at - first)
        }))
    }

    /// Whether the cluster of the file that `lblk` lies in has a place on the device.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn has_cluster(self, cx: &mut Cx, lblk: u32) -> Result<bool, Errno> {
        if !self.inode.has_extents(cx) {
            return Ok(false);
        }
        let guard = self.inode.map_lock.read(cx);
        let found = self.cluster_start(cx, lblk);
        drop(guard);
        Ok(found?.is_some())
    }

    /// Gives the start of a hole its blocks: those of the cluster that is there already, or those
    /// of new ones. The second half of [`Bmap::map_create`].
    pub(super) fn fill_clusters(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: &mut Prealloc,
        lblk: u32,
        len: u32,
        create: Create,
    ) -> Result<Mapped, Errno> {
        if !self.inode.has_extents(cx) {
            return Err(self.clusters_need_extents(cx));
        }
        let most = if create.unwritten { UNWRITTEN_LEN_MAX } else { LEN_MAX };
        let ratio = self.fs.sb.geometry.cluster_ratio;
        let within = lblk % ratio;
        let mut len = len.min(most);
        let (start, taken) = match self.cluster_start(cx, lblk)? {
            Some(start) => (start, 0),
            None => {
                let tail = (lblk + len) % ratio;
                if tail > 0 && within + len > ratio && self.cluster_start(cx, lblk + len)?.is_some()
                {
                    // The last one is there for the sake of what follows the hole.
                    len -= tail;
                }
                let (goal, want) = (self.extent_goal(cx, lblk)?, (within + len).div_ceil(ratio));
                let request = Request { goal, want, lblk, purpose: create.purpose };
                self.new_blocks(cx, handle, Some(prealloc), request)?
            }
        };
        let len = len.min(taken.max(1) * ratio - within);
        let pblk = start + u64::from(within);
        let new = Extent { block: lblk, len, start: pblk, unwritten: create.unwritten };
        if let Err(errno) = self.extent_insert(cx, handle, new) {
            self.fs.alloc.free_blocks(cx, handle, start, taken * ratio)?;
            if create.purpose == Purpose::Delayed {
                // They are lost, with what was reserved for them.
                self.inode.end_placing(cx, &self.fs.alloc, Some(lblk..lblk + len));
            }
            return Err(errno);
        }
        let sectors = u64::from(taken) * self.fs.sb.geometry.cluster_sectors();
        self.inode.with(cx, |core| core.values.blocks += sectors);
        let state = if create.unwritten { State::Unwritten } else { State::Written };
        Ok(Mapped { lblk, len, pblk, state })
    }

    /// The device blocks of the clusters in which nothing of the file is left when the logical
    /// blocks `gone` of the extent `old` go: whole clusters, none where some other block lies in
    /// each. Needs the map lock.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(super) fn emptied_clusters(
        self,
        cx: &mut Cx,
        handle: &Handle,
        old: &Extent,
        gone: Range<u32>,
    ) -> Result<Range<u64>, Errno> {
        let ratio = u64::from(self.fs.sb.geometry.cluster_ratio);
        let (start, end) = (u64::from(gone.start), u64::from(gone.end));
        let (mut from, mut to) = (start & !(ratio - 1), end.next_multiple_of(ratio));
        if self.extent_within(cx, from..start)?.is_some() {
            from += ratio;
        }
        if self.extent_within(cx, end..to)?.is_some() {
            to -= ratio;
        }
        let before = start & !(ratio - 1);
        if from > before || to < end.next_multiple_of(ratio) {
            let tid = handle.tid();
            self.inode.with(cx, |core| core.unmapped_tid = tid);
        }
        let first = old.start + start - u64::from(old.block);
        let first = (first & !(ratio - 1)) + (from - before);
        Ok(first..first + to.saturating_sub(from))
    }
}
