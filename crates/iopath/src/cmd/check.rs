//! `check`: the read-only fsck.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::app::App;

/// Exit status: nothing to complain about.
pub const CLEAN: u8 = 0;
/// Exit status: findings, which are left as they are.
pub const ERRORS_LEFT: u8 = 4;
/// Exit status: the check could not be made.
pub const OPERATIONAL: u8 = 8;
/// Exit status: wrong usage.
pub const USAGE: u8 = 16;

/// Check a file system without changing it
#[derive(Args)]
#[command(
    after_help = "Exit status as fsck(8): 0 clean, 4 errors left uncorrected, 8 the check could not be made,
16 wrong usage.

Examples:
  iopath check disk.img
  iopath check --json disk.img@1 | jq -r .rule"
)]
pub struct Options {
    /// Images: TARGET
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs `check`.
///
/// # Errors
/// A target that cannot be opened or read.
pub fn run(_app: &mut App, _options: &Options) -> Result<ExitCode> {
    anyhow::bail!("not built in")
}
