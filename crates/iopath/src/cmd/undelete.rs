//! `undelete`: what was removed lately, listed and copied out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use base::Sector;
use clap::Args;
use ext4::format::FileKind;
use globset::GlobSet;
use repair::{Deleted, Deletions};
use serde_json::json;

use crate::app::App;
use crate::storage::Storage;
use crate::target::TargetPath;
use crate::{glob, text};

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// List files that were removed lately, and copy them out
#[derive(Args)]
#[command(after_help = "\
Looks in the journal of ext3 and ext4 for older copies of inodes and directories; in XFS for freed
inodes whose maps still read, and for names and sizes in the log, in directories and in free space.
A line says how much of the content nobody uses by now, size, time of the last change, path. A size
with ~ is that of whole blocks: no copy of the inode is left. A path that begins with #N is below a
directory whose name is lost. Nothing is written to the image: unmount it at once
after the accident, or work on a copy, for whatever is written may take the place of what was
removed. Where the device discarded it there are zeros; that cannot be seen.
Exit status: 0, or 1 where something was restored in part or not at all, or a PATH was not found.

Examples:
  iopath undelete disk.img
  iopath undelete disk.img --to ./back /home/anna
  iopath undelete --json disk.img | jq -r 'select(.kept == 1) | .path'")]
pub struct Options {
    /// Image: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Only these paths and everything below them; may have wildcards
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// Copy to this directory of the host, with the paths below it
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Runs `undelete`.
///
/// # Errors
/// A target that cannot be opened or read, or is no ext; a directory that cannot be made.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let storage = Storage::open_to_use(app, &target, false)?;
    storage.must_be_known(app)?;
    let progress = app.out.progress("looking");
    let deletions = repair::deleted(app.cx, &storage.queue);
    progress.finish();
    let deletions = deletions.with_context(|| target.to_string())?;
    let set = glob::set(&options.paths)?;
    let wanted = |file: &&Deleted| set.as_ref().is_none_or(|set| wanted(set, &file.path));
    let files: Vec<&Deleted> = deletions.files.iter().filter(wanted).collect();
    if files.is_empty() && options.paths.is_empty() {
        app.out.note(format!("{target}: nothing that was removed was found"));
    }
    let missing = missing(app, &deletions, &options.paths)?;
    let Some(to) = &options.to else {
        for file in files {
            show(app, file)?;
        }
        return Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    };
    let bytes = files.iter().map(|file| file.size).sum();
    let mut progress = app.out.progress_of("restoring", bytes);
    let (mut restored, mut bad) = (0, 0);
    for file in files {
        let place = to.join(OsStr::from_bytes(file.path.strip_prefix(b"/").unwrap_or(&file.path)));
        match restore(app, &storage, &deletions, file, &place) {
            Ok(()) if file.lost > 0 => {
                let (lost, blocks) = (file.lost, file.blocks);
                let shown = place.display();
                app.out.problem(format!("{shown}: {lost} of {blocks} blocks are lost: zeros"));
                bad += 1;
            }
            Ok(()) => restored += 1,
            Err(error) => {
                app.out.problem(format!("{}: {error:#}", place.display()));
                bad += 1;
            }
        }
        progress.add(1, file.size);
    }
    progress.finish();
    app.out.note(format!("{target}: {restored} restored, {bad} in part or not at all"));
    Ok(if bad + missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many of the paths name nothing that was removed; each is a problem.
fn missing(app: &mut App, deletions: &Deletions, paths: &[String]) -> Result<u64> {
    let mut count = 0;
    for path in paths {
        let Some(set) = glob::set(std::slice::from_ref(path))? else { continue };
        if !deletions.files.iter().any(|file| wanted(&set, &file.path)) {
            app.out.problem(format!("{path}: nothing that was removed was found there"));
            count += 1;
        }
    }
    Ok(count)
}

/// Whether a path is one that was asked for, or below one.
fn wanted(set: &GlobSet, path: &[u8]) -> bool {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut ends = (1..=path.len()).filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/'));
    ends.any(|end| set.is_match(Path::new(OsStr::from_bytes(&path[..end]))))
}

fn kept(file: &Deleted) -> f64 {
    match file.blocks.max(file.lost) {
        0 => 1.0,
        blocks => 1.0 - file.lost.min(blocks) as f64 / blocks as f64,
    }
}

fn show(app: &mut App, file: &Deleted) -> Result<()> {
    let kind = match file.kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "other",
    };
    if app.out.json {
        return Ok(app.out.document(&json!({
            "ino": file.ino,
            "path": text::escape(&file.path),
            "type": kind,
            "size": file.size,
            "exact": file.exact,
            "mode": file.mode,
            "uid": file.uid,
            "gid": file.gid,
            "mtime": text::full_time(file.mtime),
            "blocks": file.blocks,
            "lost": file.lost,
            "kept": kept(file),
        }))?);
    }
    // Not rounded up: 100 % means all of it.
    let percent = (kept(file) * 100.0).floor();
    let mark = if file.kind == FileKind::Directory { "/" } else { "" };
    let size = format!("{}{}", if file.exact { "" } else { "~" }, file.size);
    let time = text::full_time(file.mtime);
    let path = text::printable(&file.path);
    Ok(app.out.line(format!("{percent:>3}% {size:>12} {time} {path}{mark}"))?)
}

/// Writes one file to the host. What exists there stays.
fn restore(
    app: &mut App,
    storage: &Storage,
    deletions: &Deletions,
    file: &Deleted,
    place: &Path,
) -> Result<()> {
    if let Some(above) = place.parent() {
        std::fs::create_dir_all(above)?;
    }
    match (file.kind, &file.target) {
        (FileKind::Directory, _) => return Ok(std::fs::create_dir_all(place)?),
        (FileKind::Symlink, Some(target)) => {
            return Ok(std::os::unix::fs::symlink(OsStr::from_bytes(target), place)?);
        }
        (FileKind::Regular, _) => (),
        _ => bail!("devices, sockets, FIFOs and long symbolic links are not restored"),
    }
    let host = File::options().write(true).create_new(true).open(place)?;
    host.set_len(file.size)?;
    let size = u64::from(deletions.block_size);
    for run in file.runs.iter().filter(|run| !run.unwritten) {
        let (mut at, end) = (run.logical * size, ((run.logical + run.len) * size).min(file.size));
        let mut from = run.start * size;
        while at < end {
            let len = PIECE.min((run.start + run.len) * size - from);
            let page = storage.queue.read(app.cx, Sector::from_bytes(from), len as usize)?;
            let part = (len as usize).min((end - at) as usize);
            host.write_all_at(&page[..part], at)?;
            (at, from) = (at + len, from + len);
        }
    }
    host.set_permissions(std::fs::Permissions::from_mode(u32::from(file.mode) & 0o777))?;
    let owned = rustix::fs::fchown(
        &host,
        Some(rustix::fs::Uid::from_raw(file.uid)),
        Some(rustix::fs::Gid::from_raw(file.gid)),
    );
    // Only root can give files away; whoever else restores has them himself.
    let _kept = owned.is_ok();
    let time = SystemTime::UNIX_EPOCH
        .checked_add(Duration::new(file.mtime.sec.max(0) as u64, file.mtime.nsec));
    time.map_or(Ok(()), |time| host.set_modified(time)).map_err(|error: io::Error| error.into())
}
