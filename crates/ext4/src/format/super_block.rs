//! The superblock, and the geometry that it describes.
//!
//! Source: kernel `Documentation/filesystems/ext4/super.rst`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{Compat, Incompat, RoCompat};
use super::{U16, U32, U64, assert_layout};
use base::crc::crc32c_word;

mod errors;
mod geometry;

pub use errors::{NotedError, error_code};
pub use geometry::{Geometry, HashVersion};

/// `s_creator_os` of the GNU Hurd.
pub const CREATOR_HURD: u32 = 1;
/// Where the primary superblock begins, in bytes.
pub const SUPER_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPER_SIZE: usize = 1024;
/// Where the words of features end.
const FEATURES_END: usize = 0x68;
/// Bytes from which on a regular file needs `large_file`.
pub const LARGE_FILE: u64 = 1 << 31;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// The inode whose blocks are bad ones.
pub const BAD_BLOCKS_INO: u32 = 1;
/// The inodes that are kept for quota of users and of groups.
pub const QUOTA_INOS: [u32; 2] = [3, 4];
/// The root directory's inode.
pub const ROOT_INO: u32 = 2;
/// The boot loader's inode.
pub const BOOT_LOADER_INO: u32 = 5;
/// An inode that nothing uses today.
pub const UNDELETE_INO: u32 = 6;
/// The inode that reserves descriptor blocks.
pub const RESIZE_INO: u32 = 7;
/// The journal's inode, as mke2fs makes it.
pub const JOURNAL_INO: u32 = 8;
/// The first of the reserved inodes that nothing uses.
pub const FIRST_SPARE_INO: u32 = 9;
/// First inode that is not reserved, in revision 0 and as mke2fs makes it.
pub const FIRST_INO: u32 = 11;
/// `s_state`: unmounted cleanly.
pub const STATE_CLEAN: u16 = 1;
/// `s_state`: errors were seen.
pub const STATE_ERROR: u16 = 2;
/// `s_flags`: directory hashes take bytes of names as signed.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes take bytes of names as unsigned.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// The superblock as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawSuper {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 94],
    pub s_checksum: U32,
}

assert_layout!(RawSuper, SUPER_SIZE,
    s_blocks_per_group @ 0x20, s_magic @ 0x38, s_rev_level @ 0x4c, s_inode_size @ 0x58,
    s_feature_compat @ 0x5c, s_uuid @ 0x68, s_volume_name @ 0x78, s_last_mounted @ 0x88,
    s_reserved_gdt_blocks @ 0xce, s_journal_inum @ 0xe0, s_hash_seed @ 0xec, s_desc_size @ 0xfe,
    s_jnl_blocks @ 0x10c, s_blocks_count_hi @ 0x150, s_flags @ 0x160, s_mmp_block @ 0x168,
    s_log_groups_per_flex @ 0x174, s_checksum_type @ 0x175, s_kbytes_written @ 0x178,
    s_error_count @ 0x194, s_first_error_func @ 0x1a8, s_mount_opts @ 0x200,
    s_overhead_clusters @ 0x248, s_backup_bgs @ 0x24c, s_checksum_seed @ 0x270,
    s_encoding @ 0x27c, s_orphan_file_inum @ 0x280, s_checksum @ 0x3fc,
);

impl RawSuper {
    /// The structure at the start of `bytes`, as a view. None where they are too short.
    pub fn view(bytes: &[u8]) -> Option<&RawSuper> {
        RawSuper::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)
    }

    /// The structure at the start of `bytes`, as a view that can be changed.
    pub fn view_mut(bytes: &mut [u8]) -> Option<&mut RawSuper> {
        RawSuper::mut_from_prefix(bytes).ok().map(|(raw, _)| raw)
    }

    /// A copy of the structure at the start of `bytes`. None where they are too short.
    pub fn read(bytes: &[u8]) -> Option<RawSuper> {
        RawSuper::view(bytes).copied()
    }

    /// A superblock of zeroes.
    pub fn zeroed() -> RawSuper {
        RawSuper::read_from_bytes(&[0; SUPER_SIZE]).expect("the size is asserted")
    }

    /// The feature words.
    pub fn features(&self) -> super::Features {
        super::Features::from_bits(
            self.s_feature_compat.get(),
            self.s_feature_incompat.get(),
            self.s_feature_ro_compat.get(),
        )
    }

    /// Stores the feature words.
    pub fn set_features(&mut self, features: &super::Features) {
        self.s_feature_compat.set(features.compat.bits());
        self.s_feature_incompat.set(features.incompat.bits());
        self.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    /// The names of fields that are not zero, although the feature that uses them is not there, or
    /// the journal lies in the file system itself. e2fsck calls them damage.
    pub fn idle_fields(&self) -> Vec<&'static str> {
        let features = self.features();
        let journal = features.compat.contains(Compat::HAS_JOURNAL);
        let quota = features.ro_compat.contains(RoCompat::QUOTA);
        let external = journal && self.s_journal_inum.get() == 0;
        let fields = [
            ("s_journal_inum", !journal && self.s_journal_inum.get() != 0),
            ("s_journal_uuid", !external && self.s_journal_uuid != [0; 16]),
            ("s_usr_quota_inum", !quota && self.s_usr_quota_inum.get() != 0),
            ("s_grp_quota_inum", !quota && self.s_grp_quota_inum.get() != 0),
            ("s_prj_quota_inum", !quota && self.s_prj_quota_inum.get() != 0),
            ("s_desc_size", self.idle_desc_size()),
        ];
        fields.into_iter().filter(|(_, idle)| *idle).map(|(name, _)| name).collect()
    }

    /// The features with `metadata_csum`, where that bit is lost and others may be: the checksum
    /// fits exactly one word of them. It must have all that are there, and known ones alone.
    pub fn lost_features(&self) -> Option<super::Features> {
        const BEHIND: usize = SUPER_SIZE - 4 - FEATURES_END;
        let mut features = self.features();
        if features.metadata_csum() || self.s_checksum_type != 1 {
            return None;
        }
        let gap = self.s_checksum.get() ^ super::checksum::super_block(self.as_bytes());
        let word = features.ro_compat.bits() ^ crc32c_word(gap, BEHIND);
        let all = RoCompat::from_bits(word)?;
        let lost = all.contains(features.ro_compat | RoCompat::METADATA_CSUM);
        features.ro_compat = all;
        lost.then_some(features)
    }

    /// Only with `64bit` descriptors have another size; e2fsck takes any that could be one.
    fn idle_desc_size(&self) -> bool {
        let size = self.s_desc_size.get();
        let possible = size == 0 || size.is_power_of_two() && size <= 1024;
        !possible && !self.features().incompat.contains(Incompat::SIXTY_FOUR_BIT)
    }

    /// Sets these fields to zero, and the number of an orphan file that is not there.
    pub fn clear_idle_fields(&mut self) {
        let features = self.features();
        if !features.compat.contains(Compat::HAS_JOURNAL) {
            self.s_journal_inum.set(0);
            self.s_journal_uuid = [0; 16];
        } else if self.s_journal_inum.get() != 0 {
            self.s_journal_uuid = [0; 16];
        }
        if !features.ro_compat.contains(RoCompat::QUOTA) {
            self.s_usr_quota_inum.set(0);
            self.s_grp_quota_inum.set(0);
            self.s_prj_quota_inum.set(0);
        }
        if !features.compat.contains(Compat::ORPHAN_FILE) {
            self.s_orphan_file_inum.set(0);
        }
        if self.idle_desc_size() {
            self.s_desc_size.set(0);
        }
    }

    /// Number of blocks; the high half counts with `64bit` only.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.s_blocks_count_lo, self.s_blocks_count_hi)
    }

    /// Number of blocks for the reserved user.
    pub fn reserved_blocks(&self) -> u64 {
        self.wide(self.s_r_blocks_count_lo, self.s_r_blocks_count_hi)
    }

    /// Number of free blocks (blocks with bigalloc as well).
    pub fn free_blocks(&self) -> u64 {
        self.wide(self.s_free_blocks_count_lo, self.s_free_blocks_count_hi)
    }

    /// Stores the number of free blocks.
    pub fn set_free_blocks(&mut self, count: u64) {
        self.s_free_blocks_count_lo.set(count as u32);
        self.s_free_blocks_count_hi.set((count >> 32) as u32);
    }

    /// Sets the blocks of the file system.
    pub fn set_blocks_count(&mut self, count: u64) {
        self.s_blocks_count_lo.set(count as u32);
        self.s_blocks_count_hi.set((count >> 32) as u32);
    }

    /// The label, up to its first zero byte.
    pub fn label(&self) -> &[u8] {
        trim(&self.s_volume_name)
    }

    /// The directory it was last mounted on, up to its first zero byte.
    pub fn last_mounted(&self) -> &[u8] {
        trim(&self.s_last_mounted)
    }

    /// Computes the checksum and stores it, where `metadata_csum` is set.
    pub fn set_checksum(&mut self) {
        if self.features().metadata_csum() {
            let checksum = super::checksum::super_block(self.as_bytes());
            self.s_checksum.set(checksum);
        }
    }

    fn wide(&self, lo: U32, hi: U32) -> u64 {
        let bit = super::features::Incompat::SIXTY_FOUR_BIT.bits();
        let hi = if self.s_feature_incompat.get() & bit != 0 { hi.get() } else { 0 };
        u64::from(lo.get()) | u64::from(hi) << 32
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// A time of the superblock: 32 bits and 8 more.
pub fn wide_time(lo: U32, hi: u8) -> i64 {
    i64::from(lo.get()) | i64::from(hi) << 32
}
