//! The leaves of an attribute fork that is being changed, below the nodes of its btree.

use std::sync::Arc;

use rt::Cx;

use super::Name;
use super::attribute::{Attribute, groups};
use super::fork::AttrEdit;
use crate::buf::Buf;
use crate::da_btree::{DaBtree, DaFork, JoinLimits, Leaf, Path};
use crate::error::Result;
use crate::format::attr_leaf::{self, AttrLeaf, LEAF_HEADER};
use crate::format::log_item::CHUNK_SIZE;
use crate::format::{At, Corrupt, Kind, da, verifier};
use crate::trans::Trans;

/// An attribute that was found.
pub(super) struct FoundAttribute {
    pub path: Path,
    /// What its leaf holds,
    pub list: Vec<Attribute>,
    /// and which one of these it is.
    pub index: usize,
}

impl FoundAttribute {
    pub fn attribute(&self) -> &Attribute {
        &self.list[self.index]
    }
}

impl DaFork for AttrEdit<'_> {
    const LEAF: Kind = Kind::AttrLeaf;
    const LEFT_FIRST: bool = false;

    fn trans(&mut self) -> &mut Trans {
        self.trans
    }

    fn at(&self, block: u64) -> At {
        At::InodeBlock(self.ino, block)
    }

    fn root(&self) -> u64 {
        0
    }

    fn read(&mut self, cx: &mut Cx, block: u64) -> Result<Arc<Buf>> {
        self.read_block(cx, block)
    }

    fn add_block(&mut self, cx: &mut Cx, kind: Kind) -> Result<(u64, Arc<Buf>)> {
        let block = self.add_blocks(cx, 1)?;
        Ok((block, self.fresh(cx, block, kind)?))
    }

    fn remove_block(&mut self, cx: &mut Cx, block: u64, _: &Arc<Buf>) -> Result<()> {
        self.free_blocks(cx, block..block + 1, Kind::AttrLeaf)
    }

    fn stamp(&self, buf: &Buf, kind: Kind) {
        let expect = self.space.geometry.expect(buf.daddr(), Some(self.ino.0));
        buf.set_kind(kind);
        buf.with_mut(|data| verifier::stamp(kind, data, &expect));
    }

    fn init_leaf(&self, data: &mut [u8]) {
        attr_leaf::emit(data, &[]);
    }

    fn last_hash(&self, data: &[u8], at: At) -> Result<Option<u32>, Corrupt> {
        Ok(AttrLeaf::parse(data, at)?.iter().last().map(|attr| attr.hash))
    }

    fn used(&self, data: &[u8], at: At) -> Result<usize, Corrupt> {
        let list: Vec<_> = AttrLeaf::parse(data, at)?.iter().collect();
        Ok(attr_leaf::used_size(list.iter()))
    }

    fn join_limits(&self) -> JoinLimits {
        JoinLimits { small: self.leaf_room() / 2, joined: self.leaf_room() }
    }

    fn merge(&mut self, left: &Leaf, right: &Leaf) -> Result<()> {
        let all = [self.attributes(left)?, self.attributes(right)?].concat();
        self.store_leaf(&left.buf, &all);
        Ok(())
    }
}

fn highest(list: &[Attribute]) -> u32 {
    list.last().map_or(0, |attr| attr.hash)
}

impl AttrEdit<'_> {
    /// Bytes of a leaf for entries, names and values.
    fn leaf_room(&self) -> usize {
        self.block_size() - LEAF_HEADER
    }

    /// What a leaf holds.
    pub(super) fn attributes(&self, leaf: &Leaf) -> Result<Vec<Attribute>> {
        let at = self.at(leaf.block);
        Ok(leaf.buf.with(|data| -> Result<_, Corrupt> {
            Ok(AttrLeaf::parse(data, at)?.iter().map(|attr| Attribute::read(&attr)).collect())
        })?)
    }

    /// The attribute of this name.
    pub(super) fn find(&mut self, cx: &mut Cx, name: &Name) -> Result<Option<FoundAttribute>> {
        self.find_where(cx, name, |attr| name.is(attr))
    }

    /// The first attribute under the hash of a name that is the wanted one.
    pub(super) fn find_where(
        &mut self,
        cx: &mut Cx,
        name: &Name,
        wanted: impl Fn(&Attribute) -> bool,
    ) -> Result<Option<FoundAttribute>> {
        let hash = name.hash(self.case());
        let mut path = DaBtree(self).descend(cx, hash)?;
        loop {
            let list = self.attributes(&path.leaf)?;
            if let Some(index) = list.iter().position(&wanted) {
                return Ok(Some(FoundAttribute { path, list, index }));
            }
            let passed = list.last().is_some_and(|last| last.hash > hash);
            if passed || !DaBtree(self).next_leaf(cx, &mut path)? {
                return Ok(None);
            }
        }
    }

    /// Makes an empty leaf of a block without content.
    pub(super) fn fresh_leaf(&mut self, cx: &mut Cx, block: u64) -> Result<Arc<Buf>> {
        let buf = self.fresh(cx, block, Kind::AttrLeaf)?;
        let expect = self.expect(block)?;
        buf.with_mut(|data| {
            da::init(Kind::AttrLeaf, data, &expect);
            attr_leaf::emit(data, &[]);
        });
        self.trans.log_buf(&buf, 0, buf.len() - 1);
        Ok(buf)
    }

    /// Writes the attributes of a leaf and logs the chunks that differ.
    pub(super) fn store_leaf(&mut self, leaf: &Arc<Buf>, list: &[Attribute]) {
        let old = leaf.to_vec();
        let mut new = old.clone();
        let borrowed: Vec<_> = list.iter().map(Attribute::borrowed).collect();
        attr_leaf::emit(&mut new, &borrowed);
        leaf.with_mut(|data| data.copy_from_slice(&new));
        let chunks = old.chunks(CHUNK_SIZE).zip(new.chunks(CHUNK_SIZE)).enumerate();
        for (index, (_, chunk)) in chunks.filter(|(_, (old, new))| old != new) {
            let first = index * CHUNK_SIZE;
            self.trans.log_buf(leaf, first, first + chunk.len() - 1);
        }
    }

    /// Puts an attribute into the tree; it replaces the one of its name, if any.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub(super) fn put(&mut self, cx: &mut Cx, name: &Name, new: &Attribute) -> Result<()> {
        let (mut path, list) = match self.find(cx, name)? {
            Some(FoundAttribute { path, mut list, index }) => {
                list[index] = new.clone();
                (path, list)
            }
            None => {
                let path = DaBtree(self).descend(cx, new.hash)?;
                let mut list = self.attributes(&path.leaf)?;
                let index = list.partition_point(|attr| attr.hash < new.hash);
                list.insert(index, new.clone());
                (path, list)
            }
        };
        // Into this leaf and, where it has no room for them all, new ones on its right.
        let mut groups = groups(list, self.leaf_room()).into_iter().peekable();
        while let Some(list) = groups.next() {
            let last = highest(&list);
            let Some(next) = groups.peek() else {
                self.store_leaf(&path.leaf.buf, &list);
                return DaBtree(self).store_hash(&path, last);
            };
            let right = DaBtree(self).split_leaf(cx, &mut path, [last, highest(next)])?;
            self.store_leaf(&path.leaf.buf, &list);
            path = right;
        }
        Ok(())
    }

    /// Removes an attribute; leaves and nodes that become empty or small are joined.
    pub(super) fn take(&mut self, cx: &mut Cx, found: FoundAttribute) -> Result<()> {
        let FoundAttribute { path, mut list, index } = found;
        list.remove(index);
        self.store_leaf(&path.leaf.buf, &list);
        let mut tree = DaBtree(self);
        tree.fix_hashes(&path)?;
        tree.join(cx, path)
    }
}
