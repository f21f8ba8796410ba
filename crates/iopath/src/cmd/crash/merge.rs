//! `crash merge`: the results of shards as one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use crash::finding::FINDINGS;

use super::explore::{FOUND, further, parse_findings};
use super::results::{Line, difference, last};
use crate::app::App;
use crate::cmd::lab::parse_shard;

/// Merge the results of shards
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash explore run.log --shard 1/2 --results 1.jsonl
  iopath crash explore run.log --shard 2/2 --results 2.jsonl
  iopath crash merge 1.jsonl 2.jsonl
Prints one JSON line. Exit status: 0 nothing found, 1 states are wrong, 2 an error, 75 not complete:
a part is missing, or has not come to its end.")]
pub struct Options {
    /// Results of `iopath crash explore --results`
    #[arg(required = true, value_name = "RESULTS")]
    files: Vec<PathBuf>,
    /// Show at most this many kinds of findings
    #[arg(long, value_name = "NUMBER", default_value_t = FINDINGS, value_parser = parse_findings)]
    findings: usize,
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
        let line = last(app, path)?.with_context(|| format!("{}: no results", path.display()))?;
        complete &= line.outcome.complete;
        whole = Some(match whole {
            None => line,
            Some(before) if before.plan != line.plan => {
                let how = difference(&line.plan, &before.plan).unwrap_or_default();
                bail!("{}: these are results of another exploration ({how})", path.display())
            }
            Some(before) if line.shards.iter().any(|shard| before.shards.contains(shard)) => {
                bail!("{}: shard {} comes twice", path.display(), line.shards.join(", "))
            }
            Some(mut before) => {
                before.shards.extend(line.shards);
                before.outcome = before.outcome.join(line.outcome);
                before
            }
        });
    }
    let mut whole = whole.context("no results")?;
    whole.outcome.show(options.findings);
    let missing = missing(&whole.shards)?;
    if !missing.is_empty() {
        app.out.note(format!("no results of {}", missing.join(", ")));
    }
    if let Some(note) = further(&whole.outcome) {
        app.out.note(note);
    }
    complete &= missing.is_empty();
    whole.outcome.complete = complete;
    app.out.line(serde_json::to_string(&whole)?)?;
    Ok(match (whole.outcome.wrong, complete) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(INCOMPLETE),
        _ => ExitCode::from(FOUND),
    })
}

/// How many shards' names are shown.
const SHOWN: usize = 8;

/// The shards that are not among these, the first few by name.
fn missing(shards: &[String]) -> Result<Vec<String>> {
    let parse = |shard: &String| parse_shard(shard).map_err(|error| anyhow!(error));
    let there = shards.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let parts = there.first().context("results of no part")?.parts;
    if let Some(other) = there.iter().find(|shard| shard.parts != parts) {
        bail!("parts of {parts} and of {} do not belong together", other.parts);
    }
    let gone = parts.saturating_sub(there.len());
    let numbers = (1..=parts).filter(|number| there.iter().all(|shard| shard.number != *number));
    let mut missing: Vec<String> =
        numbers.take(SHOWN).map(|number| format!("{number}/{parts}")).collect();
    if gone > missing.len() {
        missing.push(format!("{} more", gone - missing.len()));
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shards_that_are_missing_are_named() {
        let missing = |shards: &[&str]| {
            let shards: Vec<String> = shards.iter().map(ToString::to_string).collect();
            super::missing(&shards).map(|missing| missing.join(" ")).map_err(|e| e.to_string())
        };
        assert_eq!(missing(&["1/1"]), Ok(String::new()));
        assert_eq!(missing(&["3/4", "1/4"]), Ok("2/4 4/4".to_owned()));
        assert!(missing(&["7/100"]).unwrap().ends_with("9/100 91 more"));
        assert!(missing(&["1/2", "2/3"]).unwrap_err().contains("do not belong together"));
    }
}
