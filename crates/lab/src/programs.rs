//! The programs: what does the runs of an experiment.

use crate::bh_lru::{self, BhLruRuns};
use crate::experiment::Experiment;
use crate::nfs_partial::{self, NfsPartial};
use crate::program::Program;
use crate::workloads::Workloads;
use crate::xfs_buf_item::{self, XfsBufItem};

/// The names that `program = ..` may have.
const KNOWN: [&str; 3] = [bh_lru::NAME, nfs_partial::NAME, xfs_buf_item::NAME];

/// What does the runs of an experiment: the program that its file names, else the workloads.
///
/// # Errors
/// No such program; a case, a variant or a metric that is none for it.
pub fn of(experiment: &Experiment) -> Result<Box<dyn Program + '_>, String> {
    let Some(name) = &experiment.file.program else {
        return Ok(Box::new(Workloads::new(experiment)?));
    };
    let program: Box<dyn Program + '_> = match name.get_ref().as_str() {
        bh_lru::NAME => Box::new(BhLruRuns::new(experiment)?),
        nfs_partial::NAME => Box::new(NfsPartial::new(experiment)?),
        xfs_buf_item::NAME => Box::new(XfsBufItem::new(experiment)?),
        other => return Err(format!("no program `{other}`; there are: {}", KNOWN.join(", "))),
    };
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
