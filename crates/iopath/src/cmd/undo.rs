//! `undo`: reverts a repair.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use repair::undo::UndoFile;
use serde_json::json;

use crate::app::App;
use crate::storage::Storage;
use crate::target::TargetPath;

/// Revert a repair, a resize or a tune, byte for byte
#[derive(Args)]
#[command(after_help = "\
Refused if the image has changed since. An undo that was cut may be repeated.

Examples:
  iopath undo disk.img.undo")]
pub struct Options {
    /// The undo file of a change
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image, if it has another name by now: TARGET
    #[arg(value_name = "TARGET")]
    target: Option<OsString>,
}

/// Runs `undo`.
///
/// # Errors
/// A damaged undo file; an image that has changed since, or that is in use.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let named = || options.file.display().to_string();
    let mut undo = UndoFile::open(&options.file).with_context(named)?;
    let target = match &options.target {
        Some(target) => target.clone(),
        None => undo.target().into(),
    };
    let target = TargetPath::parse(&target)?.target;
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
