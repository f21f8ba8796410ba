//! `demo`: the whole path in one minute.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::demo::{crash, elevators};

/// Cut the power in a burst of fsyncs, recover, and compare two elevators
///
/// Makes an ext4 image in memory with our mkfs, puts a generated tree into it, cuts the power in
/// the middle of a burst of fsyncs, recovers, and shows what was promised and what is there; then
/// compares two elevators on one modelled disk. All of it in virtual time: a seed gives one run.
#[derive(Args)]
#[command(after_help = "Examples:
  iopath demo
  iopath demo --seed 7 --keep recovered.img && e2fsck -fn recovered.img")]
pub struct Options {
    /// Seed of the run: the same seed gives the same run, to the nanosecond
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Keep the recovered image in this file
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// Runs `demo`.
///
/// # Errors
/// A promise was broken, the check finds something, or the image cannot be kept.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let crash = crash::run(options.seed);
    if let Some(path) = &options.keep {
        let failed = || format!("cannot write the image {}", path.display());
        crash.keep(path).with_context(failed)?;
    }
    let rows = elevators::compare(options.seed);
    if app.out.json {
        let rows = elevators::to_json(&rows);
        app.out.document(&json!({ "crash": crash.to_json(), "elevators": rows }))?;
    } else {
        app.out.line(crash.to_text())?;
        app.out.line(elevators::to_text(&rows))?;
        if let Some(path) = &options.keep {
            app.out
                .line(format!("The recovered image is {0}; try: e2fsck -fn {0}", path.display()))?;
        }
    }
    ensure!(crash.broken.is_empty(), "broken promises: {}", crash.broken.join("; "));
    ensure!(crash.findings.is_empty(), "the check found: {}", crash.findings.join("; "));
    Ok(ExitCode::SUCCESS)
}
