//! Who owns blocks, for the reverse map.

use super::AgExtent;
use super::record::{RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap, owner};

/// Who owns an extent, and as what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// An inode, or one of [`owner`].
    pub owner: u64,
    /// Block in the fork of its first block, with the flags in the high bits.
    pub offset: u64,
}

impl Owner {
    /// One that is no inode.
    pub fn special(owner: u64) -> Owner {
        Owner { owner, offset: 0 }
    }

    /// A block of an inode's block map.
    pub fn block_map(ino: u64, attr: bool) -> Owner {
        Owner { owner: ino, offset: RMAP_BMBT | if attr { RMAP_ATTR_FORK } else { 0 } }
    }

    /// A piece of an inode's fork.
    pub fn fork(ino: u64, attr: bool, offset: u64, unwritten: bool) -> Owner {
        let attr = if attr { RMAP_ATTR_FORK } else { 0 };
        let unwritten = if unwritten { RMAP_UNWRITTEN } else { 0 };
        Owner { owner: ino, offset: offset | attr | unwritten }
    }

    /// Whether its blocks have a place in a fork.
    pub fn has_offset(self) -> bool {
        owner::is_inode(self.owner) && self.offset & RMAP_BMBT == 0
    }

    /// Its record for an extent.
    pub fn record(self, extent: AgExtent) -> Rmap {
        let AgExtent { start, len } = extent;
        Rmap { start: start.block, len, owner: self.owner, offset: self.offset }
    }
}
