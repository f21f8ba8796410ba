//! Inodes: the 128 bytes of ext2, and the extra fields behind them.
//!
//! Source: kernel `Documentation/filesystems/ext4/inodes.rst`.

use base::{Ino, Timespec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::stored_inode;
use super::features::{Incompat, RoCompat};
use super::{At, Corrupt, CorruptKind, Geometry, U16, U32, assert_layout};

mod reserved;

/// Bytes of an inode before its extra fields.
pub const BASE_SIZE: usize = 128;
/// Bytes of the extra fields that are known today; what is behind them holds attributes.
pub const EXTRA_SIZE: u16 = 32;
/// Bytes of `i_block`: block pointers, extents, or a short symbolic link.
pub const BLOCK_AREA: usize = 60;

/// The first 128 bytes of an inode as they lie on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub l_i_version: U32,
    pub i_block: [u8; BLOCK_AREA],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub l_i_blocks_high: U16,
    pub l_i_file_acl_high: U16,
    pub l_i_uid_high: U16,
    pub l_i_gid_high: U16,
    pub l_i_checksum_lo: U16,
    pub l_i_reserved: U16,
}

assert_layout!(RawInode, BASE_SIZE,
    i_size_lo @ 0x4, i_dtime @ 0x14, i_links_count @ 0x1a, i_flags @ 0x20, i_block @ 0x28,
    i_generation @ 0x64, i_size_high @ 0x6c, l_i_blocks_high @ 0x74, l_i_checksum_lo @ 0x7c,
);

/// The extra fields, of which an inode has as many as `i_extra_isize` says.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

assert_layout!(RawInodeExtra, EXTRA_SIZE as usize,
    i_checksum_hi @ 0x2, i_ctime_extra @ 0x4, i_crtime @ 0x10, i_version_hi @ 0x18, i_projid @ 0x1c,
);

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented anywhere).
        const SECRM = 0x1;
        /// Undelete (not implemented anywhere).
        const UNRM = 0x2;
        /// Compressed (not implemented anywhere).
        const COMPR = 0x4;
        /// All writes are synchronous.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Not for dump(8).
        const NODUMP = 0x40;
        /// No access times.
        const NOATIME = 0x80;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory that is a hash tree.
        const INDEX = 0x1000;
        /// AFS directory.
        const IMAGIC = 0x2000;
        /// Data go through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tails may not be merged.
        const NOTAIL = 0x8000;
        /// All directory changes are synchronous.
        const DIRSYNC = 0x10000;
        /// The top of a directory hierarchy.
        const TOPDIR = 0x20000;
        /// `i_blocks` counts file system blocks.
        const HUGE_FILE = 0x40000;
        /// Mapped by extents.
        const EXTENTS = 0x80000;
        /// Carries a Merkle tree.
        const VERITY = 0x100000;
        /// Holds an attribute's value.
        const EA_INODE = 0x200000;
        /// Blocks beyond the end of the file (obsolete).
        const EOFBLOCKS = 0x400000;
        /// Direct access.
        const DAX = 0x2000000;
        /// Content lies in the inode.
        const INLINE_DATA = 0x10000000;
        /// New entries inherit the project.
        const PROJINHERIT = 0x20000000;
        /// A directory that ignores case.
        const CASEFOLD = 0x40000000;
        const _ = !0;
    }
}

/// The kind of file that a mode says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

impl FileKind {
    /// The kind that the upper four bits of a mode say. None where they say nothing.
    pub fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode >> 12 {
            0x1 => FileKind::Fifo,
            0x2 => FileKind::CharDevice,
            0x4 => FileKind::Directory,
            0x6 => FileKind::BlockDevice,
            0x8 => FileKind::Regular,
            0xa => FileKind::Symlink,
            0xc => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind's bits in a mode.
    pub fn mode_bits(self) -> u16 {
        match self {
            FileKind::Fifo => 0x1000,
            FileKind::CharDevice => 0x2000,
            FileKind::Directory => 0x4000,
            FileKind::BlockDevice => 0x6000,
            FileKind::Regular => 0x8000,
            FileKind::Symlink => 0xa000,
            FileKind::Socket => 0xc000,
        }
    }

    /// The number that directory entries carry with `filetype`.
    pub fn dir_type(self) -> u8 {
        match self {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
            FileKind::CharDevice => 3,
            FileKind::BlockDevice => 4,
            FileKind::Fifo => 5,
            FileKind::Socket => 6,
            FileKind::Symlink => 7,
        }
    }

    /// The kind of a directory entry's number. None for 0 (unknown) and for numbers above 7.
    pub fn from_dir_type(number: u8) -> Option<FileKind> {
        Some(match number {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::CharDevice,
            4 => FileKind::BlockDevice,
            5 => FileKind::Fifo,
            6 => FileKind::Socket,
            7 => FileKind::Symlink,
            _ => return None,
        })
    }
}

/// An inode's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeValues {
    /// File type and permissions, as `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Number of names; 1 for a directory with too many subdirectories to count (`dir_nlink`).
    pub links: u16,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Flags. `HUGE_FILE` is set and cleared by `emit` as the count needs it.
    pub flags: InodeFlags,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Creation; None where the inode has no room for it.
    pub crtime: Option<Timespec>,
    /// Time of deletion, or the next inode of the orphan list.
    pub dtime: u32,
    /// Counter of changes.
    pub version: u64,
    /// Generation, for NFS and for checksums.
    pub generation: u32,
    /// Block of the attributes, 0 where there is none.
    pub file_acl: u64,
    /// Bytes in use beyond 128; attributes begin behind them.
    pub extra_isize: u16,
    /// Project.
    pub projid: u32,
    /// Block pointers, extent root, short symbolic link, or device number.
    pub block: [u8; BLOCK_AREA],
}

impl Default for InodeValues {
    fn default() -> InodeValues {
        InodeValues {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            links: 0,
            blocks: 0,
            flags: InodeFlags::default(),
            atime: Timespec::default(),
            ctime: Timespec::default(),
            mtime: Timespec::default(),
            crtime: None,
            dtime: 0,
            version: 0,
            generation: 0,
            file_acl: 0,
            extra_isize: 0,
            projid: 0,
            block: [0; BLOCK_AREA],
        }
    }
}

fn time(seconds: U32, extra: Option<U32>) -> Timespec {
    let low = i64::from(seconds.get() as i32);
    match extra.map(U32::get) {
        None => Timespec { sec: low, nsec: 0 },
        Some(extra) => {
            // A crash or a bad writer may leave nanoseconds that make no sense.
            let nsec = (extra >> 2).min(999_999_999);
            Timespec { sec: low + (i64::from(extra & 3) << 32), nsec }
        }
    }
}

/// Seconds and extra word of a time. Times that do not fit are clamped to the nearest that does:
/// 1901..2446 with the extra word, 1901..2038 without.
fn time_words(time: Timespec, wide: bool) -> (U32, U32) {
    let max = i64::from(i32::MAX) + if wide { 3 << 32 } else { 0 };
    let sec = time.sec.clamp(i64::from(i32::MIN), max);
    let epoch = ((sec - i64::from(sec as i32)) >> 32) as u32 & 3;
    (U32::new(sec as u32), U32::new(time.nsec << 2 | epoch))
}

impl InodeValues {
    /// The file type of the mode. None for an unused or a broken inode.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// The values of an inode's slot (`inode_size` bytes) without any check but those that reading
    /// needs.
    pub fn read(slot: &[u8], geometry: &Geometry) -> InodeValues {
        let (raw, rest) = RawInode::ref_from_prefix(slot).expect("a slot has at least 128 bytes");
        let extra = read_extra(rest);
        let has = |end: u16| extra.i_extra_isize.get() >= end;
        let word = |end: u16, value: U32| has(end).then_some(value);
        let ro = geometry.features.ro_compat;
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let mut blocks = u64::from(raw.i_blocks_lo.get());
        if ro.contains(RoCompat::HUGE_FILE) {
            blocks |= u64::from(raw.l_i_blocks_high.get()) << 32;
            if flags.contains(InodeFlags::HUGE_FILE) {
                blocks *= u64::from(geometry.block_size / 512);
            }
        }
        let mode = raw.i_mode.get();
        let kind = FileKind::from_mode(mode);
        let wide_size = kind == Some(FileKind::Regular)
            || geometry.features.incompat.contains(Incompat::LARGEDIR);
        let size_high = if wide_size { raw.i_size_high.get() } else { 0 };
        let acl_high = u64::from(raw.l_i_file_acl_high.get()) << 32;
        let wide_acl = geometry.features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        InodeValues {
            mode,
            uid: super::join16(raw.i_uid, raw.l_i_uid_high),
            gid: super::join16(raw.i_gid, raw.l_i_gid_high),
            size: super::join(raw.i_size_lo, U32::new(size_high)),
            links: raw.i_links_count.get(),
            blocks,
            flags,
            atime: time(raw.i_atime, word(16, extra.i_atime_extra)),
            ctime: time(raw.i_ctime, word(8, extra.i_ctime_extra)),
            mtime: time(raw.i_mtime, word(12, extra.i_mtime_extra)),
            crtime: has(20).then(|| time(extra.i_crtime, word(24, extra.i_crtime_extra))),
            dtime: raw.i_dtime.get(),
            version: super::join(
                raw.l_i_version,
                if has(28) { extra.i_version_hi } else { U32::new(0) },
            ),
            generation: raw.i_generation.get(),
            file_acl: u64::from(raw.i_file_acl_lo.get()) | if wide_acl { acl_high } else { 0 },
            extra_isize: extra.i_extra_isize.get(),
            projid: if has(32) { extra.i_projid.get() } else { 0 },
            block: raw.i_block,
        }
    }

    /// Reads and checks inode `ino` from its slot: checksum, extra size, and for an inode in use
    /// file type, size and attribute block.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(slot: &[u8], ino: Ino, geometry: &Geometry) -> Result<InodeValues, Corrupt> {
        let at = At::Inode(ino);
        let values = InodeValues::read(slot, geometry);
        if slot.len() > BASE_SIZE {
            let (found, limit) = (values.extra_isize, (slot.len() - BASE_SIZE) as u16);
            if found > limit || found % 4 != 0 {
                return Err(CorruptKind::ExtraIsize { found, limit }.at(at));
            }
        }
        if geometry.checksums.metadata {
            let seed = geometry.checksums.inode_seed(ino, values.generation);
            let (found, expected) = (stored_inode(slot), seed.inode(slot));
            // An inode that was never used is all zeroes, its checksum too.
            if found != expected && slot.iter().any(|&byte| byte != 0) {
                return Err(CorruptKind::InodeChecksum { found, expected }.at(at));
            }
        }
        if values.links != 0 || values.mode != 0 {
            values.check(at, geometry)?;
        }
        Ok(values)
    }

    /// The checks of an inode in use.
    fn check(&self, at: At, geometry: &Geometry) -> Result<(), Corrupt> {
        let kind = self.kind().ok_or(CorruptKind::InodeMode { mode: self.mode }.at(at))?;
        let (first, end) = (u64::from(geometry.first_data_block) + 1, geometry.blocks_count);
        let block = self.file_acl;
        if block != 0 && !(first..end).contains(&block) {
            return Err(CorruptKind::AttributeBlock { block, first, end }.at(at));
        }
        let (size, block_size) = (self.size, geometry.block_size);
        if kind == FileKind::Symlink && size > u64::from(block_size) {
            let limit = u64::from(block_size);
            return Err(CorruptKind::SymlinkSize { size, limit }.at(at));
        }
        let inline = self.flags.contains(InodeFlags::INLINE_DATA);
        if kind == FileKind::Directory && !inline && !size.is_multiple_of(u64::from(block_size)) {
            return Err(CorruptKind::DirectorySize { size, block_size }.at(at));
        }
        let limit = self.size_limit(geometry);
        if size > limit {
            return Err(CorruptKind::InodeSizeLimit { size, limit }.at(at));
        }
        Ok(())
    }

    /// The same, with content in the inode moved to blocks.
    fn leaves_inode(&self, geometry: &Geometry) -> InodeValues {
        let mut flags = self.flags - InodeFlags::INLINE_DATA;
        let extents = geometry.features.incompat.contains(Incompat::EXTENTS);
        flags.set(InodeFlags::EXTENTS, extents);
        InodeValues { flags, ..*self }
    }

    /// Whether flags and type allow that the content lies in the inode.
    pub fn may_be_inline(&self) -> bool {
        let others = InodeFlags::EXTENTS | InodeFlags::INDEX | InodeFlags::EA_INODE;
        let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
        !self.flags.intersects(others) && self.kind().is_some_and(|kind| kinds.contains(&kind))
    }

    /// The largest size that this inode's kind of mapping can have, in bytes.
    #[inline]
    pub fn size_limit(&self, geometry: &Geometry) -> u64 {
        let blocks = if self.flags.contains(InodeFlags::EXTENTS) {
            u64::from(u32::MAX)
        } else {
            // 48-bit counts of 512 bytes bound it below what triple indirection reaches.
            geometry.indirect_limit().min(u64::from(u32::MAX))
        };
        blocks << geometry.block_bits
    }

    /// Largest size that a write or truncate may give, in bytes: without `huge_file` the sectors of
    /// data and of the blocks that map them are counted in 32 bits.
    #[inline]
    pub fn growth_limit(&self, geometry: &Geometry) -> u64 {
        if self.flags.contains(InodeFlags::INLINE_DATA) {
            return self.leaves_inode(geometry).growth_limit(geometry);
        }
        let limit = self.size_limit(geometry);
        let wide = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE);
        if wide || self.flags.contains(InodeFlags::EXTENTS) {
            return limit;
        }
        let blocks = u64::from(u32::MAX) >> (geometry.block_bits - 9);
        let leaves = blocks.div_ceil(1 << (geometry.block_bits - 2));
        let middle = leaves.div_ceil(1 << (geometry.block_bits - 2));
        limit.min((blocks - leaves - middle - 1) << geometry.block_bits)
    }

    /// Writes the values into the inode's slot and sets its checksum. Fields that are not values
    /// here, and attributes behind the extra fields, keep what they hold.
    pub fn emit(&self, slot: &mut [u8], ino: Ino, geometry: &Geometry) {
        self.emit_base(slot, geometry);
        self.emit_extra(slot);
        if geometry.checksums.metadata {
            geometry.checksums.inode_seed(ino, self.generation).set_inode(slot);
        }
    }

    fn emit_base(&self, slot: &mut [u8], geometry: &Geometry) {
        let wide = slot.len() > BASE_SIZE;
        let (raw, _) = RawInode::mut_from_prefix(slot).expect("a slot has at least 128 bytes");
        raw.i_mode.set(self.mode);
        raw.i_uid.set(self.uid as u16);
        raw.l_i_uid_high.set((self.uid >> 16) as u16);
        raw.i_gid.set(self.gid as u16);
        raw.l_i_gid_high.set((self.gid >> 16) as u16);
        raw.i_size_lo.set(self.size as u32);
        raw.i_size_high.set((self.size >> 32) as u32);
        let has = |end: u16| wide && self.extra_isize >= end;
        raw.i_atime = time_words(self.atime, has(16)).0;
        raw.i_ctime = time_words(self.ctime, has(8)).0;
        raw.i_mtime = time_words(self.mtime, has(12)).0;
        raw.i_dtime.set(self.dtime);
        raw.i_links_count.set(self.links);
        let mut flags = self.flags - InodeFlags::HUGE_FILE;
        let mut blocks = self.blocks;
        if geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) && blocks >= 1 << 48 {
            flags |= InodeFlags::HUGE_FILE;
            blocks /= u64::from(geometry.block_size / 512);
        }
        raw.i_blocks_lo.set(blocks as u32);
        raw.l_i_blocks_high.set((blocks >> 32) as u16);
        raw.i_flags.set(flags.bits());
        raw.l_i_version.set(self.version as u32);
        raw.i_block = self.block;
        raw.i_generation.set(self.generation);
        raw.i_file_acl_lo.set(self.file_acl as u32);
        raw.l_i_file_acl_high.set((self.file_acl >> 32) as u16);
    }

    fn emit_extra(&self, slot: &mut [u8]) {
        let rest = &mut slot[BASE_SIZE..];
        if rest.is_empty() {
            return;
        }
        let mut extra = read_extra(rest);
        let crtime = self.crtime.unwrap_or_default();
        extra.i_extra_isize.set(self.extra_isize);
        extra.i_ctime_extra = time_words(self.ctime, true).1;
        extra.i_mtime_extra = time_words(self.mtime, true).1;
        extra.i_atime_extra = time_words(self.atime, true).1;
        (extra.i_crtime, extra.i_crtime_extra) = time_words(crtime, true);
        extra.i_version_hi.set((self.version >> 32) as u32);
        extra.i_projid.set(self.projid);
        // Only the fields that the extra size covers exist; attributes may lie behind them.
        let len = usize::from(self.extra_isize.clamp(2, EXTRA_SIZE));
        rest[..len].copy_from_slice(&extra.as_bytes()[..len]);
    }

    /// The block with the translator of a file of the Hurd; 0 where it has none.
    pub fn translator_of(slot: &[u8]) -> u64 {
        super::checksum::u32_at(slot, 0x24).into()
    }

    /// The generation that a slot holds, for its checksum's seed.
    pub fn generation_of(slot: &[u8]) -> u32 {
        super::checksum::u32_at(slot, 0x64)
    }

    /// The device number of a character or block device, as `st_rdev` encodes it in Linux.
    pub fn device(&self) -> u64 {
        let word = |at: usize| super::checksum::u32_at(&self.block, at);
        let (old, new) = (u64::from(word(0)), u64::from(word(4)));
        let (major, minor) = if old != 0 {
            (old >> 8 & 0xff, old & 0xff)
        } else {
            (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xfff00)
        };
        (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
    }

    /// Stores a device number (`st_rdev`): the old 16-bit form where it fits, else the new one.
    pub fn set_device(&mut self, rdev: u64) {
        let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
        let minor = (rdev & 0xff) | (rdev >> 12 & !0xff);
        self.block = [0; BLOCK_AREA];
        if major < 256 && minor < 256 {
            self.block[..4].copy_from_slice(&((major << 8 | minor) as u32).to_le_bytes());
        } else {
            let new = (minor & 0xff | major << 8 | (minor & !0xff) << 12) as u32;
            self.block[4..8].copy_from_slice(&new.to_le_bytes());
        }
    }

    /// The attribute entries that name an inode with the flag `EA_INODE`.
    pub fn references(&self) -> u64 {
        (self.ctime.sec as u64 & 0xffff_ffff) << 32 | self.version & 0xffff_ffff
    }

    /// Sets what [`InodeValues::references`] answers.
    pub fn set_references(&mut self, count: u64) {
        self.ctime = Timespec { sec: i64::from((count >> 32) as i32), nsec: 0 };
        self.version = count & 0xffff_ffff;
    }

    /// True where a symbolic link's target lies in the inode itself.
    pub fn is_fast_symlink(&self) -> bool {
        let elsewhere = InodeFlags::EXTENTS | InodeFlags::EA_INODE | InodeFlags::INLINE_DATA;
        let in_inode = !self.flags.intersects(elsewhere);
        self.kind() == Some(FileKind::Symlink) && in_inode && self.size < BLOCK_AREA as u64
    }

    /// Bytes of the target that a symbolic link stores in `area`, 0 where there is none: an
    /// encrypted one says its length.
    pub fn target_len(&self, area: &[u8]) -> u64 {
        let len = match self.flags.contains(InodeFlags::ENCRYPT) {
            true => match fscrypt::stored_target(area) {
                Ok(target) if !target.is_empty() => target.len() + 2,
                _ => 0,
            },
            false => area.iter().position(|&byte| byte == 0).unwrap_or(area.len()),
        };
        len as u64
    }
}

/// The extra fields of a slot, zero where it has none; `i_extra_isize` is bounded by the slot.
fn read_extra(rest: &[u8]) -> RawInodeExtra {
    let mut bytes = [0u8; EXTRA_SIZE as usize];
    let len = rest.len().min(bytes.len());
    bytes[..len].copy_from_slice(&rest[..len]);
    RawInodeExtra::read_from_bytes(&bytes).expect("the size is asserted")
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::format::RawSuper;
    use crate::format::super_block::MAGIC;

    /// A small file system with these inodes.
    fn geometry(inode_size: u16, features: &str) -> Geometry {
        let mut raw = RawSuper::zeroed();
        let mut set = crate::format::Features::default();
        set.edit(features).expect("known names");
        raw.set_features(&set);
        raw.s_magic.set(MAGIC);
        raw.s_rev_level.set(1);
        raw.s_log_block_size.set(2);
        raw.s_log_cluster_size.set(2);
        raw.s_inode_size.set(inode_size);
        raw.s_first_ino.set(11);
        raw.s_desc_size.set(64);
        raw.s_checksum_type = 1;
        raw.s_blocks_count_lo.set(30000);
        raw.s_blocks_per_group.set(32768);
        raw.s_clusters_per_group.set(32768);
        raw.s_inodes_per_group.set(128);
        raw.s_inodes_count.set(128);
        raw.set_checksum();
        Geometry::parse(zerocopy::IntoBytes::as_bytes(&raw), 0).expect("a sound superblock")
    }

    #[test]
    fn values_survive_emit_and_read() {
        let mut rng = Rng::new(7, 0);
        for features in ["64bit,huge_file,metadata_csum,extra_isize", "64bit,huge_file"] {
            let g = geometry(256, features);
            for _ in 0..2000 {
                let mut time = || Timespec {
                    sec: rng.below((4 << 32) - 1) as i64 - (1 << 31),
                    nsec: rng.below(1_000_000_000) as u32,
                };
                let (atime, ctime, mtime) = (time(), time(), time());
                let crtime = Some(time());
                let values = InodeValues {
                    mode: 0x8000 | rng.below(0o10000) as u16,
                    uid: rng.next_u32(),
                    gid: rng.next_u32(),
                    size: rng.below(1 << 43),
                    links: 1 + rng.below(60000) as u16,
                    blocks: rng.below(1 << 48),
                    flags: InodeFlags::NOATIME,
                    atime,
                    ctime,
                    mtime,
                    crtime,
                    dtime: rng.next_u32(),
                    version: rng.next_u64(),
                    generation: rng.next_u32(),
                    file_acl: rng.below(30000),
                    extra_isize: 32,
                    projid: rng.next_u32(),
                    block: [rng.next_u32() as u8; BLOCK_AREA],
                };
                let mut slot = vec![0u8; 256];
                rng.fill(&mut slot[128 + 32..]);
                let tail = slot[160..].to_vec();
                values.emit(&mut slot, Ino(12), &g);
                let again = InodeValues::parse(&slot, Ino(12), &g);
                let limit = values.size_limit(&g);
                if values.size <= limit && !matches!(values.file_acl, 0) {
                    assert_eq!(again, Ok(values));
                }
                assert_eq!(&slot[160..], tail, "attributes stay");
                slot[rng.below(128) as usize] ^= 1;
                if g.checksums.metadata {
                    assert!(InodeValues::parse(&slot, Ino(12), &g).is_err());
                }
            }
        }
    }

    /// The kernel's and e2fsck's largest file of blocks of 4 KiB without extents.
    #[test]
    fn a_file_without_huge_counts_ends_below_two_tebibytes() {
        let file = InodeValues { mode: 0x8000, ..Default::default() };
        let limit = |features: &str| file.growth_limit(&geometry(256, features));
        assert_eq!(limit(""), 2_196_873_666_560);
        assert_eq!(limit("huge_file"), (12 + 1024 + (1 << 20) + (1 << 30)) << 12);
    }

    #[test]
    fn times_beyond_their_range_are_clamped() {
        let far = Timespec { sec: i64::MAX, nsec: 5 };
        let (lo, extra) = time_words(far, true);
        assert_eq!(time(lo, Some(extra)).sec, i64::from(i32::MAX) + (3 << 32));
        let (lo, _) = time_words(far, false);
        assert_eq!(time(lo, None).sec, i64::from(i32::MAX));
        let old = Timespec { sec: -5, nsec: 999_999_999 };
        let (lo, extra) = time_words(old, true);
        assert_eq!(time(lo, Some(extra)), old);
    }

    #[test]
    fn a_block_count_beyond_48_bits_counts_file_system_blocks() {
        let g = geometry(256, "64bit,huge_file");
        let values = InodeValues { mode: 0x8000, links: 1, blocks: 8 << 47, ..Default::default() };
        let mut slot = vec![0u8; 256];
        values.emit(&mut slot, Ino(12), &g);
        let again = InodeValues::read(&slot, &g);
        assert!(again.flags.contains(InodeFlags::HUGE_FILE));
        assert_eq!(again.blocks, values.blocks);
    }
}
