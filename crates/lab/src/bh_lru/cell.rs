//! One row of the document's tables.

use base::Errno;
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, OpenFlags};

use super::Plan;
use super::bed::{Base, Bed, Counts, Variant};
use super::published::{Published, Set};
use crate::clock::cpu_nanos;
use crate::stats::verdict::{RUNS_MIN, THRESHOLD, judge};
use crate::stats::{Interval, Verdict, bootstrap, median};

/// The phases of every cell.
pub const PHASES: [&str; 3] = ["create", "lookup", "remove"];
/// An interval of so many per cent or less is narrow.
const NARROW: f64 = 1.0;

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
    /// Per cent more operations in a CPU second; the median over the rounds.
    pub percent: f64,
    /// 95 % of it.
    pub interval: Interval,
    /// Rounds.
    pub rounds: usize,
}

impl Change {
    /// The change that these ratios say.
    pub(crate) fn of(ratios: &[f64]) -> Change {
        let percent: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
        let interval = bootstrap::percentile(&percent, median);
        Change { percent: median(&percent), interval, rounds: ratios.len() }
    }

    /// Better, worse, the same, or not told.
    pub fn verdict(&self) -> Verdict {
        let part = |percent: f64| percent / 100.0;
        let Interval { low, high } = self.interval;
        let interval = Interval { low: part(low), high: part(high) };
        let enough = (self.rounds >= RUNS_MIN).then_some(interval);
        judge(part(self.percent), enough, self.rounds, THRESHOLD).0
    }

    /// Is the interval narrower than 1 %?
    pub fn narrow(&self) -> bool {
        2.0 * self.interval.half() <= NARROW
    }
}

/// What a cell gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub cell: Cell,
    /// Rounds.
    pub rounds: usize,
    /// Nanoseconds of CPU time of an operation, by phase and variant: medians.
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
    let mut beds = Vec::new();
    for variant in Variant::ALL {
        beds.push(base.mount(cx, variant)?);
    }
    let mut nanos: [[Vec<f64>; 3]; 3] = Default::default();
    let mut counts = [[Counts::default(); 3]; 3];
    let mut operations = 0;
    // The first round brings the directory into memory.
    for round in 0..=plan.rounds_max {
        for turn in 0..3 {
            // Forth and back: whoever comes first in one round comes last in the next.
            let index = if round % 2 == 0 { turn } else { 2 - turn };
            for phase in 0..3 {
                let bed = &beds[index];
                let before = Counts::of(&bed.fs);
                let start = cpu_nanos();
                run_phase(cx, bed, cell, plan.files, phase)?;
                let span = cpu_nanos() - start;
                if round > 0 {
                    nanos[phase][index].push(span / plan.files as f64);
                    counts[phase][index].add(Counts::of(&bed.fs).since(before));
                }
            }
        }
        operations += if round > 0 { plan.files } else { 0 };
        if round >= plan.rounds_min && changes(&nanos, 0, 1).iter().all(Change::narrow) {
            break;
        }
    }
    for bed in beds {
        bed.end(cx)?;
    }
    let each = |count: u64| count as f64 / operations as f64;
    let per_operation = |counts: &Counts| PerOperation {
        lookups: each(counts.lookups),
        misses: each(counts.misses),
        compares: each(counts.compares),
    };
    let rounds = nanos[0][0].len();
    Ok(Outcome {
        cell: *cell,
        rounds,
        sixteen: changes(&nanos, 0, 1),
        ours: changes(&nanos, 0, 2),
        ours_sixteen: changes(&nanos, 1, 2),
        nanos: nanos.map(|phase| phase.map(|values| median(&values))),
        pinned: counts[0].map(|counts| counts.pinned),
        counts: counts.map(|phase| [0, 1, 2].map(|index: usize| per_operation(&phase[index]))),
        published: cell.set.published(cell.names, cell.tasks),
    })
}

/// The changes of each phase from one variant to another, paired by rounds.
fn changes(nanos: &[[Vec<f64>; 3]; 3], from: usize, to: usize) -> Vec<Change> {
    let ratios = |phase: &[Vec<f64>; 3]| {
        let pairs = phase[from].iter().zip(&phase[to]);
        Change::of(&pairs.map(|(before, after)| before / after).collect::<Vec<_>>())
    };
    nanos.iter().map(ratios).collect()
}

/// All tasks do one phase.
pub(super) fn run_phase(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    files: u64,
    phase: usize,
) -> Result<(), String> {
    let each = files / cell.tasks;
    let tasks: Vec<_> = (0..cell.tasks)
        .map(|task| {
            let (bed, cell) = (bed.clone(), *cell);
            cx.spawn("bh-lru", move |cx| operations(cx, &bed, &cell, task, each, phase))
        })
        .collect();
    let results: Vec<Result<(), String>> = tasks.into_iter().map(|task| task.join(cx)).collect();
    results.into_iter().collect()
}

/// What one task does of a phase.
pub(super) fn operations(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    task: u64,
    count: u64,
    phase: usize,
) -> Result<(), String> {
    let (path, ino) = &bed.dirs[(task % cell.dirs) as usize];
    for number in 0..count {
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
