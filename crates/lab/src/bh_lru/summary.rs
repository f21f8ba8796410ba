//! What a report says in a few lines: how many cells are told, and where ours loses.

use super::Report;
use super::cell::{Change, PHASES};
use crate::stats::Verdict;

/// Changes by what their interval allows to say of a loss of more than one per cent.
#[derive(Default)]
struct Losses {
    none: usize,
    lost: Vec<String>,
    untold: usize,
}

impl Losses {
    fn add(&mut self, change: &Change, title: impl FnOnce() -> String) {
        if change.loses() {
            self.lost.push(format!("{} ({:+.1} %)", title(), change.percent));
        } else if change.loses_nothing() {
            self.none += 1;
        } else {
            self.untold += 1;
        }
    }

    fn line(&self, what: &str) -> String {
        let Losses { none, lost, untold } = self;
        let cells = none + lost.len() + untold;
        let named = if lost.is_empty() { String::new() } else { format!(": {}", lost.join(", ")) };
        format!(
            "- {what}, {cells} cells: no loss of 1 % in {none}, not told in {untold}, lost in \
             {}{named}.\n",
            lost.len()
        )
    }
}

/// The lines.
pub(super) fn lines(report: &Report) -> String {
    let mut out = String::new();
    if report.outcomes.is_empty() {
        return curves(report);
    }
    let sixteen = report.outcomes.iter().flat_map(|outcome| &outcome.sixteen);
    let narrow = sixteen.clone().filter(|change| change.narrow()).count();
    let told = |verdict| sixteen.clone().filter(|change| change.verdict() == verdict).count();
    out.push_str(&format!(
        "- 16 entries to 8, {} cells: {narrow} with an interval narrower than 1 %; by the verdict \
         {} better, {} worse, {} the same within 2 %, {} unclear.\n",
        sixteen.clone().count(),
        told(Verdict::Better),
        told(Verdict::Worse),
        told(Verdict::Same),
        told(Verdict::Unclear),
    ));
    let (mut eight, mut sixteen) = (Losses::default(), Losses::default());
    for outcome in &report.outcomes {
        for (phase, name) in PHASES.iter().enumerate() {
            let title = || format!("{name} of {}", outcome.cell.title());
            eight.add(&outcome.ours[phase], title);
            sixteen.add(&outcome.ours_sixteen[phase], title);
        }
    }
    out.push_str(&eight.line("Ours to 8"));
    out.push_str(&sixteen.line("Ours to 16"));
    out.push_str(&curves(report));
    out
}

fn curves(report: &Report) -> String {
    let mut fixed = Losses::default();
    for curve in &report.curves {
        for (phase, name) in PHASES.iter().enumerate() {
            if let Some((variant, change)) = curve.best_fixed(phase) {
                fixed.add(change, || format!("{name}, {}, to {}", curve.title, variant.name()));
            }
        }
    }
    match report.curves.is_empty() {
        true => String::new(),
        false => fixed.line("Ours to the best fixed size of each row of the curves"),
    }
}
