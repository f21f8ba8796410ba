//! Free blocks: the groups with their descriptors and bitmaps, and how blocks are allocated.
//!
//! - this file: the allocator, and the reservation of space before blocks are taken;
//! - [`balloc`]: bitmaps and descriptors on the disk;
//! - [`mballoc`]: where new blocks lie;
//! - [`reservation`]: the windows of ext3;
//! - `grow`: more groups while mounted.
//!
//! Nothing here knows inodes: they bring their preallocation and their window.

pub(crate) mod balloc;
mod grow;
pub(crate) mod mballoc;
pub(crate) mod reservation;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::grown::Parts;
use base::range::Ranges;
use cache::BufferRef;
use rt::{Cx, SpinLock};

use crate::alloc::balloc::{Freed, Group};
use crate::alloc::reservation::Windows;
use crate::format::{Geometry, RawSuper};
use crate::sb::SuperBlock;

/// The block allocator of a mount.
pub(crate) struct BlockAllocator {
    weak: Weak<BlockAllocator>,
    pub sb: Arc<SuperBlock>,
    pub groups: Parts<Group>,
    /// Blocks of group descriptors, in memory for the whole mount.
    gdt: Parts<BufferRef>,
    pub counters: Counters,
    freed: Freed,
    /// While fast commits are replayed: what was freed, or taken for a file, so far. Who has it in
    /// the end is known when all of them are applied.
    pub held_back: SpinLock<Option<Ranges<u64>>>,
    windows: Windows,
    /// For each flexible group the block behind the last small file.
    stream_goals: Parts<AtomicU64>,
}

/// Counts over the whole file system, kept beside the groups' own; with bigalloc a block here is a
/// cluster.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Free blocks by the descriptors, those freed by a transaction under way included.
    pub free_blocks: AtomicI64,
    /// Those of them that the allocator may take now: not claimed in memory, and not waiting for
    /// the commit that frees them.
    pub at_hand: AtomicI64,
    /// Blocks at hand that are reserved: for dirty pages that have none yet and for the nodes of
    /// their trees, and for whoever is just taking some.
    pub reserved: AtomicI64,
    /// How often blocks came back to the allocator.
    pub returned: AtomicU64,
    /// Free inodes.
    pub free_inodes: AtomicI64,
    /// Directories.
    pub dirs: AtomicI64,
    /// Blocks (never clusters) that only root may use.
    pub root_blocks: AtomicI64,
    /// Blocks kept for what no write asked for (Linux: `s_resv_clusters`).
    pub pool: AtomicI64,
}

impl BlockAllocator {
    /// Puts it together of what mounting has read. Nothing waits.
    pub(crate) fn from_parts(
        sb: Arc<SuperBlock>,
        groups: Box<[Group]>,
        gdt: Box<[BufferRef]>,
        raw: &RawSuper,
    ) -> Arc<BlockAllocator> {
        let flexes = sb.geometry.groups_count.div_ceil(sb.geometry.flex_size);
        Arc::new_cyclic(|weak| BlockAllocator {
            weak: weak.clone(),
            counters: count_groups(&groups, raw, &sb.geometry),
            sb,
            groups: Parts::new(groups),
            gdt: Parts::new(gdt),
            freed: Freed::default(),
            held_back: SpinLock::new(None),
            windows: Windows::default(),
            stream_goals: Parts::new((0..flexes).map(|_| Default::default()).collect()),
        })
    }

    /// Blocks that are at hand and reserved for nobody.
    pub(crate) fn unreserved_blocks(&self) -> i64 {
        self.counters.at_hand.load(Ordering::Relaxed)
            - self.counters.reserved.load(Ordering::Relaxed)
    }

    /// Reserves `count` blocks where `kept` are left then. First the reservation, then the look:
    /// two tasks cannot both get the last block.
    pub(crate) fn try_reserve(&self, count: u64, kept: i64) -> bool {
        let Ok(count) = i64::try_from(count) else { return false };
        self.counters.reserved.fetch_add(count, Ordering::Relaxed);
        let made = self.unreserved_blocks() >= kept;
        if !made {
            self.counters.reserved.fetch_sub(count, Ordering::Relaxed);
        }
        made
    }

    /// A reservation ends: its blocks were claimed, or nobody needs them.
    pub(crate) fn end_reservation(&self, count: u64) {
        self.counters.reserved.fetch_sub(count as i64, Ordering::Relaxed);
    }

    /// Blocks that a write of this task leaves alone: the pool, and what only root may have.
    pub(crate) fn kept_blocks(&self, cx: &Cx) -> i64 {
        let root = match cx.cred().uid {
            0 => 0,
            _ => {
                self.counters.root_blocks.load(Ordering::Relaxed) >> self.sb.geometry.cluster_bits()
            }
        };
        root + self.counters.pool.load(Ordering::Relaxed)
    }
}

/// The counts over all groups.
fn count_groups(groups: &[Group], raw: &RawSuper, geometry: &Geometry) -> Counters {
    let (mut free_blocks, mut free_inodes, mut dirs) = (0, 0, 0);
    for group in groups {
        let desc = group.state.lock_irq().desc;
        free_blocks += i64::from(desc.free_blocks);
        free_inodes += i64::from(desc.free_inodes);
        dirs += i64::from(desc.used_dirs);
    }
    Counters {
        free_blocks: free_blocks.into(),
        at_hand: free_blocks.into(),
        free_inodes: free_inodes.into(),
        dirs: dirs.into(),
        root_blocks: (raw.reserved_blocks() as i64).into(),
        pool: pool(geometry).into(),
        ..Counters::default()
    }
}

/// Blocks kept for what no write asked for: a fiftieth, 4096 at most.
fn pool(geometry: &Geometry) -> i64 {
    ((geometry.blocks_count >> geometry.cluster_bits()) / 50).min(4096) as i64
}
