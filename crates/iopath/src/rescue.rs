//! `--rescue`, `--map` and `--offset`: reading targets that are damaged, or begin elsewhere.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Sector;
use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;
use block::Device;
use repair::rescue::Rescued;
use repair::{RepairError, map_file};

use crate::app::{App, Opened, format_wanted};
use crate::target::Target;

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
    let format = format_wanted(app.options.rescue_type, app.options.superblock)?;
    let progress = app.out.progress("looking at what is left");
    let rescued = Rescued::new(app.cx, &device, &lost, format);
    progress.finish();
    let rescued = Arc::new(rescued.with_context(|| target.to_string())?);
    if let (Some(_), Err(error @ (RepairError::NoSuperblock | RepairError::NotThere(_)))) =
        (format, &rescued.plan)
    {
        bail!("{target}: --rescue-type or --superblock: {error}");
    }
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
fn lost(app: &App, device: &Arc<dyn Device>, start: u64) -> Result<RangeSet64> {
    let Some(path) = &app.options.map else { return Ok(RangeSet64::new()) };
    let named = || path.display().to_string();
    // A comment in it has ddrescue's command line, with names of any bytes.
    let text = std::fs::read(path).with_context(named)?;
    let text = String::from_utf8_lossy(&text);
    let first = start / SECTOR_SIZE;
    let bytes = start + device.info().bytes();
    let whole = map_file::lost(&text, bytes).with_context(named)?;
    let mut lost = RangeSet64::new();
    for run in whole.iter() {
        let run = run.start.saturating_sub(first)..run.end.saturating_sub(first);
        lost.insert(run.start..run.end.min(device.info().sectors));
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
        let bytes = rescued.unread.len() * SECTOR_SIZE;
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
