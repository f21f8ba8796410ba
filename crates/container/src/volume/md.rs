//! MD RAID 0 and 1: superblocks of the versions 0.90, 1.0, 1.1 and 1.2, and the array that their
//! members make.

mod array;
mod superblock;

pub use array::assemble;
pub use superblock::Member;

pub(super) use superblock::recognise;
