//! The validated superblock: sizes, counts and where things lie.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{FsBlock, Ino, Sector};

use super::realtime::{RealtimeGroups, RealtimeShape, check_realtime};
use super::{IN_PROGRESS, MAGIC, RawSuper};
use crate::format::features::Incompat;
use crate::format::{At, Corrupt, CorruptKind, Expect, Features, Kind, verifier};

/// A block within its allocation group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgBlock {
    /// The allocation group, from 0.
    pub ag: u32,
    /// The block in it, from 0.
    pub block: u32,
}

/// A header of a group, each in a sector of its own, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgHeader {
    /// The superblock, or a copy of it.
    Super,
    /// Free space.
    Agf,
    /// Inodes.
    Agi,
    /// Free blocks for the trees of free space.
    Agfl,
}

/// An inode within its allocation group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgInode {
    /// The allocation group, from 0.
    pub ag: u32,
    /// Its number in the group.
    pub agino: u32,
}

/// How inodes are allocated: 64 at a time, in chunks of whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeChunks {
    /// Blocks of a whole chunk.
    pub blocks: u32,
    /// Blocks that are read and logged together: at least one.
    pub cluster_blocks: u32,
    /// Alignment of chunks in blocks.
    pub align: u32,
    /// Alignment of sparse chunks in blocks, 0 where there are none.
    pub sparse_align: u32,
}

/// The number of blocks.
#[derive(Debug)]
struct Size(AtomicU64);

impl Size {
    fn new(blocks: u64) -> Size {
        Size(AtomicU64::new(blocks))
    }
}

impl Clone for Size {
    fn clone(&self) -> Size {
        Size::new(self.0.load(Ordering::Acquire))
    }
}

impl PartialEq for Size {
    fn eq(&self, other: &Size) -> bool {
        self.0.load(Ordering::Acquire) == other.0.load(Ordering::Acquire)
    }
}

impl Eq for Size {}

/// The shape of one file system: what never changes while it is mounted, and its size,
/// which grows. A clone keeps the size of its time.
///
/// A value exists only where every number is in bounds: no product or sum of the methods here can
/// overflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Feature words.
    pub features: Features,
    /// Bytes per block, 512..=65536, a power of two.
    pub block_size: u32,
    /// log2 of `block_size`.
    pub block_bits: u32,
    /// Bytes per sector: the unit of the AG headers, 512..=`block_size`.
    pub sector_size: u32,
    /// Bytes per inode, 256..=2048, a power of two.
    pub inode_size: u32,
    /// log2 of the inodes per block.
    pub inodes_per_block_bits: u32,
    /// Bytes per directory block, `block_size`..=65536, a power of two.
    pub dir_block_size: u32,
    size: Size,
    /// Blocks of every allocation group but the last, which may be shorter.
    pub ag_blocks: u32,
    /// Bits of a block number within its group.
    pub ag_block_bits: u32,
    /// First block of the log (a block number with its group in the high bits), 0 where external.
    pub log_start: FsBlock,
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Stripe unit of the log in bytes, 0 or 1 for none.
    pub log_sunit: u32,
    /// Bytes per sector of the log.
    pub log_sector_size: u32,
    /// The root directory.
    pub root_ino: Ino,
    /// The root of the metadata directory, where there is one.
    pub metadata_root: Option<Ino>,
    /// Inode of the realtime bitmap, and of its summary.
    pub realtime_inos: [Ino; 2],
    /// The realtime section; of no blocks where there is none.
    pub realtime: RealtimeShape,
    /// How inodes are allocated.
    pub chunks: InodeChunks,
    /// Percentage of the blocks that inodes may take, 0 for no limit.
    pub inode_percent_max: u8,
    /// Stripe unit and width in blocks, 0 for none.
    pub stripe: (u32, u32),
    /// The UUID that users see and the log carries.
    pub uuid: [u8; 16],
    /// The UUID that metadata carry.
    pub meta_uuid: [u8; 16],
    /// The record of the log that changed the superblock last; means nothing in version 4.
    pub lsn: u64,
}

fn power(value: u32, bits: u8, low: u32, high: u32) -> bool {
    (low..=high).contains(&value) && bits < 32 && value == 1 << bits
}

pub(super) fn ensure(holds: bool, kind: CorruptKind, at: At) -> Result<(), Corrupt> {
    if holds { Ok(()) } else { Err(kind.at(at)) }
}

impl Geometry {
    /// The geometry of the superblock in `sector`, which is at least as long as its sector: magic,
    /// version, checksum, then every number.
    ///
    /// A superblock of a version before 4 gives a geometry whose features refuse everything; its
    /// numbers are checked as far as they are needed to say so.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(sector: &[u8], at: At) -> Result<Geometry, Corrupt> {
        let short = CorruptKind::Short { what: "superblock", bytes: sector.len() };
        let raw = RawSuper::view(sector).ok_or_else(|| short.at(at))?;
        let magic = raw.sb_magicnum.get();
        let kind = CorruptKind::Magic { what: "superblock", found: magic, expected: MAGIC };
        ensure(magic == MAGIC, kind, at)?;
        let features = Features::new(raw);
        ensure((1..=5).contains(&features.number), CorruptKind::Version(features.number), at)?;
        let size = u32::from(raw.sb_sectsize.get());
        ensure(power(size, raw.sb_sectlog, 512, 32768), CorruptKind::SectorSize(size), at)?;
        ensure(sector.len() >= size as usize, short, at)?;
        if features.number == 5 {
            let data = &sector[..size as usize];
            let (found, expected) = (
                verifier::stored_checksum(Kind::Super, data),
                verifier::checksum(Kind::Super, data),
            );
            let kind = CorruptKind::Checksum { what: "superblock", found, expected };
            ensure(found == expected, kind, at)?;
        }
        ensure(raw.sb_inprogress & IN_PROGRESS == 0, CorruptKind::InProgress, at)?;
        check_sizes(raw, at)?;
        check_groups(raw, at)?;
        check_log(raw, at)?;
        check_realtime(raw, at)?;
        let mut geometry = Geometry::unchecked(raw, features);
        if geometry.metadata_root.is_some() && geometry.realtime.blocks > 0 {
            let groups = RealtimeGroups::parse(raw, &geometry.realtime, at)?;
            geometry.realtime.groups = Some(groups);
        }
        for root in [geometry.root_ino].into_iter().chain(geometry.metadata_root) {
            ensure(geometry.ino_valid(root), CorruptKind::RootInode(root.0), at)?;
        }
        Ok(geometry)
    }

    /// The geometry of numbers that were checked.
    fn unchecked(raw: &RawSuper, features: Features) -> Geometry {
        let (block_size, inode_size) = (raw.sb_blocksize.get(), u32::from(raw.sb_inodesize.get()));
        let cluster = (8192 * (inode_size / 256)).max(block_size);
        let meta = features.incompat.contains(Incompat::META_UUID);
        let metadir = features.incompat.contains(Incompat::METADIR);
        Geometry {
            features,
            block_size,
            block_bits: u32::from(raw.sb_blocklog),
            sector_size: u32::from(raw.sb_sectsize.get()),
            inode_size,
            inodes_per_block_bits: u32::from(raw.sb_inopblog),
            dir_block_size: block_size << raw.sb_dirblklog,
            size: Size::new(raw.sb_dblocks.get()),
            ag_blocks: raw.sb_agblocks.get(),
            ag_block_bits: u32::from(raw.sb_agblklog),
            log_start: FsBlock(raw.sb_logstart.get()),
            log_blocks: raw.sb_logblocks.get(),
            log_sunit: raw.sb_logsunit.get(),
            log_sector_size: u32::from(raw.sb_logsectsize.get()).max(512),
            root_ino: Ino(raw.sb_rootino.get()),
            metadata_root: metadir.then(|| Ino(raw.sb_metadirino.get())),
            realtime_inos: [Ino(raw.sb_rbmino.get()), Ino(raw.sb_rsumino.get())],
            realtime: RealtimeShape::new(raw),
            chunks: InodeChunks {
                blocks: (64 * inode_size / block_size).max(1),
                cluster_blocks: cluster.min(64 * inode_size).max(block_size) / block_size,
                align: raw.sb_inoalignmt.get().max(1),
                sparse_align: raw.sb_spino_align.get(),
            },
            inode_percent_max: raw.sb_imax_pct,
            stripe: (raw.sb_unit.get(), raw.sb_width.get()),
            uuid: raw.sb_uuid,
            meta_uuid: if meta { raw.sb_meta_uuid } else { raw.sb_uuid },
            lsn: raw.sb_lsn.get(),
        }
    }

    /// Blocks of the file system.
    pub fn blocks_count(&self) -> u64 {
        self.size.0.load(Ordering::Acquire)
    }

    /// Number of allocation groups, at least 1.
    pub fn ag_count(&self) -> u32 {
        self.blocks_count().div_ceil(self.ag_blocks.into()) as u32
    }

    /// From now on the file system has this number of blocks, for everybody who has this geometry:
    /// one of another geometry of the same file system, or the end of one of its groups. What there
    /// is of each group is there before.
    pub(crate) fn set_blocks_count(&self, blocks: u64) {
        self.size.0.store(blocks, Ordering::Release);
    }

    /// Whether the realtime section has btrees of its own.
    pub fn section_trees(&self) -> bool {
        self.realtime.groups.is_some() && (self.features.rmapbt() || self.features.reflink())
    }

    /// Whether metadata have the forms of version 4, without checksums.
    pub fn v4(&self) -> bool {
        self.features.number < 5
    }

    /// Inodes per block.
    pub fn inodes_per_block(&self) -> u32 {
        1 << self.inodes_per_block_bits
    }

    /// Inodes that there may be at most, by their share of the blocks, in whole chunks of 64; none
    /// where the share is not limited.
    pub fn inodes_limit(&self) -> Option<u64> {
        let percent = Some(u64::from(self.inode_percent_max)).filter(|&percent| percent > 0)?;
        let inodes = (self.blocks_count() * percent / 100) << self.inodes_per_block_bits;
        Some(inodes - inodes % 64)
    }

    /// Bits of an inode number within its allocation group.
    pub fn agino_bits(&self) -> u32 {
        self.ag_block_bits + self.inodes_per_block_bits
    }

    /// Blocks of this allocation group, 0 where there is none of this number.
    pub fn ag_length(&self, ag: u32) -> u32 {
        let before = u64::from(ag) * u64::from(self.ag_blocks);
        let rest = self.blocks_count().saturating_sub(before);
        rest.min(self.ag_blocks.into()) as u32
    }

    /// Blocks that `size` bytes need.
    pub fn blocks_of(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.block_size))
    }

    /// Blocks of a directory block.
    pub fn dir_blocks(&self) -> u32 {
        self.dir_block_size >> self.block_bits
    }

    /// Sectors of 512 bytes per block.
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.block_size) / 512
    }

    /// The first block behind the headers of an allocation group.
    pub fn header_blocks(&self) -> u32 {
        (4 * self.sector_size).div_ceil(self.block_size)
    }

    /// Group and block of a file system block.
    pub fn split(&self, block: FsBlock) -> AgBlock {
        let mask = (1u64 << self.ag_block_bits) - 1;
        let ag = (block.0 >> self.ag_block_bits).min(u64::from(u32::MAX)) as u32;
        AgBlock { ag, block: (block.0 & mask) as u32 }
    }

    /// The file system block of a group's block.
    pub fn join(&self, place: AgBlock) -> FsBlock {
        FsBlock(u64::from(place.ag) << self.ag_block_bits | u64::from(place.block))
    }

    /// Whether the block lies in the file system.
    pub fn block_valid(&self, block: FsBlock) -> bool {
        let place = self.split(block);
        self.join(place) == block && place.block < self.ag_length(place.ag)
    }

    /// Whether `count` blocks from `block` lie in one allocation group, behind its headers.
    pub fn extent_valid(&self, block: FsBlock, count: u64) -> bool {
        let place = self.split(block);
        let end = u64::from(place.block).saturating_add(count);
        self.block_valid(block)
            && place.block >= self.header_blocks()
            && end <= u64::from(self.ag_length(place.ag))
    }

    /// The block's number counted from the start of the device, without gaps.
    pub fn linear(&self, place: AgBlock) -> u64 {
        u64::from(place.ag) * u64::from(self.ag_blocks) + u64::from(place.block)
    }

    /// Where a group's block lies on the device.
    pub fn ag_sector(&self, place: AgBlock) -> Sector {
        Sector(self.linear(place) * self.block_sectors())
    }

    /// Where a file system block lies on the device.
    pub fn sector(&self, block: FsBlock) -> Sector {
        self.ag_sector(self.split(block))
    }

    /// Where a block of the realtime section lies on its device.
    pub fn realtime_sector(&self, block: FsBlock) -> Sector {
        Sector((self.realtime.begins + self.realtime.linear(block)) * self.block_sectors())
    }

    /// Where a header of a group lies.
    pub fn header_sector(&self, ag: u32, header: AgHeader) -> Sector {
        let start = self.ag_sector(AgBlock { ag, block: 0 }).0;
        Sector(start + u64::from(header as u32 * (self.sector_size / 512)))
    }

    /// Group and number in the group of an inode.
    pub fn ino_split(&self, ino: Ino) -> AgInode {
        let mask = (1u64 << self.agino_bits()) - 1;
        let ag = (ino.0 >> self.agino_bits()).min(u64::from(u32::MAX)) as u32;
        AgInode { ag, agino: (ino.0 & mask) as u32 }
    }

    /// The inode of this number in its group.
    pub fn ino_join(&self, place: AgInode) -> Ino {
        let AgInode { ag, agino } = place;
        Ino(u64::from(ag) << self.agino_bits() | u64::from(agino))
    }

    /// The block that holds an inode of this number in its group.
    pub fn agino_block(&self, agino: u32) -> u32 {
        agino >> self.inodes_per_block_bits
    }

    /// Whether an inode of this number can exist.
    pub fn ino_valid(&self, ino: Ino) -> bool {
        let AgInode { ag, agino } = self.ino_split(ino);
        let block = self.agino_block(agino);
        ino.0 < 1 << 56
            && self.ino_join(AgInode { ag, agino }) == ino
            && block >= self.header_blocks()
            && block < self.ag_length(ag)
    }

    /// The block of an inode, and where in it the inode lies in bytes.
    pub fn ino_place(&self, ino: Ino) -> (AgBlock, usize) {
        let AgInode { ag, agino } = self.ino_split(ino);
        let offset = (agino & (self.inodes_per_block() - 1)) * self.inode_size;
        (AgBlock { ag, block: self.agino_block(agino) }, offset as usize)
    }

    /// The cluster of inodes that are read and logged together with this one: its first block, its
    /// blocks, and where in it the inode lies in bytes.
    pub fn ino_cluster(&self, ino: Ino) -> (AgBlock, u32, usize) {
        let (place, offset) = self.ino_place(ino);
        let blocks = self.chunks.cluster_blocks.max(1);
        let chunk = self.chunks.blocks.max(blocks);
        // Clusters are counted from the start of their chunk, whose alignment may be smaller.
        let align = self.chunks.align.max(1).min(chunk);
        let inside = if align.is_multiple_of(blocks) { place.block % blocks } else { 0 };
        let first = AgBlock { block: place.block - inside, ..place };
        (first, blocks, inside as usize * self.block_size as usize + offset)
    }

    /// The number in its group of the first inode of a block.
    pub fn block_agino(&self, block: u32) -> u32 {
        block << self.inodes_per_block_bits
    }

    /// What a block at this place must say of itself.
    pub fn expect(&self, address: Sector, owner: Option<u64>) -> Expect {
        Expect { uuid: self.meta_uuid, address, owner, v4: self.v4() }
    }

    /// What a group's block must say of itself where the group owns it.
    pub fn expect_ag(&self, place: AgBlock) -> Expect {
        self.expect(self.ag_sector(place), Some(u64::from(place.ag)))
    }
}

fn check_sizes(raw: &RawSuper, at: At) -> Result<(), Corrupt> {
    let (block, sector) = (raw.sb_blocksize.get(), u32::from(raw.sb_sectsize.get()));
    let kind = CorruptKind::BlockSize { found: block, bits: raw.sb_blocklog };
    ensure(power(block, raw.sb_blocklog, 512, 65536), kind, at)?;
    ensure(sector <= block, CorruptKind::SectorSize(sector), at)?;
    let inode = u32::from(raw.sb_inodesize.get());
    let least = if raw.sb_versionnum.get() & 0xf == 5 { 512 } else { 256 };
    let fits = power(inode, raw.sb_inodelog, least, 2048) && inode <= block;
    ensure(fits, CorruptKind::InodeSize { found: inode, block_size: block }, at)?;
    let per_block = u32::from(raw.sb_inopblock.get());
    let fits = per_block == block / inode && power(per_block, raw.sb_inopblog, 1, 256);
    ensure(fits, CorruptKind::InodesPerBlock(per_block), at)?;
    let log = raw.sb_dirblklog;
    ensure(
        log < 8 && u64::from(block) << log <= 65536,
        CorruptKind::DirBlockSize { log, block_size: block },
        at,
    )
}

fn check_groups(raw: &RawSuper, at: At) -> Result<(), Corrupt> {
    let (blocks, count, total) =
        (raw.sb_agblocks.get(), raw.sb_agcount.get(), raw.sb_dblocks.get());
    let bits = u32::from(raw.sb_agblklog);
    let bytes = u64::from(blocks) * u64::from(raw.sb_blocksize.get());
    let fits = blocks >= 64 && bits == 32 - (blocks - 1).leading_zeros() && bytes <= 1 << 40;
    ensure(fits, CorruptKind::AgBlocks { found: blocks, bits: raw.sb_agblklog }, at)?;
    let all = u64::from(count) * u64::from(blocks);
    let fits = count > 0 && total <= all && total > all - u64::from(blocks);
    ensure(fits, CorruptKind::AgCount { groups: count, ag_blocks: blocks, blocks: total }, at)?;
    let wide = u64::from(count - 1).checked_shl(bits + u32::from(raw.sb_inopblog));
    let fits = wide.is_some_and(|ino| ino < 1 << 56) && total >> 52 == 0;
    ensure(fits, CorruptKind::AgCount { groups: count, ag_blocks: blocks, blocks: total }, at)?;
    let last = total - u64::from(count - 1) * u64::from(blocks);
    let (sector, block) = (u64::from(raw.sb_sectsize.get()), u64::from(raw.sb_blocksize.get()));
    ensure(last * block > 4 * sector, CorruptKind::LastAg(last), at)
}

fn check_log(raw: &RawSuper, at: At) -> Result<(), Corrupt> {
    let (start, blocks) = (raw.sb_logstart.get(), raw.sb_logblocks.get());
    let bytes = u64::from(blocks) << raw.sb_blocklog;
    let sized = (4 * 32768..=2 << 30).contains(&bytes);
    if start == 0 {
        return ensure(sized, CorruptKind::LogPlace { start, blocks }, at);
    }
    let bits = u32::from(raw.sb_agblklog);
    let (ag, first) = (start >> bits, start & ((1 << bits) - 1));
    let all = raw.sb_dblocks.get();
    let linear = ag.checked_mul(u64::from(raw.sb_agblocks.get())).map(|before| before + first);
    let inside = linear.is_some_and(|linear| linear + u64::from(blocks) <= all)
        && first + u64::from(blocks) <= u64::from(raw.sb_agblocks.get());
    ensure(inside && sized, CorruptKind::LogPlace { start, blocks }, at)?;
    let sector = u32::from(raw.sb_logsectsize.get());
    let usual = sector == 0 || (sector.is_power_of_two() && (512..=32768).contains(&sector));
    ensure(usual, CorruptKind::SectorSize(sector), at)?;
    let sunit = raw.sb_logsunit.get();
    let fits = sunit <= 1 || (sunit <= 256 << 10 && sunit.is_multiple_of(sector.max(512)));
    ensure(fits, CorruptKind::LogStripe(sunit), at)
}
