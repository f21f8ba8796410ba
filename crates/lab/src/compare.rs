//! The same experiment twice: of two builds, or on two machines, figure by figure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::experiment::{Experiment, RunKey};
use crate::record::RunRecord;
use crate::report::{Align, TextTable, change, number};
use crate::stats::verdict::{RUNS_MIN, THRESHOLD};
use crate::stats::{Comparison, Verdict, compare, compare_paired};

/// One figure on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// File system, case, variant, and the sweep's point in a sweep.
    pub what: String,
    /// The metric with its unit.
    pub metric: String,
    /// Decimals to show.
    #[serde(skip)]
    decimals: usize,
    /// The figures, paired by seed where both sides have the same.
    pub figures: Comparison,
    /// Every run has the same event hash on both sides: nothing that was modelled differs.
    pub equal_runs: bool,
}

/// Two sets of records of one experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Name of the experiment.
    pub experiment: String,
    /// What made each side.
    pub made: [Vec<String>; 2],
    /// The figures that both have.
    pub rows: Vec<Row>,
    /// Runs that only one side has.
    pub alone: [usize; 2],
}

type Group<'a> = BTreeMap<RunKey, Vec<&'a RunRecord>>;

/// Runs that differ in their seed only.
fn groups(records: &[RunRecord]) -> Group<'_> {
    let mut groups = Group::new();
    for record in records {
        groups.entry(RunKey { seed: 0, ..record.key.clone() }).or_default().push(record);
    }
    groups.values_mut().for_each(|runs| runs.sort_by_key(|run| run.key.seed));
    groups
}

/// Sets the figures of both sides beside each other.
///
/// # Errors
/// A side is of another text of the experiment.
pub fn pair(
    experiment: &Experiment,
    before: &[RunRecord],
    after: &[RunRecord],
) -> Result<Pair, String> {
    if let Some(other) = before.iter().chain(after).find(|run| run.digest != experiment.digest) {
        return Err(format!(
            "results of another text of {} ({} instead of {}): run it again",
            experiment.name, other.digest, experiment.digest
        ));
    }
    let (left, right) = (groups(before), groups(after));
    let both = left.iter().filter_map(|(key, runs)| Some((key, runs, right.get(key)?)));
    let rows = both.flat_map(|(key, a, b)| rows(experiment, key, a, b)).collect();
    let missing =
        |a: &Group<'_>, b: &Group<'_>| a.keys().filter(|key| !b.contains_key(key)).count();
    Ok(Pair {
        experiment: experiment.name.clone(),
        made: [before, after].map(made),
        rows,
        alone: [missing(&left, &right), missing(&right, &left)],
    })
}

fn made(records: &[RunRecord]) -> Vec<String> {
    let words = |run: &RunRecord| {
        let made = &run.made;
        let machine = if made.machine.is_empty() { "at hand" } else { &made.machine };
        format!("{}; machine {machine}; {}", made.build, made.host)
    };
    let mut all: Vec<String> = records.iter().map(words).collect();
    all.sort();
    all.dedup();
    all
}

fn rows(experiment: &Experiment, key: &RunKey, a: &[&RunRecord], b: &[&RunRecord]) -> Vec<Row> {
    let seeds = |runs: &[&RunRecord]| runs.iter().map(|run| run.key.seed).collect::<Vec<_>>();
    let paired = seeds(a) == seeds(b);
    let hashes =
        |runs: &[&RunRecord]| runs.iter().map(|r| r.event_hash.clone()).collect::<Vec<_>>();
    let equal_runs = paired && hashes(a) == hashes(b) && a.iter().all(|r| !r.event_hash.is_empty());
    let point = key.point.as_ref().map(|point| format!(" {}={}", point.vary, point.value));
    let what = format!("{} {} {}", key.filesystem, key.case, key.variant);
    let what = what + &point.unwrap_or_default();
    let row = |(name, metric): (&String, &crate::experiment::Metric)| {
        let of = |runs: &[&RunRecord]| {
            runs.iter().map(|run| run.values.get(name).copied()).collect::<Option<Vec<f64>>>()
        };
        let (x, y) = (of(a)?, of(b)?);
        let figures = match paired {
            true => compare_paired(&x, &y, metric.better, THRESHOLD),
            false => compare(&x, &y, metric.better, THRESHOLD),
        };
        Some(Row {
            what: what.clone(),
            metric: format!("{} {}", metric.title, metric.unit).trim().to_owned(),
            decimals: metric.decimals,
            figures,
            equal_runs,
        })
    };
    experiment.file.metric.iter().filter_map(row).collect()
}

impl Row {
    /// The word: runs that are equal to the last event are the same, however few there are.
    pub fn verdict(&self) -> Verdict {
        if self.equal_runs { Verdict::Same } else { self.figures.verdict }
    }

    /// Whether the figure differs at all.
    pub fn differs(&self) -> bool {
        self.figures.before != self.figures.after
    }
}

impl Pair {
    fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict() == verdict).count()
    }

    /// Figures that became worse.
    pub fn worse(&self) -> usize {
        self.count(Verdict::Worse)
    }

    /// One sentence, what made both sides, and a table; of what changed only, unless `all`.
    pub fn text(&self, all: bool) -> String {
        use Align::{Left, Right};
        let equal = self.rows.iter().filter(|row| !row.differs()).count();
        let mut out = format!(
            "{}: {} figures: {} better, {} worse, {} the same within {} %, {} unclear; {equal} \
             equal to the last digit\n",
            self.experiment,
            self.rows.len(),
            self.count(Verdict::Better),
            self.worse(),
            self.count(Verdict::Same),
            THRESHOLD * 100.0,
            self.count(Verdict::Unclear),
        );
        for (word, made) in ["before", "after"].into_iter().zip(&self.made) {
            made.iter().for_each(|line| out.push_str(&format!("  {word}: {line}\n")));
        }
        for (word, count) in ["before", "after"].into_iter().zip(self.alone) {
            if count > 0 {
                out.push_str(&format!("  {count} cells are {word} only\n"));
            }
        }
        let mut table = TextTable::new([
            ("run", Left),
            ("metric", Left),
            ("n", Right),
            ("before", Right),
            ("after", Right),
            ("change [95 %], + is better", Right),
            ("verdict", Left),
        ]);
        for row in self.rows.iter().filter(|row| all || row.differs()) {
            let (figures, verdict) = (&row.figures, row.verdict());
            table.row([
                row.what.clone(),
                row.metric.clone(),
                figures.n.0.min(figures.n.1).to_string(),
                number(figures.before, row.decimals),
                number(figures.after, row.decimals),
                change(figures),
                format!("{} {}", verdict.sign(), verdict.word()),
            ]);
        }
        if !table.is_empty() {
            out.push_str(&format!("\n{}", table.text()));
        }
        if self.count(Verdict::Unclear) > 0
            && self.rows.iter().any(|row| row.figures.n.0 < RUNS_MIN)
        {
            out.push_str(&format!("\nA verdict needs {RUNS_MIN} seeds: --seeds 1..9\n"));
        }
        out
    }
}
