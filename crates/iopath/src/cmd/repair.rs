//! `repair`: plans the repair, stores what will change in an undo file, then writes.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use device::OpenError;
use repair::undo::{self, State, UndoFile};
use repair::{Finding, Plan, PlanOptions};
use serde_json::json;

use crate::app::{App, BesideWord, RescueType, format_wanted};
use crate::cmd::check::{CLEAN, ERRORS_LEFT};
use crate::cmd::undoable;
use crate::session::open_beside;
use crate::storage::Storage;
use crate::target::{Target, TargetPath};

/// Exit status: everything that was found was put right.
pub const CORRECTED: u8 = 1;
/// Undo files of one image that are looked for.
const UNDO_FILES: u32 = 1000;

/// Repair a damaged ext2, ext3, ext4 or XFS, with an undo file
#[derive(Args)]
#[command(after_help = "\
Prints the plan: what is wrong, what is done about it, what is lost. Without -n, -p or -y it asks
for each finding. Before the first write the old content of all blocks that change is stored in the
undo file. A repair that was cut is finished by the next one. A plan that would leave an error is
not carried out. On XFS all of the plan is done or nothing: one action that is declined stops it.
Exit status as fsck(8): 0 clean, 1 errors corrected, 4 errors left, 8 the repair could not be made,
16 wrong usage.

Examples:
  iopath repair -n disk.img
  iopath repair -p disk.img && iopath undo disk.img.undo")]
pub struct Options {
    /// Image: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Print the plan and write nothing
    #[arg(short = 'n', long, conflicts_with_all = ["preen", "yes"])]
    dry_run: bool,
    /// Repair only if nothing would be lost or guessed; otherwise change nothing
    #[arg(short = 'p', long, conflicts_with = "yes")]
    preen: bool,
    /// Carry out the whole plan
    #[arg(short = 'y', long)]
    yes: bool,
    /// Repair this file system, ext or xfs, also if another one lies over it
    #[arg(short = 't', long = "type", value_name = "TYPE", hide_possible_values = true)]
    kind: Option<RescueType>,
    /// ext: take the copy of the superblock in this block
    #[arg(short = 'b', value_name = "BLOCK")]
    superblock: Option<u64>,
    /// With -b: the size of blocks
    #[arg(short = 'B', long, value_name = "SIZE", requires = "superblock", default_value = "4096",
          value_parser = crate::text::parse_size)]
    block_size: u64,
    /// XFS: a damaged log is replayed as far as it can be, and emptied
    #[arg(long)]
    zero_log: bool,
    /// Use about this much memory at most; a plan that needs more is not made
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_size)]
    memory: Option<u64>,
    /// Undo file; the default is TARGET.undo beside an image file, else in the working directory
    #[arg(long, value_name = "FILE")]
    undo_file: Option<PathBuf>,
}

/// Runs `repair`.
///
/// # Errors
/// A target that cannot be opened or read, or that is in use; no room for the undo file.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let asks = !options.dry_run && !options.preen && !options.yes;
    if asks && !io::stdin().is_terminal() {
        app.out.problem("repair: nobody to ask: give --dry-run, --preen or --yes");
        return Ok(ExitCode::from(crate::cmd::check::USAGE));
    }
    let target = TargetPath::parse(&options.target)?.target;
    let (storage, writable) = open(app, &target, !options.dry_run)?;
    finish_cut(app, &storage, writable)?;
    let progress = app.out.progress("repair plan:");
    let mut decide = |finding: &Finding| match (options.preen, asks) {
        (true, _) => finding.safe,
        (_, true) => progress.beside(|| ask(finding)),
        _ => true,
    };
    let (zero_log, memory) = (options.zero_log, options.memory);
    let place = options.superblock.map(|block| block.saturating_mul(options.block_size));
    let format = format_wanted(options.kind, place)?;
    let log = open_beside(app, BesideWord::Log, false)?;
    let plan_options = PlanOptions { format, zero_log, log, memory, meter: progress.meter() };
    let plan = repair::plan_with(app.cx, &storage.queue, plan_options, &mut decide);
    progress.finish();
    let plan = plan.with_context(|| target.to_string())?;
    show(app, &target, &plan)?;
    let refusal = refusal(options, writable, &plan);
    if plan.is_clean() || refusal.is_some() {
        let status = if plan.is_clean() { CLEAN } else { ERRORS_LEFT };
        end(app, &target, &plan, status, &refusal.unwrap_or_else(|| "clean".into()))?;
        return Ok(ExitCode::from(status));
    }
    if plan.changes.is_empty() {
        end(app, &target, &plan, ERRORS_LEFT, "nothing was changed")?;
        return Ok(ExitCode::from(ERRORS_LEFT));
    }
    let (undo, path) = undoable::apply(app, &storage, &plan, options.undo_file.as_deref())?;
    let status = if plan.declined.is_empty() { CORRECTED } else { ERRORS_LEFT };
    let back = undoable::undo_command(app, &path);
    let text = format!("{} blocks written; to undo: {back}", undo.blocks());
    end(app, &target, &plan, status, &text)?;
    Ok(ExitCode::from(status))
}

/// Opens the target, only for reading where its medium cannot be written.
fn open(app: &mut App, target: &Target, write: bool) -> Result<(Storage, bool)> {
    let error = match Storage::open_to_use(app, target, write) {
        Ok(storage) => return Ok((storage, write)),
        Err(error) => error,
    };
    let kinds = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
    let read_only = error.chain().any(|cause| {
        let of_host = match cause.downcast_ref() {
            Some(OpenError::Host { error, .. }) => Some(error),
            _ => cause.downcast_ref::<io::Error>(),
        };
        of_host.is_some_and(|error| kinds.contains(&error.kind()))
    });
    if !write || !read_only {
        return Err(error);
    }
    Ok((Storage::open_to_use(app, target, false)?, false))
}

/// Why the plan is not carried out; None where it is.
fn refusal(options: &Options, writable: bool, plan: &Plan) -> Option<String> {
    if !plan.is_complete() && !plan.is_clean() {
        let first = plan.left.first().map_or("", String::as_str);
        let count = plan.left.len();
        return Some(format!("nothing written: {count} cannot be repaired yet, first: {first}"));
    }
    if options.preen && !plan.is_safe() {
        return Some("nothing written: not all of it is safe; see the plan of -n".into());
    }
    match (options.dry_run, writable) {
        (true, _) => Some("nothing written".into()),
        (_, false) => Some("nothing written: it can only be read".into()),
        _ => None,
    }
}

/// Finishes a repair that was cut, or a resize, if its undo file is there.
///
/// # Errors
/// The device failed; an undo was cut.
pub fn finish_cut(app: &mut App, storage: &Storage, writable: bool) -> Result<()> {
    let target = &storage.target;
    let mark = undo::unfinished(app.cx, &storage.queue)?;
    for path in paths(target).take_while(|path| path.exists()) {
        let Ok(mut undo) = UndoFile::open(&path) else { continue };
        let cut = match undo.state() {
            State::Applied | State::Undone => continue,
            State::Prepared | State::Undoing => undo.is_begun(app.cx, &storage.queue),
        };
        if !matches!(cut, Ok(true)) {
            continue;
        }
        if undo.state() == State::Undoing {
            bail!("{target}: an undo was cut; finish it: {}", undoable::undo_command(app, &path));
        }
        let path = path.display();
        if !writable {
            app.out.note(format!("{target}: a change was cut; {path} finishes it"));
            return Ok(());
        }
        repair::apply(app.cx, &storage.queue, &mut undo).with_context(|| target.to_string())?;
        app.out.note(format!("{target}: finished the change that was cut ({path})"));
        return Ok(());
    }
    if mark.is_some() {
        app.out.note(format!("{target}: a change was cut, and its undo file is not here"));
    }
    Ok(())
}

/// The names that an undo file of this target may have.
fn paths(target: &Target) -> impl Iterator<Item = PathBuf> + use<> {
    let is_file = target.path.metadata().is_ok_and(|meta| meta.is_file());
    let name = target.path.file_name().map_or("disk".into(), |name| name.to_os_string());
    let folder = match target.path.parent() {
        Some(parent) if is_file => parent.to_path_buf(),
        _ => PathBuf::new(),
    };
    let part = target.partition.map_or(String::new(), |number| format!("@{number}"));
    (1..=UNDO_FILES).map(move |number| {
        let mut name = name.clone();
        name.push(format!("{part}.undo"));
        if number > 1 {
            name.push(format!(".{number}"));
        }
        folder.join(name)
    })
}

/// A name for a new undo file.
///
/// # Errors
/// All are taken.
pub fn free_path(target: &Target) -> Result<PathBuf> {
    let free = paths(target).find(|path: &PathBuf| !Path::new(path).exists());
    free.with_context(|| format!("{target}: {UNDO_FILES} undo files are there: give --undo-file"))
}

/// Asks for one finding on the terminal.
fn ask(finding: &Finding) -> bool {
    let Finding { rule, at, detail, action, loss, .. } = finding;
    let loss = loss.as_ref().map_or(String::new(), |loss| format!(" (lost: {loss})"));
    eprint!("{rule}: {at}: {detail}\n  {action}{loss}? [y/N] ");
    let _shown = io::stderr().flush();
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}

fn show(app: &mut App, target: &Target, plan: &Plan) -> Result<()> {
    for (index, finding) in plan.findings.iter().enumerate() {
        let Finding { rule, at, detail, action, loss, safe } = finding;
        let declined = plan.declined.contains(&index);
        if app.out.json {
            app.out.document(&json!({
                "target": target.to_string(),
                "rule": rule,
                "at": at,
                "detail": detail,
                "action": action,
                "loss": loss,
                "safe": safe,
                "declined": declined,
            }))?;
            continue;
        }
        let loss = loss.as_ref().map_or(String::new(), |loss| format!("; lost: {loss}"));
        let no = if declined { " (declined)" } else { "" };
        app.out.line(format!("{target}: {rule}: {at}: {detail}: {action}{loss}{no}"))?;
    }
    Ok(())
}

fn end(app: &mut App, target: &Target, plan: &Plan, status: u8, text: &str) -> Result<()> {
    if app.out.json {
        return Ok(app.out.document(&json!({
            "target": target.to_string(),
            "findings": plan.findings.len(),
            "blocks": plan.changes.len(),
            "left": plan.left,
            "status": status,
            "text": text,
        }))?);
    }
    let (count, blocks) = (plan.findings.len(), plan.changes.len());
    let s = |count: usize| if count == 1 { "" } else { "s" };
    let found = format!("{count} finding{}, {blocks} block{} to change", s(count), s(blocks));
    Ok(app.out.line(format!("{target}: {found}; {text}"))?)
}
