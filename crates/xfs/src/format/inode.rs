//! Inodes: 176 bytes of core, then the data fork and the attribute fork.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on on-disk inodes.

use base::Ino;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::dquot::Kind as QuotaKind;
use super::features::Features2;
use super::{
    At, Corrupt, CorruptKind, Geometry, Kind, L32, U16, U32, U64, assert_layout, verifier, views,
};

mod core;
mod fields;

/// The fork of an inode that a function works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    /// Content.
    Data,
    /// Attributes.
    Attr,
}

pub use self::core::{ForkFormat, InodeCore};
pub(crate) use self::fields::may_be_hint;
pub use self::fields::{WrongField, corrected};

/// Bytes of the core of a version 3 inode.
pub const CORE_SIZE: usize = 176;
/// `di_magic`: "IN".
pub const MAGIC: u16 = 0x494e;

/// The core of an inode as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawInode {
    pub di_magic: U16,
    pub di_mode: U16,
    pub di_version: u8,
    pub di_format: u8,
    pub di_onlink: U16,
    pub di_uid: U32,
    pub di_gid: U32,
    pub di_nlink: U32,
    pub di_projid_lo: U16,
    pub di_projid_hi: U16,
    /// Data extents with `NREXT64`, else padding.
    pub di_big_nextents: U64,
    pub di_atime: U64,
    pub di_mtime: U64,
    pub di_ctime: U64,
    pub di_size: U64,
    pub di_nblocks: U64,
    pub di_extsize: U32,
    /// Data extents; attribute extents with `NREXT64`.
    pub di_nextents: U32,
    /// Attribute extents; padding with `NREXT64`.
    pub di_anextents: U16,
    pub di_forkoff: u8,
    pub di_aformat: u8,
    pub di_dmevmask: U32,
    pub di_dmstate: U16,
    pub di_flags: U16,
    pub di_gen: U32,
    pub di_next_unlinked: U32,
    pub di_crc: L32,
    pub di_changecount: U64,
    pub di_lsn: U64,
    pub di_flags2: U64,
    pub di_cowextsize: U32,
    pub di_pad2: [u8; 12],
    pub di_crtime: U64,
    pub di_ino: U64,
    pub di_uuid: [u8; 16],
}

assert_layout!(RawInode, CORE_SIZE, di_nlink @ 16, di_big_nextents @ 24, di_size @ 56,
    di_nextents @ 76, di_forkoff @ 82, di_flags @ 90, di_next_unlinked @ 96, di_crc @ 100,
    di_lsn @ 112, di_cowextsize @ 128, di_crtime @ 144, di_ino @ 152, di_uuid @ 160);
views!(RawInode);

bitflags::bitflags! {
    /// `di_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u16 {
        /// Data lie in the realtime section.
        const REALTIME = 1;
        /// Blocks beyond the end are kept.
        const PREALLOC = 2;
        /// The realtime bitmap is new.
        const NEWRTBM = 4;
        /// Nothing may be changed.
        const IMMUTABLE = 8;
        /// May only grow.
        const APPEND = 0x10;
        /// Writes are synchronous.
        const SYNC = 0x20;
        /// No access times.
        const NOATIME = 0x40;
        /// Not for dump.
        const NODUMP = 0x80;
        /// New files are realtime.
        const RTINHERIT = 0x100;
        /// New files inherit the project.
        const PROJINHERIT = 0x200;
        /// No symbolic links may be made here.
        const NOSYMLINKS = 0x400;
        /// `di_extsize` counts.
        const EXTSIZE = 0x800;
        /// New files inherit `di_extsize`.
        const EXTSZINHERIT = 0x1000;
        /// Not to be defragmented.
        const NODEFRAG = 0x2000;
        /// Files of this directory lie together.
        const FILESTREAM = 0x4000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `di_flags2`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags2: u64 {
        /// Mapped without a page cache.
        const DAX = 1;
        /// May share blocks.
        const REFLINK = 2;
        /// `di_cowextsize` counts.
        const COWEXTSIZE = 4;
        /// Times are wide.
        const BIGTIME = 8;
        /// Extent counts are wide.
        const NREXT64 = 16;
        /// An inode of the file system itself.
        const METADATA = 32;
        const _ = !0;
    }
}

impl Flags {
    /// Those of an inode of the file system itself.
    pub fn of_metadata(directory: bool) -> Flags {
        let mut flags =
            Flags::IMMUTABLE | Flags::SYNC | Flags::NOATIME | Flags::NODUMP | Flags::NODEFRAG;
        flags.set(Flags::NOSYMLINKS, directory);
        flags
    }

    /// Those of an inode as it stands on the disk.
    pub fn of(slot: &[u8]) -> Flags {
        Flags::from_bits_retain(RawInode::view(slot).expect("an inode").di_flags.get())
    }
}

impl Flags2 {
    /// Those of an inode as it stands on the disk.
    pub fn of(slot: &[u8]) -> Flags2 {
        Flags2::from_bits_retain(RawInode::view(slot).expect("an inode").di_flags2.get())
    }
}

/// What an inode of the file system itself holds. Its number lies in `di_onlink`'s place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum MetadataType {
    /// A directory of the metadata directory tree.
    Directory = 1,
    /// Records of the quota of users.
    UserQuota = 2,
    /// Of groups.
    GroupQuota = 3,
    /// Of projects.
    ProjectQuota = 4,
    /// The bitmap of free extents of a group of the realtime section.
    RealtimeBitmap = 5,
    /// Its summary.
    RealtimeSummary = 6,
    /// The root of the reverse map of a group of the realtime section.
    RealtimeRmap = 7,
    /// The root of its reference counts.
    RealtimeRefcount = 8,
}

impl MetadataType {
    /// What the files of a group of the realtime section hold, with the ends of their names, in the
    /// order in which they are made.
    pub const OF_GROUP: [(&str, MetadataType); 4] = [
        ("bitmap", MetadataType::RealtimeBitmap),
        ("summary", MetadataType::RealtimeSummary),
        ("rmap", MetadataType::RealtimeRmap),
        ("refcount", MetadataType::RealtimeRefcount),
    ];

    /// What a quota file of a kind holds.
    pub fn of_quota(kind: QuotaKind) -> MetadataType {
        match kind {
            QuotaKind::User => MetadataType::UserQuota,
            QuotaKind::Group => MetadataType::GroupQuota,
            QuotaKind::Project => MetadataType::ProjectQuota,
        }
    }

    /// Whether it is the root of a btree.
    pub fn is_tree(self) -> bool {
        MetadataType::tree_of(self as u16).is_some()
    }

    /// The kind of the btree whose root an inode with this number holds.
    pub fn tree_of(number: u16) -> Option<Kind> {
        match number {
            7 => Some(Kind::RealtimeRmap),
            8 => Some(Kind::RealtimeRefcount),
            _ => None,
        }
    }
}

/// Checks magic number, version, checksum, UUID and own number of the inode in `slot`, which is as
/// long as the file system's inodes. Free inodes pass as well.
///
/// # Errors
/// The first check that fails.
pub fn verify(slot: &[u8], ino: Ino, geometry: &Geometry) -> Result<(), Corrupt> {
    let at = At::Inode(ino);
    let expect = geometry.expect(base::Sector(0), Some(ino.0));
    verifier::verify_magic(Kind::Inode, slot, at)?;
    let raw = RawInode::view(slot).expect("verify_magic checked the length");
    let known = if geometry.v4() { 1..=2 } else { 3..=3 };
    if !known.contains(&raw.di_version) {
        return Err(CorruptKind::InodeVersion(raw.di_version).at(at));
    }
    verifier::verify(Kind::Inode, slot, &expect, at)
}

/// Bytes of the core of inodes of versions 1 and 2.
pub const CORE_SIZE_V4: usize = 100;

/// The slot of an inode of version 1 or 2 as one of version 3 would be: the forks as they are
/// behind a core of full length, whose new fields are zero.
pub fn from_v4(slot: &[u8], geometry: &Geometry) -> Vec<u8> {
    let mut wide = slot[..CORE_SIZE_V4].to_vec();
    wide.resize(CORE_SIZE, 0);
    let raw = RawInode::view_mut(&mut wide).expect("as long as a core");
    raw.di_big_nextents.set(0);
    if raw.di_version == 1 {
        raw.di_nlink.set(u32::from(raw.di_onlink.get()));
        raw.di_projid_lo.set(0);
    }
    if raw.di_version == 1 || !geometry.features.features2.contains(Features2::PROJID32) {
        raw.di_projid_hi.set(0);
    }
    wide.extend_from_slice(&slot[CORE_SIZE_V4..]);
    wide
}

/// Writes a free inode, as chunks are made of, into `slot`; checksum and sequence number are left
/// to [`verifier::verifier`].
pub fn emit_free(slot: &mut [u8], ino: Ino, generation: u32, geometry: &Geometry) {
    slot.fill(0);
    let raw = RawInode::view_mut(slot).expect("an inode's slot");
    raw.di_magic.set(MAGIC);
    raw.di_version = 3;
    raw.di_gen.set(generation);
    raw.di_next_unlinked.set(super::NULL32);
    raw.di_ino.set(ino.0);
    raw.di_uuid = geometry.meta_uuid;
}

/// What is wrong with an inode that is free, in words: such has no blocks, attributes or flags.
pub fn free_flaw(slot: &[u8]) -> Option<String> {
    let raw = RawInode::view(slot)?;
    let aformat = u64::from(raw.di_aformat);
    let fields = [
        ("di_nblocks", raw.di_nblocks.get()),
        ("di_flags", raw.di_flags.get().into()),
        ("di_forkoff", raw.di_forkoff.into()),
        ("di_anextents", raw.di_anextents.get().into()),
        ("di_onlink", raw.di_onlink.get().into()),
        ("di_aformat", if aformat == ForkFormat::Extents as u64 { 0 } else { aformat }),
    ];
    if Flags2::of(slot).contains(Flags2::METADATA) {
        return Some("is free, and has the flag of metadata".into());
    }
    let wrong = fields.into_iter().find(|(_, value)| raw.di_version == 3 && *value != 0);
    wrong.map(|(name, value)| format!("is free, and {name} is {value:#x}"))
}

/// Where the data fork and the attribute fork lie in a slot of `inode_size` bytes whose fork offset
/// is `forkoff` (units of eight bytes, 0 for no attribute fork).
pub fn fork_ranges(
    forkoff: u8,
    inode_size: usize,
) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let border = if forkoff == 0 { inode_size } else { CORE_SIZE + 8 * usize::from(forkoff) };
    (CORE_SIZE..border, border..inode_size)
}
