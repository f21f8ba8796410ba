//! `crash`: what a program leaves on a disk when the power fails.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::app::App;

mod again;
mod directory;
mod explore;
mod fault;
mod interrupt;
mod kernel;
mod mark;
pub mod marks;
mod merge;
mod orphans;
mod place;
mod program;
pub mod record;
mod results;
mod running;
mod words;

/// Exit status of `explore` and `merge` where nothing can be said: 1 says that states are wrong.
const TROUBLE: u8 = 2;

/// Record a program's disk, cut the power everywhere, and check what is left
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash record run.log -- ./my-test        on a fresh ext4
  iopath crash explore run.log -- ./my-check         each state as the current directory
  iopath crash explore run.log                       without a check: recovery and fsck alone
  iopath crash mark \"committed 17\"                   inside of my-test
See docs/crash.md.")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Record(record::Options),
    Explore(explore::Options),
    Mark(mark::Options),
    Merge(merge::Options),
}

/// Runs `crash`.
///
/// # Errors
/// Those of the command below it; `explore` and `merge` report theirs, with status 2.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let done = match &options.what {
        What::Record(options) => return record::run(app, options),
        What::Mark(options) => return mark::run(app, options),
        What::Explore(options) => explore::run(app, options),
        What::Merge(options) => merge::run(app, options),
    };
    match done {
        Ok(status) => Ok(status),
        Err(error) if crate::out::is_closed_pipe(&error) => Err(error),
        Err(error) => {
            app.out.problem(format!("{error:#}"));
            Ok(ExitCode::from(TROUBLE))
        }
    }
}
