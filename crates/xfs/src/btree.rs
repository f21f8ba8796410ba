//! The btrees of XFS, changed in place: one code for the six kinds in each allocation group and for
//! the block maps of files.
//!
//! A [`Store`] says where a tree's root is kept and where its blocks come from; everything else is
//! here. [`Cursor`] is a path from the root to a record. Blocks are at least half full, but for the
//! root; a block that overflows first gives to a neighbour below the same parent, then splits in
//! halves; one that falls below the half takes from a neighbour, or is merged with it.
//!
//! The blocks on the way are locked by the transaction until it ends. Whoever changes a tree holds
//! the lock of what its root lies in: the AGF, the AGI, the inode.
//!
//! Source: "XFS Algorithms and Data Structures", chapters on the btrees.

mod delete;
mod insert;
pub(crate) mod key;
pub(crate) mod node;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use crate::buf::{Buf, BufMap};
use crate::error::Result;
use crate::format::btree::{self, Shape};
use crate::format::{At, CorruptKind, Expect, Kind};
use crate::trans::Trans;
use key::{Order, ops};
use node::Layout;

/// Bytes of the longest record.
pub(crate) const RECORD_MAX: usize = 24;

/// A record as it lies in a leaf; the rest is zero.
pub(crate) type Record = [u8; RECORD_MAX];

fn record_of(entry: &[u8]) -> Record {
    let mut record = [0; RECORD_MAX];
    record[..entry.len()].copy_from_slice(entry);
    record
}

/// Where a tree's root is kept, and where its blocks come from and go to.
pub(crate) trait Store {
    /// The kind of its blocks.
    fn kind(&self) -> Kind;

    /// Bytes of a block.
    fn block_size(&self) -> usize;

    /// Blocks of the tree that are buffers: its root among them, unless that lies in an inode. The
    /// root's block, and the number of levels with the root.
    fn root(&self) -> (u64, u32);

    /// The root is another block, or lies higher: `levels` counts it.
    fn set_root(&mut self, trans: &mut Trans, block: u64, levels: u32);

    /// Where a block lies on the device.
    fn map(&self, block: u64) -> BufMap;

    /// What a block of the tree says of itself.
    fn expect(&self, block: u64) -> Expect;

    /// Where errors say that a block lies.
    fn at(&self, block: u64) -> At;

    /// A new block, near that one.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace); the device failed.
    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64) -> Result<u64>;

    /// The tree no longer uses a block. Its buffer is invalidated by the caller.
    ///
    /// # Errors
    /// The device failed.
    fn free(&mut self, cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()>;

    /// A block that was read lately and that is of the tree still, if it is of the tree's kind.
    fn recent(&self, _cx: &Cx, _block: u64) -> Option<Arc<Buf>> {
        None
    }

    /// A block was read.
    fn note_read(&self, _cx: &Cx, _block: u64, _buf: &Arc<Buf>) {}

    /// Whether it wants to know the tree's last record.
    fn wants_last(&self) -> bool {
        false
    }

    /// The last record of the tree may have changed (free space by size keeps the longest).
    fn last_changed(&mut self, _trans: &mut Trans, _last: Option<&[u8]>) {}

    /// The root's bytes, where it lies in an inode.
    fn inode_root(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

/// A block on the way from the root to a record.
#[derive(Clone)]
pub(crate) struct Frame {
    /// None for a root in an inode.
    buf: Option<Arc<Buf>>,
    block: u64,
    level: u16,
    /// The record, or the child that the way goes on with.
    index: usize,
}

/// A place in a tree: the leaf first, the root last.
#[derive(Clone, Default)]
pub(crate) struct Cursor {
    path: SmallVec<[Frame; 4]>,
}

impl Cursor {
    /// Where its record is.
    pub fn leaf(&self) -> LeafPlace {
        LeafPlace { block: self.path[0].block, index: self.path[0].index }
    }
}

/// The place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeafPlace {
    /// The leaf's block.
    pub block: u64,
    /// The record's number in it.
    pub index: usize,
}

/// A tree that is read or changed in a transaction.
pub(crate) struct Tree<'a, S> {
    pub store: &'a mut S,
    shape: Shape,
}

impl<'a, S: Store> Tree<'a, S> {
    pub fn new(store: &'a mut S) -> Tree<'a, S> {
        let shape = Shape::of(store.kind());
        Tree { store, shape }
    }

    /// How the block of a frame is laid out.
    fn layout(&mut self, frame: &Frame) -> Layout {
        match (&frame.buf, self.store.inode_root()) {
            (None, Some(root)) => Layout::in_inode(self.shape, root.len(), frame.level),
            _ => Layout::block(self.shape, self.store.block_size(), frame.level),
        }
    }

    fn with<T>(&mut self, frame: &Frame, f: impl FnOnce(&Layout, &[u8]) -> T) -> T {
        let layout = self.layout(frame);
        match &frame.buf {
            Some(buf) => buf.with(|data| f(&layout, data)),
            None => f(&layout, self.store.inode_root().expect("a root in an inode")),
        }
    }

    /// Changes a block; `f` returns the range of bytes to log besides the header.
    fn edit(
        &mut self,
        trans: &mut Trans,
        frame: &Frame,
        f: impl FnOnce(&Layout, &mut [u8]) -> node::Dirty,
    ) {
        let layout = self.layout(frame);
        let Some(buf) = &frame.buf else {
            f(&layout, self.store.inode_root().expect("a root in an inode"));
            return;
        };
        let dirty = buf.with_mut(|data| f(&layout, data));
        trans.log_ranges(buf, dirty.into_iter().map(|(first, end)| first..end));
    }

    fn len(&mut self, frame: &Frame) -> usize {
        self.with(frame, |layout, data| layout.len(data))
    }

    /// The root's frame.
    fn root(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<Frame> {
        let (block, levels) = self.store.root();
        let level = levels as u16 - 1;
        if self.store.inode_root().is_some() {
            return Ok(Frame { buf: None, block: u64::MAX, level, index: 0 });
        }
        self.read(cx, trans, block, level)
    }

    /// Reads a block and checks its level and count.
    fn read(&mut self, cx: &mut Cx, trans: &mut Trans, block: u64, level: u16) -> Result<Frame> {
        let (kind, at) = (self.shape.kind, self.store.at(block));
        let recent = self.store.recent(cx, block).and_then(|buf| trans.read_again(cx, buf));
        if let Some(buf) = recent.filter(|buf| buf.is_of(&[kind])) {
            buf.with(|data| btree::Node::parse_trusted(kind, data, Some(level), at).map(|_| ()))?;
            return Ok(Frame { buf: Some(buf), block, level, index: 0 });
        }
        let map = self.store.map(block);
        let buf = trans.read_buf(cx, &[map], ops(kind))?;
        let owner = self.store.expect(block);
        buf.with(|data| {
            btree::Node::parse_trusted(kind, data, Some(level), at)?;
            crate::format::verifier::verify_identity(kind, data, &owner, at)
        })?;
        self.store.note_read(cx, block, &buf);
        Ok(Frame { buf: Some(buf), block, level, index: 0 })
    }

    fn child(&mut self, cx: &mut Cx, trans: &mut Trans, frame: &Frame) -> Result<Frame> {
        let index = frame.index;
        let block = self.with(frame, |layout, data| layout.pointer(data, index));
        self.read(cx, trans, block, frame.level - 1)
    }

    /// The place of the last record that is not above `order`: `index` of the leaf is that record's
    /// number plus one, hence 0 where all are above.
    fn descend(&mut self, cx: &mut Cx, trans: &mut Trans, order: Order) -> Result<Cursor> {
        let kind = self.shape.kind;
        let mut path: SmallVec<[Frame; 4]> = SmallVec::new();
        let mut frame = self.root(cx, trans)?;
        loop {
            let count = self.with(&frame, |layout, data| {
                layout.partition(data, |entry| key::order(kind, layout.level, entry) <= order)
            });
            if frame.level == 0 {
                frame.index = count;
                path.insert(0, frame);
                return Ok(Cursor { path });
            }
            frame.index = count.saturating_sub(1);
            let child = self.child(cx, trans, &frame)?;
            path.insert(0, frame);
            frame = child;
        }
    }

    /// The last record that is not above `order`.
    pub fn find_le(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        order: Order,
    ) -> Result<Option<Cursor>> {
        let mut cursor = self.descend(cx, trans, order)?;
        let leaf = &mut cursor.path[0];
        if leaf.index == 0 {
            return Ok(None);
        }
        leaf.index -= 1;
        Ok(Some(cursor))
    }

    /// The last record that is not above `order`; where all are above, the first one.
    pub fn find_le_or_first(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        order: Order,
    ) -> Result<Option<Cursor>> {
        let mut cursor = self.descend(cx, trans, order)?;
        let leaf = &mut cursor.path[0];
        if leaf.index > 0 {
            leaf.index -= 1;
            return Ok(Some(cursor));
        }
        let empty = self.len(&cursor.path[0]) == 0;
        Ok((!empty).then_some(cursor))
    }

    /// The first record that is not below `order`.
    pub fn find_ge(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        order: Order,
    ) -> Result<Option<Cursor>> {
        let Some(mut cursor) = self.find_le_or_first(cx, trans, order)? else { return Ok(None) };
        let record = self.record(&cursor);
        if key::record_order(self.shape.kind, &record) >= order {
            return Ok(Some(cursor));
        }
        Ok(self.next(cx, trans, &mut cursor)?.then_some(cursor))
    }

    /// The record of exactly that order.
    pub fn find(&mut self, cx: &mut Cx, trans: &mut Trans, order: Order) -> Result<Option<Cursor>> {
        let Some(cursor) = self.find_le(cx, trans, order)? else { return Ok(None) };
        let record = self.record(&cursor);
        Ok((key::record_order(self.shape.kind, &record) == order).then_some(cursor))
    }

    /// The record of exactly that order, where it is at this place of a leaf. The cursor knows
    /// nothing above the leaf, so that it is good for [`Tree::record`], and for [`Tree::update`]
    /// with a record of the same keys.
    pub fn in_leaf(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        place: LeafPlace,
        order: Order,
    ) -> Result<Option<Cursor>> {
        let LeafPlace { block, index } = place;
        let leaf = self.read(cx, trans, block, 0)?;
        if index >= self.len(&leaf) {
            return Ok(None);
        }
        let cursor = Cursor { path: smallvec::smallvec![Frame { index, ..leaf }] };
        let record = self.record(&cursor);
        Ok((key::record_order(self.shape.kind, &record) == order).then_some(cursor))
    }

    /// The record at the cursor.
    pub fn record(&mut self, cursor: &Cursor) -> Record {
        let leaf = &cursor.path[0];
        self.with(leaf, |layout, data| record_of(layout.entry(data, leaf.index)))
    }

    /// The records whose ranges, from start to high key, have one of these blocks, in order.
    /// For the reverse map, whose nodes know how far their children reach.
    pub fn overlapping(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        blocks: RangeInclusive<u32>,
    ) -> Result<Vec<Record>> {
        let root = self.root(cx, trans)?;
        let mut found = Vec::new();
        self.overlapping_below(cx, trans, &root, &blocks, &mut found)?;
        Ok(found)
    }

    fn overlapping_below(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        frame: &Frame,
        blocks: &RangeInclusive<u32>,
        found: &mut Vec<Record>,
    ) -> Result<()> {
        let hits: Vec<usize> = self.with(frame, |layout, data| {
            let near = (0..layout.len(data)).filter(|&index| {
                let reach = key::reach(layout, layout.entry(data, index));
                reach.start() <= blocks.end() && reach.end() >= blocks.start()
            });
            near.collect()
        });
        for index in hits {
            let frame = Frame { index, ..frame.clone() };
            if frame.level == 0 {
                let path = smallvec::smallvec![frame];
                found.push(self.record(&Cursor { path }));
            } else {
                let child = self.child(cx, trans, &frame)?;
                self.overlapping_below(cx, trans, &child, blocks, found)?;
            }
        }
        Ok(())
    }

    /// Moves to the next record. False at the end; the cursor is where it was then.
    pub fn next(&mut self, cx: &mut Cx, trans: &mut Trans, cursor: &mut Cursor) -> Result<bool> {
        self.step(cx, trans, cursor, true)
    }

    /// Moves to the record before. False at the beginning; the cursor is where it was then.
    pub fn prev(&mut self, cx: &mut Cx, trans: &mut Trans, cursor: &mut Cursor) -> Result<bool> {
        self.step(cx, trans, cursor, false)
    }

    fn step(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        forward: bool,
    ) -> Result<bool> {
        for level in 0..cursor.path.len() {
            let frame = &cursor.path[level];
            let index = frame.index;
            let can = if forward { index + 1 < self.len(frame) } else { index > 0 };
            if !can {
                continue;
            }
            cursor.path[level].index = if forward { index + 1 } else { index - 1 };
            for below in (0..level).rev() {
                let mut child = self.child(cx, trans, &cursor.path[below + 1])?;
                if !forward {
                    child.index = self.len(&child).saturating_sub(1);
                }
                cursor.path[below] = child;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Puts another record in the place of the one at the cursor; it must keep the order.
    pub fn update(&mut self, trans: &mut Trans, cursor: &Cursor, record: &[u8]) {
        let leaf = &cursor.path[0];
        self.edit(trans, leaf, |layout, data| layout.replace(data, leaf.index, record));
        self.refresh(trans, cursor, 0);
        self.tell_last(trans, cursor);
    }

    /// Puts another record in the place of the one at the cursor, and where the order wants it.
    /// Cursors into this tree are no longer good.
    ///
    /// # Errors
    /// As [`Tree::delete`] and [`Tree::insert`].
    pub fn relocate(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: Cursor,
        record: &[u8],
    ) -> Result<()> {
        if self.stays(&cursor, record) {
            self.update(trans, &cursor, record);
            return Ok(());
        }
        self.delete(cx, trans, cursor)?;
        self.insert(cx, trans, record)
    }

    /// Whether a record would lie where the cursor stands, between the same neighbours.
    fn stays(&mut self, cursor: &Cursor, record: &[u8]) -> bool {
        let kind = self.shape.kind;
        let leaf = &cursor.path[0];
        let (new, index) = (key::record_order(kind, record), leaf.index);
        let (len, old, below, above) = self.with(leaf, |layout, data| {
            let order = |index: usize| key::record_order(kind, layout.entry(data, index));
            let len = layout.len(data);
            let below = (index > 0).then(|| order(index - 1));
            (len, order(index), below, (index + 1 < len).then(|| order(index + 1)))
        });
        debug_assert!(index < len, "a cursor stands at a record");
        // At an edge the next block may hold what lies between.
        let first = cursor.path[1..].iter().all(|frame| frame.index == 0);
        below.map_or(first || new >= old, |below| below < new)
            && match above {
                Some(above) => new < above,
                None => new <= old || self.is_last(cursor),
            }
    }

    /// Brings the keys above `level` in line with the blocks below them.
    fn refresh(&mut self, trans: &mut Trans, cursor: &Cursor, level: usize) {
        let kind = self.shape.kind;
        for level in level..cursor.path.len() - 1 {
            let keys =
                self.with(&cursor.path[level], |layout, data| key::of_block(kind, layout, data));
            let parent = &cursor.path[level + 1];
            let index = parent.index;
            let same = self.with(parent, |layout, data| {
                let entry = layout.entry(data, index);
                entry == &keys[..entry.len()]
            });
            if same {
                return;
            }
            self.edit(trans, parent, |layout, data| {
                let size = layout.entry_size();
                layout.replace(data, index, &keys[..size])
            });
        }
    }

    /// Gives the store the tree's last record where the cursor stands in the last leaf.
    fn tell_last(&mut self, trans: &mut Trans, cursor: &Cursor) {
        if !self.store.wants_last() {
            return;
        }
        for frame in &cursor.path[1..] {
            if frame.index + 1 != self.len(frame) {
                return;
            }
        }
        let last = self.with(&cursor.path[0], |layout, data| {
            let len = layout.len(data);
            (len > 0).then(|| record_of(layout.entry(data, len - 1)))
        });
        self.store.last_changed(trans, last.as_ref().map(|record| &record[..]));
    }

    /// The error for a tree that is not what a caller relies on.
    pub fn broken(&mut self, what: &'static str) -> crate::XfsError {
        let (block, _) = self.store.root();
        CorruptKind::TreeMismatch { tree: self.shape.kind.name(), what }
            .at(self.store.at(block))
            .into()
    }
}
