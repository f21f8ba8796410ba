//! The validated superblock: sizes, counts and where things lie.

use base::{FsBlock, Ino};

use super::{CREATOR_HURD, FLAG_UNSIGNED_HASH, MAGIC, RawSuper, SUPER_SIZE};
use crate::format::casefold::Encoding;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::{At, Checksums, Corrupt, CorruptKind, Features};

/// A directory hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HashVersion {
    /// The first one, signed characters.
    Legacy = 0,
    /// Half of an MD4, signed characters: the default.
    HalfMd4 = 1,
    /// The Tiny Encryption Algorithm, signed characters.
    Tea = 2,
    /// The first one, unsigned characters.
    LegacyUnsigned = 3,
    /// Half of an MD4, unsigned characters.
    HalfMd4Unsigned = 4,
    /// The Tiny Encryption Algorithm, unsigned characters.
    TeaUnsigned = 5,
}

impl HashVersion {
    /// The version of this number. SipHash (6), of encrypted case-insensitive directories, is not
    /// supported.
    pub fn from_number(number: u8) -> Option<HashVersion> {
        Some(match number {
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            2 => HashVersion::Tea,
            3 => HashVersion::LegacyUnsigned,
            4 => HashVersion::HalfMd4Unsigned,
            5 => HashVersion::TeaUnsigned,
            _ => return None,
        })
    }

    /// The same hash over unsigned characters.
    pub fn unsigned(self) -> HashVersion {
        match self {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => HashVersion::LegacyUnsigned,
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => HashVersion::HalfMd4Unsigned,
            HashVersion::Tea | HashVersion::TeaUnsigned => HashVersion::TeaUnsigned,
        }
    }
}

/// The shape of one file system: what never changes while it is mounted (except by resizing).
///
/// A value exists only where every number is in bounds: no product or sum of the methods here can
/// overflow, and no count exceeds what the blocks can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Feature words.
    pub features: Features,
    /// Checksum seeds.
    pub checksums: Checksums,
    /// Bytes per block, 1024..=65536, a power of two.
    pub block_size: u32,
    /// log2 of `block_size`.
    pub block_bits: u32,
    /// Blocks per cluster, 1 without bigalloc.
    pub cluster_ratio: u32,
    /// Blocks of the file system, those before the first data block included.
    pub blocks_count: u64,
    /// First block of group 0: 1 with blocks of 1 KiB, else 0.
    pub first_data_block: u32,
    /// Blocks per group, at most 8 * `block_size` * `cluster_ratio`.
    pub blocks_per_group: u32,
    /// Clusters per group: bits of the block bitmap.
    pub clusters_per_group: u32,
    /// Inodes per group: bits of the inode bitmap.
    pub inodes_per_group: u32,
    /// Inodes of the file system.
    pub inodes_count: u32,
    /// Number of groups, at least 1.
    pub groups_count: u32,
    /// Bytes per inode, 128..=`block_size`, a power of two.
    pub inode_size: u32,
    /// Inodes per block of the inode table.
    pub inodes_per_block: u32,
    /// Blocks of a group's inode table.
    pub itable_blocks: u32,
    /// Bytes per group descriptor: 32, or 64 and more with `64bit`.
    pub desc_size: u32,
    /// Descriptors per block.
    pub descs_per_block: u32,
    /// Blocks that hold all descriptors.
    pub desc_blocks: u32,
    /// Blocks reserved behind the descriptors (`resize_inode`).
    pub reserved_gdt_blocks: u32,
    /// First meta group with `meta_bg`.
    pub first_meta_bg: u32,
    /// Groups per flexible group, 1 without `flex_bg`.
    pub flex_size: u32,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Bytes that a new inode uses beyond 128, 0 where inodes have 128 bytes.
    pub want_extra_isize: u16,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// The hash of new hash trees.
    pub hash_version: HashVersion,
    /// Directory hashes take bytes as unsigned, whatever the number in a tree's root says.
    pub hash_unsigned: bool,
    /// How names are encoded, with `casefold`.
    pub encoding: Option<Encoding>,
    /// Inode of the journal, 0 where there is none.
    pub journal_ino: u32,
    /// Inode of the orphan file, 0 without `orphan_file`.
    pub orphan_file_ino: u32,
    /// Inodes of the quota files of users, groups and projects, 0 where there is none.
    pub quota_inos: [u32; 3],
    /// Groups with the backups of `sparse_super2`.
    pub backup_bgs: [u32; 2],
    /// Made for the GNU Hurd: inodes have translators and authors.
    pub hurd: bool,
}

/// Fails a check of the superblock unless it holds.
macro_rules! check {
    ($ok:expr, $at:expr, $kind:expr) => {
        if !$ok {
            return Err($kind.at($at));
        }
    };
}

impl Geometry {
    /// Checks a superblock (`bytes` begins with it; `block` says where it lies, for messages) and
    /// gives its geometry. Features are not judged: see [`Features::access`].
    ///
    /// # Errors
    /// The first check that fails: magic, checksum, sizes, counts.
    pub fn parse(bytes: &[u8], block: u64) -> Result<Geometry, Corrupt> {
        let at = At::Super(block);
        let raw = RawSuper::read(bytes).ok_or(CorruptKind::SuperMagic { found: 0 }.at(at))?;
        let magic = raw.s_magic.get();
        check!(magic == MAGIC, at, CorruptKind::SuperMagic { found: magic });
        let rev = raw.s_rev_level.get();
        check!(rev <= 1, at, CorruptKind::Revision { found: rev });
        // Linux and e2fsck take them in revision 0, too.
        let features = raw.features();
        if features.metadata_csum() {
            let found = raw.s_checksum_type;
            check!(found == 1, at, CorruptKind::ChecksumType { found });
            let expected = crate::format::checksum::super_block(&bytes[..SUPER_SIZE]);
            let found = raw.s_checksum.get();
            check!(found == expected, at, CorruptKind::SuperChecksum { found, expected });
        }
        let mut geometry = Geometry::sizes(&raw, features, at)?;
        geometry.count(&raw, at)?;
        geometry.check_places(&raw, at)?;
        Ok(geometry)
    }

    /// May entries of directories have data behind their names?
    #[inline]
    pub fn dirdata(&self) -> bool {
        self.features.incompat.contains(Incompat::DIRDATA)
    }

    /// Is there a journal on a device of its own?
    #[inline]
    pub fn external_journal(&self) -> bool {
        self.features.compat.contains(Compat::HAS_JOURNAL) && self.journal_ino == 0
    }

    /// First phase of `parse`: what follows from single fields.
    fn sizes(raw: &RawSuper, features: Features, at: At) -> Result<Geometry, Corrupt> {
        let log = raw.s_log_block_size.get();
        check!(log <= 6, at, CorruptKind::BlockSize { log });
        let block_size = 1024u32 << log;
        let clog = raw.s_log_cluster_size.get();
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let fits = if bigalloc { (log..=19).contains(&clog) } else { clog == log };
        check!(fits, at, CorruptKind::ClusterSize { log: clog, block_size });
        let (inode_size, first_ino) = match raw.s_rev_level.get() {
            0 => (128, super::FIRST_INO),
            _ => (u32::from(raw.s_inode_size.get()), raw.s_first_ino.get()),
        };
        let ok = inode_size.is_power_of_two() && (128..=block_size).contains(&inode_size);
        check!(ok, at, CorruptKind::InodeSize { found: inode_size, block_size });
        let wide = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let desc_size = if wide { u32::from(raw.s_desc_size.get()) } else { 32 };
        let ok = desc_size.is_power_of_two() && (32..=1024).contains(&desc_size);
        check!(ok && (!wide || desc_size >= 64), at, CorruptKind::DescSize { found: desc_size });
        let flex = raw.s_log_groups_per_flex;
        let flex_bg = features.incompat.contains(Incompat::FLEX_BG);
        check!(!flex_bg || flex < 32, at, CorruptKind::FlexSize { found: flex });
        let unsigned = raw.s_flags.get() & FLAG_UNSIGNED_HASH != 0;
        let version =
            HashVersion::from_number(raw.s_def_hash_version).unwrap_or(HashVersion::HalfMd4);
        let compat = |bit| features.compat.contains(bit);
        let flag = |set: bool, ino: u32| if set { ino } else { 0 };
        Ok(Geometry {
            checksums: Checksums::new(raw, &features),
            block_size,
            block_bits: 10 + log,
            cluster_ratio: 1 << (clog - log),
            blocks_count: raw.blocks_count(),
            first_data_block: raw.s_first_data_block.get(),
            blocks_per_group: raw.s_blocks_per_group.get(),
            clusters_per_group: raw.s_clusters_per_group.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            inodes_count: raw.s_inodes_count.get(),
            groups_count: 0,
            inode_size,
            inodes_per_block: block_size / inode_size,
            itable_blocks: 0,
            desc_size,
            descs_per_block: block_size / desc_size,
            desc_blocks: 0,
            reserved_gdt_blocks: u32::from(raw.s_reserved_gdt_blocks.get()),
            first_meta_bg: raw.s_first_meta_bg.get(),
            flex_size: if flex_bg { 1 << flex } else { 1 },
            first_ino,
            want_extra_isize: if inode_size > 128 { raw.s_want_extra_isize.get() } else { 0 },
            uuid: raw.s_uuid,
            hash_seed: raw.s_hash_seed.map(|word| word.get()),
            hash_version: if unsigned { version.unsigned() } else { version },
            hash_unsigned: unsigned,
            encoding: encoding(raw, &features, at)?,
            journal_ino: flag(compat(Compat::HAS_JOURNAL), raw.s_journal_inum.get()),
            orphan_file_ino: flag(compat(Compat::ORPHAN_FILE), raw.s_orphan_file_inum.get()),
            quota_inos: match features.ro_compat.contains(RoCompat::QUOTA) {
                true => [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum]
                    .map(|ino| ino.get()),
                false => [0; 3],
            },
            backup_bgs: raw.s_backup_bgs.map(|group| group.get()),
            hurd: raw.s_creator_os.get() == CREATOR_HURD,
            features,
        })
    }

    /// Second phase of `parse`: groups and the numbers that follow from them.
    fn count(&mut self, raw: &RawSuper, at: At) -> Result<(), Corrupt> {
        let (per_group, limit) = (self.blocks_per_group, self.block_size * 8);
        let most = limit.saturating_mul(self.cluster_ratio);
        let ok = per_group % 8 == 0 && (8..=most).contains(&per_group);
        check!(ok, at, CorruptKind::BlocksPerGroup { found: per_group, limit: most });
        let clusters = self.clusters_per_group;
        let ok = clusters.checked_mul(self.cluster_ratio) == Some(per_group);
        check!(ok, at, CorruptKind::ClustersPerGroup { found: clusters, blocks: per_group });
        let (per_block, found) = (self.inodes_per_block, self.inodes_per_group);
        let ok = found % 8 == 0 && (per_block..=limit).contains(&found);
        check!(ok, at, CorruptKind::InodesPerGroup { found, per_block, limit });
        let first = self.first_data_block;
        let expected = u32::from(self.block_size == 1024 && self.cluster_ratio == 1);
        check!(first == expected, at, CorruptKind::FirstDataBlock { found: first, expected });
        let blocks = self.blocks_count;
        check!(blocks > u64::from(first), at, CorruptKind::BlocksCount { blocks, first });
        let groups = (blocks - u64::from(first)).div_ceil(u64::from(per_group));
        let ok = groups < u64::from(u32::MAX) && blocks < 1 << 48;
        check!(ok, at, CorruptKind::GroupsCount { blocks });
        self.groups_count = groups as u32;
        let inodes = u64::from(self.inodes_per_group) * groups;
        let (found, per_group) = (self.inodes_count, self.inodes_per_group);
        let kind = CorruptKind::InodesCount { found, groups: groups as u32, per_group };
        check!(u64::from(found) == inodes, at, kind);
        self.itable_blocks = per_group.div_ceil(self.inodes_per_block);
        self.desc_blocks = self.groups_count.div_ceil(self.descs_per_block);
        let (free, total) = (raw.free_blocks(), blocks);
        check!(free <= total, at, CorruptKind::FreeBlocks { blocks: free, total });
        let reserved = raw.reserved_blocks();
        check!(reserved <= blocks, at, CorruptKind::ReservedBlocks { found: reserved, total });
        let free = raw.s_free_inodes_count.get();
        check!(free <= found, at, CorruptKind::FreeInodes { inodes: free, total: found });
        Ok(())
    }

    /// Third phase of `parse`: what lies in a group must fit into it.
    fn check_places(&self, raw: &RawSuper, at: At) -> Result<(), Corrupt> {
        let found = self.first_ino;
        let inodes = self.inodes_count;
        check!((11..=inodes).contains(&found), at, CorruptKind::FirstInode { found, inodes });
        let limit = self.block_size / 4;
        let reserved = self.reserved_gdt_blocks;
        check!(reserved <= limit, at, CorruptKind::ReservedGdtBlocks { reserved, limit });
        if self.features.incompat.contains(Incompat::META_BG) {
            let (found, limit) = (self.first_meta_bg, u64::from(self.desc_blocks));
            let ok = u64::from(found) <= limit;
            check!(ok, at, CorruptKind::FirstMetaBg { found, limit });
        }
        if self.inode_size > 128 {
            let limit = self.inode_size - 128;
            for extra in [raw.s_min_extra_isize.get(), raw.s_want_extra_isize.get()] {
                let found = u32::from(extra);
                let ok = found <= limit && found % 4 == 0;
                check!(ok, at, CorruptKind::WantExtraIsize { found, limit });
            }
        }
        Ok(())
    }

    /// True with `meta_bg`, for the descriptor block of this index.
    pub fn in_meta_bg(&self, desc_block: u32) -> bool {
        self.features.incompat.contains(Incompat::META_BG) && desc_block >= self.first_meta_bg
    }

    /// The blocks with copies of a block of descriptors: behind the copies of the superblock, but
    /// not in groups whose own descriptors lie in their groups (`meta_bg`); those have two copies.
    pub fn desc_copies(&self, desc_block: u32) -> Vec<u64> {
        let (first, count) = (desc_block * self.descs_per_block, self.groups_count);
        if self.in_meta_bg(desc_block) {
            let copies = [first + 1, first + self.descs_per_block - 1];
            let place = |group| self.group_first_block(group) + u64::from(self.has_super(group));
            return copies.into_iter().filter(|&group| group < count).map(place).collect();
        }
        let holds =
            |group: u32| self.has_super(group) && !self.in_meta_bg(group / self.descs_per_block);
        let place = |group| self.group_first_block(group) + 1 + u64::from(desc_block);
        (1..count).filter(|&group| holds(group)).map(place).collect()
    }

    /// How many blocks of descriptors lie behind the superblock of the group, or its copy: all of
    /// them, but those of groups that have their descriptors in their groups (`meta_bg`).
    pub fn descs_behind_super(&self, group: u32) -> u32 {
        if !self.has_super(group) || self.in_meta_bg(group / self.descs_per_block) {
            return 0;
        }
        match self.features.incompat.contains(Incompat::META_BG) {
            true => self.first_meta_bg.min(self.desc_blocks),
            false => self.desc_blocks,
        }
    }

    /// First block of the group. `group` is below `groups_count`.
    pub fn group_first_block(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Number of blocks in the group; the last one may have fewer.
    pub fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self.blocks_count - self.group_first_block(group);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// log2 of the blocks of a cluster.
    pub fn cluster_bits(&self) -> u32 {
        self.cluster_ratio.trailing_zeros()
    }

    /// Units of 512 bytes in a cluster: what taking one adds to `i_blocks`.
    pub fn cluster_sectors(&self) -> u64 {
        u64::from(self.block_size / 512) << self.cluster_bits()
    }

    /// True with `bigalloc`: clusters have more than one block.
    pub fn has_clusters(&self) -> bool {
        self.cluster_ratio > 1
    }

    /// Number of clusters in the group: valid bits of its block bitmap.
    pub fn clusters_in_group(&self, group: u32) -> u32 {
        self.blocks_in_group(group).div_ceil(self.cluster_ratio)
    }

    /// The block's group and its number in there. None where the block is before the first data
    /// block or beyond the end.
    pub fn group_of_block(&self, block: u64) -> Option<(u32, u32)> {
        let at = block.checked_sub(u64::from(self.first_data_block))?;
        let per_group = u64::from(self.blocks_per_group);
        (block < self.blocks_count).then(|| ((at / per_group) as u32, (at % per_group) as u32))
    }

    /// True where all of `start..start + len` may hold a file's data by its number alone.
    pub fn data_blocks_valid(&self, start: u64, len: u64) -> bool {
        start > u64::from(self.first_data_block)
            && start.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }

    /// Where bitmaps and table of a group may lie: in the group, with `flex_bg` anywhere.
    pub fn metadata_bounds(&self, group: u32) -> (u64, u64) {
        if self.features.incompat.contains(Incompat::FLEX_BG) {
            (u64::from(self.first_data_block), self.blocks_count)
        } else {
            let first = self.group_first_block(group);
            (first, first + u64::from(self.blocks_in_group(group)))
        }
    }

    /// True where the group begins with a superblock (the primary one or a backup).
    pub fn has_super(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_bgs.contains(&group);
        }
        if !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) || group == 1 {
            return true;
        }
        group % 2 == 1 && [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// Number of blocks at the start of the group for superblock, descriptors and their reserve.
    pub fn base_meta_blocks(&self, group: u32) -> u32 {
        // With blocks of 1 KiB and clusters, block 0 lies in group 0, before the superblock.
        let boot = u32::from(group == 0 && self.block_size == 1024 && self.first_data_block == 0);
        let own = u32::from(self.has_super(group));
        let meta_group = group / self.descs_per_block;
        if self.in_meta_bg(meta_group) {
            let place = group % self.descs_per_block;
            return boot + own + u32::from(place <= 1 || place == self.descs_per_block - 1);
        }
        let descs = if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_bg
        } else {
            self.desc_blocks + self.reserved_gdt_blocks
        };
        boot + own * (1 + descs)
    }

    /// What is wrong with the reserve of descriptors: it is not that of `resize_inode`, or
    /// `meta_bg` keeps further descriptors in their groups.
    pub fn reserve_fault(&self) -> Option<&'static str> {
        let reserve = self.features.compat.contains(Compat::RESIZE_INODE);
        if reserve && self.features.incompat.contains(Incompat::META_BG) {
            return Some("resize_inode and meta_bg exclude each other");
        }
        let lost = !reserve && self.reserved_gdt_blocks != 0;
        lost.then_some("descriptors have a reserve without resize_inode")
    }

    /// Block and byte offset in it of the group's (primary) descriptor.
    pub fn desc_place(&self, group: u32) -> (FsBlock, usize) {
        let index = group / self.descs_per_block;
        let offset = (group % self.descs_per_block) * self.desc_size;
        let block = if self.in_meta_bg(index) {
            let first = index * self.descs_per_block;
            self.group_first_block(first) + u64::from(self.has_super(first))
        } else {
            u64::from(self.block_size == 1024) + 1 + u64::from(index)
        };
        (FsBlock(block), offset as usize)
    }

    /// Bytes beyond 128 that the fields of a new inode take.
    pub(crate) fn new_extra_isize(&self) -> u16 {
        let room = (self.inode_size - 128) as u16;
        self.want_extra_isize.max(crate::format::inode::EXTRA_SIZE).min(room)
    }

    /// The group in which an inode with a valid number lies.
    pub(crate) fn group_of_inode(&self, ino: Ino) -> u32 {
        ((ino.0 - 1) / u64::from(self.inodes_per_group)) as u32
    }

    /// Group of the inode and its index in the group's table.
    ///
    /// # Errors
    /// Inode number 0 or beyond the last inode.
    pub fn inode_group(&self, ino: Ino) -> Result<(u32, u32), Corrupt> {
        if ino.0 == 0 || ino.0 > u64::from(self.inodes_count) {
            let inodes = self.inodes_count;
            return Err(CorruptKind::InodeNumber { inodes }.at(At::Inode(ino)));
        }
        let index = ino.0 as u32 - 1;
        Ok((index / self.inodes_per_group, index % self.inodes_per_group))
    }

    /// Block of the table (from 0) and byte offset in it of the inode with this index in its group.
    pub fn inode_offset(&self, index: u32) -> (u64, usize) {
        let block = u64::from(index / self.inodes_per_block);
        (block, ((index % self.inodes_per_block) * self.inode_size) as usize)
    }

    /// The last logical block (exclusive) that a file mapped by indirect blocks can have.
    pub fn indirect_limit(&self) -> u64 {
        let per = u64::from(self.block_size / 4);
        12 + per + per * per + per * per * per
    }

    /// The checksum that a group descriptor holds for this block bitmap.
    pub fn block_bitmap_csum(&self, map: &[u8]) -> u32 {
        self.stored_half(self.checksums.bitmap(map, self.clusters_per_group))
    }

    /// The checksum that a group descriptor holds for this inode bitmap.
    pub fn inode_bitmap_csum(&self, map: &[u8]) -> u32 {
        self.stored_half(self.checksums.bitmap(map, self.inodes_per_group))
    }

    fn stored_half(&self, csum: u32) -> u32 {
        if self.desc_size >= 64 { csum } else { csum & 0xffff }
    }

    /// Fills the block bitmap of a group flagged `BLOCK_UNINIT`: its own superblock, descriptors,
    /// bitmaps and table where they lie in it, and the bits beyond its end.
    pub fn init_block_bitmap(&self, group: u32, desc: &super::super::GroupDesc, map: &mut [u8]) {
        map.fill(0);
        let first = self.group_first_block(group);
        let blocks = u64::from(self.blocks_in_group(group));
        let mut mark = |start: u64, len: u64| {
            let (from, to) = (start.max(first), (start + len).min(first + blocks));
            let ratio = u64::from(self.cluster_ratio);
            if from < to {
                let (from, to) = ((from - first) / ratio, (to - first).div_ceil(ratio));
                base::bitmap::set_range(map, from as usize, to as usize);
            }
        };
        mark(first, u64::from(self.base_meta_blocks(group)));
        mark(desc.block_bitmap, 1);
        mark(desc.inode_bitmap, 1);
        mark(desc.inode_table, u64::from(self.itable_blocks));
        let valid = self.clusters_in_group(group) as usize;
        base::bitmap::set_range(map, valid, self.block_size as usize * 8);
    }

    /// Fills the inode bitmap of a group flagged `INODE_UNINIT`: only the bits beyond its end.
    pub fn init_inode_bitmap(&self, map: &mut [u8]) {
        map.fill(0);
        let end = self.block_size as usize * 8;
        base::bitmap::set_range(map, self.inodes_per_group as usize, end);
    }
}

/// How names are encoded.
fn encoding(raw: &RawSuper, features: &Features, at: At) -> Result<Option<Encoding>, Corrupt> {
    if !features.incompat.contains(Incompat::CASEFOLD) {
        return Ok(None);
    }
    let found = raw.s_encoding.get();
    check!(found == Encoding::UTF8_12_1, at, CorruptKind::Encoding { found });
    let strict = raw.s_encoding_flags.get() & Encoding::STRICT != 0;
    Ok(Some(Encoding { strict }))
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}
