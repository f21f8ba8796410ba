//! Walking a hash tree of directories or attributes: leaves from left to right.

use base::Ino;
use block::DeviceError;

use super::{Checker, Rule};
use crate::buf::meta::Meta;
use crate::format::da::{self, DaNode, Siblings};
use crate::format::extent::Extent;
use crate::format::{At, Kind};

/// A tree to walk.
#[derive(Clone, Copy)]
pub(super) struct DaTree<'a> {
    pub ino: Ino,
    pub extents: &'a [Extent],
    /// File system blocks per block of the tree.
    pub count: u64,
    /// What a leaf may be.
    pub kinds: &'static [Kind],
    /// What findings are about.
    pub rule: Rule,
}

/// A leaf that was met: where, of what kind, its content.
pub(super) type LeafBlock = (u64, Kind, Meta);

impl Checker<'_> {
    /// Shows all leaves below `root` to `look`, which returns the highest hash of each. False if
    /// something could not be read.
    pub(super) fn walk_da(
        &mut self,
        tree: &DaTree<'_>,
        root: u64,
        look: &mut dyn FnMut(&mut Self, &LeafBlock) -> Option<u32>,
    ) -> Result<bool, DeviceError> {
        self.seen.clear();
        let mut left = Vec::new();
        Ok(self.walk_da_block(tree, root, None, &mut left, look)?.is_some())
    }

    /// Walks a subtree; returns its highest hash.
    fn walk_da_block(
        &mut self,
        tree: &DaTree<'_>,
        block: u64,
        level: Option<u16>,
        left: &mut Vec<Option<(u64, u32)>>,
        look: &mut dyn FnMut(&mut Self, &LeafBlock) -> Option<u32>,
    ) -> Result<Option<u32>, DeviceError> {
        let at = At::InodeBlock(tree.ino, block);
        if !self.seen.insert(block) {
            self.findings.add(tree.rule, at, "the block is in the tree twice");
            return Ok(None);
        }
        let read = self.fork_block(tree.ino, tree.extents, block, tree.count, tree.kinds)?;
        let Some((kind, data)) = read else { return Ok(None) };
        let depth = usize::from(level.unwrap_or(u16::MAX));
        if kind != Kind::DaNode {
            if level.is_some_and(|level| level != 0) {
                self.findings.add(tree.rule, at, "a leaf lies where a node must");
            }
            self.da_siblings(tree, block, 0, &data, left);
            return Ok(look(self, &(block, kind, data)));
        }
        let parsed = DaNode::parse_trusted(&data, at).and_then(|node| node.check_order(at));
        let Some(node) = self.keep(parsed.map_err(Into::into))? else { return Ok(None) };
        if level.is_some_and(|level| level != node.level) {
            let text = format!("level {} should be {depth}", node.level);
            self.findings.add(tree.rule, at, text);
            return Ok(None);
        }
        self.da_siblings(tree, block, node.level, &data, left);
        let mut highest = Some(0);
        for index in 0..node.len() {
            let child = node.child(index);
            let below = Some(node.level - 1);
            match self.walk_da_block(tree, u64::from(child.block), below, left, look)? {
                Some(hash) => {
                    if hash != child.hash {
                        let text = format!(
                            "child {index} has hash {hash:#010x}, not {:#010x}",
                            child.hash
                        );
                        self.findings.add(tree.rule, at, text);
                    }
                    highest = highest.map(|_| child.hash);
                }
                None => highest = None,
            }
        }
        Ok(highest)
    }

    /// Compares neighbours with the block that was met before at this level.
    fn da_siblings(
        &mut self,
        tree: &DaTree<'_>,
        block: u64,
        level: u16,
        data: &[u8],
        left: &mut Vec<Option<(u64, u32)>>,
    ) {
        let level = usize::from(level);
        if left.len() <= level {
            left.resize(level + 1, None);
        }
        let Siblings { right, left: before } = da::siblings(data);
        let (expected, named) = left[level].unwrap_or((0, block as u32));
        if u64::from(before) != expected || u64::from(named) != block {
            let text = format!("left neighbour {before} should be {expected}");
            self.findings.add(tree.rule, At::InodeBlock(tree.ino, block), text);
        }
        left[level] = Some((block, right));
    }
}
