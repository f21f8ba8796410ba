//! From blocks of a file to blocks of the device: extents, and indirect blocks.

pub(crate) mod blocks;
mod clusters;
pub(crate) mod extents;
pub(crate) mod indirect;
pub(crate) mod map;

use crate::inode::{Inode, Inodes};

/// The map of an inode: from the blocks of its content to the device's.
#[derive(Clone, Copy)]
pub(crate) struct Bmap<'a> {
    fs: &'a Inodes,
    inode: &'a Inode,
}

impl Inodes {
    /// The map of `inode`.
    #[inline]
    pub(crate) fn bmap<'a>(&'a self, inode: &'a Inode) -> Bmap<'a> {
        Bmap { fs: self, inode }
    }
}
