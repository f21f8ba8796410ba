//! `--rescue`, `--map` and `--offset`: reading targets that are damaged, or begin elsewhere.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Sector;
use base::unit::SECTOR_SIZE;
use block::{Device, Queue, QueueConfig};
use repair::holes::Runs;
use repair::rescue::Rescued;
use repair::{RepairError, map_file};

use crate::app::App;
use crate::session::{self, Session};
use crate::storage::Storage;
use crate::target::Target;
use crate::{text, trees};

/// Files and places with lost content that get a line each.
const LINES_MAX: usize = 1000;

/// A target that was opened by `--rescue`.
pub struct Opened {
    target: Target,
    rescued: Arc<Rescued>,
}

/// Refuses to write where `--rescue` is given.
///
/// # Errors
/// Names both.
pub fn refuse_write(app: &App, target: &Target) -> Result<()> {
    if app.options.rescue {
        bail!("{target}: --rescue only reads; `iopath repair` puts an image right");
    }
    Ok(())
}

/// The device as the options want it seen: from `--offset` on, and with `--rescue` repaired in
/// memory. It begins at byte `start` of its disk.
///
/// # Errors
/// No such place on it, a map that is none, memory.
pub fn through(
    app: &mut App,
    target: &Target,
    mut device: Arc<dyn Device>,
    mut start: u64,
) -> Result<Arc<dyn Device>> {
    if let Some(offset) = app.options.offset {
        device = behind(target, &device, offset)?;
        start += offset;
    }
    if !app.options.rescue {
        return Ok(device);
    }
    let lost = lost(app, &device, start)?;
    let progress = app.out.progress("looking at what is left");
    let rescued = Rescued::new(app.cx, &device, &lost);
    progress.finish();
    let rescued = Arc::new(rescued.with_context(|| target.to_string())?);
    introduce(app, target, &rescued);
    device = rescued.device().clone();
    app.rescued.push(Opened { target: target.clone(), rescued });
    Ok(device)
}

/// The rest of a device from a byte on.
fn behind(target: &Target, device: &Arc<dyn Device>, offset: u64) -> Result<Arc<dyn Device>> {
    let unit = u64::from(device.info().logical_block);
    if !offset.is_multiple_of(unit) {
        bail!("{target}: --offset {offset} is no multiple of {unit}, the block of the device");
    }
    let (first, size) = (Sector::from_bytes(offset), device.info().sectors);
    let count = size.checked_sub(first.0).filter(|&count| count > 0);
    let Some(count) = count else {
        bail!("{target}: --offset {offset} lies behind the end at byte {}", size * SECTOR_SIZE);
    };
    let rest = device::Partition::part(device, first, count, 0);
    Ok(Arc::new(rest.with_context(|| target.to_string())?))
}

/// What the map says is lost of a device that begins at byte `start` of the disk.
fn lost(app: &App, device: &Arc<dyn Device>, start: u64) -> Result<Runs> {
    let Some(path) = &app.options.map else { return Ok(Runs::default()) };
    let named = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(named)?;
    let first = start / SECTOR_SIZE;
    let bytes = start + device.info().bytes();
    let whole = map_file::lost(&text, bytes).with_context(named)?;
    let mut lost = Runs::default();
    for run in whole.iter() {
        let run = run.start.saturating_sub(first)..run.end.saturating_sub(first);
        lost.add(run.start..run.end.min(device.info().sectors));
    }
    Ok(lost)
}

/// Says what a reader should know before.
fn introduce(app: &App, target: &Target, rescued: &Rescued) {
    if rescued.missing > 0 {
        let missing = rescued.missing;
        app.out
            .note(format!("{target}: {missing} bytes of its file system are missing at the end"));
    }
    if let Some(first) = rescued.unread.iter().next() {
        let bytes = rescued.unread.sectors() * SECTOR_SIZE;
        app.out.problem(format!(
            "{target}: {bytes} bytes that describe its files could not be read, first at {}",
            first.start * SECTOR_SIZE
        ));
    }
    match &rescued.plan {
        Ok(plan) if plan.findings.is_empty() => (),
        Ok(plan) => {
            let count = plan.findings.len();
            let left = match plan.left.len() {
                0 => String::new(),
                left => format!(", {left} left"),
            };
            app.out.note(format!(
                "{target}: {count} findings put right in memory{left} (`iopath repair -n` lists \
                 them)"
            ));
        }
        Err(RepairError::Device(error)) => app.out.problem(format!("{target}: {error}")),
        Err(error) => app.out.note(format!("{target}: read as it is: {error}")),
    }
}

/// Says what could not be read, and of which files it was. What was met makes a success a failure.
///
/// # Errors
/// Those of `result`.
pub fn report(app: &mut App, result: Result<ExitCode>) -> Result<ExitCode> {
    let mut failed = false;
    for opened in std::mem::take(&mut app.rescued) {
        let met = opened.rescued.met();
        failed |= met.sectors() > 0 || opened.rescued.unread.sectors() > 0;
        let runs: Vec<_> =
            met.iter().map(|run| run.start * SECTOR_SIZE..run.end * SECTOR_SIZE).collect();
        if !runs.is_empty() {
            lines(app, &opened, &runs);
        }
    }
    let code = result?;
    Ok(if failed && code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code })
}

/// A line for each file with lost content, then one for each place that belongs to none.
fn lines(app: &mut App, opened: &Opened, runs: &[Range<u64>]) {
    let target = &opened.target;
    let owners = owners(app, opened, runs).unwrap_or_default();
    let mut files = BTreeMap::<&[u8], (u64, u64)>::new();
    let mut free = Runs::default();
    runs.iter().for_each(|run| free.add(run.clone()));
    for Owner { place, path, offset } in &owners {
        let (bytes, first) = files.entry(path).or_insert((0, *offset));
        *bytes += place.end - place.start;
        *first = (*first).min(*offset);
        free.remove(place.clone());
    }
    let lost = "could not be read and are zeros";
    let of_files = files.iter().map(|(path, (bytes, first))| {
        format!("{target}:{}: {bytes} bytes {lost}, first at {first}", text::escape(path))
    });
    let of_none = free.iter().map(|run| {
        let bytes = run.end - run.start;
        format!("{target}: {bytes} bytes {lost}, at {} of the file system", run.start)
    });
    let all: Vec<String> = of_files.chain(of_none).collect();
    for line in all.iter().take(LINES_MAX) {
        app.out.problem(line);
    }
    if let Some(rest) = all.len().checked_sub(LINES_MAX).filter(|&rest| rest > 0) {
        app.out.problem(format!("{target}: and {rest} more files or places"));
    }
}

/// A part of a file that lies on a place.
struct Owner {
    /// On the device, in bytes.
    place: Range<u64>,
    path: Vec<u8>,
    /// Of the part in the file.
    offset: u64,
}

/// The parts of files that touch `runs`, which ascend: every file is asked for its map.
fn owners(app: &mut App, opened: &Opened, runs: &[Range<u64>]) -> Result<Vec<Owner>> {
    let device = opened.rescued.device().clone();
    let queue = Queue::new(app.cx.runtime(), device, QueueConfig::default())?;
    let storage = Storage { target: opened.target.clone(), queue, container: None };
    let fs = session::mount(app, &storage, false)?;
    let session = Session::on(opened.target.clone(), fs);
    let mut owners = Vec::new();
    let top = session.find(app, b"/", false)?;
    let fs = session.fs.clone();
    trees::each(app, &session, b"/", &top, &mut |app, path, attr| {
        // What has no map has no content that lies somewhere.
        for part in fs.fiemap(app.cx, attr.ino, 0, i64::MAX as u64).unwrap_or_default() {
            let Some(first) = part.content() else { continue };
            let place = first.bytes()..first.bytes() + part.len;
            let next = runs.partition_point(|run| run.end <= place.start);
            for run in runs[next..].iter().take_while(|run| run.start < place.end) {
                let (from, to) = (run.start.max(place.start), run.end.min(place.end));
                let offset = part.offset + (from - place.start);
                owners.push(Owner { place: from..to, path: path.to_vec(), offset });
            }
        }
        Ok(())
    })?;
    session::close(app, session)?;
    Ok(owners)
}
