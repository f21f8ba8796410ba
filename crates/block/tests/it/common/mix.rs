//! A small closed loop: tasks that write a file and fsync it through a journal task, and sequential
//! readers, on an array with two resources.
//!
//! The array: a *write path* into a non-volatile cache (parallel, a latency and a bandwidth) and a
//! *read path* (one stream of the media at a time). What was written is destaged in the time of the
//! read path, and a write that comes while a read is served is a little later.

use base::{Nanos, Page, Sector};
use block::elevator::{ElevatorNote, NoteKind};
use block::{Bio, BioFlags, Device, DeviceInfo, DeviceIo, IoGroup, Op, Queue, QueueConfig};
use rt::{Cx, JoinHandle, Runtime, SpinLock, WaitQueue, World, WorldConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Times in ns.
#[derive(Clone, Copy, Debug)]
pub struct ArrayParams {
    pub write_latency: u64,
    pub write_ns_per_kib: u64,
    pub read_ns_per_kib: u64,
    pub destage_ns_per_kib: u64,
    pub read_delays_write: u64,
}

impl Default for ArrayParams {
    /// From the deadline row of the table in "[PATCH 0/6 v6][RFC] jbd[2]: enhance fsync performance
    /// when using CFQ" (Jeff Moyer, 2010-07-02): 1.889 ms per file (0.8 of them in the processor),
    /// 0.866 ms per 128 KiB of reading, 1.07 ms of reading per file destaged.
    fn default() -> Self {
        ArrayParams {
            write_latency: 240_000,
            write_ns_per_kib: 3_550,
            read_ns_per_kib: 6_766,
            destage_ns_per_kib: 10_290,
            read_delays_write: 110_000,
        }
    }
}

pub struct Array {
    runtime: Runtime,
    info: DeviceInfo,
    params: ArrayParams,
    /// When the read path is free, and when it is free of reads.
    free: SpinLock<(Nanos, Nanos)>,
}

impl Array {
    pub fn new(cx: &Cx, params: ArrayParams) -> Arc<Array> {
        let mut info = DeviceInfo::plain(64 << 21);
        info.depth = 32;
        info.rotational = true;
        Arc::new(Array { runtime: cx.runtime().clone(), info, params, free: SpinLock::default() })
    }
}

impl Device for Array {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let now = self.runtime.now();
        let kib = io.bytes() / 1024;
        let mut free = self.free.lock_irq();
        let end = if io.op == Op::Read {
            free.0 = free.0.max(now) + Nanos(kib * self.params.read_ns_per_kib);
            free.1 = free.0;
            free.0
        } else {
            let delay = if free.1 > now { self.params.read_delays_write } else { 0 };
            free.0 = free.0.max(now) + Nanos(kib * self.params.destage_ns_per_kib);
            let cost = self.params.write_latency + kib * self.params.write_ns_per_kib + delay;
            now + Nanos(cost)
        };
        drop(free);
        self.runtime.at(end, Box::new(move |_| io.succeed()));
    }

    fn name(&self) -> String {
        "array".to_owned()
    }
}

/// What a mix consists of.
#[derive(Clone, Debug)]
pub struct Mix {
    pub elevator: &'static str,
    pub tunables: Vec<(&'static str, &'static str)>,
    pub writers: u32,
    pub readers: u32,
    /// Flags of the file's data.
    pub data: BioFlags,
    /// Flags of the journal's blocks, and of the commit record.
    pub journal: BioFlags,
    pub commit: BioFlags,
    /// Writers yield to the journal before they wait.
    pub yields: bool,
    pub seconds: u64,
    pub params: ArrayParams,
    pub cpu_per_file: Nanos,
}

impl Mix {
    /// The kernel before the series: synchronous data with NOIDLE, asynchronous journal blocks.
    pub fn vanilla(elevator: &'static str) -> Mix {
        let sync = BioFlags::SYNC | BioFlags::NOIDLE;
        Mix {
            elevator,
            tunables: Vec::new(),
            writers: 1,
            readers: 1,
            data: sync,
            journal: BioFlags::empty(),
            commit: sync,
            yields: false,
            seconds: 10,
            params: ArrayParams::default(),
            cpu_per_file: Nanos::from_micros(800),
        }
    }

    /// With all patches.
    pub fn patched(elevator: &'static str) -> Mix {
        let (data, journal, commit) = (BioFlags::SYNC, BioFlags::SYNC, BioFlags::SYNC);
        Mix { data, journal, commit, yields: true, ..Mix::vanilla(elevator) }
    }
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub files: u64,
    pub reader_bytes: Vec<u64>,
    pub seconds: u64,
    pub notes: Vec<ElevatorNote>,
    pub events: Vec<block::TraceEvent>,
    pub longest: Nanos,
    pub hash: u64,
}

impl Outcome {
    pub fn files_per_s(&self) -> f64 {
        self.files as f64 / self.seconds as f64
    }

    /// MB/s of all readers.
    pub fn read_rate(&self) -> f64 {
        self.reader_bytes.iter().sum::<u64>() as f64 / 1e6 / self.seconds as f64
    }

    pub fn count(&self, kind: NoteKind) -> usize {
        self.notes.iter().filter(|note| note.kind == kind).count()
    }
}

/// A commit that writers ask for and wait for.
#[derive(Default)]
struct Journal {
    wanted: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    work: WaitQueue,
    ended: WaitQueue,
    ioc: AtomicU64,
}

fn write(cx: &mut Cx, queue: &Arc<Queue>, sector: u64, kib: usize, flags: BioFlags) {
    let group = IoGroup::new();
    let page = Page::zeroed(kib * 1024);
    queue.submit(cx, Bio::write(Sector(sector), [page], flags, group.end()));
    group.wait(cx).expect("the array does not fail");
}

fn journal_task(cx: &mut Cx, queue: &Arc<Queue>, journal: &Journal, mix: &Mix) {
    journal.ioc.store(cx.ioc(), Ordering::Relaxed);
    let mut at = 0;
    loop {
        journal.work.wait_until(cx, "journal: work", || {
            journal.stop.load(Ordering::Relaxed)
                || journal.wanted.load(Ordering::Relaxed) > journal.done.load(Ordering::Relaxed)
        });
        if journal.stop.load(Ordering::Relaxed) {
            return;
        }
        let id = journal.wanted.load(Ordering::Relaxed);
        let base = 1 << 20;
        write(cx, queue, base + at % 262_144, 36, mix.journal);
        write(cx, queue, base + at % 262_144 + 72, 4, mix.commit);
        at += 80;
        journal.done.store(id, Ordering::Relaxed);
        journal.ended.wake_all();
    }
}

fn writer_task(cx: &mut Cx, queue: &Arc<Queue>, journal: &Journal, mix: &Mix, index: u64) -> u64 {
    let (end, mut files) = (Nanos::from_secs(mix.seconds), 0);
    while cx.now() < end {
        cx.sleep(mix.cpu_per_file);
        let sector = (8 << 20) + index * (1 << 20) + files * 128 % (1 << 20);
        write(cx, queue, sector, 64, mix.data);
        let id = journal.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        journal.work.wake_all();
        if mix.yields {
            queue.yield_to(cx.ioc(), journal.ioc.load(Ordering::Relaxed));
        }
        let is_done = || journal.done.load(Ordering::Relaxed) >= id;
        journal.ended.wait_until(cx, "commit", is_done);
        files += 1;
    }
    files
}

/// Windows of 128 KiB; the next one is asked for when the current one has come.
fn reader_task(cx: &mut Cx, queue: &Arc<Queue>, mix: &Mix, index: u64) -> u64 {
    let (end, mut bytes) = (Nanos::from_secs(mix.seconds), 0);
    let mut sector = (32 << 20) + index * (4 << 20);
    while cx.now() < end {
        queue.read(cx, Sector(sector), 128 << 10).expect("the array does not fail");
        cx.sleep(Nanos::from_micros(2));
        bytes += 128 << 10;
        sector += 256;
    }
    bytes
}

/// Runs the mix in a world of its own.
pub fn run(mix: &Mix) -> Outcome {
    let mut world = World::new(WorldConfig::default());
    let mix = mix.clone();
    let mut outcome = world.run("mix", |cx| {
        let array = Array::new(cx, mix.params);
        let config = QueueConfig { trace_events: 1 << 20, ..QueueConfig::elevator(mix.elevator) };
        let queue = Queue::new(cx.runtime(), array, config).expect("a queue");
        for (name, value) in &mix.tunables {
            queue.set_tunable(name, value).expect(name);
        }
        let mix = Arc::new(mix);
        let journal = Arc::new(Journal::default());
        let (q, j, m) = (queue.clone(), journal.clone(), mix.clone());
        let committer = cx.spawn("journal", move |cx| journal_task(cx, &q, &j, &m));
        cx.yield_now();
        let writers: Vec<JoinHandle<u64>> = (0..mix.writers as u64)
            .map(|index| {
                let (q, j, m) = (queue.clone(), journal.clone(), mix.clone());
                cx.spawn("writer", move |cx| writer_task(cx, &q, &j, &m, index))
            })
            .collect();
        let readers: Vec<JoinHandle<u64>> = (0..mix.readers as u64)
            .map(|index| {
                let (q, m) = (queue.clone(), mix.clone());
                cx.spawn("reader", move |cx| reader_task(cx, &q, &m, index))
            })
            .collect();
        let mut outcome = Outcome { seconds: mix.seconds, ..Outcome::default() };
        outcome.reader_bytes = readers.into_iter().map(|task| task.join(cx)).collect();
        outcome.files = writers.into_iter().map(|task| task.join(cx)).sum();
        journal.stop.store(true, Ordering::Relaxed);
        journal.work.wake_all();
        committer.join(cx);
        let (events, _) = queue.take_trace();
        outcome.longest = longest(&events);
        outcome.events = events.clone();
        outcome.notes = events.iter().filter_map(|event| event.elevator_note()).collect();
        outcome
    });
    outcome.hash = world.hash();
    outcome
}

/// The longest time from queueing to completion in the trace.
fn longest(events: &[block::TraceEvent]) -> Nanos {
    let mut open = std::collections::BTreeMap::new();
    let mut longest = Nanos::ZERO;
    for event in events {
        let key = (event.op, event.sector, event.count);
        match event.kind {
            block::TraceKind::Queued => {
                open.insert(key, event.time);
            }
            block::TraceKind::Completed => {
                if let Some(since) = open.remove(&key) {
                    longest = longest.max(event.time.since(since));
                }
            }
            _ => {}
        }
    }
    longest
}
