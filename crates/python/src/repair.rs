//! Repairing images, and undoing it.

use image::{Mistake, Plan};
use pyo3::prelude::*;

use crate::call;
use crate::make::open;
use crate::path::Given;

/// Rule, structure, what is wrong, what is done, what is lost by it, whether nothing is guessed.
type Found = (&'static str, String, String, String, Option<String>, bool);
/// The findings, what would stay wrong, the blocks that change, their bytes.
type Planned = (Vec<Found>, Vec<String>, usize, usize);

/// What a repair would do. Reads only.
#[pyfunction]
#[pyo3(signature = (path, partition))]
pub fn repair_plan(py: Python<'_>, path: Given, partition: Option<u32>) -> PyResult<Planned> {
    call::run(py, path.0.as_os_str(), || open(&path, false, partition)?.repair_plan()).map(planned)
}

/// Repairs an image; what changes is in the new file `undo`.
#[pyfunction]
#[pyo3(signature = (path, undo, partition))]
pub fn repair(
    py: Python<'_>,
    path: Given,
    undo: Given,
    partition: Option<u32>,
) -> PyResult<Planned> {
    call::run(py, path.0.as_os_str(), || open(&path, true, partition)?.repair(&undo.0)).map(planned)
}

/// Puts back what a repair changed.
#[pyfunction]
#[pyo3(signature = (path, undo, partition))]
pub fn undo(py: Python<'_>, path: Given, undo: Given, partition: Option<u32>) -> PyResult<()> {
    call::run(py, path.0.as_os_str(), || open(&path, true, partition)?.undo(&undo.0))
}

fn planned(plan: Plan) -> Planned {
    let found =
        |Mistake { rule, at, detail, action, loss, safe }| (rule, at, detail, action, loss, safe);
    let bytes = plan.changes.iter().map(|change| change.new.len()).sum();
    let blocks = plan.changes.len();
    (plan.findings.into_iter().map(found).collect(), plan.left, blocks, bytes)
}
