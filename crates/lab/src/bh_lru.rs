//! The experiment `bh-lru`: "[PATCH] Allow increasing the buffer-head per-CPU LRU size",
//! Sebastien Buisson and others, July 2014, and what the thread asks beyond it.
//!
//! It is *measured*: real ext4 on a device in memory, in real time. The variants (8 entries, 16
//! entries, our sets) take turns in slices of a tenth of a millisecond on one mount in one process,
//! of which only the structure is exchanged. The basis is the CPU time of the tasks, which a busy
//! machine changes little; neighbouring slices give the ratios of the variants, a cell is their
//! trimmed mean with an interval.
//!
//! The counts (lookups, misses, compares, hits by depth) are exact and explain the signs. It has
//! its own file of cells instead of a TOML file, because nothing in it is modelled.

mod bed;
mod cell;
mod curve;
pub mod instructions;
mod published;
mod report;
mod slices;
mod summary;
mod trace;

pub use bed::{Counts, Setup, Variant};
pub use cell::{AtOnce, Cell, Change, Outcome, PHASES};
pub use curve::{Curve, CurvePoint};
pub use published::{Published, Set};
pub use report::Report;
pub use slices::Effort;
pub use trace::{Trace, TraceRow};

use crate::experiment::Size;
use rt::Cx;

/// Its name.
pub const NAME: &str = "bh-lru";

/// Its parts, each of which can be run alone: the document's lookups on the structures, its four
/// sets, and all sizes as curves.
pub const CASES: &[&str] = &["traces", "a", "b", "c", "d", "curves"];

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Parts that are run, of [`CASES`].
    pub cases: Vec<&'static str>,
    /// Names that a shared directory has before (sets a and b).
    pub sizes: Vec<u64>,
    /// Tasks of sets a and b.
    pub tasks: Vec<u64>,
    /// Threads of set c.
    pub threads: Vec<u64>,
    /// Directories and threads of set d.
    pub dirs: Vec<u64>,
    /// Names in all directories of sets c and d before.
    pub names: u64,
    /// How long a cell is measured: it ends when all its intervals are narrower than half a per
    /// cent, or when this is used up; those that are wider than 1 % then are said to be.
    pub cells: Effort,
    /// How long a cell of several tasks is measured with all of them at once.
    pub at_once: Effort,
    /// How long a curve is measured.
    pub curves: Effort,
    /// Sizes of the curves; none where there are no curves.
    pub curve_sizes: Vec<usize>,
    /// Operations of a trace.
    pub trace_operations: u64,
}

/// Of tasks that take turns: as short as the clock allows.
const SLICES: Effort =
    Effort { slice: 32, groups: 16, rounds_min: 16, rounds_max: 16384, cpu_millis: 0 };
/// Of tasks at once: long enough that the threads run side by side.
const LONG_SLICES: Effort =
    Effort { slice: 256, groups: 2, rounds_min: 6, rounds_max: 16384, cpu_millis: 0 };

impl Plan {
    /// What fits in half a minute in a release build, or everything.
    pub fn of(size: Size) -> Plan {
        match size {
            Size::Quick => Plan {
                cases: CASES.to_vec(),
                sizes: vec![0, 100_000],
                tasks: vec![1, 8],
                threads: vec![1, 4, 16],
                dirs: vec![4, 16],
                names: 50_000,
                cells: Effort { cpu_millis: 1100, ..SLICES },
                at_once: Effort { cpu_millis: 400, ..LONG_SLICES },
                curves: Effort { cpu_millis: 900, ..SLICES },
                curve_sizes: vec![8, 12, 16, 24, 32, 48, 64],
                trace_operations: 20_000,
            },
            Size::Full => Plan {
                cases: CASES.to_vec(),
                sizes: vec![0, 100_000, 500_000, 2_000_000, 5_000_000, 10_000_000],
                tasks: vec![1, 8],
                threads: vec![1, 2, 4, 8, 16],
                dirs: vec![4, 8, 16],
                names: 1_000_000,
                cells: Effort { cpu_millis: 10_000, ..SLICES },
                at_once: Effort { cpu_millis: 10_000, ..LONG_SLICES },
                curves: Effort { cpu_millis: 10_000, ..SLICES },
                curve_sizes: vec![8, 12, 16, 24, 32, 48, 64],
                trace_operations: 200_000,
            },
        }
    }

    /// The same with these parts alone; all of them where none is named.
    ///
    /// # Errors
    /// A sentence that names what is no part.
    pub fn only(mut self, names: &[String]) -> Result<Plan, String> {
        if let Some(wrong) = names.iter().find(|name| !CASES.contains(&name.as_str())) {
            return Err(format!("no case `{wrong}`: there are {}", CASES.join(", ")));
        }
        if !names.is_empty() {
            self.cases.retain(|case| names.iter().any(|name| name == case));
        }
        Ok(self)
    }

    fn has(&self, case: &str) -> bool {
        self.cases.contains(&case)
    }

    /// As little as shows that everything runs.
    pub fn tiny() -> Plan {
        let amount = Effort { slice: 8, groups: 2, rounds_min: 2, rounds_max: 2, cpu_millis: 0 };
        Plan {
            cases: CASES.to_vec(),
            sizes: vec![0, 600],
            tasks: vec![1, 2],
            threads: vec![1, 2],
            dirs: vec![2],
            names: 400,
            cells: amount,
            at_once: amount,
            curves: amount,
            curve_sizes: vec![8, 16],
            trace_operations: 600,
        }
    }
}

/// Runs the experiment. May park; takes real time. `say` is told what is being done.
///
/// # Errors
/// A sentence on what failed.
pub fn run(cx: &mut Cx, plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Report, String> {
    let mut report = Report::empty(plan);
    if plan.has("traces") {
        say("traces of the document");
        report.traces = trace::all(cx, plan)?;
    }
    shared_directories(cx, plan, &mut report, say)?;
    if plan.has("d") {
        for &dirs in &plan.dirs {
            let names = plan.names / dirs;
            let base = bed::Base::make(cx, &Set::D.setup(names), dirs)?;
            let cell = Cell { set: Set::D, names, dirs, tasks: dirs };
            say(&cell.title());
            report.outcomes.push(cell::measure(cx, plan, &base, &cell)?);
        }
    }
    if plan.has("curves") && !plan.curve_sizes.is_empty() {
        for curve in curve::all() {
            say(&format!("curve: {}", curve.title));
            report.curves.push(curve::measure(cx, plan, curve)?);
        }
    }
    Ok(report)
}

/// Sets (a), (b) and (c).
fn shared_directories(
    cx: &mut Cx,
    plan: &Plan,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mdtest = plan.sizes.iter().flat_map(|&names| [(Set::A, names), (Set::B, names)]);
    let survey = std::iter::once((Set::C, plan.names));
    for (set, names) in mdtest.chain(survey) {
        if !plan.has(set.case()) {
            continue;
        }
        say(&format!("({}): a directory of {names} names is filled", set.letter()));
        let base = bed::Base::make(cx, &set.setup(names), 1)?;
        for &tasks in if set == Set::C { &plan.threads } else { &plan.tasks } {
            let cell = Cell { set, names, dirs: 1, tasks };
            say(&cell.title());
            report.outcomes.push(cell::measure(cx, plan, &base, &cell)?);
        }
    }
    Ok(())
}
