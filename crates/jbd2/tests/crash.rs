//! Power cuts: whatever the moment, recovery gives the state after a whole number of transactions,
//! and at least those that a `commit_tid` has promised.

mod common;

use std::sync::Arc;

use base::{Nanos, Page, Rng, Sector};
use block::BioFlags;
use common::*;
use jbd2::{Checksums, CommitRecord, FlusherTimes, JournalIo, JournalOptions, Tid};
use rt::testing::seeds;
use rt::{Cx, SpinLock, World, WorldConfig};

const BLOCKS: u64 = 48;
const PLACE: JournalPlace = JournalPlace { block_size: 1024, start: 1024, len: 64 };
const SIZE: usize = 2 << 20;

/// What was done, in order.
#[derive(Clone, Debug)]
enum Done {
    /// A block got this content under a transaction.
    Logged { tid: Tid, block: u64, value: u32 },
    /// A block was given up under a transaction.
    Revoked { tid: Tid, block: u64 },
    /// A given up block was about to be written as data, and later was durable, each at this
    /// position of the disk's log.
    Data { block: u64, value: u32, begun: usize, durable: Option<usize> },
}

#[derive(Default)]
struct History {
    done: Vec<Done>,
    value: u32,
    /// Given up and committed: may be written as data or become metadata again.
    free: Vec<u64>,
}

type Shared = Arc<SpinLock<History>>;

fn content(value: u32) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    // Every eighth value begins with the journal's magic.
    let front = if value.is_multiple_of(8) { 0xC03B_3998 } else { value };
    bytes[..4].copy_from_slice(&front.to_be_bytes());
    for place in bytes[4..].chunks_exact_mut(4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

struct Run {
    disk: Arc<Disk>,
    journal: Arc<jbd2::Journal>,
    cache: Arc<cache::BufferCache>,
    history: Shared,
}

impl Run {
    fn next_value(&self) -> u32 {
        let mut history = self.history.lock_irq();
        history.value += 1;
        history.value
    }

    fn note(&self, done: Done) -> usize {
        let mut history = self.history.lock_irq();
        history.done.push(done);
        history.done.len() - 1
    }

    fn is_free(&self, block: u64) -> bool {
        self.history.lock_irq().free.contains(&block)
    }

    fn task(&self, cx: &mut Cx, rng: &mut Rng, operations: usize) {
        for _ in 0..operations {
            match rng.below(10) {
                0 => self.give_up(cx, rng),
                1 => self.take_back(cx),
                _ => self.change(cx, rng),
            }
            if rng.chance(0.1) {
                cx.yield_now();
            }
        }
    }

    fn change(&self, cx: &mut Cx, rng: &mut Rng) {
        let count = 1 + rng.below(5) as usize;
        // Read first, so that the handle is not interrupted and the order of the history is true.
        let blocks: Vec<u64> = (0..count).map(|_| rng.below(BLOCKS)).collect();
        for &block in &blocks {
            self.cache.read(cx, block).unwrap();
        }
        let mut handle = self.journal.start(cx, count as u32).unwrap();
        for block in blocks {
            if self.is_free(block) {
                continue;
            }
            let Some(buffer) = self.cache.find(cx, block) else { continue };
            handle.write_access(cx, &buffer).unwrap();
            let value = self.next_value();
            buffer.with_mut(|bytes| bytes.copy_from_slice(&content(value)));
            handle.dirty(cx, &buffer).unwrap();
            self.note(Done::Logged { tid: handle.tid(), block, value });
        }
        let tid = handle.tid();
        handle.stop(cx).unwrap();
        if rng.chance(0.3) {
            self.journal.commit_tid(cx, tid).unwrap();
            self.disk.mark(tid.0);
        }
    }

    fn give_up(&self, cx: &mut Cx, rng: &mut Rng) {
        let mut handle = self.journal.start(cx, 1).unwrap();
        let block = rng.below(BLOCKS);
        if self.is_free(block) {
            return;
        }
        // From here on nobody touches it before it is taken back.
        self.history.lock_irq().free.push(block);
        handle.revoke(cx, block).unwrap();
        let tid = handle.tid();
        self.note(Done::Revoked { tid, block });
        handle.stop(cx).unwrap();
        self.journal.commit_tid(cx, tid).unwrap();
        self.disk.mark(tid.0);
        let value = self.next_value();
        let begun = self.disk.log().len();
        let index = self.note(Done::Data { block, value, begun, durable: None });
        let page = Page::from_slice(&content(value));
        self.cache.queue().write(cx, Sector(block * 2), page, BioFlags::FUA).unwrap();
        let end = self.disk.log().len();
        let mut history = self.history.lock_irq();
        let Done::Data { durable, .. } = &mut history.done[index] else { unreachable!() };
        *durable = Some(end);
    }

    fn take_back(&self, cx: &mut Cx) {
        let mut handle = self.journal.start(cx, 1).unwrap();
        let block = {
            let mut history = self.history.lock_irq();
            let written: Vec<u64> = history
                .done
                .iter()
                .filter_map(|done| match done {
                    Done::Data { block, durable: Some(_), .. } => Some(*block),
                    _ => None,
                })
                .collect();
            let Some(at) = history.free.iter().position(|block| written.contains(block)) else {
                return;
            };
            // A second time on the way: its data may not be there yet.
            let block = history.free[at];
            let last = history.done.iter().rev().find_map(|done| match done {
                Done::Data { block: b, durable, .. } if *b == block => Some(durable.is_some()),
                Done::Revoked { block: b, .. } if *b == block => Some(false),
                _ => None,
            });
            if last != Some(true) {
                return;
            }
            history.free.remove(at);
            block
        };
        let buffer = self.cache.get(cx, block);
        handle.create_access(cx, &buffer).unwrap();
        let value = self.next_value();
        buffer.with_mut(|bytes| bytes.copy_from_slice(&content(value)));
        handle.dirty(cx, &buffer).unwrap();
        self.note(Done::Logged { tid: handle.tid(), block, value });
        handle.stop(cx).unwrap();
    }
}

/// The values that the blocks must have after the transactions up to `last`, where the power was
/// cut at `cut`; `None` where a data write was under way.
fn expected(history: &[Done], last: Tid, cut: usize) -> Vec<Option<u32>> {
    let mut values = vec![Some(0); BLOCKS as usize];
    for done in history {
        match *done {
            Done::Logged { tid, block, value } if tid <= last => {
                values[block as usize] = Some(value);
            }
            Done::Data { block, value, begun, durable } if begun <= cut => {
                let durable = durable.is_some_and(|durable| durable <= cut);
                values[block as usize] = durable.then_some(value);
            }
            // Given up: nobody may look at it before it is written.
            Done::Revoked { tid, block } if tid <= last => values[block as usize] = None,
            _ => {}
        }
    }
    values
}

fn matches(image: &[u8], values: &[Option<u32>]) -> bool {
    values.iter().enumerate().all(|(block, value)| {
        let found = &image[block * 1024..][..1024];
        match value {
            Some(0) => found.iter().all(|&byte| byte == 0),
            Some(value) => found == content(*value),
            None => true,
        }
    })
}

fn recover(image: Vec<u8>, options: &JournalOptions) -> Arc<Disk> {
    let disk = Disk::from_image(image);
    World::new(WorldConfig::default()).run("recover", |cx| {
        let (journal, _, _) = open(cx, &disk, PLACE, options.clone()).unwrap();
        journal.kill(cx);
    });
    disk
}

fn options(seed: u64) -> JournalOptions {
    let checksums = match seed % 4 {
        0 => Checksums::None,
        1 => Checksums::V1,
        2 => Checksums::V2,
        _ => Checksums::V3,
    };
    let barriers = [CommitRecord::FlushFua, CommitRecord::Barrier];
    JournalOptions {
        checksums: Some(checksums),
        bit64: seed % 8 >= 4,
        commit_record: barriers[(seed / 2) as usize % 2],
        journal_io: JournalIo::ALL[seed as usize % 5].1,
        // Always due: every commit is followed by a batch, and meets the next one.
        flusher: (seed % 4 < 2).then_some(FlusherTimes { interval: Nanos(1), expire: Nanos::ZERO }),
        yield_before_wait: seed.is_multiple_of(3),
        ..Default::default()
    }
}

/// Writes with several tasks, then cuts the power in many places.
fn crash_world(seed: u64) {
    let disk = Disk::new(SIZE);
    format(&disk, PLACE, |_| {});
    let base = disk.image();
    let options = options(seed);
    let history: Shared = Shared::default();
    let mut world = World::new(WorldConfig::exploring(seed));
    world.run("main", |cx| {
        let (journal, cache, _) = open(cx, &disk, PLACE, options.clone()).unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let (journal, cache) = (journal.clone(), cache.clone());
                let run = Run { disk: disk.clone(), journal, cache, history: history.clone() };
                let mut rng = Rng::new(seed, number);
                cx.spawn("writer", move |cx| run.task(cx, &mut rng, 60))
            })
            .collect();
        for task in tasks {
            task.join(cx);
        }
        if seed.is_multiple_of(2) {
            journal.shutdown(cx).unwrap();
        } else {
            journal.kill(cx);
        }
    });
    let log = disk.log();
    let history = history.lock_irq().done.clone();
    let mut rng = Rng::new(seed, 99);
    for _ in 0..60 {
        let cut = rng.below(log.len() as u64 + 1) as usize;
        check_cut(seed, &base, &log, cut, &history, &options, &mut rng);
    }
    check_cut(seed, &base, &log, log.len(), &history, &options, &mut rng);
}

fn check_cut(
    seed: u64,
    base: &[u8],
    log: &[Event],
    cut: usize,
    history: &[Done],
    options: &JournalOptions,
    rng: &mut Rng,
) {
    let crashed = image_after(base, log, cut, rng);
    let promised = log[..cut].iter().rev().find_map(|event| match event {
        Event::Mark(tid) => Some(Tid(*tid)),
        _ => None,
    });
    let promised = promised.unwrap_or(Tid(0));
    let last = history.iter().filter_map(|done| match done {
        Done::Logged { tid, .. } | Done::Revoked { tid, .. } => Some(*tid),
        Done::Data { .. } => None,
    });
    let mut tids: Vec<Tid> = last.collect();
    tids.push(promised);
    tids.sort();
    tids.dedup();
    let recovered = recover(crashed.clone(), options);
    let image = recovered.image();
    let found = tids
        .iter()
        .filter(|&&tid| tid >= promised)
        .any(|&tid| matches(&image, &expected(history, tid, cut)));
    assert!(
        found,
        "seed {seed}: a cut at {cut} of {} gives no state from {promised:?} on\n\
         again: IOPATH_SEED={seed} cargo test -p iopath-jbd2 --test crash",
        log.len()
    );
    // The power fails again while we recover: the second recovery gives the same.
    let steps = recovered.log();
    let again = rng.below(steps.len() as u64 + 1) as usize;
    let twice = image_after(&crashed, &steps, again, rng);
    let image = recover(twice, options).image();
    let found = tids
        .iter()
        .filter(|&&tid| tid >= promised)
        .any(|&tid| matches(&image, &expected(history, tid, cut)));
    assert!(found, "seed {seed}: a cut at {cut} and a second one at {again} of the recovery");
}

#[test]
fn every_cut_recovers_to_whole_transactions() {
    for seed in seeds(16) {
        crash_world(seed);
    }
}
