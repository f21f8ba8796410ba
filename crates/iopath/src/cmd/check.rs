//! `check`: the read-only fsck.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use vfs::check::Summary;

use crate::app::{App, BesideWord};
use crate::session::{journal_beside, open_beside};
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};

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
#[command(after_help = "\
One line for each finding: rule, place, numbers. A dirty journal is replayed in memory first.
A note is what Linux does not mind, or puts right at the next mount; with notes alone the file
system is clean.
Exit status as fsck(8): 0 clean, 4 errors left uncorrected, 8 the check could not be made,
16 wrong usage.

Examples:
  iopath check disk.img
  iopath check --json disk.img@1 | jq -r 'select(.rule) | .rule'")]
pub struct Options {
    /// Images: TARGET
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Report a dirty journal instead of replaying it in memory
    #[arg(long)]
    no_replay: bool,
    /// Use about this much memory at most: on XFS damage takes longer with less, on ext a check
    /// that needs more is refused
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_size)]
    memory: Option<u64>,
    /// Print at most this many findings
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    limit: usize,
}

/// Runs `check`.
///
/// # Errors
/// A target that cannot be opened or read.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut status = CLEAN;
    for target in &options.targets {
        let target = TargetPath::parse(target)?.target;
        let storage = Storage::open_to_use(app, &target, false)?;
        let known = storage.must_be_known(app)?;
        let progress = app.out.progress("checking");
        let meter = progress.meter();
        let (replay, findings_max) = (!options.no_replay, options.limit);
        let most = options.memory;
        let log = open_beside(app, BesideWord::Log, false)?;
        let report = match known {
            Known::Ext => {
                let journal = journal_beside(app, false)?;
                if let Some(allowed) = most {
                    let needed = ext4::memory(app.cx, &storage.queue)?;
                    if needed > allowed {
                        let [needed, allowed] = [needed, allowed].map(crate::text::size);
                        bail!("{target}: a check takes about {needed}, and {allowed} is allowed");
                    }
                }
                let options =
                    ext4::CheckOptions { replay, findings_max, journal, tasks: None, meter };
                ext4::check(app.cx, &storage.queue, &options).map(Summary::from)
            }
            Known::Xfs => {
                let mut options = xfs::CheckOptions {
                    recover: replay,
                    findings_max,
                    meter,
                    ..xfs::CheckOptions::default()
                };
                options.memory = most.unwrap_or(options.memory);
                let found = xfs::check_beside(app.cx, &storage.queue, log.as_ref(), &options);
                found.map(Summary::from)
            }
        };
        progress.finish();
        let report = report.with_context(|| target.to_string())?;
        show(app, &target, &report)?;
        if !report.clean {
            status = ERRORS_LEFT;
        }
    }
    Ok(ExitCode::from(status))
}

fn show(app: &mut App, target: &Target, report: &Summary) -> Result<()> {
    for found in &report.findings {
        if app.out.json {
            app.out.document(&json!({
                "target": target.to_string(),
                "rule": found.rule,
                "at": found.at,
                "detail": found.detail,
                "weight": if found.note { "note" } else { "damage" },
            }))?;
        } else {
            app.out.line(format!("{target}: {found}"))?;
        }
    }
    let Summary { clean, inodes_used: inodes, directories, .. } = *report;
    let total = report.findings.len() as u64 + report.more;
    if app.out.json {
        return Ok(app.out.document(&json!({
            "target": target.to_string(),
            "clean": clean,
            "findings": total,
            "inodes": inodes,
            "directories": directories,
        }))?);
    }
    let verdict = match (clean, total) {
        (true, 0) => "clean".to_string(),
        (true, 1) => "clean, 1 note".to_string(),
        (true, notes) => format!("clean, {notes} notes"),
        (false, 1) => "1 finding".to_string(),
        (false, count) => format!("{count} findings"),
    };
    Ok(app.out.line(format!("{target}: {verdict}; {inodes} inodes, {directories} directories"))?)
}
