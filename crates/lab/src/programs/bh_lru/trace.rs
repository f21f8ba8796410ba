//! The lookups of one create as the document lists them, replayed on a cache of buffers alone.
//!
//! Our ext4 holds its bitmaps and looks up less than the kernel's did, so the mechanism is shown
//! here on the kernel's own lookups: their sequence is the document's list of blocks and the order
//! in which a create needs them.

use std::sync::Arc;

use base::Rng;
use block::{Queue, QueueConfig};
use cache::{BufferCache, BufferConfig, LruKind};
use device::MemoryDevice;
use rt::Cx;

use super::bed::Variant;
use crate::clock::cpu_nanos;
use crate::program::Figures;

/// Leaves of the directory, and nodes above them.
const LEAVES: u64 = 20_000;
const NODES: u64 = 40;

/// What a create touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    /// Accounts of user and group.
    pub quota: bool,
    /// A block of attributes.
    pub acl: bool,
    /// Two levels of the hash tree and an index block of the directory's map.
    pub deep: bool,
    /// Creates.
    pub operations: u64,
}

impl Trace {
    /// The blocks that create number `n` looks up, in order.
    fn create(&self, n: u64, rng: &mut Rng, out: &mut Vec<u64>) {
        const INDEX: u64 = 1;
        const ROOT: u64 = 2;
        const BITMAP: u64 = 3;
        const PARENT: u64 = 4;
        const USER: u64 = 5;
        const GROUP: u64 = 6;
        const ACL: u64 = 7;
        let table = 100 + n / 16;
        let leaf = rng.below(if self.deep { LEAVES } else { 1 });
        let node = 50_000 + leaf * NODES / LEAVES;
        let leaf = 100_000 + leaf;
        let walk = |out: &mut Vec<u64>| {
            let mut step = |block| {
                out.extend(self.deep.then_some(INDEX));
                out.push(block);
            };
            step(ROOT);
            if self.deep {
                step(node);
            }
            step(leaf);
        };
        // The name is not there yet.
        walk(out);
        out.extend([BITMAP, table, table]);
        out.extend(self.acl.then_some(ACL));
        if self.quota {
            // Charged, then written.
            out.extend([USER, GROUP, USER, GROUP]);
        }
        walk(out);
        out.extend([table, PARENT]);
    }
}

/// Hits and misses of a plain list of `size` blocks, most recent first.
fn naive(size: usize, blocks: &[u64]) -> (u64, u64) {
    let mut recent: Vec<u64> = Vec::new();
    let (mut hits, mut misses) = (0, 0);
    for &block in blocks {
        match recent.iter().position(|&other| other == block) {
            Some(depth) => {
                hits += 1;
                recent.remove(depth);
            }
            None => misses += 1,
        }
        recent.insert(0, block);
        recent.truncate(size);
    }
    (hits, misses)
}

impl Trace {
    /// The figures of its lookups on a variant. May park.
    pub fn replay(&self, cx: &mut Cx, variant: Variant) -> Result<Figures, String> {
        let mut rng = Rng::new(11, 4);
        let mut blocks = Vec::new();
        (0..self.operations).for_each(|n| self.create(n, &mut rng, &mut blocks));
        replay(cx, self.operations, variant, &blocks)
    }
}

fn replay(
    cx: &mut Cx,
    operations: u64,
    variant: Variant,
    blocks: &[u64],
) -> Result<Figures, String> {
    let size = variant.size();
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default());
    let queue = queue.map_err(|error| error.to_string())?;
    let lru = size.map_or(LruKind::default(), LruKind::Array);
    let config = BufferConfig { lru, limit_bytes: 4 << 30, ..BufferConfig::default() };
    let cache = BufferCache::new(queue, config);
    // All blocks are in memory, as on a device in memory they soon are.
    blocks.iter().for_each(|&block| drop(cache.get(cx, block)));
    let before = cache.stats();
    let start = cpu_nanos();
    for &block in blocks {
        std::hint::black_box(cache.get(cx, block));
    }
    let nanos = (cpu_nanos() - start) / operations as f64;
    let after = cache.stats();
    let sum = |hits: &[u64]| hits.iter().sum::<u64>();
    let hits = sum(&after.lru_hits) - sum(&before.lru_hits);
    let misses = after.lru_misses - before.lru_misses;
    let each = |count: u64| count as f64 / operations as f64;
    let twice = [blocks, blocks].concat();
    let exact = size.map(|size| naive(size, &twice) == (sum(&after.lru_hits), after.lru_misses));
    let mut figures = Figures::default();
    figures.set_all([
        ("trace_hit_percent", 100.0 * hits as f64 / blocks.len() as f64),
        ("trace_misses", each(misses)),
        ("trace_compares", each(after.lru_compares - before.lru_compares)),
        ("trace_ns", nanos),
        // Hits and misses are those of a naive list (arrays only).
        ("as_naive_list", exact.map_or(f64::NAN, |exact| f64::from(u8::from(exact)))),
    ]);
    Ok(figures)
}
