//! Reports to standard output and to files.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use lab::report::{Report, summary};
use serde_json::Value;

use super::{Outputs, cannot};
use crate::app::App;

/// Everything that a command has to show.
#[derive(Default)]
pub struct LabReports {
    /// Of experiments in files.
    pub reports: Vec<Report>,
    /// A line for each report as it comes, and a table of all at the end.
    pub short: bool,
}

/// The status of a command that found something outside of its range.
pub const OUTSIDE: u8 = 3;
/// Most lines of what lies outside.
const LINES: usize = 30;

impl LabReports {
    /// Adds a report, and prints it where it is not part of one JSON document.
    ///
    /// # Errors
    /// Output cannot be written.
    pub fn report(&mut self, app: &mut App, report: Report) -> Result<()> {
        match (app.out.json, self.short) {
            (true, _) => {}
            (false, true) => {
                let line = format!("{}: {}", report.experiment, report.summary_line());
                app.out.line(line)?;
            }
            (false, false) => app.out.line(report.text())?,
        }
        self.reports.push(report);
        Ok(app.out.flush()?)
    }

    /// Writes what was asked for beside the text: JSON, Markdown, the page.
    ///
    /// # Errors
    /// A file cannot be written; a template of the user's that is not valid.
    pub fn write(&self, app: &mut App, outputs: &Outputs) -> Result<()> {
        if app.out.json {
            app.out.document(&self.json())?;
        }
        if let Some(path) = &outputs.json_file {
            std::fs::write(path, format!("{}\n", self.json())).map_err(cannot(path))?;
        }
        if let Some(path) = &outputs.markdown {
            let all = self.reports.iter().map(Report::markdown);
            let text = all.collect::<Vec<_>>().join("\n");
            std::fs::write(path, text).map_err(cannot(path))?;
        }
        if let Some(path) = &outputs.summary {
            let table = summary::table(&self.reports).markdown();
            std::fs::write(path, table).map_err(cannot(path))?;
        }
        if let Some(path) = &outputs.html {
            let read = |file: &std::path::PathBuf| {
                std::fs::read_to_string(file).with_context(|| file.display().to_string())
            };
            let template = outputs.template.as_ref().map(read).transpose()?;
            let page = Report::html(&self.reports, template.as_deref());
            let page = page.map_err(|error| anyhow!(error))?;
            std::fs::write(path, page).map_err(cannot(path))?;
            app.out.note(format!("the page is {}", path.display()));
        }
        Ok(())
    }

    /// Ends the command: the table of several reports, and the status, 3 where something lies
    /// outside of its range.
    ///
    /// # Errors
    /// Output cannot be written.
    pub fn end(&self, app: &mut App) -> Result<ExitCode> {
        if self.reports.len() > 1 && !app.out.json {
            app.out.line(format!("\n{}", summary::text(&self.reports, LINES)))?;
        }
        match summary::holds(&self.reports) {
            true => Ok(ExitCode::SUCCESS),
            false => Ok(ExitCode::from(OUTSIDE)),
        }
    }

    /// One report is a document, several are a list.
    fn json(&self) -> Value {
        let mut all: Vec<Value> = self.reports.iter().map(Report::json).collect();
        if all.len() == 1 { all.remove(0) } else { Value::Array(all) }
    }
}
