//! How many blocks a transaction looks up, and so how large the buffer LRU of each CPU is.
//!
//! The thread of 2014 asked who sets the size. The file system does: it knows its features. What
//! the functions here say is measured against real operations in `tests/bh_lru.rs`, and listed for
//! every kind of file system in `docs/bh-lru.md`.

use std::str::FromStr;

use cache::LruKind;

use crate::format::Geometry;
use crate::format::features::{Compat, Incompat, RoCompat};

/// What each CPU keeps in front of the index of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BhLru {
    /// Sets of four entries that pin no memory, as many as the transactions need.
    #[default]
    Sets,
    /// The array of Linux, as large as the transactions need.
    Array,
    /// The array of Linux with so many entries.
    Fixed(usize),
}

impl BhLru {
    /// The structure for a file system.
    pub(crate) fn kind(self, geometry: &Geometry) -> LruKind {
        let blocks = transaction_blocks(geometry);
        match self {
            BhLru::Sets => LruKind::for_transactions(blocks),
            BhLru::Array => LruKind::array_for_transactions(blocks),
            BhLru::Fixed(size) => LruKind::Array(size),
        }
    }
}

impl FromStr for BhLru {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<BhLru, String> {
        match (text, text.parse()) {
            ("sets", _) => Ok(BhLru::Sets),
            ("array", _) => Ok(BhLru::Array),
            (_, Ok(size)) if (1..=cache::buffer::lru::LRU_MAX).contains(&size) => {
                Ok(BhLru::Fixed(size))
            }
            _ => Err("bh_lru takes sets, array or a number of entries in 1..=64".into()),
        }
    }
}

/// Different blocks that creating a file in a large directory looks up by their numbers.
///
/// Bitmaps, group descriptors and the superblock are held by the mount and never looked up. A new
/// name needs the blocks of the table with the directory's inode and the new one; the leaf and
/// the nodes of the hash tree, and those of a second way where a leaf is split; the nodes of the
/// directory's map; and an attribute block. With quota each kind has one block of its file, and
/// two where a file is given to another owner.
pub fn transaction_blocks(geometry: &Geometry) -> usize {
    let features = &geometry.features;
    let has = |feature| features.compat.contains(feature);
    let inodes = 2;
    let levels = match (has(Compat::DIR_INDEX), features.incompat.contains(Incompat::LARGEDIR)) {
        (false, _) => 0,
        (true, false) => 2,
        (true, true) => 3,
    };
    let map = if features.incompat.contains(Incompat::EXTENTS) { 1 } else { 2 };
    let attributes = usize::from(has(Compat::EXT_ATTR));
    let kinds = match features.ro_compat {
        ro if !ro.contains(RoCompat::QUOTA) => 0,
        ro if ro.contains(RoCompat::PROJECT) => 3,
        _ => 2,
    };
    inodes + levels + 1 + map + attributes + 2 * kinds
}
