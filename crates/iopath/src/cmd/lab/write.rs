//! Reports to standard output and to files.

use anyhow::{Context, Result, anyhow};
use lab::report::Report;
use serde_json::Value;

use super::{Outputs, cannot};
use crate::app::App;

/// Everything that a command has to show.
#[derive(Default)]
pub struct Found {
    /// Of experiments in files.
    pub reports: Vec<Report>,
}

impl Found {
    /// Adds a report, and prints it where it is not part of one JSON document.
    ///
    /// # Errors
    /// Output cannot be written.
    pub fn report(&mut self, app: &mut App, report: Report) -> Result<()> {
        if !app.out.json {
            app.out.line(report.text())?;
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

    /// One report is a document, several are a list.
    fn json(&self) -> Value {
        let mut all: Vec<Value> = self.reports.iter().map(Report::json).collect();
        if all.len() == 1 { all.remove(0) } else { Value::Array(all) }
    }
}
