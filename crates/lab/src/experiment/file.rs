//! The file format, as serde sees it. Unknown keys are refused.

use std::collections::BTreeMap;

use block::control::{GroupShare, IoMax};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::headline::Headline;
use super::knob::Knob;
use super::value::{ByteSize, CellName, Expression, SeedRange};
use crate::stats::Better;

/// A name that must exist elsewhere in the file, with the place where it is used.
pub type Name = Spanned<String>;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Version of the format: 1.
    pub schema: Spanned<u32>,
    /// The document that the experiment repeats.
    pub document: Document,
    /// What is asked, in a few sentences.
    pub question: String,
    /// The line that stands for it where several are shown.
    pub headline: Option<Headline>,
    /// The experiment whose line counts this one too: another machine of the same document.
    pub part_of: Option<String>,
    /// The program that does the runs; where none is named, the workloads do.
    pub program: Option<Name>,
    /// What the program takes for every case; a case's own values come after.
    #[serde(default)]
    pub with: toml::Table,
    /// What it takes instead in a full run.
    #[serde(default)]
    pub full: toml::Table,
    /// The modelled machine; a program may do without one.
    #[serde(default)]
    pub machine: Machine,
    /// Which seeds are run.
    pub seeds: Seeds,
    /// File systems by name.
    pub filesystem: BTreeMap<String, Filesystem>,
    /// Control groups by name, and what each is given.
    #[serde(default)]
    pub group: BTreeMap<String, Share>,
    /// Workloads by name.
    #[serde(default)]
    pub workload: BTreeMap<String, Workload>,
    /// Cases by name: which workloads run beside each other, and for how long.
    pub case: BTreeMap<String, Case>,
    /// Variants by name: what is compared.
    pub variant: BTreeMap<String, Variant>,
    /// Metrics by name.
    pub metric: BTreeMap<String, Metric>,
    /// The tables of the report.
    #[serde(default)]
    pub table: Vec<Table>,
    /// The published cells.
    #[serde(default)]
    pub cell: Vec<Cell>,
    /// What must hold between cells.
    #[serde(default)]
    pub relation: Vec<Relation>,
    /// One parameter varied.
    #[serde(default)]
    pub sweep: Vec<Sweep>,
    /// Two metrics of one case against each other, every variant a point.
    pub frontier: Option<Frontier>,
    /// What the document does not say, for `lab search`.
    pub search: Option<Search>,
}

/// Where the question comes from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Title of the thread or paper.
    pub title: String,
    /// Who wrote it.
    pub author: String,
    /// When: year-month-day.
    pub date: String,
    /// What it says, in a few sentences of ours.
    #[serde(default)]
    pub summary: String,
}

/// The machine that all runs happen on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name or path of the profile.
    pub profile: Name,
    /// Bytes of the device.
    pub device: ByteSize,
    /// Memory for cached file content.
    pub memory: ByteSize,
}

impl Default for Machine {
    /// The machine at hand.
    fn default() -> Machine {
        let profile = Spanned::new(0..0, String::new());
        Machine { profile, device: ByteSize(0), memory: ByteSize(0) }
    }
}

impl Machine {
    /// True where no machine is modelled.
    pub fn is_at_hand(&self) -> bool {
        self.profile.get_ref().is_empty()
    }
}

/// Seeds of a quick and of a full run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    /// Without `--full`.
    pub quick: SeedRange,
    /// With `--full`.
    pub full: SeedRange,
}

/// A file system, how it is made and mounted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    /// `ext2`, `ext3`, `ext4` or `xfs`.
    #[serde(rename = "type")]
    pub kind: Name,
    /// Features as `mke2fs -O` takes them.
    #[serde(default)]
    pub features: String,
    /// Bytes of the journal.
    pub journal: Option<ByteSize>,
    /// The stripe that an XFS is made for.
    pub stripe: Option<StripeShape>,
    /// Mount options, as mount(8) takes them; those of a variant come after.
    #[serde(default)]
    pub mount: OptionText,
    /// Files that exist before the clock starts.
    #[serde(default)]
    pub files: Vec<Layout>,
}

impl Filesystem {
    /// True where it is no ext2, ext3 or ext4.
    pub fn is_xfs(&self) -> bool {
        self.kind.get_ref() == "xfs"
    }
}

/// What `mkfs.xfs -d sunit=..,swidth=..` takes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripeShape {
    /// Bytes of a unit.
    pub unit: ByteSize,
    /// Units of a stripe.
    pub width: u32,
}

/// A text that may be left out, with its place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct OptionText(pub Option<Spanned<String>>);

impl OptionText {
    /// The text; empty where there is none.
    pub fn text(&self) -> &str {
        self.0.as_ref().map_or("", |text| text.get_ref())
    }

    /// Where it stands.
    pub fn span(&self) -> Option<std::ops::Range<usize>> {
        self.0.as_ref().map(Spanned::span)
    }
}

/// A file that exists before the clock starts, with all its blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Absolute path; missing directories are made.
    pub path: Name,
    /// Bytes.
    pub size: ByteSize,
}

/// Which front end runs a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// `fs_mark`, by its command line.
    FsMark,
    /// `fio`, by its job file.
    Fio,
}

/// What a control group is given; what is left out is as without it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its weight: `blkio.weight`, `io.bfq.weight`, `io.weight`.
    pub weight: Option<u32>,
    /// The text of `io.max` after the device: `rbps=1048576 wiops=120`.
    pub max: Option<Name>,
    /// The target of `io.latency` in microseconds.
    pub latency_us: Option<u64>,
}

impl Share {
    /// As a queue takes it.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn of_queue(&self) -> Result<GroupShare, String> {
        if self.weight.is_some_and(|weight| !(1..=10_000).contains(&weight)) {
            return Err("a weight is from 1 to 10,000".to_owned());
        }
        let max = self.max.as_ref().map_or(Ok(IoMax::default()), |text| text.get_ref().parse())?;
        let latency = self.latency_us.map(base::Nanos::from_micros);
        Ok(GroupShare { weight: self.weight, max, latency })
    }

    /// This share with what `own` says of its own.
    pub fn with(&self, own: &Share) -> Share {
        Share {
            weight: own.weight.or(self.weight),
            max: own.max.clone().or_else(|| self.max.clone()),
            latency_us: own.latency_us.or(self.latency_us),
        }
    }
}

/// A workload, as its tool takes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The tool.
    pub tool: Tool,
    /// Its command line, without or with its name in front.
    pub args: Option<Spanned<String>>,
    /// Its job file.
    pub job: Option<Spanned<String>>,
}

/// Workloads beside each other, or what a program does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// For the head of a column.
    pub title: String,
    /// The workloads.
    #[serde(default)]
    pub run: Vec<Name>,
    /// The control groups of workloads; all others are in the root group.
    #[serde(default)]
    pub groups: BTreeMap<String, Name>,
    /// Simulated seconds.
    #[serde(default)]
    pub seconds: f64,
    /// What a program takes.
    #[serde(default)]
    pub with: toml::Table,
    /// What it takes instead in a full run.
    #[serde(default)]
    pub full: toml::Table,
    /// The figures are times of the machine at hand: the variants take turns in one run, and
    /// nothing else runs beside it.
    #[serde(default)]
    pub measured: bool,
    /// Other simulated seconds for some variants, as the document has it.
    #[serde(default)]
    pub seconds_of: BTreeMap<String, f64>,
    /// Simulated seconds of a quick run, where fewer than those are enough.
    #[serde(default)]
    pub quick_seconds: Option<f64>,
    /// The case also ends when this workload has written so many lines of results.
    pub lines: Option<Lines>,
}

/// An end before the time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// Whose lines are counted.
    pub of: Name,
    /// How many.
    pub count: u32,
}

/// What is compared. Everything that is left out comes from the variant named by `like`, else from
/// the defaults of the queue and of the file system.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// For the head of a row.
    pub title: Option<String>,
    /// One sentence more.
    pub note: Option<String>,
    /// Another variant to start from.
    pub like: Option<Name>,
    /// Name of the elevator.
    pub elevator: Option<Name>,
    /// The controller in front of the elevator: `io.max`, `io.latency` or `io.cost`.
    pub controller: Option<Name>,
    /// What groups are given instead of what the file says.
    #[serde(default)]
    pub groups: BTreeMap<String, Share>,
    /// Tunables of queue, controller and elevator.
    #[serde(default)]
    pub tunables: BTreeMap<String, toml::Value>,
    /// Mount options, after those of the file system.
    #[serde(default)]
    pub mount: OptionText,
    /// Synchronous writes carry NOIDLE.
    pub noidle: Option<bool>,
}

/// Where figures come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Counted: the same every time.
    Exact,
    /// From a model, in virtual time.
    #[default]
    Modelled,
    /// From the machine at hand.
    Measured,
}

impl Basis {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Basis::Exact => "exact",
            Basis::Modelled => "modelled",
            Basis::Measured => "measured",
        }
    }
}

/// A figure of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// For the head of a column.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// The workload that it is about.
    pub of: Option<Name>,
    /// The figure: one of the names in `docs/experiments.md`, or one that the program gives.
    pub value: Name,
    /// Where it comes from.
    #[serde(default)]
    pub basis: Basis,
    /// The figure is a change in percent against this, in pairs within one run.
    pub against: Option<String>,
    /// Which direction is the better one.
    #[serde(default)]
    pub better: Better,
    /// Decimals in tables.
    #[serde(default = "one")]
    pub decimals: usize,
}

fn one() -> usize {
    1
}

/// A table of the report: variants down, cases and metrics across (`columns`), or a row for each
/// variant of each case, metrics across (`cases`, `metrics`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    #[serde(default)]
    pub note: String,
    /// File systems: one table each.
    pub filesystems: Vec<Name>,
    /// More of them where everything is run.
    #[serde(default)]
    pub full_filesystems: Vec<Name>,
    /// The rows.
    pub variants: Vec<Name>,
    /// The columns: `case.metric`.
    #[serde(default)]
    pub columns: Vec<Name>,
    /// The cases of a table with a row for each.
    #[serde(default)]
    pub cases: Vec<Name>,
    /// More of them where everything is run.
    #[serde(default)]
    pub full_cases: Vec<Name>,
    /// Its metrics.
    #[serde(default)]
    pub metrics: Vec<Name>,
    /// The rows are compared with this variant, metric by metric.
    pub against: Option<Name>,
    /// Left out unless everything is run.
    #[serde(default)]
    pub full_only: bool,
    /// Left out where all experiments are run one after another.
    #[serde(default)]
    pub named_only: bool,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Which cell.
    pub cell: Spanned<CellName>,
    /// What the document says.
    pub published: f64,
    /// Other figures that the document gives for the same thing.
    #[serde(default)]
    pub also: Vec<f64>,
    /// The least and the most that is accepted, in the unit of the metric.
    pub within: Option<Spanned<[f64; 2]>>,
    /// The constant of the machine that this figure fixed: the cell is then no prediction.
    pub fixes: Option<Fixes>,
    /// Why the cell may lie outside, where that is known from the events.
    pub reason: Option<String>,
}

/// What a calibrated cell fixed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixes {
    /// The parameter of the machine's profile.
    pub parameter: String,
    /// The file system on which it was fixed; on the others the cell is a prediction.
    pub filesystem: Name,
}

/// Something that must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// In words.
    pub title: String,
    /// A cell, or the ratio or the difference of two.
    pub value: Spanned<Expression>,
    /// The file system of its second cell, where that is another one.
    pub over: Option<Name>,
    /// The cases that `*` stands for in it, a relation each.
    #[serde(default)]
    pub cases: Vec<Name>,
    /// The least and the most.
    pub within: Spanned<[f64; 2]>,
    /// A wider range that is accepted where `accepted_because` holds.
    pub accept: Option<Spanned<[f64; 2]>>,
    /// Why.
    pub accepted_because: Option<String>,
    /// Why the relation may not hold, where that is known from the events.
    pub reason: Option<String>,
    /// It is a goal of ours, beyond the document.
    #[serde(default)]
    pub goal: bool,
    /// Only on these file systems; on all of the main table where it is left out.
    #[serde(default)]
    pub filesystems: Vec<Name>,
}

/// One parameter varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    #[serde(default)]
    pub note: String,
    /// The file system.
    pub filesystem: Name,
    /// More of them where everything is run: a sweep each.
    #[serde(default)]
    pub full_filesystems: Vec<Name>,
    /// The case.
    pub case: Name,
    /// The metric.
    pub metric: Name,
    /// The variants: one line each.
    pub variants: Vec<Name>,
    /// What is varied.
    pub vary: Vary,
    /// Unit of the values, for the axis.
    #[serde(default)]
    pub unit: String,
    /// Draw what the machine's device can move at most; the metric is in MiB/s.
    #[serde(default)]
    pub limit: bool,
    /// Values of a full run.
    pub values: Vec<Spanned<u64>>,
    /// Values of a quick run.
    pub quick: Vec<u64>,
    /// Simulated seconds, where the case's are too long for so many runs.
    pub seconds: Option<f64>,
}

/// Plausible machines of a document that does not say which it had.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What to read in it.
    #[serde(default)]
    pub note: String,
    /// File systems that it may have had.
    pub filesystems: Vec<Name>,
    /// A cell that stands beside the errors, as another axis.
    pub beside: Option<Spanned<CellName>>,
    /// Simulated seconds by case, where those of the case are too long for so many runs.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
    /// What may have been different.
    pub unknown: Vec<Unknown>,
}

/// Something that the document does not say.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// In words.
    pub title: String,
    /// What is varied.
    pub vary: Vary,
    /// Unit of the values.
    #[serde(default)]
    pub unit: String,
    /// The values that are plausible.
    pub values: Vec<u64>,
}

/// What a sweep varies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Vary {
    /// A tunable of queue or elevator.
    Tunable(Name),
    /// The value after an option of a workload's command line.
    Option {
        /// The workload.
        workload: Name,
        /// The option, e.g. `-s`.
        option: Name,
    },
    /// The value of a key of a workload's job file, in all of its jobs.
    Job {
        /// The workload.
        workload: Name,
        /// The key, e.g. `bs`.
        key: Name,
    },
    /// A number of the modelled machine.
    Machine(Knob),
    /// A mount option that takes a number.
    Mount(Name),
}

/// Two metrics against each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frontier {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    #[serde(default)]
    pub note: String,
    /// The case.
    pub case: Name,
    /// The metric across.
    pub x: Name,
    /// The metric upwards.
    pub y: Name,
    /// The file system.
    pub filesystem: Name,
    /// The variants.
    pub variants: Vec<Name>,
    /// A goal: at least so much of both.
    pub goal: Option<[f64; 2]>,
}
