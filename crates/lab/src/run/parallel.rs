//! Many runs on all processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use block::TraceEvent;
use block::trace::ProcessNames;
use rayon::prelude::*;

use crate::digest::digest;
use crate::experiment::{Experiment, Plan, RunKey, RunSpec};
use crate::program::Program;
use crate::programs;
use crate::record::{Build, Made, RunError, RunRecord, host};

/// What to run, and how.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The runs.
    pub plan: Plan,
    /// Runs at a time; 0 for one on each processor.
    pub jobs: usize,
    /// Only a part of the runs.
    pub shard: Option<Shard>,
    /// Events of the first seed of each variant are handed to [`Progress::trace`].
    pub trace: bool,
    /// The build that the records name.
    pub build: Build,
}

impl RunOptions {
    /// What the records of an experiment name.
    ///
    /// # Errors
    /// The machine's profile cannot be read.
    pub fn made(&self, experiment: &Experiment) -> Result<Made, RunError> {
        let profile = experiment.profile().map_err(|error| RunError::Machine(error.to_string()))?;
        let machine = profile.map(|profile| format!("{:016x}", digest(profile.text.as_bytes())));
        Ok(Made { build: self.build.clone(), machine: machine.unwrap_or_default(), host: host() })
    }
}

/// One part of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which, from 1.
    pub number: usize,
    /// How many there are.
    pub parts: usize,
}

/// Hears what happens, from several threads.
pub trait Progress: Sync {
    /// So many records will be made.
    fn begin(&self, _records: usize) {}
    /// A run is done. An error ends the whole.
    ///
    /// # Errors
    /// Where the record cannot be kept.
    fn done(&self, _record: &RunRecord) -> Result<(), RunError> {
        Ok(())
    }
    /// The events of a run.
    ///
    /// # Errors
    /// Where they cannot be written.
    fn trace(
        &self,
        _key: &RunKey,
        _events: &[TraceEvent],
        _names: &ProcessNames,
    ) -> Result<(), RunError> {
        Ok(())
    }
}

/// Nobody listens.
impl Progress for () {}

/// Does the runs of the plan that are not among `known`, and answers all of them in the order of
/// their keys. What is done is the same with any number of jobs.
///
/// # Errors
/// The first failure; runs under way are finished, the rest is left out.
pub fn run_all(
    experiment: &Experiment,
    options: &RunOptions,
    known: Vec<RunRecord>,
    progress: &dyn Progress,
) -> Result<Vec<RunRecord>, RunError> {
    let program = programs::of(experiment).map_err(RunError::Machine)?;
    let specs = experiment.runs(&options.plan)?;
    refuse(experiment, options, &*program, &specs)?;
    let specs = part(specs, options.shard);
    let wanted: Vec<RunKey> = specs.iter().flat_map(RunSpec::keys).collect();
    let mut records: Vec<RunRecord> =
        known.into_iter().filter(|record| wanted.contains(&record.key)).collect();
    let known = |key: RunKey| records.iter().any(|record| record.key == key);
    let mut open: Vec<&RunSpec> = specs.iter().filter(|spec| !spec.keys().all(known)).collect();
    records.retain(|record| !open.iter().any(|spec| spec.keys().any(|key| key == record.key)));
    progress.begin(open.iter().map(|spec| spec.turns.len()).sum());
    // The longest first, so that none is left over at the end.
    open.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let (measured, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|spec| spec.measured);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs).build();
    let pool = pool.map_err(|error| RunError::Machine(error.to_string()))?;
    let work =
        Work { program: &*program, options, progress, open, made: options.made(experiment)? };
    records.extend(pool.install(|| work.run(pool.current_num_threads()))?);
    for spec in measured {
        records.extend(work.one(spec)?);
    }
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

/// What has no meaning for some runs is refused by name.
fn refuse(
    experiment: &Experiment,
    options: &RunOptions,
    program: &dyn Program,
    specs: &[RunSpec],
) -> Result<(), RunError> {
    let name = &experiment.name;
    if let (Some(_), Some(spec)) = (options.shard, specs.iter().find(|spec| spec.measured)) {
        return Err(RunError::Option(format!(
            "--shard: {name}, case {}: measured times of several machines do not belong into one \
             table; --case chooses cases that are not measured",
            spec.key.case
        )));
    }
    if options.trace && !program.traces() {
        let why = "its device is memory, which has no events to trace";
        return Err(RunError::Option(format!("--trace: {name}: {why}")));
    }
    Ok(())
}

/// Every n-th run, so that each part has some of every variant.
fn part(specs: Vec<RunSpec>, shard: Option<Shard>) -> Vec<RunSpec> {
    let Some(Shard { number, parts }) = shard else { return specs };
    let own = |index: usize| index % parts == number - 1;
    specs.into_iter().enumerate().filter(|(index, _)| own(*index)).map(|(_, spec)| spec).collect()
}

struct Work<'a> {
    program: &'a dyn Program,
    options: &'a RunOptions,
    progress: &'a dyn Progress,
    open: Vec<&'a RunSpec>,
    made: Made,
}

impl Work<'_> {
    /// Each thread takes the next run until none is left.
    fn run(&self, threads: usize) -> Result<Vec<RunRecord>, RunError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let thread = |_| {
            let mut done = Vec::new();
            while let Some(spec) = self.open.get(next.fetch_add(1, Ordering::Relaxed)) {
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let result = self.one(spec);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                done.push(result);
            }
            done
        };
        let all: Vec<Result<Vec<RunRecord>, RunError>> =
            (0..threads).into_par_iter().with_max_len(1).flat_map_iter(thread).collect();
        Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn one(&self, spec: &RunSpec) -> Result<Vec<RunRecord>, RunError> {
        let keep = self.options.trace && spec.detail;
        let mut records = Vec::new();
        for mut output in self.program.run(spec, keep)? {
            output.record.seal(self.made.clone());
            if keep {
                self.progress.trace(&output.record.key, &output.trace, &output.names)?;
            }
            self.progress.done(&output.record)?;
            records.push(output.record);
        }
        Ok(records)
    }
}
