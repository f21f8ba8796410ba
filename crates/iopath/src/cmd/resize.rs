//! `resize`: makes a file system larger or smaller.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};
use crate::text;

/// Make a file system larger or smaller
#[derive(Args)]
#[command(after_help = "\
Without a size it takes all of its device. An image file that is too short for the size becomes
longer first; one whose file system shrinks keeps its length. XFS shrinks as far as the end is free.
Nobody may have it mounted. A power cut leaves the old size or the new one.

Examples:
  iopath resize disk.img 20G
  iopath resize /dev/sdb1")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// New size of the file system, e.g. 20G
    #[arg(value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
}

/// Runs `resize`.
///
/// # Errors
/// Another format; a size that cannot be; blocks in use behind the new end; the device failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let storage = open(app, &target, options.size)?;
    let report = xfs::resize::resize(app.cx, &storage.queue, options.size);
    let report = report.with_context(|| target.to_string())?;
    let bytes = |blocks: u64| blocks * u64::from(report.block_size);
    let (before, after) = (bytes(report.before.0), bytes(report.after.0));
    if app.out.json {
        app.out.document(&json!({
            "target": target.to_string(),
            "before": { "size": before, "groups": report.before.1 },
            "after": { "size": after, "groups": report.after.1 },
        }))?;
    } else if before == after {
        app.out.line(format!("{target}: keeps its size of {}", text::size(after)))?;
    } else {
        let (from, to) = (text::size(before), text::size(after));
        let groups = format!("{} groups, {} before", report.after.1, report.before.1);
        app.out.line(format!("{target}: {to}, {from} before ({groups})"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the target; an image file is made long enough first.
fn open(app: &mut App, target: &Target, size: Option<u64>) -> Result<Storage> {
    let storage = Storage::open(app, target, true)?;
    if storage.must_be_known(app)? == Known::Ext {
        bail!("{target}: ext2, ext3 and ext4 are not resized here; resize2fs does it");
    }
    let plain = target.partition.is_none() && storage.container.is_none();
    let short = size.filter(|&size| size > storage.bytes());
    let is_file = target.path.metadata().is_ok_and(|meta| meta.is_file());
    let Some(size) = short.filter(|_| plain && is_file) else { return Ok(storage) };
    let file = std::fs::OpenOptions::new().write(true).open(&target.path);
    file.and_then(|file| file.set_len(size)).with_context(|| target.to_string())?;
    drop(storage);
    Storage::open(app, target, true)
}
