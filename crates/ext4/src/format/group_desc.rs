//! Group descriptors, of 32 bytes or, with `64bit`, of `s_desc_size` bytes.
//!
//! Source: kernel `Documentation/filesystems/ext4/group_descr.rst`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{At, Corrupt, CorruptKind, Geometry, U16, U32, assert_layout, join, join16};

/// A group descriptor as it lies on the disk; the second half exists with `64bit` only.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

assert_layout!(RawGroupDesc, 64,
    bg_inode_table_lo @ 0x8, bg_flags @ 0x12, bg_block_bitmap_csum_lo @ 0x18,
    bg_itable_unused_lo @ 0x1c, bg_checksum @ 0x1e, bg_block_bitmap_hi @ 0x20,
    bg_free_blocks_count_hi @ 0x2c, bg_itable_unused_hi @ 0x32, bg_block_bitmap_csum_hi @ 0x38,
);

bitflags::bitflags! {
    /// State of a group, used with group checksums only.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct GroupFlags: u16 {
        /// No inode is in use; bitmap and table need not be read.
        const INODE_UNINIT = 1;
        /// Only the group's own metadata is in use; the bitmap need not be read.
        const BLOCK_UNINIT = 2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// A group descriptor's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// Free clusters (blocks without bigalloc).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// State.
    pub flags: GroupFlags,
    /// CRC-32C of the block bitmap, the low half only in a descriptor of 32 bytes.
    pub block_bitmap_csum: u32,
    /// CRC-32C of the inode bitmap, the low half only in a descriptor of 32 bytes.
    pub inode_bitmap_csum: u32,
}

/// The descriptor's bytes widened to 64, zero where it is shorter.
fn widen(bytes: &[u8]) -> RawGroupDesc {
    let mut wide = [0u8; 64];
    let len = bytes.len().min(64);
    wide[..len].copy_from_slice(&bytes[..len]);
    RawGroupDesc::read_from_bytes(&wide).expect("64 bytes")
}

impl GroupDesc {
    /// The values of a descriptor without any check; `bytes` are its `s_desc_size` bytes.
    pub fn read(bytes: &[u8]) -> GroupDesc {
        let raw = widen(if bytes.len() < 64 { &bytes[..32] } else { bytes });
        GroupDesc {
            block_bitmap: join(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi),
            inode_bitmap: join(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi),
            inode_table: join(raw.bg_inode_table_lo, raw.bg_inode_table_hi),
            free_blocks: join16(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: join16(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: join16(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            itable_unused: join16(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            flags: GroupFlags::from_bits_retain(raw.bg_flags.get()),
            block_bitmap_csum: join16(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: join16(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
        }
    }

    /// Does it say that something of the group was never written? Only descriptors with checksums
    /// may.
    pub fn says_unused(&self) -> bool {
        let unwritten = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        self.itable_unused != 0 || self.flags.intersects(unwritten)
    }

    /// Reads and checks the descriptor of `group`: checksum, places, counts.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(bytes: &[u8], group: u32, geometry: &Geometry) -> Result<GroupDesc, Corrupt> {
        let at = At::Group(group);
        let expected = geometry.checksums.group_desc(group, bytes);
        let found = stored_checksum(bytes);
        if geometry.features.group_csum() && found != expected {
            return Err(CorruptKind::GroupChecksum { found, expected }.at(at));
        }
        let desc = GroupDesc::read(bytes);
        desc.check_places(group, geometry)?;
        let limit = geometry.clusters_in_group(group);
        if desc.free_blocks > limit {
            let found = desc.free_blocks;
            return Err(CorruptKind::GroupFreeBlocks { found, limit }.at(at));
        }
        let limit = geometry.inodes_per_group;
        if desc.free_inodes > limit {
            let found = desc.free_inodes;
            return Err(CorruptKind::GroupFreeInodes { found, limit }.at(at));
        }
        if desc.used_dirs > limit {
            return Err(CorruptKind::GroupDirs { found: desc.used_dirs, limit }.at(at));
        }
        if geometry.features.group_csum() && desc.itable_unused > limit {
            let found = desc.itable_unused;
            return Err(CorruptKind::GroupUnusedInodes { found, limit }.at(at));
        }
        Ok(desc)
    }

    /// Checks that bitmaps and table lie in the file system, and in the group without `flex_bg`.
    ///
    /// # Errors
    /// The first place that is wrong.
    pub fn check_places(&self, group: u32, geometry: &Geometry) -> Result<(), Corrupt> {
        let at = At::Group(group);
        let (first, end) = geometry.metadata_bounds(group);
        let block = self.block_bitmap;
        if !(first..end).contains(&block) {
            return Err(CorruptKind::BlockBitmapPlace { block, first, end }.at(at));
        }
        let block = self.inode_bitmap;
        if !(first..end).contains(&block) {
            return Err(CorruptKind::InodeBitmapPlace { block, first, end }.at(at));
        }
        let block = self.inode_table;
        let blocks = u64::from(geometry.itable_blocks);
        if block < first || block.checked_add(blocks).is_none_or(|last| last > end) {
            return Err(CorruptKind::InodeTablePlace { block, first, end }.at(at));
        }
        Ok(())
    }

    /// Writes the values into the descriptor's bytes and sets its checksum. Fields that are not
    /// values here keep what they hold.
    pub fn emit(&self, bytes: &mut [u8], group: u32, geometry: &Geometry) {
        let wide = bytes.len() >= 64;
        let mut raw = widen(bytes);
        let lo16 = |value: u32| U16::new(value as u16);
        let hi16 = |value: u32| U16::new((value >> 16) as u16);
        let lo32 = |value: u64| U32::new(value as u32);
        let hi32 = |value: u64| U32::new((value >> 32) as u32);
        raw.bg_block_bitmap_lo = lo32(self.block_bitmap);
        raw.bg_inode_bitmap_lo = lo32(self.inode_bitmap);
        raw.bg_inode_table_lo = lo32(self.inode_table);
        raw.bg_free_blocks_count_lo = lo16(self.free_blocks);
        raw.bg_free_inodes_count_lo = lo16(self.free_inodes);
        raw.bg_used_dirs_count_lo = lo16(self.used_dirs);
        raw.bg_itable_unused_lo = lo16(self.itable_unused);
        raw.bg_flags = U16::new(self.flags.bits());
        raw.bg_block_bitmap_csum_lo = lo16(self.block_bitmap_csum);
        raw.bg_inode_bitmap_csum_lo = lo16(self.inode_bitmap_csum);
        if wide {
            raw.bg_block_bitmap_hi = hi32(self.block_bitmap);
            raw.bg_inode_bitmap_hi = hi32(self.inode_bitmap);
            raw.bg_inode_table_hi = hi32(self.inode_table);
            raw.bg_free_blocks_count_hi = hi16(self.free_blocks);
            raw.bg_free_inodes_count_hi = hi16(self.free_inodes);
            raw.bg_used_dirs_count_hi = hi16(self.used_dirs);
            raw.bg_itable_unused_hi = hi16(self.itable_unused);
            raw.bg_block_bitmap_csum_hi = hi16(self.block_bitmap_csum);
            raw.bg_inode_bitmap_csum_hi = hi16(self.inode_bitmap_csum);
        }
        let len = bytes.len().min(64);
        bytes[..len].copy_from_slice(&raw.as_bytes()[..len]);
        let checksum = geometry.checksums.group_desc(group, bytes);
        bytes[0x1e..0x20].copy_from_slice(&checksum.to_le_bytes());
    }

    /// True where `bitmap`'s checksum is the one that the descriptor holds for the block bitmap.
    ///
    /// # Errors
    /// [`CorruptKind::BlockBitmapChecksum`] with `metadata_csum`.
    pub fn check_block_bitmap(&self, map: &[u8], group: u32, g: &Geometry) -> Result<(), Corrupt> {
        let (found, expected) = (self.block_bitmap_csum, g.block_bitmap_csum(map));
        if g.checksums.metadata && found != expected {
            return Err(CorruptKind::BlockBitmapChecksum { found, expected }.at(At::Group(group)));
        }
        Ok(())
    }

    /// True where `bitmap`'s checksum is the one that the descriptor holds for the inode bitmap.
    ///
    /// # Errors
    /// [`CorruptKind::InodeBitmapChecksum`] with `metadata_csum`.
    pub fn check_inode_bitmap(&self, map: &[u8], group: u32, g: &Geometry) -> Result<(), Corrupt> {
        let (found, expected) = (self.inode_bitmap_csum, g.inode_bitmap_csum(map));
        if g.checksums.metadata && found != expected {
            return Err(CorruptKind::InodeBitmapChecksum { found, expected }.at(At::Group(group)));
        }
        Ok(())
    }
}

/// The checksum that a descriptor holds.
pub fn stored_checksum(bytes: &[u8]) -> u16 {
    super::checksum::u16_at(bytes, 0x1e)
}
