//! One run: a world with a client and a server.

use std::net::IpAddr;
use std::sync::Arc;

use block::trace::ProcessNames;
use block::{Queue, TraceEvent};
use model::Profile;
use nfs::proto::Proc;
use nfs::wire::{LinkWire, Net, Nfsd};
use nfs::{Export, HandleKey, NfsClient, NfsStats, Server, Squash};
use rt::{Cx, World};
use serde::Serialize;
use vfs::{FileSystem, Namespace, OpenFlags};
use workload::sysbench;
use workload::{NullSink, Stop, Target};

use super::cell::{Cell, Files};
use super::server::{Image, Setup, mount_server, warm};

/// Events of the server's queue that are kept at the most.
const RING: usize = 1 << 20;
/// Elevator of the server: the default of its kernel.
const SERVER_ELEVATOR: &str = "cfq";
/// Tasks of the server.
const SERVER_TASKS: usize = 8;

/// What a cell gave. Counts are exact; times are modelled, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// fsyncs.
    pub others: u64,
    /// Bytes read and written.
    pub bytes: (u64, u64),
    /// Reads served from memory.
    pub hits: u64,
    /// Of those, from pages that were not up to date.
    pub partial_hits: u64,
    /// Reads of pages of which nothing was in memory.
    pub cold: u64,
    /// Reads of the rest of a page.
    pub rest: u64,
    /// Pages that were sent in order to be read.
    pub flush_reads: u64,
    /// Pages that were sent in order to be written elsewhere.
    pub flush_writes: u64,
    /// Pages that were read in order to be written.
    pub write_reads: u64,
    /// READ, WRITE and COMMIT calls.
    pub calls: (u64, u64, u64),
    /// Of the WRITEs, those that were to be durable.
    pub stable_writes: u64,
    /// Commands that wrote to the server's disk.
    pub disk_writes: u64,
    /// Time in requests by thread.
    pub phase: f64,
    /// Time in requests, all threads.
    pub event_time: f64,
    /// The fsync of all files at the end.
    pub final_fsync: f64,
    /// Both.
    pub total: f64,
    /// Requests a second.
    pub rate: f64,
    /// Spread of the threads' requests, and of their time in them: standard deviation by mean.
    pub unfairness: (f64, f64),
    /// Mean, 95 % and longest time of a request, ms.
    pub latency_ms: (f64, f64, f64),
    /// Event hash of the world.
    pub event_hash: String,
}

impl Outcome {
    /// The figures by name.
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let (reads, writes, commits) = self.calls;
        let (mean, p95, longest) = self.latency_ms;
        let share = self.partial_hits as f64 / (self.reads + self.writes).max(1) as f64;
        let counts = [
            ("reads", self.reads),
            ("writes", self.writes),
            ("others", self.others),
            ("read_bytes", self.bytes.0),
            ("write_bytes", self.bytes.1),
            ("hits", self.hits),
            ("partial_hits", self.partial_hits),
            ("cold", self.cold),
            ("rest", self.rest),
            ("flush_reads", self.flush_reads),
            ("flush_writes", self.flush_writes),
            ("write_reads", self.write_reads),
            ("read_calls", reads),
            ("write_calls", writes),
            ("commit_calls", commits),
            ("stable_writes", self.stable_writes),
            ("disk_writes", self.disk_writes),
        ];
        let times = [
            ("partial_share", share),
            ("phase_s", self.phase),
            ("event_time_s", self.event_time),
            ("final_fsync_s", self.final_fsync),
            ("total_s", self.total),
            ("rate", self.rate),
            ("events_spread", self.unfairness.0),
            ("time_spread", self.unfairness.1),
            ("mean_ms", mean),
            ("p95_ms", p95),
            ("longest_s", longest / 1e3),
        ];
        counts.into_iter().map(|(name, count)| (name, count as f64)).chain(times).collect()
    }
}

/// A cell and where it is run.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The machine.
    pub profile: &'a Profile,
    /// The server.
    pub server: &'a Setup,
    /// Its file system before.
    pub image: &'a Image,
    /// What is run.
    pub cell: &'a Cell,
    /// The server's events are kept.
    pub keep_trace: bool,
}

impl Scene<'_> {
    /// Runs it. Equal scenes and seeds give equal outcomes.
    ///
    /// # Errors
    /// What failed inside of the world.
    pub fn run(&self, seed: u64) -> Result<(Outcome, Trace), String> {
        let mut world = World::new(self.profile.world_config(seed));
        let (outcome, trace) = world.run("lab", |cx| play(cx, *self))?;
        Ok((Outcome { event_hash: format!("{:016x}", world.hash()), ..outcome }, trace))
    }
}

/// The events of the server's queue, where they were kept.
pub struct Trace {
    /// The events.
    pub events: Vec<TraceEvent>,
    /// The names of the tasks in them.
    pub names: ProcessNames,
}

fn play(cx: &mut Cx, scene: Scene<'_>) -> Result<(Outcome, Trace), String> {
    let Scene { profile, server, image, cell, keep_trace } = scene;
    let device = profile
        .device(cx.runtime(), Arc::new(image.0.fork()))
        .map_err(|error| error.to_string())?;
    let mut config = profile.queue_config(SERVER_ELEVATOR);
    config.trace_events = if keep_trace { RING } else { config.trace_events };
    let queue = Queue::new(cx.runtime(), device, config);
    let queue = queue.map_err(|error| error.to_string())?;
    let fs = mount_server(cx, &queue, server)?;
    let key = HandleKey::new([7; 32]);
    let export = Export {
        read_only: false,
        squash: Squash::None,
        allowed: vec!["10.0.0.0/8".parse()?],
        ..Export::new(b"/export", key.clone())
    };
    let root = fs.getattr(cx, fs.root()).map_err(|errno| errno.to_string())?;
    let root = key.make(root.ino, root.generation);
    if cell.files == Files::SparseOfOthers {
        make_sparse(cx, &Namespace::new(fs.clone()), cell)?;
    }
    warm(cx, &fs, cell)?;
    let nfsd = Nfsd::start(cx, Arc::new(Server::new(fs, export, 1, 1)), SERVER_TASKS);
    let link = profile.link.clone().ok_or("the machine has no link")?;
    let net = Net::new(cx.runtime(), link, nfsd);
    let wire = LinkWire::new(&net, IpAddr::from([10, 0, 0, 1]));
    let client = NfsClient::mount(cx, wire, root, cell.client_options())
        .map_err(|errno| format!("mount: {errno}"))?;
    let names = Namespace::new(client.clone());
    if cell.files == Files::Sparse {
        make_sparse(cx, &names, cell)?;
    }
    let target = Target::ours(names, b"/");
    let (before, written) = (client.stats(), queue.stats().writes);
    let _before_the_start = queue.take_trace();
    let mut outcome = Outcome::default();
    for phase in &cell.phases {
        let options = cell.options(phase)?;
        // The files stay in the client's cache from one phase to the next; only what is closed is
        // sent, as close-to-open asks.
        let report = sysbench::run(cx, &target, &options, &Stop::never(), &mut NullSink);
        if let Some(failure) = &report.failure {
            return Err(failure.to_string());
        }
        add(&mut outcome, &report);
    }
    counts(&mut outcome, &before, &client.stats());
    outcome.disk_writes = queue.stats().writes - written;
    let events = if keep_trace { queue.take_trace().0 } else { Vec::new() };
    Ok((outcome, Trace { events, names: queue.task_names() }))
}

fn make_sparse(cx: &mut Cx, names: &Namespace, cell: &Cell) -> Result<(), String> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
    let mut one = |index: u64| {
        let file = names.open(cx, format!("/test_file.{index}").as_bytes(), flags, 0o600)?;
        file.truncate(cx, cell.total_size / 128)?;
        file.close(cx)
    };
    (0..128).try_for_each(&mut one).map_err(|errno: base::Errno| format!("sparse files: {errno}"))
}

fn add(outcome: &mut Outcome, report: &sysbench::Report) {
    let threads = report.threads.len().max(1) as f64;
    let ns = |ns: f64| ns / 1e9;
    outcome.reads += report.reads;
    outcome.writes += report.writes;
    outcome.others += report.others;
    outcome.bytes.0 += report.read_bytes;
    outcome.bytes.1 += report.write_bytes;
    outcome.event_time += ns(report.requests.sum());
    outcome.phase += ns(report.requests.sum()) / threads;
    outcome.final_fsync += report.final_fsync.as_secs_f64();
    outcome.total += report.total.as_secs_f64();
    let p95 = report.latency.percentile(95);
    let (mean, max) = (report.requests.mean(), report.requests.max() as f64);
    outcome.latency_ms = (mean / 1e6, p95, max / 1e6);
    let [events, time] =
        report.fairness().map(|spread| spread.deviation / spread.average.max(1e-9));
    outcome.unfairness = (events, time);
    outcome.rate = (outcome.reads + outcome.writes) as f64 / outcome.total.max(1e-9);
}

fn counts(outcome: &mut Outcome, before: &NfsStats, after: &NfsStats) {
    outcome.hits = after.read_hits - before.read_hits;
    outcome.partial_hits = after.partial_hits - before.partial_hits;
    outcome.cold = after.cold_reads - before.cold_reads;
    outcome.rest = after.rest_reads - before.rest_reads;
    outcome.flush_reads = after.flush_reads - before.flush_reads;
    outcome.flush_writes = after.flush_writes - before.flush_writes;
    outcome.write_reads = after.write_reads - before.write_reads;
    outcome.stable_writes = after.stable_writes - before.stable_writes;
    let calls = |proc: Proc| after.calls[proc as usize] - before.calls[proc as usize];
    outcome.calls = (calls(Proc::Read), calls(Proc::Write), calls(Proc::Commit));
}
