//! The report: counts first, then the document's tables with ours beside them, then the curves.

use serde_json::{Value, json};

use super::bed::Variant;
use super::cell::{Change, Outcome, PHASES};
use super::instructions::{self, InstructionRow};
use super::published::Set;
use super::{Curve, Plan, TraceRow, summary};
use crate::report::{Align, TextTable};
use crate::stats::Verdict;
use crate::stats::verdict::THRESHOLD;

/// Everything that a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How much was done.
    pub plan: Plan,
    /// The document's lookups on the structures alone.
    pub traces: Vec<TraceRow>,
    /// The document's cells.
    pub outcomes: Vec<Outcome>,
    /// Beyond it.
    pub curves: Vec<Curve>,
    /// Instructions of an operation by size; none where they were not counted.
    pub instructions: Vec<InstructionRow>,
}

const NOTES: &str = "\
Measured, in CPU time of the tasks, on a device in memory; the variants take turns in slices of 32
operations on one mount, and so do several tasks, an operation each on one thread. Per cent are
operations in a CPU second, the trimmed mean of the ratios of neighbouring slices with 95 % of it:
what the same process would give again. Where its buffers lie in memory differs from process to
process and is not in it. `wide xN` marks an interval of more than 1 % that N times as many slices
would make narrow; a verdict needs an interval without zero and a change of 2 %. The document's
machine, kernel and Lustre stack are not here: signs and sizes are compared, not rates. Set (a) of
the document loses 4 to 14 % where the counts of its lookups allow no more than about 1 %: whatever
was measured there, it was not the LRU.";

fn table(heads: &[&str]) -> TextTable {
    let align = |index| if index == 0 { Align::Left } else { Align::Right };
    TextTable::new(heads.iter().enumerate().map(|(index, head)| (*head, align(index))))
}

fn change(change: &Change) -> String {
    let half = change.interval.half();
    let wide = match change.narrow() {
        true => String::new(),
        false => format!(" wide x{:.0}", change.times_missing().ceil()),
    };
    format!("{:+.1} ±{half:.1}{wide}", change.percent)
}

/// What a cell says beside the document's: a change needs an interval without zero and two per
/// cent, and only then has a sign to compare.
fn verdict(published: Option<f64>, ours: &Change) -> &'static str {
    let found = ours.verdict();
    let Some(published) = published else { return found.word() };
    let small = published.abs() < THRESHOLD * 100.0;
    match found {
        Verdict::Unclear if ours.interval.contains(published) => "unclear, holds the document's",
        Verdict::Unclear => "unclear",
        Verdict::Same if small => "both within 2 %",
        Verdict::Same => "the document's alone",
        Verdict::Better | Verdict::Worse if small => "ours alone",
        Verdict::Better if published > 0.0 => "same sign",
        Verdict::Worse if published < 0.0 => "same sign",
        Verdict::Better | Verdict::Worse => "other sign",
    }
}

impl Report {
    /// Of which nothing has run yet.
    pub(super) fn empty(plan: &Plan) -> Report {
        let (outcomes, curves) = (Vec::new(), Vec::new());
        Report {
            plan: plan.clone(),
            traces: Vec::new(),
            outcomes,
            curves,
            instructions: Vec::new(),
        }
    }

    fn trace_table(&self) -> TextTable {
        let heads = ["trace", "LRU", "hits %", "misses", "compares", "ns", "as a naive list"];
        let mut rows = table(&heads);
        for row in &self.traces {
            rows.row([
                row.trace.title.to_owned(),
                row.variant.name(),
                format!("{:.0}", row.hit_percent),
                format!("{:.1}", row.misses),
                format!("{:.0}", row.compares),
                format!("{:.0}", row.nanos),
                row.exact.map_or("", |exact| if exact { "exactly" } else { "NO" }).to_owned(),
            ]);
        }
        rows
    }

    fn set_table(&self, set: Set) -> TextTable {
        let heads = [
            "names, dirs, tasks",
            "phase",
            "document",
            "16 to 8",
            "verdict",
            "ours to 8",
            "ours to 16",
            "ns 8",
            "lookups",
            "misses 8",
            "16",
            "ours",
            "compares 8",
            "16",
            "ours",
        ];
        let mut rows = table(&heads);
        for outcome in self.outcomes.iter().filter(|outcome| outcome.cell.set == set) {
            let cell = &outcome.cell;
            for (phase, name) in PHASES.iter().enumerate() {
                let published = outcome.published.map(|published| published[phase]);
                let counts = &outcome.counts[phase];
                let head = format!("{} {} {}", cell.names, cell.dirs, cell.tasks);
                rows.row([
                    if phase == 0 { head } else { String::new() },
                    (*name).to_owned(),
                    published.map_or(String::new(), |published| format!("{published:+.1}")),
                    change(&outcome.sixteen[phase]),
                    verdict(published, &outcome.sixteen[phase]).to_owned(),
                    change(&outcome.ours[phase]),
                    change(&outcome.ours_sixteen[phase]),
                    format!("{:.0}", outcome.nanos[phase][0]),
                    format!("{:.1}", counts[0].lookups),
                    format!("{:.2}", counts[0].misses),
                    format!("{:.2}", counts[1].misses),
                    format!("{:.2}", counts[2].misses),
                    format!("{:.0}", counts[0].compares),
                    format!("{:.0}", counts[1].compares),
                    format!("{:.0}", counts[2].compares),
                ]);
            }
        }
        rows
    }

    fn at_once_table(&self) -> TextTable {
        let mut rows = table(&["cell", "phase", "16 to 8", "ours to 8", "ours to 16", "ns 8"]);
        for outcome in &self.outcomes {
            let Some(at_once) = &outcome.at_once else { continue };
            for (phase, name) in PHASES.iter().enumerate() {
                rows.row([
                    if phase == 0 { outcome.cell.title() } else { String::new() },
                    (*name).to_owned(),
                    change(&at_once.sixteen[phase]),
                    change(&at_once.ours[phase]),
                    change(&at_once.ours_sixteen[phase]),
                    format!("{:.0}", at_once.nanos[phase]),
                ]);
            }
        }
        rows
    }

    fn curve_table(&self, curve: &Curve) -> TextTable {
        let mut rows = table(&[
            "LRU",
            "ns of a create",
            "ours to it",
            "lookup",
            "ours to it",
            "remove",
            "ours to it",
            "lookups",
            "misses",
            "compares",
            "pinned KiB",
        ]);
        for point in &curve.points {
            let mut cells = vec![point.variant.name()];
            for (nanos, ours) in point.nanos.iter().zip(&point.ours) {
                cells.push(format!("{nanos:.0}"));
                cells.push(match point.variant {
                    Variant::Ours => String::new(),
                    _ => change(ours),
                });
            }
            cells.push(format!("{:.1}", point.create.lookups));
            cells.push(format!("{:.2}", point.create.misses));
            cells.push(format!("{:.0}", point.create.compares));
            cells.push(format!("{}", point.pinned >> 10));
            rows.row(cells);
        }
        rows
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# bh-lru: the buffer-head LRU, 8 against 16 entries against ours\n\n{NOTES}\n\n\
             ## In short\n\n{}",
            summary::lines(self)
        );
        let mut part = |title: &str, table: &TextTable| {
            out.push_str(&format!("\n## {title}\n\n{}", table.markdown()));
        };
        if !self.traces.is_empty() {
            let title = "The document's lookups of one create, on the structures alone";
            part(title, &self.trace_table());
        }
        if !self.instructions.is_empty() {
            let table = instructions::table(&self.instructions);
            part("Instructions of an operation (callgrind)", &table);
        }
        for set in [Set::A, Set::B, Set::C, Set::D] {
            if self.outcomes.iter().any(|outcome| outcome.cell.set == set) {
                part(&format!("({}) {}", set.letter(), set.title()), &self.set_table(set));
            }
        }
        if self.outcomes.iter().any(|outcome| outcome.at_once.is_some()) {
            part("All tasks at once, with what they wait for each other", &self.at_once_table());
        }
        for curve in &self.curves {
            let (names, slices) = (curve.setup.names, curve.slices());
            let title = format!("{}, {names} names, {slices} slices of each", curve.title);
            part(&title, &self.curve_table(curve));
        }
        out
    }

    /// The figures as JSON.
    pub fn json(&self) -> Value {
        let changes = |changes: &[Change]| -> Vec<Value> {
            let each = |change: &Change| {
                json!({
                    "percent": change.percent,
                    "low": change.interval.low,
                    "high": change.interval.high,
                })
            };
            changes.iter().map(each).collect()
        };
        let outcomes = self.outcomes.iter().map(|outcome| {
            json!({
                "set": outcome.cell.set.letter().to_string(),
                "names": outcome.cell.names,
                "directories": outcome.cell.dirs,
                "tasks": outcome.cell.tasks,
                "slices": outcome.slices,
                "phases": PHASES,
                "published_percent": outcome.published,
                "sixteen_to_eight": changes(&outcome.sixteen),
                "ours_to_eight": changes(&outcome.ours),
                "ours_to_sixteen": changes(&outcome.ours_sixteen),
                "nanos": outcome.nanos,
                "pinned_bytes": outcome.pinned,
                "at_once": outcome.at_once.as_ref().map(|at_once| json!({
                    "sixteen_to_eight": changes(&at_once.sixteen),
                    "ours_to_eight": changes(&at_once.ours),
                    "ours_to_sixteen": changes(&at_once.ours_sixteen),
                    "nanos_of_eight": at_once.nanos,
                })),
            })
        });
        let curves = self.curves.iter().map(|curve| {
            let points = curve.points.iter().map(|point| {
                json!({
                    "lru": point.variant.name(), "nanos": point.nanos,
                    "ours_to_it": changes(&point.ours), "misses": point.create.misses,
                    "compares": point.create.compares, "pinned_bytes": point.pinned,
                })
            });
            let slices = curve.slices();
            json!({ "title": curve.title, "slices": slices, "points": points.collect::<Vec<_>>() })
        });
        let traces = self.traces.iter().map(|row| {
            json!({
                "trace": row.trace.title, "lru": row.variant.name(), "misses": row.misses,
                "hit_percent": row.hit_percent, "compares": row.compares, "nanos": row.nanos,
                "exact": row.exact,
            })
        });
        let instructions = self.instructions.iter().map(|row| {
            json!({
                "set": row.set.letter().to_string(), "lru": row.variant.name(),
                "phases": PHASES, "instructions": row.instructions,
            })
        });
        json!({
            "traces": traces.collect::<Vec<_>>(),
            "cells": outcomes.collect::<Vec<_>>(),
            "curves": curves.collect::<Vec<_>>(),
            "instructions": instructions.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn change(percent: f64, low: f64, high: f64) -> Change {
        Change { percent, interval: Interval { low, high }, pairs: 7 }
    }

    #[test]
    fn a_sign_needs_an_interval_without_zero() {
        let wide = change(-3.0, -9.0, 4.0);
        assert_eq!(verdict(Some(11.3), &wide), "unclear");
        assert_eq!(verdict(Some(3.5), &wide), "unclear, holds the document's");
        assert_eq!(verdict(None, &wide), "unclear");
        let better = change(5.0, 3.0, 7.0);
        assert_eq!(verdict(Some(11.3), &better), "same sign");
        assert_eq!(verdict(Some(-5.2), &better), "other sign");
        assert_eq!(verdict(Some(0.5), &better), "ours alone");
        let same = change(0.2, -0.4, 0.9);
        assert_eq!(verdict(Some(0.0), &same), "both within 2 %");
        assert_eq!(verdict(Some(-13.6), &same), "the document's alone");
        let few = Change { pairs: 2, ..better };
        assert_eq!(verdict(Some(11.3), &few), "unclear");
    }
}
