//! `df`: space in use and free.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;
use crate::text;

/// Show space in use and free
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  iopath df -h disk.img
  iopath df --json disk.img@2 | jq .blocks_free"
)]
pub struct Options {
    /// Images: TARGET
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Sizes in KiB, MiB, .. (always on)
    #[arg(short = 'h', long, short_alias = 'H')]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs `df`.
///
/// # Errors
/// A target that cannot be opened.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    if !app.out.json {
        let (size, used, free) = ("Size", "Used", "Free");
        app.out.line(format!(
            "{:>10} {:>10} {:>10}  Use% {:>10} {:>10}  Type  Target",
            size, used, free, "Inodes", "Free"
        ))?;
    }
    for target in &options.targets {
        let target = TargetPath::parse(target)?.target;
        session::with(app, &target, false, |app, session| {
            let stat = session.fs.statfs(app.cx).map_err(at(&target))?;
            let kind = session.fs.name();
            if app.out.json {
                return Ok(app.out.document(&json!({
                    "target": target.to_string(),
                    "format": kind,
                    "block_size": stat.block_size,
                    "blocks": stat.blocks,
                    "blocks_free": stat.blocks_free,
                    "blocks_available": stat.blocks_available,
                    "inodes": stat.inodes,
                    "inodes_free": stat.inodes_free,
                }))?);
            }
            let bytes = |blocks: u64| text::size(blocks * u64::from(stat.block_size));
            let used = stat.blocks - stat.blocks_free;
            let percent = used * 100 / (used + stat.blocks_available).max(1);
            Ok(app.out.line(format!(
                "{:>10} {:>10} {:>10} {percent:>4}% {:>10} {:>10}  {kind}  {target}",
                bytes(stat.blocks),
                bytes(used),
                bytes(stat.blocks_available),
                stat.inodes,
                stat.inodes_free
            ))?)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
