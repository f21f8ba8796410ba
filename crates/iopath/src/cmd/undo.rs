//! `undo`: reverts a repair.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use repair::undo::UndoFile;
use serde_json::json;

use crate::app::App;
use crate::storage::Storage;
use crate::target::{Target, TargetPath};

/// Revert a repair, a resize or a tune, byte for byte
#[derive(Args)]
#[command(after_help = "\
Refused if the image has changed since. An undo that was cut may be repeated. The image is looked
for under the name that it had, then beside the undo file.

Examples:
  iopath undo disk.img.undo
  iopath undo disk.img.undo copy.img")]
pub struct Options {
    /// The undo file of a change
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image, if it has another name by now: TARGET
    #[arg(value_name = "TARGET")]
    target: Option<OsString>,
}

/// The image that was changed: under the name that it had then, else beside the undo file.
fn find_target(file: &Path, name: &[u8]) -> Result<Target> {
    let mut target = TargetPath::parse(OsStr::from_bytes(name))?.target;
    if target.path.exists() {
        return Ok(target);
    }
    let beside = target.path.file_name().map(|name| file.with_file_name(name));
    let Some(beside) = beside.filter(|path| path.exists()) else {
        let file = file.display();
        bail!("{target}: is not there; name the image: iopath undo {file} TARGET");
    };
    target.path = beside;
    Ok(target)
}

/// Runs `undo`.
///
/// # Errors
/// A damaged undo file; an image that has changed since, or that is in use.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let named = || options.file.display().to_string();
    let mut undo = UndoFile::open(&options.file).with_context(named)?;
    let target = match &options.target {
        Some(target) => TargetPath::parse(target)?.target,
        None => find_target(&options.file, undo.target())?,
    };
    let storage = Storage::open(app, &target, true)?;
    let progress = app.out.progress("undoing");
    undo.set_meter(progress.meter());
    let undone = undo.undo(app.cx, &storage.queue);
    progress.finish();
    undone.with_context(|| target.to_string())?;
    let blocks = undo.blocks();
    if app.out.json {
        let target = target.to_string();
        app.out.document(&json!({ "target": target, "blocks": blocks, "undone": true }))?;
    } else {
        app.out.line(format!("{target}: {blocks} blocks as before the change"))?;
    }
    Ok(ExitCode::SUCCESS)
}
