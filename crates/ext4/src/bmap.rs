//! From blocks of a file to blocks of the device: extents, and indirect blocks.

pub(crate) mod blocks;
pub(crate) mod extents;
pub(crate) mod indirect;
pub(crate) mod map;
