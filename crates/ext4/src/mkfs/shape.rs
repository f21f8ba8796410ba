//! First phase of mkfs: sizes and counts.

use std::collections::BTreeSet;

use base::Timespec;
use zerocopy::IntoBytes;

use super::options::{Creator, Usage};
use super::{ExternalJournal, MkfsError, MkfsOptions, Release, Surroundings, features, groups};
use crate::format::casefold::Encoding;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::super_block::{FIRST_INO, JOURNAL_INO, MAGIC, STATE_CLEAN};
use crate::format::{Features, Geometry, RawSuper, U32};

/// Extra bytes of new inodes.
const EXTRA_ISIZE: u16 = 32;
/// Blocks of the largest cluster.
const CLUSTER_BLOCKS_MAX: u32 = 32768;
/// Bytes of a block of the Hurd.
const HURD_BLOCK: u32 = 4096;
/// `s_default_mount_opts`: user attributes and ACLs.
const DEFAULT_MOUNT_OPTIONS: u32 = 0x4 | 0x8;

/// The superblock that will be written, and the geometry that it describes.
pub struct Shape {
    /// All fields but the free counts and those that depend on where things lie.
    pub raw: RawSuper,
    /// The same, validated.
    pub geometry: Geometry,
    /// Blocks of the journal, 0 without one.
    pub journal_blocks: u32,
    /// How many of them, the last ones, are for fast commits.
    pub fast_commit_blocks: u32,
    /// Blocks of the orphan file, 0 without one.
    pub orphan_blocks: u32,
    /// Broken blocks, in order.
    pub bad_blocks: Vec<u64>,
}

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// mke2fs.conf's classes of sizes (floppy, small, default, big, huge): upper end in bytes, block
/// size, bytes per inode.
const SIZE_CLASSES: [(u64, u32, u32); 5] = [
    (3 * MIB, 1024, 8192),
    (512 * MIB, 1024, 4096),
    (4 * TIB, 4096, 16384),
    (16 * TIB, 4096, 32768),
    (u64::MAX, 4096, 65536),
];

/// Blocks of the journal by the blocks of the file system (upper end).
const JOURNALS: [(u64, u32); 9] = [
    (2048, 0),
    (32 << 10, 1024),
    (256 << 10, 4096),
    (512 << 10, 8192),
    (4096 << 10, 16384),
    (8192 << 10, 32768),
    (16384 << 10, 65536),
    (32768 << 10, 131_072),
    (u64::MAX, 262_144),
];

/// Block size and bytes per inode that mke2fs chooses for this size in bytes.
fn size_class(bytes: u64) -> (u32, u32) {
    let class = SIZE_CLASSES.iter().find(|class| bytes < class.0).unwrap_or(&SIZE_CLASSES[4]);
    (class.1, class.2)
}

/// Blocks of the journal that mke2fs gives a file system of so many blocks.
pub fn default_journal(blocks: u64) -> u32 {
    JOURNALS.iter().find(|row| blocks < row.0).map_or(262_144, |row| row.1)
}

/// Blocks that mke2fs adds to a journal for fast commits, whatever size was asked for.
fn fast_commit_blocks(blocks: u64) -> u32 {
    default_journal(blocks).max(1024) / 64
}

/// Blocks of the orphan file that mke2fs gives a file system of so many blocks.
pub fn default_orphan_file(release: Release, blocks: u64, block_size: u32) -> u32 {
    match (release, blocks) {
        (_, 0..0x2_0000) => 32,
        (Release::V1_47_0, 0x2_0000..0x20_0000) => (blocks / 4096) as u32,
        (Release::V1_47_0, _) => 512,
        (Release::V1_47_4, 0x2_0000..0x20_0000) => (blocks / u64::from(block_size)) as u32,
        (Release::V1_47_4, _) => 2,
    }
}

/// Blocks of a cluster: with bigalloc 16 unless another size was asked for.
fn choose_clusters(
    options: &MkfsOptions,
    features: &Features,
    block_size: u32,
) -> Result<u32, MkfsError> {
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let Some(size) = options.cluster_size else {
        return Ok(if bigalloc { 16 } else { 1 });
    };
    if !bigalloc {
        return Err(MkfsError::FeatureConflict("a size of clusters needs bigalloc"));
    }
    let ratio = size / block_size;
    if !size.is_power_of_two() || !(2..=CLUSTER_BLOCKS_MAX).contains(&ratio) {
        return Err(MkfsError::ClusterSize { size, block_size });
    }
    Ok(ratio)
}

/// Bytes of a block: those asked for, else the usual ones, and no less than a sector.
fn choose_block_size(options: &MkfsOptions, usual: u32, sector: u32) -> Result<u32, MkfsError> {
    let usual = usual.max(sector).max(options.block_size_min);
    let block_size = options.block_size.unwrap_or(usual);
    if block_size < sector {
        return Err(MkfsError::SectorSize { block_size, sector });
    }
    if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
        return Err(MkfsError::BlockSize(block_size));
    }
    Ok(block_size)
}

/// The blocks that there are.
pub struct Room {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Bytes per inode that mke2fs chooses.
    class_ratio: u32,
}

impl Room {
    /// Blocks of the size asked for, else of the whole device.
    ///
    /// # Errors
    /// Sizes out of range.
    pub fn of(options: &MkfsOptions, around: &Surroundings) -> Result<Room, MkfsError> {
        let device = around.device_bytes;
        let size = options.size.unwrap_or(device);
        if size > device {
            return Err(MkfsError::DeviceSize { device, size });
        }
        let (class_block, class_ratio) = match options.usage {
            Some(Usage { block_size, inode_ratio, .. }) => (block_size, inode_ratio),
            None => size_class(size),
        };
        let hurd = options.creator == Creator::Hurd;
        let class_block = if hurd { HURD_BLOCK } else { class_block };
        let journal = options.external_journal.map(|journal| journal.block_size);
        let usual = journal.unwrap_or(class_block);
        let block_size = choose_block_size(options, usual, around.sector)?;
        if let Some(journal) = journal.filter(|&journal| journal != block_size) {
            return Err(MkfsError::JournalBlockSize { fs: block_size, journal });
        }
        let mut blocks = size / u64::from(block_size);
        if options.size.is_none() {
            // The whole device: in pages, so that a mount can map all of it.
            blocks &= !(u64::from((4096 / block_size).max(1)) - 1);
        }
        Ok(Room { block_size, blocks, class_ratio })
    }
}

/// Sizes of blocks and inodes.
pub fn fill_sizes(raw: &mut RawSuper, block_size: u32, cluster_ratio: u32, inode_size: u32) {
    raw.s_log_block_size.set(block_size.trailing_zeros() - 10);
    raw.s_log_cluster_size.set((block_size * cluster_ratio).trailing_zeros() - 10);
    raw.s_first_data_block.set(u32::from(block_size == 1024 && cluster_ratio == 1));
    raw.s_inode_size.set(inode_size as u16);
    if inode_size > 128 {
        raw.s_min_extra_isize.set(EXTRA_ISIZE);
        raw.s_want_extra_isize.set(EXTRA_ISIZE);
    }
}

/// Bytes of an inode.
pub fn choose_inode_size(options: &MkfsOptions, block_size: u32) -> Result<u32, MkfsError> {
    let of_usage = options.usage.map_or(256, |usage| usage.inode_size);
    let small = options.revision_0 || options.creator == Creator::Hurd;
    let size = match options.inode_size {
        Some(size) if !options.revision_0 => size,
        _ if small => 128,
        _ => of_usage,
    };
    match size.is_power_of_two() && (128..=block_size).contains(&size) {
        true => Ok(size),
        false => Err(MkfsError::InodeSize(size)),
    }
}

impl Shape {
    /// Decides sizes and counts.
    ///
    /// # Errors
    /// Options out of range, and what does not fit.
    pub fn choose(options: &MkfsOptions, around: &Surroundings) -> Result<Shape, MkfsError> {
        let mut features = features::choose_features(options)?;
        let Room { block_size, mut blocks, class_ratio } = Room::of(options, around)?;
        let ratio = choose_clusters(options, &features, block_size)?;
        blocks &= !(u64::from(ratio) - 1);
        let too_small = MkfsError::TooSmall { blocks, block_size };
        if blocks < 60 {
            return Err(too_small);
        }
        if blocks > u64::from(u32::MAX) && !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
            return Err(MkfsError::TooLarge(blocks));
        }
        let inode_size = choose_inode_size(options, block_size)?;
        let log_blocks = choose_journal(options, &mut features, blocks, block_size)?;
        let fast_commit_blocks = match features.compat.contains(Compat::FAST_COMMIT) {
            true if log_blocks > 0 => choose_fast_commits(options, blocks, block_size),
            _ => 0,
        };
        let journal_blocks = log_blocks.saturating_add(fast_commit_blocks);
        let inodes = choose_inodes(options, class_ratio, blocks, block_size, ratio)?;
        if features.compat.contains(Compat::RESIZE_INODE) && block_size > 2048 {
            // Inode 7 is larger than 2 GiB.
            features.ro_compat |= RoCompat::LARGE_FILE;
        }
        let mut raw = RawSuper::zeroed();
        fill_constant(&mut raw, options, around)?;
        raw.set_features(&features);
        fill_sizes(&mut raw, block_size, ratio, inode_size);
        features::fill_features(&mut raw, &features, options)?;
        fill_journal(&mut raw, &features, options.external_journal);
        fill_encoding(&mut raw, &features, options.encoding.unwrap_or_default());
        let mut reserved = (options.reserved_percent * blocks as f64 / 100.0) as u64;
        let groups = groups::Wanted::asked_for(options, block_size, ratio)?;
        let kept = groups::count_groups(&mut raw, blocks, inodes, &groups).ok_or(too_small)??;
        if kept < blocks {
            reserved = (u128::from(reserved) * u128::from(kept) / u128::from(blocks)) as u64;
        }
        raw.s_r_blocks_count_lo.set(reserved as u32);
        raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
        raw.set_checksum();
        let geometry = Geometry::parse(raw.as_bytes(), 0).expect("mkfs makes a sound superblock");
        let orphan_blocks = match features.compat.contains(Compat::ORPHAN_FILE) {
            true => choose_orphan_file(options, &geometry)?,
            false => 0,
        };
        let bad_blocks = bad_blocks(options, &geometry);
        Ok(Shape { raw, geometry, journal_blocks, fast_commit_blocks, orphan_blocks, bad_blocks })
    }
}

/// Blocks for fast commits.
fn choose_fast_commits(options: &MkfsOptions, blocks: u64, block_size: u32) -> u32 {
    match options.fast_commit_size {
        Some(bytes) => u32::try_from(bytes / u64::from(block_size)).unwrap_or(u32::MAX),
        None => fast_commit_blocks(blocks),
    }
}

/// Blocks of the orphan file.
fn choose_orphan_file(options: &MkfsOptions, g: &Geometry) -> Result<u32, MkfsError> {
    let usual = || default_orphan_file(options.release, g.blocks_count, g.block_size);
    match options.orphan_file_size {
        None => Ok(usual().next_multiple_of(g.cluster_ratio)),
        Some(size) => size.orphan_blocks(g.block_size).ok_or(MkfsError::OrphanFileSize),
    }
}

/// The broken blocks inside, in order.
fn bad_blocks(options: &MkfsOptions, g: &Geometry) -> Vec<u64> {
    let inside = u64::from(g.first_data_block)..g.blocks_count;
    let list: BTreeSet<u64> =
        options.bad_blocks.iter().copied().filter(|block| inside.contains(block)).collect();
    list.into_iter().collect()
}

/// Blocks of the journal; where the file system is too small for one the feature goes.
fn choose_journal(
    options: &MkfsOptions,
    features: &mut Features,
    blocks: u64,
    block_size: u32,
) -> Result<u32, MkfsError> {
    if !features.compat.contains(Compat::HAS_JOURNAL) || options.external_journal.is_some() {
        return Ok(0);
    }
    let Some(bytes) = options.journal_size else {
        let journal = default_journal(blocks);
        if journal == 0 {
            features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
        }
        return Ok(journal);
    };
    let (journal, limit) = (bytes / u64::from(block_size), (blocks / 2).min(10_240_000));
    if !(1024..=limit).contains(&journal) {
        return Err(MkfsError::JournalSize { blocks: journal, limit });
    }
    Ok(journal as u32)
}

/// Number of inodes asked for, before it is rounded to whole table blocks.
fn choose_inodes(
    options: &MkfsOptions,
    class_ratio: u32,
    blocks: u64,
    block_size: u32,
    cluster_ratio: u32,
) -> Result<u32, MkfsError> {
    if let Some(inodes) = options.inodes_count {
        return Ok(inodes.max(FIRST_INO + 1));
    }
    let ratio = match options.inode_ratio {
        Some(ratio) if !(1024..=67_108_864).contains(&ratio) => {
            return Err(MkfsError::InodeRatio(ratio));
        }
        Some(ratio) => ratio,
        None => class_ratio.max(block_size * cluster_ratio),
    };
    let inodes = blocks * u64::from(block_size) / u64::from(ratio);
    let inodes = u32::try_from(inodes).map_err(|_| MkfsError::TooManyInodes { inodes, blocks })?;
    Ok(inodes.max(FIRST_INO + 1))
}

/// Fields that neither size nor features touch.
pub fn fill_constant(
    raw: &mut RawSuper,
    options: &MkfsOptions,
    around: &Surroundings,
) -> Result<(), MkfsError> {
    if options.label.len() > 16 {
        return Err(MkfsError::Label(options.label.clone()));
    }
    if !(0.0..=50.0).contains(&options.reserved_percent) {
        return Err(MkfsError::Reserved(options.reserved_percent));
    }
    raw.s_volume_name[..options.label.len()].copy_from_slice(options.label.as_bytes());
    raw.s_magic.set(MAGIC);
    raw.s_state.set(STATE_CLEAN);
    raw.s_errors.set(options.errors as u16);
    raw.s_creator_os.set(options.creator as u32);
    raw.s_rev_level.set(u32::from(!options.revision_0));
    for (byte, &given) in raw.s_last_mounted.iter_mut().zip(options.last_mounted.as_bytes()) {
        *byte = given;
    }
    raw.s_raid_stride.set(options.stride);
    raw.s_raid_stripe_width.set(options.stripe_width);
    raw.s_max_mnt_count.set(u16::MAX);
    raw.s_first_ino.set(FIRST_INO);
    raw.s_uuid = options.uuid.unwrap_or(around.uuid);
    let seed = options.hash_seed.unwrap_or(around.hash_seed);
    for (word, bytes) in raw.s_hash_seed.iter_mut().zip(seed.chunks_exact(4)) {
        *word = U32::from_bytes(bytes.try_into().expect("four bytes"));
    }
    raw.s_default_mount_opts.set(if options.revision_0 { 0 } else { DEFAULT_MOUNT_OPTIONS });
    let Timespec { sec, .. } = around.now;
    for time in [&mut raw.s_wtime, &mut raw.s_lastcheck, &mut raw.s_mkfs_time] {
        time.set(sec as u32);
    }
    for high in [&mut raw.s_wtime_hi, &mut raw.s_lastcheck_hi, &mut raw.s_mkfs_time_hi] {
        *high = (sec >> 32) as u8;
    }
    Ok(())
}

/// How names are encoded, with the feature for it.
fn fill_encoding(raw: &mut RawSuper, features: &Features, encoding: Encoding) {
    if features.incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(Encoding::UTF8_12_1);
        raw.s_encoding_flags.set(if encoding.strict { Encoding::STRICT } else { 0 });
    }
}

/// Where the journal is.
fn fill_journal(raw: &mut RawSuper, features: &Features, external: Option<ExternalJournal>) {
    match external {
        Some(journal) => {
            raw.s_journal_uuid = journal.uuid;
            raw.s_journal_dev.set(journal.number);
        }
        None if features.compat.contains(Compat::HAS_JOURNAL) => {
            raw.s_journal_inum.set(JOURNAL_INO);
        }
        None => {}
    }
}
