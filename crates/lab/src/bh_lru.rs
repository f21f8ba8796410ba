//! The experiment `bh-lru`: "[PATCH] Allow increasing the buffer-head per-CPU LRU size",
//! Sebastien Buisson and others, July 2014, and what the thread asks beyond it.
//!
//! It is *measured*: real ext4 on a device in memory, in real time. The variants (8 entries, 16
//! entries, our sets) are mounts of forks of one image in one process, and take turns in every
//! round. The basis is the CPU time of the process, which a busy machine changes little; a round
//! gives the ratios of the variants, a cell is the median of its rounds with an interval.
//!
//! The counts (lookups, misses, compares, hits by depth) are exact and explain the signs. It has
//! its own file of cells instead of a TOML file, because nothing in it is modelled.

mod bed;
mod cell;
mod curve;
pub mod instructions;
mod published;
mod report;
mod trace;

pub use bed::{Counts, Setup, Variant};
pub use cell::{Cell, Change, Outcome, PHASES};
pub use curve::{Curve, CurvePoint};
pub use published::{Published, Set};
pub use report::Report;
pub use trace::{Trace, TraceRow};

use crate::experiment::Size;
use rt::Cx;

/// Its name.
pub const NAME: &str = "bh-lru";

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names that a shared directory has before (sets a and b).
    pub sizes: Vec<u64>,
    /// Tasks of sets a and b.
    pub tasks: Vec<u64>,
    /// Threads of set c.
    pub threads: Vec<u64>,
    /// Directories and threads of set d.
    pub dirs: Vec<u64>,
    /// Files of a phase in one round.
    pub files: u64,
    /// Names in the directory of sets c and d before.
    pub names: u64,
    /// Fewest rounds of a cell.
    pub rounds_min: usize,
    /// Most rounds: a cell whose interval is still wider than 1 % is said to be wide.
    pub rounds_max: usize,
    /// Sizes of the curves; none where there are no curves.
    pub curve_sizes: Vec<usize>,
    /// Operations of a trace.
    pub trace_operations: u64,
}

impl Plan {
    /// What fits in half a minute in a release build, or everything.
    pub fn of(size: Size) -> Plan {
        match size {
            Size::Quick => Plan {
                sizes: vec![0, 100_000],
                tasks: vec![1, 8],
                threads: vec![1, 4, 16],
                dirs: vec![4, 16],
                files: 2000,
                names: 50_000,
                rounds_min: 5,
                rounds_max: 7,
                curve_sizes: vec![8, 12, 16, 24, 32, 48, 64],
                trace_operations: 20_000,
            },
            Size::Full => Plan {
                sizes: vec![0, 100_000, 500_000, 2_000_000, 5_000_000, 10_000_000],
                tasks: vec![1, 8],
                threads: vec![1, 2, 4, 8, 16],
                dirs: vec![4, 8, 16],
                files: 20_000,
                names: 1_000_000,
                rounds_min: 7,
                rounds_max: 41,
                curve_sizes: vec![8, 12, 16, 24, 32, 48, 64],
                trace_operations: 200_000,
            },
        }
    }

    /// As little as shows that everything runs.
    pub fn tiny() -> Plan {
        Plan {
            sizes: vec![0, 600],
            tasks: vec![1, 2],
            threads: vec![1, 2],
            dirs: vec![2],
            files: 64,
            names: 400,
            rounds_min: 2,
            rounds_max: 2,
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
    say("traces of the document");
    let traces = trace::all(cx, plan)?;
    let mut outcomes = Vec::new();
    for &names in &plan.sizes {
        for set in [Set::A, Set::B] {
            let setup = set.setup(names);
            let base = bed::Base::make(cx, &setup, 1)?;
            for &tasks in &plan.tasks {
                let cell = Cell { set, names, dirs: 1, tasks };
                say(&cell.title());
                outcomes.push(cell::measure(cx, plan, &base, &cell)?);
            }
        }
    }
    let base = bed::Base::make(cx, &Set::C.setup(plan.names), 1)?;
    for &tasks in &plan.threads {
        let cell = Cell { set: Set::C, names: plan.names, dirs: 1, tasks };
        say(&cell.title());
        outcomes.push(cell::measure(cx, plan, &base, &cell)?);
    }
    drop(base);
    for &dirs in &plan.dirs {
        let base = bed::Base::make(cx, &Set::D.setup(plan.names), dirs)?;
        let cell = Cell { set: Set::D, names: plan.names, dirs, tasks: dirs };
        say(&cell.title());
        outcomes.push(cell::measure(cx, plan, &base, &cell)?);
    }
    let mut curves = Vec::new();
    if !plan.curve_sizes.is_empty() {
        for curve in curve::all() {
            say(&format!("curve: {}", curve.title));
            curves.push(curve::measure(cx, plan, curve)?);
        }
    }
    Ok(Report { plan: plan.clone(), traces, outcomes, curves, instructions: Vec::new() })
}
