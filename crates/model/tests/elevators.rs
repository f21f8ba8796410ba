//! Elevators x machines x patterns: one table per machine, so that a change of an elevator or of a
//! model is a diff of numbers.
//!
//! Every pattern is a closed loop of tasks with I/O contexts of their own. Figures: MB/s of a
//! sequential reader or writer, requests per second of a random reader (4 KiB), files per second of
//! a task that writes 64 KiB and fsyncs through a journal task; the longest life of a synchronous
//! request, in ms. The first quarter of a run is not counted.

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
    /// What is counted begins and ends.
    begin: Nanos,
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
        if began > self.begin {
            self.longest.fetch_max(cx.now().since(began).0, Ordering::Relaxed);
        }
    }

    /// Counts what `work` does until the end.
    fn count(&self, cx: &mut Cx, mut work: impl FnMut(&mut Cx, u64)) -> u64 {
        let (mut count, mut before) = (0, 0);
        while cx.now() < self.end {
            work(cx, count);
            count += 1;
            before = if cx.now() < self.begin { count } else { before };
        }
        count - before
    }

    fn sequential(&self, cx: &mut Cx, at: u64) -> u64 {
        self.count(cx, |cx, count| {
            self.io(cx, Op::Read, at + count * 256, 128, BioFlags::empty());
            cx.sleep(Nanos::from_micros(5));
        })
    }

    fn random(&self, cx: &mut Cx, seed: u64) -> u64 {
        let mut rng = Rng::new(seed, 1);
        self.count(cx, |cx, _| {
            let sector = rng.below(SIZE / 4096) * 8;
            self.io(cx, Op::Read, sector, 4, BioFlags::empty());
            cx.sleep(Nanos::from_micros(5));
        })
    }

    fn files(&self, cx: &mut Cx, at: u64) -> u64 {
        self.count(cx, |cx, count| {
            cx.sleep(Nanos::from_micros(500));
            self.io(cx, Op::Write, at + count * 128, 64, BioFlags::SYNC);
            let id = self.wanted.fetch_add(1, Ordering::Relaxed) + 1;
            self.work.wake_all();
            self.queue.yield_to(cx.ioc(), self.journal.load(Ordering::Relaxed));
            self.ended.wait_until(cx, "commit", || self.done.load(Ordering::Relaxed) >= id);
        })
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
        let page = Page::zeroed(64 << 10);
        let lots = self.count(cx, |cx, lot| {
            let group = IoGroup::new();
            for index in 0..32 {
                let segs = [Segment::whole(page.clone())].into_iter().collect();
                // Gaps, so that the requests stay requests.
                let sector = Sector(at + (lot * 32 + index) * 136);
                let bio = Bio::new(Op::Write, sector, segs, BioFlags::empty(), group.end());
                self.queue.submit(cx, bio);
            }
            group.wait(cx).expect("the model does not fail");
        });
        lots * 32
    }
}

/// A task of a pattern.
#[derive(Clone, Copy, PartialEq)]
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
    device.forget_content();
    let queue = Queue::new(&world.runtime(), device, profile.queue_config(elevator));
    let bench = Arc::new(Bench {
        queue: queue.expect("a queue"),
        begin: Nanos::from_millis(millis / 4),
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
            let count = task.join(cx) as f64 / (0.75 * millis as f64 / 1e3);
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

/// The part of the device's time that the tasks need if it serves one kind at a time: their figures
/// by those of the kind alone.
fn needs(tasks: &[Kind], figures: &[f64], alone: impl Fn(&[Kind]) -> f64) -> f64 {
    let part = |kind: Kind| {
        let same = |&&task: &&Kind| task == kind;
        let own: Vec<Kind> = tasks.iter().filter(same).copied().collect();
        let got = tasks.iter().zip(figures).filter(|(task, _)| **task == kind);
        if own.is_empty() { 0.0 } else { got.map(|(_, got)| got).sum::<f64>() / alone(&own) }
    };
    [Seq, Rand, Files, Flood].map(part).iter().sum()
}

/// What our own elevator must not lose to `deadline` and `bfq`: in no row more than 3 % of the
/// geometric mean of the figures, and on disks and flash 3 % of no figure of a synchronous task to
/// `deadline`, whose figures are those of mixing. Of `bfq`'s, and of asynchronous writes, it may
/// lose more only where the device cannot give what both peers give at once: the table says how
/// much of its time that needs.
fn judge(machine: &str, row: &str, tasks: &[Kind], all: &[Vec<f64>], millis: u64) -> String {
    let [deadline, _, bfq, relay] = all else { panic!("four elevators") };
    // An array whose cache a flood has filled serves reads no more: bfq lets the flood wait.
    let array = machine.starts_with("array");
    let flooded = array && tasks.contains(&Flood);
    let best = if flooded { worth(deadline) } else { worth(deadline).max(worth(bfq)) };
    let figures = format!("{machine}, {row}: {relay:.1?} of {deadline:.1?} {bfq:.1?}");
    assert!(worth(relay) >= 0.97 * best, "{figures}");
    if array {
        return String::new();
    }
    let keeps = |peer: &[f64], kinds: &[Kind]| {
        let pairs = tasks.iter().zip(relay.iter().zip(peer));
        let mut own = pairs.filter(|(task, _)| kinds.contains(task));
        own.all(|(_, (own, peer))| *own >= 0.97 * peer)
    };
    assert!(keeps(deadline, &[Seq, Rand, Files]), "{figures}");
    if [deadline, bfq].iter().all(|peer| keeps(peer, &[Seq, Rand, Files, Flood])) {
        return String::new();
    }
    let both: Vec<f64> = deadline.iter().zip(bfq).map(|(a, b)| a.max(*b)).collect();
    let wanted = needs(tasks, &both, |own| run(machine, "none", own, millis).0.iter().sum());
    // A disk that serves one kind at a time seeks twice a round: 16 ms of at most 300.
    let most = if machine.starts_with("disk") { 0.95 } else { 1.0 };
    assert!(wanted > most, "{figures}: {wanted:.2}");
    format!("  (both peers at once need {wanted:.2} of the device)")
}

/// The table of a machine.
fn table(machine: &str, millis: u64) -> String {
    let mut text = String::new();
    for (name, tasks) in PATTERNS {
        let mut all = Vec::new();
        for elevator in ELEVATORS {
            let (figures, longest) = run(machine, elevator, tasks, millis);
            let columns: String = figures.iter().map(|f| format!("{f:8.1}")).collect();
            all.push(figures);
            let remark = match elevator {
                "relay" => judge(machine, name, tasks, &all, millis),
                _ => String::new(),
            };
            writeln!(text, "{name:15}{elevator:9}{columns:32} {longest:8.1} ms{remark}").unwrap();
        }
    }
    text
}

#[test]
fn an_array() {
    insta::assert_snapshot!(table("array-2010", 6000));
}

#[test]
fn a_disk() {
    insta::assert_snapshot!(table("disk-7200", 12_000));
}

#[test]
fn a_disk_with_a_write_cache() {
    insta::assert_snapshot!(table("disk-7200-wc", 12_000));
}

#[test]
fn flash_on_sata() {
    insta::assert_snapshot!(table("flash-sata", 1000));
}

#[test]
fn flash_on_nvme() {
    insta::assert_snapshot!(table("flash-nvme", 400));
}
