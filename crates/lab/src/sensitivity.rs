//! What a headline depends on: each fitted constant of the machine is moved up and down, and the
//! headline is run again.

use serde::Serialize;

use crate::experiment::{CellName, Experiment, Plan, SeedRange};
use crate::record::{RunError, RunRecord};
use crate::report::{Align, TextTable, number};
use crate::run::{RunOptions, run_all};

/// A cell with a constant as it is, and moved.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The constant, as its section and key in the profile.
    pub constant: String,
    /// Its value there.
    pub value: String,
    /// The cell.
    pub cell: String,
    /// Its unit.
    pub unit: String,
    /// Decimals to show.
    #[serde(skip)]
    decimals: usize,
    /// The figure with less, as it is, and with more of the constant.
    pub figures: [Option<f64>; 3],
}

impl Line {
    /// The larger of both changes of the figure, as a part of it.
    pub fn moves(&self) -> Option<f64> {
        let [low, base, high] = self.figures;
        let base = base.filter(|base| *base != 0.0)?;
        let change = |figure: Option<f64>| Some(figure? / base - 1.0);
        let all = [change(low), change(high)].into_iter().flatten();
        all.max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }
}

/// The constants of the machine that published cells have fixed: keys of its profile.
pub fn constants(experiment: &Experiment) -> Vec<String> {
    let fixed = experiment.file.cell.iter().filter_map(|cell| cell.fixes.as_ref());
    let machine = experiment.file.machine.profile.get_ref();
    let own = fixed.filter_map(|fixes| {
        let (name, key) = fixes.parameter.split_once(": ")?;
        (name == machine).then(|| key.to_owned())
    });
    let mut all: Vec<String> = own.collect();
    all.sort();
    all.dedup();
    all
}

/// The headline and ours beside it; of an experiment without one every published cell.
fn cells(experiment: &Experiment) -> (String, Vec<CellName>) {
    let file = &experiment.file;
    match &file.headline {
        Some(headline) => {
            let ours = headline.ours.iter().map(|cell| cell.get_ref().clone());
            let all = std::iter::once(headline.cell.get_ref().clone()).chain(ours);
            (headline.filesystem.get_ref().clone(), all.collect())
        }
        None => {
            let fs = file.filesystem.keys().next().cloned().unwrap_or_default();
            (fs, file.cell.iter().map(|cell| cell.cell.get_ref().clone()).collect())
        }
    }
}

/// Moves each constant by so many per cent, and runs the headline's cells with the first seed.
///
/// # Errors
/// A run that failed; a constant that the machine does not have.
pub fn of(experiment: &Experiment, percent: u32, jobs: usize) -> Result<Vec<Line>, RunError> {
    let unfit = |error: model::ProfileError| RunError::Machine(error.to_string());
    let constants = constants(experiment);
    let (Some(profile), false) = (experiment.profile().map_err(unfit)?, constants.is_empty())
    else {
        return Ok(Vec::new());
    };
    let (filesystem, cells) = cells(experiment);
    let part = f64::from(percent) / 100.0;
    let base = run(experiment, &filesystem, &cells, jobs)?;
    let mut lines = Vec::new();
    for key in constants {
        let moved = |factor: f64| {
            let profile = profile.scaled(&key, factor).map_err(unfit)?;
            run(&experiment.with_profile(profile), &filesystem, &cells, jobs)
        };
        let (less, more) = (moved(1.0 - part)?, moved(1.0 + part)?);
        let own = profile.parameters.iter().find(|one| one.key == key);
        for cell in &cells {
            let metric = &experiment.file.metric[&cell.metric];
            lines.push(Line {
                constant: key.clone(),
                value: own.map_or(String::new(), |one| one.value.clone()),
                cell: cell.to_string(),
                unit: metric.unit.clone(),
                decimals: metric.decimals,
                figures: [&less, &base, &more].map(|records| figure(records, cell)),
            });
        }
    }
    Ok(lines)
}

fn figure(records: &[RunRecord], cell: &CellName) -> Option<f64> {
    let own = |run: &&RunRecord| run.key.variant == cell.variant && run.key.case == cell.case;
    records.iter().find(own).and_then(|run| run.values.get(&cell.metric)).copied()
}

fn run(
    experiment: &Experiment,
    filesystem: &str,
    cells: &[CellName],
    jobs: usize,
) -> Result<Vec<RunRecord>, RunError> {
    let names = |of: fn(&CellName) -> &String| cells.iter().map(|cell| of(cell).clone()).collect();
    let seed = experiment.file.seeds.quick.first;
    let plan = Plan {
        variants: names(|cell| &cell.variant),
        cases: names(|cell| &cell.case),
        filesystems: vec![filesystem.to_owned()],
        seeds: Some(SeedRange { first: seed, last: seed }),
        no_sweeps: true,
        ..Plan::default()
    };
    run_all(experiment, &RunOptions { plan, jobs, ..RunOptions::default() }, Vec::new(), &())
}

/// The lines as a table.
pub fn table(lines: &[Line], percent: u32) -> TextTable {
    use Align::{Left, Right};
    let (less, more) = (format!("-{percent} %"), format!("+{percent} %"));
    let mut table = TextTable::new([
        ("constant", Left),
        ("fitted", Right),
        ("cell", Left),
        ("unit", Left),
        (less.as_str(), Right),
        ("as it is", Right),
        (more.as_str(), Right),
        ("moves by", Right),
    ]);
    for line in lines {
        let shown =
            |figure: Option<f64>| figure.map_or("-".to_owned(), |f| number(f, line.decimals));
        let [low, base, high] = line.figures.map(shown);
        let moves = line.moves().map_or("-".to_owned(), |part| format!("{:+.1} %", part * 100.0));
        table.row([
            line.constant.clone(),
            line.value.clone(),
            line.cell.clone(),
            line.unit.clone(),
            low,
            base,
            high,
            moves,
        ]);
    }
    table
}
