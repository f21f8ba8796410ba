//! `resize`: makes a file system larger or smaller.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use repair::resize::{self as ext, Numbers, ResizeOptions, Size};
use repair::volume::Effort;
use serde_json::{Value, json};

use super::{repair as repair_cmd, replay, undoable};
use crate::app::App;
use crate::session;
use crate::storage::{Known, Storage};
use crate::target::{Target, TargetPath};
use crate::text;

pub mod mounted;
mod of_xfs;

/// Make a file system larger or smaller
#[derive(Args)]
#[command(after_help = "\
Without a size it takes all of its device. An image file that is too short for the size becomes
longer first, and so does the disk in a qcow2; neither becomes shorter. One that iopath has mounted
grows while it is used; its directory names it as well. A power cut leaves the old size or the new.
Where blocks or inodes must move (ext2, ext3 and ext4; XFS that shrinks), the result is checked
before it is written, and the next resize finishes a cut from the undo file (TARGET.undo), or
iopath undo reverts it. A journal or log is replayed first.

Examples:
  iopath resize disk.img 20G
  iopath resize -M disk.img
  iopath resize /dev/sdb1
  iopath resize /mnt 40G                 while it is mounted there")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// New size of the file system, e.g. 20G
    #[arg(value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// As small as it can be
    #[arg(short = 'M', long = "min", conflicts_with_all = ["size", "print_min"])]
    min: bool,
    /// Print the smallest size, and change nothing
    #[arg(short = 'P', long = "print-min", conflicts_with = "size")]
    print_min: bool,
    /// ext: turn the feature 64bit on
    #[arg(short = 'b', long = "64bit", conflicts_with_all = ["size", "min", "print_min", "narrow"])]
    wide: bool,
    /// ext: turn the feature 64bit off
    #[arg(short = 's', long = "32bit", conflicts_with_all = ["size", "min", "print_min"])]
    narrow: bool,
    /// Print what would be done, and change nothing; XFS: of a smaller size
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// ext: use about this much memory at most for what changes; a plan that needs more is not made
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    memory: Option<u64>,
    /// Undo file that is kept; iopath undo reverts the resize with it. XFS: where anything moves
    #[arg(short = 'z', long, value_name = "FILE")]
    undo_file: Option<PathBuf>,
}

impl Options {
    /// Is there something that only ext knows?
    fn of_ext(&self) -> bool {
        self.wide || self.narrow || self.memory.is_some()
    }
}

/// Runs `resize`.
///
/// # Errors
/// Another format; a size that cannot be; blocks in use behind the new end; the device failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    if let Some(mounted) = mounted::find(&options.target)? {
        return mounted::resize(app, &mounted, options);
    }
    let target = TargetPath::parse(&options.target)?.target;
    let (storage, known) = open(app, &target, options)?;
    if known == Known::Ext {
        return resize_ext(app, &storage, options);
    }
    of_xfs::resize(app, &storage, options)?;
    Ok(ExitCode::SUCCESS)
}

/// The bytes that an image file, or the disk in a container that is written, must have first, where
/// it is too short.
fn longer(storage: &Storage, options: &Options) -> Option<u64> {
    let target = &storage.target;
    let plain = target.partition.is_none() && storage.volumes.is_empty();
    let grows = match &storage.container {
        Some(image) => image.is_writable(),
        None => target.path.metadata().is_ok_and(|meta| meta.is_file()),
    };
    options.size.filter(|&size| plain && grows && size > storage.bytes())
}

/// Opens the target; an image file is made long enough first.
fn open(app: &mut App, target: &Target, options: &Options) -> Result<(Storage, Known)> {
    let storage = Storage::open_to_use(app, target, true)?;
    let known = storage.must_be_known(app)?;
    let short = longer(&storage, options).filter(|_| !options.dry_run);
    let Some(size) = short else { return Ok((storage, known)) };
    match &storage.container {
        Some(image) => image.grow(size)?,
        None => {
            let file = std::fs::OpenOptions::new().write(true).open(&target.path);
            file.and_then(|file| file.set_len(size)).with_context(|| target.to_string())?;
        }
    }
    drop(storage);
    Ok((Storage::open_to_use(app, target, true)?, known))
}

/// The same for ext2, ext3 and ext4.
fn resize_ext(app: &mut App, storage: &Storage, options: &Options) -> Result<ExitCode> {
    let target = &storage.target;
    let named = || target.to_string();
    make_clean(app, storage, !options.dry_run && !options.print_min)?;
    if options.print_min {
        let least = ext::least_bytes(app.cx, &storage.queue).with_context(named)?;
        let text = format!("{target}: {} at the least ({least} bytes)", text::size(least));
        print(app, &text, json!({ "target": target.to_string(), "minimum": least }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let switched = options.wide || options.narrow;
    let size = match (options.min, options.size) {
        (true, _) => Size::Least,
        (_, Some(bytes)) => Size::Bytes(bytes),
        _ if switched => Size::Keep,
        _ => Size::Device,
    };
    let device_bytes = longer(storage, options);
    let wide = switched.then_some(options.wide);
    let wanted = ResizeOptions { size, wide, device_bytes };
    let progress = app.out.progress("planning");
    let effort = Effort { memory: options.memory, meter: progress.meter() };
    let planned = ext::plan(app.cx, &storage.queue, &wanted, &effort);
    progress.finish();
    let plan = planned.with_context(named)?;
    if !options.dry_run && !plan.is_done() {
        undoable::prepare(app, storage, &plan.layout)?;
        undoable::carry_out(app, storage, &plan.layout.plan, options.undo_file.as_deref())?;
    }
    let bytes = |numbers: &Numbers| numbers.blocks * u64::from(plan.block_size);
    let (from, to) = (text::size(bytes(&plan.before)), text::size(bytes(&plan.after)));
    let moved = (plan.blocks_moved, plan.inodes_moved);
    let line = match plan.is_done() {
        true => format!("{target}: keeps its size of {to}"),
        false => format!(
            "{target}: {to}, {from} before ({} groups, {} before; {} blocks and {} inodes moved){}",
            plan.after.groups,
            plan.before.groups,
            moved.0,
            moved.1,
            if options.dry_run { "; nothing was changed" } else { "" }
        ),
    };
    let facts = |numbers: &Numbers| {
        json!({
            "size": bytes(numbers),
            "groups": numbers.groups,
            "inodes": numbers.inodes,
            "descriptor_size": numbers.desc_size,
        })
    };
    let document = json!({
        "target": target.to_string(),
        "before": facts(&plan.before),
        "after": facts(&plan.after),
        "blocks_moved": moved.0,
        "inodes_moved": moved.1,
        "changed": !options.dry_run && !plan.is_done(),
    });
    print(app, &line, document)?;
    Ok(ExitCode::SUCCESS)
}

/// Finishes a change that was cut, and replays the journal.
///
/// # Errors
/// The device failed; it is in use; the journal is damaged.
pub fn make_clean(app: &mut App, storage: &Storage, write: bool) -> Result<()> {
    repair_cmd::finish_cut(app, storage, write)?;
    if write && replay::is_dirty(app, storage)? {
        let fs = session::mount_ext(app, storage, true)?;
        session::close(app, session::Session::on(storage.target.clone(), fs))?;
    }
    Ok(())
}

fn print(app: &mut App, line: &str, document: Value) -> Result<()> {
    match app.out.json {
        true => app.out.document(&document)?,
        false => app.out.line(line)?,
    }
    Ok(())
}
