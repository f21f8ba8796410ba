//! The map from blocks of a fork to blocks of the file system.
//!
//! Both forms, the list in the inode and the btree, become one sorted list in memory when the fork
//! is first looked into, as in Linux.

pub(crate) mod blocks;
#[cfg(test)]
mod blocks_tests;
pub(crate) mod cow_fork;
pub(crate) mod edit;
#[cfg(test)]
mod edit_tests;
pub(crate) mod exchange;
mod forks;
mod realtime;
mod shift;

use std::ops::Range;

use base::{FsBlock, Ino};
use rt::Cx;
use smallvec::SmallVec;

use crate::buf::meta::{ReadRequest, Reader};
use crate::error::Fault;
use crate::format::btree::{MapRoot, Neighbours, Node};
use crate::format::extent::{self, EXTENT_SIZE, Extent};
use crate::format::inode::ForkFormat;
pub(crate) use crate::format::inode::Which;
use crate::format::{At, Corrupt, CorruptKind, Geometry, Kind, u64_at};
pub(crate) use forks::Forks;

/// A fork in memory.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    /// Its form.
    pub format: ForkFormat,
    /// Its bytes in the inode: content of local form, list or root. A new fork with a list has none
    /// until somebody needs them ([`Fork::make_bytes`]).
    pub bytes: Vec<u8>,
    /// Extents that the inode says it has.
    pub count: u64,
    /// The extents, once they were read; without any in local form.
    pub extents: Option<Extents>,
    /// Its blocks lie in the realtime section.
    pub realtime: bool,
    /// Bytes that a new fork has in the inode, whose `bytes` are made later.
    new_room: usize,
}

/// Extents in order: mostly one.
pub(crate) type Extents = SmallVec<[Extent; 1]>;

/// Where a run of a fork's blocks lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// The first block; `None` in a hole.
    pub start: Option<FsBlock>,
    /// Allocated and never written.
    pub unwritten: bool,
    /// Blocks, at least 1.
    pub count: u64,
}

/// Where the first blocks of a range lie, as far as they lie together.
pub(crate) fn lookup(extents: &[Extent], range: Range<u64>) -> Mapped {
    let Range { start: offset, end } = range;
    let next = extents.partition_point(|extent| extent.end() <= offset);
    let want = end.saturating_sub(offset).max(1);
    match extents.get(next) {
        Some(extent) if extent.offset <= offset => {
            let skip = offset - extent.offset;
            Mapped {
                start: Some(extent.start + skip),
                unwritten: extent.unwritten,
                count: (u64::from(extent.count) - skip).min(want),
            }
        }
        Some(extent) => {
            Mapped { start: None, unwritten: false, count: (extent.offset - offset).min(want) }
        }
        None => Mapped { start: None, unwritten: false, count: want },
    }
}

/// Runs of blocks: mostly one.
pub(crate) type Runs = SmallVec<[(FsBlock, u32); 1]>;

/// The runs of blocks that hold a range of the fork's blocks. None if one of them has no block or
/// was never written.
pub(crate) fn runs(extents: &[Extent], range: Range<u64>) -> Option<Runs> {
    let (mut runs, mut at) = (Runs::new(), range.start);
    while at < range.end {
        let mapped = lookup(extents, at..range.end);
        let start = mapped.start.filter(|_| !mapped.unwritten)?;
        runs.push((start, mapped.count as u32));
        at += mapped.count;
    }
    Some(runs)
}

/// Adds extents in order, each checked alone and against the one before.
struct Collector<'a> {
    geometry: &'a Geometry,
    extents: Vec<Extent>,
    realtime: bool,
    limit: u64,
    at: At,
}

impl Collector<'_> {
    fn push(&mut self, extent: Extent, at: At) -> Result<(), Corrupt> {
        extent.check(self.geometry, self.realtime, at)?;
        let end = self.extents.last().map_or(0, Extent::end);
        if extent.offset < end {
            return Err(CorruptKind::ExtentOrder { offset: extent.offset, end }.at(at));
        }
        let (found, expected) = (self.extents.len() as u64 + 1, self.limit);
        if found > expected {
            return Err(CorruptKind::ExtentCount { found, expected }.at(self.at));
        }
        self.extents.push(extent);
        Ok(())
    }
}

impl Fork {
    /// The fork without its extents read.
    pub fn new(format: ForkFormat, bytes: Vec<u8>, count: u64) -> Fork {
        let none = matches!(format, ForkFormat::Local | ForkFormat::Device | ForkFormat::MetaBtree);
        let extents = none.then(Extents::new);
        Fork { format, bytes, count, extents, realtime: false, new_room: 0 }
    }

    /// A fork without anything, that has so many bytes of the inode.
    pub fn empty(room: usize) -> Fork {
        let (format, extents) = (ForkFormat::Extents, Some(Extents::new()));
        Fork { format, bytes: Vec::new(), count: 0, extents, realtime: false, new_room: room }
    }

    /// The same fork in the realtime section, or not.
    pub fn of_realtime(self, realtime: bool) -> Fork {
        Fork { realtime, ..self }
    }

    /// Bytes that it has in the inode.
    pub fn room(&self) -> usize {
        if self.bytes.is_empty() { self.new_room } else { self.bytes.len() }
    }

    /// Gives a new fork its bytes: before its list takes another form or another place.
    pub fn make_bytes(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(self.new_room, 0);
            if self.format == ForkFormat::Extents {
                self.write_list();
            }
        }
    }

    /// Brings the bytes of a list in step with it.
    fn write_list(&mut self) {
        let Fork { bytes, extents, .. } = self;
        let extents = extents.as_deref().expect("the extents were read");
        bytes.fill(0);
        for (extent, slot) in extents.iter().zip(bytes.chunks_exact_mut(EXTENT_SIZE)) {
            extent.write(slot);
        }
    }

    /// Appends what the fork holds, in `used` bytes.
    pub fn append_to(&self, used: usize, to: &mut Vec<u8>) {
        let end = to.len() + used;
        match &self.extents {
            Some(extents) if self.format == ForkFormat::Extents && self.bytes.is_empty() => {
                for extent in extents {
                    to.extend_from_slice(&extent.record());
                }
            }
            _ => to.extend_from_slice(&self.bytes[..used.min(self.bytes.len())]),
        }
        to.resize(end, 0);
    }
}

impl Reader {
    /// Reads the extents of a fork, sorted and checked. `visit` sees the parts of a btree. May wait
    /// for the device.
    ///
    /// # Errors
    /// The first check that fails; the device failed.
    pub fn read_extents(
        &self,
        cx: &mut Cx,
        ino: Ino,
        fork: &Fork,
        visit: &mut dyn FnMut(MapPart),
    ) -> Result<Vec<Extent>, Fault> {
        let at = At::Inode(ino);
        let mut out = Collector {
            geometry: &self.geometry,
            extents: Vec::new(),
            realtime: fork.realtime,
            limit: fork.count,
            at,
        };
        match fork.format {
            ForkFormat::Local | ForkFormat::Device | ForkFormat::MetaBtree => {}
            ForkFormat::Extents => {
                let bytes = fork.count as usize * EXTENT_SIZE;
                let kind = CorruptKind::Short { what: "list of extents", bytes };
                let data = fork.bytes.get(..bytes).ok_or_else(|| kind.at(at))?;
                extent::list(data).try_for_each(|extent| out.push(extent, at))?;
            }
            ForkFormat::Btree => {
                let root = MapRoot::parse(&fork.bytes, at)?;
                let (left, near) = (self.geometry.blocks_count(), Neighbours::default());
                let mut walk = Walk { ino, left, visit, near };
                for index in 0..root.len() {
                    let (block, level) = (root.pointer(index), root.level - 1);
                    let first = self.walk(cx, FsBlock(block), level, &mut walk, &mut out)?;
                    walk.compare(root.key(index), first, at);
                }
                walk.end(at);
            }
        }
        let (found, expected) = (out.extents.len() as u64, fork.count);
        if found != expected {
            return Err(CorruptKind::ExtentCount { found, expected }.at(at).into());
        }
        Ok(out.extents)
    }

    /// Reads the subtree below `block`; answers the first file block that it says it has.
    fn walk(
        &self,
        cx: &mut Cx,
        block: FsBlock,
        level: u16,
        walk: &mut Walk<'_>,
        out: &mut Collector<'_>,
    ) -> Result<Option<u64>, Fault> {
        let (ino, what) = (walk.ino, Kind::Bmap.name());
        let at = At::Block(self.geometry.sector(block).0);
        if !self.geometry.extent_valid(block, 1) {
            let kind = CorruptKind::BtreePointer { what, index: 0, block: block.0 };
            return Err(kind.at(At::Inode(ino)).into());
        }
        walk.left = walk
            .left
            .checked_sub(1)
            .ok_or_else(|| CorruptKind::BtreeLoop { what }.at(At::Inode(ino)))?;
        (walk.visit)(MapPart::Block(block));
        let want = ReadRequest { kinds: &[Kind::Bmap], owner: Some(ino.0), at };
        let (_, data) = self.read(cx, &[(block, 1)], &want)?;
        let node = walk.node(block, &data, level, at)?;
        if level == 0 {
            for index in 0..node.len() {
                out.push(Extent::read(node.record(index)), at)?;
            }
            return Ok((!node.is_empty()).then(|| Extent::read(node.record(0)).offset));
        }
        for index in 0..node.len() {
            let first = self.walk(cx, FsBlock(node.pointer(index)), level - 1, walk, out)?;
            walk.compare(u64_at(node.key(index), 0), first, at);
        }
        Ok((!node.is_empty()).then(|| u64_at(node.key(0), 0)))
    }
}

/// A part of the btree of a fork, as it is met.
pub enum MapPart {
    /// A block of it.
    Block(FsBlock),
    /// A key that is not that of its child, or a neighbour. Reading from the root needs none.
    Flaw(Corrupt),
}

/// One walk over a tree.
struct Walk<'a> {
    ino: Ino,
    /// Blocks that may still come: a tree has no more than the file system.
    left: u64,
    visit: &'a mut dyn FnMut(MapPart),
    near: Neighbours,
}

impl Walk<'_> {
    fn end(&mut self, at: At) {
        if let Some(block) = self.near.dangling() {
            let what = Kind::Bmap.name();
            (self.visit)(MapPart::Flaw(CorruptKind::BtreeSibling { what, block }.at(at)));
        }
    }

    /// The node in a block, whose neighbours are compared.
    fn node<'n>(
        &mut self,
        block: FsBlock,
        data: &'n [u8],
        level: u16,
        at: At,
    ) -> Result<Node<'n>, Corrupt> {
        let node = Node::parse_trusted(Kind::Bmap, data, Some(level), at)?;
        if self.near.next(block.0, &node).is_some() {
            let (what, block) = (Kind::Bmap.name(), block.0);
            (self.visit)(MapPart::Flaw(CorruptKind::BtreeSibling { what, block }.at(at)));
        }
        Ok(node)
    }

    fn compare(&mut self, key: u64, child: Option<u64>, at: At) {
        if let Some(child) = child.filter(|&child| child != key) {
            let what = Kind::Bmap.name();
            (self.visit)(MapPart::Flaw(CorruptKind::MapKey { what, key, child }.at(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_tell_extents_and_holes() {
        let extent = |offset, start, count, unwritten| Extent {
            offset,
            start: FsBlock(start),
            count,
            unwritten,
        };
        let list = [extent(2, 100, 3, false), extent(5, 200, 2, true), extent(10, 300, 1, false)];
        let mapped = |offset, want| lookup(&list, offset..offset + want);
        assert_eq!(mapped(0, 9), Mapped { start: None, unwritten: false, count: 2 });
        assert_eq!(mapped(3, 9).start, Some(FsBlock(101)));
        assert_eq!(mapped(3, 9).count, 2);
        assert!(mapped(6, 9).unwritten);
        assert_eq!(mapped(7, 9).count, 3);
        assert_eq!(mapped(11, 9).count, 9);
        assert_eq!(runs(&list, 2..5), Some(smallvec::smallvec![(FsBlock(100), 3)]));
        assert_eq!(runs(&list, 4..6), None);
        assert_eq!(runs(&list, 9..11), None);
    }
}
