//! Creates and unlinks in real time, the ways in turns, and what formatting takes of them.

use std::sync::Arc;

use rt::{Cx, SpinLock};
use xfs::log::Gauge;

use super::Plan;
use super::bed::{Base, Use, Way};
use crate::bh_lru::Change;
use crate::clock::cpu_nanos;
use crate::stats::median;

/// Operations of a hundred that are left out as interrupted by other tasks.
const INTERRUPTED: usize = 2;
/// Names of the warm-up begin here.
pub(super) const WARM: u64 = 1 << 20;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Bytes of a directory block.
    pub dir_block: u32,
    /// Tasks.
    pub tasks: u64,
    /// Leaves are checked as the document's kernel did.
    pub debug: bool,
}

impl Cell {
    /// In words.
    pub fn title(&self) -> String {
        let Cell { dir_block, tasks, debug } = self;
        let checks = if *debug { "with" } else { "without" };
        format!("{} KiB, {tasks} tasks, {checks} debug checks", dir_block >> 10)
    }
}

/// What a cell gave: by phase (create, unlink) and way.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub cell: Cell,
    /// Nanoseconds of CPU time of an operation: medians of the rounds.
    pub cpu: [[f64; 4]; 2],
    /// Nanoseconds of an operation by the clock, all tasks together.
    pub wall: [[f64; 4]; 2],
    /// Against bit by bit, in CPU time; rounds are pairs.
    pub change: [[Change; 4]; 2],
}

/// Operations of one phase: a multiple of the tasks.
pub(super) fn operations(files: u64, tasks: u64) -> u64 {
    (files / tasks).max(1) * tasks
}

/// Measures a cell. May park.
pub(super) fn measure(
    cx: &mut Cx,
    plan: &Plan,
    base: &Base,
    cell: &Cell,
) -> Result<Outcome, String> {
    let files = operations(plan.files, cell.tasks);
    let warm = operations(plan.files / 4, cell.tasks);
    let mut cpu: [[Vec<f64>; 4]; 2] = Default::default();
    let mut wall: [[Vec<f64>; 4]; 2] = Default::default();
    for round in 0..plan.rounds {
        for turn in 0..4 {
            // Forth and back: whoever comes first in one round comes last in the next.
            let index = if round % 2 == 0 { turn } else { 3 - turn };
            let way = Way::ALL[index];
            let bed = base.mount(cx, Use { way, debug: cell.debug, gauge: false })?;
            bed.phase(cx, (cell.tasks, warm, WARM), false, |_, _| ())?;
            bed.sync(cx)?;
            for phase in 0..2 {
                let (start, begin) = (cpu_nanos(), cx.now());
                bed.phase(cx, (cell.tasks, files, 0), phase == 1, |_, _| ())?;
                bed.sync(cx)?;
                cpu[phase][index].push((cpu_nanos() - start) / files as f64);
                wall[phase][index].push(cx.now().since(begin).0 as f64 / files as f64);
            }
            bed.end(cx)?;
        }
    }
    let change = |phase: &[Vec<f64>; 4]| {
        [0, 1, 2, 3].map(|index: usize| {
            let pairs = phase[0].iter().zip(&phase[index]);
            Change::of(&pairs.map(|(before, after)| before / after).collect::<Vec<_>>())
        })
    };
    Ok(Outcome {
        cell: *cell,
        change: [change(&cpu[0]), change(&cpu[1])],
        cpu: cpu.map(|phase| phase.map(|values| median(&values))),
        wall: wall.map(|phase| phase.map(|values| median(&values))),
    })
}

/// What of an operation's time goes into formatting, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The size pass and the walks of the format pass.
    pub walk: f64,
    /// The copies.
    pub copy: f64,
    /// The checks of a debug kernel.
    pub check: f64,
    /// The copies of what became dirty alone.
    pub least: f64,
}

impl Share {
    /// The mean of all operations but the [`INTERRUPTED`] slowest in a hundred.
    fn of(looks: &[Gauge]) -> Share {
        let mean = |field: fn(&Gauge) -> u64| {
            let spans = looks.windows(2).map(|pair| field(&pair[1]) - field(&pair[0]));
            let mut spans: Vec<u64> = spans.collect();
            spans.sort_unstable();
            spans.truncate(spans.len() - spans.len() * INTERRUPTED / 100);
            spans.iter().sum::<u64>() as f64 / spans.len().max(1) as f64
        };
        Share {
            walk: mean(|look| look.walk_ns),
            copy: mean(|look| look.copy_ns),
            check: mean(|look| look.check_ns),
            least: mean(|look| look.least_ns),
        }
    }

    fn least(self, other: Share) -> Share {
        Share {
            walk: self.walk.min(other.walk),
            copy: self.copy.min(other.copy),
            check: self.check.min(other.check),
            least: self.least.min(other.least),
        }
    }
}

/// The difference of two looks at the figures.
pub(super) fn since(now: Gauge, before: Gauge) -> Gauge {
    Gauge {
        items: now.items - before.items,
        unmapped: now.unmapped - before.unmapped,
        bits: now.bits - before.bits,
        addresses: now.addresses - before.addresses,
        dirty: now.dirty - before.dirty,
        fresh: now.fresh - before.fresh,
        regions: now.regions - before.regions,
        copied: now.copied - before.copied,
        walk_ns: now.walk_ns - before.walk_ns,
        copy_ns: now.copy_ns - before.copy_ns,
        least_ns: now.least_ns - before.least_ns,
        check_ns: now.check_ns - before.check_ns,
    }
}

/// Where the time of formatting goes, by phase and way, with the checks of a debug kernel: of one
/// task, that nobody interrupts; the least of a few rounds. May park.
pub(super) fn profile(cx: &mut Cx, plan: &Plan, base: &Base) -> Result<[[Share; 4]; 2], String> {
    let files = plan.files;
    let none = Share { walk: f64::MAX, copy: f64::MAX, check: f64::MAX, least: f64::MAX };
    let mut shares = [[none; 4]; 2];
    for _ in 0..plan.rounds.min(3) {
        for (index, way) in Way::ALL.into_iter().enumerate() {
            let bed = base.mount(cx, Use { way, debug: true, gauge: true })?;
            bed.phase(cx, (1, files / 4, WARM), false, |_, _| ())?;
            for (phase, shares) in shares.iter_mut().enumerate() {
                let first = vec![bed.fs.gauge().unwrap_or_default()];
                let looks = Arc::new(SpinLock::named("looks", first));
                let taken = looks.clone();
                bed.phase(cx, (1, files, 0), phase == 1, move |cx, fs| {
                    taken.lock(cx).push(fs.gauge().unwrap_or_default());
                })?;
                let share = Share::of(&looks.lock(cx));
                shares[index] = shares[index].least(share);
            }
            bed.end(cx)?;
        }
    }
    Ok(shares)
}
