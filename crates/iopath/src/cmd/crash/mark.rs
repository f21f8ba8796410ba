//! `crash mark`: notes in the log of a recording that something was reached.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::app::App;

/// Write a mark into the log of the running recording
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash mark \"committed 17\"
  echo \"committed 17\" > $IOPATH_CRASH_MARKS     the same from any program, without an answer")]
pub struct Options {
    /// Text of the mark
    #[arg(value_name = "TEXT")]
    text: OsString,
}

/// Runs `crash mark`; returns when the mark is in the log.
///
/// # Errors
/// Nothing records this process, or it does not answer.
pub fn run(_app: &mut App, options: &Options) -> Result<ExitCode> {
    let Some(socket) = std::env::var_os(crash::mark::SOCKET) else {
        bail!(
            "{} is not set: a mark is made below `iopath crash record -- COMMAND`",
            crash::mark::SOCKET
        );
    };
    let socket = Path::new(&socket);
    let text = options.text.to_string_lossy();
    crash::mark::mark_at(socket, &text).with_context(|| socket.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
