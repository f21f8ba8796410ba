//! The on-disk format: raw little-endian structures, validated values, checksums.
//!
//! *Raw* structures keep the kernel's field names and are views over a cached block without a copy;
//! *valid* values use plain words. `parse` and `emit` are the only doors between the two.
//!
//! Everything here is a pure function over bytes: nothing waits, nothing allocates by a number that
//! was read from the disk.
//!
//! Source: kernel `Documentation/filesystems/ext4/`, and the behaviour of e2fsprogs' tools.

pub mod casefold;
pub mod checksum;
pub mod corrupt;
pub mod dir;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod inode;
mod journal_copy;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod resize_inode;
pub mod super_block;
pub mod verity;
pub mod xattr;

pub use checksum::Checksums;
pub use corrupt::{At, Corrupt, CorruptKind};
pub use features::{Access, Features, Unsupported};
pub use group_desc::{GroupDesc, GroupFlags};
pub use hash::HashVersion;
pub use inode::{FileKind, InodeFlags, InodeValues, RawInode};
pub use super_block::{Geometry, NotedError, RawSuper};

/// Little-endian 16-bit number.
pub type U16 = zerocopy::little_endian::U16;
/// Little-endian 32-bit number.
pub type U32 = zerocopy::little_endian::U32;
/// Little-endian 64-bit number.
pub type U64 = zerocopy::little_endian::U64;

/// Joins the low and the high half of a split field.
pub(crate) fn join(lo: U32, hi: U32) -> u64 {
    u64::from(lo.get()) | u64::from(hi.get()) << 32
}

/// Joins a split field whose halves have 16 bits.
pub(crate) fn join16(lo: U16, hi: U16) -> u32 {
    u32::from(lo.get()) | u32::from(hi.get()) << 16
}

/// Asserts at compile time where the fields of a raw structure lie.
macro_rules! assert_layout {
    ($name:ty, $size:expr, $($field:ident @ $offset:expr),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == 1);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use assert_layout;
