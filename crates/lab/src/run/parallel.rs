//! Many runs on all processors.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use block::TraceEvent;
use block::trace::ProcessNames;
use model::Profile;
use rayon::prelude::*;

use super::record::RunRecord;
use super::{BaseImage, Output, RunError, run_one};
use crate::experiment::{Experiment, Plan, RunKey, RunSpec};

/// What to run, and how.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The runs.
    pub plan: Plan,
    /// Runs at a time; 0 for one on each processor.
    pub jobs: usize,
    /// Only part `.0` (from 1) of `.1` parts.
    pub shard: Option<(usize, usize)>,
    /// Events of the first seed of each variant are handed to [`Progress::trace`].
    pub trace: bool,
}

/// Told what happens, from several threads.
pub trait Progress: Sync {
    /// So many runs will be done; so many simulated seconds.
    fn begin(&self, _runs: usize, _seconds: f64) {}
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

/// Images by file system, each made by whoever needs it first.
type Images = BTreeMap<String, OnceLock<Result<BaseImage, String>>>;

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
    let profile = Profile::load(experiment.file.machine.profile.get_ref());
    let profile = profile.map_err(|error| RunError::Machine(error.to_string()))?;
    let specs = part(experiment.runs(&options.plan)?, options.shard);
    let wanted: Vec<&RunKey> = specs.iter().map(|spec| &spec.key).collect();
    let mut records: Vec<RunRecord> =
        known.into_iter().filter(|record| wanted.contains(&&record.key)).collect();
    let mut open: Vec<&RunSpec> =
        specs.iter().filter(|spec| records.iter().all(|record| record.key != spec.key)).collect();
    progress.begin(open.len(), open.iter().map(|spec| spec.seconds).sum());
    // The longest first, so that none is left over at the end.
    open.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let images: Images =
        experiment.file.filesystem.keys().map(|name| (name.clone(), OnceLock::new())).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs).build();
    let pool = pool.map_err(|error| RunError::Machine(error.to_string()))?;
    let work = Work { experiment, profile: &profile, images: &images, options, progress, open };
    let done = pool.install(|| work.run(pool.current_num_threads()))?;
    records.extend(done);
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

/// Every n-th run, so that each part has some of every variant.
fn part(specs: Vec<RunSpec>, shard: Option<(usize, usize)>) -> Vec<RunSpec> {
    let Some((number, parts)) = shard else { return specs };
    let own = |index: usize| index % parts == number - 1;
    specs.into_iter().enumerate().filter(|(index, _)| own(*index)).map(|(_, spec)| spec).collect()
}

struct Work<'a> {
    experiment: &'a Experiment,
    profile: &'a Profile,
    images: &'a Images,
    options: &'a RunOptions,
    progress: &'a dyn Progress,
    open: Vec<&'a RunSpec>,
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
        let all: Vec<_> = (0..threads).into_par_iter().with_max_len(1).map(thread).collect();
        all.into_iter().flatten().collect()
    }

    fn one(&self, spec: &RunSpec) -> Result<RunRecord, RunError> {
        let name = &spec.key.filesystem;
        let image = self.images[name].get_or_init(|| BaseImage::make(self.experiment, name));
        let image = image.as_ref().map_err(|what| RunError::World {
            run: format!("image of {name}"),
            what: what.clone(),
        })?;
        let first = self.options.trace && spec.detail;
        let Output { record, trace, names } =
            run_one(self.experiment, spec, self.profile, image, first)?;
        if first {
            self.progress.trace(&spec.key, &trace, &names)?;
        }
        self.progress.done(&record)?;
        Ok(record)
    }
}
