//! `replay`: recovers a dirty image and leaves it clean.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::json;

use crate::app::{App, BesideWord};
use crate::session::{self, open_beside};
use crate::storage::{Known, Storage};
use crate::target::TargetPath;

/// Replay the journal and free files that were unlinked while open: leaves the image clean
#[derive(Args)]
#[command(after_help = "Examples:
  iopath replay disk.img && iopath check disk.img")]
pub struct Options {
    /// Images: TARGET
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs `replay`.
///
/// # Errors
/// A target that cannot be opened, or whose journal is damaged.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for target in &options.targets {
        let target = TargetPath::parse(target)?.target;
        let storage = Storage::open_to_use(app, &target, true)?;
        if storage.must_be_known(app)? == Known::Xfs {
            replay_xfs(app, &storage)?;
            continue;
        }
        let was_dirty = is_dirty(app, &storage)?;
        let fs = session::mount_ext(app, &storage, true)?;
        session::close(app, session::Session::on(target.clone(), fs))?;
        if app.out.json {
            let target = target.to_string();
            app.out
                .document(&json!({ "target": target, "was_dirty": was_dirty, "clean": true }))?;
        } else {
            let done = if was_dirty { "replayed, clean now" } else { "was clean" };
            app.out.line(format!("{target}: {done}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays the log of an XFS onto its device.
fn replay_xfs(app: &mut App, storage: &Storage) -> Result<()> {
    let target = &storage.target;
    let log = open_beside(app, BesideWord::Log, true)?;
    let done = xfs::recover_beside(app.cx, &storage.queue, log);
    let done = done.map_err(|error| anyhow!("{target}: {error}"))?;
    storage.queue.flush(app.cx).map_err(|error| anyhow!("{target}: {error}"))?;
    if app.out.json {
        let document = json!({
            "target": target.to_string(),
            "was_dirty": !done.was_clean,
            "clean": true,
            "transactions": done.transactions,
            "items": done.items,
            "items_already_there": done.skipped,
            "buffers_written": done.buffers,
            "intents": done.intents,
            "unlinked_inodes_freed": done.unlinked,
        });
        return Ok(app.out.document(&document)?);
    }
    if done.was_clean {
        return Ok(app.out.line(format!("{target}: was clean"))?);
    }
    Ok(app.out.line(format!("{target}: {done}, clean now"))?)
}

/// Must the journal be replayed, or are there files to be freed?
///
/// # Errors
/// The device failed.
pub fn is_dirty(app: &mut App, storage: &Storage) -> Result<bool> {
    let start = storage.start(app, 4096)?;
    let raw = start.get(1024..2048).and_then(ext4::format::RawSuper::read);
    let recover = ext4::format::features::Incompat::RECOVER;
    Ok(raw.is_some_and(|raw| {
        let features = raw.features();
        let orphans = ext4::format::features::RoCompat::ORPHAN_PRESENT;
        features.incompat.contains(recover)
            || features.ro_compat.contains(orphans)
            || raw.s_last_orphan.get() != 0
    }))
}
