//! Recovers a dirty image and leaves it clean, without a mount.
//!
//! Recovery replays the log; then unfinished work is carried out (intents, inodes without a name),
//! the counters of the superblock are summed again, and an unmount record ends the log.
//! `xfs_repair` does none of that: it can only discard a log.

pub(crate) mod intents;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::Errno;
use block::{Overlay, Queue};
use rt::Cx;

use crate::alloc::Space;
use crate::buf::{BufCache, BufCacheConfig};
use crate::error::{Result, XfsError};
use crate::format::features::{Access, Beside};
use crate::format::log_item::ItemKind;
use crate::format::{At, Features, Geometry, RawSuper};
use crate::fs::WriteSide;
use crate::ialloc::Inodes;
use crate::inactive::Inactive;
use crate::log::recovery::{self, Recovered, RecoveryContext, RecoveryReport};
use crate::log::{BesideDevice, Log, LogGeometry, LogOptions};
use crate::mount::copies::refresh_copies;
use crate::mount::{MountError, realtime, super_bytes, takes_blocks};
use crate::quota::{self, QuotaMode};

/// Recovers the log of the file system on a device and leaves it clean. May park.
///
/// # Errors
/// What the superblock or the log is wrong about; features that are refused by name. Where the log
/// announces work that cannot be carried out here, [`LogError::Unfinished`](crate::log::LogError)
/// names it, before anything was written: somebody else can recover the log.
pub fn recover(cx: &mut Cx, queue: &Arc<Queue>) -> Result<RecoveryReport> {
    recover_beside(cx, queue, None)
}

/// As [`recover`], where an external log lies on `log`. May park.
///
/// # Errors
/// As [`recover`]; the log's device is too short, or there is no external log.
pub fn recover_beside(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<BesideDevice>,
) -> Result<RecoveryReport> {
    let geometry = Arc::new(read_super(cx, queue, log.is_some())?.1);
    if check_log_device(&geometry, log.as_ref()).is_err() {
        return Err(XfsError::Answer(Errno::EINVAL));
    }
    let config = BufCacheConfig::of(&geometry, 256 << 20);
    let bufs = BufCache::new(queue.clone(), config);
    let options = LogOptions { device: log, ..LogOptions::default() };
    let (writer, report) = open(cx, bufs, geometry, options, None)?;
    match report.was_clean {
        true => writer.abandon(cx),
        false => writer.close(cx)?,
    }
    Ok(report)
}

/// Intents that no file depends on: what they would free, or count, is not used any more.
const HARMLESS: [ItemKind; 6] = [
    ItemKind::Efi,
    ItemKind::Rui,
    ItemKind::Cui,
    ItemKind::EfiRealtime,
    ItemKind::RuiRealtime,
    ItemKind::CuiRealtime,
];

/// The device as recovery of its log would leave it, and what that did: none if the log is
/// clean. What would be written stays in memory over the device, as much as the log holds. Where
/// features forbid writing, what the log only announced is not carried out, and refused by name
/// where files depend on it. May park.
///
/// # Errors
/// As [`recover`].
pub fn recover_in_memory(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
    log: Option<&BesideDevice>,
) -> Result<Option<(Arc<Queue>, RecoveryReport)>> {
    let missing = geometry.log_start.0 == 0 && log.is_none();
    let records = log.map_or(queue, |device| &device.0);
    if missing || recovery::find(cx, records, LogGeometry::of(geometry))?.clean {
        return Ok(None);
    }
    let over = Overlay::queue(queue);
    let log = log.map(|device| BesideDevice(Overlay::queue(&device.0)));
    let report = match geometry.features.access_beside(all_beside(log.is_some())).0 {
        Access::ReadWrite => recover_beside(cx, &over, log)?,
        _ => {
            let mut context = RecoveryContext::of(geometry);
            context.log = log;
            context.can_finish = &HARMLESS;
            RecoveryReport::of(&recovery::recover(cx, &over, LogGeometry::of(geometry), &context)?)
        }
    };
    Ok(Some((over, report)))
}

/// Recovers the log of a file system that may be written, carries out what it only announced, and
/// starts it. `quota` is what a mount wants to be counted; without one what is counted stays so.
/// May park.
///
/// # Errors
/// As [`recover`].
pub(crate) fn open(
    cx: &mut Cx,
    bufs: Arc<BufCache>,
    geometry: Arc<Geometry>,
    options: LogOptions,
    quota: Option<&QuotaMode>,
) -> Result<(WriteSide, RecoveryReport)> {
    let mut context = RecoveryContext::of(&geometry);
    context.can_finish = &intents::CAN_FINISH;
    context.log = options.device.clone();
    let log_geometry = LogGeometry::of(&geometry);
    let recovered = recovery::recover(cx, bufs.queue(), log_geometry, &context)?;
    let mut report = RecoveryReport::of(&recovered);
    // Recovery wrote past these buffers, and may have changed the size of the file system.
    bufs.drop_clean();
    let geometry = match recovered.clean && !recovered.unnamed {
        true => geometry,
        false => {
            let (raw, geometry) = read_super(cx, bufs.queue(), options.device.is_some())?;
            refresh_copies(cx, bufs.queue(), &geometry, &raw)?;
            Arc::new(geometry)
        }
    };
    let log = Log::start(cx, bufs, log_geometry, options, recovered.head);
    match complete(cx, &log, geometry, recovered, quota, &mut report) {
        Ok(writer) => Ok((writer, report)),
        Err(error) => {
            // The finisher holds the log.
            log.clear_finisher();
            log.abandon(cx);
            Err(error)
        }
    }
}

/// Carries out what the log only announced.
fn complete(
    cx: &mut Cx,
    log: &Arc<Log>,
    geometry: Arc<Geometry>,
    recovered: Recovered,
    mode: Option<&QuotaMode>,
    report: &mut RecoveryReport,
) -> Result<WriteSide> {
    let space = Arc::new(Space::open(cx, geometry, log.clone())?);
    let quota = quota::begin(
        cx,
        &space,
        mode.unwrap_or(&QuotaMode::AsBefore),
        recovered.quota_off,
        !recovered.clean,
    )?;
    realtime::open(cx, &space)?;
    intents::finish_intents(cx, &space, recovered.unfinished)?;
    log.set_finisher(space.clone());
    report.cow_blocks = space.recover_cow(cx)?;
    let inodes = Arc::new(Inodes::open(cx, space.clone())?);
    // A clean log has no lists either: an unmount frees what is on them.
    if !recovered.clean {
        report.unlinked = Inactive::new(&space, &inodes, log).free_all(cx)?;
        // What was freed leaves the log before its number is used again.
        log.empty(cx)?;
    }
    let quota = match (quota, mode) {
        (Some(begun), Some(_)) => Some(begun.settle(cx, &inodes)?),
        (Some(begun), None) => Some(begun.go_on(cx)?),
        (None, _) => None,
    };
    Ok(WriteSide { log: log.clone(), space, inodes, quota })
}

/// Recovery does without the device of a realtime section.
fn all_beside(log: bool) -> Beside {
    Beside { realtime: true, log }
}

/// Whether the device of a log is one that the file system can have there.
///
/// # Errors
/// The log is an internal one; the device is too short.
pub(crate) fn check_log_device(
    geometry: &Geometry,
    device: Option<&BesideDevice>,
) -> Result<(), MountError> {
    let Some(BesideDevice(queue)) = device else { return Ok(()) };
    if geometry.log_start.0 != 0 {
        return Err(MountError::Mode("logdev of a file system with an internal log"));
    }
    let (sectors, wanted) =
        (queue.info().sectors, u64::from(geometry.log_blocks) * geometry.block_sectors());
    if wanted > sectors { Err(MountError::LogDevice { sectors, wanted }) } else { Ok(()) }
}

fn read_super(cx: &mut Cx, queue: &Arc<Queue>, log: bool) -> Result<(RawSuper, Geometry)> {
    let start = super_bytes(cx, queue)?;
    let raw = RawSuper::view(&start);
    if let Some(raw) = raw {
        refuse(raw, log)?;
    }
    let geometry = Geometry::parse(&start, At::Super(0))?;
    match takes_blocks(&geometry) {
        true => Ok((*raw.expect("parsed"), geometry)),
        false => Err(XfsError::BlockSize(geometry.block_size)),
    }
}

/// A log is recovered only where everything in it can be understood.
fn refuse(raw: &RawSuper, log: bool) -> Result<()> {
    let (access, reasons) = Features::new(raw).access_beside(all_beside(log));
    match reasons.into_iter().next() {
        Some(reason) if access != Access::ReadWrite => Err(reason.into()),
        _ => Ok(()),
    }
}
