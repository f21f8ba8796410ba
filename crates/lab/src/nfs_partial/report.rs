//! What came out, beside what was published and what must hold.

use nfs::Mode;
use serde::Serialize;
use serde_json::{Value, json};

use super::{COUNTS, LARGE_PAGES, MACHINE, NAME, Outcome, PUBLISHED, Published};
use crate::report::{Align, TextTable};

/// The outcomes of one question.
#[derive(Clone, Debug)]
pub struct Row {
    /// The question.
    pub title: String,
    /// By mode.
    pub outcomes: Vec<(Mode, Outcome)>,
}

impl Row {
    fn of(&self, mode: Mode) -> Option<&Outcome> {
        self.outcomes.iter().find(|(one, _)| *one == mode).map(|(_, outcome)| outcome)
    }
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What.
    pub title: String,
    /// The value.
    pub value: f64,
    /// Lowest value that is right.
    pub low: f64,
    /// Highest value that is right.
    pub high: f64,
}

impl Check {
    /// Does it hold?
    pub fn holds(&self) -> bool {
        (self.low..=self.high).contains(&self.value)
    }
}

/// The report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seed of the runs.
    pub seed: u64,
    /// The cells.
    pub rows: Vec<Row>,
    /// What must hold.
    pub checks: Vec<Check>,
}

/// Name of a mode in the report.
fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "2.6.29",
        Mode::Request => "+ patch",
        Mode::Rmw => "later Linux",
        Mode::Ranges => "ours",
    }
}

/// A table with columns of words, then of figures.
fn table(words: &[&str], figures: &[&str], more: &[&str]) -> TextTable {
    let left = words.iter().map(|head| (*head, Align::Left));
    let right = figures.iter().chain(more).map(|head| (*head, Align::Right));
    TextTable::new(left.chain(right))
}

impl Report {
    /// Adds up and checks. The first row is the document's.
    pub fn build(seed: u64, rows: Vec<Row>) -> Report {
        let mut checks = Vec::new();
        if let Some(row) = rows.first()
            && let (Some(off), Some(patched), Some(ours)) =
                (row.of(Mode::Off), row.of(Mode::Request), row.of(Mode::Ranges))
        {
            document_checks(&mut checks, off, patched, ours);
        }
        for row in &rows {
            if row.title == COUNTS
                && let (Some(off), Some(patched)) = (row.of(Mode::Off), row.of(Mode::Request))
            {
                count_checks(&mut checks, off, patched);
            }
            row_checks(&mut checks, row);
        }
        Report { seed, rows, checks }
    }

    /// How many checks do not hold.
    pub fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.holds()).count()
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# {NAME}: what a page cache knows of pages that are partly up to date\n\n\
             [PATCH] NFS: Pagecache usage optimization on nfs, Hisashi Hifumi, 2009-02-17. \
             Machine {MACHINE}, seed {}. Counts are exact; times are modelled.\n",
            self.seed
        );
        let mut part = |title: &str, table: TextTable| {
            out.push_str(&format!("\n## {title}\n\n{}", table.markdown()));
        };
        part("The document's table", self.published_table());
        part("Reads and writes in the client's page cache", self.cache_table());
        part("Calls, and the time that they took", self.calls_table());
        part("What must hold", self.check_table());
        out
    }

    fn published_table(&self) -> TextTable {
        let mut table = table(
            &["", "figures"],
            &["requests/s", "total s", "in requests, by thread s", "mean ms", "95 % ms"],
            &["longest s"],
        );
        for (mode, said) in PUBLISHED {
            let Published { rate, total, phase, mean, p95, max, .. } = said;
            let row = |head: &str, basis: &str, figures: [f64; 6]| {
                let figures = figures.iter().enumerate();
                let figures =
                    figures.map(|(at, figure)| format!("{figure:.*}", usize::from(at > 0)));
                let words = [head.to_owned(), basis.to_owned()];
                words.into_iter().chain(figures).collect::<Vec<_>>()
            };
            table.row(row(name(mode), "published", [rate, total, phase, mean, p95, max]));
            let Some(ours) = self.rows.first().and_then(|row| row.of(mode)) else { continue };
            let (mean, p95, max) = ours.latency_ms;
            let figures = [ours.rate, ours.total, ours.phase, mean, p95, max / 1e3];
            table.row(row("", "modelled", figures));
        }
        table
    }

    /// The outcomes, of which `figures` says what stands in the columns of numbers.
    fn outcomes<const N: usize>(
        &self,
        mut table: TextTable,
        figures: impl Fn(&Outcome) -> [String; N],
    ) -> TextTable {
        for row in &self.rows {
            for (index, (mode, outcome)) in row.outcomes.iter().enumerate() {
                let head = if index == 0 { row.title.clone() } else { String::new() };
                let words = [head, name(*mode).to_owned()];
                table.row(words.into_iter().chain(figures(outcome)));
            }
        }
        table
    }

    fn cache_table(&self) -> TextTable {
        let reads = ["hits", "partial", "cold", "rest", "sent to be read"];
        let table = table(&["", "mode"], &reads, &["sent to be written", "read to be written"]);
        self.outcomes(table, |o| {
            let reads = [o.hits, o.partial_hits, o.cold, o.rest, o.flush_reads];
            let [a, b, c, d, e] = reads.map(|count| count.to_string());
            [a, b, c, d, e, o.flush_writes.to_string(), o.write_reads.to_string()]
        })
    }

    fn calls_table(&self) -> TextTable {
        let calls = ["READ", "WRITE", "of them stable", "COMMIT", "disk writes"];
        let times = ["in requests s", "final fsync s", "requests/s"];
        self.outcomes(table(&["", "mode"], &calls, &times), |o| {
            let (reads, writes, commits) = o.calls;
            let calls = [reads, writes, o.stable_writes, commits, o.disk_writes];
            let [a, b, c, d, e] = calls.map(|count| count.to_string());
            let [phase, fsync] = [o.phase, o.final_fsync].map(|seconds| format!("{seconds:.2}"));
            [a, b, c, d, e, phase, fsync, format!("{:.0}", o.rate)]
        })
    }

    fn check_table(&self) -> TextTable {
        let mut table = table(&["what"], &["value", "band"], &[""]);
        for check in &self.checks {
            let Check { title, value, low, high } = check;
            let high = if high.is_infinite() { String::new() } else { format!("{high:.3}") };
            let verdict = if check.holds() { "holds" } else { "DOES NOT HOLD" };
            let band = format!("{low:.3} .. {high}");
            table.row([title.clone(), format!("{value:.3}"), band, verdict.to_owned()]);
        }
        table
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let outcomes: Vec<Value> = row
                .outcomes
                .iter()
                .map(|(mode, outcome)| json!({ "mode": name(*mode), "outcome": outcome }))
                .collect();
            json!({ "title": row.title, "cells": outcomes })
        };
        json!({
            "machine": MACHINE,
            "seed": self.seed,
            "times": "modelled",
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "checks": self.checks,
        })
    }
}

/// The mechanism in counts, whatever the times are.
fn count_checks(checks: &mut Vec<Check>, off: &Outcome, patched: &Outcome) {
    let by = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let all = patched.reads + patched.writes;
    let title = |what: &str| format!("{COUNTS}: {what}");
    let mut check = |what: &str, value: f64, low: f64, high: f64| {
        checks.push(Check { title: title(what), value, low, high });
    };
    let less = 1.0 - by(patched.flush_reads, off.flush_reads);
    check("pages sent to be read fall by", less, 0.40, 0.48);
    check("share of partial hits", by(patched.partial_hits, all), 0.041, 0.047);
    // What the mechanism as a formula gives for uniform requests, within 3 %.
    for (what, value, formula) in [
        ("unpatched pages sent to be read", off.flush_reads, 7945.0),
        ("patched pages sent to be read", patched.flush_reads, 4415.0),
        ("unpatched reads of pages of which nothing is known", off.cold, 14_648.0),
        ("patched reads of pages of which nothing is known", patched.cold, 14_648.0),
        ("patched partial hits", patched.partial_hits, 4351.0),
    ] {
        check(what, value as f64, formula * 0.97, formula * 1.03);
    }
}

fn document_checks(checks: &mut Vec<Check>, off: &Outcome, patched: &Outcome, ours: &Outcome) {
    let mut check = |title: &str, value: f64, low: f64, high: f64| {
        checks.push(Check { title: title.to_owned(), value, low, high });
    };
    check("requests/s, patched by unpatched", patched.rate / off.rate, 1.45, 1.75);
    check("time in requests, unpatched by patched", off.event_time / patched.event_time, 2.0, 2.7);
    let fsync = patched.final_fsync / off.final_fsync;
    check("final fsync, patched by unpatched", fsync, 1.3, f64::INFINITY);
    let p95 = off.latency_ms.1 / patched.latency_ms.1.max(1e-9);
    check("95 % latency, unpatched by patched", p95, 2.0, f64::INFINITY);
    check("ours sends no page to be read", ours.flush_reads as f64, 0.0, 0.0);
    check("requests/s, ours by unpatched", ours.rate / off.rate, 4.0, f64::INFINITY);
    // The cell that the machine's one parameter is calibrated on.
    let phase = "unpatched: time in requests by thread, s (calibrated)";
    check(phase, off.phase, 52.61 * 0.97, 52.61 * 1.03);
}

fn row_checks(checks: &mut Vec<Check>, row: &Row) {
    let (Some(off), Some(patched), Some(ours)) =
        (row.of(Mode::Off), row.of(Mode::Request), row.of(Mode::Ranges))
    else {
        return;
    };
    let mut check = |what: &str, value: f64, low: f64, high: f64| {
        let title = format!("{}: {what}", row.title);
        checks.push(Check { title, value, low, high });
    };
    let best = row
        .outcomes
        .iter()
        .filter(|(mode, _)| *mode != Mode::Ranges)
        .map(|(_, outcome)| outcome.rate)
        .fold(0.0, f64::max);
    check("requests/s, ours by the best of the others", ours.rate / best, 1.0, f64::INFINITY);
    if row.title.contains("Piggin") {
        let same = (off.hits, off.cold, off.flush_reads, off.partial_hits)
            == (patched.hits, patched.cold, patched.flush_reads, patched.partial_hits);
        check("the patch changes no count", f64::from(u8::from(same)), 1.0, 1.0);
    }
    let gain = patched.rate / off.rate;
    if row.title == LARGE_PAGES {
        check("requests/s, patched by unpatched", gain, 0.0, 1.05);
    }
    if row.title.contains("16 KiB pages") {
        check("requests/s, ours by unpatched", ours.rate / off.rate, 4.0, f64::INFINITY);
    }
    if row.title.contains("Myklebust") {
        // His expectation: little is left of the gain.
        check("requests/s, patched by unpatched", gain, 1.0, 1.25);
    }
}
