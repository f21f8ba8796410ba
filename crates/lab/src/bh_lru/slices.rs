//! Variants take turns on one mount, in slices of a few milliseconds.
//!
//! Between two slices only the structure in front of the index is exchanged: buffers, inodes, the
//! directory and where all of them lie in memory stay the same. So nothing but the structure can
//! make a difference, and what disturbs the machine for longer than a slice disturbs all variants.
//! What is taken is the CPU time of the tasks that do the operations; the journal's task, which
//! looks up nothing, is left out.

use cache::LruKind;
use rt::Cx;

use super::bed::{Bed, Counts, Variant};
use super::cell::{Cell, PHASES, operations};
use crate::clock::{cpu_nanos, thread_nanos};

/// Operations of each phase that fill the structure before a slice counts.
const WARMING: u64 = 16;

/// Files of a task in a slice at least.
const TASK_FILES_MIN: u64 = 16;

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Files of a slice, over all tasks.
    pub files: u64,
    /// Fewest rounds. In a round each variant has one slice.
    pub rounds_min: usize,
    /// Most rounds.
    pub rounds_max: usize,
    /// No round begins after the process has used so much CPU time, milliseconds. A busy machine
    /// takes longer and does as many rounds.
    pub cpu_millis: u64,
}

/// What the slices gave.
pub(super) struct Slices {
    /// CPU time of an operation in nanoseconds: by phase and variant, one for each round.
    pub nanos: [Vec<Vec<f64>>; 3],
    /// Counters, by phase and variant.
    pub counts: [Vec<Counts>; 3],
    /// Operations behind each of the counters.
    pub operations: u64,
}

impl Slices {
    /// Rounds.
    pub fn rounds(&self) -> usize {
        self.nanos[0][0].len()
    }

    /// How many times as fast variant `to` was as variant `from`, by rounds.
    pub fn ratios(&self, phase: usize, from: usize, to: usize) -> Vec<f64> {
        let pairs = self.nanos[phase][from].iter().zip(&self.nanos[phase][to]);
        pairs.map(|(before, after)| before / after).collect()
    }
}

/// Rounds of slices until `enough` says so or the amount is used up. May park.
///
/// # Errors
/// A sentence on what failed.
pub(super) fn run(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    variants: &[Variant],
    amount: Effort,
    enough: impl Fn(&Slices) -> bool,
) -> Result<Slices, String> {
    let own = bed.fs.buffers().lru_kind();
    let kind = |variant: Variant| variant.size().map_or(own, LruKind::Array);
    // A task that does too little would measure its own beginning.
    let files = (amount.files / cell.tasks).max(TASK_FILES_MIN) * cell.tasks;
    let none = || std::array::from_fn(|_| vec![Vec::new(); variants.len()]);
    let counts = std::array::from_fn(|_| vec![Counts::default(); variants.len()]);
    let mut slices = Slices { nanos: none(), counts, operations: 0 };
    // Names that no slice had before, so that each finds its leaves as cold as the others do.
    let mut from = 0;
    let end = cpu_nanos() + amount.cpu_millis as f64 * 1e6;
    // The first round brings the directory into memory.
    for round in 0..=amount.rounds_max {
        for turn in 0..variants.len() {
            // Each variant is in each place of a round equally often.
            let place = if round % 2 == 0 { turn } else { variants.len() - 1 - turn };
            let index = (place + round / 2) % variants.len();
            bed.fs.buffers().set_lru(kind(variants[index]));
            for phase in 0..PHASES.len() {
                operations(cx, bed, cell, 0, from..from + WARMING, phase)?;
            }
            from += WARMING;
            for phase in 0..PHASES.len() {
                let before = Counts::of(&bed.fs);
                let nanos = run_phase(cx, bed, cell, from, files, phase)?;
                if round > 0 {
                    slices.nanos[phase][index].push(nanos / files as f64);
                    slices.counts[phase][index].add(Counts::of(&bed.fs).since(before));
                }
            }
            from += files;
        }
        slices.operations += if round > 0 { files } else { 0 };
        let done = round >= amount.rounds_min;
        if done && (cpu_nanos() >= end || (round % 16 == 0 && enough(&slices))) {
            break;
        }
    }
    bed.fs.buffers().set_lru(own);
    Ok(slices)
}

/// All tasks do one phase: the CPU time that they took, nanoseconds.
fn run_phase(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    from: u64,
    files: u64,
    phase: usize,
) -> Result<f64, String> {
    let each = files / cell.tasks;
    let work = move |cx: &mut Cx, bed: &Bed, cell: &Cell, task: u64| {
        let start = thread_nanos();
        operations(cx, bed, cell, task, from..from + each, phase)?;
        Ok(thread_nanos() - start)
    };
    if cell.tasks == 1 {
        return work(cx, bed, cell, 0);
    }
    let tasks: Vec<_> = (0..cell.tasks)
        .map(|task| {
            let (bed, cell) = (bed.clone(), *cell);
            cx.spawn("bh-lru", move |cx| work(cx, &bed, &cell, task))
        })
        .collect();
    let results: Vec<Result<f64, String>> = tasks.into_iter().map(|task| task.join(cx)).collect();
    results.into_iter().sum()
}
