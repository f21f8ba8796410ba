//! `scan`: the file systems on a disk, wherever they begin.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::Timespec;
use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;
use block::{Queue, QueueConfig};
use clap::Args;
use repair::holes::Holes;
use serde_json::json;

use crate::app::App;
use crate::scan::{Family, FileSystem, Scanner};
use crate::storage::{Storage, uuid_text};
use crate::target::{Target, TargetPath};
use crate::text;

/// Find ext and XFS file systems on a disk, wherever they begin
#[derive(Args)]
#[command(after_help = "\
Reads the whole disk and looks for superblocks and their copies: also those of partitions that no
table names any more, and of file systems whose start was overwritten. One line for each file
system: the byte where it begins, format, size, how many of its superblocks are there, label,
UUID, last write. What cannot be read is skipped and named at the end. Nothing is written.
Exit status: 0 found, 1 nothing found or not all read.

Examples:
  iopath scan disk.img
  iopath --rescue --offset 1048576 ls disk.img:/
  iopath scan --json /dev/sdb | jq .start")]
pub struct Options {
    /// Disk: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
}

/// Runs `scan`.
///
/// # Errors
/// A target that cannot be opened.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let storage = Storage::open(app, &target, false)?;
    let device = storage.queue.device().clone();
    let holes = Arc::new(Holes::new(device.clone(), device.info().bytes(), &RangeSet64::new()));
    let queue = Queue::new(app.cx.runtime(), holes.clone(), QueueConfig::default())?;
    let end = queue.info().bytes();
    let mut scanner = Scanner::default();
    let mut progress = app.out.progress_of("reading", end);
    let read = scanner.read(app.cx, &queue, 0..end, |bytes| progress.add(0, bytes));
    read.with_context(|| target.to_string())?;
    progress.finish();
    let found = scanner.file_systems(end);
    for one in &found {
        let inside = found.iter().find(|other| {
            let range = other.start..other.start.saturating_add(other.shape.bytes());
            *other != one && range.contains(&one.start) && other.shape.bytes() > one.shape.bytes()
        });
        show(app, &target, one, inside.map(|other| other.start))?;
    }
    let met = holes.met();
    for run in met.iter() {
        let bytes = (run.end - run.start) * SECTOR_SIZE;
        let at = run.start * SECTOR_SIZE;
        app.out.problem(format!("{target}: {bytes} bytes at {at} could not be read"));
    }
    if found.is_empty() {
        let traces = scanner.traces.values();
        let words: String = traces.map(|trace| format!("; {trace}")).collect();
        app.out.note(format!("{target}: no superblock of ext or XFS in {end} bytes{words}"));
    }
    let all = !found.is_empty() && met.is_empty();
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(app: &mut App, target: &Target, found: &FileSystem, inside: Option<u64>) -> Result<()> {
    let FileSystem { start, shape, label, written, found, in_journal } = found;
    let format = match shape.family {
        Family::Ext => "ext",
        Family::Xfs => "xfs",
    };
    let (count, copies) = (found.len(), shape.copies());
    let written = written.map(|secs| text::full_time(Timespec::from_secs(secs.into())));
    let (uuid, size) = (uuid_text(&shape.uuid), shape.bytes());
    if app.out.json {
        return Ok(app.out.document(&json!({
            "target": target.to_string(),
            "start": start,
            "format": format,
            "size": size,
            "block_size": shape.block_size,
            "label": text::escape(label),
            "uuid": uuid,
            "last_write": written,
            "superblocks": found.iter().map(|(group, at)| json!({"group": group, "at": at}))
                .collect::<Vec<_>>(),
            "superblocks_made": copies,
            "in_journal": in_journal,
            "inside": inside,
        }))?);
    }
    let label = if label.is_empty() { "-".into() } else { text::escape(label) };
    let written = written.unwrap_or_else(|| "-".into());
    let mut line = format!(
        "{start:>14} {format} {:>10} {count:>3} of {copies:<3} {label:<16} {uuid} {written}",
        text::size(size)
    );
    match inside {
        Some(outer) => line.push_str(&format!("  inside of the one at {outer}")),
        None if in_journal.is_some() => {
            line.push_str("  its start is gone, a journal has a copy: use --rescue");
        }
        None if !found.contains_key(&0) => line.push_str("  its start is gone: use --rescue"),
        None => (),
    }
    Ok(app.out.line(line)?)
}
