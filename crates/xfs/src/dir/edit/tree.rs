//! The tree over the leaves of a large directory: nodes hold, for each child, the highest hash in
//! it. The root stays at its place.

use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use super::{DirEdit, entries};
use crate::buf::Buf;
use crate::error::Result;
use crate::format::da::{Child, DaNode, NODE_ENTRY, NODE_HEADER, emit_node, node_max};
use crate::format::da::{DEPTH_MAX, set_siblings, siblings};
use crate::format::dir::{LEAF_ENTRY, LeafEntry};
use crate::format::dir_index::{LEAF_HEADER, Leaf, emit_leaf};
use crate::format::{Corrupt, CorruptKind, Kind, u16_at};

/// A node on the way to a leaf.
#[derive(Clone)]
pub(super) struct Step {
    pub block: u64,
    pub buf: Arc<Buf>,
    /// The child that was taken.
    pub index: usize,
}

/// Nodes from the root down.
type Steps = SmallVec<[Step; 2]>;

/// A leaf and the way to it from the root.
#[derive(Clone)]
pub(super) struct Path {
    pub steps: Steps,
    pub block: u64,
    pub leaf: Arc<Buf>,
}

impl Path {
    /// True where a transaction has all of its blocks.
    pub fn is_locked_by(&self, id: u64) -> bool {
        self.leaf.owner() == id && self.steps.iter().all(|step| step.buf.owner() == id)
    }
}

/// Entries that a leaf of `size` bytes holds.
pub(super) fn leaf_max(size: usize) -> usize {
    (size - LEAF_HEADER) / LEAF_ENTRY
}

/// Entries of a leaf that are not stale, as its header counts them.
fn live_count(leaf: &Buf) -> usize {
    leaf.with(|data| u16_at(data, 56).saturating_sub(u16_at(data, 58))).into()
}

fn children(data: &[u8], at: crate::format::At) -> Result<(u16, Vec<Child>), Corrupt> {
    let node = DaNode::parse_trusted(data, at)?;
    Ok((node.level, (0..node.len()).map(|index| node.child(index)).collect()))
}

impl DirEdit<'_> {
    /// Goes down to the leaf in which entries with this hash begin; to the last one where all
    /// hashes are below it.
    pub(super) fn descend(&mut self, cx: &mut Cx, hash: u32) -> Result<Path> {
        self.descend_with(cx, self.leaf_start(), Steps::new(), |node| {
            node.find(hash).unwrap_or(node.len() - 1)
        })
    }

    fn descend_with(
        &mut self,
        cx: &mut Cx,
        mut block: u64,
        mut steps: Steps,
        choose: impl Fn(&DaNode<'_>) -> usize,
    ) -> Result<Path> {
        loop {
            let buf = self.read(cx, block, &[Kind::DirLeafN, Kind::DaNode])?;
            if buf.kind() != Some(Kind::DaNode) {
                return Ok(Path { steps, block, leaf: buf });
            }
            if steps.len() >= usize::from(DEPTH_MAX) {
                return Err(self.corrupt(block, CorruptKind::DaLoop { block: block as u32 }));
            }
            let at = self.at(block);
            let (index, child) = buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                let index = choose(&node);
                Ok((index, node.child(index).block))
            })?;
            steps.push(Step { block, buf, index });
            block = u64::from(child);
        }
    }

    /// Goes on to the next leaf; false behind the last one.
    pub(super) fn next_leaf(&mut self, cx: &mut Cx, path: &mut Path) -> Result<bool> {
        while let Some(step) = path.steps.last_mut() {
            let at = crate::format::At::InodeBlock(self.inode.ino, step.block);
            let next = step.index + 1;
            let child = step.buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                Ok((next < node.len()).then(|| node.child(next).block))
            })?;
            if let Some(child) = child {
                step.index = next;
                let steps = std::mem::take(&mut path.steps);
                *path = self.descend_with(cx, u64::from(child), steps, |_| 0)?;
                return Ok(true);
            }
            path.steps.pop();
        }
        Ok(false)
    }

    /// The hash of a leaf's last entry.
    fn last_hash(&self, leaf: &Buf, block: u64) -> Result<Option<u32>> {
        let at = self.at(block);
        Ok(leaf.with(|data| -> Result<_, Corrupt> {
            let entries = Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries();
            Ok(entries.len().checked_sub(1).map(|last| entries.get(last).hash))
        })?)
    }

    fn store_children(&mut self, step: &Step, level: u16, list: &[Child], from: usize) {
        step.buf.with_mut(|data| emit_node(data, level, list));
        let from = from.min(list.len());
        let bytes = |index: usize| NODE_HEADER + NODE_ENTRY * index;
        self.log_range(&step.buf, 56..60);
        if from < list.len() {
            self.log_range(&step.buf, bytes(from)..bytes(list.len()));
        }
    }

    /// The nodes above a leaf learn its highest hash.
    pub(super) fn fix_hashes(&mut self, path: &Path) -> Result<()> {
        match self.last_hash(&path.leaf, path.block)? {
            Some(hash) => self.store_hash(path, hash),
            None => Ok(()),
        }
    }

    /// The nodes above a leaf learn that this is its highest hash.
    pub(super) fn store_hash(&mut self, path: &Path, hash: u32) -> Result<()> {
        for step in path.steps.iter().rev() {
            let at = self.at(step.block);
            let (known, last) = step.buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                Ok((node.child(step.index).hash, step.index + 1 == node.len()))
            })?;
            if known != hash {
                let place = NODE_HEADER + NODE_ENTRY * step.index;
                step.buf.with_mut(|data| crate::format::put_u32(data, place, hash));
                self.log_range(&step.buf, place..place + 4);
            }
            if !last {
                break;
            }
        }
        Ok(())
    }

    /// A block of the index with this content, beside nobody.
    fn copy_block(&mut self, cx: &mut Cx, from: &Buf) -> Result<(u64, Arc<Buf>)> {
        let kind = from.kind().unwrap_or(Kind::DirLeafN);
        let block = self.first_hole(cx, self.leaf_start())?;
        let buf = self.grow(cx, block, kind)?;
        let content = from.to_vec();
        buf.with_mut(|data| data.copy_from_slice(&content));
        self.stamp(&buf, kind);
        self.log_all(&buf);
        Ok((block, buf))
    }

    /// The root's content moves to a block of its own, and the root has that as its only child.
    fn raise_root(&mut self, cx: &mut Cx, path: &mut Path) -> Result<()> {
        let root = path.steps.first().map_or(&path.leaf, |step| &step.buf).clone();
        let start = self.leaf_start();
        let level = match root.kind() {
            Some(Kind::DaNode) => root.with(|data| u16_at(data, 58)),
            _ => 0,
        };
        if level + 1 >= DEPTH_MAX {
            return Err(crate::XfsError::NoSpace);
        }
        let at = self.at(start);
        let hash = match level {
            0 => self.last_hash(&root, start)?.unwrap_or(0),
            _ => root.with(|data| children(data, at))?.1.last().map_or(0, |child| child.hash),
        };
        let (block, buf) = self.copy_block(cx, &root)?;
        root.with_mut(|data| data.fill(0));
        self.stamp(&root, Kind::DaNode);
        let child = Child { hash, block: block as u32 };
        root.with_mut(|data| emit_node(data, level + 1, &[child]));
        self.log_all(&root);
        match path.steps.first_mut() {
            Some(step) => (step.block, step.buf) = (block, buf),
            None => (path.block, path.leaf) = (block, buf),
        }
        path.steps.insert(0, Step { block: start, buf: root, index: 0 });
        Ok(())
    }

    /// Makes room in the leaf of a path: afterwards the path leads to the half where `hash`
    /// belongs.
    pub(super) fn split_leaf(&mut self, cx: &mut Cx, path: &mut Path, hash: u32) -> Result<()> {
        if path.steps.is_empty() {
            self.raise_root(cx, path)?;
        }
        let (old, at) = (path.leaf.clone(), self.at(path.block));
        let live = old.with(|data| -> Result<_, Corrupt> {
            Ok(entries::live(Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries()))
        })?;
        let (left, right) = live.split_at(live.len() / 2);
        let (block, buf) = self.copy_block(cx, &old)?;
        self.store_leaf(&buf, right);
        self.store_leaf(&old, left);
        self.link_behind(cx, (path.block, &old), (block, &buf))?;
        let hash_of = |list: &[LeafEntry]| list.last().map_or(0, |entry| entry.hash);
        let (first, second) = (hash_of(left), hash_of(right));
        self.add_child(cx, path, first, Child { hash: second, block: block as u32 })?;
        if hash > first {
            let step = path.steps.last_mut().expect("a split leaf has a node above it");
            step.index += 1;
            (path.block, path.leaf) = (block, buf);
        }
        Ok(())
    }

    /// Writes the entries of a leaf of a tree.
    pub(super) fn store_leaf(&mut self, buf: &Arc<Buf>, list: &[LeafEntry]) {
        buf.with_mut(|data| emit_leaf(data, list, None));
        self.log(buf, &[56..60, LEAF_HEADER..LEAF_HEADER + LEAF_ENTRY * list.len().max(1)]);
    }

    /// Puts a new block behind one at the same level.
    fn link_behind(
        &mut self,
        cx: &mut Cx,
        (block, buf): (u64, &Arc<Buf>),
        (new, new_buf): (u64, &Arc<Buf>),
    ) -> Result<()> {
        let (right, left) = buf.with(siblings);
        buf.with_mut(|data| set_siblings(data, new as u32, left));
        new_buf.with_mut(|data| set_siblings(data, right, block as u32));
        self.log_range(buf, 0..8);
        self.log_range(new_buf, 0..8);
        if right != 0 {
            let next = self.read(cx, u64::from(right), &[Kind::DirLeafN, Kind::DaNode])?;
            let (after, _) = next.with(siblings);
            next.with_mut(|data| set_siblings(data, after, new as u32));
            self.log_range(&next, 0..8);
        }
        Ok(())
    }

    /// Takes a block out of the list of its level.
    fn unlink(&mut self, cx: &mut Cx, buf: &Buf) -> Result<()> {
        let (right, left) = buf.with(siblings);
        for (block, is_right) in [(right, true), (left, false)] {
            if block == 0 {
                continue;
            }
            let next = self.read(cx, u64::from(block), &[Kind::DirLeafN, Kind::DaNode])?;
            let (its_right, its_left) = next.with(siblings);
            let new = if is_right { (its_right, left) } else { (right, its_left) };
            next.with_mut(|data| set_siblings(data, new.0, new.1));
            self.log_range(&next, 0..8);
        }
        Ok(())
    }

    /// Puts a child behind the one that the path takes in its last node, which is split where it
    /// is full. `hash` is the new highest one of the child that was there.
    fn add_child(&mut self, cx: &mut Cx, path: &mut Path, hash: u32, new: Child) -> Result<()> {
        let depth = path.steps.len() - 1;
        self.add_child_at(cx, path, depth, hash, new)
    }

    fn add_child_at(
        &mut self,
        cx: &mut Cx,
        path: &mut Path,
        depth: usize,
        hash: u32,
        new: Child,
    ) -> Result<()> {
        // A new root in front changes places, not distances from the leaf.
        let below = path.steps.len() - depth;
        let count = path.steps[depth].buf.with(|data| usize::from(u16_at(data, 56)));
        if count >= node_max(self.block_size()) {
            if depth == 0 {
                self.raise_root(cx, path)?;
            }
            let depth = path.steps.len() - below;
            self.split_node(cx, path, depth)?;
        }
        let step = path.steps[path.steps.len() - below].clone();
        let at = self.at(step.block);
        let (level, mut list) = step.buf.with(|data| children(data, at))?;
        list[step.index].hash = hash;
        list.insert(step.index + 1, new);
        self.store_children(&step, level, &list, step.index);
        Ok(())
    }

    /// Splits the node at `depth`, which is not the root; the path follows its child.
    fn split_node(&mut self, cx: &mut Cx, path: &mut Path, depth: usize) -> Result<()> {
        let step = path.steps[depth].clone();
        let at = self.at(step.block);
        let (level, list) = step.buf.with(|data| children(data, at))?;
        let middle = list.len() / 2;
        let (left, right) = list.split_at(middle);
        let (block, buf) = self.copy_block(cx, &step.buf)?;
        let behind = Step { block, buf: buf.clone(), index: 0 };
        self.store_children(&behind, level, right, 0);
        self.store_children(&step, level, left, 0);
        self.link_behind(cx, (step.block, &step.buf), (block, &buf))?;
        let hash_of = |list: &[Child]| list.last().map_or(0, |child| child.hash);
        let child = Child { hash: hash_of(right), block: block as u32 };
        let below = path.steps.len() - depth;
        self.add_child_at(cx, path, depth - 1, hash_of(left), child)?;
        let depth = path.steps.len() - below;
        if step.index >= middle {
            path.steps[depth - 1].index += 1;
            path.steps[depth] = Step { block, buf, index: step.index - middle };
        }
        Ok(())
    }

    /// After entries went: an empty leaf goes, a small one joins its neighbour below the same
    /// node, and nodes that are left with one child go too.
    pub(super) fn join(&mut self, cx: &mut Cx, path: Path) -> Result<()> {
        if path.steps.is_empty() {
            return Ok(());
        }
        let own = live_count(&path.leaf);
        let max = leaf_max(self.block_size());
        if own == 0 {
            self.unlink(cx, &path.leaf)?;
            self.shrink(cx, path.block, &path.leaf)?;
            self.drop_child(cx, path.steps)?;
            return self.lower_root(cx);
        }
        if own > max / 4 {
            return Ok(());
        }
        self.join_leaf(cx, &path, max)
    }

    /// Moves the entries of a small leaf into its neighbour on the left, or those of the one on
    /// the right into it, where both fit into half of a leaf.
    fn join_leaf(&mut self, cx: &mut Cx, path: &Path, max: usize) -> Result<()> {
        let step = path.steps.last().expect("the caller looked").clone();
        let at = self.at(step.block);
        let (_, list) = step.buf.with(|data| children(data, at))?;
        for (first, second) in
            [(step.index.wrapping_sub(1), step.index), (step.index, step.index + 1)]
        {
            let (Some(left), Some(right)) = (list.get(first), list.get(second)) else { continue };
            let blocks = [u64::from(left.block), u64::from(right.block)];
            let mut leaves = SmallVec::<[_; 2]>::new();
            for block in blocks {
                leaves.push(self.read(cx, block, &[Kind::DirLeafN])?);
            }
            if leaves.iter().map(|leaf| live_count(leaf)).sum::<usize>() > max / 2 {
                continue;
            }
            let mut all = Vec::with_capacity(max / 2);
            for (leaf, block) in leaves.iter().zip(blocks) {
                let at = self.at(block);
                all.extend(leaf.with(|data| -> Result<_, Corrupt> {
                    Ok(entries::live(Leaf::parse_counts(Kind::DirLeafN, data, at)?.entries()))
                })?);
            }
            self.store_leaf(&leaves[0], &all);
            self.unlink(cx, &leaves[1])?;
            self.shrink(cx, blocks[1], &leaves[1])?;
            let mut steps = path.steps.clone();
            steps.last_mut().expect("one at least").index = second;
            self.drop_child(cx, steps.clone())?;
            let mut steps = steps;
            steps.last_mut().expect("one at least").index = first;
            let joined = Path { steps, block: blocks[0], leaf: leaves[0].clone() };
            self.fix_hashes(&joined)?;
            return self.lower_root(cx);
        }
        Ok(())
    }

    /// Takes the child out that the last step names; a node without children goes, too.
    fn drop_child(&mut self, cx: &mut Cx, mut steps: Steps) -> Result<()> {
        while let Some(step) = steps.pop() {
            let at = self.at(step.block);
            let (level, mut list) = step.buf.with(|data| children(data, at))?;
            list.remove(step.index);
            if list.is_empty() && !steps.is_empty() {
                self.unlink(cx, &step.buf)?;
                self.shrink(cx, step.block, &step.buf)?;
                continue;
            }
            self.store_children(&step, level, &list, step.index);
            self.fix_above(&steps, list.last().map_or(0, |child| child.hash))?;
            return Ok(());
        }
        Ok(())
    }

    /// The nodes of `steps` learn the highest hash of the child that they took.
    fn fix_above(&mut self, steps: &[Step], mut hash: u32) -> Result<()> {
        for step in steps.iter().rev() {
            let at = self.at(step.block);
            let (level, mut list) = step.buf.with(|data| children(data, at))?;
            list[step.index].hash = hash;
            self.store_children(step, level, &list, step.index);
            hash = list.last().map_or(0, |child| child.hash);
        }
        Ok(())
    }

    /// A root with one child takes its content.
    fn lower_root(&mut self, cx: &mut Cx) -> Result<()> {
        let start = self.leaf_start();
        loop {
            let root = self.read(cx, start, &[Kind::DirLeafN, Kind::DaNode])?;
            if root.kind() != Some(Kind::DaNode) {
                return Ok(());
            }
            let at = self.at(start);
            let (_, list) = root.with(|data| children(data, at))?;
            let [only] = list[..] else { return Ok(()) };
            let child = self.read(cx, u64::from(only.block), &[Kind::DirLeafN, Kind::DaNode])?;
            let (content, kind) = (child.to_vec(), child.kind().unwrap_or(Kind::DirLeafN));
            root.with_mut(|data| data.copy_from_slice(&content));
            self.stamp(&root, kind);
            root.with_mut(|data| set_siblings(data, 0, 0));
            self.log_all(&root);
            self.shrink(cx, u64::from(only.block), &child)?;
        }
    }
}
