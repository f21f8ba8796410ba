//! The superblock, and the geometry that it describes.
//!
//! One copy lies at the start of each allocation group; only the first one is current.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on superblocks.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{L32, U16, U32, U64, assert_layout, views};

mod geometry;
mod realtime;
pub mod section;

pub use geometry::{AgBlock, AgHeader, AgInode, Geometry, InodeChunks};
pub use realtime::{RealtimeGroups, RealtimeShape, RealtimeWords};

/// Bytes of the structure; the rest of its sector is zero.
pub const SUPER_SIZE: usize = 304;
/// `sb_magicnum`: "XFSB".
pub const MAGIC: u32 = 0x5846_5342;
/// `sb_inprogress`: mkfs or growfs has not finished.
pub const IN_PROGRESS: u8 = 1;

/// The superblock as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawSuper {
    pub sb_magicnum: U32,
    pub sb_blocksize: U32,
    pub sb_dblocks: U64,
    pub sb_rblocks: U64,
    pub sb_rextents: U64,
    pub sb_uuid: [u8; 16],
    pub sb_logstart: U64,
    pub sb_rootino: U64,
    pub sb_rbmino: U64,
    pub sb_rsumino: U64,
    pub sb_rextsize: U32,
    pub sb_agblocks: U32,
    pub sb_agcount: U32,
    pub sb_rbmblocks: U32,
    pub sb_logblocks: U32,
    pub sb_versionnum: U16,
    pub sb_sectsize: U16,
    pub sb_inodesize: U16,
    pub sb_inopblock: U16,
    pub sb_fname: [u8; 12],
    pub sb_blocklog: u8,
    pub sb_sectlog: u8,
    pub sb_inodelog: u8,
    pub sb_inopblog: u8,
    pub sb_agblklog: u8,
    pub sb_rextslog: u8,
    pub sb_inprogress: u8,
    pub sb_imax_pct: u8,
    pub sb_icount: U64,
    pub sb_ifree: U64,
    pub sb_fdblocks: U64,
    pub sb_frextents: U64,
    pub sb_uquotino: U64,
    pub sb_gquotino: U64,
    pub sb_qflags: U16,
    pub sb_flags: u8,
    pub sb_shared_vn: u8,
    pub sb_inoalignmt: U32,
    pub sb_unit: U32,
    pub sb_width: U32,
    pub sb_dirblklog: u8,
    pub sb_logsectlog: u8,
    pub sb_logsectsize: U16,
    pub sb_logsunit: U32,
    pub sb_features2: U32,
    pub sb_bad_features2: U32,
    pub sb_features_compat: U32,
    pub sb_features_ro_compat: U32,
    pub sb_features_incompat: U32,
    pub sb_features_log_incompat: U32,
    pub sb_crc: L32,
    pub sb_spino_align: U32,
    pub sb_pquotino: U64,
    pub sb_lsn: U64,
    pub sb_meta_uuid: [u8; 16],
    pub sb_metadirino: U64,
    pub sb_rgcount: U32,
    pub sb_rgextents: U32,
    pub sb_rgblklog: u8,
    pub sb_pad: [u8; 7],
    pub sb_rtstart: U64,
    pub sb_rtreserved: U64,
}

assert_layout!(RawSuper, SUPER_SIZE,
    sb_uuid @ 32, sb_logstart @ 48, sb_rextsize @ 80, sb_versionnum @ 100, sb_fname @ 108,
    sb_blocklog @ 120, sb_icount @ 128, sb_uquotino @ 160, sb_qflags @ 176, sb_unit @ 184,
    sb_dirblklog @ 192, sb_logsunit @ 196, sb_features2 @ 200, sb_features_compat @ 208,
    sb_crc @ 224, sb_pquotino @ 232, sb_lsn @ 240, sb_meta_uuid @ 248,
    sb_metadirino @ 264, sb_rgblklog @ 280, sb_rtstart @ 288,
);
views!(RawSuper);

impl RawSuper {
    /// What the copies say of quota: nothing, where the superblock names the inodes of quota. (With
    /// `metadir` directories name them.)
    pub fn without_quota(&self) -> RawSuper {
        let mut copy = *self;
        for word in [&mut copy.sb_uquotino, &mut copy.sb_gquotino, &mut copy.sb_pquotino] {
            if word.get() != 0 {
                word.set(0);
                copy.sb_qflags.set(0);
            }
        }
        copy
    }

    /// The label, up to its first zero byte.
    pub fn label(&self) -> &[u8] {
        let end = self.sb_fname.iter().position(|&byte| byte == 0);
        &self.sb_fname[..end.unwrap_or(self.sb_fname.len())]
    }
}
