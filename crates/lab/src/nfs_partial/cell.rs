//! One cell: a world with a client and a server.

use std::net::IpAddr;
use std::sync::Arc;

use base::Nanos;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, mkfs};
use model::Profile;
use nfs::client::rpc::RpcOptions;
use nfs::proto::Proc;
use nfs::wire::{LinkWire, Net, Nfsd};
use nfs::{Export, HandleKey, Mode, NfsClient, NfsOptions, NfsStats, Server, Squash};
use rt::{Cx, World, WorldConfig};
use serde::Serialize;
use vfs::{FileSystem, Namespace, OpenFlags};
use workload::sysbench::{self, Options};
use workload::{NullSink, Stop, Target};

use crate::run::mount;

/// Mount options of the server's ext3.
const SERVER_MOUNT: &str = "data=writeback,barrier=0";
/// Elevator of the server: the default of its kernel.
const SERVER_ELEVATOR: &str = "cfq";
/// Tasks of the server.
const SERVER_TASKS: usize = 8;
/// Calls under way of a client of that time.
const SLOTS: u64 = 16;
/// The memory of client and server: that of the machine, next to nothing else is in it.
pub(super) const MEMORY: u64 = 2 << 30;
/// Memory for pages while the files are made.
const LAYOUT_MEMORY: u64 = 64 << 20;
/// Size of the server's device.
const DEVICE: u64 = 2 << 30;

/// Who made the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// `sysbench prepare` on the server.
    Prepared,
    /// The client itself, by setting their sizes.
    Sparse,
}

/// One run of the tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// `--file-test-mode`.
    pub mode: &'static str,
    /// `--max-requests`.
    pub requests: u64,
    /// `--file-fsync-end`.
    pub fsync_end: bool,
}

/// What a run needs beside the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The client's treatment of pages that are partly up to date.
    pub mode: Mode,
    /// Bytes of a folio of the client.
    pub folio_size: u32,
    /// Bytes of a request.
    pub block_size: u64,
    /// Bytes of all files.
    pub total_size: u64,
    /// Bytes of the client's page cache.
    pub cache_bytes: u64,
    /// Dirty data older than 30 s is written.
    pub by_age: bool,
    /// Who made the files.
    pub files: Files,
    /// The runs of the tool, one after another on one mount.
    pub phases: Vec<Phase>,
}

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
    /// Mean, 95 % and longest time of a request, ms.
    pub latency_ms: (f64, f64, f64),
    /// Event hash of the world.
    pub event_hash: String,
}

/// The server's file system as it is before a run.
pub struct Image(MemoryDevice);

impl Image {
    /// Makes a file system with the files of `sysbench prepare`. Takes no time that counts.
    ///
    /// # Errors
    /// What mkfs, mount or a write said.
    pub fn make(total_size: u64) -> Result<Image, String> {
        let mut world = World::new(WorldConfig::default());
        world.run("layout", |cx| {
            let memory = Arc::new(MemoryDevice::new(DEVICE));
            let queue = Queue::new(cx.runtime(), memory.clone(), QueueConfig::default());
            let queue = queue.map_err(|error| error.to_string())?;
            let options = MkfsOptions {
                fstype: "ext3".parse().map_err(|_| "ext3 is known".to_owned())?,
                uuid: Some(*b"iopath lab image"),
                hash_seed: Some(*b"iopath lab hashe"),
                assume_zeroes: true,
                ..MkfsOptions::default()
            };
            mkfs(cx, &queue, &options).map_err(|error| error.to_string())?;
            let fs = mount_server(cx, &queue, LAYOUT_MEMORY)?;
            let target = Target::ours(Namespace::new(fs.clone()), b"/");
            let cell = Cell::plain(total_size);
            sysbench::prepare(cx, &target, &cell.options("rndrw", 1, true)?)
                .map_err(|failure| failure.to_string())?;
            fs.unmount(cx).map_err(|errno| errno.to_string())?;
            queue.drain(cx);
            Ok(Image(memory.fork()))
        })
    }
}

fn mount_server(cx: &mut Cx, queue: &Arc<Queue>, memory: u64) -> Result<Arc<Ext4>, String> {
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_ratios(memory, 10, 20));
    Ext4::mount(cx, queue, &pages, mount::parse(SERVER_MOUNT)?).map_err(|e| e.to_string())
}

impl Cell {
    /// The document's cell with files of another total size.
    pub fn plain(total_size: u64) -> Cell {
        Cell {
            mode: Mode::Off,
            folio_size: 4096,
            block_size: 2048,
            total_size,
            cache_bytes: MEMORY,
            by_age: true,
            files: Files::Prepared,
            phases: vec![Phase { mode: "rndrw", requests: 100_000, fsync_end: true }],
        }
    }

    /// The document's command line with this cell's sizes.
    fn options(&self, mode: &str, requests: u64, fsync_end: bool) -> Result<Options, String> {
        let line = format!(
            "--num-threads=16 --max-requests={requests} --test=fileio --file-block-size={} \
             --file-total-size={} --file-test-mode={mode} --file-fsync-freq=0 \
             --file-rw-ratio=0.5 --file-fsync-end={} run",
            self.block_size,
            self.total_size,
            if fsync_end { "on" } else { "off" }
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        Options::parse(&words).map_err(|usage| usage.to_string())
    }

    fn client_options(&self) -> NfsOptions {
        NfsOptions {
            mode: self.mode,
            folio_size: self.folio_size,
            // The kernel's ratios of what memory it has for pages.
            dirty_background_bytes: self.cache_bytes / 10,
            dirty_limit_bytes: self.cache_bytes / 5,
            dirty_expire: if self.by_age { Nanos::from_secs(30) } else { Nanos::MAX },
            readahead_bytes: 0,
            rpc: RpcOptions { slots: SLOTS, timeout: Nanos::from_secs(600), attempts: None },
            ..NfsOptions::with_cache(self.cache_bytes)
        }
    }
}

/// Runs a cell. Equal arguments give equal outcomes.
///
/// # Errors
/// What failed inside of the world.
pub fn run_cell(
    profile: &Profile,
    image: &Image,
    cell: &Cell,
    seed: u64,
) -> Result<Outcome, String> {
    let mut world = World::new(profile.world_config(seed));
    let outcome = world.run("lab", |cx| play(cx, profile, image, cell));
    outcome.map(|outcome| Outcome { event_hash: format!("{:016x}", world.hash()), ..outcome })
}

fn play(cx: &mut Cx, profile: &Profile, image: &Image, cell: &Cell) -> Result<Outcome, String> {
    let device = profile
        .device(cx.runtime(), Arc::new(image.0.fork()))
        .map_err(|error| error.to_string())?;
    let queue = Queue::new(cx.runtime(), device, profile.queue_config(SERVER_ELEVATOR));
    let queue = queue.map_err(|error| error.to_string())?;
    let fs = mount_server(cx, &queue, MEMORY)?;
    let key = HandleKey::new([7; 32]);
    let export = Export {
        read_only: false,
        squash: Squash::None,
        allowed: vec!["10.0.0.0/8".parse()?],
        ..Export::new(b"/export", key.clone())
    };
    let root = fs.getattr(cx, fs.root()).map_err(|errno| errno.to_string())?;
    let root = key.make(root.ino, root.generation);
    warm(cx, &fs, cell)?;
    let nfsd = Nfsd::start(cx, Arc::new(Server::new(fs, export, 1, 1)), SERVER_TASKS);
    let link = profile.link.clone().ok_or("the machine has no link")?;
    let net = Net::new(cx.runtime(), link, nfsd);
    let wire = LinkWire::new(&net, IpAddr::from([10, 0, 0, 1]));
    let client = NfsClient::mount(cx, wire, root, cell.client_options())
        .map_err(|errno| format!("mount: {errno}"))?;
    let names = Namespace::new(client.clone());
    if cell.files == Files::Sparse {
        make_sparse(cx, &names, cell).map_err(|errno| format!("sparse files: {errno}"))?;
    }
    let target = Target::ours(names, b"/");
    let (before, written) = (client.stats(), queue.stats().writes);
    let mut outcome = Outcome::default();
    for phase in &cell.phases {
        let options = cell.options(phase.mode, phase.requests, phase.fsync_end)?;
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
    Ok(outcome)
}

/// The server has the files in memory.
fn warm(cx: &mut Cx, fs: &Arc<Ext4>, cell: &Cell) -> Result<(), String> {
    let names = Namespace::new(fs.clone());
    let mut buf = vec![0; 1 << 20];
    for index in 0..128 {
        let path = format!("/test_file.{index}");
        let file = names.open(cx, path.as_bytes(), OpenFlags::READ, 0);
        let file = file.map_err(|errno| format!("{path}: {errno}"))?;
        let mut at = 0;
        while at < cell.total_size / 128 {
            let len = file.read_at(cx, at, &mut buf).map_err(|errno| errno.to_string())?;
            if len == 0 {
                return Err(format!("{path} is shorter than the cell wants"));
            }
            at += len as u64;
        }
        file.close(cx).map_err(|errno| errno.to_string())?;
    }
    Ok(())
}

fn make_sparse(cx: &mut Cx, names: &Namespace, cell: &Cell) -> Result<(), base::Errno> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
    for index in 0..128 {
        let file = names.open(cx, format!("/test_file.{index}").as_bytes(), flags, 0o600)?;
        file.truncate(cx, cell.total_size / 128)?;
        file.close(cx)?;
    }
    Ok(())
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
