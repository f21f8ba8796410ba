//! Repair of damaged file systems, on the device itself and never through a mount.
//!
//! 1. [`plan`](fn@plan) only reads. It collects what is wrong, decides what is done about it, and
//!    keeps the blocks that would change in memory: a [`Plan`]. The checks of the file system's own
//!    crate then judge the result; a plan that leaves something wrong is never carried out.
//! 2. [`undo::UndoFile::create`] stores the old and the new content of these blocks in a file.
//! 3. [`apply`](fn@apply) writes them. The superblock goes first, with a mark that names the undo
//!    file, and last, without it. A repair that was cut is finished from that file.
//! 4. [`undo::UndoFile::undo`] puts the old content back.
//!
//! [`rescue::Rescued`] carries a plan out in memory alone, to read what is left of a file system.
//!
//! If structures contradict each other, the one with more evidence wins: a checksum, a copy, the
//! bitmaps, the entries that refer to an inode, the journal. If a checksum proves that one byte is
//! wrong, and which one, that byte is corrected (`restore`).
//!
//! Memory: three bits per block, about 100 bytes per inode in use, 32 bytes per run of blocks, and
//! the blocks that change. Nothing recurses by the depth of the tree.
//!
//! ext2, ext3, ext4 and XFS of version 5 are repaired.
//!
//! [`metadump`] copies the metadata alone, for a bug report.
//!
//! In the same way [`resize`] and [`tune`] change a sound ext2, ext3 or ext4 ([`volume`]), and
//! [`plan_shrink`] makes an XFS smaller.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod apply;
pub mod holes;
pub mod map_file;
pub mod metadump;
pub mod plan;
pub mod rescue;
pub mod resize;
pub mod tune;
pub mod undelete;
pub mod undo;
pub mod volume;

mod ext;
mod map_build;
mod restore;
mod view;
mod xfs;

use std::sync::Arc;

use ::xfs::mount::options::BesideDevice;
use block::{DeviceError, Queue};
use rt::{Cx, Meter};

pub use apply::apply;
pub use ext4::format::extent::FileRun;
pub use plan::{Change, Finding, Plan};
pub use undelete::{Deleted, Deletions};
pub use xfs::{plan_least_shrink, plan_shrink};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Neither the superblock nor a copy of it can be read.
    #[error("no superblock of ext2, ext3, ext4 or XFS was found, nor a copy of one")]
    NoSuperblock,
    /// The superblock does not lie where somebody said.
    #[error("{0}")]
    NotThere(String),
    /// Repair does not know a feature that is set.
    #[error("{0}: such a file system cannot be repaired yet")]
    Feature(String),
    /// A log that is not replayed here: the undo file of a repair holds blocks of one device.
    #[error(
        "its log, on a device of its own, is not empty: replay it first (iopath replay -o \
             journal_path=DEVICE, of XFS -o logdev=DEVICE)"
    )]
    ExternalLog,
    /// The device of an external log of XFS is not known: it must be empty.
    #[error("it has an external log, which must be empty: name its device (-o logdev=DEVICE)")]
    LogDevice,
    /// The file system is larger than its device.
    #[error(
        "the file system has {bytes} bytes, the device {device_bytes}: it was cut short. Read it \
             with --rescue; or make a copy of it as long as it was (truncate -s {bytes} COPY) and \
             repair that"
    )]
    CutShort {
        /// Bytes of the file system.
        bytes: u64,
        /// Bytes of the device.
        device_bytes: u64,
    },
    /// More memory than is allowed.
    #[error("the repair takes about {} KiB, and {} are allowed", needed >> 10, allowed >> 10)]
    Memory {
        /// About how many bytes it takes.
        needed: u64,
        /// How many are allowed.
        allowed: u64,
    },
    /// Structures that nothing is left to restore from.
    #[error("{0}")]
    Hopeless(String),
}

impl RepairError {
    /// Where only one format was looked for, the error says which.
    fn of(self, format: &str) -> RepairError {
        match self {
            RepairError::NoSuperblock => RepairError::NotThere(format!(
                "no superblock of {format} was found, nor a copy of one"
            )),
            other => other,
        }
    }
}

/// A file system that somebody knows to be there, or to have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Ext2, ext3 or ext4.
    Ext {
        /// Where a copy of its superblock lies, in bytes; None: it is found.
        superblock: Option<u64>,
    },
    /// XFS.
    Xfs,
}

/// What a plan may do beside what is always right.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Which file system is there, also below another one; None: the one that is found.
    pub format: Option<Format>,
    /// A log of XFS that cannot be replayed is made empty; else there is no plan.
    pub zero_log: bool,
    /// The device of an external log of XFS.
    pub log: Option<BesideDevice>,
    /// The most memory; None: as much as it takes. Where the damage takes more, there is no plan.
    pub memory: Option<u64>,
    /// Counts what is done. Checks and rounds of passes follow each other, each from its
    /// beginning; how many is not known before.
    pub meter: Meter,
}

/// Plans the repair of the file system behind `queue`. `decide` is asked once
/// for each finding, and says whether its action is wanted. Reads only; parks on reads.
///
/// # Errors
/// [`RepairError`]: nothing was decided then.
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    decide: &mut dyn FnMut(&Finding) -> bool,
) -> Result<Plan, RepairError> {
    plan_with(cx, queue, PlanOptions::default(), decide)
}

/// As [`plan`](fn@plan), with options.
///
/// # Errors
/// As [`plan`](fn@plan).
pub fn plan_with(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: PlanOptions,
    decide: &mut dyn FnMut(&Finding) -> bool,
) -> Result<Plan, RepairError> {
    match options.format {
        Some(Format::Xfs) => {
            return xfs::plan(cx, queue, &options, decide).map_err(|error| error.of("XFS"));
        }
        Some(Format::Ext { .. }) => {
            let planned = ext::plan(cx, queue, &options, decide);
            return planned.map_err(|error| error.of("ext2, ext3 or ext4"));
        }
        None => {}
    }
    let xfs = is_xfs(cx, queue)?;
    let planned = match xfs {
        true => xfs::plan(cx, queue, &options, decide),
        false => ext::plan(cx, queue, &options, decide),
    };
    match planned {
        Err(RepairError::NoSuperblock) if !xfs => xfs::plan(cx, queue, &options, decide),
        // What cannot be repaired need not be where nothing is wrong.
        Err(RepairError::Feature(_)) if is_sound(cx, queue, xfs, &options)? => Ok(Plan::default()),
        planned => planned,
    }
}

/// Is the file system that is found an XFS? What of one lies before a superblock of ext was left
/// there: an XFS has its own headers in that place.
fn is_xfs(cx: &mut Cx, queue: &Arc<Queue>) -> Result<bool, DeviceError> {
    Ok(xfs::is_here(cx, queue)? && !ext::is_here(cx, queue)?)
}

/// Does a check find nothing, not even a log to replay?
fn is_sound(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    xfs: bool,
    options: &PlanOptions,
) -> Result<bool, DeviceError> {
    let (meter, findings_max) = (options.meter.clone(), 1);
    if xfs {
        let recover = false;
        let options = ::xfs::CheckOptions { recover, findings_max, meter, ..Default::default() };
        return Ok(::xfs::check(cx, queue, &options)?.findings.is_empty());
    }
    let options = ext4::CheckOptions { replay: false, findings_max, meter, ..Default::default() };
    Ok(ext4::check(cx, queue, &options)?.findings.is_empty())
}

/// # Errors
/// [`RepairError::Memory`] where more is needed than is allowed.
fn afford(needed: u64, allowed: Option<u64>) -> Result<(), RepairError> {
    match allowed.filter(|&allowed| needed > allowed) {
        Some(allowed) => Err(RepairError::Memory { needed, allowed }),
        None => Ok(()),
    }
}

/// Looks for what was removed from the ext2, ext3, ext4 or XFS behind `queue`. Reads only; parks
/// on reads. Of XFS all free space is read, too. Memory: as [`plan`](fn@plan), and the index of the
/// journal, or the inodes in the log.
///
/// # Errors
/// See [`RepairError`].
pub fn deleted(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Deletions, RepairError> {
    match is_xfs(cx, queue)? {
        true => xfs::deleted(cx, queue),
        false => ext::undelete::deleted(cx, queue),
    }
}
