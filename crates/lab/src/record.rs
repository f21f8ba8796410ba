//! The record of a run: one JSON line.

pub mod lines;
mod made;

pub use made::{Build, Made, host};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::digest;
use crate::experiment::RunKey;

/// Version of the lines and of the report's JSON.
pub const SCHEMA: u32 = 2;

/// The outcome of one run. Equal experiments, keys and programs give equal records.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Digest of its text.
    pub digest: String,
    /// What made the record.
    pub made: Made,
    /// Which run.
    pub key: RunKey,
    /// Simulated seconds from the start of the workloads to their end.
    pub seconds: f64,
    /// The hash over every decision and event of the world; empty where it was measured.
    pub event_hash: String,
    /// The metrics by name; one that could not be had is missing, and a note says why.
    pub values: BTreeMap<String, f64>,
    /// How sure the metrics are that come from many pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spreads: BTreeMap<String, Spread>,
    /// Everything that was counted, by name.
    pub counts: BTreeMap<String, f64>,
    /// Nanoseconds in which the device had nothing to do, by cause.
    pub idle_ns: BTreeMap<IdleCause, u64>,
    /// What a reader of the figures must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// A checksum of all the above, so that a figure that was changed by hand is not taken for one
    /// that was found. It is no signature.
    #[serde(default)]
    pub sum: String,
}

impl RunRecord {
    fn checksum(&self) -> String {
        let bare = RunRecord { sum: String::new(), ..self.clone() };
        let text = serde_json::to_string(&bare).unwrap_or_default();
        format!("{:016x}", digest(text.as_bytes()))
    }

    /// Notes what made it, and sets the checksum.
    pub fn seal(&mut self, made: Made) {
        self.made = made;
        self.sum = self.checksum();
    }

    /// Whether it is as it was sealed.
    pub fn is_whole(&self) -> bool {
        self.sum == self.checksum()
    }
}

/// A figure of many pairs within one run: 95 % of it, in its unit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Pairs.
    pub pairs: usize,
}

/// Why the device has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleCause {
    /// The elevator idles for one queue while requests of others wait.
    IdlingOthersWait,
    /// The elevator idles for one queue, and nothing waits.
    IdlingNothingWaits,
    /// Requests wait for another reason: a draining barrier, a plug, a command in preparation.
    HeldOtherwise,
    /// No request is there: the tasks compute or sleep.
    NothingQueued,
}

impl IdleCause {
    /// All of them.
    pub const ALL: [IdleCause; 4] = [
        IdleCause::IdlingOthersWait,
        IdleCause::IdlingNothingWaits,
        IdleCause::HeldOtherwise,
        IdleCause::NothingQueued,
    ];

    /// In words.
    pub fn title(self) -> &'static str {
        match self {
            IdleCause::IdlingOthersWait => "elevator idles, others wait",
            IdleCause::IdlingNothingWaits => "elevator idles, nothing waits",
            IdleCause::HeldOtherwise => "requests wait otherwise (drain)",
            IdleCause::NothingQueued => "no request is there",
        }
    }
}

/// What the pictures of a run need.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Detail {
    /// Names of the I/O contexts that appear.
    pub tasks: BTreeMap<u64, String>,
    /// Some requests from the middle of the run, in the order of their dispatch.
    pub timeline: Vec<Shown>,
    /// Idle periods in the same span: from, until (ns), owner.
    pub idles: Vec<(u64, u64, u64)>,
    /// Series over the whole run.
    pub series: Vec<Series>,
    /// Distributions of latencies.
    pub latencies: Vec<Latency>,
}

/// A request of the time line. Times in nanoseconds of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// When it came to the elevator.
    pub queued: u64,
    /// When it went to the device.
    pub dispatched: u64,
    /// When it was done.
    pub completed: u64,
    /// Its first sector.
    pub sector: u64,
    /// Its sectors.
    pub count: u64,
    /// The I/O context that issued it.
    pub ioc: u64,
    /// It is a write.
    pub write: bool,
    /// It counts as synchronous.
    pub sync: bool,
}

/// A rate over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Nanoseconds from one value to the next.
    pub step_ns: u64,
    /// The values, each the mean of its step.
    pub values: Vec<f64>,
}

/// Latencies in buckets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Whose.
    pub name: String,
    /// Upper end of a bucket in ns, how many lie in it; ascending.
    pub buckets: Vec<(u64, u64)>,
}

/// A run could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The experiment's program, or its machine.
    #[error("{0}")]
    Machine(String),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] crate::experiment::ExperimentError),
    /// Something failed inside the world.
    #[error("{run}: {what}")]
    World {
        /// Which run.
        run: String,
        /// What failed.
        what: String,
    },
    /// An option that has no meaning for the experiment.
    #[error("{0}")]
    Option(String),
    /// Lines of results could not be read, written or merged.
    #[error("{0}")]
    Lines(String),
}

impl RunError {
    /// A failure inside of a run.
    pub fn of(run: String, what: String) -> RunError {
        RunError::World { run, what }
    }
}
