//! The programs: what does the runs of an experiment that no workloads do.
//!
//! A new one is a module here, its line in [`PROGRAMS`], and a file in `experiments/` that says
//! `program = ..`.

pub mod bh_lru;
pub mod nfs_partial;
pub mod xfs_buf_item;

use crate::experiment::Experiment;
use crate::program::Program;
use crate::workloads::Workloads;

/// A program that an experiment may name.
struct Known {
    name: &'static str,
    new: fn(&Experiment) -> Result<Box<dyn Program + '_>, String>,
}

const PROGRAMS: &[Known] = &[
    Known { name: "bh-lru", new: bh_lru::new },
    Known { name: "nfs-partial", new: nfs_partial::new },
    Known { name: "xfs-buf-item", new: xfs_buf_item::new },
];

/// What does the runs of an experiment: the program that its file names, else the workloads.
///
/// # Errors
/// No such program; a case, a variant or a metric that is none for it.
pub fn of(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    let Some(name) = &experiment.file.program else {
        return Ok(Box::new(Workloads::new(experiment)?));
    };
    let name = name.get_ref();
    let Some(known) = PROGRAMS.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = PROGRAMS.iter().map(|known| known.name).collect();
        return Err(format!("no program `{name}`; there are: {}", names.join(", ")));
    };
    let program = (known.new)(experiment)?;
    let figures = program.figures();
    for (metric, one) in &experiment.file.metric {
        let value = one.value.get_ref();
        if !figures.contains(value) {
            let known = figures.join(", ");
            return Err(format!("metric {metric}: `{value}` is no figure; there are: {known}"));
        }
    }
    Ok(program)
}
