//! From options and size to the numbers of the superblock.

use std::ops::Range;

use super::{MkfsError, MkfsOptions, Surroundings};
use crate::format::btree;
use crate::format::features::{Features2, Incompat, RoCompat, Version};
use crate::format::super_block::MAGIC;
use crate::format::{Geometry, Kind, NULL64, RawSuper, RealtimeWords};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// The least size of a file system, and with a size of the log given.
const SIZE_MIN: [u64; 2] = [300 * MIB, 16 * MIB];
/// Bytes of an allocation group.
const AG_MIN: u64 = 16 * MIB;
/// Bytes of the log.
const LOG_MIN: u64 = 10 * MIB;
/// Blocks of the log with which any features have room.
const LOG_BLOCKS_MIN: u64 = 1280;
/// The same for blocks of 32 and 64 KiB.
const LOG_BLOCKS_LARGE: u64 = 1024;
const LOG_DEFAULT: u64 = 64 * MIB;
const LOG_MAX: u64 = 2038 * MIB;

/// The place of a log that lies in no group.
const NOWHERE: (u32, u32) = (u32::MAX, 0);

/// A file system that can be made: its superblock, and where the fixed blocks of a group lie.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Everything but what follows from the content: counts of free blocks and inodes, root.
    pub raw: RawSuper,
    /// First block behind the headers of a group: the root of free space by block.
    pub first_root: u32,
    /// First block behind the roots of a group.
    pub roots_end: u32,
    /// Group and first block of the log.
    pub log_place: (u32, u32),
    /// Blocks on each group's free list.
    pub free_list: u32,
    /// Alignment of the root's inode chunk, in blocks.
    pub root_align: u32,
    /// Blocks of an inode chunk.
    pub chunk_blocks: u32,
    pub options: MkfsOptions,
}

fn power(what: &'static str, found: u32, low: u32, high: u32) -> Result<(), MkfsError> {
    if found.is_power_of_two() && (low..=high).contains(&found) {
        return Ok(());
    }
    Err(MkfsError::Size { what, found, low, high })
}

/// Blocks per group, groups, and blocks in all.
struct Groups {
    size: u64,
    count: u64,
    blocks: u64,
}

impl Shape {
    /// The shape of a file system that is there, for groups that it gets.
    pub(super) fn of_super(raw: &RawSuper, geometry: &Geometry) -> Shape {
        let features = geometry.features;
        let options = MkfsOptions {
            block_size: geometry.block_size,
            sector_size: geometry.sector_size,
            inode_size: geometry.inode_size,
            finobt: features.finobt(),
            rmapbt: features.rmapbt(),
            reflink: features.reflink(),
            inobtcount: features.inobtcount(),
            sparse: features.sparse(),
            ..MkfsOptions::default()
        };
        let Range { start: first_root, end: roots_end } = roots(&options);
        Shape {
            raw: *raw,
            first_root,
            roots_end,
            // In none of the new ones.
            log_place: NOWHERE,
            free_list: free_list(&options, geometry.ag_blocks),
            root_align: geometry.chunks.align.max(1),
            chunk_blocks: geometry.chunks.blocks,
            options,
        }
    }

    /// Inodes that are allocated together.
    pub(super) fn chunk_inodes(&self) -> u32 {
        self.chunk_blocks << self.raw.sb_inopblog
    }

    /// Records of the inode btree that fit one block.
    pub(super) fn inobt_max(&self) -> usize {
        btree::Shape::of(Kind::Inobt).max(self.options.block_size as usize, 0)
    }

    /// The block of each group where the reverse map begins.
    pub(super) fn rmap_root(&self) -> u32 {
        self.first_root + 3 + u32::from(self.options.finobt)
    }

    /// Decides.
    ///
    /// # Errors
    /// What makes the options impossible.
    pub(super) fn choose(options: &MkfsOptions, around: &Surroundings) -> Result<Shape, MkfsError> {
        let options = &beside_realtime(options);
        check(options)?;
        let block = options.block_size;
        let size = options.size.unwrap_or(around.device_bytes);
        if size > around.device_bytes {
            return Err(MkfsError::DeviceSize { device: around.device_bytes, size });
        }
        if size < SIZE_MIN[usize::from(options.log_size.is_some())] {
            return Err(MkfsError::TooSmall { bytes: size });
        }
        let groups = groups(options, size / u64::from(block))?;
        let Range { start: first_root, end: roots_end } = roots(options);
        let sunit = log_sunit(options)?;
        let free_list = free_list(options, groups.size as u32);
        let log = log_blocks(options, &groups, size, roots_end, sunit)?;
        let start = u64::from(roots_end).next_multiple_of(u64::from(sunit / block).max(1));
        let log_place = match options.log_device {
            None => ((groups.count / 2) as u32, start as u32),
            Some(_) => NOWHERE,
        };
        let mut raw = base_super(options, around);
        raw.sb_dblocks.set(groups.blocks);
        raw.sb_agblocks.set(groups.size as u32);
        raw.sb_agcount.set(groups.count as u32);
        raw.sb_agblklog = (64 - (groups.size - 1).leading_zeros()) as u8;
        raw.sb_logblocks.set(log as u32);
        if log_place != NOWHERE {
            raw.sb_logstart.set(u64::from(log_place.0) << raw.sb_agblklog | start);
        }
        raw.sb_logsunit.set(sunit.max(1));
        set_realtime(&mut raw, options)?;
        // As mkfs.xfs takes 0: that of 6.1 as the default, that of 7.2 as no limit.
        let percent = options.inode_percent.filter(|&percent| percent > 0 || options.newest);
        raw.sb_imax_pct = percent.unwrap_or(match size {
            size if size < TIB => 25,
            size if size < 50 * TIB => 5,
            _ => 1,
        });
        let (chunk, align) = (64 * options.inode_size / block, raw.sb_inoalignmt.get());
        let unit = raw.sb_unit.get();
        let striped = align > 1 && unit > align && unit.is_multiple_of(align);
        let root_align = if striped { unit } else { align };
        Ok(Shape {
            raw,
            first_root,
            roots_end,
            log_place,
            free_list,
            root_align: root_align.max(1),
            chunk_blocks: chunk.max(1),
            options: options.clone(),
        })
    }
}

/// Blocks on the free list of a new group: two for each btree that can be higher than one block,
/// however many records it has.
fn free_list(options: &MkfsOptions, ag_blocks: u32) -> u32 {
    let least = |kind| btree::Shape::of(kind).min(options.block_size as usize, 0) as u32;
    let space = if ag_blocks.div_ceil(2) > least(Kind::FreeByBlock) { 4 } else { 0 };
    let grows = options.reflink || ag_blocks > least(Kind::Rmap);
    space + if options.rmapbt && grows { 2 } else { 0 }
}

/// The first block behind the headers of a group, and the first one behind its roots.
fn roots(options: &MkfsOptions) -> Range<u32> {
    let first = (4 * options.sector_size).div_ceil(options.block_size);
    let trees =
        3 + [options.finobt, options.rmapbt, options.reflink].map(u32::from).iter().sum::<u32>();
    first..first + trees
}

fn check(options: &MkfsOptions) -> Result<(), MkfsError> {
    let block = options.block_size;
    power("a block", block, 1024, 65536)?;
    power("a sector", options.sector_size, 512, block)?;
    power("an inode", options.inode_size, 512, 2048.min(block))?;
    if let Some(size) = options.dir_block_size {
        power("a directory block", size, 4096.max(block), 65536)?;
    }
    if options.label.len() > 12 {
        return Err(MkfsError::Label(options.label.clone()));
    }
    if let Some(percent) = options.inode_percent.filter(|&percent| percent > 100) {
        return Err(MkfsError::InodePercent(percent));
    }
    if let Some((unit, width)) = options.stripe
        && (unit == 0 || !unit.is_multiple_of(block) || width == 0 || width > 1 << 16)
    {
        return Err(MkfsError::Stripe(unit));
    }
    if options.metadir && !options.exchange {
        return Err(MkfsError::Features(
            "metadir needs exchange ranges: add -i exchange=1, or take the defaults of xfsprogs \
             7.2 with --compat 7.2",
        ));
    }
    if options.inobtcount && !options.finobt {
        return Err(MkfsError::Features("inobtcount needs finobt"));
    }
    Ok(())
}

fn groups(options: &MkfsOptions, blocks: u64) -> Result<Groups, MkfsError> {
    let block = u64::from(options.block_size);
    let bytes = blocks * block;
    let unit = options.stripe.map_or(1, |(unit, _)| u64::from(unit) / block);
    let width = options.stripe.map_or(1, |(_, width)| unit * u64::from(width));
    let by_default = match options.stripe {
        None if bytes < 32 * MIB => 1,
        None if bytes < 64 * MIB => 2,
        None => 4,
        Some(_) if bytes > 512 << 30 => 32,
        Some(_) if bytes > 8 << 30 => 16,
        Some(_) if bytes >= 128 * MIB => 8,
        Some(_) => 4,
    };
    let wanted = options.ag_count.map_or(by_default, u64::from).max(1);
    let limit = TIB / block - 1;
    let mut size = match options.ag_size {
        Some(bytes) => bytes / block,
        None => blocks.div_ceil(wanted),
    };
    let given = options.ag_count.is_some() || options.ag_size.is_some();
    if !given {
        size = size.min(limit);
    }
    size = size.next_multiple_of(unit);
    // Groups that all began on one disk of a stripe would load it alone.
    if !given && width > unit && size.is_multiple_of(width) {
        size -= unit;
    }
    let (mut count, mut blocks) = (blocks.div_ceil(size.max(1)), blocks);
    let rest = blocks % size.max(1);
    if count > 1 && rest > 0 && rest * block < AG_MIN {
        count -= 1;
        blocks -= rest;
    }
    let smallest = if count == 1 { blocks } else { size };
    if smallest * block < AG_MIN || size > limit || count > u64::from(u32::MAX / 2) {
        return Err(MkfsError::Groups { groups: wanted, blocks: size });
    }
    Ok(Groups { size, count, blocks })
}

/// The stripe unit of the log in bytes, 0 for none.
fn log_sunit(options: &MkfsOptions) -> Result<u32, MkfsError> {
    let unit = match (options.log_sunit, options.stripe) {
        (Some(unit), _) => unit,
        (None, Some((unit, _))) if unit <= 256 << 10 => unit,
        (None, Some(_)) => 32 << 10,
        (None, None) if options.sector_size > 512 => options.block_size,
        (None, None) => 0,
    };
    let fits = unit.is_multiple_of(options.block_size) && unit <= 256 << 10;
    if fits { Ok(unit) } else { Err(MkfsError::Stripe(unit)) }
}

/// Blocks of a log at the least: what changes at once is counted in blocks. As many as mkfs.xfs 7.2
/// asks for with large blocks, as it was observed.
fn log_blocks_min(options: &MkfsOptions, group_blocks: u64, sunit: u32) -> u64 {
    match (options.block_size, options.parent) {
        (65536, true) if !options.nrext64 => 1024,
        (65536, true) if sunit > 0 => u64::from(1104 + 36 * (sunit >> 16)),
        (65536, true) => u64::from(1127 + options.inode_size / 1024),
        (32768 | 65536, false) => log_blocks_of_old(options, group_blocks, sunit),
        _ => LOG_BLOCKS_MIN,
    }
}

/// The same without parent pointers. With reverse maps and shared blocks room is kept for as much
/// as Linux once logged with them: more if the trees of free space and of reference counts can have
/// two levels.
fn log_blocks_of_old(options: &MkfsOptions, group_blocks: u64, sunit: u32) -> u64 {
    let block = u64::from(options.block_size);
    let two_levels =
        |kind: Kind, records: u64| records > btree::Shape::of(kind).min(block as usize, 0) as u64;
    let shared = two_levels(Kind::Refcount, group_blocks);
    let free = two_levels(Kind::FreeByBlock, group_blocks.div_ceil(2));
    // Blocks without a stripe unit; a third of them with one in hundredths of a block; what a
    // larger sector and a stripe unit add to that.
    let (plain, third, sector, stripe) = match (block, options.rmapbt, options.reflink) {
        (32768, true, true) if free => (2605, 85_195, 7260, 1800),
        (32768, true, true) => (2213, 72_157, 7260, 1800),
        (65536, true, true) if free => (2570, 84_846, 7260, 1800),
        (65536, true, true) if shared => (2180, 71_829, 7260, 1800),
        (65536, true, true) => (1984, 65_335, 7260, 1800),
        (_, false, true) if free => (LOG_BLOCKS_LARGE, 29_550, 0, 1800),
        (32768, ..) => (2200, 71_700, 17_750, 800),
        _ => return LOG_BLOCKS_LARGE,
    };
    if sunit == 0 {
        return plain;
    }
    let unit = u64::from(sunit) / block;
    let larger = sector * (u64::from(options.sector_size) - 512) / block;
    3 * (third + larger + stripe * unit).div_ceil(100).next_multiple_of(unit)
}

fn log_blocks(
    options: &MkfsOptions,
    groups: &Groups,
    size: u64,
    roots_end: u32,
    sunit: u32,
) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    let unit = (u64::from(sunit) / block).max(1);
    // Room for the roots, the free list, and one block more.
    let smallest = groups.size.min(groups.blocks);
    let high = smallest.saturating_sub(u64::from(roots_end) + 4 + 1) / unit * unit;
    let least = log_blocks_min(options, smallest, sunit);
    let low = (LOG_MIN / block).max(least);
    if let Some(bytes) = options.log_device {
        let high = (bytes / block).min(LOG_MAX / block) / unit * unit;
        let blocks = match options.log_size {
            Some(bytes) => (bytes / block).next_multiple_of(unit),
            None => bytes / block / unit * unit,
        };
        let fits = (low..=high).contains(&blocks);
        return if fits { Ok(blocks) } else { Err(MkfsError::LogSize { blocks, low, high }) };
    }
    let blocks = match options.log_size {
        Some(bytes) => (bytes / block).next_multiple_of(unit),
        None => {
            let bytes = (size / 2048).clamp(LOG_DEFAULT, LOG_MAX);
            (bytes / block).max(least).min(high)
        }
    };
    let start = u64::from(roots_end).next_multiple_of(unit);
    let fits =
        (low..=high).contains(&blocks) && blocks * block <= LOG_MAX && start + blocks <= smallest;
    if fits { Ok(blocks) } else { Err(MkfsError::LogSize { blocks, low, high }) }
}

/// No btree follows files in a realtime section without groups, and no counts those in groups whose
/// extents are larger than a block: mkfs.xfs leaves these out, too.
fn beside_realtime(options: &MkfsOptions) -> MkfsOptions {
    let mut options = options.clone();
    if options.realtime.is_some() {
        // Groups share blocks where an extent is one block.
        let single = options.realtime_extent.unwrap_or(4096) <= options.block_size;
        options.reflink &= options.metadir && single;
        options.rmapbt &= options.metadir;
    }
    options
}

/// The numbers of the realtime section.
fn set_realtime(raw: &mut RawSuper, options: &MkfsOptions) -> Result<(), MkfsError> {
    let block = options.block_size;
    let extent = options.realtime_extent.unwrap_or(4096.max(block));
    let fits = extent.is_multiple_of(block) && (4096.max(block)..=1 << 30).contains(&extent);
    if !fits {
        return Err(MkfsError::RealtimeExtent(extent));
    }
    raw.sb_rextsize.set(extent / block);
    if options.metadir {
        let size = TIB / u64::from(extent);
        raw.sb_rgextents.set(size as u32);
        raw.sb_rgblklog = group_bits(size, extent / block);
    }
    let Some(bytes) = options.realtime else { return Ok(()) };
    let blocks = bytes / u64::from(block);
    let extents = blocks / u64::from(extent / block);
    let Some(log) = extents.checked_ilog2() else {
        return Err(MkfsError::TooSmall { bytes });
    };
    raw.sb_rblocks.set(blocks);
    raw.sb_rextents.set(extents);
    raw.sb_frextents.set(extents);
    raw.sb_rextslog = log as u8;
    raw.sb_rbmblocks.set(extents.div_ceil(8 * u64::from(block)) as u32);
    if options.metadir {
        let size = group_extents(options, blocks, extent / block)?;
        raw.sb_frextents.set(extents - 1);
        raw.sb_rgcount.set(extents.div_ceil(size) as u32);
        raw.sb_rgextents.set(size as u32);
        raw.sb_rgblklog = group_bits(size, extent / block);
        let words = RealtimeWords::grouped(block);
        raw.sb_rbmblocks.set(size.div_ceil(words.bits()) as u32);
    }
    Ok(())
}

/// Bits of a block's number in a realtime group of so many extents.
fn group_bits(extents: u64, extent_blocks: u32) -> u8 {
    (64 - (extents * u64::from(extent_blocks) - 1).leading_zeros()) as u8
}

/// Extents of each realtime group. By default mkfs.xfs 7.2 was seen to choose powers of two: one
/// group larger than a section that is one itself; the largest that is not larger than the section
/// where that is small or an odd number below eight times one; else the largest not over a quarter.
fn group_extents(options: &MkfsOptions, blocks: u64, unit: u32) -> Result<u64, MkfsError> {
    let (block, unit) = (u64::from(options.block_size), u64::from(unit));
    let extents = blocks / unit;
    let limit = 4 * TIB / block / unit;
    let size = match (options.realtime_group_count, options.realtime_group_size) {
        (Some(count), _) => extents.div_ceil(u64::from(count.max(1))),
        (None, Some(bytes)) => bytes / block / unit,
        (None, None) if extents >= limit && extents.is_power_of_two() => limit + 1,
        (None, None) if extents >= limit => limit,
        (None, None) if !unit.is_power_of_two() => (blocks.div_ceil(4)).div_ceil(unit),
        (None, None) if extents.is_power_of_two() => 2 * extents,
        (None, None) => {
            let small = blocks * block < 128 * MIB || extents >> extents.trailing_zeros() < 8;
            1 << (if small { extents } else { extents / 4 }).max(2).ilog2()
        }
    };
    let fits = match options.realtime_group_size {
        Some(bytes) => bytes.is_multiple_of(block * unit),
        None => true,
    };
    let wrong = MkfsError::RealtimeGroupSize { size, extents };
    let low = 2;
    let high = u64::from(i32::MAX as u32) / unit;
    if fits && (low..=high).contains(&size) { Ok(size) } else { Err(wrong) }
}

/// What follows from the options alone.
fn base_super(options: &MkfsOptions, around: &Surroundings) -> RawSuper {
    let (block, inode) = (options.block_size, options.inode_size);
    let mut raw = RawSuper::zeroed();
    raw.sb_magicnum.set(MAGIC);
    raw.sb_blocksize.set(block);
    raw.sb_uuid = options.uuid.unwrap_or(around.uuid);
    raw.sb_rootino.set(NULL64);
    raw.sb_rbmino.set(NULL64);
    raw.sb_rsumino.set(NULL64);
    raw.sb_sectsize.set(options.sector_size as u16);
    raw.sb_inodesize.set(inode as u16);
    raw.sb_inopblock.set((block / inode) as u16);
    raw.sb_fname[..options.label.len()].copy_from_slice(options.label.as_bytes());
    raw.sb_blocklog = block.trailing_zeros() as u8;
    raw.sb_sectlog = options.sector_size.trailing_zeros() as u8;
    raw.sb_inodelog = inode.trailing_zeros() as u8;
    raw.sb_inopblog = (block / inode).trailing_zeros() as u8;
    // None where a block holds more.
    let (cluster, chunk) = (32 * inode / block, 64 * inode / block);
    raw.sb_inoalignmt.set(if options.sparse { chunk } else { cluster });
    raw.sb_spino_align.set(if options.sparse { cluster } else { 0 });
    if let Some((unit, width)) = options.stripe {
        raw.sb_unit.set(unit / block);
        raw.sb_width.set(unit / block * width);
    }
    let dir = options.dir_block_size.unwrap_or(4096.max(block));
    raw.sb_dirblklog = (dir / block).trailing_zeros() as u8;
    if options.sector_size > 512 {
        raw.sb_logsectlog = raw.sb_sectlog;
        raw.sb_logsectsize.set(options.sector_size as u16);
    }
    set_features(&mut raw, options);
    raw
}

fn set_features(raw: &mut RawSuper, options: &MkfsOptions) {
    let mut version = Version::NLINK
        | Version::ALIGN
        | Version::LOGV2
        | Version::EXTFLG
        | Version::DIRV2
        | Version::MOREBITS;
    version.set(Version::ATTR, options.parent || options.autofsck_value().is_some());
    version.set(Version::BORG, options.ignore_case);
    version.set(Version::QUOTA, !options.quota.is_empty());
    raw.sb_qflags.set(options.quota.bits());
    version.set(Version::DALIGN, options.stripe.is_some());
    version.set(Version::SECTOR, options.sector_size > 512);
    raw.sb_versionnum.set(5 | version.bits());
    let features2 =
        Features2::LAZYSBCOUNT | Features2::ATTR2 | Features2::PROJID32 | Features2::CRC;
    raw.sb_features2.set(features2.bits());
    raw.sb_bad_features2.set(features2.bits());
    let mut ro_compat = RoCompat::empty();
    ro_compat.set(RoCompat::FINOBT, options.finobt);
    ro_compat.set(RoCompat::RMAPBT, options.rmapbt);
    ro_compat.set(RoCompat::REFLINK, options.reflink);
    ro_compat.set(RoCompat::INOBTCOUNT, options.inobtcount);
    raw.sb_features_ro_compat.set(ro_compat.bits());
    let mut incompat = Incompat::FTYPE;
    incompat.set(Incompat::SPINODES, options.sparse);
    incompat.set(Incompat::BIGTIME, options.bigtime);
    incompat.set(Incompat::NREXT64, options.nrext64);
    incompat.set(Incompat::EXCHRANGE, options.exchange);
    incompat.set(Incompat::PARENT, options.parent);
    incompat.set(Incompat::METADIR, options.metadir);
    raw.sb_features_incompat.set(incompat.bits());
}
