//! `crash merge`: the results of shards as one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::explore::FOUND;
use super::results::{Line, joined, last};
use crate::app::App;

/// Merge the results of shards
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash explore run.log --shard 1/2 --results 1.jsonl
  iopath crash explore run.log --shard 2/2 --results 2.jsonl
  iopath crash merge 1.jsonl 2.jsonl
Prints one JSON line. Exit status: 0 nothing found, 1 states are wrong, 75 not complete.")]
pub struct Options {
    /// Results of `iopath crash explore --results`
    #[arg(required = true, value_name = "RESULTS")]
    files: Vec<PathBuf>,
}

/// Exit status of an exploration that is not complete: come again.
pub const INCOMPLETE: u8 = 75;

/// Runs `crash merge`.
///
/// # Errors
/// A file cannot be read, or belongs to another exploration.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut whole: Option<Line> = None;
    let mut complete = true;
    for path in &options.files {
        let line = last(path)?.with_context(|| format!("{}: no results", path.display()))?;
        complete &= line.outcome.complete;
        whole = Some(match whole {
            None => line,
            Some(before) if before.plan != line.plan => {
                bail!("{}: results of {}, not of {}", path.display(), line.plan, before.plan)
            }
            Some(before) if line.shards.iter().any(|shard| before.shards.contains(shard)) => {
                bail!("{}: shard {} comes twice", path.display(), line.shards.join(", "))
            }
            Some(mut before) => {
                before.shards.extend(line.shards);
                before.outcome = joined(before.outcome, line.outcome);
                before
            }
        });
    }
    let mut whole = whole.context("no results")?;
    whole.outcome.complete = complete;
    app.out.line(serde_json::to_string(&whole)?)?;
    Ok(match (whole.outcome.wrong, complete) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(INCOMPLETE),
        _ => ExitCode::from(FOUND),
    })
}
