//! Putting extents into the tree.

use base::Errno;
use rt::Cx;
use zerocopy::IntoBytes;

use super::{Path, entry_count, insert_raw, key, remove_raw, set_count};
use crate::alloc::mballoc::{Purpose, Request};
use crate::bmap::Bmap;
use crate::format::extent::{self, ENTRY_SIZE, Extent, ExtentIdx};
use crate::trans::ext4_jbd2::Handle;

/// One extent made of two where the second follows the first on both sides, else `None`.
fn merged(first: &Extent, second: &Extent) -> Option<Extent> {
    let max = if first.unwritten { extent::UNWRITTEN_LEN_MAX } else { extent::LEN_MAX };
    let fits = first.unwritten == second.unwritten
        && first.end() == u64::from(second.block)
        && first.start + u64::from(first.len) == second.start
        && first.len + second.len <= max;
    fits.then_some(Extent { len: first.len + second.len, ..*first })
}

impl Bmap<'_> {
    /// Puts `new` into the tree; no part of it may be mapped. Merges it with its neighbours.
    ///
    /// The inode must be marked dirty afterwards. On an error the tree is as before.
    ///
    /// # Errors
    /// `ENOSPC` no block for a new node, `EIO`, `EUCLEAN`.
    pub(crate) fn extent_insert(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        new: Extent,
    ) -> Result<(), Errno> {
        let path = self.find_path(cx, new.block)?;
        if self.merge_in(cx, handle, &path, &new)? {
            return Ok(());
        }
        let path = if path.leaf().entries < path.leaf().max {
            path
        } else {
            self.make_room(cx, handle, new.block, 1)?
        };
        self.insert_at(cx, handle, &path, &new)
    }

    /// Grows a neighbour by `new`, where one fits.
    fn merge_in(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &Path,
        new: &Extent,
    ) -> Result<bool, Errno> {
        let leaf = path.leaf();
        let next_at = leaf.at.map_or(0, |at| at + 1);
        let before = leaf.at.and_then(|at| self.leaf_extent(cx, path, at));
        let next = self.leaf_extent(cx, path, next_at);
        let left = before.and_then(|before| merged(&before, new));
        if let (Some(at), Some(left)) = (leaf.at, left) {
            let all = next.and_then(|next| merged(&left, &next));
            self.change_node(cx, handle, leaf.buffer.as_ref(), |data| {
                extent::set_extent(data, at, &all.unwrap_or(left));
                if all.is_some() {
                    remove_raw(data, next_at);
                }
            })?;
            return Ok(true);
        }
        if let Some(right) = next.and_then(|next| merged(new, &next)) {
            self.change_node(cx, handle, leaf.buffer.as_ref(), |data| {
                extent::set_extent(data, next_at, &right);
            })?;
            if next_at == 0 {
                self.fix_keys(cx, handle, path, path.depth(), right.block)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Inserts into a leaf that has room.
    pub(super) fn insert_at(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &Path,
        new: &Extent,
    ) -> Result<(), Errno> {
        let leaf = path.leaf();
        let at = leaf.at.map_or(0, |at| at + 1);
        let raw = new.raw();
        self.change_node(cx, handle, leaf.buffer.as_ref(), |data| {
            insert_raw(data, at, raw.as_bytes());
        })?;
        if at == 0 && path.depth() > 0 {
            self.fix_keys(cx, handle, path, path.depth(), new.block)?;
        }
        Ok(())
    }

    /// Joins the entry `index` of the leaf with the one behind it, where they fit.
    pub(super) fn merge_with_next(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &Path,
        index: usize,
    ) -> Result<bool, Errno> {
        let first = self.leaf_extent(cx, path, index);
        let second = self.leaf_extent(cx, path, index + 1);
        let Some(both) = first.zip(second).and_then(|(a, b)| merged(&a, &b)) else {
            return Ok(false);
        };
        self.change_node(cx, handle, path.leaf().buffer.as_ref(), |data| {
            extent::set_extent(data, index, &both);
            remove_raw(data, index + 1);
        })?;
        Ok(true)
    }

    /// Splits nodes until the leaf for `lblk` has room for `count` more entries; the way to it.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`. What was split stays split; nothing is lost.
    pub(super) fn make_room(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        lblk: u32,
        count: usize,
    ) -> Result<Path, Errno> {
        loop {
            let path = self.find_path(cx, lblk)?;
            let leaf = path.leaf();
            if leaf.max - leaf.entries >= count {
                return Ok(path);
            }
            // The lowest node with room for a pointer; the node below it is split.
            let above = path.0[..path.depth()].iter().rposition(|level| level.entries < level.max);
            match above {
                Some(parent) => self.split_node(cx, handle, &path, parent + 1)?,
                None => self.grow_root(cx, handle, &path)?,
            }
        }
    }

    /// Takes a block for a node of `inode`'s tree.
    fn new_node(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        goal: u64,
    ) -> Result<cache::BufferRef, Errno> {
        let request = Request { goal, want: 1, lblk: 0, purpose: Purpose::Node };
        let (block, _) = self.new_blocks(cx, handle, None, request)?;
        let buffer = self.fs.sb.buffers.get(cx, block);
        handle.create_access(cx, &buffer)?;
        buffer.with_mut(|data| data.fill(0));
        buffer.set_uptodate();
        buffer.set_verified(true);
        self.set_extent_trigger(cx, &buffer);
        let sectors = self.fs.sb.geometry.cluster_sectors();
        self.inode.with(cx, |core| core.values.blocks += sectors);
        Ok(buffer)
    }

    /// Moves the upper part of the full node at `level` into a new one; its parent has room.
    fn split_node(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &Path,
        level: usize,
    ) -> Result<(), Errno> {
        let node = &path.0[level];
        let buffer = node.buffer.as_ref().expect("the root has no parent and is never split");
        let new = self.new_node(cx, handle, buffer.block())?;
        // A file that grows at its end fills its nodes: only the last entry moves on.
        let at_end = path.0[level..].iter().all(|level| level.at == level.entries.checked_sub(1));
        let keep = if at_end { node.entries - 1 } else { node.entries / 2 };
        let (moved, depth) = buffer.with(|data| {
            let range = ENTRY_SIZE * (keep + 1)..ENTRY_SIZE * (node.entries + 1);
            (data[range].to_vec(), u16::from_le_bytes([data[6], data[7]]))
        });
        let room = extent::block_max(self.fs.sb.geometry.block_size);
        let first = new.with_mut(|data| {
            extent::init_node(data, room, depth);
            data[ENTRY_SIZE..ENTRY_SIZE + moved.len()].copy_from_slice(&moved);
            set_count(data, moved.len() / ENTRY_SIZE);
            key(data, 0)
        });
        handle.dirty(cx, &new)?;
        self.change_node(cx, handle, Some(buffer), |data| {
            let entries = entry_count(data);
            data[ENTRY_SIZE * (keep + 1)..ENTRY_SIZE * (entries + 1)].fill(0);
            set_count(data, keep);
        })?;
        let parent = &path.0[level - 1];
        let at = parent.at.map_or(0, |at| at + 1);
        let pointer = ExtentIdx { block: first, leaf: new.block() };
        let raw = pointer.raw();
        self.change_node(cx, handle, parent.buffer.as_ref(), |data| {
            insert_raw(data, at, raw.as_bytes());
        })
    }

    /// Puts a level between the root and its entries: they move into a block.
    fn grow_root(self, cx: &mut Cx, handle: &mut Handle, path: &Path) -> Result<(), Errno> {
        let goal = match path.0.get(1).and_then(|level| level.buffer.as_ref()) {
            Some(child) => child.block(),
            None => self.leaf_extent(cx, path, 0).map_or(0, |extent| extent.start),
        };
        let new = self.new_node(cx, handle, goal)?;
        let root = self.inode.with(cx, |core| core.block);
        let entries = entry_count(&root);
        let depth = u16::from_le_bytes([root[6], root[7]]);
        let room = extent::block_max(self.fs.sb.geometry.block_size);
        new.with_mut(|data| {
            extent::init_node(data, room, depth);
            let used = ENTRY_SIZE..ENTRY_SIZE * (entries + 1);
            data[used.clone()].copy_from_slice(&root[used]);
            set_count(data, entries);
        });
        handle.dirty(cx, &new)?;
        let first = if entries > 0 { key(&root, 0) } else { 0 };
        let pointer = ExtentIdx { block: first, leaf: new.block() };
        self.inode.with(cx, |core| {
            let data = &mut core.values.block;
            data[ENTRY_SIZE..].fill(0);
            extent::set_header(data, 1, extent::ROOT_MAX, depth + 1);
            extent::set_index(data, 0, &pointer);
        });
        Ok(())
    }
}

/// The two parts of an extent cut at `at`, which lies inside of it.
pub(super) fn cut(extent: &Extent, at: u32) -> (Extent, Extent) {
    let head = at - extent.block;
    assert!(head > 0 && head < extent.len, "a cut at {at} misses {extent:?}");
    let first = Extent { len: head, ..*extent };
    let second = Extent {
        block: at,
        len: extent.len - head,
        start: extent.start + u64::from(head),
        unwritten: extent.unwritten,
    };
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::super::entry;
    use super::*;

    #[test]
    fn neighbours_merge_only_where_both_sides_follow_each_other() {
        let first = Extent { block: 10, len: 5, start: 100, unwritten: false };
        let next = Extent { block: 15, len: 3, start: 105, unwritten: false };
        assert_eq!(merged(&first, &next), Some(Extent { len: 8, ..first }));
        assert_eq!(merged(&first, &Extent { start: 106, ..next }), None);
        assert_eq!(merged(&first, &Extent { block: 16, ..next }), None);
        assert_eq!(merged(&first, &Extent { unwritten: true, ..next }), None);
        let long = Extent { block: 0, len: 32767, start: 1, unwritten: true };
        let more = Extent { block: 32767, len: 1, start: 32768, unwritten: true };
        assert_eq!(merged(&long, &more), None);
        let (a, b) = cut(&first, 12);
        assert_eq!(merged(&a, &b), Some(first));
        let mut data = [0u8; 60];
        extent::init_node(&mut data, 4, 0);
        insert_raw(&mut data, 0, next.raw().as_bytes());
        insert_raw(&mut data, 0, first.raw().as_bytes());
        assert_eq!((entry(&data, 0), entry(&data, 1)), (first, next));
        remove_raw(&mut data, 0);
        assert_eq!((entry_count(&data), entry(&data, 0)), (1, next));
    }
}
