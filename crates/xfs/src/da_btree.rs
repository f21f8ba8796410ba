//! The hash btree of a directory's index and of an attribute fork: leaves sorted by hash, nodes
//! above them. A node holds, for each child, the highest hash in it. The root stays at its place.
//!
//! [`DaBtree`] changes the nodes and the links between neighbours; what a leaf holds, and where
//! blocks come from, is the business of a [`DaFork`]. A change goes the same way in both:
//!
//! ```text
//! let mut path = DaBtree(fork).descend(cx, hash)?;         // from the root to a leaf
//! let right = DaBtree(fork).split_leaf(cx, &mut path, [highest_left, highest_right])?;
//! // .. the fork writes both leaves ..
//! DaBtree(fork).store_hash(&path, highest)?;               // the nodes above follow the leaf
//! DaBtree(fork).join(cx, path)?;                           // after entries were removed
//! ```

use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use crate::buf::Buf;
use crate::buf::meta::Meta;
use crate::error::{Fault, Result};
use crate::format::da::{self, Child, DEPTH_MAX, DaNode, NODE_ENTRY, NODE_HEADER, Siblings};
use crate::format::{At, Corrupt, CorruptKind, Kind, put_u32, u16_at};
use crate::trans::Trans;

/// When leaves are joined, in the unit of [`DaFork::used`].
pub(crate) struct JoinLimits {
    /// A leaf that holds no more is joined with a neighbour,
    pub small: usize,
    /// if both hold no more than this together.
    pub joined: usize,
}

/// A fork that holds a tree: its blocks and its leaves. The transaction locks what it reads.
pub(crate) trait DaFork {
    /// The kind of a leaf.
    const LEAF: Kind;
    /// A small leaf is joined with its left neighbour rather than with the right one.
    const LEFT_FIRST: bool;

    /// The transaction that changes the tree.
    fn trans(&mut self) -> &mut Trans;

    /// What errors call a block of the fork.
    fn at(&self, block: u64) -> At;

    /// The block of the root.
    fn root(&self) -> u64;

    /// Reads a leaf or a node. May park.
    ///
    /// # Errors
    /// A check of the block; the device failed.
    fn read(&mut self, cx: &mut Cx, block: u64) -> Result<Arc<Buf>>;

    /// Adds a block of this kind to the fork. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace); the device failed.
    fn add_block(&mut self, cx: &mut Cx, kind: Kind) -> Result<(u64, Arc<Buf>)>;

    /// Removes a block from the fork. May park.
    ///
    /// # Errors
    /// The device failed.
    fn remove_block(&mut self, cx: &mut Cx, block: u64, buf: &Arc<Buf>) -> Result<()>;

    /// Writes the self-description of a kind into a block.
    fn stamp(&self, buf: &Buf, kind: Kind);

    /// Writes an empty leaf behind the self-description; the bytes there are zero.
    fn init_leaf(&self, data: &mut [u8]);

    /// The highest hash of a leaf. None if it is empty.
    ///
    /// # Errors
    /// The first check that fails.
    fn last_hash(&self, data: &[u8], at: At) -> Result<Option<u32>, Corrupt>;

    /// How much a leaf holds, in entries or bytes.
    ///
    /// # Errors
    /// The first check that fails.
    fn used(&self, data: &[u8], at: At) -> Result<usize, Corrupt>;

    /// When leaves are joined.
    fn join_limits(&self) -> JoinLimits;

    /// Moves what the right one of two leaves holds into the left one.
    ///
    /// # Errors
    /// The first check that fails.
    fn merge(&mut self, left: &Leaf, right: &Leaf) -> Result<()>;
}

/// A block of the tree.
#[derive(Clone)]
pub(crate) struct Leaf {
    /// Its block in the fork.
    pub block: u64,
    pub buf: Arc<Buf>,
}

/// A node on the way to a leaf.
#[derive(Clone)]
pub(crate) struct Step {
    block: u64,
    buf: Arc<Buf>,
    /// The child that was taken.
    index: usize,
}

/// Nodes from the root down.
type Steps = SmallVec<[Step; 2]>;

/// A leaf and the way to it from the root.
#[derive(Clone)]
pub(crate) struct Path {
    steps: Steps,
    pub leaf: Leaf,
}

impl Path {
    /// True if a transaction has all of its blocks.
    pub fn is_locked_by(&self, id: u64) -> bool {
        self.leaf.buf.owner() == id && self.steps.iter().all(|step| step.buf.owner() == id)
    }
}

/// Checks the level of a block against what the node above says; 0 is a leaf.
fn check_level(expected: Option<u16>, found: u16, at: At) -> Result<(), Corrupt> {
    match expected {
        Some(expected) if expected != found => Err(CorruptKind::DaLevel { found }.at(at)),
        _ => Ok(()),
    }
}

fn last_of(list: &[Child]) -> u32 {
    list.last().map_or(0, |child| child.hash)
}

/// The tree of a fork.
pub(crate) struct DaBtree<'f, F>(pub &'f mut F);

impl<F: DaFork> DaBtree<'_, F> {
    /// The way to the first leaf that can hold this hash, or to the last leaf. May park.
    ///
    /// # Errors
    /// A check of a block; the device failed.
    pub fn descend(&mut self, cx: &mut Cx, hash: u32) -> Result<Path> {
        let root = self.0.root();
        self.descend_from(cx, root, Steps::new(), None, |node| {
            node.find(hash).unwrap_or(node.len() - 1)
        })
    }

    fn descend_from(
        &mut self,
        cx: &mut Cx,
        mut block: u64,
        mut steps: Steps,
        mut level: Option<u16>,
        choose: impl Fn(&DaNode<'_>) -> usize,
    ) -> Result<Path> {
        loop {
            let buf = self.0.read(cx, block)?;
            let at = self.0.at(block);
            if buf.kind() != Some(Kind::DaNode) {
                check_level(level, 0, at)?;
                return Ok(Path { steps, leaf: Leaf { block, buf } });
            }
            let (index, child) = buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                check_level(level, node.level, at)?;
                level = Some(node.level - 1);
                let index = choose(&node);
                Ok((index, node.child(index).block))
            })?;
            steps.push(Step { block, buf, index });
            block = u64::from(child);
        }
    }

    /// Goes on to the next leaf; false behind the last one. May park.
    ///
    /// # Errors
    /// As [`DaBtree::descend`].
    pub fn next_leaf(&mut self, cx: &mut Cx, path: &mut Path) -> Result<bool> {
        while let Some(step) = path.steps.last_mut() {
            let at = self.0.at(step.block);
            let next = step.index + 1;
            let child = step.buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                Ok((next < node.len()).then(|| (node.child(next).block, node.level - 1)))
            })?;
            if let Some((child, level)) = child {
                step.index = next;
                let steps = std::mem::take(&mut path.steps);
                *path = self.descend_from(cx, u64::from(child), steps, Some(level), |_| 0)?;
                return Ok(true);
            }
            path.steps.pop();
        }
        Ok(false)
    }

    /// The highest hash of a leaf. None if it is empty.
    fn last_hash(&self, leaf: &Leaf) -> Result<Option<u32>> {
        let at = self.0.at(leaf.block);
        Ok(leaf.buf.with(|data| self.0.last_hash(data, at))?)
    }

    /// The level and the children of a node.
    fn children(&self, block: u64, buf: &Buf) -> Result<(u16, Vec<Child>)> {
        let at = self.0.at(block);
        Ok(buf.with(|data| -> Result<_, Corrupt> {
            let node = DaNode::parse_trusted(data, at)?;
            Ok((node.level, (0..node.len()).map(|index| node.child(index)).collect()))
        })?)
    }

    /// Writes the children of a node; those before `from` are as they were.
    fn store_children(&mut self, step: &Step, level: u16, list: &[Child], from: usize) {
        step.buf.with_mut(|data| da::emit_node(data, level, list));
        let from = from.min(list.len());
        let bytes = |index: usize| NODE_HEADER + NODE_ENTRY * index;
        self.0.trans().log_buf(&step.buf, 56, 59);
        if from < list.len() {
            self.0.trans().log_buf(&step.buf, bytes(from), bytes(list.len()) - 1);
        }
    }

    fn log_all(&mut self, buf: &Arc<Buf>) {
        self.0.trans().log_buf(buf, 0, buf.len() - 1);
    }

    /// Brings the nodes above a leaf in step with its highest hash, unless it is empty.
    ///
    /// # Errors
    /// A check of a block.
    pub fn fix_hashes(&mut self, path: &Path) -> Result<()> {
        match self.last_hash(&path.leaf)? {
            Some(hash) => self.store_hash(path, hash),
            None => Ok(()),
        }
    }

    /// Brings the nodes above a leaf in step with its highest hash, which is this one.
    ///
    /// # Errors
    /// A check of a block.
    pub fn store_hash(&mut self, path: &Path, hash: u32) -> Result<()> {
        self.store_hash_in(&path.steps, hash)
    }

    fn store_hash_in(&mut self, steps: &[Step], hash: u32) -> Result<()> {
        for step in steps.iter().rev() {
            let at = self.0.at(step.block);
            let (known, last) = step.buf.with(|data| -> Result<_, Corrupt> {
                let node = DaNode::parse_trusted(data, at)?;
                Ok((node.child(step.index).hash, step.index + 1 == node.len()))
            })?;
            if known != hash {
                let place = NODE_HEADER + NODE_ENTRY * step.index;
                step.buf.with_mut(|data| put_u32(data, place, hash));
                self.0.trans().log_buf(&step.buf, place, place + 3);
            }
            if !last {
                break;
            }
        }
        Ok(())
    }

    /// A new block with the content of another one.
    fn copy_block(&mut self, cx: &mut Cx, from: &Buf) -> Result<Leaf> {
        let kind = from.kind().unwrap_or(F::LEAF);
        let (block, buf) = self.0.add_block(cx, kind)?;
        let content = from.to_vec();
        buf.with_mut(|data| data.copy_from_slice(&content));
        self.0.stamp(&buf, kind);
        self.log_all(&buf);
        Ok(Leaf { block, buf })
    }

    /// Adds a level: the root's content moves to a block of its own, which becomes the only child
    /// of the root.
    fn raise_root(&mut self, cx: &mut Cx, path: &mut Path) -> Result<()> {
        let start = self.0.root();
        let root = path.steps.first().map_or(&path.leaf.buf, |step| &step.buf).clone();
        let (level, hash) = if root.kind() == Some(Kind::DaNode) {
            let (level, list) = self.children(start, &root)?;
            (level, last_of(&list))
        } else {
            (0, self.last_hash(&Leaf { block: start, buf: root.clone() })?.unwrap_or(0))
        };
        if level + 1 >= DEPTH_MAX {
            return Err(crate::XfsError::NoSpace);
        }
        let copy = self.copy_block(cx, &root)?;
        root.with_mut(|data| data.fill(0));
        self.0.stamp(&root, Kind::DaNode);
        let child = Child { hash, block: copy.block as u32 };
        root.with_mut(|data| da::emit_node(data, level + 1, &[child]));
        self.log_all(&root);
        match path.steps.first_mut() {
            Some(step) => (step.block, step.buf) = (copy.block, copy.buf),
            None => path.leaf = copy,
        }
        path.steps.insert(0, Step { block: start, buf: root, index: 0 });
        Ok(())
    }

    /// Adds a leaf, a copy of the one of `path`, on its right; the caller then writes what both
    /// hold, whose highest hashes will be these. Returns the way to the new leaf. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace); as [`DaBtree::descend`].
    pub fn split_leaf(&mut self, cx: &mut Cx, path: &mut Path, highest: [u32; 2]) -> Result<Path> {
        if path.steps.is_empty() {
            self.raise_root(cx, path)?;
        }
        let leaf = self.copy_block(cx, &path.leaf.buf)?;
        self.link_right(cx, &path.leaf, &leaf)?;
        let child = Child { hash: highest[1], block: leaf.block as u32 };
        let depth = path.steps.len() - 1;
        self.add_child(cx, path, depth, highest[0], child)?;
        let mut steps = path.steps.clone();
        steps.last_mut().expect("a leaf that was split has a node above it").index += 1;
        Ok(Path { steps, leaf })
    }

    /// Makes `new` the right neighbour of a block of its level.
    fn link_right(&mut self, cx: &mut Cx, of: &Leaf, new: &Leaf) -> Result<()> {
        let Siblings { left, right } = of.buf.with(da::siblings);
        self.set_siblings(&of.buf, Siblings { left, right: new.block as u32 });
        self.set_siblings(&new.buf, Siblings { left: of.block as u32, right });
        if right != 0 {
            let next = self.0.read(cx, u64::from(right))?;
            let old = next.with(da::siblings);
            self.set_siblings(&next, Siblings { left: new.block as u32, ..old });
        }
        Ok(())
    }

    /// Removes a block from the list of its level.
    fn unlink(&mut self, cx: &mut Cx, buf: &Buf) -> Result<()> {
        let Siblings { left, right } = buf.with(da::siblings);
        if right != 0 {
            let next = self.0.read(cx, u64::from(right))?;
            let old = next.with(da::siblings);
            self.set_siblings(&next, Siblings { left, ..old });
        }
        if left != 0 {
            let next = self.0.read(cx, u64::from(left))?;
            let old = next.with(da::siblings);
            self.set_siblings(&next, Siblings { right, ..old });
        }
        Ok(())
    }

    fn set_siblings(&mut self, buf: &Arc<Buf>, siblings: Siblings) {
        buf.with_mut(|data| da::set_siblings(data, siblings));
        self.0.trans().log_buf(buf, 0, 7);
    }

    /// Puts a child on the right of the one that the path takes at `depth`; a node that is full is
    /// split before. `hash` is the new highest one of the child that was there.
    fn add_child(
        &mut self,
        cx: &mut Cx,
        path: &mut Path,
        depth: usize,
        hash: u32,
        new: Child,
    ) -> Result<()> {
        // A new root in front changes places, not distances from the leaf.
        let below = path.steps.len() - depth;
        let is_full = |data: &[u8]| usize::from(u16_at(data, 56)) >= da::node_max(data.len());
        if path.steps[depth].buf.with(is_full) {
            if depth == 0 {
                self.raise_root(cx, path)?;
            }
            let depth = path.steps.len() - below;
            self.split_node(cx, path, depth)?;
        }
        let step = path.steps[path.steps.len() - below].clone();
        let (level, mut list) = self.children(step.block, &step.buf)?;
        list[step.index].hash = hash;
        list.insert(step.index + 1, new);
        self.store_children(&step, level, &list, step.index);
        Ok(())
    }

    /// Splits the node at `depth`, which is not the root; the path follows its child.
    fn split_node(&mut self, cx: &mut Cx, path: &mut Path, depth: usize) -> Result<()> {
        let step = path.steps[depth].clone();
        let (level, list) = self.children(step.block, &step.buf)?;
        let middle = list.len() / 2;
        let (left, right) = list.split_at(middle);
        let new = self.copy_block(cx, &step.buf)?;
        let behind = Step { block: new.block, buf: new.buf.clone(), index: 0 };
        self.store_children(&behind, level, right, 0);
        self.store_children(&step, level, left, 0);
        self.link_right(cx, &Leaf { block: step.block, buf: step.buf.clone() }, &new)?;
        let child = Child { hash: last_of(right), block: new.block as u32 };
        let below = path.steps.len() - depth;
        self.add_child(cx, path, depth - 1, last_of(left), child)?;
        let depth = path.steps.len() - below;
        if step.index >= middle {
            path.steps[depth - 1].index += 1;
            path.steps[depth] = Step { index: step.index - middle, ..behind };
        }
        Ok(())
    }

    /// After entries were removed: an empty leaf goes, a small one is joined with its neighbour
    /// below the same node, and so are nodes that are left with one child. May park.
    ///
    /// # Errors
    /// As [`DaBtree::descend`].
    pub fn join(&mut self, cx: &mut Cx, path: Path) -> Result<()> {
        if path.steps.is_empty() {
            return Ok(());
        }
        match self.used(&path.leaf)? {
            0 => {
                self.remove_block(cx, &path.leaf)?;
                self.drop_child(cx, path.steps)?;
                self.lower_root(cx)
            }
            used if used > self.0.join_limits().small => Ok(()),
            _ => self.join_leaf(cx, path),
        }
    }

    fn used(&self, leaf: &Leaf) -> Result<usize> {
        let at = self.0.at(leaf.block);
        Ok(leaf.buf.with(|data| self.0.used(data, at))?)
    }

    fn remove_block(&mut self, cx: &mut Cx, gone: &Leaf) -> Result<()> {
        self.unlink(cx, &gone.buf)?;
        self.0.remove_block(cx, gone.block, &gone.buf)
    }

    /// Joins a small leaf with a neighbour if both fit into one; the right one of the two goes.
    fn join_leaf(&mut self, cx: &mut Cx, path: Path) -> Result<()> {
        let mut steps = path.steps;
        let step = steps.last().expect("a leaf that is joined has a node above it");
        let (_, list) = self.children(step.block, &step.buf)?;
        let first = [step.index.wrapping_sub(1), step.index];
        for left in if F::LEFT_FIRST { first } else { [first[1], first[0]] } {
            let right = left.wrapping_add(1);
            let (Some(one), Some(other)) = (list.get(left), list.get(right)) else { continue };
            let mut read = |block: u32| -> Result<Leaf> {
                let block = u64::from(block);
                Ok(Leaf { block, buf: self.0.read(cx, block)? })
            };
            let (one, other) = (read(one.block)?, read(other.block)?);
            if self.used(&one)? + self.used(&other)? > self.0.join_limits().joined {
                continue;
            }
            self.0.merge(&one, &other)?;
            self.remove_block(cx, &other)?;
            let mut take = |index| {
                steps.last_mut().expect("one at least").index = index;
                steps.clone()
            };
            // First, since the nodes may be joined then.
            self.fix_hashes(&Path { steps: take(left), leaf: one })?;
            self.drop_child(cx, take(right))?;
            return self.lower_root(cx);
        }
        Ok(())
    }

    /// Removes the child that the last step takes; a node without children goes, too, one with few
    /// is joined with its neighbour, and the root becomes an empty leaf.
    fn drop_child(&mut self, cx: &mut Cx, mut steps: Steps) -> Result<()> {
        while let Some(step) = steps.pop() {
            let (level, mut list) = self.children(step.block, &step.buf)?;
            list.remove(step.index);
            if let Some(last) = list.last() {
                self.store_children(&step, level, &list, step.index);
                self.store_hash_in(&steps, last.hash)?;
                if !self.join_node(cx, &mut steps)? {
                    return Ok(());
                }
                continue;
            }
            if steps.is_empty() {
                step.buf.with_mut(|data| data.fill(0));
                self.0.stamp(&step.buf, F::LEAF);
                step.buf.with_mut(|data| self.0.init_leaf(data));
                self.log_all(&step.buf);
                return Ok(());
            }
            self.remove_block(cx, &Leaf { block: step.block, buf: step.buf })?;
        }
        Ok(())
    }

    /// Joins the node that the last step takes with a neighbour below the same node, if both are to
    /// have no more than three quarters of what fits, as Linux does; true if the last step then
    /// takes the one that went. (xfs_repair takes a last node with one child for damage.)
    fn join_node(&mut self, cx: &mut Cx, steps: &mut Steps) -> Result<bool> {
        let Some(above) = steps.last_mut() else { return Ok(false) };
        let (level, mut list) = self.children(above.block, &above.buf)?;
        for left in [above.index.wrapping_sub(1), above.index] {
            let right = left.wrapping_add(1);
            let (Some(one), Some(other)) = (list.get(left), list.get(right)) else { continue };
            let mut read = |block: u32| -> Result<(Step, u16, Vec<Child>)> {
                let block = u64::from(block);
                let buf = self.0.read(cx, block)?;
                let (level, children) = self.children(block, &buf)?;
                Ok((Step { block, buf, index: 0 }, level, children))
            };
            let ((one, below, mut all), (other, _, more)) = (read(one.block)?, read(other.block)?);
            let max = da::node_max(one.buf.len());
            if all.len() + more.len() > max - max / 4 || all.len().min(more.len()) > max / 2 {
                continue;
            }
            let from = all.len();
            all.extend_from_slice(&more);
            self.store_children(&one, below, &all, from);
            list[left].hash = last_of(&all);
            self.store_children(above, level, &list, left);
            above.index = right;
            self.remove_block(cx, &Leaf { block: other.block, buf: other.buf })?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Removes levels: a root with one child takes its content.
    fn lower_root(&mut self, cx: &mut Cx) -> Result<()> {
        let start = self.0.root();
        loop {
            let root = self.0.read(cx, start)?;
            if root.kind() != Some(Kind::DaNode) {
                return Ok(());
            }
            let (_, list) = self.children(start, &root)?;
            let [only] = list[..] else { return Ok(()) };
            let only = u64::from(only.block);
            let child = self.0.read(cx, only)?;
            let content = child.to_vec();
            root.with_mut(|data| data.copy_from_slice(&content));
            self.0.stamp(&root, child.kind().unwrap_or(F::LEAF));
            root.with_mut(|data| da::set_siblings(data, Siblings::default()));
            self.log_all(&root);
            self.0.remove_block(cx, only, &child)?;
        }
    }
}

/// A leaf as it is read without a transaction.
pub(crate) struct LeafBlock {
    pub block: u64,
    pub kind: Kind,
    pub data: Meta,
}

/// The first leaf that can hold this hash, without a transaction. None if all hashes are below it.
///
/// # Errors
/// A level that cannot be; what `read` returns.
pub(crate) fn find_leaf(
    root: u64,
    hash: u32,
    at: impl Fn(u64) -> At,
    mut read: impl FnMut(u64) -> Result<(Kind, Meta), Fault>,
) -> Result<Option<LeafBlock>, Fault> {
    let (mut block, mut level) = (root, None);
    loop {
        let (kind, data) = read(block)?;
        let at = at(block);
        if kind != Kind::DaNode {
            check_level(level, 0, at)?;
            return Ok(Some(LeafBlock { block, kind, data }));
        }
        let node = DaNode::parse_trusted(&data, at)?;
        check_level(level, node.level, at)?;
        let Some(child) = node.find(hash) else { return Ok(None) };
        level = Some(node.level - 1);
        block = u64::from(node.child(child).block);
    }
}
