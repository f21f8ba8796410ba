//! What a report consists of.

use serde::{Deserialize, Serialize};

use crate::experiment::{Basis, Document};
use crate::record::{RunRecord, Spread};
use crate::stats::{Better, Comparison};

/// What a cell is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A constant of the machine was chosen so that it fits.
    Calibrated,
    /// Nothing was chosen for it.
    Predicted,
}

/// Where a value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Band {
    /// Within the range.
    Inside,
    /// Not within it.
    Outside,
    /// There is no range, or no value.
    None,
}

impl Band {
    /// Where `value` lies.
    pub fn of(value: Option<f64>, within: Option<[f64; 2]>) -> Band {
        match (value, within) {
            (Some(value), Some([low, high])) if (low..=high).contains(&value) => Band::Inside,
            (Some(_), Some(_)) => Band::Outside,
            _ => Band::None,
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Band::Inside => "inside",
            Band::Outside => "outside",
            Band::None => "none",
        }
    }

    /// A sign beside the colour.
    pub fn sign(self) -> &'static str {
        match self {
            Band::Inside => "✓",
            Band::Outside => "✗",
            Band::None => "–",
        }
    }
}

/// One figure beside the published one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// `variant.case.metric`.
    pub cell: String,
    /// The file system.
    pub filesystem: String,
    /// Unit of the figures.
    pub unit: String,
    /// What the document says.
    pub published: Option<f64>,
    /// Other figures that the document gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<f64>,
    /// The median over the seeds.
    pub obtained: Option<f64>,
    /// Least and most over the seeds.
    pub range: Option<[f64; 2]>,
    /// How sure the figure of one run is that comes from many pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Seeds.
    pub n: usize,
    /// Obtained by published.
    pub ratio: Option<f64>,
    /// Modelled or measured.
    pub basis: Basis,
    /// Calibrated or predicted.
    pub role: Role,
    /// The constant that a calibrated cell has fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixes: Option<String>,
    /// Inside, outside or none.
    pub band: Band,
    /// The range, in the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<[f64; 2]>,
    /// Why it lies outside, as the experiment's file knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the events say: counts by file, idle times by cause.
    pub evidence: String,
    /// Notes of the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The command that repeats the figure.
    pub command: String,
    /// Decimals to show.
    #[serde(skip, default)]
    pub decimals: usize,
}

/// A row of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RowReport {
    /// The variant.
    pub variant: String,
    /// Its title.
    pub title: String,
    /// One sentence more.
    pub note: String,
    /// Its cells, one for each column.
    pub cells: Vec<CellReport>,
}

/// A column of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnReport {
    /// Title of the case.
    pub case: String,
    /// Title of the metric.
    pub metric: String,
    /// What a change is against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Unit.
    pub unit: String,
}

/// A table on one file system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableReport {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    pub note: String,
    /// The file system.
    pub filesystem: String,
    /// Its columns.
    pub columns: Vec<ColumnReport>,
    /// A row for each variant of each case, metrics across.
    #[serde(default)]
    pub wide: bool,
    /// Its rows.
    pub rows: Vec<RowReport>,
    /// What its changes say together, a sentence for each variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The rows compared with one of them.
    pub comparisons: Vec<ComparisonReport>,
}

/// A metric of one variant beside that of another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// Case and metric, in words.
    pub metric: String,
    /// Unit.
    pub unit: String,
    /// Which direction is the better one.
    pub better: Better,
    /// The variant before.
    pub before: String,
    /// The variant after.
    pub after: String,
    /// The figures; p is adjusted over the report.
    pub figures: Comparison,
}

/// A relation on one file system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RelationReport {
    /// In words.
    pub title: String,
    /// What is computed.
    pub value: String,
    /// The file system.
    pub filesystem: String,
    /// The same of the published cells.
    pub published: Option<f64>,
    /// Of ours: the median over the seeds of each cell.
    pub obtained: Option<f64>,
    /// The range.
    pub within: [f64; 2],
    /// A wider range, accepted for a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<[f64; 2]>,
    /// Inside, outside or none.
    pub band: Band,
    /// Outside the range and inside the accepted one.
    pub accepted: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It is a goal of ours, beyond the document.
    #[serde(default)]
    pub goal: bool,
    /// What the events say.
    pub evidence: String,
}

/// One line of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SweepLine {
    /// The variant.
    pub variant: String,
    /// Its title.
    pub title: String,
    /// Value varied, and the median obtained.
    pub points: Vec<(u64, f64)>,
}

/// A sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SweepReport {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    pub note: String,
    /// The file system.
    pub filesystem: String,
    /// What is varied.
    pub vary: String,
    /// Unit of what is varied.
    pub unit: String,
    /// Title and unit of what is obtained.
    pub metric: String,
    /// What the device can do at most, and why, where the sweep asks for it.
    #[serde(default)]
    pub limit: Option<(f64, String)>,
    /// The lines.
    pub lines: Vec<SweepLine>,
}

/// A point of the frontier.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// The variant.
    pub variant: String,
    /// Its title.
    pub title: String,
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Where the document has it.
    pub published: Option<[f64; 2]>,
    /// No other point is better in both.
    pub best: bool,
}

/// Two metrics against each other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FrontierReport {
    /// Its heading.
    pub title: String,
    /// What to read in it.
    pub note: String,
    /// The file system.
    pub filesystem: String,
    /// Titles with units: across, upwards.
    pub axes: [String; 2],
    /// A goal.
    pub goal: Option<[f64; 2]>,
    /// The points.
    pub points: Vec<FrontierPoint>,
}

/// How many cells and relations lie where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Predicted cells inside, outside.
    pub cells: [usize; 2],
    /// Calibrated cells.
    pub calibrated: usize,
    /// Relations inside, accepted, outside.
    pub relations: [usize; 3],
    /// Goals of ours met, missed; they are among the relations.
    #[serde(default)]
    pub goals: [usize; 2],
}

impl Summary {
    /// Nothing lies outside, but for what was accepted with a reason.
    pub fn holds(&self) -> bool {
        self.cells[1] == 0 && self.relations[2] == 0
    }
}

/// The figure that stands for an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HeadlineReport {
    /// What it is, with its unit.
    pub title: String,
    /// The cell beside the published one.
    pub cell: CellReport,
    /// The variant of ours, and its figure.
    pub ours: Option<(String, CellReport)>,
}

/// Everything about one experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of the format.
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Digest of its text.
    pub digest: String,
    /// The document.
    pub document: DocumentReport,
    /// The question.
    pub question: String,
    /// The machine, in words.
    pub machine: String,
    /// The line that stands for it where several are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<HeadlineReport>,
    /// The experiment whose line counts this one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Surroundings of the runs: name and value.
    pub surroundings: Vec<(String, String)>,
    /// Cells and relations counted.
    pub summary: Summary,
    /// The tables.
    pub tables: Vec<TableReport>,
    /// The relations.
    pub relations: Vec<RelationReport>,
    /// The frontier.
    pub frontier: Option<FrontierReport>,
    /// The sweeps.
    pub sweeps: Vec<SweepReport>,
    /// The command that repeats everything.
    pub command: String,
    /// The records themselves.
    pub runs: Vec<RunRecord>,
}

/// The document of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DocumentReport {
    /// Title.
    pub title: String,
    /// Author.
    pub author: String,
    /// Date.
    pub date: String,
    /// What it says.
    pub summary: String,
}

impl From<&Document> for DocumentReport {
    fn from(from: &Document) -> DocumentReport {
        let Document { title, author, date, summary } = from.clone();
        DocumentReport { title, author, date, summary: summary.trim().to_owned() }
    }
}

impl Report {
    /// Where its figures come from: `exact`, `exact and measured`.
    pub fn bases(&self) -> String {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let cells = rows.flat_map(|row| &row.cells).filter(|cell| cell.obtained.is_some());
        let mut bases: Vec<Basis> = cells.map(|cell| cell.basis).collect();
        bases.sort();
        bases.dedup();
        bases.iter().map(|basis| basis.word()).collect::<Vec<_>>().join(" and ")
    }
}
