//! The hash tree of an attribute fork that is being changed: leaves with entries sorted by hash,
//! nodes above them, the root always in block 0.

use std::sync::Arc;

use rt::Cx;

use super::Name;
use super::attribute::{Attribute, groups, size_of};
use super::fork::{AttrEdit, replace};
use crate::buf::Buf;
use crate::error::Result;
use crate::format::attr_leaf::{self, AttrLeaf, LEAF_HEADER};
use crate::format::da::{self, Child, DaNode};
use crate::format::hash::hash;
use crate::format::{CorruptKind, Kind};
use crate::trans::Trans;

/// A node on the way to a leaf.
struct Step {
    block: u64,
    buf: Arc<Buf>,
    /// The child that the way goes on with.
    index: usize,
}

/// The way from the root to a leaf.
pub(super) struct Way {
    nodes: Vec<Step>,
    block: u64,
    leaf: Arc<Buf>,
}

impl AttrEdit<'_> {
    fn children(&self, block: u64, buf: &Arc<Buf>) -> Result<(u16, Vec<Child>)> {
        let at = self.at(block);
        Ok(buf.with(|data| {
            let node = DaNode::parse_trusted(data, at)?;
            Ok::<_, crate::format::Corrupt>((
                node.level,
                (0..node.len()).map(|index| node.child(index)).collect(),
            ))
        })?)
    }

    pub(super) fn attributes(&self, way: &Way) -> Result<Vec<Attribute>> {
        let at = self.at(way.block);
        Ok(way.leaf.with(|data| {
            let leaf = AttrLeaf::parse(data, at)?;
            Ok::<_, crate::format::Corrupt>(
                leaf.iter().map(|attr| Attribute::read(&attr)).collect(),
            )
        })?)
    }

    /// The way to a leaf below `block`; `choose` names the child of each node.
    fn go_down(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        mut nodes: Vec<Step>,
        mut block: u64,
        choose: &dyn Fn(&[Child]) -> usize,
    ) -> Result<Way> {
        let mut level =
            nodes.last().map(|step| self.children(step.block, &step.buf)).transpose()?;
        loop {
            let buf = self.read(cx, trans, block)?;
            if buf.kind() != Some(Kind::DaNode) {
                if let Some((found, _)) = level
                    && found != 1
                {
                    return Err(CorruptKind::DaLevel { found }.at(self.at(block)).into());
                }
                return Ok(Way { nodes, block, leaf: buf });
            }
            let (found, children) = self.children(block, &buf)?;
            if level.is_some_and(|(above, _)| above != found + 1) {
                return Err(CorruptKind::DaLevel { found }.at(self.at(block)).into());
            }
            let index = choose(&children);
            nodes.push(Step { block, buf, index });
            block = u64::from(children[index].block);
            level = Some((found, children));
        }
    }

    /// The way to the first leaf that can hold this hash, or to the last leaf.
    fn descend(&self, cx: &mut Cx, trans: &mut Trans, hash: u32) -> Result<Way> {
        self.go_down(cx, trans, Vec::new(), 0, &|children| {
            children.partition_point(|child| child.hash < hash).min(children.len() - 1)
        })
    }

    /// The way to the next leaf on the right.
    fn next(&self, cx: &mut Cx, trans: &mut Trans, mut way: Way) -> Result<Option<Way>> {
        while let Some(mut step) = way.nodes.pop() {
            let (_, children) = self.children(step.block, &step.buf)?;
            if step.index + 1 < children.len() {
                step.index += 1;
                let block = u64::from(children[step.index].block);
                way.nodes.push(step);
                return self.go_down(cx, trans, way.nodes, block, &|_| 0).map(Some);
            }
        }
        Ok(None)
    }

    /// The leaf with this name: the way there, what the leaf holds, and which one it is.
    pub(super) fn find(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        name: &Name,
    ) -> Result<Option<(Way, Vec<Attribute>, usize)>> {
        let hash = hash(&name.rest);
        let mut way = self.descend(cx, trans, hash)?;
        loop {
            let list = self.attributes(&way)?;
            if let Some(index) = list.iter().position(|attr| name.is(attr.flags, &attr.name)) {
                return Ok(Some((way, list, index)));
            }
            if list.last().is_some_and(|last| last.hash > hash) {
                return Ok(None);
            }
            match self.next(cx, trans, way)? {
                Some(next) => way = next,
                None => return Ok(None),
            }
        }
    }

    /// What the root holds, which is a leaf.
    pub(super) fn root_list(&self, root: &Arc<Buf>) -> Result<Vec<Attribute>> {
        self.attributes(&Way { nodes: Vec::new(), block: 0, leaf: root.clone() })
    }

    /// An empty leaf in a block without content.
    pub(super) fn fresh_leaf(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        block: u64,
    ) -> Result<Arc<Buf>> {
        let buf = self.fresh(cx, trans, block, Kind::AttrLeaf)?;
        let expect = self.expect(block)?;
        buf.with_mut(|data| {
            da::init(Kind::AttrLeaf, data, &expect);
            attr_leaf::emit(data, &[]);
        });
        trans.log_buf(&buf, 0, buf.len() - 1);
        Ok(buf)
    }

    pub(super) fn store_leaf(&self, trans: &mut Trans, leaf: &Arc<Buf>, list: &[Attribute]) {
        let mut new = leaf.to_vec();
        let borrowed: Vec<_> = list.iter().map(Attribute::borrowed).collect();
        attr_leaf::emit(&mut new, &borrowed);
        replace(trans, leaf, &new);
    }

    fn store_node(&self, trans: &mut Trans, buf: &Arc<Buf>, level: u16, children: &[Child]) {
        let mut new = buf.to_vec();
        da::emit_node(&mut new, level, children);
        replace(trans, buf, &new);
    }

    /// Carries the highest hash of the way's leaf into the nodes above.
    fn refresh(&self, trans: &mut Trans, way: &Way, mut hash: u32) -> Result<()> {
        for step in way.nodes.iter().rev() {
            let (level, mut children) = self.children(step.block, &step.buf)?;
            if children[step.index].hash == hash {
                break;
            }
            children[step.index].hash = hash;
            self.store_node(trans, &step.buf, level, &children);
            hash = children.last().map_or(0, |child| child.hash);
        }
        Ok(())
    }

    /// Makes `new` the right neighbour of a block at its level.
    fn link_right(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        (block, buf): (u64, &Arc<Buf>),
        (new, new_buf): (u64, &Arc<Buf>),
    ) -> Result<()> {
        let (right, left) = buf.with(da::siblings);
        let set = |trans: &mut Trans, buf: &Arc<Buf>, right, left| {
            buf.with_mut(|data| da::set_siblings(data, right, left));
            trans.log_buf(buf, 0, 7);
        };
        set(trans, buf, new as u32, left);
        set(trans, new_buf, right, block as u32);
        if right != 0 {
            let other = self.read(cx, trans, u64::from(right))?;
            let (behind, _) = other.with(da::siblings);
            set(trans, &other, behind, new as u32);
        }
        Ok(())
    }

    /// Moves the root's content into a block of its own and puts a node with that as its only child
    /// in its place.
    fn grow(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        let root = self.read(cx, trans, 0)?;
        let kind = root.kind().unwrap_or(Kind::AttrLeaf);
        let (level, hash) = match kind {
            Kind::DaNode => {
                let (level, children) = self.children(0, &root)?;
                (level, children.last().map_or(0, |child| child.hash))
            }
            _ => {
                let at = self.at(0);
                let last =
                    root.with(|data| -> std::result::Result<u32, crate::format::Corrupt> {
                        Ok(AttrLeaf::parse(data, at)?.iter().last().map_or(0, |attr| attr.hash))
                    })?;
                (0, last)
            }
        };
        let block = self.add_blocks(cx, trans, 1)?;
        self.copy_block(cx, trans, (0, &root), block)?;
        let expect = self.expect(0)?;
        root.set_kind(Kind::DaNode);
        root.with_mut(|data| {
            data.fill(0);
            da::init(Kind::DaNode, data, &expect);
            da::emit_node(data, level + 1, &[Child { hash, block: block as u32 }]);
        });
        trans.log_buf(&root, 0, root.len() - 1);
        Ok(())
    }

    /// Copies a block without neighbours to another place of the fork.
    fn copy_block(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        (_, from): (u64, &Arc<Buf>),
        to: u64,
    ) -> Result<()> {
        let kind = from.kind().unwrap_or(Kind::AttrLeaf);
        let content = from.to_vec();
        let new = match to {
            0 => self.read(cx, trans, 0)?,
            to => self.fresh(cx, trans, to, kind)?,
        };
        new.set_kind(kind);
        let expect = self.expect(to)?;
        new.with_mut(|data| {
            data.copy_from_slice(&content);
            data[..da::INFO_SIZE].fill(0);
            crate::format::seal::stamp(kind, data, &expect);
        });
        trans.log_buf(&new, 0, new.len() - 1);
        Ok(())
    }

    /// Cuts the node at `depth` of the way in two; the one above has room for one child more.
    fn split_node(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        way: &Way,
        depth: usize,
    ) -> Result<()> {
        let step = &way.nodes[depth];
        let (level, mut left) = self.children(step.block, &step.buf)?;
        let right = left.split_off(left.len() / 2);
        let block = self.add_blocks(cx, trans, 1)?;
        let buf = self.fresh(cx, trans, block, Kind::DaNode)?;
        let expect = self.expect(block)?;
        buf.with_mut(|data| {
            da::init(Kind::DaNode, data, &expect);
            da::emit_node(data, level, &right);
        });
        trans.log_buf(&buf, 0, buf.len() - 1);
        self.store_node(trans, &step.buf, level, &left);
        self.link_right(cx, trans, (step.block, &step.buf), (block, &buf))?;
        let above = &way.nodes[depth - 1];
        let (level, mut children) = self.children(above.block, &above.buf)?;
        let hash = |list: &[Child]| list.last().map_or(0, |child| child.hash);
        children[above.index].hash = hash(&left);
        children.insert(above.index + 1, Child { hash: hash(&right), block: block as u32 });
        self.store_node(trans, &above.buf, level, &children);
        Ok(())
    }

    /// Sees to it that every node of the way has room for the children that a leaf may be cut
    /// into, and that there is a node. True where something was changed: the way is another one.
    fn make_room(&mut self, cx: &mut Cx, trans: &mut Trans, way: &Way) -> Result<bool> {
        if way.nodes.is_empty() {
            self.grow(cx, trans)?;
            return Ok(true);
        }
        let most = da::node_max(self.block_size());
        for (depth, step) in way.nodes.iter().enumerate() {
            if self.children(step.block, &step.buf)?.1.len() + 3 > most {
                match depth {
                    0 => self.grow(cx, trans)?,
                    _ => self.split_node(cx, trans, way, depth)?,
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts an attribute into the tree, in the place of one with its name if there is one.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub(super) fn put(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        name: &Name,
        new: &Attribute,
    ) -> Result<()> {
        let room = self.block_size() - LEAF_HEADER;
        loop {
            let (way, list) = match self.find(cx, trans, name)? {
                Some((way, mut list, index)) => {
                    list[index] = new.clone();
                    (way, list)
                }
                None => {
                    let way = self.descend(cx, trans, new.hash)?;
                    let mut list = self.attributes(&way)?;
                    let index = list.partition_point(|attr| attr.hash < new.hash);
                    list.insert(index, new.clone());
                    (way, list)
                }
            };
            let groups = groups(list, room);
            if groups.len() == 1 || !self.make_room(cx, trans, &way)? {
                return self.spread(cx, trans, way, &groups);
            }
        }
    }

    /// Stores lists of attributes into the way's leaf and new ones on its right.
    fn spread(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        mut way: Way,
        groups: &[Vec<Attribute>],
    ) -> Result<()> {
        let highest = |list: &[Attribute]| list.last().map_or(0, |attr| attr.hash);
        self.store_leaf(trans, &way.leaf, &groups[0]);
        self.refresh(trans, &way, highest(&groups[0]))?;
        for list in &groups[1..] {
            let block = self.add_blocks(cx, trans, 1)?;
            let leaf = self.fresh_leaf(cx, trans, block)?;
            self.link_right(cx, trans, (way.block, &way.leaf), (block, &leaf))?;
            self.store_leaf(trans, &leaf, list);
            let step = way.nodes.last_mut().expect("a leaf is cut below a node");
            let (level, mut children) = self.children(step.block, &step.buf)?;
            step.index += 1;
            // The hash of the leaf before, so that the nodes above are brought in step as well.
            let before = children[step.index - 1].hash;
            children.insert(step.index, Child { hash: before, block: block as u32 });
            self.store_node(trans, &step.buf, level, &children);
            (way.block, way.leaf) = (block, leaf);
            self.refresh(trans, &way, highest(list))?;
        }
        Ok(())
    }

    /// Takes an attribute out; leaves and nodes that become empty or small are joined.
    pub(super) fn take(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        (way, mut list, index): (Way, Vec<Attribute>, usize),
    ) -> Result<()> {
        list.remove(index);
        if way.nodes.is_empty() {
            self.store_leaf(trans, &way.leaf, &list);
            return Ok(());
        }
        if let Some(last) = list.last() {
            self.store_leaf(trans, &way.leaf, &list);
            self.refresh(trans, &way, last.hash)?;
        }
        self.join_leaves(cx, trans, way, list)?;
        self.collapse(cx, trans)
    }

    /// Joins a small leaf with a neighbour below the same node, and lets an empty one go.
    fn join_leaves(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        mut way: Way,
        list: Vec<Attribute>,
    ) -> Result<()> {
        let depth = way.nodes.len() - 1;
        if list.is_empty() {
            let gone = (way.block, way.leaf.clone());
            return self.drop_child(cx, trans, &mut way.nodes, depth, gone);
        }
        let room = self.block_size() - LEAF_HEADER;
        if size_of(&list) > room / 2 {
            return Ok(());
        }
        let step = &way.nodes[depth];
        let (_, children) = self.children(step.block, &step.buf)?;
        let here = step.index;
        for (left, right) in [(Some(here), here + 1), (here.checked_sub(1), here)] {
            let Some((left, right)) = left.zip(children.get(right).map(|_| right)) else {
                continue;
            };
            let other = if left == here { right } else { left };
            let block = u64::from(children[other].block);
            let neighbour = Way { nodes: Vec::new(), block, leaf: self.read(cx, trans, block)? };
            let theirs = self.attributes(&neighbour)?;
            if size_of(&list) + size_of(&theirs) > room {
                continue;
            }
            let (keep, gone, all) = if left == here {
                (&way.leaf, (block, neighbour.leaf), [list, theirs].concat())
            } else {
                (&neighbour.leaf, (way.block, way.leaf.clone()), [theirs, list].concat())
            };
            self.store_leaf(trans, keep, &all);
            let highest = all.last().map_or(0, |attr| attr.hash);
            // The one on the right goes; the left one has its hash from now on.
            way.nodes[depth].index = right;
            self.drop_child(cx, trans, &mut way.nodes, depth, gone)?;
            return self.set_hash(trans, &way.nodes, depth, (left, highest));
        }
        Ok(())
    }

    /// Sets the hash of child `index` of the node at `depth`, and those above.
    fn set_hash(
        &self,
        trans: &mut Trans,
        nodes: &[Step],
        depth: usize,
        (mut index, mut hash): (usize, u32),
    ) -> Result<()> {
        for at in (0..=depth).rev() {
            let step = &nodes[at];
            let (level, mut children) = self.children(step.block, &step.buf)?;
            children[index].hash = hash;
            self.store_node(trans, &step.buf, level, &children);
            hash = children.last().map_or(0, |child| child.hash);
            index = at.checked_sub(1).map_or(0, |above| nodes[above].index);
        }
        Ok(())
    }

    /// Takes the block that the way goes through below `depth` out of the tree.
    fn drop_child(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        nodes: &mut Vec<Step>,
        depth: usize,
        (block, buf): (u64, Arc<Buf>),
    ) -> Result<()> {
        let (right, left) = buf.with(da::siblings);
        for (other, is_left) in [(left, true), (right, false)] {
            if other != 0 {
                let other = self.read(cx, trans, u64::from(other))?;
                let (behind, before) = other.with(da::siblings);
                let (behind, before) = if is_left { (right, before) } else { (behind, left) };
                other.with_mut(|data| da::set_siblings(data, behind, before));
                trans.log_buf(&other, 0, 7);
            }
        }
        self.free_blocks(cx, trans, (block, 1), Kind::AttrLeaf)?;
        let step = &nodes[depth];
        let (level, mut children) = self.children(step.block, &step.buf)?;
        children.remove(step.index);
        let (block, buf) = (step.block, step.buf.clone());
        match (children.last().copied(), depth) {
            (Some(last), _) => {
                self.store_node(trans, &buf, level, &children);
                if let Some(above) = depth.checked_sub(1) {
                    let index = nodes[above].index;
                    self.set_hash(trans, nodes, above, (index, last.hash))?;
                }
                Ok(())
            }
            (None, 0) => {
                let expect = self.expect(0)?;
                buf.set_kind(Kind::AttrLeaf);
                buf.with_mut(|data| {
                    data.fill(0);
                    da::init(Kind::AttrLeaf, data, &expect);
                    attr_leaf::emit(data, &[]);
                });
                trans.log_buf(&buf, 0, buf.len() - 1);
                Ok(())
            }
            (None, _) => {
                nodes.truncate(depth);
                self.drop_child(cx, trans, nodes, depth - 1, (block, buf))
            }
        }
    }

    /// While the root is a node with one child, that takes its place.
    fn collapse(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        loop {
            let root = self.read(cx, trans, 0)?;
            if root.kind() != Some(Kind::DaNode) {
                return Ok(());
            }
            let (_, children) = self.children(0, &root)?;
            let [only] = children[..] else { return Ok(()) };
            let block = u64::from(only.block);
            let child = self.read(cx, trans, block)?;
            self.copy_block(cx, trans, (block, &child), 0)?;
            self.free_blocks(cx, trans, (block, 1), Kind::AttrLeaf)?;
        }
    }
}
