//! `lab sensitivity`: which headline moves when a fitted constant does.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lab::experiment::Experiment;
use lab::sensitivity;
use serde_json::json;

use crate::app::App;

/// What `lab sensitivity` moves.
#[derive(Args)]
pub struct Options {
    /// Experiments by name, or files; default: all built-in ones
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Per cent by which each constant is moved, down and up
    #[arg(long, value_name = "PERCENT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=99))]
    by: u32,
    /// Runs at a time; default: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(0..=4096))]
    jobs: u64,
}

/// Runs `lab sensitivity`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let names: Vec<String> = match options.names.is_empty() {
        true => lab::experiments().map(str::to_owned).collect(),
        false => options.names.clone(),
    };
    for name in names {
        let experiment = Experiment::load(&name)?;
        let lines = sensitivity::of(&experiment, options.by, options.jobs as usize)?;
        match (app.out.json, lines.is_empty()) {
            (true, _) => app.out.document(&json!({ "experiment": name, "lines": lines }))?,
            (false, true) => {
                app.out.line(format!("{name}: no number of a machine's profile was fitted\n"))?;
            }
            (false, false) => {
                let table = sensitivity::table(&lines, options.by);
                app.out.line(format!("{name}\n\n{}", table.text()))?;
            }
        }
        app.out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
