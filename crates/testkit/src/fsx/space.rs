//! What an operation needs at the worst, in blocks.

use crate::fsx::{Op, Way};

/// How a format keeps track of a file's blocks.
#[derive(Clone, Copy, Debug)]
pub enum Tree {
    /// A tree of extents: so many in a node at the most.
    Extents(u64),
    /// Tables of pointers: so many in a table.
    Tables(u64),
}

/// What operations cost on a file system.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Bytes of a block.
    pub block: u64,
    /// What else a file's blocks take.
    pub tree: Tree,
    /// Blocks (clusters) that are counted as free and that a write does not get.
    pub kept: u64,
    /// Blocks that an allocation takes at least: a cluster.
    pub cluster: u64,
}

/// Bytes of a page: content is cached, and mapped, in whole ones.
const PAGE: u64 = 4096;

impl Cost {
    /// ext4 (and ext3, with `tables`) of `blocks` blocks: 2 % and at most 4,096 of them are kept
    /// for root and for nodes that nobody asked a write for.
    pub fn ext4(block: u64, blocks: u64, tables: bool) -> Cost {
        let tree = match tables {
            true => Tree::Tables(block / 4),
            false => Tree::Extents((block - 16) / 12),
        };
        Cost { block, tree, kept: (blocks / 50).min(4096), cluster: 1 }
    }

    /// The same of a file system whose unit of allocation is a cluster of `cluster` blocks.
    pub fn clusters(self, cluster: u64) -> Cost {
        Cost { kept: (self.kept / cluster).max(1), cluster, ..self }
    }

    /// XFS of `blocks` blocks in `groups` groups: each keeps what its trees may grow by (a
    /// hundredth for the reverse map, a three hundredth for reference counts, some inodes), and
    /// what they have.
    pub fn xfs(block: u64, blocks: u64, groups: u64) -> Cost {
        Cost { block, tree: Tree::Extents(block / 32), kept: blocks / 60 + groups * 40, cluster: 1 }
    }

    /// Blocks that an operation on a file of `size` bytes may need at the worst, with what is kept:
    /// whoever is refused must have had less.
    pub fn worst(&self, op: &Op, size: u64) -> u64 {
        let (at, len) = op.range();
        let unit = match op {
            Op::Write { way: Way::Direct, .. } => self.block,
            _ => self.block.max(PAGE),
        };
        let blocks = (at + len).div_ceil(unit) * unit / self.block - at / unit * unit / self.block;
        // What gives no blocks may still split an extent at either end, and copy a shared block.
        let blocks = match op {
            Op::Punch { .. } | Op::Truncate { .. } | Op::Sync { .. } => 2,
            _ => blocks,
        };
        let all = size.max(at + len).div_ceil(self.block);
        (self.kept + blocks + self.nodes(blocks, all)) * self.cluster
    }

    /// Nodes for `blocks` blocks, each at a place of its own, in a file of `all` blocks whose nodes
    /// are all full.
    fn nodes(&self, blocks: u64, all: u64) -> u64 {
        match self.tree {
            // A block may be turned from a part of an unwritten extent into one of its own: three.
            // A node that splits is half full. Every level above is smaller by that.
            Tree::Extents(most) => {
                let half = most / 2 - 1;
                let leaves = (3 * blocks).div_ceil(half) + blocks.min(all.div_ceil(half));
                leaves + 2 * leaves.div_ceil(half) + 4
            }
            Tree::Tables(pointers) => blocks.min(all.div_ceil(pointers)) + 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_case_counts_whole_pages_nodes_and_what_is_kept() {
        let cost = Cost { block: 1024, tree: Tree::Tables(256), kept: 100, cluster: 1 };
        let write = |way| Op::Write { way, at: 4096, len: 1 };
        assert_eq!(cost.worst(&write(Way::Cached), 0), 100 + 4 + 1 + 4);
        assert_eq!(cost.worst(&write(Way::Direct), 0), 100 + 1 + 1 + 4);
        let over = Op::Write { way: Way::Cached, at: 4095, len: 2 };
        assert_eq!(cost.worst(&over, 0), 100 + 8 + 1 + 4);
        assert_eq!(cost.worst(&Op::Truncate { size: 0 }, 1 << 20), 100 + 2 + 2 + 4);
    }
}
