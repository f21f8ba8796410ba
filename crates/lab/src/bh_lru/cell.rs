//! One row of the document's tables.

use std::ops::Range;

use base::Errno;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, OpenFlags};

use super::Plan;
use super::bed::{Base, Bed, Counts, Variant};
use super::published::{Published, Set};
use super::slices::{self, Slices, Work};
use crate::stats::verdict::{RUNS_MIN, THRESHOLD, judge};
use crate::stats::{Interval, Verdict, bootstrap, median, trimmed_mean};

/// The phases of every cell.
pub const PHASES: [&str; 3] = ["create", "lookup", "remove"];
/// An interval of so many per cent or less is narrow.
const NARROW: f64 = 1.0;
/// A cell ends early where its intervals are narrower than this part of [`NARROW`].
const ENOUGH: f64 = 0.5;

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The set.
    pub set: Set,
    /// Names in each directory before.
    pub names: u64,
    /// Directories.
    pub dirs: u64,
    /// Tasks.
    pub tasks: u64,
}

/// The change of one phase between two variants.
#[derive(Clone, Debug)]
pub struct Change {
    /// Per cent more operations in a CPU second; the centre of the pairs.
    pub percent: f64,
    /// 95 % of it.
    pub interval: Interval,
    /// Pairs of rounds or slices.
    pub pairs: usize,
}

impl Change {
    /// The change that these ratios say: their median, with an interval by the bootstrap.
    pub(crate) fn of(ratios: &[f64]) -> Change {
        let percent: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
        let interval = bootstrap::percentile(&percent, median);
        Change { percent: median(&percent), interval, pairs: ratios.len() }
    }

    /// As [`Change::of`] for many short slices, some of them disturbed: the trimmed mean.
    pub(super) fn trimmed(ratios: &[f64]) -> Change {
        let percent: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
        let (center, interval) = trimmed_mean(&percent);
        Change { percent: center, interval, pairs: ratios.len() }
    }

    /// How many times as many pairs would make the interval narrow: 1 where it is.
    pub fn times_missing(&self) -> f64 {
        (2.0 * self.interval.half() / NARROW).powi(2).max(1.0)
    }

    /// Is it a loss of more than one per cent, beyond doubt?
    pub fn loses(&self) -> bool {
        self.interval.high < -NARROW
    }

    /// Can a loss of more than one per cent be excluded?
    pub fn loses_nothing(&self) -> bool {
        self.interval.low > -NARROW
    }

    /// Better, worse, the same, or not told.
    pub fn verdict(&self) -> Verdict {
        let part = |percent: f64| percent / 100.0;
        let Interval { low, high } = self.interval;
        let interval = Interval { low: part(low), high: part(high) };
        let enough = (self.pairs >= RUNS_MIN).then_some(interval);
        judge(part(self.percent), enough, self.pairs, THRESHOLD).0
    }

    /// Is the interval narrower than 1 %?
    pub fn narrow(&self) -> bool {
        2.0 * self.interval.half() <= NARROW
    }

    /// So narrow that more is not asked for.
    pub(super) fn enough(&self) -> bool {
        2.0 * self.interval.half() <= NARROW * ENOUGH
    }
}

/// What a cell gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub cell: Cell,
    /// Slices of each variant.
    pub slices: usize,
    /// Nanoseconds of CPU time of an operation, by phase and variant.
    pub nanos: [[f64; 3]; 3],
    /// 16 entries against 8, by phase.
    pub sixteen: Vec<Change>,
    /// Ours against 8.
    pub ours: Vec<Change>,
    /// Ours against 16.
    pub ours_sixteen: Vec<Change>,
    /// Counters of an operation, by phase and variant.
    pub counts: [[PerOperation; 3]; 3],
    /// Bytes that entries pin, by variant.
    pub pinned: [u64; 3],
    /// The document's figures.
    pub published: Option<Published>,
    /// The same with tasks on threads of their own, where there are several.
    pub at_once: Option<AtOnce>,
}

/// What tasks that run at once gave, waits for each other included.
#[derive(Clone, Debug)]
pub struct AtOnce {
    /// Nanoseconds of CPU time of an operation with 8 entries, by phase.
    pub nanos: [f64; 3],
    /// 16 entries against 8, by phase.
    pub sixteen: Vec<Change>,
    /// Ours against 8.
    pub ours: Vec<Change>,
    /// Ours against 16.
    pub ours_sixteen: Vec<Change>,
}

/// Counters of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerOperation {
    /// Lookups.
    pub lookups: f64,
    /// Misses.
    pub misses: f64,
    /// Compares.
    pub compares: f64,
}

impl PerOperation {
    /// Of so many operations.
    pub(super) fn of(counts: &Counts, operations: u64) -> PerOperation {
        let each = |count: u64| count as f64 / operations as f64;
        PerOperation {
            lookups: each(counts.lookups),
            misses: each(counts.misses),
            compares: each(counts.compares),
        }
    }
}

impl Cell {
    /// In words.
    pub fn title(&self) -> String {
        let Cell { set, names, dirs, tasks } = self;
        format!("({}) {names} names, {dirs} directories, {tasks} tasks", set.letter())
    }
}

/// Measures a cell. May park.
pub(super) fn measure(
    cx: &mut Cx,
    plan: &Plan,
    base: &Base,
    cell: &Cell,
) -> Result<Outcome, String> {
    let bed = base.mount(cx, Variant::Ours)?;
    let enough = |slices: &Slices| {
        let all = |from, to| changes(slices, from, to).iter().all(Change::enough);
        all(0, 1) && all(0, 2) && all(1, 2)
    };
    let variants = &Variant::ALL;
    let work = Work { bed: &bed, cell, variants, effort: plan.cells, enough: &enough };
    let slices = slices::in_turns(cx, work)?;
    let mut at_once = None;
    if cell.tasks > 1 {
        let work = Work { effort: plan.at_once, ..work };
        let slices = slices::at_once(cx, work)?;
        at_once = Some(AtOnce {
            nanos: std::array::from_fn(|phase| trimmed_mean(&slices.nanos[phase][0]).0),
            sixteen: changes(&slices, 0, 1),
            ours: changes(&slices, 0, 2),
            ours_sixteen: changes(&slices, 1, 2),
        });
    }
    bed.end(cx)?;
    let triple = |make: &dyn Fn(usize, usize) -> f64| {
        std::array::from_fn(|phase| std::array::from_fn(|index| make(phase, index)))
    };
    Ok(Outcome {
        cell: *cell,
        slices: slices.count(),
        sixteen: changes(&slices, 0, 1),
        ours: changes(&slices, 0, 2),
        ours_sixteen: changes(&slices, 1, 2),
        nanos: triple(&|phase, index| trimmed_mean(&slices.nanos[phase][index]).0),
        pinned: std::array::from_fn(|index| slices.counts[0][index].pinned),
        counts: std::array::from_fn(|phase| {
            let counts = &slices.counts[phase];
            [0, 1, 2].map(|index: usize| PerOperation::of(&counts[index], slices.operations))
        }),
        published: cell.set.published(cell.names, cell.tasks),
        at_once,
    })
}

/// The changes of each phase from one variant to another, paired by groups of slices.
pub(super) fn changes(slices: &Slices, from: usize, to: usize) -> Vec<Change> {
    (0..PHASES.len()).map(|phase| Change::trimmed(&slices.ratios(phase, from, to))).collect()
}

/// What one task does of a phase.
pub(super) fn operations(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    task: u64,
    numbers: Range<u64>,
    phase: usize,
) -> Result<(), String> {
    let (path, ino) = &bed.dirs[(task % cell.dirs) as usize];
    for number in numbers {
        let name = format!("file.mdtest.{task}.{number}");
        let done = match cell.set.by_path() {
            true => through_paths(cx, &bed.names, &format!("{path}/{name}"), phase),
            false => below_names(cx, &*bed.fs, *ino, name.as_bytes(), phase),
        };
        done.map_err(|errno| format!("{} of {}: {errno}", PHASES[phase], cell.title()))?;
    }
    Ok(())
}

fn through_paths(
    cx: &mut Cx,
    names: &vfs::Namespace,
    path: &str,
    phase: usize,
) -> Result<(), Errno> {
    let path = path.as_bytes();
    match phase {
        0 => {
            let flags = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
            names.open(cx, path, flags, 0o664)?.close(cx)
        }
        1 => names.lstat(cx, path).map(drop),
        _ => names.unlink(cx, path),
    }
}

fn below_names(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: base::Ino,
    name: &[u8],
    phase: usize,
) -> Result<(), Errno> {
    match phase {
        0 => fs.create(cx, dir, name, &NewNode::new(FileType::Regular, 0o644)).map(drop),
        1 => fs.lookup(cx, dir, name).map(drop),
        _ => fs.unlink(cx, dir, name),
    }
}
