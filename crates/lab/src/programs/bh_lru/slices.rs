//! Variants take turns on one mount, in slices of a tenth of a millisecond.
//!
//! Between two slices only the structure in front of the index is exchanged, with what it holds:
//! buffers, inodes, the directory and where all of them lie in memory stay the same. So nothing but
//! the structure can make a difference, and what disturbs the machine for longer than a slice (the
//! other programs on it, the processor's caches after one of them ran) disturbs all variants.
//!
//! What is taken is the CPU time of the tasks; the journal's task, which looks up nothing, is left
//! out. Several tasks take turns too, an operation each, on one thread ([`in_turns`]): the
//! structures see what they would see, each task on its CPU's, and nobody waits for a lock.
//! [`at_once`] runs them on threads of their own; then what they wait for each other is in the
//! figures, is most of them, and differs from slice to slice by more than any structure can make.

use cache::{LruKind, SpareLrus};
use rt::{Cx, Runtime};
use serde::Deserialize;

use super::bed::{Bed, Counts, Variant};
use super::operations::{Cell, PHASES, operations};
use crate::clock::{cpu_nanos, thread_nanos};

/// Operations, over all tasks, that a slice begins with and that do not count: they bring the
/// structure into the processor's nearest caches, where it is in use, and fill it.
const WARMING: u64 = 8;
/// Rounds between two questions whether it is enough.
const ROUNDS_ASK: usize = 4;

/// How long is measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Files of a slice, over all tasks.
    pub slice: u64,
    /// Slices of each variant in a round.
    pub groups: u64,
    /// Fewest rounds. After twice as many as there are variants each variant has had each name at
    /// each place of a group.
    pub rounds_min: usize,
    /// Most rounds.
    pub rounds_max: usize,
    /// No round begins after the process has used so much CPU time, milliseconds. A busy machine
    /// takes longer and does as many rounds.
    pub cpu_ms: u64,
}

/// What the slices gave.
pub(super) struct Slices {
    /// CPU time of an operation in nanoseconds: by phase and variant, one for each slice.
    pub nanos: [Vec<Vec<f64>>; 3],
    /// Counters, by phase and variant.
    pub counts: [Vec<Counts>; 3],
    /// Operations behind each of the counters.
    pub operations: u64,
}

impl Slices {
    /// How many each variant had.
    pub fn count(&self) -> usize {
        self.nanos[0][0].len()
    }

    /// How many times as fast variant `to` was as variant `from`, by groups of slices.
    pub fn ratios(&self, phase: usize, from: usize, to: usize) -> Vec<f64> {
        let pairs = self.nanos[phase][from].iter().zip(&self.nanos[phase][to]);
        pairs.map(|(before, after)| before / after).collect()
    }
}

/// What is measured, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub bed: &'a Bed,
    pub cell: &'a Cell,
    pub variants: &'a [Variant],
    pub effort: Effort,
    /// Asked now and then: may it end before the effort is used up?
    pub enough: &'a dyn Fn(&Slices) -> bool,
}

/// Does a phase for so many files from a number on: the CPU time that it took, nanoseconds.
type Phase<'a> = dyn FnMut(u64, u64, usize) -> Result<f64, String> + 'a;

/// Measures with tasks that take turns on this thread, an operation each.
///
/// # Errors
/// A sentence on what failed.
pub(super) fn in_turns(cx: &Cx, work: Work<'_>) -> Result<Slices, String> {
    let Work { bed, cell, .. } = work;
    enter_all(&cx.runtime().clone(), cell.tasks, Vec::new(), &mut |tasks| {
        rounds(work, &mut |from, files, phase| {
            let numbers = from / cell.tasks..(from + files) / cell.tasks;
            let start = thread_nanos();
            for number in numbers {
                for (task, cx) in tasks.iter_mut().enumerate() {
                    operations(cx, bed, cell, task as u64, number..number + 1, phase)?;
                }
            }
            Ok(thread_nanos() - start)
        })
    })
}

/// Makes this thread `left` tasks more while `body` runs.
fn enter_all<T>(
    runtime: &Runtime,
    left: u64,
    held: Vec<&mut Cx>,
    body: &mut dyn FnMut(&mut [&mut Cx]) -> T,
) -> T {
    if left == 0 {
        let mut held = held;
        return body(&mut held);
    }
    runtime.enter("bh-lru", move |cx| {
        let mut held: Vec<&mut Cx> = held;
        held.push(cx);
        enter_all(runtime, left - 1, held, body)
    })
}

/// Measures with tasks on threads of their own, all at once. May park.
///
/// # Errors
/// A sentence on what failed.
pub(super) fn at_once(cx: &mut Cx, work: Work<'_>) -> Result<Slices, String> {
    let Work { bed, cell, .. } = work;
    rounds(work, &mut |from, files, phase| {
        let numbers = from / cell.tasks..(from + files) / cell.tasks;
        let tasks: Vec<_> = (0..cell.tasks)
            .map(|task| {
                let (bed, cell, numbers) = (bed.clone(), *cell, numbers.clone());
                cx.spawn("bh-lru", move |cx| {
                    let start = thread_nanos();
                    operations(cx, &bed, &cell, task, numbers, phase)?;
                    Ok(thread_nanos() - start)
                })
            })
            .collect();
        let results: Vec<Result<f64, String>> =
            tasks.into_iter().map(|task| task.join(cx)).collect();
        results.into_iter().sum()
    })
}

/// Rounds of slices until it is enough or the effort is used up.
fn rounds(work: Work<'_>, phase_of: &mut Phase<'_>) -> Result<Slices, String> {
    let Work { bed, cell, variants, effort, enough } = work;
    let buffers = bed.fs.buffers();
    let own = buffers.lru_kind();
    let kind = |variant: &Variant| variant.size().map_or(own, LruKind::Array);
    let mut spares: Vec<SpareLrus> =
        variants.iter().map(|variant| buffers.spare_lrus(kind(variant))).collect();
    let count = variants.len();
    let whole = |files: u64| (files / cell.tasks).max(1) * cell.tasks;
    let (warming, files) = (whole(WARMING), whole(effort.slice));
    let all = (warming + files) * effort.groups * count as u64;
    let none = || std::array::from_fn(|_| vec![Vec::new(); count]);
    let counts = std::array::from_fn(|_| vec![Counts::default(); count]);
    let mut slices = Slices { nanos: none(), counts, operations: 0 };
    // All leaves are split and all inodes known before.
    for phase in [0, 2] {
        phase_of(0, all, phase)?;
    }
    let end = cpu_nanos() + effort.cpu_ms as f64 * 1e6;
    for round in 0..=effort.rounds_max {
        for phase in 0..PHASES.len() {
            for group in 0..effort.groups as usize {
                for turn in 0..count {
                    let forward = (round / count + group).is_multiple_of(2);
                    let place = if forward { turn } else { count - 1 - turn };
                    let index = (place + round + group) % count;
                    let from = (group * count + place) as u64 * (warming + files);
                    buffers.exchange_lrus(&mut spares[index]);
                    phase_of(from, warming, phase)?;
                    let before = Counts::of(&bed.fs);
                    let nanos = phase_of(from + warming, files, phase)?;
                    // The first round brings everything into memory.
                    if round > 0 {
                        slices.nanos[phase][index].push(nanos / files as f64);
                        slices.counts[phase][index].add(Counts::of(&bed.fs).since(before));
                    }
                    buffers.exchange_lrus(&mut spares[index]);
                }
            }
        }
        slices.operations += if round > 0 { files * effort.groups } else { 0 };
        let asks = round >= effort.rounds_min && round.is_multiple_of(ROUNDS_ASK);
        if round >= effort.rounds_min && cpu_nanos() >= end || asks && enough(&slices) {
            break;
        }
    }
    Ok(slices)
}
