//! Numbers that a check has counted, and that the device has otherwise.

use base::Ino;

/// A counter in the headers of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// `agf_freeblks`.
    FreeBlocks,
    /// `agf_longest`.
    LongestFree,
    /// `agf_btreeblks`.
    TreeBlocks,
    /// `agf_rmap_blocks`.
    RmapBlocks,
    /// `agf_refcount_blocks`.
    RefcountBlocks,
    /// `agi_iblocks`.
    InodeTreeBlocks,
    /// `agi_fblocks`.
    FreeInodeTreeBlocks,
    /// `agi_count`.
    Inodes,
    /// `agi_freecount`.
    FreeInodes,
}

impl Counter {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Counter::FreeBlocks => "free blocks",
            Counter::LongestFree => "longest free extent",
            Counter::TreeBlocks => "blocks of free space trees",
            Counter::RmapBlocks => "blocks of reverse mappings",
            Counter::RefcountBlocks => "blocks of reference counts",
            Counter::InodeTreeBlocks => "blocks of the inode tree",
            Counter::FreeInodeTreeBlocks => "blocks of the free inode tree",
            Counter::Inodes => "inodes",
            Counter::FreeInodes => "free inodes",
        }
    }

    /// True where it lies in the header of inodes.
    pub fn is_of_inodes(self) -> bool {
        use Counter as C;
        matches!(self, C::InodeTreeBlocks | C::FreeInodeTreeBlocks | C::Inodes | C::FreeInodes)
    }
}

/// A number that is wrong, with what was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Links of an inode.
    Links {
        /// The inode.
        ino: Ino,
        /// What it has.
        found: u32,
        /// What it should have.
        counted: u32,
    },
    /// A counter of a group.
    Group {
        /// The group.
        ag: u32,
        /// Which one.
        counter: Counter,
        /// What it is.
        found: u32,
        /// What it should be.
        counted: u32,
    },
}
