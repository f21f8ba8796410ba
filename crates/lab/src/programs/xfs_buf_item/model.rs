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
use rt::{Cx, SpinLock, WorldConfig};
use xfs::log::IopStats;

use super::bed::{Base, Use, Way};
use super::measure::since;
use super::parameters::{PHASES, Parameters, operations};
use crate::program::Figures;

/// Processors of the document's workload.
const CPUS: f64 = 16.0;
/// Files of the document's runs: its rates by its times, rounded to what its tool makes.
const FILES: f64 = 51_200_000.0;
/// The document's size of directory blocks with its profile, in bytes; the other size is 4 KiB.
pub(super) const LARGE: u64 = 64 << 10;
/// Creates a second without the patch, at 4 KiB and at 64 KiB.
const CREATES: [f64; 2] = [220e3, 115e3];
/// Seconds of all unlinks, likewise.
const UNLINK_SECONDS: [f64; 2] = [313.0, 805.0];
/// Share of the time at 64 KiB in `xfs_next_bit`, `xfs_buf_offset`, `xfs_buf_item_format` and
/// `xfs_buf_item_size_segment` without the patch, in per cent.
const FORMAT_SHARE: f64 = 6.22 + 3.55 + 3.53 + 2.84;
/// Share of the time at 64 KiB in `memcpy`, in per cent.
const COPY_SHARE: f64 = 7.10;

/// What operations cost in nanoseconds of a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// One search for a bit.
    pub step: f64,
    /// One byte that is copied.
    pub byte: f64,
    /// All else of an operation, by phase.
    pub base: [f64; 2],
}

/// One world.
pub(super) struct World {
    /// Counts of both phases.
    pub counts: [IopStats; 2],
    /// Nanoseconds of an operation in both phases.
    pub nanos: [f64; 2],
    /// A checksum of the image at the end.
    pub image: u32,
    /// The hash over its events.
    pub hash: u64,
}

/// The document's nanoseconds of a processor for one operation, without the patch.
fn original(phase: usize, large: bool) -> f64 {
    let size = usize::from(large);
    match phase {
        0 => CPUS * 1e9 / CREATES[size],
        _ => CPUS * 1e9 * UNLINK_SECONDS[size] / FILES,
    }
}

/// What the document's *Original* cells say that operations cost, from counts of bit by bit: at 64
/// KiB, and of the size that is asked for.
pub(super) fn costs(plan: &Parameters, large: &World, own: &World) -> Costs {
    let operations = operations(plan.files, plan.tasks);
    let each = |count: u64| count as f64 / operations as f64;
    let (whole, before) = (original(0, true), large.counts[0]);
    let step = FORMAT_SHARE / 100.0 * whole / each(before.bits);
    let byte = COPY_SHARE / 100.0 * whole / each(before.copied);
    let of = |phase: usize| {
        let count = own.counts[phase];
        let whole = original(phase, plan.dir_block.0 == LARGE);
        whole - step * each(count.bits) - byte * each(count.copied)
    };
    Costs { step, byte, base: [of(0), of(1)] }
}

/// Plays a world: without costs for its counts and its image, with them for its times.
pub(super) fn play(
    plan: &Parameters,
    base: &Base,
    way: Way,
    seed: u64,
    costs: Option<Costs>,
) -> Result<World, String> {
    let cpus = plan.tasks as usize;
    let mut world = rt::World::new(WorldConfig { seed, cpus, ..WorldConfig::default() });
    let played = world.run("lab", |cx| play_in(cx, plan, base, way, costs))?;
    Ok(World { hash: world.hash(), ..played })
}

fn play_in(
    cx: &mut Cx,
    plan: &Parameters,
    base: &Base,
    way: Way,
    costs: Option<Costs>,
) -> Result<World, String> {
    let bed = base.mount(cx, Use { way, debug: false, iop_stats: true })?;
    let tasks = plan.tasks;
    let files = operations(plan.files, tasks);
    bed.phase(cx, plan.warm_up(tasks), |_, _| ())?;
    bed.sync(cx)?;
    let mut played = World { counts: Default::default(), nanos: [0.0; 2], image: 0, hash: 0 };
    for phase in 0..2 {
        let before = bed.fs.iop_stats().unwrap_or_default();
        let start = cx.now();
        let paid = Arc::new(SpinLock::named("paid", before));
        let base = costs.map_or(0.0, |costs| costs.base[phase]);
        bed.phase(cx, plan.work(tasks, phase), move |cx, fs| {
            let Some(costs) = costs else { return };
            let now = fs.iop_stats().unwrap_or_default();
            let done = since(now, std::mem::replace(&mut *paid.lock(cx), now));
            let steps = costs.step * done.bits as f64 + costs.byte * done.copied as f64;
            cx.charge(Nanos((base + steps) as u64));
        })?;
        played.nanos[phase] = cx.now().since(start).0 as f64 * tasks as f64 / files as f64;
        bed.sync(cx)?;
        played.counts[phase] = since(bed.fs.iop_stats().unwrap_or_default(), before);
    }
    let device = bed.device.clone();
    bed.end(cx)?;
    if costs.is_none() {
        played.image = checksum(&device);
    }
    Ok(played)
}

fn checksum(device: &MemoryDevice) -> u32 {
    let mut bytes = vec![0; 1 << 20];
    let count = device.info().bytes() >> 20;
    (0..count).fold(0, |sum, index| {
        device.read_at(index << 20, &mut bytes);
        base::crc::crc32c(sum, &bytes)
    })
}

/// The figures of a world's counts and of its times.
pub(super) fn figures(plan: &Parameters, counted: &World, costs: Costs, timed: &World) -> Figures {
    let operations = operations(plan.files, plan.tasks) as f64;
    let mut figures = Figures::default();
    for (phase, what) in PHASES.into_iter().enumerate() {
        let (count, nanos) = (&counted.counts[phase], timed.nanos[phase]);
        for (name, value) in [
            ("buffers", count.items),
            ("clusters", count.unmapped),
            ("bits", count.bits),
            ("addresses", count.addresses),
            ("steps", count.bits + count.addresses),
            ("regions", count.regions),
            ("dirty_bytes", 128 * count.dirty),
            ("new_bytes", 128 * count.fresh),
            ("copied_bytes", count.copied),
        ] {
            figures.set(format!("{what}_{name}"), value as f64 / operations);
        }
        figures.set(format!("{what}_ns"), nanos);
        figures.set(format!("{what}s_per_s"), CPUS * 1e9 / nanos);
        figures.set(format!("{what}s_s"), nanos * FILES / CPUS / 1e9);
    }
    let image = f64::from(counted.image);
    figures.set_all([("image", image), ("step_ns", costs.step), ("byte_ns", costs.byte)]);
    figures
}
