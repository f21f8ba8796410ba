//! What every elevator promises: each bio ends exactly once, none starves, one seed gives one run.
//!
//! Method: tasks with random patterns, priorities, lives and yields against a device with random
//! service times, for many seeds.

use base::{Nanos, Page, Sector};
use block::{
    Bio, BioFlags, Device, DeviceInfo, DeviceIo, IoGroup, Op, Queue, QueueConfig, Segment, elevator,
};
use rt::{Cx, IoClass, IoPriority, Runtime, SpinLock, World, WorldConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Serves requests one after the other on each of its channels.
struct Server {
    runtime: Runtime,
    info: DeviceInfo,
    free: SpinLock<Vec<Nanos>>,
}

impl Device for Server {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let now = self.runtime.now();
        let mut free = self.free.lock_irq();
        let first = free.iter().enumerate().min_by_key(|&(index, &when)| (when, index));
        let (index, _) = first.expect("a channel");
        let cost = 50_000 + (io.sector.0 * 7919 + io.count) % 400_000;
        let end = free[index].max(now) + Nanos(cost);
        free[index] = end;
        drop(free);
        self.runtime.at(end, Box::new(move |_| io.succeed()));
    }

    fn name(&self) -> String {
        "server".to_owned()
    }
}

#[derive(Default)]
struct Book {
    submitted: AtomicU64,
    ended: AtomicU64,
    longest: AtomicU64,
}

/// A task with habits of its own; gives up its context at the end.
fn task(cx: &mut Cx, queue: &Arc<Queue>, book: &Arc<Book>, peers: &[u64], idle_class: bool) {
    let class = match cx.random() % 8 {
        0 => IoClass::RealTime,
        1 if idle_class => IoClass::Idle,
        _ => IoClass::BestEffort,
    };
    let level = (cx.random() % 8) as u8;
    cx.set_ioprio(IoPriority::new(class, level).expect("a level below 8"));
    let (sequential, burst) = (cx.random().is_multiple_of(2), 1 + cx.random() % 6);
    let mut sector = cx.random() % (1 << 20) * 8;
    for _ in 0..30 {
        let group = IoGroup::new();
        for _ in 0..burst {
            let (op, flags) = match cx.random() % 6 {
                0 => (Op::Write, BioFlags::empty()),
                1 => (Op::Write, BioFlags::SYNC),
                2 => (Op::Write, BioFlags::SYNC | BioFlags::NOIDLE | BioFlags::META),
                _ => (Op::Read, BioFlags::empty()),
            };
            let sectors = 8 << (cx.random() % 4);
            sector = if sequential { sector + sectors } else { cx.random() % (1 << 20) * 8 };
            let page = Page::zeroed(sectors as usize * 512);
            let (book, end, start) = (book.clone(), group.end(), cx.now());
            let runtime = cx.runtime().clone();
            book.submitted.fetch_add(1, Ordering::Relaxed);
            let end = Box::new(move |done| {
                book.ended.fetch_add(1, Ordering::Relaxed);
                book.longest.fetch_max(runtime.now().since(start).0, Ordering::Relaxed);
                end(done);
            });
            let segs = [Segment::whole(page)].into_iter().collect();
            queue.submit(cx, Bio::new(op, Sector(sector), segs, flags, end));
        }
        if cx.random().is_multiple_of(3) {
            let peer = peers[cx.random() as usize % peers.len()];
            queue.yield_to(cx.ioc(), peer);
        }
        if !cx.random().is_multiple_of(8) {
            group.wait(cx).expect("the server does not fail");
        }
        let think = cx.random() % 4_000_000;
        cx.sleep(Nanos(if think < 2_000_000 { 0 } else { think }));
    }
}

/// Bios, the longest life of one, and the hash of the run.
fn run(name: &str, seed: u64, depth: u32, idle_class: bool) -> (u64, Nanos, u64) {
    let mut world = World::new(WorldConfig::exploring(seed));
    let (count, longest) = world.run("random", |cx| {
        let rotational = seed.is_multiple_of(2);
        let info = DeviceInfo { depth, rotational, ..DeviceInfo::plain(1 << 24) };
        let channels = depth.min(4) as usize;
        let free = SpinLock::new(vec![Nanos::ZERO; channels]);
        let device = Arc::new(Server { runtime: cx.runtime().clone(), info, free });
        let config = QueueConfig { nr_requests: 48, ..QueueConfig::elevator(name) };
        let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
        let book = Arc::new(Book::default());
        let mut tasks = Vec::new();
        let mut peers = vec![cx.ioc()];
        for _ in 0..8 {
            let (queue, book, known) = (queue.clone(), book.clone(), peers.clone());
            let task = cx.spawn("task", move |cx| task(cx, &queue, &book, &known, idle_class));
            peers.push(task.task().0);
            tasks.push(task);
        }
        tasks.into_iter().for_each(|task| task.join(cx));
        queue.drain(cx);
        let (submitted, ended) =
            (book.submitted.load(Ordering::Relaxed), book.ended.load(Ordering::Relaxed));
        assert_eq!(submitted, ended, "{name}, seed {seed}: every bio ends once");
        let stats = queue.stats();
        assert_eq!((stats.queued, stats.in_flight), (0, 0), "{name}, seed {seed}");
        (ended, Nanos(book.longest.load(Ordering::Relaxed)))
    });
    (count, longest, world.hash())
}

/// Goal: conservation, and a bound on waiting. Without the idle class (which may starve by
/// definition in `cfq` and `bfq`) nobody waits longer than the bound, which is generous: eight
/// tasks of 180 ms slices.
#[test]
fn every_bio_ends_once_and_none_starves() {
    for name in elevator::names() {
        let mut longest = Nanos::ZERO;
        for seed in 0..24 {
            let depth = [1, 4, 32][seed as usize % 3];
            let (count, waited, _) = run(name, seed, depth, false);
            assert!(count > 200, "{name}, seed {seed}: {count} bios");
            longest = longest.max(waited);
        }
        println!("{name:10} longest {longest}");
        assert!(longest < Nanos::from_millis(2000), "{name}: {longest}");
    }
}

#[test]
fn the_idle_class_ends_too() {
    for name in elevator::names() {
        for seed in 100..110 {
            run(name, seed, 8, true);
        }
    }
}

#[test]
fn one_seed_gives_one_run() {
    for name in elevator::names() {
        for seed in 0..4 {
            assert_eq!(run(name, seed, 8, true), run(name, seed, 8, true), "{name}, seed {seed}");
        }
        assert_ne!(run(name, 1, 8, true).2, run(name, 2, 8, true).2, "{name}: seeds differ");
    }
}
