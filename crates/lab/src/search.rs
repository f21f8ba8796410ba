//! Which plausible machine comes nearest to all published cells at once: a search over what the
//! document does not say.
//!
//! A machine is a choice of one value for each unknown. The first one is the experiment's own; then
//! some are drawn, and some come from the best so far with one or two choices changed. For each,
//! every published cell is run, and its error is the logarithm of obtained over published. No
//! machine found becomes a default: what is shown is how near any of them comes, and in which cells
//! none does.

use std::collections::BTreeMap;

use base::Rng;
use rayon::prelude::*;
use serde::Serialize;

use crate::experiment::{CellName, Experiment, Plan, RunSpec, Search, SeedRange};
use crate::program::Program;
use crate::programs;
use crate::record::{RunError, RunRecord};
use crate::report::{Align, TextTable, number};

/// How much is searched.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Machines that are tried.
    pub tries: usize,
    /// Where the random choices begin.
    pub seed: u64,
    /// Runs at a time; 0 for one a processor.
    pub jobs: usize,
}

/// A machine that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// The file system.
    pub filesystem: String,
    /// What is different from the experiment's own: its title, with the value and its unit.
    pub changes: Vec<String>,
    /// The published cells, obtained.
    pub cells: Vec<f64>,
    /// The cell beside them.
    pub beside: Option<f64>,
    /// Root mean square of the logarithms, as a factor.
    pub typical: f64,
    /// The largest of them, as a factor.
    pub worst: f64,
    /// The choice of each unknown: its own value, or one of the list.
    #[serde(skip)]
    choice: Vec<Option<usize>>,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The published cells.
    pub names: Vec<String>,
    /// What they are there.
    pub published: Vec<f64>,
    /// All machines, the nearest first.
    pub tried: Vec<Tried>,
}

/// Less than so much counts as so much: a starved writer has no logarithm.
const LEAST: f64 = 0.05;
/// Of the best so many are changed.
const PARENTS: usize = 6;
/// Machines that are tried at a time.
const BATCH: usize = 8;

/// Searches.
///
/// # Errors
/// The experiment has no `[search]`; a run fails.
pub fn search(
    experiment: &Experiment,
    effort: Effort,
    say: &dyn Fn(usize, &Tried),
) -> Result<Found, RunError> {
    let file = &experiment.file;
    let none = || RunError::Option(format!("{}: it has no [search]", experiment.name));
    let search = file.search.as_ref().ok_or_else(none)?;
    let program = programs::of(experiment).map_err(RunError::Machine)?;
    let job = Job { experiment, search, program: &*program, specs: specs(experiment, search)? };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(effort.jobs).build();
    let pool = pool.map_err(|error| RunError::Machine(error.to_string()))?;
    let mut rng = Rng::new(effort.seed, 0);
    let mut tried: Vec<Tried> = Vec::new();
    while tried.len() < effort.tries {
        let room = BATCH.min(effort.tries - tried.len());
        let choices: Vec<Choice> =
            (0..room).map(|place| job.choose(&mut rng, &tried, place)).collect();
        let all: Vec<Result<Tried, RunError>> =
            pool.install(|| choices.into_par_iter().map(|choice| job.play(choice)).collect());
        for one in all {
            let one = one?;
            say(tried.len() + 1, &one);
            tried.push(one);
        }
        tried.sort_by(|a, b| a.typical.total_cmp(&b.typical));
        tried.dedup_by(|a, b| a.changes == b.changes && a.filesystem == b.filesystem);
        if job.is_small() && tried.len() >= job.size() {
            break;
        }
    }
    let names = file.cell.iter().map(|cell| cell.cell.get_ref().to_string()).collect();
    let published = file.cell.iter().map(|cell| cell.published).collect();
    Ok(Found { names, published, tried })
}

struct Choice {
    filesystem: String,
    values: Vec<Option<usize>>,
}

struct Job<'a> {
    experiment: &'a Experiment,
    search: &'a Search,
    program: &'a dyn Program,
    /// The runs by file system.
    specs: BTreeMap<String, Vec<RunSpec>>,
}

/// The runs that give the published cells, on each file system.
fn specs(
    experiment: &Experiment,
    search: &Search,
) -> Result<BTreeMap<String, Vec<RunSpec>>, RunError> {
    let cells: Vec<&CellName> =
        experiment.file.cell.iter().map(|cell| cell.cell.get_ref()).collect();
    let seed = experiment.file.seeds.quick.first;
    let mut all = BTreeMap::new();
    for filesystem in &search.filesystems {
        let plan = Plan {
            filesystems: vec![filesystem.get_ref().clone()],
            seeds: Some(SeedRange { first: seed, last: seed }),
            no_sweeps: true,
            ..Plan::default()
        };
        let mut specs = experiment.runs(&plan)?;
        specs.retain(|spec| {
            let key = &spec.key;
            cells.iter().any(|cell| cell.variant == key.variant && cell.case == key.case)
        });
        for spec in &mut specs {
            spec.seconds = search.seconds.get(&spec.key.case).copied().unwrap_or(spec.seconds);
            spec.detail = false;
        }
        all.insert(filesystem.get_ref().clone(), specs);
    }
    Ok(all)
}

impl Job<'_> {
    /// Machines in all.
    fn size(&self) -> usize {
        let values = self.search.unknown.iter().map(|one| one.values.len() + 1);
        values.fold(self.search.filesystems.len(), usize::saturating_mul)
    }

    fn is_small(&self) -> bool {
        self.size() < 100_000
    }

    /// The next machine: at first that of the experiment, on each file system.
    fn choose(&self, rng: &mut Rng, tried: &[Tried], place: usize) -> Choice {
        let names: Vec<&String> = self.specs.keys().collect();
        let unknown = &self.search.unknown;
        if tried.is_empty() && place < names.len() {
            return Choice { filesystem: names[place].clone(), values: vec![None; unknown.len()] };
        }
        if !tried.is_empty() && rng.chance(0.6) {
            let best = &tried[rng.below(tried.len().min(PARENTS) as u64) as usize];
            let mut values = best.choice.clone();
            for _ in 0..=rng.below(2) {
                let which = rng.below(unknown.len() as u64) as usize;
                values[which] = draw(rng, unknown[which].values.len());
            }
            return Choice { filesystem: best.filesystem.clone(), values };
        }
        let filesystem = rng.pick(&names).to_string();
        let one = |unknown: &crate::experiment::Unknown| match rng.chance(0.35) {
            true => draw(rng, unknown.values.len()),
            false => None,
        };
        let values = unknown.iter().map(one).collect();
        Choice { filesystem, values }
    }

    fn play(&self, choice: Choice) -> Result<Tried, RunError> {
        let mut records = Vec::new();
        for spec in &self.specs[&choice.filesystem] {
            let mut spec = spec.clone();
            for (unknown, value) in self.search.unknown.iter().zip(&choice.values) {
                if let Some(value) = value {
                    spec.set(&unknown.vary, unknown.values[*value], &unknown.unit);
                }
            }
            records.extend(self.program.run(&spec, false)?.into_iter().map(|one| one.record));
        }
        let cells = &self.experiment.file.cell;
        let obtained = cells.iter().map(|cell| figure(&records, cell.cell.get_ref()));
        let obtained: Vec<f64> = obtained.map(|one| one.unwrap_or(0.0)).collect();
        let logs: Vec<f64> = cells
            .iter()
            .zip(&obtained)
            .map(|(cell, got)| (got.max(LEAST) / cell.published.max(LEAST)).ln().abs())
            .collect();
        let squares: f64 = logs.iter().map(|log| log * log).sum();
        let beside = self.search.beside.as_ref().and_then(|cell| figure(&records, cell.get_ref()));
        let change = |(unknown, value): (&crate::experiment::Unknown, &Option<usize>)| {
            let value = unknown.values[(*value)?];
            Some(format!("{} {value} {}", unknown.title, unknown.unit).trim_end().to_owned())
        };
        let changes = self.search.unknown.iter().zip(&choice.values).filter_map(change).collect();
        Ok(Tried {
            filesystem: choice.filesystem,
            changes,
            cells: obtained,
            beside,
            typical: (squares / logs.len().max(1) as f64).sqrt().exp(),
            worst: logs.iter().copied().fold(0.0, f64::max).exp(),
            choice: choice.values,
        })
    }
}

/// The experiment's own value, or one of the list.
fn draw(rng: &mut Rng, values: usize) -> Option<usize> {
    (rng.below(values as u64 + 1) as usize).checked_sub(1)
}

fn figure(records: &[RunRecord], cell: &CellName) -> Option<f64> {
    let own = |run: &&RunRecord| run.key.variant == cell.variant && run.key.case == cell.case;
    records.iter().find(own).and_then(|run| run.values.get(&cell.metric)).copied()
}

impl Found {
    /// The machines that no other one beats both in the typical and in the worst error.
    pub fn frontier(&self) -> Vec<&Tried> {
        let beaten = |one: &Tried| {
            self.tried.iter().any(|other| {
                let both = other.typical <= one.typical && other.worst <= one.worst;
                both && (other.typical < one.typical || other.worst < one.worst)
            })
        };
        self.tried.iter().filter(|one| !beaten(one)).collect()
    }

    /// The experiment's own machine on each file system, then the frontier, then the nearest.
    fn rows(&self, nearest: usize) -> Vec<(&'static str, &Tried)> {
        let own = self.tried.iter().filter(|one| one.changes.is_empty());
        let mut rows: Vec<(&'static str, &Tried)> = own.map(|one| ("as it is", one)).collect();
        let frontier = self.frontier().into_iter().map(|one| ("frontier", one));
        let near = self.tried.iter().take(nearest).map(|one| ("near", one));
        for (what, one) in frontier.chain(near) {
            if !rows.iter().any(|(_, known)| std::ptr::eq(*known, one)) {
                rows.push((what, one));
            }
        }
        rows
    }

    /// A row for each machine, and the document's; `beside` heads the cell beside them.
    pub fn table(&self, beside: &str, nearest: usize) -> TextTable {
        use Align::{Left, Right};
        let short =
            |name: &String| name.trim_end_matches(".files").trim_end_matches(".read").to_owned();
        let heads: Vec<String> = self.names.iter().map(short).collect();
        let mut columns = vec![("machine", Left), ("typical", Right), ("worst", Right)];
        columns.extend(heads.iter().map(|head| (head.as_str(), Right)));
        columns.push((beside, Right));
        columns.push(("what is different", Left));
        let mut table = TextTable::new(columns);
        let cells = self.published.iter().map(|&value| number(value, 1));
        let head = ["the document".to_owned(), String::new(), String::new()];
        table.row(head.into_iter().chain(cells));
        for (what, one) in self.rows(nearest) {
            let head = [
                format!("{what}, {}", one.filesystem),
                format!("x {:.2}", one.typical),
                format!("x {:.2}", one.worst),
            ];
            let cells = one.cells.iter().map(|&value| number(value, 1));
            let beside = one.beside.map_or("-".to_owned(), |value| number(value, 2));
            let changes = if one.changes.is_empty() { "-".into() } else { one.changes.join("; ") };
            table.row(head.into_iter().chain(cells).chain([beside, changes]));
        }
        table
    }

    /// In which cells no machine comes nearer than by that factor.
    pub fn unreached(&self, factor: f64) -> Vec<String> {
        let near = |place: usize| {
            let ratios = self.tried.iter().map(|one| {
                (one.cells[place].max(LEAST) / self.published[place].max(LEAST)).ln().abs().exp()
            });
            ratios.fold(f64::INFINITY, f64::min)
        };
        let cells = self.names.iter().enumerate();
        let far = cells.map(|(place, name)| (name, near(place)));
        far.filter(|(_, near)| *near > factor)
            .map(|(name, near)| format!("{name} (x {near:.2})"))
            .collect()
    }
}
