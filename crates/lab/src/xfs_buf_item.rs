//! The experiment `xfs-buf-item`: "xfs: optimise xfs_buf_item_size/format for contiguous regions",
//! Dave Chinner, 2021, and what the thread leaves open.
//!
//! Three parts, told apart in the report:
//!
//! - *exact*: steps of both passes on the bitmaps alone, and counts of real creates and unlinks in
//!   virtual time, where the three variants make the same image, log included;
//! - *measured*: real XFS on a device in memory, in real time, the variants in turns in one
//!   process; the basis is the CPU time of the process. With the checks of the document's debug
//!   kernel and without;
//! - *modelled*: sixteen processors in virtual time, a step of a walk costs what the document's
//!   profile says.
//!
//! Each directory is in node form from the beginning, and every round starts from the same image.

mod bed;
mod measure;
mod model;
mod published;
mod report;
mod structure;

pub use bed::Way;
pub use measure::{Cell, Outcome, Share};
pub use model::{Modelled, Worlds};
pub use report::{Check, Report, Role};
pub use structure::{Steps, steps};

use crate::experiment::Size;
use rt::Cx;

/// Its name.
pub const NAME: &str = "xfs-buf-item";

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of directory blocks in bytes; the first is 4 KiB and the last 64 KiB.
    pub dir_blocks: Vec<u32>,
    /// Tasks that create and unlink.
    pub tasks: u64,
    /// Directories, which tasks share where there are fewer.
    pub dirs: u64,
    /// Names in each directory before: more than one leaf of 64 KiB has.
    pub names: u64,
    /// Files of all tasks together in one round.
    pub files: u64,
    /// Rounds of a measured cell.
    pub rounds: usize,
    /// Numbers of tasks that are compared beyond the document's sixteen.
    pub threads: Vec<u64>,
    /// Repetitions in the timing of bitmaps alone.
    pub repeats: u64,
}

impl Plan {
    /// What fits into a quarter of a minute in a release build, or everything.
    pub fn of(size: Size) -> Plan {
        match size {
            Size::Quick => Plan {
                dir_blocks: vec![4 << 10, 64 << 10],
                tasks: 16,
                dirs: 4,
                names: 8600,
                files: 3200,
                rounds: 5,
                threads: Vec::new(),
                repeats: 2000,
            },
            Size::Full => Plan {
                dir_blocks: vec![4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10],
                tasks: 16,
                dirs: 16,
                names: 12_000,
                files: 32_000,
                rounds: 9,
                threads: vec![1, 2, 4, 8, 32],
                repeats: 20_000,
            },
        }
    }

    /// As little as shows that everything runs.
    pub fn tiny() -> Plan {
        Plan {
            dir_blocks: vec![4 << 10, 64 << 10],
            tasks: 4,
            dirs: 1,
            names: 8300,
            files: 240,
            rounds: 1,
            threads: vec![2],
            repeats: 20,
        }
    }
}

/// Runs the experiment. May park; takes real time. `say` is told what is being done.
///
/// # Errors
/// A sentence on what failed.
pub fn run(cx: &mut Cx, plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Report, String> {
    say("bitmaps alone");
    let steps = steps(cx, plan.repeats);
    let mut bases = Vec::new();
    for &dir_block in &plan.dir_blocks {
        say(&format!("images with directory blocks of {} KiB", dir_block >> 10));
        bases.push(bed::Base::make(plan, dir_block)?);
    }
    let (first, last) = (&bases[0], &bases[bases.len() - 1]);
    say("counts, and sixteen processors in virtual time");
    let worlds = model::run(plan, [first, last])?;
    let mut outcomes = Vec::new();
    for debug in [true, false] {
        for base in &bases {
            let cell = Cell { dir_block: base.dir_block, tasks: plan.tasks, debug };
            say(&cell.title());
            outcomes.push(measure::measure(cx, plan, base, &cell)?);
        }
    }
    let mut threads = Vec::new();
    for &tasks in &plan.threads {
        for base in [first, last] {
            let cell = Cell { dir_block: base.dir_block, tasks, debug: false };
            say(&cell.title());
            threads.push(measure::measure(cx, plan, base, &cell)?);
        }
    }
    let profile = measure::profile(cx, plan, last)?;
    Ok(Report::build(plan.clone(), steps, worlds, outcomes, threads, profile))
}
