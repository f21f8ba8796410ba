//! `mkfs`: makes a file system.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::app::App;

/// Make a file system
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mkfs -t ext4 --size 64M disk.img")]
pub struct Options {
    /// TARGET
    target: OsString,
}

/// Runs `mkfs`.
///
/// # Errors
/// Impossible options, a device that failed.
pub fn run(_app: &mut App, _options: &Options) -> Result<ExitCode> {
    anyhow::bail!("not built in")
}
