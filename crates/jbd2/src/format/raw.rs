//! The structures as they lie on disk, with the kernel's field names.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `journal_header_t`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Header {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// `journal_superblock_t`: 1024 bytes at the start of the first block.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Superblock {
    pub s_header: Header,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [u8; 768],
}

/// `journal_block_tag_t`: the tag without checksums and with version 2. The last field exists with
/// 64-bit block numbers only.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Tag {
    pub t_blocknr: U32,
    pub t_checksum: U16,
    pub t_flags: U16,
    pub t_blocknr_high: U32,
}

/// `journal_block_tag3_t`: the tag with checksum version 3.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Tag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// `jbd2_journal_revoke_header_t`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Revoke {
    pub r_header: Header,
    pub r_count: U32,
}

/// `struct commit_header`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Commit {
    pub h_header: Header,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const _: () = {
    assert!(size_of::<Header>() == 12);
    assert!(size_of::<Superblock>() == 1024);
    assert!(std::mem::offset_of!(Superblock, s_uuid) == 0x30);
    assert!(std::mem::offset_of!(Superblock, s_checksum_type) == 0x50);
    assert!(std::mem::offset_of!(Superblock, s_num_fc_blks) == 0x54);
    assert!(std::mem::offset_of!(Superblock, s_head) == 0x58);
    assert!(std::mem::offset_of!(Superblock, s_checksum) == 0xfc);
    assert!(std::mem::offset_of!(Superblock, s_users) == 0x100);
    assert!(size_of::<Tag>() == 12);
    assert!(size_of::<Tag3>() == 16);
    assert!(size_of::<Revoke>() == 16);
    assert!(size_of::<Commit>() == 60);
    assert!(std::mem::offset_of!(Commit, h_chksum) == 16);
    assert!(std::mem::offset_of!(Commit, h_commit_sec) == 48);
};

/// The front of `bytes` as a structure, or `None` where they are too short.
pub fn view<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Option<&T> {
    T::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)
}

/// As [`view`], to be written to.
pub fn view_mut<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(
    bytes: &mut [u8],
) -> Option<&mut T> {
    T::mut_from_prefix(bytes).ok().map(|(raw, _)| raw)
}
