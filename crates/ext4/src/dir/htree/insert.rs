//! Hash trees of directories: growing. A full leaf is split; a full node on the way is split
//! before; where all nodes are full the tree gets a level; a full single block becomes a tree.

use base::Errno;
use rt::Cx;

use crate::dir::{Dir, Role, Target, insert};
use crate::format::InodeFlags;
use crate::format::dir::{self, Key};
use crate::format::hash::HashVersion;
use crate::format::htree::{self, NODE_ARRAY, Node};
use crate::trans::ext4_jbd2::Handle;

use super::{Frame, Path};

impl Dir<'_> {
    /// Adds a name whose leaf is full: [`crate::dir::GROW_CREDITS`].
    ///
    /// Each step leaves a consistent tree, so that running out of space in between does no harm.
    ///
    /// # Errors
    /// `ENOSPC`, also where the tree may not get deeper; `EUCLEAN`, `EIO`.
    pub(crate) fn add_by_split(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        mut path: Path,
        key: &Key,
        target: Target,
    ) -> Result<(), Errno> {
        self.make_room(cx, handle, &mut path)?;
        let layout = self.layout;
        let hash = self.hash(path.version, key).major;
        let leaf = self.block(cx, path.leaf, Role::Leaf)?;
        let size = layout.block_size as usize;
        let (mut low, mut high) = (vec![0; size], vec![0; size]);
        let version = path.version;
        let old = leaf.page();
        let split = htree::split_leaf(&old, layout, &mut low, &mut high, |entry| {
            self.hash_of(version, entry).major
        });
        drop(old);
        let bound = split.map_err(|kind| self.corrupt(cx, &leaf, kind))?;
        let side = if hash >= bound & !1 { &mut high } else { &mut low };
        let room = [key.need(layout), layout.entry_len(key.name().len())]
            .iter()
            .find_map(|&need| dir::room(side, layout, need));
        // Half of a block has room for every name, and for what lies behind most.
        insert(side, layout, room.ok_or(Errno::ENOSPC)?, key, target);
        let (lblk, _) = self.append(cx, handle, |data| data.copy_from_slice(&high))?;
        self.change(cx, handle, &leaf, |data| data.copy_from_slice(&low))?;
        let frame = path.frames.last().expect("a path has a root");
        let (array, at) = (frame.array, frame.at);
        self.change(cx, handle, &frame.buffer, |data| {
            htree::insert_pair(data, array, at + 1, bound, lblk);
        })
    }

    /// Makes room for one more pair in the lowest node of a path.
    fn make_room(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &mut Path,
    ) -> Result<(), Errno> {
        let full = |frame: &Frame| frame.with(|node| node.count() == node.limit());
        let Some(open) = path.frames.iter().rposition(|frame| !full(frame)) else {
            if path.frames.len() > usize::from(self.levels_max()) {
                return Err(Errno::ENOSPC);
            }
            self.deepen(cx, handle, path)?;
            // The new node holds a little more than a root.
            return self.make_room(cx, handle, path);
        };
        for level in open + 1..path.frames.len() {
            self.split_node(cx, handle, path, level)?;
        }
        Ok(())
    }

    /// Gives the tree a level: one node takes all pairs of the root.
    fn deepen(&mut self, cx: &mut Cx, handle: &mut Handle, path: &mut Path) -> Result<(), Errno> {
        let layout = self.layout;
        let root = path.frames[0].clone();
        let pairs = root.buffer.page();
        let (lblk, buffer) = self.append(cx, handle, |data| {
            htree::take_pairs(data, layout, Node::new(&pairs, root.array), 0);
        })?;
        drop(pairs);
        self.change(cx, handle, &root.buffer, |data| htree::deepen_root(data, root.array, lblk))?;
        path.frames[0].at = 0;
        path.frames.insert(1, Frame { buffer, array: NODE_ARRAY, at: root.at });
        Ok(())
    }

    /// Splits the full node at `level`, whose parent has room, and lets the path follow its pair.
    fn split_node(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: &mut Path,
        level: usize,
    ) -> Result<(), Errno> {
        let layout = self.layout;
        let node = path.frames[level].clone();
        let keep = node.with(|node| node.count()) / 2;
        let pairs = node.buffer.page();
        let mut bound = 0;
        let (lblk, buffer) = self.append(cx, handle, |data| {
            bound = htree::take_pairs(data, layout, Node::new(&pairs, node.array), keep);
        })?;
        drop(pairs);
        self.change(cx, handle, &node.buffer, |data| htree::cut_pairs(data, node.array, keep))?;
        let parent = path.frames[level - 1].clone();
        self.change(cx, handle, &parent.buffer, |data| {
            htree::insert_pair(data, parent.array, parent.at + 1, bound, lblk);
        })?;
        if node.at >= keep {
            path.frames[level - 1].at += 1;
            path.frames[level] = Frame { buffer, array: NODE_ARRAY, at: node.at - keep };
        }
        Ok(())
    }

    /// Turns a linear directory of one block into a tree with one leaf. Answers false, with nothing
    /// changed, where `.` and `..` are not where the format wants them.
    pub(crate) fn convert(&mut self, cx: &mut Cx, handle: &mut Handle) -> Result<bool, Errno> {
        let layout = self.layout;
        let root = self.block(cx, 0, Role::Leaf)?;
        let old = root.page();
        if !htree::can_be_root(&old, layout) {
            return Ok(false);
        }
        let entries = dir::entries(&old, layout).skip(2);
        let (leaf, _) = self.append(cx, handle, |data| {
            dir::pack(data, layout, entries.filter(|entry| entry.ino != 0));
        })?;
        drop(old);
        let version = self.default_version().map_or(htree::SIPHASH, HashVersion::on_disk);
        self.change(cx, handle, &root, |data| htree::init_root(data, layout, version, leaf))?;
        self.inode.with(cx, |core| core.flags |= InodeFlags::INDEX);
        self.fs.inodes.mark_dirty(cx, handle, self.inode)?;
        self.indexed = true;
        Ok(true)
    }
}
