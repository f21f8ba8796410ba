//! Making a file system, with the decisions of `mke2fs` 1.47.
//!
//! The work is a pure function from options to a [`Plan`] (which bytes go where, which ranges must
//! read as zeroes); [`mkfs`] carries the plan out on a queue with few large writes, the primary
//! superblock last, so that an interrupted mkfs leaves nothing that mounts.
//!
//! Inode tables and the journal are zeroed at once (never lazily), by `WriteZeroes`, which costs
//! nothing on a sparse file; where the caller knows that the device reads as zeroes not even that.
//!
//! With the feature `journal_dev` the device becomes the journal of another file system.
//!
//! Source: decisions observed on mke2fs(8) and documented in mke2fs.conf(5).

use std::sync::Arc;

use base::{Sector, Timespec};
use block::{DeviceError, Queue};
use rt::Cx;

use crate::format::super_block::SUPER_OFFSET;
use crate::format::{Features, features::UnknownFeature};

mod content;
mod external;
mod features;
mod groups;
mod journal;
mod options;
mod place;
mod shape;

pub use options::{Creator, ExternalJournal, FsType, MkfsOptions, OnError, Release, Span, Usage};
pub use shape::{default_journal, default_orphan_file};

/// Why no file system can be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MkfsError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A feature name that nobody knows.
    #[error(transparent)]
    UnknownFeature(#[from] UnknownFeature),
    /// A feature that we cannot make.
    #[error("feature {0} cannot be made")]
    Feature(String),
    /// Features that exclude each other or need one another.
    #[error("{0}")]
    FeatureConflict(&'static str),
    /// Not a power of two in range.
    #[error("block size {0} is not a power of two from 1024 to 65536")]
    BlockSize(u32),
    /// The device is written in larger units.
    #[error("blocks of {block_size} bytes are smaller than the device's sectors of {sector}")]
    SectorSize {
        /// Bytes of a block.
        block_size: u32,
        /// Bytes of a logical block of the device.
        sector: u32,
    },
    /// Not a power of two in range.
    #[error("cluster size {size} is not a power of two from 2 to 32768 blocks of {block_size}")]
    ClusterSize {
        /// Bytes asked for.
        size: u32,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Not a power of two in range.
    #[error("inode size {0} is not a power of two from 128 to the block size")]
    InodeSize(u32),
    /// Out of range.
    #[error("inode ratio {0} is not in 1024..=67108864")]
    InodeRatio(u32),
    /// None, or more than Linux reads.
    #[error("the orphan file has at least a block and at most 8 MiB")]
    OrphanFileSize,
    /// The inode tables leave no room.
    #[error("{inodes} inodes do not fit into {blocks} blocks")]
    TooManyInodes {
        /// Inodes asked for.
        inodes: u64,
        /// Blocks there are.
        blocks: u64,
    },
    /// Too few blocks for a group's metadata.
    #[error("{blocks} blocks of {block_size} bytes are too few for a file system")]
    TooSmall {
        /// Blocks there are.
        blocks: u64,
        /// Their size.
        block_size: u32,
    },
    /// More blocks than 32 bits count, without `64bit`.
    #[error("{0} blocks need the feature 64bit")]
    TooLarge(u64),
    /// The device is smaller than the size asked for.
    #[error("the device has {device} bytes, {size} are asked for")]
    DeviceSize {
        /// Bytes of the device.
        device: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// The journal is too short, or takes more than half of the free blocks.
    #[error("a journal of {blocks} blocks is not in 1024..={limit}")]
    JournalSize {
        /// Blocks of the journal.
        blocks: u64,
        /// The most that fit.
        limit: u64,
    },
    /// The file system and its external journal need blocks of one size.
    #[error("blocks of {fs} bytes, but the external journal has blocks of {journal}")]
    JournalBlockSize {
        /// Bytes of a block of the file system.
        fs: u32,
        /// Bytes of a block of the journal.
        journal: u32,
    },
    /// Not a multiple of 8 from 256 to what a bitmap counts.
    #[error("groups of {found} blocks or clusters are not a multiple of 8 from 256 to {limit}")]
    GroupSize {
        /// Asked for.
        found: u32,
        /// The most that there can be.
        limit: u64,
    },
    /// Not a power of two.
    #[error("{0} groups of a flexible group are not a power of two")]
    FlexSize(u32),
    /// Out of range.
    #[error("an update interval of {0} s is more than 300 s")]
    MmpInterval(u16),
    /// Out of range.
    #[error("{0} copies of the superblock: at most 2")]
    BackupSupers(u8),
    /// No larger than the file system.
    #[error("descriptors for {limit} blocks: the file system has {blocks}")]
    ResizeLimit {
        /// Asked for.
        limit: u64,
        /// Blocks there are.
        blocks: u64,
    },
    /// Beyond the end.
    #[error("the journal cannot begin at block {0}")]
    JournalPlace(u64),
    /// Where the primary superblock and its descriptors must be.
    #[error("block {0} is bad, and is needed for the superblock or the descriptors")]
    BadBlock(u64),
    /// More than fits.
    #[error("a label for SELinux of {0} bytes is too long")]
    RootSelinux(usize),
    /// More than 16 bytes.
    #[error("label {0:?} has more than 16 bytes")]
    Label(String),
    /// Out of range.
    #[error("reserved share of {0} % is not in 0..=50")]
    Reserved(f64),
}

/// What a plan was made of, for the caller to print.
#[derive(Clone, PartialEq, Debug)]
pub struct MkfsReport {
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks.
    pub blocks_count: u64,
    /// Inodes.
    pub inodes_count: u32,
    /// Groups.
    pub groups_count: u32,
    /// Blocks of the journal, 0 without one.
    pub journal_blocks: u32,
    /// The blocks with copies of the superblock.
    pub backups: Vec<u64>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The features, after what the size ruled out.
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
    /// Only the kibibyte of the superblock in `head` is written; the rest stays.
    pub super_only: bool,
    /// What was decided.
    pub report: MkfsReport,
}

impl Plan {
    /// The head where this is on the device already.
    pub fn head_over(&self, found: &[u8]) -> Vec<u8> {
        let (mut head, start) = (self.head.clone(), SUPER_OFFSET as usize);
        if self.super_only {
            let end = head.len();
            head[..start].copy_from_slice(&found[..start]);
            head[2 * start..].copy_from_slice(&found[2 * start..end]);
        }
        head
    }
}

/// What does not follow from the options: size, time and random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Bytes of a logical block of the device: no block is smaller.
    pub sector: u32,
    /// The time of all time stamps.
    pub now: Timespec,
    /// Where the options name no UUID.
    pub uuid: [u8; 16],
    /// Where the options name no hash seed.
    pub hash_seed: [u8; 16],
}

/// Decides everything. Pure: equal arguments make equal images.
///
/// # Errors
/// What makes the options impossible.
pub fn plan(options: &MkfsOptions, around: &Surroundings) -> Result<Plan, MkfsError> {
    if external::is_wanted(options)? {
        return external::plan_device(options, around);
    }
    let shape = shape::Shape::choose(options, around)?;
    let placed = place::Placed::new(&shape, options)?;
    content::build(options, around, shape, placed)
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
    let around = Surroundings {
        device_bytes: queue.info().bytes(),
        sector: queue.info().logical_block,
        now: options.now.unwrap_or_else(|| cx.realtime()),
        uuid: cx.random_uuid(),
        hash_seed: cx.random_uuid(),
    };
    let plan = plan(options, &around)?;
    let zeroes: &[_] = if options.assume_zeroes { &[] } else { &plan.zeroes };
    let found = match plan.super_only {
        true => queue.read(cx, Sector(0), plan.head.len())?.to_vec(),
        false => Vec::new(),
    };
    queue.submit_all(cx, zeroes, &plan.writes, &plan.head_over(&found))?;
    Ok(plan.report)
}
