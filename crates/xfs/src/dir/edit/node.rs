//! Large directories: data blocks, a tree of leaves, and the free index.

use rt::Cx;

use super::leaf::{last_hash_in, leaf_insert, leaf_stale};
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

    /// Where a name is; where it is not there, the way to where it belongs is kept.
    pub(super) fn node_look(&mut self, cx: &mut Cx, name: &[u8]) -> Result<Option<Found>> {
        let hash = hash(name);
        let mut path = self.descend(cx, hash)?;
        let mut first = None;
        loop {
            let (found, more) = self.candidates(&path.leaf, Kind::DirLeafN, path.block, hash)?;
            for (index, address) in found {
                if self.has_name(cx, address, name, Shape::Node)? {
                    return Ok(Some(Found { path, index, address }));
                }
            }
            if !more {
                break;
            }
            first.get_or_insert_with(|| path.clone());
            if !self.next_leaf(cx, &mut path)? {
                break;
            }
        }
        self.known.way = Some((hash, first.unwrap_or(path)));
        Ok(None)
    }

    /// The way to the leaf where entries with this hash begin, which may be known.
    fn way_to(&mut self, cx: &mut Cx, hash: u32) -> Result<Path> {
        let id = self.trans.id();
        match self.known.way.take() {
            Some((of, way)) if of == hash && way.is_locked_by(id) => Ok(way),
            _ => self.descend(cx, hash),
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
        let mut path = self.way_to(cx, hash)?;
        let max = leaf_max(self.block_size());
        let limit = if self.gaps { max } else { 0 };
        let entry = LeafEntry { hash, address };
        let insert = |path: &Path| {
            path.leaf.with_mut(|data| {
                let full = u16_at(data, 58) == 0 && usize::from(u16_at(data, 56)) >= max;
                (!full).then(|| {
                    let ranges = leaf_insert(data, entry, limit);
                    let last = last_hash_in(data, &ranges[1]);
                    (ranges, last)
                })
            })
        };
        let mut inserted = insert(&path);
        if inserted.is_none() {
            self.split_leaf(cx, &mut path, hash)?;
            inserted = insert(&path);
        }
        let (ranges, last) = inserted.expect("a leaf has room after it was split");
        self.log(&path.leaf, &ranges);
        match last {
            Some(last) => self.store_hash(&path, last),
            None => Ok(()),
        }
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
