//! Reserving space for dirty pages, and giving delayed blocks their place.

use std::ops::Range;

use base::{Errno, RangeSet};
use rt::Cx;

use crate::bmap::map::State;
use crate::inode::delalloc::{DelayedRuns, Runs, len};
use crate::inode::{Inode, Inodes};

impl Inodes {
    /// Gives the delayed data of a file their blocks and sends them to the device, as
    /// [`auto_da_alloc`](crate::MountOptions::auto_da_alloc) asks for: in ordered mode the next
    /// commit waits for them. The caller has no handle. May park: allocates blocks.
    pub(crate) fn place_delayed(&self, cx: &mut Cx, inode: &Inode) {
        if !self.sb.options.auto_da_alloc || inode.delayed.lock(cx).is_empty() {
            return;
        }
        if let Some(mapping) = inode.mapping_if_any() {
            // The file keeps the error for its next fsync.
            let _latched = mapping.start_flush(cx);
        }
    }

    /// Reserves `count` blocks for a write where `kept` are left then; waits for a commit where
    /// that frees some.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn reserve_blocks(&self, cx: &mut Cx, count: u64, kept: i64) -> Result<(), Errno> {
        let mut retries = 0;
        while count > 0 && !self.alloc.try_reserve(count, kept) {
            if !self.should_retry_alloc(cx, &mut retries) {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }

    /// Reserves what writing out the blocks `from..to` can take. The caller holds the inode's
    /// `rwsem` for writing. May wait for the device and for a commit.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, `EFBIG`, `EIO`, `EUCLEAN`: nothing is reserved then.
    pub(crate) fn reserve_range(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        from: u32,
        to: u32,
    ) -> Result<(), Errno> {
        let gaps = inode.delayed.lock(cx).gaps(from..to);
        if gaps.is_empty() {
            return Ok(());
        }
        let runs = self.unreserved_parts(cx, inode, gaps)?;
        if runs.holes.is_empty() && runs.unwritten.is_empty() {
            return Ok(());
        }
        if self.sb.geometry.has_clusters() {
            let clusters = self.unreserved_clusters(cx, inode, &runs)?;
            return self.reserve_runs(cx, inode, &runs, Some(&clusters), clusters.len());
        }
        let blocks = runs.holes.iter().map(len).sum();
        self.reserve_runs(cx, inode, &runs, None, blocks)
    }

    /// Reserves `blocks` blocks (clusters) for `runs`, and what placing them takes: the second half
    /// of [`Inodes::reserve_range`].
    #[inline(always)]
    fn reserve_runs(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        runs: &DelayedRuns,
        clusters: Option<&RangeSet>,
        blocks: u64,
    ) -> Result<(), Errno> {
        let blocks = u32::try_from(blocks).map_err(|_| Errno::EFBIG)?;
        inode.reserve_quota(cx, &self.sb, blocks, blocks)?;
        // Whoever has preallocated space may write into it, however full the device is.
        let kept = if blocks > 0 { self.alloc.kept_blocks(cx) } else { 0 };
        let (mut held, mut missing) = (0, u64::from(blocks));
        loop {
            if let Err(errno) = self.reserve_blocks(cx, missing, kept) {
                self.alloc.end_reservation(held);
                inode.settle_quota(cx, &self.sb);
                return Err(errno);
            }
            held += missing;
            // Pages may be placed meanwhile, and what was reserved for them ends: so what is held
            // is compared with what is needed while nobody can change that.
            match inode.add_delayed(cx, &self.alloc, runs, clusters, held) {
                Ok(()) => return Ok(()),
                Err(more) => missing = more,
            }
        }
    }

    /// The clusters of the file in which holes of `runs` lie, and that neither have a place nor are
    /// reserved. The caller holds the inode's `rwsem` for writing: what has a place keeps it.
    fn unreserved_clusters(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        runs: &DelayedRuns,
    ) -> Result<RangeSet, Errno> {
        let mut clusters = RangeSet::new();
        let bits = self.sb.geometry.cluster_bits();
        for hole in &runs.holes {
            let range = hole.start >> bits..((hole.end - 1) >> bits) + 1;
            let gaps = inode.delayed.lock(cx).unreserved_clusters(range.clone());
            for gap in gaps {
                let Range { mut start, mut end } = gap;
                // Only at the ends of the hole a cluster may have other blocks.
                if end == range.end && self.bmap(inode).has_cluster(cx, hole.end - 1)? {
                    end -= 1;
                }
                if start == range.start
                    && start < end
                    && self.bmap(inode).has_cluster(cx, hole.start)?
                {
                    start += 1;
                }
                clusters.insert(start..end);
            }
        }
        Ok(clusters)
    }

    /// The runs of `gaps`, where no block is reserved, that have no block, and those that are
    /// unwritten and not known to be dirty.
    fn unreserved_parts(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        gaps: Runs,
    ) -> Result<DelayedRuns, Errno> {
        let mut runs = DelayedRuns::default();
        for gap in gaps {
            let mut at = gap.start;
            while at < gap.end {
                let mapped = self.bmap(inode).map_lookup(cx, at, gap.end - at)?;
                let end = at + mapped.len;
                match mapped.state {
                    State::Hole => runs.holes.push(at..end),
                    State::Unwritten => {
                        let known = inode.delayed.lock(cx).unwritten.gaps(at..end);
                        runs.unwritten.extend(known);
                    }
                    State::Written => {}
                }
                at = end;
            }
        }
        Ok(runs)
    }
}
