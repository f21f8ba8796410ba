//! The program `bh-lru`: "[PATCH] Allow increasing the buffer-head per-CPU LRU size", Sebastien
//! Buisson and others, July 2014, and what the thread asks beyond it.
//!
//! It is *measured*: real ext4 on a device in memory, in real time. The variants (8 entries, 16
//! entries, our sets) take turns in slices of a tenth of a millisecond on one mount in one process,
//! of which only the structure is exchanged. The basis is the CPU time of the tasks, which a busy
//! machine changes little; neighbouring slices give the ratios of the variants, a cell is their
//! trimmed mean with an interval.
//!
//! The counts (lookups, misses, compares, hits by depth) are exact and explain the signs. What is
//! run and published is in `experiments/bh-lru.toml`.

mod bed;
mod cell;
pub mod instructions;
mod operations;
mod slices;
mod trace;

pub use bed::{Set, Variant};
pub use operations::PHASES;

use std::sync::Arc;

use serde::Deserialize;

use self::bed::{Base, Setup, Shape};
use self::cell::Measure;
use self::instructions::Amount;
use self::operations::Cell;
use self::slices::Effort;
use self::trace::Trace;
use crate::experiment::{ByteSize, Experiment, RunSpec};
use crate::program::{
    Figures, Output, Played, Program, Shared, check_cases, in_real_time, parameters,
};
use crate::record::RunError;

/// The sort of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// The lookups of creates, recorded on a set's file system, on the structures alone.
    Trace,
    /// A cell of one of the document's sets.
    Set,
    /// All sizes on a file system beyond the document.
    Curve,
    /// Instructions of an operation, by callgrind.
    Instructions,
}

/// What a case says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    part: Part,
    /// The set; its file system, unless `kind` names another one.
    set: Set,
    /// Names in each directory before.
    names: u64,
    /// Directories.
    dirs: u64,
    /// Tasks.
    tasks: u64,
    /// `ext3` or `ext4`, of curves.
    kind: String,
    /// Its features.
    features: String,
    /// Bytes of its blocks.
    block: ByteSize,
    /// Characters of the names before, at least: long ones fill a directory of many blocks with few
    /// names.
    name_len: usize,
    /// Each block of a directory lies apart from the one before.
    fragmented: bool,
    /// Quota, in a set that has it.
    quota: bool,
    /// Whose lookups the mount makes: `none` (ours), `2.6.32` or `3.10`.
    legacy_lookups: String,
    /// Creates of a trace.
    operations: u64,
    /// Operations that are counted by callgrind.
    files: u64,
    /// How long a cell is measured: it ends when all its intervals are narrower than half a per
    /// cent, or when this is used up.
    turns: Effort,
    /// How long a cell of several tasks is measured with all of them at once.
    at_once: Effort,
    /// How long a curve is measured.
    curve: Effort,
}

impl Parameters {
    fn setup(&self) -> Setup {
        match self.part {
            Part::Curve => Setup {
                kind: self.kind.clone(),
                features: self.features.clone(),
                block: self.block.0 as u32,
                acl: false,
                label: false,
                names: self.names,
                dirs: 1,
                name_len: 0,
                fragmented: false,
            },
            _ => self.set.setup(Shape {
                names: self.names,
                dirs: self.dirs,
                name_len: self.name_len,
                fragmented: self.fragmented,
                quota: self.quota,
            }),
        }
    }
}

impl Parameters {
    fn cell(&self) -> Result<Cell, String> {
        let curve = self.part == Part::Curve;
        Ok(Cell {
            by_path: self.set.by_path() && !curve,
            dirs: if curve { 1 } else { self.dirs },
            tasks: self.tasks,
            legacy: self.legacy_lookups.parse()?,
        })
    }
}

/// The structures in front of the buffer cache, on ext4 in memory.
struct BhLruRuns<'a> {
    experiment: &'a Experiment,
    bases: Shared<Setup, Base>,
}

/// The program for an experiment.
///
/// # Errors
/// A case or a variant that is none for this program.
pub fn new(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    check_cases::<Parameters>(experiment)?;
    let file = &experiment.file;
    file.variant.keys().try_for_each(|name| Variant::of(name).map(drop))?;
    match file.case.iter().find(|(_, case)| !case.measured) {
        Some((name, _)) => Err(format!("case {name}: it is `measured`")),
        // A large directory is gigabytes: one image at a time.
        None => Ok(Box::new(BhLruRuns { experiment, bases: Shared::new(1) })),
    }
}

impl BhLruRuns<'_> {
    fn base(&self, plan: &Parameters) -> Result<Arc<Base>, String> {
        let setup = plan.setup();
        self.bases.get(setup.clone(), || in_real_time(|cx| Base::make(cx, &setup)))
    }

    fn figures(&self, spec: &RunSpec) -> Result<Vec<Figures>, String> {
        let plan = parameters::<Parameters>(&spec.key.case, &spec.with)?;
        let names = spec.turns.iter().map(|name| Variant::of(name));
        let variants = names.collect::<Result<Vec<_>, _>>()?;
        match plan.part {
            Part::Trace => {
                let base = self.base(&plan)?;
                let cell = plan.cell()?;
                in_real_time(|cx| {
                    let bed = base.mount(cx, cell.legacy)?;
                    let trace = Trace::record(cx, &bed, &cell, plan.operations)?;
                    bed.end(cx)?;
                    trace.replay(cx, &variants)
                })
            }
            Part::Instructions => {
                let amount = Amount { names: plan.names, files: plan.files };
                let rows = instructions::count_in_command(plan.set, amount)?;
                Ok(instructions::figures(&rows, &variants))
            }
            Part::Set | Part::Curve => {
                let base = self.base(&plan)?;
                let curve = plan.part == Part::Curve;
                let cell = plan.cell()?;
                let measure = Measure {
                    cell: &cell,
                    variants: &variants,
                    with_all: !curve,
                    effort: if curve { plan.curve } else { plan.turns },
                    at_once: (plan.tasks > 1).then_some(plan.at_once),
                };
                in_real_time(|cx| measure.run(cx, &base))
            }
        }
    }
}

impl Program for BhLruRuns<'_> {
    fn figures(&self) -> Vec<String> {
        let phase = [
            "ns",
            "lookups",
            "misses",
            "compares",
            "ours_to_it",
            "to_best",
            "at_once_ns",
            "instructions",
            "instructions_to_8",
        ];
        let own = [
            "pinned_kib",
            "slices",
            "trace_lookups",
            "trace_hit_percent",
            "trace_misses",
            "trace_compares",
            "trace_ns",
            "as_naive_list",
            "miss_ns",
            "misses_to_8",
        ];
        let foretold = trace::COSTS.map(|cost| format!("foretold_{cost}"));
        let variants = self.experiment.file.variant.keys();
        let to = variants.flat_map(|name| [format!("to_{name}"), format!("at_once_to_{name}")]);
        let of_phase: Vec<String> = to.chain(phase.map(str::to_owned)).collect();
        let all = PHASES.iter().flat_map(|what| of_phase.iter().map(move |name| (what, name)));
        all.map(|(what, name)| format!("{what}_{name}"))
            .chain(own.map(str::to_owned))
            .chain(foretold)
            .collect()
    }

    fn traces(&self) -> bool {
        false
    }

    fn run(&self, spec: &RunSpec, _keep_trace: bool) -> Result<Vec<Output>, RunError> {
        let all = self.figures(spec).map_err(|what| RunError::of(spec.key.to_string(), what))?;
        let record = |(variant, figures): (&String, Figures)| {
            Output::of(figures.record(self.experiment, spec, variant, Played::default()))
        };
        Ok(spec.turns.iter().zip(all).map(record).collect())
    }
}
