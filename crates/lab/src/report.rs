//! What runs say about an experiment: tables, relations, comparisons, and how they are shown.
//!
//! A report is built from an experiment and its records alone, so it can be made again, or from
//! merged shards, without running anything.

mod build;
mod cells;
mod changes;
mod chart;
mod html;
mod markdown;
mod model;
mod number;
pub mod summary;
mod surroundings;
mod svg;
mod table;
mod tail;
mod text;

use crate::experiment::Experiment;
use crate::record::{RunRecord, SCHEMA};

pub use model::{
    Band, CellReport, ColumnReport, ComparisonReport, DocumentReport, FrontierPoint,
    FrontierReport, HeadlineReport, RelationReport, Report, Role, RowReport, Summary, SweepLine,
    SweepReport, TableReport,
};
pub(crate) use number::number;
pub use table::{Align, TextTable};
pub(crate) use text::change;

impl Report {
    /// The report of an experiment from its records, in any order.
    pub fn build(experiment: &Experiment, records: Vec<RunRecord>, command: &str) -> Report {
        build::build(experiment, records, command)
    }

    /// For a terminal: 100 columns of plain text.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// How many cells and relations lie where, in a sentence.
    pub fn summary_line(&self) -> String {
        text::summary(self)
    }

    /// For documents.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// For programs, with the raw samples.
    pub fn json(&self) -> serde_json::Value {
        debug_assert_eq!(self.schema, SCHEMA);
        serde_json::to_value(self).expect("a report is JSON")
    }

    /// For a browser: one page that needs nothing else.
    ///
    /// # Errors
    /// What the template says (a template of the user's).
    pub fn html(reports: &[Report], template: Option<&str>) -> Result<String, String> {
        html::render(reports, template)
    }
}
