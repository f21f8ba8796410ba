//! Putting records into a tree.

use rt::Cx;

use super::node::Layout;
use super::{Cursor, Frame, Store, Tree, key};
use crate::error::Result;
use crate::format::{NULL32, NULL64, btree, u32_at, u64_at};
use crate::trans::Trans;

impl<S: Store> Tree<'_, S> {
    /// Puts a record into its place. Where this fails for want of space the tree is as good as
    /// before.
    ///
    /// # Errors
    /// What the store's [`allocate`](Store::allocate) says; a tree that holds the record already.
    pub fn insert(&mut self, cx: &mut Cx, trans: &mut Trans, record: &[u8]) -> Result<()> {
        let kind = self.shape.kind;
        let order = key::record_order(kind, record);
        let mut cursor = self.descend(cx, trans, order)?;
        let (leaf, index) = (&cursor.path[0], cursor.path[0].index);
        let twice = index > 0
            && self.with(leaf, |layout, data| {
                key::record_order(kind, layout.entry(data, index - 1)) == order
            });
        if twice {
            return Err(self.broken("a record is there already"));
        }
        self.make_room(cx, trans, &mut cursor, 0)?;
        let leaf = &cursor.path[0];
        self.edit(trans, leaf, |layout, data| layout.insert(data, leaf.index, record, 0));
        self.refresh(trans, &cursor, 0);
        self.tell_last(trans, &cursor);
        Ok(())
    }

    /// Whether a record of this order can come in without a new block.
    ///
    /// # Errors
    /// A tree that is wrong; the device failed.
    pub fn takes_in(&mut self, cx: &mut Cx, trans: &mut Trans, order: key::Order) -> Result<bool> {
        let cursor = self.descend(cx, trans, order)?;
        Ok(self.has_room(&cursor.path[0]))
    }

    /// Sees to it that the block at `level` has room for one more entry; the cursor then stands at
    /// the same place, maybe in another block. The tree is whole after each step of this.
    fn make_room(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        level: usize,
    ) -> Result<()> {
        if self.has_room(&cursor.path[level]) {
            return Ok(());
        }
        let frame = cursor.path[level].clone();
        if level + 1 == cursor.path.len() {
            self.grow(cx, trans, cursor)?;
            if frame.buf.is_none() {
                return Ok(());
            }
        }
        if self.shift_left(cx, trans, cursor, level)?
            || self.shift_right(cx, trans, cursor, level)?
        {
            return Ok(());
        }
        self.make_room(cx, trans, cursor, level + 1)?;
        self.split(cx, trans, cursor, level)
    }

    /// A new block of the tree, empty.
    fn make(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64, level: u16) -> Result<Frame> {
        let block = self.store.allocate(cx, trans, near)?;
        let kind = self.shape.kind;
        let (map, expect) = (self.store.map(block), self.store.expect(block));
        let buf = trans.get_buf(cx, &[map], key::ops(kind))?;
        buf.zero();
        buf.with_mut(|data| btree::init(kind, data, level, &expect));
        trans.log_buf(&buf, 0, self.shape.header - 1);
        Ok(Frame { buf: Some(buf), block, level, index: 0 })
    }

    /// Puts a root above the root, with that as its only child.
    fn grow(&mut self, cx: &mut Cx, trans: &mut Trans, cursor: &mut Cursor) -> Result<()> {
        let top = cursor.path.len() - 1;
        let root = cursor.path[top].clone();
        if root.buf.is_none() {
            return self.grow_in_inode(cx, trans, cursor);
        }
        let kind = self.shape.kind;
        let new = self.make(cx, trans, root.block, root.level + 1)?;
        let keys = self.with(&root, |layout, data| key::of_block(kind, layout, data));
        self.edit(trans, &new, |layout, data| layout.insert(data, 0, &keys, root.block));
        self.store.set_root(trans, new.block, u32::from(new.level) + 1);
        cursor.path.push(new);
        Ok(())
    }

    /// Moves the content of a root in an inode into a block, so that the root has one child.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub fn push_down(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        let root = self.root(cx, trans)?;
        let mut cursor = Cursor { path: smallvec::smallvec![root] };
        self.grow_in_inode(cx, trans, &mut cursor)
    }

    /// Moves the content of a root in an inode into a block, which becomes its only child.
    fn grow_in_inode(&mut self, cx: &mut Cx, trans: &mut Trans, cursor: &mut Cursor) -> Result<()> {
        let kind = self.shape.kind;
        let top = cursor.path.len() - 1;
        let mut root = cursor.path[top].clone();
        let near = match root.level {
            0 => u64::MAX,
            _ => self.with(&root, |layout, data| layout.pointer(data, 0)),
        };
        let mut new = self.make(cx, trans, near, root.level)?;
        new.index = root.index;
        let entries = self.with(&root, |layout, data| layout.take(data, 0, layout.len(data)));
        self.edit(trans, &new, |layout, data| layout.put(data, 0, &entries));
        let keys = self.with(&new, |layout, data| key::of_block(kind, layout, data));
        self.edit(trans, &root, |layout, data| layout.remove(data, 0, entries.len()));
        root.level += 1;
        root.index = 0;
        self.edit(trans, &root, |layout, data| layout.insert(data, 0, &keys, new.block));
        self.store.set_root(trans, u64::MAX, u32::from(root.level) + 1);
        cursor.path[top] = new;
        cursor.path.push(root);
        Ok(())
    }

    /// A neighbour below the same parent: `side` is -1 or 1.
    pub(super) fn neighbour(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &Cursor,
        level: usize,
        side: isize,
    ) -> Result<Option<Frame>> {
        let mut parent = cursor.path[level + 1].clone();
        let Some(index) = parent.index.checked_add_signed(side) else { return Ok(None) };
        if index >= self.len(&parent) {
            return Ok(None);
        }
        parent.index = index;
        self.child(cx, trans, &parent).map(Some)
    }

    /// Brings the parent's keys of the neighbour in line with it.
    pub(super) fn refresh_neighbour(
        &mut self,
        trans: &mut Trans,
        cursor: &Cursor,
        level: usize,
        side: isize,
        neighbour: &Frame,
    ) {
        let mut beside = cursor.clone();
        beside.path[level] = neighbour.clone();
        let index = &mut beside.path[level + 1].index;
        *index = index.checked_add_signed(side).expect("the neighbour is there");
        self.refresh(trans, &beside, level);
    }

    /// Moves `count` entries between a block and its neighbour on the left (`side` -1) or right.
    pub(super) fn transfer(
        &mut self,
        trans: &mut Trans,
        from: &Frame,
        from_side: isize,
        to: &Frame,
        count: usize,
    ) {
        let first = match from_side {
            1 => 0,
            _ => self.len(from) - count,
        };
        let entries = self.with(from, |layout, data| layout.take(data, first, first + count));
        let at = if from_side == 1 { self.len(to) } else { 0 };
        self.edit(trans, to, |layout, data| layout.put(data, at, &entries));
        self.edit(trans, from, |layout, data| layout.remove(data, first, count));
    }

    fn has_room(&mut self, frame: &Frame) -> bool {
        self.with(frame, |layout: &Layout, data| layout.len(data) < layout.max)
    }

    /// Gives the first entry to the left neighbour, if there is one with room.
    fn shift_left(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        level: usize,
    ) -> Result<bool> {
        if cursor.path[level].index == 0 {
            return Ok(false);
        }
        let Some(left) = self.neighbour(cx, trans, cursor, level, -1)? else { return Ok(false) };
        if !self.has_room(&left) {
            return Ok(false);
        }
        let frame = cursor.path[level].clone();
        self.transfer(trans, &frame, 1, &left, 1);
        cursor.path[level].index -= 1;
        self.refresh_neighbour(trans, cursor, level, -1, &left);
        self.refresh(trans, cursor, level);
        Ok(true)
    }

    /// Gives the last entry to the right neighbour, if there is one with room.
    fn shift_right(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        level: usize,
    ) -> Result<bool> {
        let frame = cursor.path[level].clone();
        if frame.index + 1 >= self.len(&frame) {
            return Ok(false);
        }
        let Some(right) = self.neighbour(cx, trans, cursor, level, 1)? else { return Ok(false) };
        if !self.has_room(&right) {
            return Ok(false);
        }
        self.transfer(trans, &frame, -1, &right, 1);
        self.refresh_neighbour(trans, cursor, level, 1, &right);
        self.refresh(trans, cursor, level);
        Ok(true)
    }

    /// Moves the upper half of a block into a new one on its right. The parent has room.
    fn split(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        level: usize,
    ) -> Result<()> {
        let kind = self.shape.kind;
        let frame = cursor.path[level].clone();
        let mut new = self.make(cx, trans, frame.block, frame.level)?;
        let len = self.len(&frame);
        let middle = len.div_ceil(2);
        self.transfer(trans, &frame, -1, &new, len - middle);
        self.link_right(cx, trans, &frame, &new)?;
        let keys = self.with(&new, |layout, data| key::of_block(kind, layout, data));
        let parent = cursor.path[level + 1].clone();
        self.edit(trans, &parent, |layout, data| {
            layout.insert(data, parent.index + 1, &keys, new.block)
        });
        self.refresh(trans, cursor, level);
        self.refresh(trans, cursor, level + 1);
        if frame.index >= middle {
            new.index = frame.index - middle;
            cursor.path[level] = new;
            cursor.path[level + 1].index += 1;
        }
        Ok(())
    }

    /// Links a new block in on the right of one.
    fn link_right(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        frame: &Frame,
        new: &Frame,
    ) -> Result<()> {
        let (left, right) = self.siblings(frame);
        self.set_siblings(trans, new, Some(frame.block), right);
        self.set_siblings(trans, frame, left, Some(new.block));
        if let Some(right) = right {
            let beyond = self.read(cx, trans, right, frame.level)?;
            let (_, next) = self.siblings(&beyond);
            self.set_siblings(trans, &beyond, Some(new.block), next);
        }
        Ok(())
    }

    /// The blocks on the left and the right at the same level.
    pub(super) fn siblings(&mut self, frame: &Frame) -> (Option<u64>, Option<u64>) {
        let long = self.shape.is_long();
        let buf = frame.buf.as_ref().expect("a block of its own");
        buf.with(|data| match long {
            true => [8, 16].map(|at| Some(u64_at(data, at)).filter(|&block| block != NULL64)),
            false => [8, 12]
                .map(|at| Some(u32_at(data, at)).filter(|&block| block != NULL32).map(u64::from)),
        })
        .into()
    }

    pub(super) fn set_siblings(
        &mut self,
        trans: &mut Trans,
        frame: &Frame,
        left: Option<u64>,
        right: Option<u64>,
    ) {
        let buf = frame.buf.as_ref().expect("a block of its own");
        buf.with_mut(|data| btree::set_siblings(self.shape.kind, data, left, right));
        trans.log_buf(buf, 8, if self.shape.is_long() { 23 } else { 15 });
    }
}
