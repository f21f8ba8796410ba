//! The runs of a plan: on all processors, in parts, and those that are known left out.

mod parallel;

pub use crate::program::Output;
pub use crate::record::{
    Build, Detail, IdleCause, Latency, Made, RunError, RunRecord, SCHEMA, Series, Shown, Spread,
    lines,
};
pub use parallel::{Progress, RunOptions, Shard, run_all};
