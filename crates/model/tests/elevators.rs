//! Elevators x machines x patterns: one table per machine, so that a change of an elevator or of a
//! model is a diff of numbers.
//!
//! Every pattern is a closed loop of tasks with I/O contexts of their own. Figures: MB/s of a
//! sequential reader or writer, requests per second of a random reader (4 KiB), files per second of
//! a task that writes 64 KiB and fsyncs through a journal task; the longest life of a synchronous
//! request after the first eighth of the run, in ms.

use base::{Nanos, Page, Rng, Sector};
use block::{Bio, BioFlags, IoGroup, Op, Queue, Segment};
use device::MemoryDevice;
use model::Profile;
use rt::{Cx, JoinHandle, SpinLock, WaitQueue, World};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SIZE: u64 = 64 << 30;
/// Sectors between the places of two tasks.
const APART: u64 = (4 << 30) / 512;
const ELEVATORS: [&str; 4] = ["deadline", "cfq", "bfq", "relay"];

/// What the tasks of one run share.
struct Bench {
    queue: Arc<Queue>,
    end: Nanos,
    longest: AtomicU64,
    /// The journal: commits wanted and done.
    wanted: AtomicU64,
    done: AtomicU64,
    journal: AtomicU64,
    stop: AtomicBool,
    work: WaitQueue,
    ended: WaitQueue,
    buffers: SpinLock<Vec<Page>>,
}

impl Bench {
    fn io(&self, cx: &mut Cx, op: Op, sector: u64, kib: usize, flags: BioFlags) {
        let group = IoGroup::new();
        let page = self.buffers.lock_irq().pop().filter(|page| page.len() == kib * 1024);
        let page = page.unwrap_or_else(|| Page::zeroed(kib * 1024));
        let segs = [Segment::whole(page)].into_iter().collect();
        let began = cx.now();
        self.queue.submit(cx, Bio::new(op, Sector(sector), segs, flags, group.end()));
        group.wait(cx).expect("the model does not fail");
        if began.0 > self.end.0 / 8 {
            self.longest.fetch_max(cx.now().since(began).0, Ordering::Relaxed);
        }
    }

    fn sequential(&self, cx: &mut Cx, at: u64) -> u64 {
        let mut count = 0;
        while cx.now() < self.end {
            self.io(cx, Op::Read, at + count * 256, 128, BioFlags::empty());
            cx.sleep(Nanos::from_micros(5));
            count += 1;
        }
        count
    }

    fn random(&self, cx: &mut Cx, seed: u64) -> u64 {
        let (mut rng, mut count) = (Rng::new(seed, 1), 0);
        while cx.now() < self.end {
            let sector = rng.below(SIZE / 4096) * 8;
            self.io(cx, Op::Read, sector, 4, BioFlags::empty());
            cx.sleep(Nanos::from_micros(5));
            count += 1;
        }
        count
    }

    fn files(&self, cx: &mut Cx, at: u64) -> u64 {
        let mut count = 0;
        while cx.now() < self.end {
            cx.sleep(Nanos::from_micros(500));
            self.io(cx, Op::Write, at + count * 128, 64, BioFlags::SYNC);
            let id = self.wanted.fetch_add(1, Ordering::Relaxed) + 1;
            self.work.wake_all();
            self.queue.yield_to(cx.ioc(), self.journal.load(Ordering::Relaxed));
            self.ended.wait_until(cx, "commit", || self.done.load(Ordering::Relaxed) >= id);
            count += 1;
        }
        count
    }

    fn commit(&self, cx: &mut Cx) {
        self.journal.store(cx.ioc(), Ordering::Relaxed);
        let mut at = 0;
        loop {
            let wanted = || self.wanted.load(Ordering::Relaxed);
            self.work.wait_until(cx, "journal", || {
                self.stop.load(Ordering::Relaxed) || wanted() > self.done.load(Ordering::Relaxed)
            });
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let id = wanted();
            let sector = 8192 + at % 262_144;
            self.io(cx, Op::Write, sector, 36, BioFlags::SYNC);
            self.io(cx, Op::Write, sector + 72, 4, BioFlags::SYNC);
            at += 80;
            self.done.store(id, Ordering::Relaxed);
            self.ended.wake_all();
        }
    }

    /// Background write-back: 32 asynchronous writes of 64 KiB in sequence at a time.
    fn flood(&self, cx: &mut Cx, at: u64) -> u64 {
        let mut count = 0;
        let page = Page::zeroed(64 << 10);
        while cx.now() < self.end {
            let group = IoGroup::new();
            for _ in 0..32 {
                let segs = [Segment::whole(page.clone())].into_iter().collect();
                // Gaps, so that the requests stay requests.
                let sector = Sector(at + count * 136);
                let bio = Bio::new(Op::Write, sector, segs, BioFlags::empty(), group.end());
                self.queue.submit(cx, bio);
                count += 1;
            }
            group.wait(cx).expect("the model does not fail");
        }
        count
    }
}

/// A task of a pattern.
#[derive(Clone, Copy)]
enum Kind {
    Seq,
    Rand,
    Files,
    Flood,
}

use Kind::{Files, Flood, Rand, Seq};

const PATTERNS: [(&str, &[Kind]); 8] = [
    ("seq", &[Seq]),
    ("2 seq", &[Seq, Seq]),
    ("4 rand", &[Rand, Rand, Rand, Rand]),
    ("files", &[Files]),
    ("files + seq", &[Files, Seq]),
    ("seq + 2 rand", &[Seq, Rand, Rand]),
    ("flood + seq", &[Flood, Seq]),
    ("flood + 2 rand", &[Flood, Rand, Rand]),
];

/// The figures of one run: one per task, and the longest life in ms.
fn run(machine: &str, elevator: &str, tasks: &[Kind], millis: u64) -> (Vec<f64>, f64) {
    let profile = Profile::load(machine).expect("a built-in profile");
    let mut config = profile.world_config(1);
    config.charges = Default::default();
    let mut world = World::new(config);
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let device = profile.device(&world.runtime(), memory).expect("a device");
    let queue = Queue::new(&world.runtime(), device, profile.queue_config(elevator));
    let bench = Arc::new(Bench {
        queue: queue.expect("a queue"),
        end: Nanos::from_millis(millis),
        longest: AtomicU64::new(0),
        wanted: AtomicU64::new(0),
        done: AtomicU64::new(0),
        journal: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        work: WaitQueue::named("journal: work"),
        ended: WaitQueue::named("journal: commit"),
        buffers: SpinLock::default(),
    });
    world.run("grid", |cx| {
        let theirs = bench.clone();
        let journal = cx.spawn("journal", move |cx| theirs.commit(cx));
        cx.yield_now();
        let start = |(index, &kind): (usize, &Kind)| -> (Kind, JoinHandle<u64>) {
            let (bench, at) = (bench.clone(), (index as u64 + 1) * APART);
            let task = cx.spawn("task", move |cx| match kind {
                Seq => bench.sequential(cx, at),
                Rand => bench.random(cx, at),
                Files => bench.files(cx, at),
                Flood => bench.flood(cx, at),
            });
            (kind, task)
        };
        let tasks: Vec<_> = tasks.iter().enumerate().map(start).collect();
        let figures = tasks.into_iter().map(|(kind, task)| {
            let count = task.join(cx) as f64 / (millis as f64 / 1e3);
            match kind {
                Seq => count * 131_072.0 / 1e6,
                Flood => count * 65_536.0 / 1e6,
                Rand | Files => count,
            }
        });
        let figures = figures.collect();
        bench.stop.store(true, Ordering::Relaxed);
        bench.work.wake_all();
        journal.join(cx);
        (figures, bench.longest.load(Ordering::Relaxed) as f64 / 1e6)
    })
}

/// Geometric mean.
fn worth(figures: &[f64]) -> f64 {
    let sum: f64 = figures.iter().map(|figure| figure.max(0.001).ln()).sum();
    (sum / figures.len() as f64).exp()
}

/// The table of a machine. Our own elevator must not lose more than 3 % of the geometric mean of
/// the figures to `deadline` or `bfq` in any row.
fn table(machine: &str, millis: u64) -> String {
    let mut text = String::new();
    for (name, tasks) in PATTERNS {
        let mut worths = Vec::new();
        for elevator in ELEVATORS {
            let (figures, longest) = run(machine, elevator, tasks, millis);
            worths.push(worth(&figures));
            let figures: Vec<String> = figures.iter().map(|f| format!("{f:8.1}")).collect();
            let figures = figures.join("");
            writeln!(text, "{name:15}{elevator:9}{figures:32} {longest:8.1} ms").unwrap();
        }
        let [deadline, _, bfq, relay] = worths[..] else { panic!("four elevators") };
        let best = deadline.max(bfq);
        assert!(relay >= 0.97 * best, "{machine}, {name}: {relay:.2} of {best:.2}\n{text}");
    }
    text
}

#[test]
fn an_array() {
    insta::assert_snapshot!(table("array-2010", 4000));
}

#[test]
fn a_disk() {
    insta::assert_snapshot!(table("disk-7200", 8000));
}

#[test]
fn a_disk_with_a_write_cache() {
    insta::assert_snapshot!(table("disk-7200-wc", 8000));
}

#[test]
fn flash_on_sata() {
    insta::assert_snapshot!(table("flash-sata", 400));
}

#[test]
fn flash_on_nvme() {
    insta::assert_snapshot!(table("flash-nvme", 150));
}
