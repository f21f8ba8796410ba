//! Large directories: data blocks, a tree of leaves, and the free index.

use rt::Cx;

use super::leaf::{leaf_insert, leaf_stale};
use super::tree::{Path, leaf_max};
use super::{DirEdit, Name, Shape, entries, free};
use crate::error::Result;
use crate::format::dir::{LEAF_ENTRY, LeafEntry};
use crate::format::dir_index::{Free, LEAF_HEADER, Leaf, emit_leaf};
use crate::format::hash::hash;
use crate::format::{Corrupt, CorruptKind, Kind, u16_at};

/// A name that was found in the tree.
pub(super) struct Found {
    pub path: Path,
    /// Its place in the leaf.
    pub index: usize,
    pub address: u32,
}

impl DirEdit<'_> {
    pub(super) fn node_find(&mut self, cx: &mut Cx, name: &[u8]) -> Result<Found> {
        let found = self.node_look(cx, name)?;
        let kind = CorruptKind::DirAddress { hash: hash(name), address: 0 };
        found.ok_or_else(|| self.corrupt(self.leaf_start(), kind))
    }

    pub(super) fn node_look(&mut self, cx: &mut Cx, name: &[u8]) -> Result<Option<Found>> {
        let hash = hash(name);
        let mut path = self.descend(cx, hash)?;
        loop {
            let (found, more) = self.candidates(&path.leaf, Kind::DirLeafN, path.block, hash)?;
            for (index, address) in found {
                if self.has_name(cx, address, name, Shape::Node)? {
                    return Ok(Some(Found { path, index, address }));
                }
            }
            if !more || !self.next_leaf(cx, &mut path)? {
                return Ok(None);
            }
        }
    }

    pub(super) fn node_add(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<()> {
        let size = self.entry_size(name.name);
        let found = self.find_room(cx, size)?;
        let index = match found {
            Some(index) => index,
            None => self.first_hole(cx, 0)? / self.count(),
        };
        if index * self.count() >= self.leaf_start() {
            return Err(crate::XfsError::NoSpace);
        }
        let (address, left) = self.put_in_data(cx, index, found.is_none(), name)?;
        self.set_room(cx, index, left)?;
        let hash = hash(name.name);
        let mut path = self.descend(cx, hash)?;
        let (count, stale) =
            path.leaf.with(|data| (usize::from(u16_at(data, 56)), u16_at(data, 58)));
        if stale == 0 && count >= leaf_max(self.block_size()) {
            self.split_leaf(cx, &mut path, hash)?;
        }
        let limit = if self.gaps { leaf_max(self.block_size()) } else { 0 };
        let entry = LeafEntry { hash, address };
        let ranges = path.leaf.with_mut(|data| leaf_insert(data, entry, limit));
        self.log(&path.leaf, &ranges);
        self.fix_hashes(&path)
    }

    pub(super) fn node_remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        let Found { path, index, address } = self.node_find(cx, name)?;
        let (block, best) = self.take_from_data(cx, address, Shape::Node)?;
        self.set_room(cx, block, best)?;
        let ranges = path.leaf.with_mut(|data| leaf_stale(data, index, hash(name)));
        self.log(&path.leaf, &ranges);
        self.join(cx, path)?;
        self.node_to_leaf(cx)
    }

    /// A tree of one leaf that has room for what the one free block says becomes a leaf.
    fn node_to_leaf(&mut self, cx: &mut Cx) -> Result<()> {
        let start = self.leaf_start();
        let root = self.read(cx, start, &[Kind::DirLeafN, Kind::DaNode])?;
        if root.kind() == Some(Kind::DaNode) || self.free_blocks(cx)? != [0] {
            return Ok(());
        }
        let offset = free::place(self.geometry(), 0);
        let index = self.read(cx, offset, &[Kind::DirFree])?;
        let (at, free_at) = (self.at(start), self.at(offset));
        let live = root.with(|data| -> Result<_, Corrupt> {
            Ok(entries::live(Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries()))
        })?;
        let bests: Vec<u16> =
            index.with(|data| Free::parse(data, 0, free_at).map(|free| free.bests().collect()))?;
        let need = LEAF_HEADER + LEAF_ENTRY * live.len() + 4 + 2 * bests.len();
        // Some room is left, so that the next name does not turn it back.
        if need + 16 * LEAF_ENTRY > self.block_size() {
            return Ok(());
        }
        self.shrink(cx, offset, &index)?;
        self.stamp(&root, Kind::DirLeaf1);
        root.with_mut(|data| {
            data[LEAF_HEADER..].fill(0);
            emit_leaf(data, &live, Some(&bests));
        });
        self.log_all(&root);
        self.leaf_to_block(cx)
    }
}
