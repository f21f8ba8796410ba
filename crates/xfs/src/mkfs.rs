//! Making a file system, with the decisions of `mkfs.xfs` 6.1.
//!
//! The work is a pure function from options to a [`Plan`] (which bytes go where, which ranges must
//! read as zeroes); [`mkfs`] carries the plan out, the primary superblock last, so that an
//! interrupted mkfs leaves nothing that mounts.
//!
//! Equal options, UUID and time make the same bytes as `mkfs.xfs` makes, but for the free list of a
//! group that the log fills up to a few blocks, which is filled here and left empty there.
//!
//! Not made: version 4, zones, more groups of a realtime section than one block of the inode btree
//! has room for (4,000 with blocks of 4 KiB), and, as by `mkfs.xfs`, file systems below 300 MiB
//! unless the size of the log is given.
//!
//! Source: mkfs.xfs(8), and what it was observed to make.

use std::sync::Arc;

use base::Timespec;
use block::{DeviceError, Queue};
use rt::Cx;

use crate::format::{Features, Geometry};

mod conf;
mod content;
mod group;
mod groups_dir;
mod log_record;
mod metadata;
mod options;
mod realtime;
mod rmap_tree;
mod shape;

pub use conf::ConfError;
pub(crate) use content::group_headers;
pub use log_record::EmptyLog;
pub use options::{COMPAT, MkfsOptions, OptionError, RootDefaults};

/// Why no file system can be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MkfsError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A size that is not one of those allowed.
    #[error("{what} of {found} bytes is not a power of two from {low} to {high}")]
    Size {
        /// Which size.
        what: &'static str,
        /// What was asked for.
        found: u32,
        /// The least.
        low: u32,
        /// The most.
        high: u32,
    },
    /// Below the least size.
    #[error("{bytes} bytes are too few: at least 300 MiB, or 16 MiB and a size of the log")]
    TooSmall {
        /// Bytes there are.
        bytes: u64,
    },
    /// The device is smaller than the size asked for.
    #[error("the device has {device} bytes, {size} are asked for")]
    DeviceSize {
        /// Bytes of the device.
        device: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// Groups would be smaller than 16 MiB or larger than 1 TiB.
    #[error("{groups} allocation groups of {blocks} blocks are not between 16 MiB and 1 TiB each")]
    Groups {
        /// Groups asked for.
        groups: u64,
        /// Blocks of each.
        blocks: u64,
    },
    /// The log does not fit its group, or is too small.
    #[error("a log of {blocks} blocks is not in {low}..={high}")]
    LogSize {
        /// Blocks of the log.
        blocks: u64,
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// An extent of the realtime section that cannot be.
    #[error("realtime extents of {0} bytes are not whole blocks from 4 KiB to 1 GiB")]
    RealtimeExtent(u32),
    /// The group of the root has no room for the files of the realtime section.
    #[error("{0} blocks for the realtime bitmap and summary do not fit the first group")]
    RealtimeFiles(u32),
    /// Groups of the realtime section that cannot be.
    #[error("realtime groups of {size} extents in a section of {extents} cannot be")]
    RealtimeGroupSize {
        /// Extents of each.
        size: u64,
        /// Extents of all.
        extents: u64,
    },
    /// More groups of the realtime section than the group of the log has room for, or one block of
    /// the inode btree can name.
    #[error(
        "{0} realtime groups are too many: their files do not fit one allocation group; \
         choose fewer (-r rgcount=) or larger ones (-r rgsize=)"
    )]
    RealtimeGroups(u32),
    /// A stripe that does not fit blocks.
    #[error("a stripe unit of {0} bytes is not a multiple of the block size, or too large")]
    Stripe(u32),
    /// Features that need one another.
    #[error("{0}")]
    Features(&'static str),
    /// More than 12 bytes.
    #[error("label {0:?} has more than 12 bytes")]
    Label(String),
    /// Out of range.
    #[error("a share of {0} % for inodes is above 100 %")]
    InodePercent(u8),
}

/// What a plan was made of, for the caller to print.
#[derive(Clone, PartialEq, Debug)]
pub struct MkfsReport {
    /// The shape of the file system.
    pub geometry: Geometry,
    /// Its features.
    pub features: Features,
}

/// Which bytes go where. All numbers are in bytes from the start of the device.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ranges (offset, length) that must read as zeroes; writes come after.
    pub zeroes: Vec<(u64, u64)>,
    /// Contents, sorted, not overlapping, of whole blocks.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// The first block or blocks with the primary superblock, to be written last.
    pub head: Vec<u8>,
    /// What goes onto the device of an external log.
    pub log: Option<LogPlan>,
    /// The first block of the device of a realtime section in groups.
    pub realtime: Option<Vec<u8>>,
    /// What was decided.
    pub report: MkfsReport,
}

/// Which bytes go where on the device of an external log.
#[derive(Clone, Debug)]
pub struct LogPlan {
    /// Bytes from its start that must read as zeroes, but for the record.
    pub bytes: u64,
    /// The record that an empty log begins with.
    pub record: Vec<u8>,
}

/// What does not follow from the options: size, time and random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The time of all time stamps.
    pub now: Timespec,
    /// Where the options name no UUID.
    pub uuid: [u8; 16],
    /// Generation of the first inodes but the root, where they have one.
    pub generation: u32,
}

/// Decides everything. Pure: equal arguments make equal images.
///
/// # Errors
/// What makes the options impossible.
pub fn plan(options: &MkfsOptions, around: &Surroundings) -> Result<Plan, MkfsError> {
    let shape = shape::Shape::choose(options, around)?;
    content::build(&shape, around)
}

/// Makes a file system. Waits for the device, and flushes it before the primary superblock is
/// written and after.
///
/// # Errors
/// Options that are impossible (before anything is written), or the device's first error.
pub fn mkfs(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &MkfsOptions,
) -> Result<MkfsReport, MkfsError> {
    mkfs_beside(cx, queue, &Devices::default(), options)
}

/// Further devices of a file system.
#[derive(Clone, Copy, Default)]
pub struct Devices<'a> {
    /// Of an external log: all of it is the log, unless the options name a size.
    pub log: Option<&'a Arc<Queue>>,
    /// Of a realtime section; without groups nothing is written to it.
    pub realtime: Option<&'a Arc<Queue>>,
}

/// As [`mkfs`], with further devices, which are written first. Waits for the devices.
///
/// # Errors
/// As [`mkfs`]; options with a realtime section in groups, and no device for it.
pub fn mkfs_beside(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    devices: &Devices<'_>,
    options: &MkfsOptions,
) -> Result<MkfsReport, MkfsError> {
    let log_device = devices.log.map(|log| log.info().bytes());
    // A device is written in whole sectors.
    let sector = |queue: Option<&Arc<Queue>>| queue.map_or(0, |queue| queue.info().logical_block);
    let sectors = [Some(queue), devices.log, devices.realtime].map(sector);
    let sector_size = sectors.into_iter().fold(options.sector_size, u32::max);
    let options = &MkfsOptions { log_device, sector_size, ..options.clone() };
    let around = Surroundings {
        device_bytes: queue.info().bytes(),
        now: options.now.unwrap_or_else(|| cx.realtime()),
        uuid: cx.random_uuid(),
        generation: options.generation.unwrap_or_else(|| cx.random() as u32),
    };
    let plan = plan(options, &around)?;
    if let (Some(log), Some(plan)) = (devices.log, &plan.log) {
        log.submit_all(cx, &[(0, plan.bytes)], &[], &plan.record)?;
    }
    if let Some(block) = &plan.realtime {
        let section = devices.realtime.ok_or(MkfsError::Features(
            "realtime groups need the device of the section: -r rtdev=DEVICE",
        ))?;
        section.submit_all(cx, &[], &[], block)?;
    }
    let zeroes: &[_] = if options.assume_zeroes { &[] } else { &plan.zeroes };
    queue.submit_all(cx, zeroes, &plan.writes, &plan.head)?;
    Ok(plan.report)
}
