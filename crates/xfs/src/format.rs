//! The on-disk format of version 5, and what differs in version 4: raw big-endian structures,
//! validated values, checksums.
//!
//! *Raw* structures keep the kernel's field names and are views over a cached block without a copy;
//! *valid* values use plain words. `parse` and `emit` are the only doors between the two.
//!
//! Every kind of block carries a magic number, a checksum, the sequence number of its last log
//! record, the file system's UUID, its own address and its owner. [`verifier`] knows where each
//! kind keeps them: [`verifier::verify`] checks all of them, [`verifier::update_lsn_crc`] stores
//! number and checksum.
//!
//! Everything here is a pure function over bytes: nothing waits, nothing allocates by a number that
//! was read from the disk.
//!
//! Source: "XFS Algorithms and Data Structures" (xfs-documentation), kernel
//! `Documentation/filesystems/xfs/`, the layouts in Debian's xfslibs-dev 6.1, `xfs_db`'s output.

pub mod ag;
pub mod attr;
pub mod attr_leaf;
pub mod blocks;
pub mod btree;
pub mod corrupt;
pub mod da;
pub mod dir;
pub mod dir_index;
pub mod dir_sf;
pub mod dquot;
pub mod extent;
pub mod features;
pub mod hash;
pub mod inode;
pub mod log;
pub mod log_item;
pub mod owner;
pub mod record;
pub mod remote;
pub mod super_block;
pub mod time;
pub mod verifier;

pub use blocks::{AgExtent, FsExtent, Section};
pub use corrupt::{At, Corrupt, CorruptKind};
pub use extent::Extent;
pub use features::{Access, Features, Unsupported};
pub use owner::Owner;
pub use super_block::{
    AgBlock, AgHeader, AgInode, Geometry, RawSuper, RealtimeShape, RealtimeWords,
};
pub use verifier::{Expect, Kind};

/// Big-endian 16-bit number.
pub type U16 = zerocopy::big_endian::U16;
/// Big-endian 32-bit number.
pub type U32 = zerocopy::big_endian::U32;
/// Big-endian 64-bit number.
pub type U64 = zerocopy::big_endian::U64;
/// Little-endian 16-bit number, as the log's items hold them.
pub type L16 = zerocopy::little_endian::U16;
/// Little-endian 32-bit number, as checksums and the log's items hold them.
pub type L32 = zerocopy::little_endian::U32;
/// Little-endian 64-bit number, as the log's items hold them.
pub type L64 = zerocopy::little_endian::U64;

/// An empty reference in 32 bits: no block, no inode.
pub const NULL32: u32 = u32::MAX;
/// An empty reference in 64 bits.
pub const NULL64: u64 = u64::MAX;

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn put_u16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(data: &mut [u8], at: usize, value: u64) {
    data[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// Asserts at compile time where the fields of a raw structure lie.
macro_rules! assert_layout {
    ($name:ty, $size:expr, $($field:ident @ $offset:expr),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == 1);
            $(assert!(::core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use assert_layout;

/// Views of a raw structure at the start of a slice.
macro_rules! views {
    ($name:ident) => {
        impl $name {
            /// The structure at the start of `bytes`, as a view. None if they are too short.
            pub fn view(bytes: &[u8]) -> Option<&$name> {
                <$name as zerocopy::FromBytes>::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)
            }

            /// The structure at the start of `bytes`, as a view that can be changed.
            pub fn view_mut(bytes: &mut [u8]) -> Option<&mut $name> {
                <$name as zerocopy::FromBytes>::mut_from_prefix(bytes).ok().map(|(raw, _)| raw)
            }

            /// A structure of zeroes.
            pub fn zeroed() -> $name {
                <$name as zerocopy::FromZeros>::new_zeroed()
            }
        }
    };
}
pub(crate) use views;
