//! `lab run xfs-buf-item`: exact, measured and modelled, and without a file.

use std::io::IsTerminal;

use anyhow::Result;
use lab::experiment::Size;
use lab::report::ProgramReport;
use lab::xfs_buf_item::{NAME, Plan, run as run_experiment};
use serde_json::json;

use super::cannot;
use super::run::{Options, program};
use crate::app::App;

const TITLE: &str = "xfs: optimise xfs_buf_item_size/format for contiguous regions";

/// Names the experiment.
///
/// # Errors
/// Output cannot be written.
pub fn list(app: &mut App) -> Result<()> {
    let (author, date) = ("Dave Chinner", "2021");
    if app.out.json {
        let document = json!({ "name": NAME, "title": TITLE, "author": author, "date": date });
        return Ok(app.out.document(&document)?);
    }
    app.out.line(NAME)?;
    app.out.line(format!("  {TITLE}, {author}, {date}; measured and modelled"))?;
    app.out.line("  variants: bitwise contiguous ours")?;
    Ok(app.out.line("  cases: create unlink")?)
}

/// Runs it, and prints and writes its report.
///
/// # Errors
/// A run failed, a file cannot be written.
pub fn run(app: &mut App, options: &Options) -> Result<ProgramReport> {
    let size = if options.full { Size::Full } else { Size::Quick };
    let shown = std::io::stderr().is_terminal() && !app.options.quiet && !app.out.json;
    let say = &mut |what: &str| {
        if shown {
            eprintln!("{NAME}: {what}");
        }
    };
    let report = run_experiment(app.cx, &Plan::of(size), say).map_err(anyhow::Error::msg)?;
    if let Some(path) = &options.outputs.json_file {
        std::fs::write(path, format!("{:#}\n", report.json())).map_err(cannot(path))?;
    }
    if let Some(path) = &options.outputs.markdown {
        std::fs::write(path, report.markdown()).map_err(cannot(path))?;
    }
    match app.out.json {
        true => app.out.document(&report.json())?,
        false => app.out.bytes(report.text().as_bytes())?,
    }
    if report.failed() > 0 {
        let (failed, all) = (report.failed(), report.checks.len());
        app.out.note(format!("{failed} of {all} lie outside of their band"));
    }
    Ok(program(NAME, format!("{TITLE}, Dave Chinner, 2021"), options, report.markdown()))
}
