//! Changing a directory in a transaction: names come, go and change their inode, and the
//! directory takes the form that holds them.
//!
//! ```text
//! small (in the inode) <-> one block <-> data + one leaf <-> data + tree + free index
//! ```
//!
//! The caller holds the directory's `rwsem` for writing, has looked the name up, has set blocks
//! aside ([`blocks_needed`]) and logs the inode afterwards.

use std::sync::Arc;

use base::Ino;
use rt::Cx;
use smallvec::SmallVec;

use super::space_start;
use crate::alloc::{AllocRequest, BlockReservation, Space};
use crate::bmap::{self, Which};
use crate::buf::meta::{Maps, buf_maps, tree_check};
use crate::buf::{Buf, BufOps};
use crate::da_btree::Path;
use crate::error::{Result, XfsError};
use crate::format::da::DEPTH_MAX;
use crate::format::dir::{FileType, entry_size};
use crate::format::extent::Extent;
use crate::format::hash::Case;
use crate::format::inode::{ForkFormat, fork_ranges};
use crate::format::{At, Corrupt, CorruptKind, Geometry, Kind, Owner, verifier};
use crate::inode::Inode;
use crate::trans::Trans;
use crate::trans::intent::Work;

mod block;
mod data;
mod entries;
mod free;
pub(crate) mod fresh;
mod leaf;
mod local;
mod node;

/// What a directory looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// In the inode.
    Local,
    /// One block with names and index.
    Block,
    /// Data blocks and one leaf.
    Leaf,
    /// Data blocks, a tree of leaves, free blocks.
    Node,
}

/// A name with what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'n> {
    pub name: &'n [u8],
    pub ino: Ino,
    pub file_type: FileType,
}

/// A directory that is changed in a transaction.
pub(crate) struct DirEdit<'a> {
    pub space: &'a Space,
    pub inode: &'a Inode,
    pub trans: &'a mut Trans,
    /// For new blocks.
    pub reserved: &'a mut BlockReservation,
    /// Leaves get gaps for names to come.
    pub gaps: bool,
    known: &'a mut DirContext,
}

/// What a transaction knows of a directory, until it ends or rolls.
#[derive(Default)]
pub(crate) struct DirContext {
    /// Blocks that it has read, by their places: they stay locked.
    blocks: SmallVec<[(u64, Arc<Buf>); 6]>,
    /// Of a name that is not there: its hash, and the way to the leaf where it belongs.
    way: Option<(u32, Path)>,
}

/// Blocks that adding a name of `len` bytes to a directory may take at the most. May park.
///
/// # Errors
/// The directory's map cannot be read.
pub(crate) fn blocks_needed(
    cx: &mut Cx,
    geometry: &Geometry,
    inode: &Inode,
    len: usize,
) -> Result<u64> {
    let blocks = u64::from(geometry.dir_blocks());
    let (leaf, end) = (space_start(geometry, 1), u64::from(geometry.dir_blocks()));
    let last = inode.extents(cx, Which::Data, |list| list.last().map_or(0, Extent::end))?;
    let new = match last {
        0 if local::fits(cx, geometry, inode, len) => return Ok(0),
        last if last <= end => 3,
        last if last <= leaf + blocks => 5,
        _ => 4 + u64::from(DEPTH_MAX),
    };
    // Each may come in pieces, whose map needs blocks of a tree.
    Ok(new * blocks + 2)
}

impl<'a> DirEdit<'a> {
    pub fn new(
        space: &'a Space,
        inode: &'a Inode,
        trans: &'a mut Trans,
        reserved: &'a mut BlockReservation,
        gaps: bool,
        known: &'a mut DirContext,
    ) -> DirEdit<'a> {
        DirEdit { space, inode, trans, reserved, gaps, known }
    }
}

impl DirEdit<'_> {
    fn geometry(&self) -> &Geometry {
        &self.space.geometry
    }

    fn case(&self) -> Case {
        self.geometry().features.case()
    }

    fn ftype(&self) -> bool {
        self.geometry().features.ftype()
    }

    /// Bytes of a directory block.
    fn block_size(&self) -> usize {
        self.geometry().dir_block_size as usize
    }

    /// File system blocks of a directory block.
    fn count(&self) -> u64 {
        u64::from(self.geometry().dir_blocks())
    }

    fn leaf_start(&self) -> u64 {
        space_start(self.geometry(), 1)
    }

    fn block_at(&self, offset: u64) -> At {
        At::InodeBlock(self.inode.ino, offset)
    }

    fn entry_size(&self, name: &[u8]) -> usize {
        entry_size(name.len(), self.ftype())
    }

    fn corrupt(&self, offset: u64, kind: CorruptKind) -> XfsError {
        kind.at(self.block_at(offset)).into()
    }

    /// Bytes of the inode that the data fork may have.
    fn room(&self, cx: &Cx) -> usize {
        let forkoff = self.inode.with(cx, |state| state.core.forkoff);
        fork_ranges(forkoff, self.geometry().inode_size as usize).0.len()
    }

    fn shape(&mut self, cx: &mut Cx) -> Result<Shape> {
        let (local, end) = {
            let forks = self.inode.forks.read(cx);
            let last = forks.data.extents.as_deref().and_then(<[Extent]>::last);
            (forks.data.format == ForkFormat::Local, last.map_or(0, Extent::end))
        };
        if local {
            return Ok(Shape::Local);
        }
        if end == self.count() {
            return Ok(Shape::Block);
        }
        self.indexed_shape(cx)
    }

    /// The shape of a large directory.
    fn indexed_shape(&mut self, cx: &mut Cx) -> Result<Shape> {
        let root = self.index_block(cx, self.leaf_start())?;
        Ok(if root.kind() == Some(Kind::DirLeaf1) { Shape::Leaf } else { Shape::Node })
    }

    /// Adds a name that is not there. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`]; a block that is wrong; the device failed.
    pub fn add(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<()> {
        if self.known.way.is_some() {
            return self.node_add(cx, name);
        }
        self.inode.extents(cx, Which::Data, |_| ())?;
        loop {
            match self.shape(cx)? {
                Shape::Local if self.local_add(cx, name)? => return Ok(()),
                Shape::Local => self.local_to_block(cx)?,
                Shape::Block if self.block_add(cx, name)? => return Ok(()),
                Shape::Block => self.block_to_leaf(cx)?,
                Shape::Leaf if self.leaf_add(cx, name)? => return Ok(()),
                Shape::Leaf => self.leaf_to_node(cx)?,
                Shape::Node => return self.node_add(cx, name),
            }
        }
    }

    /// True if a large directory has a name: its leaf stays locked, so that [`DirEdit::add`] of
    /// that name finds it at once. May park.
    ///
    /// # Errors
    /// A block that is wrong; the device failed.
    pub fn has_indexed(&mut self, cx: &mut Cx, name: &[u8]) -> Result<bool> {
        match self.indexed_shape(cx)? {
            Shape::Leaf => Ok(self.leaf_look(cx, name)?.is_some()),
            _ => Ok(self.node_look(cx, name)?.is_some()),
        }
    }

    /// Takes a name out. May park.
    ///
    /// # Errors
    /// As [`DirEdit::add`].
    pub fn remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        self.inode.extents(cx, Which::Data, |_| ())?;
        match self.shape(cx)? {
            Shape::Local => self.local_remove(cx, name),
            Shape::Block => self.block_remove(cx, name),
            Shape::Leaf => self.leaf_remove(cx, name),
            Shape::Node => self.node_remove(cx, name),
        }
    }

    /// Gives a name another inode; `..` as well. May park.
    ///
    /// # Errors
    /// As [`DirEdit::add`].
    pub fn replace(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<()> {
        self.inode.extents(cx, Which::Data, |_| ())?;
        if self.shape(cx)? == Shape::Local {
            if self.local_replace(cx, name)? {
                return Ok(());
            }
            self.local_to_block(cx)?;
        }
        let address = match self.shape(cx)? {
            Shape::Block => self.block_find(cx, name.name)?.1,
            Shape::Leaf => self.leaf_find(cx, name.name)?.1,
            _ => self.node_find(cx, name.name)?.address,
        };
        self.store_target(cx, address, name)
    }

    /// Where the directory block at block `offset` of the fork lies. None in a hole.
    fn maps(&self, cx: &mut Cx, offset: u64) -> Result<Option<Maps>> {
        let count = self.count();
        let runs =
            self.inode.extents(cx, Which::Data, |list| bmap::runs(list, offset..offset + count))?;
        Ok(runs.map(|runs| buf_maps(self.geometry(), &runs)))
    }

    /// A directory block, locked for the transaction.
    fn read_block(&mut self, cx: &mut Cx, offset: u64, kinds: &'static [Kind]) -> Result<Arc<Buf>> {
        if let Some(buf) = self.at_hand(cx, offset, kinds) {
            self.space.log.debug_check(cx, &buf)?;
            return Ok(buf);
        }
        let maps = self.maps(cx, offset)?;
        let hole = CorruptKind::DirHole { block: offset };
        let maps = maps.ok_or_else(|| self.corrupt(offset, hole))?;
        let (name, check) = (kinds[0].name(), tree_check(kinds));
        let ops = BufOps { name, kinds, check, unmapped: false };
        let buf = self.trans.read_buf(cx, &maps, &ops)?;
        let (at, ino) = (self.block_at(offset), self.inode.ino.0);
        let expect = self.geometry().expect(maps[0].daddr, Some(ino));
        buf.with(|data| -> std::result::Result<(), Corrupt> {
            let found = kinds.iter().find(|kind| kind.stored_magic(data) == kind.magic());
            let kind = *found.unwrap_or(&kinds[0]);
            verifier::verify_magic(kind, data, at)?;
            verifier::verify_identity(kind, data, &expect, at)?;
            buf.set_kind(kind);
            Ok(())
        })?;
        self.space.log.debug_check(cx, &buf)?;
        self.known.blocks.push((offset, buf.clone()));
        self.inode.recent.lock(cx).put(offset, &buf);
        Ok(buf)
    }

    /// A directory block, locked for the transaction, that it has already or that was used lately.
    /// May park.
    fn at_hand(&mut self, cx: &mut Cx, offset: u64, kinds: &[Kind]) -> Option<Arc<Buf>> {
        let id = self.trans.id();
        let blocks = &mut self.known.blocks;
        if let Some(at) = blocks.iter().position(|known| known.0 == offset) {
            let buf = &blocks[at].1;
            if buf.owner() == id && buf.is_of(kinds) {
                return Some(buf.clone());
            }
            blocks.swap_remove(at);
        }
        let recent = self.inode.recent.lock(cx).get(offset)?;
        let buf = self.trans.read_again(cx, recent).filter(|buf| buf.is_of(kinds))?;
        self.known.blocks.push((offset, buf.clone()));
        Some(buf)
    }

    /// Unlocks a block, unless it was changed.
    fn release(&mut self, offset: u64, buf: &Arc<Buf>) {
        self.known.blocks.retain(|known| known.0 != offset);
        self.trans.release(buf);
    }

    /// The block at `offset` is another one from now on.
    fn forget(&mut self, cx: &Cx, offset: u64) {
        self.known.blocks.retain(|known| known.0 != offset);
        self.inode.recent.lock(cx).forget(offset);
    }

    /// A block of the index: a leaf of either kind, or a node.
    fn index_block(&mut self, cx: &mut Cx, offset: u64) -> Result<Arc<Buf>> {
        self.read_block(cx, offset, &[Kind::DirLeaf1, Kind::DirLeafN, Kind::DaNode])
    }

    fn data_kind(shape: Shape) -> &'static [Kind] {
        if shape == Shape::Block { &[Kind::DirBlock] } else { &[Kind::DirData] }
    }

    /// The first place for a block that is not used from `base` on.
    fn first_hole(&self, cx: &mut Cx, base: u64) -> Result<u64> {
        let count = self.count();
        let hole = self.inode.extents(cx, Which::Data, |list| {
            let mut at = base;
            for extent in &list[list.partition_point(|extent| extent.end() <= base)..] {
                if extent.offset >= at + count {
                    break;
                }
                at = base + (extent.end() - base).next_multiple_of(count);
            }
            at
        })?;
        Ok(hole)
    }

    /// Gives the directory a block at `offset` of the fork: zeroes with a header of its kind.
    fn grow(&mut self, cx: &mut Cx, offset: u64, kind: Kind) -> Result<Arc<Buf>> {
        self.forget(cx, offset);
        let (mut at, end) = (offset, offset + self.count());
        if self.reserved.left() < self.count() {
            return Err(XfsError::NoSpace);
        }
        while at < end {
            let list = self.inode.extents(cx, Which::Data, |list| {
                list.last().map(|last| last.start + u64::from(last.count))
            })?;
            let geometry = &self.space.geometry;
            let goal = match list.filter(|&block| geometry.block_valid(block)) {
                Some(block) => geometry.split(block),
                None => geometry.ino_place(self.inode.ino).0,
            };
            let want = AllocRequest {
                goal,
                min_len: 1,
                max_len: (end - at) as u32,
                align: 1,
                this_group: false,
                owner: Some(Owner::fork(self.inode.ino.0, false, at, false)),
                metadata: true,
            };
            let found = self.space.allocate(cx, self.trans, &want)?;
            self.reserved.take(u64::from(found.len));
            let start = self.space.geometry.join(found.start);
            let extent = Extent { offset: at, start, count: found.len, unwritten: false };
            let trans = &mut *self.trans;
            self.inode.edit_map(cx, self.space, Which::Data, |cx, edit| {
                *edit.blocks += u64::from(found.len);
                edit.add(cx, trans, extent)
            })?;
            at += u64::from(found.len);
        }
        self.set_size(cx)?;
        let maps = self.maps(cx, offset)?.expect("just allocated");
        let ops = BufOps { name: kind.name(), kinds: kind.alone(), check: None, unmapped: false };
        let buf = self.trans.get_buf(cx, &maps, &ops)?;
        buf.zero();
        buf.set_kind(kind);
        self.stamp_block(&buf, kind);
        Ok(buf)
    }

    /// Writes the self-description of a kind into a block.
    fn stamp_block(&self, buf: &Buf, kind: Kind) {
        let expect = self.geometry().expect(buf.daddr(), Some(self.inode.ino.0));
        buf.set_kind(kind);
        buf.with_mut(|data| verifier::stamp(kind, data, &expect));
    }

    /// Takes a block away from the directory.
    fn shrink(&mut self, cx: &mut Cx, offset: u64, buf: &Arc<Buf>) -> Result<()> {
        self.forget(cx, offset);
        self.trans.invalidate(buf);
        let (count, ino) = (self.count(), self.inode.ino.0);
        let trans = &mut *self.trans;
        let gone = self.inode.edit_map(cx, self.space, Which::Data, |cx, edit| {
            let gone = edit.remove(cx, trans, offset..offset + count)?;
            *edit.blocks -= gone.iter().map(|extent| u64::from(extent.count)).sum::<u64>();
            Ok(gone)
        })?;
        for extent in gone.iter().rev() {
            let owner = Owner::fork(ino, false, extent.offset, extent.unwritten);
            self.trans.defer(Work::free(extent.start.0, extent.count, Some(owner)));
        }
        self.set_size(cx)
    }

    /// A directory's size is where its data blocks end.
    fn set_size(&self, cx: &mut Cx) -> Result<()> {
        let leaf = self.leaf_start();
        let end = self.inode.extents(cx, Which::Data, |list| {
            let data = list.partition_point(|extent| extent.offset < leaf);
            list[..data].last().map_or(0, Extent::end)
        })?;
        let end = end.next_multiple_of(self.count());
        let size = end << self.geometry().block_bits;
        self.inode.with(cx, |state| state.core.size = size);
        Ok(())
    }

    /// Logs ranges of a buffer.
    fn log(&mut self, buf: &Arc<Buf>, ranges: &[data::Range]) {
        self.trans.log_ranges(buf, ranges.iter().cloned());
    }

    fn log_range(&mut self, buf: &Arc<Buf>, range: data::Range) {
        self.trans.log_buf(buf, range.start, range.end - 1);
    }

    fn log_all(&mut self, buf: &Arc<Buf>) {
        self.trans.log_buf(buf, 0, buf.len() - 1);
    }
}
