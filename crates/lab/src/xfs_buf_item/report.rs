//! What came out beside what was published, and what must hold.

mod checks;

use serde::Serialize;
use serde_json::{Value, json};

use super::published::{
    CHECK_SHARE, COPY_SHARE, CPUS, CREATE_SECONDS, CREATES, FILES, FORMAT_SHARE, UNLINK_SECONDS,
};
use super::{Outcome, Plan, Share, Steps, Way, Worlds};
use crate::bh_lru::Change;
use crate::report::{Align, TextTable};

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Counted: the same every time.
    Exact,
    /// From the machine at hand.
    Measured,
    /// From the model, and nothing was fixed by it.
    Predicted,
    /// From the model, whose constants it fixes.
    Calibrated,
}

/// Something that must hold.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What.
    pub title: String,
    /// The value.
    pub value: f64,
    /// Lowest value that is right.
    pub low: f64,
    /// Highest value that is right; infinite where there is none.
    pub high: f64,
    /// Where the value comes from.
    pub role: Role,
}

impl Check {
    /// Does it hold?
    pub fn holds(&self) -> bool {
        (self.low..=self.high).contains(&self.value)
    }
}

/// Everything that a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How much was done.
    pub plan: Plan,
    /// Bitmaps alone.
    pub steps: Vec<Steps>,
    /// Counts and the model.
    pub worlds: Worlds,
    /// The document's workload on the machine at hand: with debug checks, then without.
    pub outcomes: Vec<Outcome>,
    /// Other numbers of tasks.
    pub threads: Vec<Outcome>,
    /// Where the time of formatting goes at 64 KiB, by phase and way.
    pub profile: [[Share; 4]; 2],
    /// What must hold.
    pub checks: Vec<Check>,
}

const NOTES: &str = "\
\"xfs: optimise xfs_buf_item_size/format for contiguous regions\", Dave Chinner, 2021: 16 tasks
create, then unlink, on a debug kernel and 16 processors. Exact: counts, the same every time.
Measured: CPU time of the process on the machine at hand, a device in memory, the ways in turns;
the document's machine and kernel are not here. Modelled: 16 processors in virtual time that never
wait for a lock; calibrated on the cells `original` and their profile, all else is predicted.";

const SIZES: [&str; 2] = ["4 KiB", "64 KiB"];
const PHASES: [&str; 2] = ["create", "unlink"];

fn table(heads: &[&str]) -> TextTable {
    let align = |index| if index == 0 { Align::Left } else { Align::Right };
    TextTable::new(heads.iter().enumerate().map(|(index, head)| (*head, align(index))))
}

fn change(change: &Change) -> String {
    format!("{:+.1} ±{:.1}", change.percent, change.interval.half())
}

/// Minutes and seconds.
fn minutes(seconds: f64) -> String {
    format!("{}m{:02}s", seconds as u64 / 60, seconds as u64 % 60)
}

impl Report {
    /// Adds up and checks.
    pub fn build(
        plan: Plan,
        steps: Vec<Steps>,
        worlds: Worlds,
        outcomes: Vec<Outcome>,
        threads: Vec<Outcome>,
        profile: [[Share; 4]; 2],
    ) -> Report {
        let checks = Vec::new();
        let mut report = Report { plan, steps, worlds, outcomes, threads, profile, checks };
        report.checks = report.all_checks();
        report
    }

    /// How many checks do not hold.
    pub fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.holds()).count()
    }

    /// The cell with directory blocks of 64 KiB or 4 KiB.
    fn cell(&self, large: bool, debug: bool) -> Option<&Outcome> {
        let mut of = self.outcomes.iter().filter(|outcome| outcome.cell.debug == debug);
        if large { of.next_back() } else { of.next() }
    }

    fn each(&self, count: u64) -> f64 {
        count as f64 / self.worlds.operations as f64
    }

    fn published_table(&self) -> TextTable {
        let mut rows = table(&[
            "16 processors, modelled",
            "dir block",
            "creates/s",
            "document",
            "create time",
            "document",
            "unlink time",
            "document",
            "role",
        ]);
        for (index, way) in Way::ALL.into_iter().enumerate() {
            for size in 0..2 {
                let nanos = self.worlds.modelled[size][index];
                let rate = CPUS * 1e9 / nanos[0];
                let seconds = nanos.map(|nanos| nanos * FILES / CPUS / 1e9);
                let said = (index < 2).then(|| {
                    let seconds = [CREATE_SECONDS[index][size], UNLINK_SECONDS[index][size]];
                    (format!("{:.0}k", CREATES[index][size] / 1e3), seconds.map(minutes))
                });
                let (said_rate, said_times) = said.unwrap_or_default();
                rows.row([
                    ["original", "patched", "ours, dense leaves", "ours"][index].to_owned(),
                    SIZES[size].to_owned(),
                    format!("{:.0}k", rate / 1e3),
                    said_rate,
                    minutes(seconds[0]),
                    said_times[0].clone(),
                    minutes(seconds[1]),
                    said_times[1].clone(),
                    if way == Way::Bitwise { "calibrated" } else { "predicted" }.to_owned(),
                ]);
            }
        }
        rows
    }

    fn counts_table(&self) -> TextTable {
        let mut rows = table(&[
            "of one operation, exact",
            "way",
            "buffers",
            "of clusters",
            "bit searches",
            "addresses",
            "regions",
            "bytes dirty",
            "new of these",
            "bytes copied",
        ]);
        for (size, name) in SIZES.into_iter().enumerate() {
            for (phase, what) in PHASES.into_iter().enumerate() {
                for (index, way) in Way::ALL.into_iter().enumerate() {
                    let count = &self.worlds.counts[size][index][phase];
                    let head = if index == 0 { format!("{name}, {what}") } else { String::new() };
                    rows.row([
                        head,
                        way.name().to_owned(),
                        format!("{:.2}", self.each(count.items)),
                        format!("{:.2}", self.each(count.unmapped)),
                        format!("{:.1}", self.each(count.bits)),
                        format!("{:.1}", self.each(count.addresses)),
                        format!("{:.1}", self.each(count.regions)),
                        format!("{:.0}", self.each(count.dirty) * 128.0),
                        format!("{:.0}", self.each(count.fresh) * 128.0),
                        format!("{:.0}", self.each(count.copied)),
                    ]);
                }
            }
        }
        rows
    }

    fn measured_table(&self, outcomes: &[Outcome]) -> TextTable {
        let mut rows = table(&[
            "measured",
            "way",
            "create, CPU µs",
            "against bitwise %",
            "unlink, CPU µs",
            "against bitwise %",
            "creates/s",
            "unlinks/s",
        ]);
        for outcome in outcomes {
            for (index, way) in Way::ALL.into_iter().enumerate() {
                let against = |phase: usize| match index {
                    0 => String::new(),
                    _ => change(&outcome.change[phase][index]),
                };
                rows.row([
                    if index == 0 { outcome.cell.title() } else { String::new() },
                    way.name().to_owned(),
                    format!("{:.2}", outcome.cpu[0][index] / 1e3),
                    against(0),
                    format!("{:.2}", outcome.cpu[1][index] / 1e3),
                    against(1),
                    format!("{:.0}", 1e9 / outcome.wall[0][index]),
                    format!("{:.0}", 1e9 / outcome.wall[1][index]),
                ]);
            }
        }
        rows
    }

    /// Per cent of a create at 64 KiB that formatting's walks, copies, and checks take.
    fn shares(&self, way: usize, debug: bool) -> Option<[f64; 3]> {
        let whole = self.cell(true, debug)?.cpu[0][way];
        let share = self.profile[0][way];
        Some([share.walk, share.copy, share.check].map(|nanos| 100.0 * nanos / whole))
    }

    fn profile_table(&self) -> TextTable {
        let mut rows = table(&[
            "% of a create, 64 KiB, debug checks",
            "document: before",
            "after",
            "bitwise",
            "contiguous",
            "ours, dense leaves",
            "ours",
        ]);
        let lines = [
            ("bits, addresses, size and format", FORMAT_SHARE),
            ("copy (memcpy)", COPY_SHARE),
            ("leaf check", CHECK_SHARE),
        ];
        for (line, (title, said)) in lines.into_iter().enumerate() {
            let ours = (0..4).map(|way| self.shares(way, true).map_or(0.0, |shares| shares[line]));
            let numbers = said.into_iter().chain(ours).map(|share| format!("{share:.2}"));
            rows.row([title.to_owned()].into_iter().chain(numbers));
        }
        rows
    }

    fn limit_table(&self) -> TextTable {
        let mut rows = table(&[
            "formatting, 64 KiB, measured",
            "way",
            "walks, ns",
            "copies, ns",
            "new bytes alone, ns",
            "share of the limit %",
        ]);
        for (phase, what) in PHASES.into_iter().enumerate() {
            for (index, way) in Way::ALL.into_iter().enumerate() {
                let share = self.profile[phase][index];
                let Share { walk, copy, least, .. } = share;
                rows.row([
                    if index == 0 { what.to_owned() } else { String::new() },
                    way.name().to_owned(),
                    format!("{walk:.0}"),
                    format!("{copy:.0}"),
                    format!("{least:.0}"),
                    format!("{:.0}", 100.0 * least / (walk + copy).max(1e-9)),
                ]);
            }
        }
        rows
    }

    fn steps_table(&self) -> TextTable {
        let mut rows = table(&[
            "both passes, without the copy",
            "steps: bitwise",
            "contiguous",
            "ours",
            "ns: bitwise",
            "contiguous",
            "ours",
            "regions",
        ]);
        for steps in &self.steps {
            let sum = steps.visits.map(|visits| visits.bits + visits.addresses);
            let counts = sum.iter().map(u64::to_string);
            let nanos = steps.nanos.iter().map(|nanos| format!("{nanos:.1}"));
            let cells = counts.chain(nanos).chain([steps.regions[2].to_string()]);
            rows.row([steps.title.to_owned()].into_iter().chain(cells));
        }
        rows
    }

    fn check_table(&self) -> TextTable {
        let mut rows = table(&["what must hold", "value", "band", "role", ""]);
        for check in &self.checks {
            let high = match check.high.is_infinite() {
                true => String::new(),
                false => format!("{:.3}", check.high),
            };
            let role = format!("{:?}", check.role).to_lowercase();
            rows.row([
                check.title.clone(),
                format!("{:.3}", check.value),
                format!("{:.3} .. {high}", check.low),
                role,
                if check.holds() { "inside" } else { "OUTSIDE" }.to_owned(),
            ]);
        }
        rows
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let title = "xfs-buf-item: how a dirty buffer becomes regions of the log";
        let mut out = format!("# {title}\n\n{NOTES}\n");
        let mut part = |title: &str, table: TextTable| {
            if !table.is_empty() {
                out.push_str(&format!("\n## {title}\n\n{}", table.markdown()));
            }
        };
        part("The document's table", self.published_table());
        part("Counts", self.counts_table());
        part("The machine at hand", self.measured_table(&self.outcomes));
        part("Other numbers of tasks", self.measured_table(&self.threads));
        part("The profile", self.profile_table());
        part("The limit", self.limit_table());
        part("Bitmaps alone", self.steps_table());
        part("What must hold", self.check_table());
        out
    }

    /// The figures as JSON.
    pub fn json(&self) -> Value {
        let names = Way::ALL.map(Way::name);
        let outcome = |outcome: &Outcome| {
            json!({
                "dir_block": outcome.cell.dir_block, "tasks": outcome.cell.tasks,
                "debug_checks": outcome.cell.debug, "ways": names, "phases": PHASES,
                "cpu_ns": outcome.cpu, "wall_ns": outcome.wall,
                "against_bitwise_percent": outcome.change.clone().map(|phase| {
                    phase.map(|c| json!([c.percent, c.interval.low, c.interval.high]))
                }),
            })
        };
        let count = |count: &xfs::log::Gauge| {
            json!({
                "buffers": count.items, "clusters": count.unmapped, "bits": count.bits,
                "addresses": count.addresses, "regions": count.regions,
                "dirty_bytes": 128 * count.dirty, "new_bytes": 128 * count.fresh,
                "copied_bytes": count.copied,
            })
        };
        let counts = self.worlds.counts.map(|size| size.map(|way| way.map(|gauge| count(&gauge))));
        json!({
            "operations": self.worlds.operations,
            "counts": counts,
            "images_alike": self.worlds.alike,
            "modelled_ns": self.worlds.modelled,
            "modelled_step_ns": self.worlds.step,
            "modelled_byte_ns": self.worlds.byte,
            "measured": self.outcomes.iter().chain(&self.threads).map(outcome).collect::<Vec<_>>(),
            "checks": self.checks,
        })
    }
}
