//! Runs: from (experiment, variant, workloads, seed) to a record, as a pure function.
//!
//! ```text
//!   profile -> memory -> modelled device -> queue (elevator, tunables, flags, trace)
//!           -> ext3 or ext4, made and laid out before the clock starts -> mount -> namespace
//!           -> workloads as tasks, for a simulated time -> record
//! ```
//!
//! The image of a file system is made once for each experiment and forked for each run: a fork
//! shares pages until they are written.

mod base_image;
mod collect;
mod figures;
mod forget;
pub mod lines;
pub(crate) mod loads;
pub(crate) mod mount;
mod parallel;
pub mod record;
mod world;

pub use base_image::BaseImage;
pub use parallel::{Progress, RunOptions, run_all};
pub use record::{Detail, IdleCause, Latency, RunRecord, SCHEMA, Series, Shown};
pub use world::{Output, run_one};

/// A run could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The machine's profile.
    #[error("machine: {0}")]
    Machine(String),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] crate::ExperimentError),
    /// Something failed inside the world.
    #[error("{run}: {what}")]
    World {
        /// Which run.
        run: String,
        /// What failed.
        what: String,
    },
    /// Lines of results could not be read, written or merged.
    #[error("{0}")]
    Lines(String),
}
