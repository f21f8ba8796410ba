//! Makes a file system larger or smaller. A mounted one only grows: see [`grow`].
//!
//! Shrinking: one transaction takes the free end of the last group out and leaves off groups behind
//! it, which hold nothing. A power cut before the transaction is in the log leaves the old size,
//! one after it the new one.

mod grow;
mod mounted;

use std::sync::Arc;

use block::Queue;
use rt::Cx;

use crate::alloc::super_block::log_super;
use crate::error::XfsError;
use crate::format::features::Beside;
use crate::format::{At, Geometry, RawSuper};
use crate::fs::WriteSide;
use crate::ialloc;
use crate::log::{BesideDevice, LogOptions};
use crate::mount::copies::{seal, write_copies};
use crate::mount::recovery::{self, check_log_device, recover_beside};
use crate::mount::{self, MountError};
use crate::trans::{Trans, reservations};

/// Blocks that a group has at least.
const GROUP_MIN: u64 = 64;

/// What was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResizeReport {
    /// Blocks and groups before.
    pub before: (u64, u32),
    /// Blocks and groups now.
    pub after: (u64, u32),
    /// Bytes of a block.
    pub block_size: u32,
}

/// Why a file system keeps its size.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResizeError {
    /// It cannot be written, or is damaged.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The device is shorter.
    #[error("the device has {device} bytes, {wanted} are asked for")]
    Device {
        /// Bytes of the device.
        device: u64,
        /// Bytes asked for.
        wanted: u64,
    },
    /// Blocks that would go are in use.
    #[error("group {group} has blocks in use behind the new end")]
    InUse {
        /// The first such group.
        group: u32,
    },
    /// The log lies behind the new end.
    #[error("the log lies behind the new end")]
    LogInUse,
    /// A size that cannot be.
    #[error("{bytes} bytes: {reason}")]
    Size {
        /// Bytes asked for.
        bytes: u64,
        /// What is wrong with them.
        reason: &'static str,
    },
}

impl ResizeError {
    /// True where something lies behind the new end that could be moved.
    pub fn is_in_the_way(&self) -> bool {
        matches!(self, ResizeError::InUse { .. } | ResizeError::LogInUse)
    }
}

impl From<XfsError> for ResizeError {
    fn from(error: XfsError) -> ResizeError {
        ResizeError::Mount(error.into())
    }
}

impl From<block::DeviceError> for ResizeError {
    fn from(error: block::DeviceError) -> ResizeError {
        ResizeError::Mount(error.into())
    }
}

/// Both shapes of a file system.
struct Shapes {
    old: Geometry,
    new: Geometry,
    /// The superblock of the new one.
    raw: RawSuper,
}

/// Makes a file system as large as `bytes`, in whole blocks, or as its device. A log that is dirty
/// is recovered first. A realtime section keeps its size. May park.
///
/// # Errors
/// What forbids it; nothing was changed then but the log recovered. The device failed.
pub fn resize(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    bytes: Option<u64>,
) -> Result<ResizeReport, ResizeError> {
    resize_beside(cx, queue, None, bytes)
}

/// As [`resize`], where an external log lies on `log`. May park.
///
/// # Errors
/// As [`resize`]; the log's device is too short, or there is no external log.
pub fn resize_beside(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<BesideDevice>,
    bytes: Option<u64>,
) -> Result<ResizeReport, ResizeError> {
    let (_, geometry) = mount::read_super(cx, queue)?;
    let beside = Beside { realtime: true, log: log.is_some() };
    mount::check_features(&geometry, false, beside)?;
    check_log_device(&geometry, log.as_ref())?;
    recover_beside(cx, queue, log.clone())?;
    let device = queue.info().bytes();
    let wanted = bytes.unwrap_or(device);
    if wanted > device {
        return Err(ResizeError::Device { device, wanted });
    }
    let shapes = Shapes::look(cx, queue, wanted)?;
    if shapes.old.blocks_count() != shapes.new.blocks_count() {
        change(cx, queue, log, &shapes)?;
    }
    Ok(shapes.report())
}

/// What [`resize`] would do on a device that is long enough, as far as the superblock says. Reads
/// only; may park.
///
/// # Errors
/// A size that cannot be; the device failed.
pub fn look(cx: &mut Cx, queue: &Arc<Queue>, bytes: u64) -> Result<ResizeReport, ResizeError> {
    Ok(Shapes::look(cx, queue, bytes)?.report())
}

impl Shapes {
    fn look(cx: &mut Cx, queue: &Arc<Queue>, bytes: u64) -> Result<Shapes, ResizeError> {
        let (raw, old) = mount::read_super(cx, queue)?;
        if !log_is_inside(&old, blocks_of(&old, bytes)?) {
            return Err(ResizeError::LogInUse);
        }
        let (new, raw) = shape(&raw, &old, bytes)?;
        Ok(Shapes { old, new, raw })
    }

    fn report(&self) -> ResizeReport {
        let size = |geometry: &Geometry| (geometry.blocks_count(), geometry.ag_count());
        let Shapes { old, new, .. } = self;
        ResizeReport { before: size(old), after: size(new), block_size: old.block_size }
    }
}

/// Blocks of a file system of so many bytes: none in a group that would be too small.
fn blocks_of(old: &Geometry, bytes: u64) -> Result<u64, ResizeError> {
    let (mut blocks, group) = (bytes / u64::from(old.block_size), u64::from(old.ag_blocks));
    let rest = blocks % group;
    if rest > 0 && rest < GROUP_MIN {
        blocks -= rest;
    }
    match blocks < GROUP_MIN {
        true => Err(ResizeError::Size { bytes, reason: "a group has at least 64 blocks" }),
        false => Ok(blocks),
    }
}

fn log_is_inside(old: &Geometry, blocks: u64) -> bool {
    let log = old.split(old.log_start);
    old.log_start.0 == 0 || old.linear(log) + u64::from(old.log_blocks) <= blocks
}

/// The shape of a file system of so many bytes, in whole blocks: a rest of less than 64 blocks
/// makes no group. Its superblock is that of `raw` else.
///
/// # Errors
/// [`ResizeError::Size`]; the log of `raw` does not lie inside.
pub fn shape(
    raw: &RawSuper,
    old: &Geometry,
    bytes: u64,
) -> Result<(Geometry, RawSuper), ResizeError> {
    let blocks = blocks_of(old, bytes)?;
    let wrong = |reason| ResizeError::Size { bytes, reason };
    let mut raw = *raw;
    raw.sb_dblocks.set(blocks);
    let count = blocks.div_ceil(u64::from(old.ag_blocks));
    if count == 1 && old.ag_count() > 1 {
        return Err(wrong("one group would be left, and xfs_repair needs two"));
    }
    raw.sb_agcount.set(u32::try_from(count).map_err(|_| wrong("too many groups"))?);
    let mut sector = vec![0; old.sector_size as usize];
    seal(&mut sector, &raw);
    let parsed = Geometry::parse(&sector, At::Super(0));
    Ok((parsed.map_err(|corrupt| ResizeError::Mount(corrupt.into()))?, raw))
}

/// Opens the file system, changes its size and ends it cleanly, with the new counters.
fn change(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    log: Option<BesideDevice>,
    shapes: &Shapes,
) -> Result<(), ResizeError> {
    let reader = mount::reader(queue, shapes.old.clone(), 64 << 20);
    let options = LogOptions { device: log, ..LogOptions::default() };
    let (writer, _) = recovery::open(cx, reader.bufs, reader.geometry, options, None)?;
    let larger = shapes.new.blocks_count() > shapes.old.blocks_count();
    let change = if larger { grow::grow } else { cut_end };
    match change(cx, queue, &writer, shapes) {
        Ok(()) => Ok(writer.close(cx)?),
        Err(error) => {
            writer.abandon(cx);
            Err(error)
        }
    }
}

/// Ends the transaction that changes the size: it is durable afterwards.
fn commit_size(
    cx: &mut Cx,
    mut trans: Trans,
    writer: &WriteSide,
    new: &Geometry,
) -> crate::error::Result<()> {
    log_super(cx, &mut trans, &writer.space, |raw| {
        raw.sb_dblocks.set(new.blocks_count());
        raw.sb_agcount.set(new.ag_count());
    })?;
    trans.commit(cx)?;
    writer.log.force(cx)
}

/// Takes the free end out, in one transaction.
fn cut_end(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    writer: &WriteSide,
    shapes: &Shapes,
) -> Result<(), ResizeError> {
    let Shapes { old, new, raw } = shapes;
    let WriteSide { log, space, .. } = writer;
    for ag in new.ag_count()..old.ag_count() {
        if !space.is_empty_group(cx, ag)? {
            return Err(ResizeError::InUse { group: ag });
        }
    }
    space.geometry.set_blocks_count(new.blocks_count());
    let mut trans = Trans::alloc(cx, log, reservations::resize(new))?;
    let last = new.ag_count() - 1;
    if old.ag_length(last) != new.ag_length(last) {
        if let Err(error) = space.set_length(cx, &mut trans, last, old.ag_length(last)) {
            trans.cancel();
            return Err(match error {
                XfsError::NoSpace => ResizeError::InUse { group: last },
                other => other.into(),
            });
        }
        ialloc::log_length(cx, &mut trans, space, last)?;
    }
    commit_size(cx, trans, writer, new)?;
    // While the log says so: recovery writes those that a power cut leaves as they were.
    write_copies(cx, queue, new, raw)?;
    Ok(queue.flush(cx)?)
}
