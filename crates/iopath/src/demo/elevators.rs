//! The comparison of the demonstration: four tasks read at random places while one keeps a deep
//! queue of writes, on one modelled disk, under each elevator. Modelled, not measured.

use base::{Nanos, Page, Rng, Sector};
use block::{Bio, BioFlags, IoGroup, Queue, QueueConfig};
use device::MemoryDevice;
use model::Profile;
use rt::{Cx, World, WorldConfig};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

const DISK_BYTES: u64 = 256 << 30;
const READERS: u64 = 4;
/// Writes that are under way at a time.
const WRITE_DEPTH: u64 = 64;
const DURATION: Nanos = Nanos::from_secs(10);
/// Reads and writes of one block.
const BLOCK: u64 = 4096;

/// One elevator's figures.
pub struct Row {
    elevator: &'static str,
    reads: u64,
    read_mean: Nanos,
    read_p99: Nanos,
    writes: u64,
    hash: u64,
}

/// Runs the same load under each elevator.
pub fn compare(seed: u64) -> Vec<Row> {
    ["none", "deadline"].map(|elevator| measure(seed, elevator)).into()
}

fn measure(seed: u64, elevator: &'static str) -> Row {
    let mut world = World::new(WorldConfig { seed, ..WorldConfig::default() });
    let mut row = world.run("elevators", |cx| load(cx, seed, elevator));
    row.hash = world.hash();
    row
}

fn random_sector(rng: &mut Rng) -> Sector {
    Sector::from_bytes(rng.below(DISK_BYTES / BLOCK) * BLOCK)
}

fn load(cx: &mut Cx, seed: u64, elevator: &'static str) -> Row {
    let memory = Arc::new(MemoryDevice::new(DISK_BYTES));
    // The drive takes one command at a time and has no write cache: the order is the elevator's.
    let mut machine = Profile::built_in("disk-7200");
    machine.queue.depth = 1;
    let disk = machine.device(cx.runtime(), memory).expect("the disk is larger");
    let queue = Queue::new(cx.runtime(), disk, QueueConfig::elevator(elevator));
    let queue = queue.expect("the elevators of the demonstration exist");
    let tasks: Vec<_> = (0..=READERS)
        .map(|number| {
            let queue = queue.clone();
            let rng = Rng::new(seed, 10 + number);
            cx.spawn(&format!("task{number}"), move |cx| match number {
                0 => write(cx, &queue, rng),
                _ => read(cx, &queue, rng),
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    let stats = queue.stats();
    Row {
        elevator,
        reads: stats.reads,
        read_mean: stats.read_latency.mean(),
        read_p99: stats.read_latency.quantile(0.99),
        writes: stats.writes,
        hash: 0,
    }
}

fn read(cx: &mut Cx, queue: &Arc<Queue>, mut rng: Rng) {
    while cx.now() < DURATION {
        queue.read(cx, random_sector(&mut rng), BLOCK as usize).expect("a modelled disk reads");
    }
}

fn write(cx: &mut Cx, queue: &Arc<Queue>, mut rng: Rng) {
    let page = Page::zeroed(BLOCK as usize);
    while cx.now() < DURATION {
        let group = IoGroup::new();
        for _ in 0..WRITE_DEPTH {
            let sector = random_sector(&mut rng);
            let bio = Bio::write(sector, [page.clone()], BioFlags::empty(), group.end());
            queue.submit(cx, bio);
        }
        group.wait(cx).expect("a modelled disk writes");
    }
}

/// The table for a person.
pub fn to_text(rows: &[Row]) -> String {
    let mut out = format!(
        "Two elevators on one modelled disk (virtual time)\n\n  \
         {READERS} tasks read {BLOCK} bytes at random places beside {WRITE_DEPTH} random writes \
         under way, {:.0} modelled seconds\n\n",
        DURATION.as_secs_f64()
    );
    let seconds = DURATION.as_secs_f64();
    out.push_str("  | elevator | reads/s | read mean ms | read p99 ms | writes/s |\n");
    out.push_str("  |----------|--------:|-------------:|------------:|---------:|\n");
    for row in rows {
        let (mean, p99) = (row.read_mean.as_secs_f64() * 1e3, row.read_p99.as_secs_f64() * 1e3);
        let (reads, writes) = (row.reads as f64 / seconds, row.writes as f64 / seconds);
        let line = format!(
            "  | {:<8} | {reads:>7.1} | {mean:>12.1} | {p99:>11.1} | {writes:>8.1} |",
            row.elevator
        );
        writeln!(out, "{line}").expect("writing to a string");
    }
    out.push_str("\n  All figures are modelled: the same seed gives the same table.\n");
    out
}

/// The table for a program.
pub fn to_json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "elevator": row.elevator,
                "reads": row.reads,
                "read_mean_ns": row.read_mean.0,
                "read_p99_ns": row.read_p99.0,
                "writes": row.writes,
                "seconds": DURATION.as_secs_f64(),
                "event_hash": format!("{:016x}", row.hash),
                "kind": "modelled",
            })
        })
        .collect()
}
