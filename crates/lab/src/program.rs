//! How an experiment is run: by workloads, or by a Rust module.
//!
//! An experiment's file has the cases, variants, seeds, metrics, published cells and relations of
//! either sort. A [`Program`] does one run at a time, and gives a record for each variant that took
//! part in it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use block::TraceEvent;
use block::trace::ProcessNames;
use rt::{Cx, Runtime, SpinLock};
use serde::de::DeserializeOwned;

use crate::experiment::{Experiment, RunSpec, Size};
use crate::record::{RunError, RunRecord, SCHEMA, Spread};
use crate::stats::Change;

/// What a run gives for one variant.
pub struct Output {
    /// Its record.
    pub record: RunRecord,
    /// Its events, where they were asked for.
    pub trace: Vec<TraceEvent>,
    /// The names of the tasks in them.
    pub names: ProcessNames,
}

impl Output {
    /// A record without events.
    pub fn of(record: RunRecord) -> Output {
        Output { record, trace: Vec::new(), names: ProcessNames::default() }
    }
}

/// What does the runs of an experiment. Equal specifications give equal records, apart from what
/// was measured.
pub trait Program: Sync {
    /// Names of the figures that metrics may show.
    fn figures(&self) -> Vec<String>;

    /// Whether runs have events of the block layer to keep.
    fn traces(&self) -> bool;

    /// Does a run: an output for each of its variants, in their order. A measured case takes real
    /// time, and no other run is beside it.
    ///
    /// # Errors
    /// What failed, with the run's name.
    fn run(&self, spec: &RunSpec, keep_trace: bool) -> Result<Vec<Output>, RunError>;
}

/// What a run found for one variant.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    values: BTreeMap<String, f64>,
    spreads: BTreeMap<String, Spread>,
    notes: Vec<String>,
}

impl Figures {
    /// Sets a figure; one that is no number is left out.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.values.insert(name.into(), value);
        }
    }

    /// A figure that was set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// Sets several.
    pub fn set_all<'a>(&mut self, all: impl IntoIterator<Item = (&'a str, f64)>) {
        all.into_iter().for_each(|(name, value)| self.set(name, value));
    }

    /// Sets a change in percent with its interval. A note says how much is missing where the
    /// interval is wide.
    pub fn set_change(&mut self, name: &str, change: &Change) {
        self.set(name, change.percent);
        let (low, high) = (change.interval.low, change.interval.high);
        if low.is_finite() && high.is_finite() {
            self.spreads.insert(name.to_owned(), Spread { low, high, pairs: change.pairs });
        }
        if change.times_missing() > 1.0 && change.times_missing().is_finite() {
            let times = change.times_missing().ceil();
            self.notes.push(format!("{name}: {times} times as many pairs would be narrow"));
        }
    }

    /// The record of a variant: all figures as counts, and those that metrics name.
    pub fn record(
        self,
        experiment: &Experiment,
        spec: &RunSpec,
        variant: &str,
        world: Played,
    ) -> RunRecord {
        let metrics = &experiment.file.metric;
        let of = |name: &String| self.values.get(name).copied();
        let values = metrics
            .iter()
            .filter_map(|(name, metric)| Some((name.clone(), of(metric.value.get_ref())?)));
        let spreads = metrics.iter().filter_map(|(name, metric)| {
            Some((name.clone(), *self.spreads.get(metric.value.get_ref())?))
        });
        RunRecord {
            schema: SCHEMA,
            experiment: experiment.name.clone(),
            digest: experiment.digest.clone(),
            made: Default::default(),
            key: spec.key_of(variant),
            seconds: world.seconds,
            event_hash: world.event_hash,
            values: values.collect(),
            spreads: spreads.collect(),
            idle_ns: BTreeMap::new(),
            notes: self.notes.clone(),
            detail: None,
            sum: String::new(),
            counts: self.values.clone(),
        }
    }
}

/// The world of a run; of one in real time nothing.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Simulated seconds.
    pub seconds: f64,
    /// The hash over its events.
    pub event_hash: String,
}

/// Whether every case is one for the program, in both sizes.
///
/// # Errors
/// As [`parameters`].
pub fn check_cases<T: DeserializeOwned>(experiment: &Experiment) -> Result<(), String> {
    let sizes = |name| [Size::Quick, Size::Full].map(|size| (name, size));
    let mut all = experiment.file.case.keys().flat_map(sizes);
    all.try_for_each(|(name, size)| parameters::<T>(name, &experiment.with(name, size)).map(drop))
}

/// What the file says for a run, as the program's own type.
///
/// # Errors
/// A key that is not known, or a value that does not fit, with the case.
pub fn parameters<T: DeserializeOwned>(case: &str, with: &toml::Table) -> Result<T, String> {
    toml::Value::Table(with.clone()).try_into().map_err(|error: toml::de::Error| {
        format!("case {case}: {}", error.message().replace('\n', ", "))
    })
}

/// Values that several runs need: each is made once, by whoever needs it first.
pub struct Shared<K, V> {
    most: usize,
    made: SpinLock<BTreeMap<K, Arc<Made<V>>>>,
}

type Made<V> = OnceLock<Result<Arc<V>, String>>;

impl<K: Ord, V> Shared<K, V> {
    /// Keeps at most so many.
    pub fn new(most: usize) -> Shared<K, V> {
        Shared { most, made: SpinLock::named("lab shared", BTreeMap::new()) }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// What `make` said.
    pub fn get(&self, key: K, make: impl FnOnce() -> Result<V, String>) -> Result<Arc<V>, String> {
        let cell = {
            let mut made = self.made.lock_irq();
            if made.len() >= self.most && !made.contains_key(&key) {
                made.clear();
            }
            made.entry(key).or_default().clone()
        };
        cell.get_or_init(|| make().map(Arc::new)).clone()
    }
}

/// Runs `body` in real time, on all processors.
pub fn in_real_time<T>(body: impl FnOnce(&mut Cx) -> T) -> T {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    Runtime::real(cpus).enter("lab", body)
}
