//! Experiments: a published table, the machine that it came from, and the runs that repeat it.
//!
//! ```text
//!   command `lab`                        a user's program
//!        |  names, seeds, jobs                |
//!   Experiment (a TOML file) -> runs -> records (JSON lines) -> Report (text, Markdown, JSON,
//! HTML)                                 |
//!   one world each: model, block, ext4, vfs, workload
//! ```
//!
//! A run is a pure function of (experiment, variant, workloads, seed), so runs fan out over
//! processors and machines, are resumed, and are merged in any order. What a report says of a cell:
//! published, obtained, their ratio, modelled or measured, calibrated or predicted, inside or
//! outside of its band. Nothing is tuned after the fact: a cell that does not fit is shown with
//! what the events say about it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod calibrate;
mod clock;
pub mod compare;
mod digest;
pub mod experiment;
pub mod program;
pub mod programs;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod search;
pub mod sensitivity;
pub mod stats;
mod workloads;

pub use experiment::{Experiment, ExperimentError, experiments};
pub use report::Report;
pub use run::{RunOptions, RunRecord, run_all};
