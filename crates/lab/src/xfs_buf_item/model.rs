//! Sixteen processors in virtual time: exact counts, equal images, and rates where a step of a walk
//! costs what the document's profile says.
//!
//! An operation costs a base, a price for each search of a bit, and a price for each byte that is
//! copied. Calibrated on the document's *Original* cells alone: the two prices from its profile at
//! 64 KiB (16.14 % in the bit functions, 7.10 % in `memcpy`), the bases from the times of both
//! sizes. Everything else is predicted from the counts of our own directories. No lock is ever
//! waited for in the model, and the checks of the debug kernel are in the bases.

use std::sync::Arc;

use base::Nanos;
use block::Device;
use device::MemoryDevice;
use rt::{Cx, SpinLock, World, WorldConfig};
use xfs::log::Gauge;

use super::Plan;
use super::bed::{Base, Use, Way};
use super::measure::{WARM, operations, since};
use super::published::{COPY_SHARE, CPUS, CREATES, FILES, FORMAT_SHARE, UNLINK_SECONDS};

/// Modelled nanoseconds of a processor for one operation.
pub type Modelled = [[[f64; 2]; 4]; 2];

/// What the worlds gave. Indices: size of directory blocks (4 and 64 KiB), way, phase.
#[derive(Clone, Debug)]
pub struct Worlds {
    /// Operations of a phase.
    pub operations: u64,
    /// Counts of each phase.
    pub counts: [[[Gauge; 2]; 4]; 2],
    /// Bitwise, contiguous and ours with dense leaves leave the same image, log included.
    pub alike: [bool; 2],
    /// Nanoseconds of one search for a bit.
    pub step: f64,
    /// Nanoseconds of one byte that is copied.
    pub byte: f64,
    /// Modelled times.
    pub modelled: Modelled,
}

/// What operations cost.
#[derive(Clone, Copy, Debug)]
struct Costs {
    step: f64,
    byte: f64,
    /// By phase.
    base: [f64; 2],
}

/// One world: counts of both phases, time of both phases, and the image at the end.
struct Played {
    counts: [Gauge; 2],
    nanos: [f64; 2],
    image: Vec<u32>,
}

/// The document's nanoseconds of a processor for one operation, without the patch.
fn original(phase: usize, size: usize) -> f64 {
    match phase {
        0 => CPUS * 1e9 / CREATES[0][size],
        _ => CPUS * 1e9 * UNLINK_SECONDS[0][size] / FILES,
    }
}

/// Plays all worlds.
pub(super) fn run(plan: &Plan, bases: [&Base; 2]) -> Result<Worlds, String> {
    let mut counts = [[[Gauge::default(); 2]; 4]; 2];
    let mut alike = [true; 2];
    for (size, base) in bases.into_iter().enumerate() {
        let mut first = None;
        for (index, way) in Way::ALL.into_iter().enumerate() {
            let played = play(plan, base, way, None)?;
            counts[size][index] = played.counts;
            let image = first.get_or_insert_with(|| played.image.clone());
            alike[size] &= way == Way::Gaps || *image == played.image;
        }
    }
    let operations = operations(plan.files, plan.tasks);
    let each = |count: u64| count as f64 / operations as f64;
    let whole = original(0, 1);
    let before = counts[1][0][0];
    let step = FORMAT_SHARE[0] / 100.0 * whole / each(before.bits);
    let byte = COPY_SHARE[0] / 100.0 * whole / each(before.copied);
    let mut modelled = [[[0.0; 2]; 4]; 2];
    for (size, base) in bases.into_iter().enumerate() {
        let of = |phase: usize| {
            let count = counts[size][0][phase];
            original(phase, size) - step * each(count.bits) - byte * each(count.copied)
        };
        let costs = Costs { step, byte, base: [of(0), of(1)] };
        for (index, way) in Way::ALL.into_iter().enumerate() {
            modelled[size][index] = play(plan, base, way, Some(costs))?.nanos;
        }
    }
    Ok(Worlds { operations, counts, alike, step, byte, modelled })
}

fn play(plan: &Plan, base: &Base, way: Way, costs: Option<Costs>) -> Result<Played, String> {
    let cpus = plan.tasks as usize;
    let config = WorldConfig { seed: 1, cpus, ..WorldConfig::default() };
    World::new(config).run("lab", |cx| play_in(cx, plan, base, way, costs))
}

fn play_in(
    cx: &mut Cx,
    plan: &Plan,
    base: &Base,
    way: Way,
    costs: Option<Costs>,
) -> Result<Played, String> {
    let bed = base.mount(cx, Use { way, debug: false, gauge: true })?;
    let tasks = plan.tasks;
    let files = operations(plan.files, tasks);
    bed.phase(cx, (tasks, operations(files / 4, tasks), WARM), false, |_, _| ())?;
    bed.sync(cx)?;
    let mut played = Played { counts: Default::default(), nanos: [0.0; 2], image: Vec::new() };
    for phase in 0..2 {
        let before = bed.fs.gauge().unwrap_or_default();
        let start = cx.now();
        let paid = Arc::new(SpinLock::named("paid", before));
        let base = costs.map_or(0.0, |costs| costs.base[phase]);
        bed.phase(cx, (tasks, files, 0), phase == 1, move |cx, fs| {
            let Some(costs) = costs else { return };
            let now = fs.gauge().unwrap_or_default();
            let done = since(now, std::mem::replace(&mut *paid.lock(cx), now));
            let steps = costs.step * done.bits as f64 + costs.byte * done.copied as f64;
            cx.charge(Nanos((base + steps) as u64));
        })?;
        played.nanos[phase] = cx.now().since(start).0 as f64 * tasks as f64 / files as f64;
        bed.sync(cx)?;
        played.counts[phase] = since(bed.fs.gauge().unwrap_or_default(), before);
    }
    let device = bed.device.clone();
    bed.end(cx)?;
    if costs.is_none() {
        played.image = checksums(&device);
    }
    Ok(played)
}

/// A checksum of each MiB.
fn checksums(device: &MemoryDevice) -> Vec<u32> {
    let mut bytes = vec![0; 1 << 20];
    let count = device.info().bytes() >> 20;
    let one = |index: u64| {
        device.read_at(index << 20, &mut bytes);
        base::crc::crc32c(0, &bytes)
    };
    (0..count).map(one).collect()
}
