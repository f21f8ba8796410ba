//! Large directories: data blocks, a tree of leaves, and the free index.

use std::sync::Arc;

use rt::Cx;

use super::leaf::{last_hash_in, leaf_insert, leaf_stale};
use super::{DirEdit, Name, Shape, entries, free};
use crate::buf::Buf;
use crate::da_btree::{DaBtree, DaFork, JoinLimits, Leaf as TreeLeaf, Path};
use crate::error::Result;
use crate::format::dir::{LEAF_ENTRY, LeafEntry};
use crate::format::dir_index::{Free, LEAF_HEADER, Leaf, emit_leaf};
use crate::format::{At, Corrupt, CorruptKind, Kind, u16_at};
use crate::trans::Trans;

/// A name that was found in the tree.
pub(super) struct FoundName {
    pub path: Path,
    /// Its place in the leaf.
    pub index: usize,
    pub address: u32,
}

/// Entries that a leaf of `size` bytes holds.
fn leaf_max(size: usize) -> usize {
    (size - LEAF_HEADER) / LEAF_ENTRY
}

impl DaFork for DirEdit<'_> {
    const LEAF: Kind = Kind::DirLeafN;
    const LEFT_FIRST: bool = true;

    fn trans(&mut self) -> &mut Trans {
        self.trans
    }

    fn at(&self, block: u64) -> At {
        self.block_at(block)
    }

    fn root(&self) -> u64 {
        self.leaf_start()
    }

    fn read(&mut self, cx: &mut Cx, block: u64) -> Result<Arc<Buf>> {
        self.read_block(cx, block, &[Kind::DirLeafN, Kind::DaNode])
    }

    fn add_block(&mut self, cx: &mut Cx, kind: Kind) -> Result<(u64, Arc<Buf>)> {
        let block = self.first_hole(cx, self.leaf_start())?;
        Ok((block, self.grow(cx, block, kind)?))
    }

    fn remove_block(&mut self, cx: &mut Cx, block: u64, buf: &Arc<Buf>) -> Result<()> {
        self.shrink(cx, block, buf)
    }

    fn stamp(&self, buf: &Buf, kind: Kind) {
        self.stamp_block(buf, kind);
    }

    fn init_leaf(&self, data: &mut [u8]) {
        emit_leaf(data, &[], None);
    }

    fn last_hash(&self, data: &[u8], at: At) -> Result<Option<u32>, Corrupt> {
        let entries = Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries();
        Ok(entries.len().checked_sub(1).map(|last| entries.get(last).hash))
    }

    /// Entries that are not stale, as the header counts them.
    fn used(&self, data: &[u8], _: At) -> Result<usize, Corrupt> {
        Ok(u16_at(data, 56).saturating_sub(u16_at(data, 58)).into())
    }

    fn join_limits(&self) -> JoinLimits {
        let max = leaf_max(self.block_size());
        JoinLimits { small: max / 4, joined: max / 2 }
    }

    fn merge(&mut self, left: &TreeLeaf, right: &TreeLeaf) -> Result<()> {
        let mut all = self.live_entries(left)?;
        all.extend(self.live_entries(right)?);
        self.store_leaf(&left.buf, &all);
        Ok(())
    }
}

impl DirEdit<'_> {
    /// Entries of a leaf that are not stale.
    fn live_entries(&self, leaf: &TreeLeaf) -> Result<Vec<LeafEntry>> {
        let at = self.block_at(leaf.block);
        Ok(leaf.buf.with(|data| -> Result<_, Corrupt> {
            Ok(entries::live(Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries()))
        })?)
    }

    /// Writes the entries of a leaf of a tree.
    fn store_leaf(&mut self, buf: &Arc<Buf>, list: &[LeafEntry]) {
        buf.with_mut(|data| emit_leaf(data, list, None));
        self.log(buf, &[56..60, LEAF_HEADER..LEAF_HEADER + LEAF_ENTRY * list.len().max(1)]);
    }

    /// Makes room in the leaf of a path: afterwards the path leads to the half where `hash`
    /// belongs.
    fn split_leaf(&mut self, cx: &mut Cx, path: &mut Path, hash: u32) -> Result<()> {
        let live = self.live_entries(&path.leaf)?;
        let (left, right) = live.split_at(live.len() / 2);
        let hash_of = |list: &[LeafEntry]| list.last().map_or(0, |entry| entry.hash);
        let highest = [hash_of(left), hash_of(right)];
        let new = DaBtree(self).split_leaf(cx, path, highest)?;
        self.store_leaf(&new.leaf.buf, right);
        self.store_leaf(&path.leaf.buf, left);
        if hash > highest[0] {
            *path = new;
        }
        Ok(())
    }

    pub(super) fn node_find(&mut self, cx: &mut Cx, name: &[u8]) -> Result<FoundName> {
        let found = self.node_look(cx, name)?;
        let kind = CorruptKind::DirAddress { hash: self.case().hash(name), address: 0 };
        found.ok_or_else(|| self.corrupt(self.leaf_start(), kind))
    }

    /// Where a name is; where it is not there, the way to where it belongs is kept.
    pub(super) fn node_look(&mut self, cx: &mut Cx, name: &[u8]) -> Result<Option<FoundName>> {
        let hash = self.case().hash(name);
        let mut path = DaBtree(self).descend(cx, hash)?;
        let mut first = None;
        loop {
            let (found, more) =
                self.candidates(&path.leaf.buf, Kind::DirLeafN, path.leaf.block, hash)?;
            for (index, address) in found {
                if self.has_name(cx, address, name, Shape::Node)? {
                    return Ok(Some(FoundName { path, index, address }));
                }
            }
            if !more {
                break;
            }
            first.get_or_insert_with(|| path.clone());
            if !DaBtree(self).next_leaf(cx, &mut path)? {
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
            _ => DaBtree(self).descend(cx, hash),
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
        let hash = self.case().hash(name.name);
        let mut path = self.way_to(cx, hash)?;
        let max = leaf_max(self.block_size());
        let limit = if self.gaps { max } else { 0 };
        let entry = LeafEntry { hash, address };
        let insert = |path: &Path| {
            path.leaf.buf.with_mut(|data| {
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
        self.log(&path.leaf.buf, &ranges);
        match last {
            Some(last) => DaBtree(self).store_hash(&path, last),
            None => Ok(()),
        }
    }

    pub(super) fn node_remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        let FoundName { path, index, address } = self.node_find(cx, name)?;
        let (block, best) = self.take_from_data(cx, address, Shape::Node)?;
        self.set_room(cx, block, best)?;
        let ranges = path.leaf.buf.with_mut(|data| leaf_stale(data, index, self.case().hash(name)));
        self.log(&path.leaf.buf, &ranges);
        DaBtree(self).join(cx, path)?;
        self.node_to_leaf(cx)
    }

    /// A tree of one leaf that has room for what the one free block says becomes a leaf.
    fn node_to_leaf(&mut self, cx: &mut Cx) -> Result<()> {
        let start = self.leaf_start();
        let root = self.read_block(cx, start, &[Kind::DirLeafN, Kind::DaNode])?;
        if root.kind() == Some(Kind::DaNode) || self.free_blocks(cx)? != [0] {
            return Ok(());
        }
        let offset = free::place(self.geometry(), 0);
        let index = self.read_block(cx, offset, &[Kind::DirFree])?;
        let (at, free_at) = (self.block_at(start), self.block_at(offset));
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
        self.stamp_block(&root, Kind::DirLeaf1);
        root.with_mut(|data| {
            data[LEAF_HEADER..].fill(0);
            emit_leaf(data, &live, Some(&bests));
        });
        self.log_all(&root);
        self.leaf_to_block(cx)
    }
}
