//! The lookups by block number that Linux's ext4 made in 2.6.32 and in 3.10, for experiments.
//!
//! Our ext4 holds its bitmaps and the slots that a handle is about to write, and walks a directory
//! once for a create. Linux's looked all of them up by number, each time: what a cache of few
//! buffers in front of the index costs shows there, and hardly here. With this option the same
//! lookups are made, in the same order; what is written does not change.
//!
//! One create: the walk to the leaf (the negative lookup); the inode bitmap; a block of each quota
//! file, at once; the slot of the new inode, twice; the walk again, for the insertion; the slot of
//! the directory; the slot of the new inode. In 2.6.32 each step of a walk goes through the blocks
//! of the directory's map first, of which an inode remembers one extent; from 3.9 on the extents
//! that were once found stay known. Group descriptors and the superblock were held then too.
//!
//! A removal: a walk; the slot of the directory; the slot of the inode four times, for the list of
//! orphans and at its eviction; a block of each quota file; the slot once more, and the bitmap.

use std::str::FromStr;

use base::Errno;
use rt::Cx;

use crate::sb::SuperBlock;

/// Whose lookups a mount makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum LegacyLookups {
    /// Ours.
    #[default]
    Off,
    /// Linux 2.6.32: each step through a directory looks up the blocks of its map.
    Linux2_6_32,
    /// Linux 3.10: extents that were found once are known.
    Linux3_10,
}

impl FromStr for LegacyLookups {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<LegacyLookups, String> {
        match text {
            "2.6.32" => Ok(LegacyLookups::Linux2_6_32),
            "3.10" => Ok(LegacyLookups::Linux3_10),
            "none" => Ok(LegacyLookups::Off),
            _ => Err("legacy_lookups takes 2.6.32, 3.10 or none".into()),
        }
    }
}

impl SuperBlock {
    /// Whether the mount makes lookups of Linux that it could do without.
    #[inline]
    pub(crate) fn legacy(&self) -> bool {
        self.options.legacy_lookups != LegacyLookups::Off
    }

    /// Looks up a block that is held, as Linux would.
    ///
    /// # Errors
    /// `EIO`.
    #[inline]
    pub(crate) fn legacy_lookup(&self, cx: &mut Cx, block: u64) -> Result<(), Errno> {
        if self.legacy() { self.read_block(cx, block).map(drop) } else { Ok(()) }
    }

    /// Whether extents that were found once are kept.
    #[inline]
    pub(crate) fn keeps_extents(&self) -> bool {
        self.options.legacy_lookups == LegacyLookups::Linux3_10
    }
}
