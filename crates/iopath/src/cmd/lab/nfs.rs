//! `lab run nfs-partial`: the experiment with two machines in one world.

use std::io::IsTerminal;

use anyhow::{Result, anyhow};
use lab::experiment::Size;
use lab::nfs_partial;
use lab::report::ProgramReport;
use serde_json::json;

use super::cannot;
use super::run::{Options, program};
use crate::app::App;

const TITLE: &str = "[PATCH] NFS: Pagecache usage optimization on nfs";

/// Names the experiment.
///
/// # Errors
/// Output cannot be written.
pub fn list(app: &mut App) -> Result<()> {
    if app.out.json {
        let (author, date) = ("Hisashi Hifumi", "2009-02-17");
        let name = nfs_partial::NAME;
        return Ok(app
            .out
            .document(&json!({ "name": name, "title": TITLE, "author": author, "date": date }))?);
    }
    app.out.line(nfs_partial::NAME)?;
    app.out.line(format!("  {TITLE}, Hisashi Hifumi, 2009-02-17"))?;
    Ok(app.out.line("  variants: off request rmw ranges")?)
}

/// Runs it, and prints and writes its report.
///
/// # Errors
/// A run failed, a file cannot be written.
pub fn run(app: &mut App, options: &Options) -> Result<ProgramReport> {
    let size = if options.full { Size::Full } else { Size::Quick };
    let seed = options.seeds.and_then(|seeds| seeds.iter().next()).unwrap_or(1);
    let shown = std::io::stderr().is_terminal() && !app.options.quiet && !app.out.json;
    let report = nfs_partial::run(size, seed, &|title, mode, outcome| {
        if shown {
            eprintln!("{title}, {mode:?}: {:.1} simulated s", outcome.total);
        }
    });
    let report = report.map_err(|error| anyhow!("{}: {error}", nfs_partial::NAME))?;
    match app.out.json {
        true => app.out.document(&report.to_json())?,
        false => app.out.bytes(report.to_text().as_bytes())?,
    }
    let outputs = &options.outputs;
    if let Some(path) = &outputs.markdown {
        std::fs::write(path, report.to_text()).map_err(cannot(path))?;
    }
    if let Some(path) = &outputs.json_file {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(path, text).map_err(cannot(path))?;
    }
    if report.failed() > 0 {
        app.out.note(format!("{} of {} do not hold", report.failed(), report.checks.len()));
    }
    let document = format!("{TITLE}, Hisashi Hifumi, 2009-02-17");
    Ok(program(nfs_partial::NAME, document, options, report.to_text()))
}
