//! Changes that go through an undo file, which goes again when they are made.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use repair::Plan;
use repair::resize::LayoutPlan;
use repair::undo::{Repaired, UndoFile};

use super::repair::free_path;
use crate::app::App;
use crate::storage::Storage;

/// Writes what nobody sees yet of a change of the layout, and checks what the whole change leaves.
///
/// # Errors
/// The device failed, or the result would be wrong: the file system is as it was.
pub fn prepare(app: &mut App, storage: &Storage, layout: &LayoutPlan) -> Result<()> {
    let named = || storage.target.to_string();
    let progress = app.out.progress("moving");
    let prepared = layout.prepare(app.cx, &storage.queue, &progress.meter());
    progress.finish();
    prepared.with_context(named)?;
    let progress = app.out.progress("checking");
    let judged = layout.judge(app.cx, &storage.queue, &progress.meter());
    progress.finish();
    judged.with_context(named)
}

/// The command that reverts a change with its undo file.
pub fn undo_command(app: &App, path: &Path) -> String {
    let offset = app.options.offset.map_or(String::new(), |at| format!("--offset {at} "));
    format!("iopath undo {offset}{}", path.display())
}

/// Carries a plan out. A cut is finished by the next call, or reverted by `iopath undo`, from the
/// undo file; it stays where `kept` names it.
///
/// # Errors
/// As [`apply`].
pub fn carry_out(app: &mut App, storage: &Storage, plan: &Plan, kept: Option<&Path>) -> Result<()> {
    let (_, path) = apply(app, storage, plan, kept)?;
    if kept.is_none() {
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Carries a plan out; answers the undo file and its path, `place` or one beside the target.
///
/// # Errors
/// No room for the undo file; the device failed.
pub fn apply(
    app: &mut App,
    storage: &Storage,
    plan: &Plan,
    place: Option<&Path>,
) -> Result<(UndoFile, PathBuf)> {
    let target = &storage.target;
    let path = match place {
        Some(path) => path.to_path_buf(),
        None => free_path(target)?,
    };
    let named = || format!("{}: nothing was changed", path.display());
    let name = target.to_arg();
    let of = Repaired { target: name.as_bytes(), device_bytes: storage.bytes() };
    let made = UndoFile::create(&path, app.cx.random_uuid(), &of, plan);
    let mut undo = made.with_context(named)?;
    let progress = app.out.progress("changing");
    undo.set_meter(progress.meter());
    let applied = repair::apply(app.cx, &storage.queue, &mut undo);
    progress.finish();
    let named = || format!("{target}: cut; run it again, or {}", undo_command(app, &path));
    applied.with_context(named)?;
    Ok((undo, path))
}
