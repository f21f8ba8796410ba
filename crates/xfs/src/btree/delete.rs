//! Taking records out of a tree.

use rt::Cx;

use super::{Cursor, Frame, Store, Tree};
use crate::error::Result;
use crate::format::Kind;
use crate::trans::Trans;

impl<S: Store> Tree<'_, S> {
    /// Takes the record at the cursor out. Cursors into this tree are no longer good.
    ///
    /// # Errors
    /// What the device and the store's [`free`](Store::free) say.
    pub fn delete(&mut self, cx: &mut Cx, trans: &mut Trans, mut cursor: Cursor) -> Result<()> {
        let last = self.is_last(&cursor);
        let leaf = cursor.path[0].clone();
        self.edit(trans, &leaf, |layout, data| layout.remove(data, leaf.index, 1));
        if self.len(&leaf) > 0 {
            self.refresh(trans, &cursor, 0);
        }
        self.rebalance(cx, trans, &mut cursor, 0)?;
        if last {
            self.tell_last_of_all(cx, trans)?;
        }
        Ok(())
    }

    /// Whether the cursor stands at the last record of the tree.
    pub(super) fn is_last(&mut self, cursor: &Cursor) -> bool {
        let mut frames = cursor.path.iter();
        frames.all(|frame| frame.index + 1 == self.len(frame))
    }

    fn tell_last_of_all(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        if !self.store.wants_last() {
            return Ok(());
        }
        let end = self.find_le(cx, trans, [u64::MAX; 3])?;
        let last = end.map(|cursor| self.record(&cursor));
        self.store.last_changed(trans, last.as_ref().map(|record| &record[..]));
        Ok(())
    }

    /// Fills the block at `level` up again, or does without it, where it is less than half full.
    fn rebalance(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cursor: &mut Cursor,
        level: usize,
    ) -> Result<()> {
        if level + 1 == cursor.path.len() {
            return self.shrink(cx, trans, cursor);
        }
        let frame = cursor.path[level].clone();
        let (len, min, max) =
            self.with(&frame, |layout, data| (layout.len(data), layout.min(), layout.max));
        if len >= min {
            return Ok(());
        }
        let left = self.neighbour(cx, trans, cursor, level, -1)?;
        let right = match &left {
            Some(left) if self.len(left) + len <= max => None,
            _ => self.neighbour(cx, trans, cursor, level, 1)?,
        };
        match (left, right) {
            (Some(left), _) if self.len(&left) + len <= max => {
                self.merge(cx, trans, &left, &frame)?;
                self.forget(trans, cursor, level, 0);
                cursor.path[level + 1].index -= 1;
                cursor.path[level] = left;
            }
            (_, Some(right)) if self.len(&right) + len <= max => {
                self.merge(cx, trans, &frame, &right)?;
                self.forget(trans, cursor, level, 1);
            }
            (Some(left), right) => {
                let more = self.len(&left);
                match right.filter(|_| true).map(|right| (self.len(&right), right)) {
                    Some((count, right)) if count > more => {
                        self.borrow(trans, cursor, level, right, 1);
                    }
                    _ => self.borrow(trans, cursor, level, left, -1),
                }
                return Ok(());
            }
            (None, Some(right)) => {
                self.borrow(trans, cursor, level, right, 1);
                return Ok(());
            }
            // An only child: its parent is a root in an inode, or was about to be done without.
            (None, None) => {}
        }
        self.refresh(trans, cursor, level);
        self.refresh(trans, cursor, level + 1);
        self.rebalance(cx, trans, cursor, level + 1)
    }

    /// Evens a block out with its neighbour.
    fn borrow(
        &mut self,
        trans: &mut Trans,
        cursor: &Cursor,
        level: usize,
        neighbour: Frame,
        side: isize,
    ) {
        let frame = cursor.path[level].clone();
        let count = (self.len(&neighbour) - self.len(&frame)) / 2;
        self.transfer(trans, &neighbour, side, &frame, count.max(1));
        self.refresh_neighbour(trans, cursor, level, side, &neighbour);
        self.refresh(trans, cursor, level);
    }

    /// Moves everything from a block to its left neighbour, and frees it.
    fn merge(&mut self, cx: &mut Cx, trans: &mut Trans, left: &Frame, right: &Frame) -> Result<()> {
        let count = self.len(right);
        self.transfer(trans, right, 1, left, count);
        let (before, _) = self.siblings(left);
        let (_, beyond) = self.siblings(right);
        self.set_siblings(trans, left, before, beyond);
        if let Some(block) = beyond {
            let beyond = self.read(cx, trans, block, left.level)?;
            let (_, next) = self.siblings(&beyond);
            self.set_siblings(trans, &beyond, Some(left.block), next);
        }
        self.discard(cx, trans, right)
    }

    /// Takes the child `offset` behind the cursor's out of the parent.
    fn forget(&mut self, trans: &mut Trans, cursor: &Cursor, level: usize, offset: usize) {
        let parent = cursor.path[level + 1].clone();
        self.edit(trans, &parent, |layout, data| layout.remove(data, parent.index + offset, 1));
    }

    /// Gives a block back.
    fn discard(&mut self, cx: &mut Cx, trans: &mut Trans, frame: &Frame) -> Result<()> {
        let buf = frame.buf.as_ref().expect("a block of its own");
        trans.invalidate(buf);
        self.store.free(cx, trans, frame.block)
    }

    /// Does without a root that has one child.
    fn shrink(&mut self, cx: &mut Cx, trans: &mut Trans, cursor: &mut Cursor) -> Result<()> {
        let root = cursor.path.last().expect("a tree has a root").clone();
        if root.level == 0 || self.len(&root) > 1 {
            return Ok(());
        }
        let mut root = Frame { index: 0, ..root };
        if root.buf.is_some() {
            let child = self.with(&root, |layout, data| layout.pointer(data, 0));
            self.store.set_root(trans, child, u32::from(root.level));
            return self.discard(cx, trans, &root);
        }
        // A root in an inode takes in its only child, unless that is a leaf of a block map.
        let lowest = u16::from(self.shape.kind == Kind::Bmap);
        while root.level > lowest && self.len(&root) == 1 {
            let child = self.child(cx, trans, &root)?;
            let below = Frame { level: root.level - 1, ..root.clone() };
            let room = self.with(&below, |layout, _| layout.max);
            let len = self.len(&child);
            if len > room {
                break;
            }
            let entries = self.with(&child, |layout, data| layout.take(data, 0, len));
            self.edit(trans, &root, |layout, data| layout.remove(data, 0, 1));
            self.edit(trans, &below, |layout, data| layout.put(data, 0, &entries));
            self.discard(cx, trans, &child)?;
            root = below;
            self.store.set_root(trans, u64::MAX, u32::from(root.level) + 1);
        }
        Ok(())
    }
}
