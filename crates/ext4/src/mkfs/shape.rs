//! First phase of mkfs: sizes and counts.

use base::Timespec;
use zerocopy::IntoBytes;

use super::{ExternalJournal, FsType, MkfsError, MkfsOptions, Surroundings};
use crate::format::casefold::Encoding;
use crate::format::features::{Access, Compat, Incompat, RoCompat, Set};
use crate::format::super_block::{FIRST_INO, FLAG_SIGNED_HASH, JOURNAL_INO, MAGIC, STATE_CLEAN};
use crate::format::{Features, Geometry, RawSuper, U32};
use crate::shape::LAST_GROUP_SPARE;

/// Groups per flexible group, as a power of two.
const LOG_FLEX: u8 = 4;
/// Extra bytes of new inodes.
const EXTRA_ISIZE: u16 = 32;
/// Blocks (clusters) of a group at most.
const GROUP_MAX: u64 = (1 << 16) - 8;
/// Blocks of the largest cluster.
const CLUSTER_BLOCKS_MAX: u32 = 32768;
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
pub fn default_orphan_file(blocks: u64) -> u32 {
    match blocks {
        0..0x2_0000 => 32,
        0x2_0000..0x20_0000 => (blocks / 4096) as u32,
        _ => 512,
    }
}

/// Bytes of the largest orphan file, as mke2fs has it.
const ORPHAN_FILE_MAX: u64 = 8 << 20;

/// How large the orphan file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrphanFileSize {
    /// So many blocks.
    Blocks(u64),
    /// So many bytes, rounded down to blocks.
    Bytes(u64),
}

impl OrphanFileSize {
    /// Blocks of this size. None without one, and for more than mke2fs makes.
    pub fn blocks(self, block_size: u32) -> Option<u32> {
        let size = u64::from(block_size);
        let blocks = match self {
            OrphanFileSize::Blocks(blocks) => blocks,
            OrphanFileSize::Bytes(bytes) => bytes / size,
        };
        let fits = (1..=ORPHAN_FILE_MAX / size).contains(&blocks);
        fits.then_some(blocks as u32)
    }
}

/// The features asked for, checked and completed.
fn choose_features(options: &MkfsOptions) -> Result<Features, MkfsError> {
    let mut features = options.fstype.default_features();
    let external = options.external_journal.is_some();
    features
        .compat
        .set(Compat::HAS_JOURNAL, features.compat.contains(Compat::HAS_JOURNAL) || external);
    features.edit(&options.features)?;
    features.incompat.set(
        Incompat::CASEFOLD,
        features.incompat.contains(Incompat::CASEFOLD) || options.encoding.is_some(),
    );
    let (access, reasons) = features.access();
    if access != Access::ReadWrite {
        return Err(MkfsError::Feature(reasons[0].name.clone()));
    }
    let has = |set: Set, bit: u32| features.bits().any(|found| found == (set, bit));
    if has(Set::Incompat, 2) {
        return Err(MkfsError::Feature("needs_recovery".to_string()));
    }
    if has(Set::RoCompat, 16) {
        return Err(MkfsError::Feature("orphan_present".to_string()));
    }
    if features.metadata_csum() {
        features.ro_compat -= RoCompat::GDT_CSUM;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) && !features.metadata_csum() {
        return Err(MkfsError::FeatureConflict("metadata_csum_seed needs metadata_csum"));
    }
    let journal = features.compat.contains(Compat::HAS_JOURNAL);
    if external && !journal {
        return Err(MkfsError::FeatureConflict("an external journal needs has_journal"));
    }
    if external && options.journal_size.is_some() {
        return Err(MkfsError::FeatureConflict("an external journal has the size of its device"));
    }
    if features.compat.contains(Compat::ORPHAN_FILE) && !journal {
        return Err(MkfsError::FeatureConflict("orphan_file needs has_journal"));
    }
    if features.ro_compat.contains(RoCompat::PROJECT) && options.inode_size == Some(128) {
        return Err(MkfsError::FeatureConflict("project needs inodes of 256 bytes"));
    }
    if features.incompat.contains(Incompat::INLINE_DATA) && options.inode_size == Some(128) {
        return Err(MkfsError::FeatureConflict("inline_data needs inodes of 256 bytes"));
    }
    let resize = features.compat.contains(Compat::RESIZE_INODE);
    if resize && features.incompat.contains(Incompat::META_BG) {
        return Err(MkfsError::FeatureConflict("meta_bg needs ^resize_inode"));
    }
    if resize && !features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
        return Err(MkfsError::FeatureConflict("resize_inode needs sparse_super"));
    }
    let flex = features.incompat.contains(Incompat::FLEX_BG);
    if flex && options.fstype == FsType::Ext2 && features.ro_compat.is_empty() {
        return Err(MkfsError::FeatureConflict("flex_bg needs a feature of revision 1"));
    }
    if features.ro_compat.contains(RoCompat::BIGALLOC)
        && !features.incompat.contains(Incompat::EXTENTS)
    {
        return Err(MkfsError::FeatureConflict("bigalloc needs extent"));
    }
    Ok(features)
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
    let block_size = options.block_size.unwrap_or(usual.max(sector));
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
        let (class_block, class_ratio) = size_class(size);
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
    let size = options.inode_size.unwrap_or(256);
    match size.is_power_of_two() && (128..=block_size).contains(&size) {
        true => Ok(size),
        false => Err(MkfsError::InodeSize(size)),
    }
}

/// Clusters of a group at most: the counts of descriptors have 16 bits in their first half.
pub fn clusters_per_group(block_size: u32) -> u64 {
    (u64::from(block_size) * 8).min(GROUP_MAX)
}

impl Shape {
    /// Decides sizes and counts.
    ///
    /// # Errors
    /// Options out of range, and what does not fit.
    pub fn choose(options: &MkfsOptions, around: &Surroundings) -> Result<Shape, MkfsError> {
        let mut features = choose_features(options)?;
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
        let fast_commits = log_blocks > 0 && features.compat.contains(Compat::FAST_COMMIT);
        let fast_commit_blocks = if fast_commits { fast_commit_blocks(blocks) } else { 0 };
        let journal_blocks = log_blocks + fast_commit_blocks;
        let inodes = choose_inodes(options, class_ratio, blocks, block_size, ratio)?;
        if features.compat.contains(Compat::RESIZE_INODE) && block_size > 2048 {
            // Inode 7 is larger than 2 GiB.
            features.ro_compat |= RoCompat::LARGE_FILE;
        }
        let mut raw = RawSuper::zeroed();
        fill_constant(&mut raw, options, around)?;
        raw.set_features(&features);
        fill_sizes(&mut raw, block_size, ratio, inode_size);
        fill_features(&mut raw, &features);
        fill_journal(&mut raw, &features, options.external_journal);
        fill_encoding(&mut raw, &features, options.encoding.unwrap_or_default());
        let mut reserved = (options.reserved_percent * blocks as f64 / 100.0) as u64;
        let kept = count_groups(&mut raw, blocks, inodes).ok_or(too_small)??;
        if kept < blocks {
            reserved = (u128::from(reserved) * u128::from(kept) / u128::from(blocks)) as u64;
        }
        let blocks = kept;
        raw.s_r_blocks_count_lo.set(reserved as u32);
        raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
        raw.set_checksum();
        let geometry = Geometry::parse(raw.as_bytes(), 0).expect("mkfs makes a sound superblock");
        let orphan_file = features.compat.contains(Compat::ORPHAN_FILE);
        let orphan_blocks = match options.orphan_file_size {
            _ if !orphan_file => 0,
            None => default_orphan_file(blocks).next_multiple_of(ratio),
            Some(size) => size.blocks(block_size).ok_or(MkfsError::OrphanFileSize)?,
        };
        Ok(Shape { raw, geometry, journal_blocks, fast_commit_blocks, orphan_blocks })
    }
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
    raw.s_errors.set(1);
    raw.s_rev_level.set(1);
    raw.s_max_mnt_count.set(u16::MAX);
    raw.s_first_ino.set(FIRST_INO);
    raw.s_uuid = options.uuid.unwrap_or(around.uuid);
    let seed = options.hash_seed.unwrap_or(around.hash_seed);
    for (word, bytes) in raw.s_hash_seed.iter_mut().zip(seed.chunks_exact(4)) {
        *word = U32::from_bytes(bytes.try_into().expect("four bytes"));
    }
    raw.s_default_mount_opts.set(DEFAULT_MOUNT_OPTIONS);
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

/// Fields that follow from features.
fn fill_features(raw: &mut RawSuper, features: &Features) {
    raw.s_def_hash_version = 1;
    raw.s_flags.set(FLAG_SIGNED_HASH);
    if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        raw.s_desc_size.set(64);
    }
    if features.incompat.contains(Incompat::ENCRYPT) {
        // AES-256-XTS and AES-256-CTS, which nobody asks for.
        raw.s_encrypt_algos = [1, 4, 0, 0];
    }
    if features.incompat.contains(Incompat::FLEX_BG) {
        raw.s_log_groups_per_flex = LOG_FLEX;
    }
    if features.metadata_csum() {
        raw.s_checksum_type = 1;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.set(crate::format::checksum::uuid_seed(&raw.s_uuid));
    }
}

/// Counts groups, inodes per group and reserved descriptor blocks, until all of it fits; a last
/// group that is too short for its metadata is left away. Returns the blocks that remain, and None
/// where not even the first group fits.
fn count_groups(
    raw: &mut RawSuper,
    mut blocks: u64,
    inodes: u32,
) -> Option<Result<u64, MkfsError>> {
    let block_size = 1024u32 << raw.s_log_block_size.get();
    let first = u64::from(raw.s_first_data_block.get());
    let features = raw.features();
    let desc_size = if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) { 64 } else { 32 };
    let ratio = 1u64 << (raw.s_log_cluster_size.get() - raw.s_log_block_size.get());
    let mut per_group = clusters_per_group(block_size) * ratio;
    let per_block = u64::from(block_size / u32::from(raw.s_inode_size.get()));
    loop {
        let groups = (blocks - first).div_ceil(per_group);
        let desc_blocks = groups.div_ceil(u64::from(block_size / desc_size));
        let wanted = u64::from(inodes).div_ceil(groups);
        if wanted > u64::from(block_size) * 8 {
            // One bitmap does not hold them: smaller groups.
            per_group -= 8;
            if per_group < 256 || ratio > 1 {
                return Some(Err(MkfsError::TooManyInodes { inodes: inodes.into(), blocks }));
            }
            continue;
        }
        let mut inodes_per_group = (wanted.div_ceil(per_block) * per_block).max(8) & !7;
        if groups == 1 {
            // The reserved inodes and /lost+found must fit.
            inodes_per_group = inodes_per_group.max(16);
        }
        inodes_per_group = inodes_per_group.min(((1 << 16) - per_block) & !7);
        while inodes_per_group * groups > u64::from(u32::MAX) {
            inodes_per_group -= 8;
        }
        let table = inodes_per_group.div_ceil(per_block);
        let reserve = if features.compat.contains(Compat::RESIZE_INODE) {
            reserved_descs(blocks, first, per_group, block_size, desc_size, desc_blocks)
        } else {
            0
        };
        let bookkeeping = 2 + table;
        let copies = 1 + desc_blocks + reserve;
        let last = groups - 1;
        raw.s_backup_bgs = backup_groups(&features, groups);
        let backup = match features.compat.contains(Compat::SPARSE_SUPER2) {
            true => true,
            false => has_backup(last, features.ro_compat.contains(RoCompat::SPARSE_SUPER)),
        };
        let overhead = bookkeeping + if backup { copies } else { 0 };
        if bookkeeping + copies > per_group {
            return Some(Err(MkfsError::TooManyInodes { inodes: inodes.into(), blocks }));
        }
        let rest = (blocks - first) % per_group;
        if groups == 1 && rest != 0 && rest < overhead {
            return None;
        }
        if groups > 1 && rest != 0 && rest < overhead + LAST_GROUP_SPARE {
            blocks -= rest;
            continue;
        }
        raw.s_blocks_count_lo.set(blocks as u32);
        raw.s_blocks_count_hi.set((blocks >> 32) as u32);
        raw.s_blocks_per_group.set(per_group as u32);
        raw.s_clusters_per_group.set((per_group / ratio) as u32);
        raw.s_inodes_per_group.set(inodes_per_group as u32);
        raw.s_inodes_count.set((inodes_per_group * groups) as u32);
        raw.s_reserved_gdt_blocks.set(reserve as u16);
        return Some(Ok(blocks));
    }
}

/// The groups with a copy of the superblock, with `sparse_super2`: the second one and the last.
fn backup_groups(features: &Features, groups: u64) -> [U32; 2] {
    let wanted = features.compat.contains(Compat::SPARSE_SUPER2);
    let group = |from: u64, group: u64| if wanted && groups > from { group as u32 } else { 0 };
    [group(2, 1), group(1, groups - 1)].map(U32::new)
}

/// Whether group `group` holds a copy of the superblock.
fn has_backup(group: u64, sparse: bool) -> bool {
    let power = |base: u64| {
        let mut number = group;
        while number > 1 && number.is_multiple_of(base) {
            number /= base;
        }
        number == 1
    };
    group <= 1 || !sparse || power(3) || power(5) || power(7)
}

/// Descriptor blocks kept in reserve, so that the file system can grow to 1024 times its size (at
/// most 2^32 blocks, and what one indirect block can name).
fn reserved_descs(
    blocks: u64,
    first: u64,
    per_group: u64,
    block_size: u32,
    desc_size: u32,
    desc_blocks: u64,
) -> u64 {
    let limit = u64::from(u32::MAX);
    let most = if blocks < limit / 1024 { blocks * 1024 } else { limit };
    let groups = (most - first).div_ceil(per_group);
    let descs = groups.div_ceil(u64::from(block_size / desc_size));
    descs.saturating_sub(desc_blocks).min(u64::from(block_size / 4))
}
