//! `lab compare`: two files of results side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use lab::compare::{self, Pair};
use lab::experiment::Experiment;
use serde_json::json;

use super::Kept;
use super::write::OUTSIDE;
use crate::app::App;

/// What `lab compare` takes.
#[derive(Args)]
pub struct Options {
    /// Results before: a file of `lab run --results`, or a report in JSON
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Results after
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// The experiment's file, if it is not a built-in one
    #[arg(long, value_name = "FILE")]
    experiment: Option<String>,
    /// Print figures that did not change, too
    #[arg(long)]
    all: bool,
}

/// Runs `lab compare`: the status is 3 where a figure became worse.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (before, after) = (
        Kept::read(std::slice::from_ref(&options.before))?,
        Kept::read(std::slice::from_ref(&options.after))?,
    );
    let mut worse = false;
    let mut any = false;
    for (name, left) in &before.runs {
        let Some((_, right)) = after.runs.iter().find(|(other, _)| other == name) else { continue };
        any = true;
        let experiment = Experiment::load(options.experiment.as_ref().unwrap_or(name))?;
        let pair = compare::pair(&experiment, left, right).map_err(anyhow::Error::msg)?;
        worse |= pair.worse() > 0;
        show(app, &pair, options.all)?;
    }
    if !any {
        let (a, b) = (options.before.display(), options.after.display());
        bail!("{a} and {b} have no experiment in common");
    }
    Ok(if worse { ExitCode::from(OUTSIDE) } else { ExitCode::SUCCESS })
}

fn show(app: &mut App, pair: &Pair, all: bool) -> Result<()> {
    match app.out.json {
        true => app.out.document(&json!(pair))?,
        false => app.out.line(pair.text(all))?,
    }
    Ok(())
}
