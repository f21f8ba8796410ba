//! Single figures: medians over seeds, bands, and what the events say about them.

use std::collections::BTreeMap;

use super::model::{Band, CellReport, Role};
use crate::experiment::{Cell, CellName, Experiment, Metric};
use crate::record::RunRecord;
use crate::stats::median;

/// The records of an experiment, found by file system, variant and case (without sweeps).
pub struct Records<'a> {
    pub experiment: &'a Experiment,
    by_name: BTreeMap<(String, String, String), Vec<&'a RunRecord>>,
}

impl<'a> Records<'a> {
    pub fn new(experiment: &'a Experiment, records: &'a [RunRecord]) -> Records<'a> {
        let mut by_name: BTreeMap<_, Vec<&RunRecord>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.key.point.is_none()) {
            let key = &record.key;
            let name = (key.filesystem.clone(), key.variant.clone(), key.case.clone());
            by_name.entry(name).or_default().push(record);
        }
        // Where there are runs of both sizes, the full ones count.
        for runs in by_name.values_mut() {
            let most = runs.iter().map(|run| run.key.size).max();
            runs.retain(|run| Some(run.key.size) == most);
        }
        Records { experiment, by_name }
    }

    /// The runs of a variant in a case, in the order of their seeds.
    pub fn runs(&self, filesystem: &str, variant: &str, case: &str) -> &[&'a RunRecord] {
        let name = [filesystem, variant, case].map(str::to_owned).into();
        self.by_name.get(&name).map_or(&[], Vec::as_slice)
    }

    /// The values of a cell with their seeds.
    pub fn samples(&self, filesystem: &str, name: &CellName) -> Vec<(u64, f64)> {
        let runs = self.runs(filesystem, &name.variant, &name.case);
        let value = |run: &&RunRecord| Some((run.key.seed, *run.values.get(&name.metric)?));
        runs.iter().filter_map(value).collect()
    }

    /// The median of a cell over its seeds.
    pub fn value(&self, filesystem: &str, name: &CellName) -> Option<f64> {
        let values: Vec<f64> = self.samples(filesystem, name).iter().map(|one| one.1).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// The published cell of that name.
    pub fn published(&self, name: &CellName) -> Option<&'a Cell> {
        self.experiment.file.cell.iter().find(|cell| cell.cell.get_ref() == name)
    }

    fn metric(&self, name: &CellName) -> &'a Metric {
        &self.experiment.file.metric[&name.metric]
    }

    /// A cell beside the published one.
    pub fn cell(&self, filesystem: &str, name: &CellName) -> CellReport {
        let samples = self.samples(filesystem, name);
        let values: Vec<f64> = samples.iter().map(|one| one.1).collect();
        let obtained = self.value(filesystem, name);
        let published = self.published(name);
        let metric = self.metric(name);
        let fixes = published.and_then(|cell| cell.fixes.as_ref());
        let fixes = fixes.filter(|fixes| fixes.filesystem.get_ref() == filesystem);
        let within = published.and_then(|cell| cell.within.as_ref()).map(|range| *range.get_ref());
        let band = Band::of(obtained, within);
        let runs = self.runs(filesystem, &name.variant, &name.case);
        let mut notes: Vec<String> = runs.iter().flat_map(|run| run.notes.clone()).collect();
        notes.sort();
        notes.dedup();
        let figure = published.map(|cell| cell.published);
        // Of several seeds their range says how sure it is.
        let spread = match runs {
            [one] => one.spreads.get(&name.metric).copied(),
            _ => None,
        };
        CellReport {
            cell: name.to_string(),
            filesystem: filesystem.to_owned(),
            unit: metric.unit.clone(),
            published: figure,
            also: published.map(|cell| cell.also.clone()).unwrap_or_default(),
            obtained,
            range: range(&values),
            spread,
            n: values.len(),
            ratio: obtained.zip(figure).map(|(ours, theirs)| ours / theirs),
            basis: metric.basis,
            role: if fixes.is_some() { Role::Calibrated } else { Role::Predicted },
            fixes: fixes.map(|fixes| fixes.parameter.clone()),
            band,
            within,
            reason: published
                .filter(|_| band == Band::Outside)
                .and_then(|cell| cell.reason.clone()),
            evidence: evidence(runs),
            notes,
            command: format!(
                "iopath lab run {} --filesystem {filesystem} --variant {} --case {}",
                self.experiment.source, name.variant, name.case
            ),
            decimals: metric.decimals,
        }
    }
}

fn range(values: &[f64]) -> Option<[f64; 2]> {
    let low = values.iter().copied().reduce(f64::min)?;
    Some([low, values.iter().copied().reduce(f64::max)?])
}

/// What the events of the runs say, as a sentence: medians over the seeds.
pub fn evidence(runs: &[&RunRecord]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let of = |value: &dyn Fn(&RunRecord) -> f64| {
        median(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
    };
    let count = |name: &'static str| of(&move |run| run.counts.get(name).copied().unwrap_or(0.0));
    let files = count("files");
    let mut parts = Vec::new();
    if files > 0.0 {
        let by_file = |name| count(name) / files;
        parts.push(format!(
            "{:.2} writes a file, {:.2} idles begun and {:.2} run out",
            by_file("device_writes"),
            by_file("idle_armed"),
            by_file("idle_fired"),
        ));
    } else if count("idle_armed") > 0.0 {
        parts.push(format!(
            "{:.0} idles begun, {:.0} run out",
            count("idle_armed"),
            count("idle_fired")
        ));
    }
    let yields = count("yield_request");
    if yields > 0.0 && files > 0.0 {
        parts.push(format!("{:.2} requests a file in a lent queue", yields / files));
    }
    for cause in crate::record::IdleCause::ALL {
        let share = of(&|run| {
            run.idle_ns.get(&cause).copied().unwrap_or(0) as f64 / 1e7 / run.seconds.max(1e-9)
        });
        if share >= 0.5 {
            parts.push(format!("{}: {share:.0} % of the time", cause.title()));
        }
    }
    if runs.iter().any(|run| run.counts.contains_key("wait_max_ns")) {
        parts.push(format!("longest wait {:.1} ms", count("wait_max_ns") / 1e6));
    }
    parts.join("; ")
}
