//! The items of a transaction in the log: the first region of each, in little-endian order.
//!
//! Every item begins with its type and its number of regions, 16 bits each.
//! Source: "XFS Algorithms and Data Structures", chapter on log items; `xfs_logprint`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{L16, L32, L64, U32, assert_layout, views};

mod intent;

pub use intent::{
    BMAP_ATTR_FORK, BMAP_UNWRITTEN, RMAP_ATTR_FORK, RMAP_BMBT_BLOCK, RMAP_TYPE_MASK,
    RMAP_UNWRITTEN, RawExtent, RawFreeIntent, RawIntent, RawIntentDone, RawMapExtent,
    RawPhysExtent, RefcountOp, RmapOp,
};

/// A kind of item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum ItemKind {
    /// Extents are to be freed.
    Efi = 0x1236,
    /// They were.
    Efd = 0x1237,
    /// A change of an unlinked list (never on the disk).
    Iunlink = 0x1238,
    /// An inode.
    Inode = 0x123b,
    /// A buffer.
    Buffer = 0x123c,
    /// A quota record.
    Dquot = 0x123d,
    /// Quota was turned off.
    Quotaoff = 0x123e,
    /// An inode chunk was initialised.
    Icreate = 0x123f,
    /// Reverse mappings are to be changed.
    Rui = 0x1240,
    /// They were.
    Rud = 0x1241,
    /// Reference counts are to be changed.
    Cui = 0x1242,
    /// They were.
    Cud = 0x1243,
    /// File maps are to be changed.
    Bui = 0x1244,
    /// They were.
    Bud = 0x1245,
    /// An attribute is to be changed.
    Attri = 0x1246,
    /// It was.
    Attrd = 0x1247,
    /// File ranges are to be exchanged.
    Xmi = 0x1248,
    /// They were.
    Xmd = 0x1249,
    /// Extents of the realtime section are to be freed.
    EfiRealtime = 0x124a,
    /// They were.
    EfdRealtime = 0x124b,
    /// Reverse mappings of the realtime section are to be changed.
    RuiRealtime = 0x124c,
    /// They were.
    RudRealtime = 0x124d,
    /// Reference counts of the realtime section are to be changed.
    CuiRealtime = 0x124e,
    /// They were.
    CudRealtime = 0x124f,
}

impl ItemKind {
    /// Every kind with its name as `xfs_logprint` and errors call it, and whether it is supported.
    pub const ALL: [(ItemKind, &'static str, bool); 24] = [
        (ItemKind::Efi, "EFI", true),
        (ItemKind::Efd, "EFD", true),
        (ItemKind::Iunlink, "IUNLINK", false),
        (ItemKind::Inode, "INODE", true),
        (ItemKind::Buffer, "BUF", true),
        (ItemKind::Dquot, "DQUOT", true),
        (ItemKind::Quotaoff, "QUOTAOFF", true),
        (ItemKind::Icreate, "ICREATE", true),
        (ItemKind::Rui, "RUI", true),
        (ItemKind::Rud, "RUD", true),
        (ItemKind::Cui, "CUI", true),
        (ItemKind::Cud, "CUD", true),
        (ItemKind::Bui, "BUI", true),
        (ItemKind::Bud, "BUD", true),
        (ItemKind::Attri, "ATTRI", true),
        (ItemKind::Attrd, "ATTRD", true),
        (ItemKind::Xmi, "XMI", true),
        (ItemKind::Xmd, "XMD", true),
        (ItemKind::EfiRealtime, "EFI_RT", true),
        (ItemKind::EfdRealtime, "EFD_RT", true),
        (ItemKind::RuiRealtime, "RUI_RT", true),
        (ItemKind::RudRealtime, "RUD_RT", true),
        (ItemKind::CuiRealtime, "CUI_RT", true),
        (ItemKind::CudRealtime, "CUD_RT", true),
    ];

    /// The kind of this number.
    pub fn from_number(number: u16) -> Option<ItemKind> {
        ItemKind::ALL.into_iter().map(|row| row.0).find(|&kind| kind as u16 == number)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether recovery can recover it; the others are refused by name.
    pub fn supported(self) -> bool {
        self.row().2
    }

    fn row(self) -> (ItemKind, &'static str, bool) {
        ItemKind::ALL.into_iter().find(|row| row.0 == self).expect("every kind has a row")
    }
}

/// What every item begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
pub struct RawItemHead {
    /// An [`ItemKind`].
    pub kind: L16,
    /// Regions, this one included.
    pub size: L16,
}

assert_layout!(RawItemHead, 4, size @ 2);
views!(RawItemHead);

/// A record of quota; the record is its second region.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawDquotItem {
    pub qlf_type: L16,
    pub qlf_size: L16,
    pub qlf_id: L32,
    pub qlf_blkno: L64,
    pub qlf_len: L32,
    pub qlf_boffset: L32,
}

assert_layout!(RawDquotItem, 24, qlf_blkno @ 8, qlf_boffset @ 20);
views!(RawDquotItem);

/// Quota is no longer counted: the beginning of that, and its end.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawQuotaoff {
    pub qf_type: L16,
    pub qf_size: L16,
    pub qf_flags: L32,
}

assert_layout!(RawQuotaoff, 8, qf_flags @ 4);
views!(RawQuotaoff);

/// Bytes that one bit of a buffer's map stands for.
pub const CHUNK_SIZE: usize = 128;
/// Words of a buffer's map at the most: 64 KiB and one more, as the kernel's structure has it.
pub const MAP_WORDS_MAX: usize = 17;

bitflags::bitflags! {
    /// The low bits of `blf_flags`; the five high bits are a [`BufferType`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct BufferFlags: u16 {
        /// Inodes of which only the unlinked pointers are logged.
        const INODE_BUF = 1;
        /// The buffer was freed: older changes are not to be recovered.
        const CANCEL = 2;
        /// User quota.
        const UDQUOT = 4;
        /// Project quota.
        const PDQUOT = 8;
        /// Group quota.
        const GDQUOT = 16;
        const _ = !0;
    }
}

/// What a logged buffer holds, so that recovery can verify and checksum it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the kinds'")]
pub enum BufferType {
    Unknown = 0,
    Udquot = 1,
    Pdquot = 2,
    Gdquot = 3,
    Btree = 4,
    Agf = 5,
    Agfl = 6,
    Agi = 7,
    Inodes = 8,
    Symlink = 9,
    DirBlock = 10,
    DirData = 11,
    DirFree = 12,
    DirLeaf1 = 13,
    DirLeafN = 14,
    DaNode = 15,
    AttrLeaf = 16,
    AttrRemote = 17,
    Super = 18,
    RealtimeBitmap = 19,
    RealtimeSummary = 20,
}

impl BufferType {
    /// The type in `blf_flags`.
    pub fn from_flags(flags: u16) -> Option<BufferType> {
        use BufferType::*;
        const ALL: [BufferType; 21] = [
            Unknown,
            Udquot,
            Pdquot,
            Gdquot,
            Btree,
            Agf,
            Agfl,
            Agi,
            Inodes,
            Symlink,
            DirBlock,
            DirData,
            DirFree,
            DirLeaf1,
            DirLeafN,
            DaNode,
            AttrLeaf,
            AttrRemote,
            Super,
            RealtimeBitmap,
            RealtimeSummary,
        ];
        ALL.get(usize::from(flags >> 11)).copied()
    }

    /// Its bits of `blf_flags`.
    pub fn flags(self) -> u16 {
        (self as u16) << 11
    }
}

/// The first region of a buffer item; `blf_map_size` words of its map follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawBufferItem {
    pub blf_type: L16,
    pub blf_size: L16,
    pub blf_flags: L16,
    /// Blocks of 512 bytes.
    pub blf_len: L16,
    /// The first of them on the device.
    pub blf_blkno: L64,
    /// Words of the map.
    pub blf_map_size: L32,
}

assert_layout!(RawBufferItem, 20, blf_blkno @ 8, blf_map_size @ 16);
views!(RawBufferItem);

bitflags::bitflags! {
    /// `ilf_fields`: what follows an inode item's first region.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFields: u32 {
        /// The core.
        const CORE = 0x1;
        /// The data fork's content.
        const DDATA = 0x2;
        /// The data fork's extents.
        const DEXT = 0x4;
        /// The data fork's btree root.
        const DBROOT = 0x8;
        /// A device number in the item itself.
        const DEV = 0x10;
        /// A UUID (never used).
        const UUID = 0x20;
        /// The attribute fork's content.
        const ADATA = 0x40;
        /// The attribute fork's extents.
        const AEXT = 0x80;
        /// The attribute fork's btree root.
        const ABROOT = 0x100;
        /// The data fork's btree changes owner.
        const DOWNER = 0x200;
        /// The attribute fork's btree changes owner.
        const AOWNER = 0x400;
        /// Timestamps only (in memory).
        const TIMESTAMP = 0x4000;
        const _ = !0;
    }
}

/// The first region of an inode item.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawInodeItem {
    pub ilf_type: L16,
    pub ilf_size: L16,
    pub ilf_fields: L32,
    /// Bytes of the attribute fork's region.
    pub ilf_asize: L16,
    /// Bytes of the data fork's region.
    pub ilf_dsize: L16,
    pub ilf_pad: L32,
    pub ilf_ino: L64,
    /// A device number in the first four bytes.
    pub ilf_u: [u8; 16],
    /// The inode cluster: sector, sectors, offset of the inode in bytes.
    pub ilf_blkno: L64,
    pub ilf_len: L32,
    pub ilf_boffset: L32,
}

assert_layout!(RawInodeItem, 56, ilf_ino @ 16, ilf_blkno @ 40, ilf_boffset @ 52);
views!(RawInodeItem);

/// The core of an inode in the log: [`super::inode::RawInode`] in little-endian order.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawLogInode {
    pub di_magic: L16,
    pub di_mode: L16,
    pub di_version: u8,
    pub di_format: u8,
    pub di_pad3: [u8; 2],
    pub di_uid: L32,
    pub di_gid: L32,
    pub di_nlink: L32,
    pub di_projid_lo: L16,
    pub di_projid_hi: L16,
    pub di_big_nextents: L64,
    /// Wide: a 64-bit count. Narrow: seconds in the first four bytes, nanoseconds in the next.
    pub di_atime: L64,
    pub di_mtime: L64,
    pub di_ctime: L64,
    pub di_size: L64,
    pub di_nblocks: L64,
    pub di_extsize: L32,
    pub di_nextents: L32,
    pub di_anextents: L16,
    pub di_forkoff: u8,
    pub di_aformat: u8,
    pub di_dmevmask: L32,
    pub di_dmstate: L16,
    pub di_flags: L16,
    pub di_gen: L32,
    pub di_next_unlinked: L32,
    pub di_crc: L32,
    pub di_changecount: L64,
    pub di_lsn: L64,
    pub di_flags2: L64,
    pub di_cowextsize: L32,
    pub di_pad2: [u8; 12],
    pub di_crtime: L64,
    pub di_ino: L64,
    pub di_uuid: [u8; 16],
}

assert_layout!(RawLogInode, 176, di_nlink @ 16, di_atime @ 32, di_forkoff @ 82, di_crc @ 100,
    di_flags2 @ 120, di_crtime @ 144, di_uuid @ 160);
views!(RawLogInode);

/// The only region of an icreate item; its fields but the first two are big-endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawIcreate {
    pub icl_type: L16,
    pub icl_size: L16,
    pub icl_ag: U32,
    pub icl_agbno: U32,
    /// Inodes.
    pub icl_count: U32,
    /// Bytes per inode.
    pub icl_isize: U32,
    /// Blocks.
    pub icl_length: U32,
    pub icl_gen: U32,
}

assert_layout!(RawIcreate, 28, icl_gen @ 24);
views!(RawIcreate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_buffer_types_come_back_from_their_numbers() {
        for (kind, _, _) in ItemKind::ALL {
            assert_eq!(ItemKind::from_number(kind as u16), Some(kind));
        }
        assert_eq!(ItemKind::from_number(0x1239), None);
        assert_eq!(BufferType::from_flags(BufferType::Super.flags() | 3), Some(BufferType::Super));
        assert_eq!(BufferType::from_flags(31 << 11), None);
    }
}
