//! The lookups of creates, recorded on a mount and replayed on a cache of buffers alone: exact
//! counts for each structure, and what a miss costs.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::buffer::lru::LRU_MAX;
use cache::{BufferCache, BufferConfig, LruKind};
use device::MemoryDevice;
use rt::Cx;

use super::bed::{Bed, Variant};
use super::operations::{Cell, operations};
use crate::clock::cpu_nanos;
use crate::program::Figures;

/// Costs of a miss for which the gain is foretold, nanoseconds.
pub(super) const COSTS: [u64; 4] = [30, 60, 120, 240];

/// The blocks that creates looked up.
pub(super) struct Trace {
    /// In order; those of creates before, which fill the structures, come first.
    blocks: Vec<u64>,
    /// How many of them are of creates before.
    before: usize,
    operations: u64,
    /// CPU time of a create on the mount.
    nanos: f64,
    /// Hits by depth of the mount's own array are those of a naive list.
    exact: bool,
}

/// Hits of a plain list of `size` blocks, most recent first, by depth; and misses.
fn naive(size: usize, blocks: &[u64]) -> (Vec<u64>, u64) {
    let mut recent: Vec<u64> = Vec::new();
    let (mut hits, mut misses) = (vec![0; size], 0);
    for &block in blocks {
        match recent.iter().position(|&other| other == block) {
            Some(depth) => {
                hits[depth] += 1;
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
    /// Records so many creates of a task. Those before bring all blocks into memory. May park.
    pub fn record(cx: &mut Cx, bed: &Bed, cell: &Cell, count: u64) -> Result<Trace, String> {
        let buffers = bed.fs.buffers();
        // All leaves that are full are split before.
        operations(cx, bed, cell, 0, 0..count, 0)?;
        operations(cx, bed, cell, 0, 0..count, 2)?;
        let mut spare = buffers.spare_lrus(LruKind::Recorded(LRU_MAX));
        buffers.exchange_lrus(&mut spare);
        let warming = count / 10;
        operations(cx, bed, cell, 0, 0..warming, 0)?;
        buffers.exchange_lrus(&mut spare);
        let mut blocks = spare.take_recorded().concat();
        let before = blocks.len();
        buffers.exchange_lrus(&mut spare);
        let start = cpu_nanos();
        operations(cx, bed, cell, 0, warming..count, 0)?;
        let nanos = cpu_nanos() - start;
        let stats = buffers.stats();
        buffers.exchange_lrus(&mut spare);
        blocks.extend(spare.take_recorded().concat());
        let exact = naive(LRU_MAX, &blocks) == (stats.lru_hits, stats.lru_misses);
        let operations = count - warming;
        Ok(Trace { blocks, before, operations, nanos: nanos / operations as f64, exact })
    }

    /// What each variant makes of it. May park.
    pub fn replay(&self, cx: &mut Cx, variants: &[Variant]) -> Result<Vec<Figures>, String> {
        let all = variants.iter().map(|&one| self.replay_on(cx, one));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        let first = variants.iter().position(|one| *one == Variant::Array(8));
        let of = |figures: &Figures, name: &str| figures.get(name).unwrap_or(f64::NAN);
        let eight = first.map(|at| (of(&all[at], "trace_misses"), of(&all[at], "trace_ns")));
        for figures in &mut all {
            let Some((misses, nanos)) = eight else { continue };
            let saved = misses - of(figures, "trace_misses");
            let gained = nanos - of(figures, "trace_ns");
            if saved > 0.5 {
                figures.set("miss_ns", gained / saved);
                figures.set("misses_to_8", misses / of(figures, "trace_misses"));
            }
            for cost in COSTS {
                let time = saved * cost as f64;
                // Beside a create whose lookups all cost what they cost on the mount.
                figures.set(format!("foretold_{cost}"), 100.0 * time / self.nanos);
            }
        }
        Ok(all)
    }

    fn replay_on(&self, cx: &mut Cx, variant: Variant) -> Result<Figures, String> {
        let size = variant.size();
        let device = Arc::new(MemoryDevice::new(1 << 40));
        let queue = Queue::new(cx.runtime(), device, QueueConfig::default());
        let queue = queue.map_err(|error| error.to_string())?;
        let lru = size.map_or(LruKind::default(), LruKind::Array);
        let config = BufferConfig { lru, limit_bytes: 4 << 30, ..BufferConfig::default() };
        let cache = BufferCache::new(queue, config);
        let (filling, counted) = self.blocks.split_at(self.before);
        // All blocks are in memory, as on a device in memory they soon are.
        let all = || self.blocks.iter().chain(filling);
        all().for_each(|&block| drop(cache.get(cx, block)));
        let before = cache.stats();
        let start = cpu_nanos();
        for &block in counted {
            std::hint::black_box(cache.get(cx, block));
        }
        let nanos = (cpu_nanos() - start) / self.operations as f64;
        let after = cache.stats();
        let sum = |hits: &[u64]| hits.iter().sum::<u64>();
        let hits = sum(&after.lru_hits) - sum(&before.lru_hits);
        let misses = after.lru_misses - before.lru_misses;
        let each = |count: u64| count as f64 / self.operations as f64;
        let seen: Vec<u64> = all().chain(counted).copied().collect();
        let same = |size| naive(size, &seen) == (after.lru_hits.clone(), after.lru_misses);
        let exact = size.map_or(f64::NAN, |size| f64::from(u8::from(same(size) && self.exact)));
        let mut figures = Figures::default();
        figures.set_all([
            ("trace_lookups", each(counted.len() as u64)),
            ("trace_hit_percent", 100.0 * hits as f64 / counted.len() as f64),
            ("trace_misses", each(misses)),
            ("trace_compares", each(after.lru_compares - before.lru_compares)),
            ("trace_ns", nanos),
            // Hits by depth and misses are those of a naive list (arrays only): here, and on the
            // mount for 64 entries.
            ("as_naive_list", exact),
        ]);
        Ok(figures)
    }
}
