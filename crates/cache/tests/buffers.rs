//! Buffers: the LRU against a model, reads that share, limits, copies on write, errors.

use std::sync::Arc;

use base::Rng;
use block::{Cause, Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig};
use cache::{BufferCache, BufferConfig, LruKind};
use rt::testing::{both, seeds, world};
use rt::{Cx, SpinLock};

/// A disk whose sectors carry their number until they are written, and which can hold its requests
/// back.
struct Disk {
    info: DeviceInfo,
    state: SpinLock<State>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    held: Option<Vec<DeviceIo>>,
    bad: Option<u64>,
    /// Operation, first sector, sectors.
    seen: Vec<(Op, u64, u64)>,
}

impl Disk {
    fn new(blocks: usize) -> Arc<Disk> {
        let bytes = (0..blocks * 4096).map(|at| (at / 4096) as u8).collect();
        let state = SpinLock::new(State { bytes, ..State::default() });
        Arc::new(Disk { info: DeviceInfo::plain(blocks as u64 * 8), state })
    }

    fn hold(&self) {
        self.state.lock_irq().held = Some(Vec::new());
    }

    fn release(&self) -> usize {
        let held = self.state.lock_irq().held.take().unwrap_or_default();
        let count = held.len();
        for io in held {
            self.submit(io);
        }
        count
    }

    fn seen(&self) -> Vec<(Op, u64, u64)> {
        std::mem::take(&mut self.state.lock_irq().seen)
    }
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn name(&self) -> String {
        "held disk".into()
    }

    fn submit(&self, mut io: DeviceIo) {
        {
            let mut state = self.state.lock_irq();
            let state = &mut *state;
            if let Some(held) = &mut state.held {
                held.push(io);
                return;
            }
            state.seen.push((io.op, io.sector.0, io.count));
            let bad = state.bad;
            if !bad.is_some_and(|bad| (io.sector.0..io.end_sector().0).contains(&bad)) {
                let mut at = io.sector.0 as usize * 512;
                for seg in &mut io.segs {
                    let disk = &mut state.bytes[at..at + seg.len as usize];
                    match io.op {
                        Op::Read => seg.bytes_mut().copy_from_slice(disk),
                        _ => disk.copy_from_slice(seg.bytes()),
                    }
                    at += seg.len as usize;
                }
            }
        }
        let bad = self.state.lock_irq().bad;
        match bad.is_some_and(|bad| (io.sector.0..io.end_sector().0).contains(&bad)) {
            true => io.fail(Cause::Io),
            false => io.succeed(),
        }
    }
}

fn cache_on(cx: &Cx, disk: &Arc<Disk>, lru_size: usize, limit: u64) -> Arc<BufferCache> {
    cache_with(cx, disk, LruKind::Array(lru_size), limit)
}

fn cache_with(cx: &Cx, disk: &Arc<Disk>, lru: LruKind, limit: u64) -> Arc<BufferCache> {
    let device: Arc<dyn Device> = disk.clone();
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).unwrap();
    let config = BufferConfig {
        block_size: 4096,
        lru,
        limit_bytes: limit * 4096,
        ..BufferConfig::default()
    };
    BufferCache::new(queue, config)
}

/// The array of Linux, told naively: most recent first.
fn model(size: usize, trace: &[u64]) -> (Vec<u64>, u64) {
    let mut recent: Vec<u64> = Vec::new();
    let (mut hits, mut misses) = (vec![0; size], 0);
    for &block in trace {
        match recent.iter().position(|&b| b == block) {
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

#[test]
fn the_lru_hits_where_a_plain_list_would() {
    // Goal: exact hits per depth and misses, for each size, on traces with and without locality.
    world(|cx| {
        for size in [1, 8, 16, 64] {
            for seed in seeds(4) {
                let mut rng = Rng::new(seed, size as u64);
                let width = 2 + rng.below(60);
                let trace: Vec<u64> = (0..5000)
                    .map(|n| if rng.chance(0.7) { n % width } else { rng.below(200) })
                    .collect();
                let disk = Disk::new(256);
                let cache = cache_on(cx, &disk, size, 1000);
                for &block in &trace {
                    cache.get(cx, block);
                }
                let stats = cache.stats();
                assert_eq!((stats.lru_hits.clone(), stats.lru_misses), model(size, &trace));
                assert_eq!(stats.index_hits + stats.created, stats.lru_misses);
            }
        }
    });
}

/// Sets of four, told naively: a hit makes an entry young, a new block is nearly old, the first of
/// the oldest leaves. Hits by age, and misses.
fn model_sets(sets: usize, trace: &[u64]) -> (Vec<u64>, u64) {
    let mut lists = vec![[(None, 3); 4]; sets];
    let (mut hits, mut misses) = (vec![0; 4], 0);
    for &block in trace {
        let folded = block ^ block >> 7 ^ block >> 15;
        let hash = u128::from(folded.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let list = &mut lists[((hash * sets as u128) >> 64) as usize];
        if let Some((_, age)) = list.iter_mut().find(|entry| entry.0 == Some(block)) {
            hits[*age] += 1;
            *age = 0;
            continue;
        }
        misses += 1;
        while list.iter().all(|entry| entry.1 < 3) {
            list.iter_mut().for_each(|entry| entry.1 += 1);
        }
        *list.iter_mut().find(|entry| entry.1 == 3).unwrap() = (Some(block), 2);
    }
    (hits, misses)
}

#[test]
fn sets_hit_where_plain_lists_would() {
    // Goal: exact hits by age and misses for each number of sets; no entry pins a buffer, and
    // every lookup compares four keys.
    world(|cx| {
        for sets in [1, 4, 16] {
            for seed in seeds(4) {
                let mut rng = Rng::new(seed, sets as u64);
                let width = 2 + rng.below(90);
                let trace: Vec<u64> = (0..5000)
                    .map(|n| if rng.chance(0.7) { n % width } else { rng.below(200) })
                    .collect();
                let disk = Disk::new(256);
                let cache = cache_with(cx, &disk, LruKind::Sets(sets), 1000);
                for &block in &trace {
                    cache.get(cx, block);
                }
                let stats = cache.stats();
                assert_eq!((stats.lru_hits.clone(), stats.lru_misses), model_sets(sets, &trace));
                assert_eq!(stats.index_hits + stats.created, stats.lru_misses);
                assert_eq!(stats.lru_compares, 4 * trace.len() as u64);
                assert_eq!(stats.lru_pinned_bytes, 0);
            }
        }
    });
}

#[test]
fn blocks_at_equal_distances_do_not_share_few_sets() {
    // Goal: roots of eight directories made one after another stay in sixteen sets beside leaves
    // that are looked up once: in 98 of 100 distances three quarters of their lookups or more hit.
    world(|cx| {
        let distances: Vec<u64> = (1..140).chain([610, 987, 8192, 32_768, 46_368]).collect();
        let disk = Disk::new(600_000);
        let cache = cache_with(cx, &disk, LruKind::Sets(16), 10_000);
        let mut bad = Vec::new();
        for &distance in &distances {
            let mut rng = Rng::new(distance, 16);
            let mut missed = 0;
            for n in 0..480 {
                let before = cache.stats().lru_misses;
                cache.get(cx, 6402 + n % 8 * distance);
                missed += if n >= 80 { cache.stats().lru_misses - before } else { 0 };
                cache.get(cx, 500_000 + rng.below(2000));
            }
            if missed > 100 {
                bad.push((distance, missed));
            }
        }
        assert!(50 * bad.len() <= distances.len(), "of 400 missed, by distance: {bad:?}");
    });
}

#[test]
fn one_large_array_tells_what_every_smaller_one_finds() {
    // Goal: the hits per depth of 64 entries, summed up to N, are the hits of an array of N.
    world(|cx| {
        let mut rng = Rng::new(1, 1);
        let trace: Vec<u64> =
            (0..8000).map(|n| if rng.chance(0.8) { n % 13 } else { rng.below(150) }).collect();
        let run = |cx: &Cx, size: usize| {
            let disk = Disk::new(256);
            let cache = cache_on(cx, &disk, size, 1000);
            for &block in &trace {
                cache.get(cx, block);
            }
            cache.stats()
        };
        let large = run(cx, 64);
        assert_eq!(large.lru_pinned_bytes, 64 * 4096);
        for size in [8, 12, 16, 24, 32, 48] {
            let stats = run(cx, size);
            let hits: u64 = stats.lru_hits.iter().sum();
            assert_eq!(hits, large.lru_hits[..size].iter().sum::<u64>(), "size {size}");
            assert_eq!(stats.lru_pinned_bytes, size as u64 * 4096);
        }
    });
}

#[test]
fn weak_entries_let_the_index_drop_its_buffers() {
    // Goal: an array keeps what it names; sets let the clock take it, and then miss.
    both(|cx| {
        for (lru, kept) in [(LruKind::Array(8), 8), (LruKind::Sets(16), 0)] {
            let disk = Disk::new(64);
            let cache = cache_with(cx, &disk, lru, 1000);
            for block in 0..8 {
                cache.read(cx, block).unwrap();
            }
            cache.drop_clean_unpinned();
            assert_eq!(cache.stats().buffers, kept, "{lru:?}");
            for block in 0..8 {
                assert_eq!(cache.read(cx, block).unwrap().with(|b| b[0]), block as u8);
            }
        }
    });
}

#[test]
fn the_size_follows_from_what_transactions_touch() {
    for (blocks, sets, array) in [(1, 1, 8), (6, 8, 8), (9, 16, 16), (17, 16, 24), (400, 16, 64)] {
        assert_eq!(LruKind::for_transactions(blocks), LruKind::Sets(sets));
        assert_eq!(LruKind::array_for_transactions(blocks), LruKind::Array(array));
    }
}

#[test]
fn a_cycle_longer_than_the_lru_never_hits() {
    world(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 8, 1000);
        for n in 0..900 {
            cache.get(cx, n % 9);
        }
        assert_eq!(cache.stats().lru_hits, [0; 8]);
        assert_eq!(cache.stats().index_hits, 891);
    });
}

#[test]
fn of_many_readers_of_a_block_one_reads() {
    // Goal: eight tasks read the same block while the disk holds it back; one request is made.
    world(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        disk.hold();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let cache = cache.clone();
                cx.spawn("reader", move |cx| cache.read(cx, 5).unwrap().with(|bytes| bytes[4095]))
            })
            .collect();
        cx.sleep(base::Nanos(1000));
        assert_eq!(disk.release(), 1);
        for task in tasks {
            assert_eq!(task.join(cx), 5);
        }
        assert_eq!(cache.stats().device_reads, 1);
    });
}

#[test]
fn readahead_makes_large_requests_of_what_is_missing() {
    both(|cx| {
        let disk = Disk::new(256);
        let cache = cache_on(cx, &disk, 16, 1000);
        cache.read(cx, 20).unwrap();
        disk.seen();
        cache.readahead(cx, 10, 30);
        cache.readahead(cx, 250, 1000);
        cache.queue().drain(cx);
        assert_eq!(disk.seen(), [(Op::Read, 80, 80), (Op::Read, 168, 152), (Op::Read, 2000, 48)]);
        assert_eq!(cache.read(cx, 39).unwrap().with(|bytes| bytes[0]), 39);
        assert_eq!(disk.seen(), []);
    });
}

#[test]
fn sync_writes_dirty_buffers_sorted_and_merged() {
    both(|cx| {
        let disk = Disk::new(256);
        let cache = cache_on(cx, &disk, 16, 1000);
        for block in [9, 3, 8, 7, 100, 4] {
            let buffer = cache.get(cx, block);
            buffer.with_mut(|bytes| bytes.fill(0xee));
            buffer.set_uptodate();
            buffer.mark_dirty();
        }
        cache.sync(cx).unwrap();
        let mut seen = disk.seen();
        seen.sort_by_key(|&(_, sector, _)| sector);
        assert_eq!(seen, [(Op::Write, 24, 16), (Op::Write, 56, 24), (Op::Write, 800, 8)]);
        cache.sync(cx).unwrap();
        assert_eq!(disk.seen(), []);
    });
}

#[test]
fn what_is_in_flight_does_not_change() {
    // Goal: the write holds the old bytes although the buffer is changed meanwhile; the second
    // write of the same block waits for the first.
    world(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        let buffer = cache.read(cx, 7).unwrap();
        buffer.set_trigger(Some(Arc::new(|block, bytes| bytes[4095] = block as u8 + 1)));
        disk.seen();
        let write = |cx: &mut Cx, byte: u8| {
            buffer.with_mut(|bytes| bytes[..10].fill(byte));
            buffer.mark_dirty();
            let cache = cache.clone();
            cx.spawn("writer", move |cx| cache.sync(cx).unwrap())
        };
        disk.hold();
        let first = write(cx, 1);
        cx.sleep(base::Nanos(1000));
        let second = write(cx, 2);
        cx.sleep(base::Nanos(1000));
        assert_eq!(disk.release(), 1);
        first.join(cx);
        second.join(cx);
        assert_eq!(disk.seen().len(), 2);
        let state = disk.state.lock_irq();
        let bytes = &state.bytes[7 * 4096..8 * 4096];
        assert_eq!((bytes[0], bytes[10], bytes[4095]), (2, 7, 8));
    });
}

#[test]
fn the_memory_limit_holds_and_spares_what_is_in_use() {
    // Goal: reading many blocks keeps about the limit; referenced and dirty buffers stay.
    both(|cx| {
        let disk = Disk::new(8192);
        let cache = cache_on(cx, &disk, 16, 512);
        let held = cache.read(cx, 1).unwrap();
        held.with_mut(|bytes| bytes[0] = 77);
        let dirty = cache.read(cx, 2).unwrap();
        dirty.with_mut(|bytes| bytes[0] = 78);
        dirty.mark_dirty();
        drop(dirty);
        for block in 3..8000 {
            cache.read(cx, block).unwrap();
        }
        let stats = cache.stats();
        assert!(stats.buffers <= 600 && stats.reclaimed > 7000, "{stats:?}");
        assert!(Arc::ptr_eq(&cache.read(cx, 1).unwrap(), &held));
        assert_eq!(cache.read(cx, 2).unwrap().with(|bytes| bytes[0]), 78);
        cache.sync(cx).unwrap();
        drop(held);
        cache.drop_clean();
        assert_eq!(cache.stats().buffers, 0);
        assert_eq!(cache.read(cx, 2).unwrap().with(|bytes| bytes[0]), 78);
    });
}

#[test]
fn a_forgotten_buffer_is_never_seen_again() {
    both(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        let old = cache.read(cx, 5).unwrap();
        old.with_mut(|bytes| bytes.fill(1));
        old.mark_dirty();
        cache.forget(cx, 4, 3);
        old.mark_dirty();
        cache.sync(cx).unwrap();
        assert!(cache.find(cx, 5).is_none());
        assert_eq!(cache.read(cx, 5).unwrap().with(|bytes| bytes[0]), 5);
    });
}

#[test]
fn errors_reach_the_reader_and_the_next_sync() {
    both(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        disk.state.lock_irq().bad = Some(81);
        let error = cache.read(cx, 10).unwrap_err();
        assert_eq!((error.op, error.sector.0), (Op::Read, 80));
        let buffer = cache.get(cx, 10);
        buffer.with_mut(|bytes| bytes.fill(1));
        buffer.set_uptodate();
        buffer.mark_dirty();
        assert!(cache.sync(cx).is_err());
        assert!(buffer.write_error() && !buffer.dirty());
        cache.sync(cx).unwrap();
        disk.state.lock_irq().bad = None;
        buffer.mark_dirty();
        cache.sync(cx).unwrap();
        assert!(!buffer.write_error());
        // A failed read-ahead is tried again by the reader.
        disk.state.lock_irq().bad = Some(160);
        cache.readahead(cx, 18, 5);
        cache.queue().drain(cx);
        disk.state.lock_irq().bad = None;
        assert_eq!(cache.read(cx, 20).unwrap().with(|bytes| bytes[0]), 20);
        assert!(cache.read(cx, 64).is_err(), "beyond the end");
    });
}

#[test]
fn a_late_read_does_not_replace_what_a_maker_has_written() {
    // Goal: a block is being read ahead when it is allocated and filled; the fill wins.
    world(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        disk.hold();
        cache.readahead(cx, 10, 2);
        let buffer = cache.get(cx, 10);
        buffer.with_mut(|bytes| bytes.fill(99));
        disk.release();
        buffer.set_uptodate();
        assert_eq!(cache.read(cx, 10).unwrap().with(|bytes| bytes[17]), 99);
        assert_eq!(cache.read(cx, 11).unwrap().with(|bytes| bytes[17]), 11);
    });
}

#[test]
fn a_sync_waits_for_what_another_one_is_writing() {
    // Goal: the second sync finds nothing dirty, and yet must not return before the disk has it.
    world(|cx| {
        let disk = Disk::new(64);
        let cache = cache_on(cx, &disk, 16, 1000);
        let buffer = cache.read(cx, 7).unwrap();
        buffer.with_mut(|bytes| bytes.fill(1));
        buffer.mark_dirty();
        disk.hold();
        let sync = |cx: &mut Cx| {
            let cache = cache.clone();
            cx.spawn("sync", move |cx| cache.sync(cx).unwrap())
        };
        let first = sync(cx);
        cx.sleep(base::Nanos(1000));
        let second = sync(cx);
        cx.sleep(base::Nanos(1000));
        assert!(!second.is_finished());
        disk.release();
        first.join(cx);
        second.join(cx);
    });
}

/// What one task does to its own blocks: nobody else changes them, but all share the cache.
fn keep_counts(cx: &mut Cx, cache: &BufferCache, number: u64, rounds: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(7, number);
    let mut counts = vec![0u64; 256];
    for round in 1..=rounds {
        let index = rng.below(256);
        let block = index * 8 + number;
        match rng.below(20) {
            0 => cache.sync(cx).unwrap(),
            1 => cache.readahead(cx, rng.below(2000), 16),
            2 => cache.drop_clean(),
            3 => {
                // A block that is given up and made anew.
                cache.forget(cx, block, 1);
                let buffer = cache.get(cx, block);
                buffer.with_mut(|bytes| {
                    bytes.fill(0);
                    bytes[..8].copy_from_slice(&round.to_le_bytes());
                });
                buffer.set_uptodate();
                buffer.mark_dirty();
                counts[index as usize] = round;
            }
            _ => {
                let buffer = cache.read(cx, block).unwrap();
                buffer.with_mut(|bytes| {
                    let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert_eq!(found, counts[index as usize], "block {block}");
                    bytes[..8].copy_from_slice(&round.to_le_bytes());
                });
                buffer.mark_dirty();
                counts[index as usize] = round;
            }
        }
    }
    counts.iter().enumerate().map(|(index, &n)| (index as u64 * 8 + number, n)).collect()
}

#[test]
fn tasks_that_share_a_small_cache_lose_nothing() {
    // Goal: eight tasks, 2048 blocks, memory for 200: eviction, write-back, read-ahead, forgetting
    // and copies on write beside each other, with threads and under explored schedules.
    for lru in [LruKind::Array(16), LruKind::Sets(16)] {
        lose_nothing(lru);
    }
}

fn lose_nothing(lru: LruKind) {
    let body = move |cx: &mut Cx| {
        let disk = Disk::new(2048);
        disk.state.lock_irq().bytes.fill(0);
        let cache = cache_with(cx, &disk, lru, 200);
        let rounds = if cx.is_virtual() { 200 } else { 3000 };
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let cache = cache.clone();
                cx.spawn("counter", move |cx| keep_counts(cx, &cache, number, rounds))
            })
            .collect();
        let counts: Vec<(u64, u64)> = tasks.into_iter().flat_map(|task| task.join(cx)).collect();
        cache.sync(cx).unwrap();
        cache.drop_clean();
        assert_eq!(cache.stats().buffers, 0);
        for (block, count) in counts {
            let buffer = cache.read(cx, block).unwrap();
            assert_eq!(buffer.with(|b| u64::from_le_bytes(b[..8].try_into().unwrap())), count);
        }
    };
    both(body);
    rt::testing::explore(20, body);
}
