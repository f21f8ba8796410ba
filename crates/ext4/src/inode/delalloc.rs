//! Delayed allocation: what is reserved for dirty pages before they have blocks.
//!
//! A write reserves each block that it dirties, and what placing it can cost at the worst: nodes of
//! the extent tree, or tables of pointers, where every run is torn into single blocks and every
//! leaf on the way is full. A write into preallocated space reserves the nodes that turning it into
//! written blocks can take. So what write(2) accepted finds its place: nothing that is reserved is
//! given to anybody else, and only blocks that the allocator has at hand are reserved, not those
//! that a commit is still to free.
//!
//! With clusters (bigalloc) a write reserves a cluster for each one of the file that it dirties a
//! block in, unless the cluster has a place already: then the block has one too. So that this stays
//! so, dirty pages that share a cluster with what is about to be unmapped are placed first.
//!
//! Beside that a pool is kept (Linux: `s_resv_clusters`, 2 % of the blocks and at most 4,096) for
//! the nodes that nobody asked write(2) for: a punch that splits an extent, the end of a direct
//! write.

use std::ops::Range;

use base::RangeSet;
use rt::Cx;
use smallvec::SmallVec;

use crate::alloc::BlockAllocator;
use crate::format::{InodeFlags, extent};
use crate::inode::Inode;

/// A few runs of logical blocks.
pub(crate) type Runs = SmallVec<[Range<u32>; 2]>;

/// Runs that become dirty.
#[derive(Default)]
pub(crate) struct DelayedRuns {
    /// Without a block on the device.
    pub holes: Runs,
    /// Unwritten on the device, and not known to be dirty.
    pub unwritten: Runs,
}

/// What is reserved for the dirty pages of one file.
#[derive(Debug, Default)]
pub(crate) struct Delalloc {
    /// Logical blocks without a block on the device.
    holes: RangeSet,
    /// Blocks of `holes`.
    blocks: u64,
    /// With bigalloc: the clusters of the file that a cluster is reserved for.
    clusters: RangeSet,
    /// log2 of the blocks of a cluster.
    cluster_bits: u32,
    /// Logical blocks that are unwritten on the device, and dirty.
    pub unwritten: RangeSet,
    /// Blocks of `unwritten`.
    conversions: u64,
    /// Nodes of the tree, or tables of pointers, that are reserved for both.
    nodes: u64,
    /// Reserved blocks are being placed: new nodes come out of what is reserved.
    placing: bool,
    /// The map was changed by others until placing takes more nodes, and there were no blocks for
    /// them: they come from the pool, as far as that goes.
    short: bool,
}

/// Blocks of a run.
pub(crate) fn len(range: &Range<u32>) -> u64 {
    u64::from(range.end - range.start)
}

impl Delalloc {
    /// The dirty blocks without a block on the device.
    pub fn holes(&self) -> &RangeSet {
        &self.holes
    }

    /// How many blocks are reserved for those; of clusters all blocks.
    pub fn blocks(&self) -> u64 {
        match self.cluster_bits {
            0 => self.blocks,
            bits => self.clusters.len() << bits,
        }
    }

    /// The clusters of the file among `clusters` that none is reserved for.
    pub fn unreserved_clusters(&self, clusters: Range<u32>) -> Vec<Range<u32>> {
        self.clusters.gaps(clusters)
    }

    /// Nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.holes.is_empty() && self.unwritten.is_empty()
    }

    /// The parts of `range` that no block is reserved for.
    pub fn gaps(&self, range: Range<u32>) -> Runs {
        match self.holes.intersects(range.clone()) {
            true => self.holes.gaps(range).into(),
            false => SmallVec::from_iter([range]),
        }
    }

    /// The pages of `range` have their `place`, or are gone: how many reserved blocks (clusters)
    /// are not needed for them any more.
    fn remove(&mut self, range: Range<u32>, placed: bool) -> u64 {
        let inside = |set: &RangeSet| set.within(range.clone()).map(|part| len(&part)).sum::<u64>();
        let gone = inside(&self.holes);
        self.blocks -= gone;
        self.conversions -= inside(&self.unwritten);
        self.holes.remove(range.clone());
        self.unwritten.remove(range.clone());
        self.short &= !self.is_empty();
        match self.cluster_bits {
            0 => gone,
            _ => self.remove_clusters(range, placed),
        }
    }

    /// As [`remove`](Self::remove), for clusters: those with a placed block have their place; of
    /// the others those go that no page is left in.
    fn remove_clusters(&mut self, range: Range<u32>, placed: bool) -> u64 {
        let (bits, before) = (self.cluster_bits, self.clusters.len());
        if range.is_empty() {
            return 0;
        }
        let (mut first, mut end) = (range.start >> bits, ((range.end - 1) >> bits) + 1);
        let left = |cluster: u32| {
            let last = (cluster << bits) | ((1 << bits) - 1);
            !placed && self.holes.intersects(cluster << bits..last.saturating_add(1))
        };
        if left(end - 1) {
            end -= 1;
        }
        if first < end && left(first) {
            first += 1;
        }
        self.clusters.remove(first..end);
        before - self.clusters.len()
    }
}

/// The shape of a file's map, as far as the cost of placing blocks depends on it.
struct Shape {
    /// Levels of the extent tree below the root; `None`: tables of pointers.
    depth: Option<u64>,
    /// Entries in the root.
    entries: u64,
    /// Blocks that the file has, nodes included.
    mapped: u64,
    /// Entries of a node, or pointers of a table.
    per_node: u64,
}

/// What is to be placed: single blocks at the worst, in so many places.
#[derive(Clone, Copy)]
struct Load {
    blocks: u64,
    /// Extents more that turning blocks into written ones may leave: of a run of `n` blocks at most
    /// `n + 1`, where every other one is turned first.
    conversions: u64,
    /// Runs of both sorts.
    runs: u64,
    /// The block behind the last one.
    end: u64,
}

impl Shape {
    /// How many nodes placing `load` takes at the worst, whatever the state of the nodes is.
    fn nodes(&self, load: Load) -> u64 {
        match self.depth {
            _ if load.runs == 0 => 0,
            Some(depth) => self.extent_nodes(depth, load),
            None => self.tables(load),
        }
    }

    fn extent_nodes(&self, depth: u64, load: Load) -> u64 {
        let entries = load.blocks + load.conversions;
        // After a split a leaf takes half a leaf more before it is split again.
        let splits = entries / (self.per_node / 2 - 1);
        if depth == 0 {
            return match self.entries + entries <= u64::from(extent::ROOT_MAX) {
                true => 0,
                false if splits == 0 => 1,
                false => 1 + splits + 2 + splits / (self.per_node / 2 - 1),
            };
        }
        // A leaf that is full has a block for each entry at the least.
        let full = (self.mapped / (self.per_node - 1) + 1).min(load.runs);
        full * depth + splits + 2 + splits / (self.per_node / 2 - 1)
    }

    fn tables(&self, load: Load) -> u64 {
        const DIRECT: u64 = 12;
        if load.end <= DIRECT {
            return 0;
        }
        if load.end <= DIRECT + self.per_node {
            return 1;
        }
        let leaves = load.blocks.min(load.blocks / self.per_node + 2 * load.runs);
        leaves + leaves / self.per_node + 4
    }
}

impl Inode {
    /// Taken under the lock of what is reserved, so that it fits that: what is being placed counts
    /// twice for a moment, but never as neither.
    fn shape(&self, cx: &Cx, block_size: u32) -> Shape {
        self.with(cx, |core| {
            let extents = core.flags.contains(InodeFlags::EXTENTS);
            let word =
                |at: usize| u64::from(u16::from_le_bytes([core.block[at], core.block[at + 1]]));
            let mapped = core.blocks / u64::from(block_size / 512);
            match extents {
                true => Shape {
                    depth: Some(word(6)),
                    entries: word(2),
                    mapped,
                    per_node: u64::from(extent::block_max(block_size)),
                },
                false => {
                    Shape { depth: None, entries: 0, mapped, per_node: u64::from(block_size / 4) }
                }
            }
        })
    }
}

impl Delalloc {
    /// What is to be placed when `holes` and `unwritten` come in addition, which are not in it.
    fn load_with(&self, holes: &[Range<u32>], unwritten: &[Range<u32>]) -> Load {
        let more = || holes.iter().chain(unwritten);
        // A run that continues another is counted with it.
        let apart = |range: &&Range<u32>| {
            let before = range.start.wrapping_sub(1);
            !self.holes.contains(before) && !self.unwritten.contains(before)
        };
        let apart = more().filter(apart).count();
        let last = |set: &RangeSet| set.last().map_or(0, |range| u64::from(range.end));
        let end = more().map(|range| u64::from(range.end)).max().unwrap_or(0);
        Load {
            blocks: self.blocks + holes.iter().map(len).sum::<u64>(),
            conversions: self.conversions
                + unwritten.iter().map(len).sum::<u64>()
                + (self.unwritten.count() + unwritten.len()) as u64,
            runs: (self.holes.count() + self.unwritten.count() + apart) as u64,
            end: end.max(last(&self.holes)).max(last(&self.unwritten)),
        }
    }

    fn load(&self) -> Load {
        self.load_with(&[], &[])
    }
}

impl Inode {
    /// Notes further runs, for which `held` blocks (clusters) are reserved already; gives back what
    /// is not needed. With bigalloc `clusters` are those of the file that the holes lie in and that
    /// have no place.
    ///
    /// # Errors
    /// How many blocks more are needed: nothing is noted then.
    #[inline(always)]
    pub(crate) fn add_delayed(
        &self,
        cx: &Cx,
        alloc: &BlockAllocator,
        runs: &DelayedRuns,
        clusters: Option<&RangeSet>,
        held: u64,
    ) -> Result<(), u64> {
        let DelayedRuns { holes, unwritten } = runs;
        let blocks: u64 = holes.iter().map(len).sum();
        let units = clusters.map_or(blocks, RangeSet::len);
        let mut delayed = self.delayed.lock(cx);
        let shape = self.shape(cx, alloc.sb.geometry.block_size);
        let nodes = shape.nodes(delayed.load_with(holes, unwritten)).saturating_sub(delayed.nodes);
        if held < units + nodes {
            return Err(units + nodes - held);
        }
        if let Some(clusters) = clusters {
            delayed.cluster_bits = alloc.sb.geometry.cluster_bits();
            clusters.iter().for_each(|range| delayed.clusters.insert(range));
        }
        holes.iter().for_each(|range| delayed.holes.insert(range.clone()));
        for range in unwritten {
            delayed.conversions += len(range);
            delayed.unwritten.insert(range.clone());
        }
        delayed.blocks += blocks;
        delayed.nodes += nodes;
        drop(delayed);
        alloc.end_reservation(held - units - nodes);
        Ok(())
    }

    /// Begins to place `run`; where it is reserved, its new nodes come out of that.
    pub(crate) fn begin_placing(&self, cx: &Cx, run: Range<u32>) {
        let mut delayed = self.delayed.lock(cx);
        delayed.placing = delayed.holes.covers(run.clone()) || delayed.unwritten.covers(run);
    }

    /// The blocks `placed` have their place, or none is to be had: what stays reserved is
    /// what the rest can take. The blocks' own reservation ended where they were allocated; that of
    /// clusters ends here.
    pub(crate) fn end_placing(&self, cx: &Cx, alloc: &BlockAllocator, placed: Option<Range<u32>>) {
        let mut delayed = self.delayed.lock(cx);
        delayed.placing = false;
        if let Some(range) = placed {
            let gone = delayed.remove(range, true);
            drop(delayed);
            if alloc.sb.geometry.has_clusters() {
                alloc.end_reservation(gone);
            }
            self.settle_nodes(cx, alloc);
        }
    }

    /// The map has changed beside the dirty pages: what a call filled (the root), or freed (a table
    /// of pointers), placing them may have to make anew. The caller holds the map lock.
    pub(crate) fn top_up_nodes(&self, cx: &Cx, alloc: &BlockAllocator) {
        let mut delayed = self.delayed.lock(cx);
        if delayed.is_empty() {
            return;
        }
        let needed = self.shape(cx, alloc.sb.geometry.block_size).nodes(delayed.load());
        let more = needed.saturating_sub(delayed.nodes);
        if more > 0 {
            match alloc.try_reserve(more, 0) {
                true => delayed.nodes += more,
                false => delayed.short = true,
            }
        }
    }

    /// Takes a reserved node of a file that is being placed.
    pub(crate) fn take_reserved_node(&self, cx: &Cx) -> bool {
        let mut delayed = self.delayed.lock(cx);
        let enough = !delayed.placing || delayed.nodes > 0 || delayed.short;
        debug_assert!(enough, "more nodes than the worst case");
        let take = delayed.placing && delayed.nodes > 0;
        delayed.nodes -= u64::from(take);
        take
    }

    /// Gives back the nodes that the rest cannot need.
    fn settle_nodes(&self, cx: &Cx, alloc: &BlockAllocator) {
        let mut delayed = self.delayed.lock(cx);
        let shape = self.shape(cx, alloc.sb.geometry.block_size);
        let needed = shape.nodes(delayed.load()).min(delayed.nodes);
        let over = delayed.nodes - needed;
        delayed.nodes = needed;
        drop(delayed);
        alloc.end_reservation(over);
    }

    /// Gives back what is reserved for `from..to`: the pages are gone.
    pub(crate) fn release_delayed(&self, cx: &Cx, alloc: &BlockAllocator, from: u32, to: u32) {
        let gone = {
            let mut delayed = self.delayed.lock(cx);
            if delayed.is_empty() {
                return;
            }
            delayed.remove(from..to, false)
        };
        self.settle_quota(cx, &alloc.sb);
        alloc.end_reservation(gone);
        self.settle_nodes(cx, alloc);
    }
}
