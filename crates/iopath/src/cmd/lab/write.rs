//! Reports to standard output and to files.

use anyhow::{Context, Result, anyhow};
use lab::report::{ProgramReport, Report};
use serde_json::Value;

use super::{Outputs, cannot};
use crate::app::App;

/// Prints the reports and writes the files that were asked for, but the page.
pub fn write(app: &mut App, reports: &[Report], outputs: &Outputs) -> Result<()> {
    if app.out.json {
        app.out.document(&all(reports))?;
    } else {
        for report in reports {
            app.out.line(report.text())?;
        }
    }
    if let Some(path) = &outputs.json_file {
        std::fs::write(path, all(reports).to_string()).map_err(cannot(path))?;
    }
    if let Some(path) = &outputs.markdown {
        let text: Vec<String> = reports.iter().map(Report::markdown).collect();
        std::fs::write(path, text.join("\n")).map_err(cannot(path))?;
    }
    Ok(())
}

/// Writes the page of all of them, where it was asked for.
pub fn page(
    app: &mut App,
    reports: &[Report],
    programs: &[ProgramReport],
    outputs: &Outputs,
) -> Result<()> {
    if let Some(path) = &outputs.html {
        let read = |file: &std::path::PathBuf| {
            std::fs::read_to_string(file).with_context(|| file.display().to_string())
        };
        let template = outputs.template.as_ref().map(read).transpose()?;
        let page =
            Report::html(reports, programs, template.as_deref()).map_err(|error| anyhow!(error))?;
        std::fs::write(path, page).map_err(cannot(path))?;
        app.out.note(format!("the page is {}", path.display()));
    }
    Ok(())
}

/// One report is a document, several are a list.
fn all(reports: &[Report]) -> Value {
    match reports {
        [one] => one.json(),
        several => several.iter().map(Report::json).collect(),
    }
}
