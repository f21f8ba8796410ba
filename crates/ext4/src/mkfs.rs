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

use base::Timespec;
use block::{DeviceError, Queue};
use rt::Cx;

use crate::format::casefold::Encoding;
use crate::format::{Features, features::UnknownFeature};

mod content;
mod external;
mod journal;
mod place;
mod shape;

pub use shape::{OrphanFileSize, default_journal, default_orphan_file};

/// Which of the three file systems: a set of default features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsType {
    /// No journal, no extents.
    Ext2,
    /// ext2 with a journal.
    Ext3,
    /// Journal, extents, checksums, flexible groups.
    #[default]
    Ext4,
}

impl FsType {
    /// The features that `mke2fs -t` sets by default.
    pub fn default_features(self) -> Features {
        let mut features = Features::default();
        let base = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
        let more = match self {
            FsType::Ext2 => "",
            FsType::Ext3 => "has_journal",
            FsType::Ext4 => {
                "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize"
            }
        };
        for list in [base, more] {
            features.edit(list).expect("every name is in the table");
        }
        features
    }
}

impl std::str::FromStr for FsType {
    type Err = String;

    fn from_str(name: &str) -> Result<FsType, String> {
        match name {
            "ext2" => Ok(FsType::Ext2),
            "ext3" => Ok(FsType::Ext3),
            "ext4" => Ok(FsType::Ext4),
            other => Err(format!("unknown file system type {other}: not ext2, ext3 or ext4")),
        }
    }
}

/// What to make. `Default` is what `mke2fs -t ext4` makes of the whole device.
#[derive(Clone, PartialEq, Debug)]
pub struct MkfsOptions {
    /// Which default features.
    pub fstype: FsType,
    /// Bytes of the file system; None for the whole device.
    pub size: Option<u64>,
    /// Bytes per block: a power of two from 1024 to 65,536; None for 1024 below 512 MiB, else 4096,
    /// and no less than a sector of the device.
    pub block_size: Option<u32>,
    /// Bytes per cluster with bigalloc, a power of two from 2 to 32,768 blocks; None for 16 blocks.
    pub cluster_size: Option<u32>,
    /// Bytes per inode, a power of two from 128 to the block size; None for 256.
    pub inode_size: Option<u32>,
    /// Bytes of space per inode, 1024..=67,108,864; None for the default of the size.
    pub inode_ratio: Option<u32>,
    /// Number of inodes (rounded up to whole table blocks); overrules the ratio.
    pub inodes_count: Option<u32>,
    /// Changes to the default features as `mke2fs -O` takes them: `^has_journal,orphan_file`.
    pub features: String,
    /// How names are encoded with `casefold`; sets that feature. None for UTF-8 that is not strict.
    pub encoding: Option<Encoding>,
    /// Volume name, at most 16 bytes.
    pub label: String,
    /// UUID; None for a random one.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes; None for a random one.
    pub hash_seed: Option<[u8; 16]>,
    /// Bytes of the journal; None for the default of the size.
    pub journal_size: Option<u64>,
    /// Size of the orphan file; None for the default of the size.
    pub orphan_file_size: Option<OrphanFileSize>,
    /// The device of the journal, with blocks of the same size. The file system is entered into it
    /// when it is made: [`JournalDevice::enter`](crate::JournalDevice::enter).
    pub external_journal: Option<ExternalJournal>,
    /// Share of the blocks that only root may use, in percent, 0..=50.
    pub reserved_percent: f64,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// Make `/lost+found`.
    pub lost_and_found: bool,
    /// The device is known to read as zeroes (a new sparse file): nothing needs to be zeroed.
    pub assume_zeroes: bool,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            fstype: FsType::Ext4,
            size: None,
            block_size: None,
            cluster_size: None,
            inode_size: None,
            inode_ratio: None,
            inodes_count: None,
            features: String::new(),
            encoding: None,
            label: String::new(),
            uuid: None,
            hash_seed: None,
            journal_size: None,
            orphan_file_size: None,
            external_journal: None,
            reserved_percent: 5.0,
            root_owner: (0, 0),
            root_mode: 0o755,
            lost_and_found: true,
            assume_zeroes: false,
        }
    }
}

/// The external journal of a file system that is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalJournal {
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// Bytes of a block.
    pub block_size: u32,
    /// The number of the device, as Linux encodes it in 32 bits; 0 where it has none.
    pub number: u32,
}

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
    /// What was decided.
    pub report: MkfsReport,
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
    let placed = place::Placed::new(&shape)?;
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
        now: cx.realtime(),
        uuid: cx.random_uuid(),
        hash_seed: cx.random_uuid(),
    };
    let plan = plan(options, &around)?;
    let zeroes: &[_] = if options.assume_zeroes { &[] } else { &plan.zeroes };
    queue.submit_all(cx, zeroes, &plan.writes, &plan.head)?;
    Ok(plan.report)
}
