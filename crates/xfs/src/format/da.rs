//! What directories and attributes have in common: blocks that form a hash tree.
//!
//! A node holds, for each child, the highest hash in it and the child's block in the fork.
//! Source: "XFS Algorithms and Data Structures", chapter on directory/attribute btrees.

use super::{At, Corrupt, CorruptKind, Expect, Kind, put_u16, put_u32, u16_at, u32_at, verifier};

/// Bytes of a node's header. Readers take that of version 4 from the block's magic number.
pub const NODE_HEADER: usize = 64;
/// Bytes of an entry of a node.
pub const NODE_ENTRY: usize = 8;
/// Levels of nodes and leaves at the most.
pub const DEPTH_MAX: u16 = 5;

/// One child of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// The highest hash below it.
    pub hash: u32,
    /// Its block in the fork.
    pub block: u32,
}

/// A valid node.
#[derive(Clone, Copy)]
pub struct DaNode<'a> {
    /// Distance from the leaves, at least 1.
    pub level: u16,
    count: u16,
    header: usize,
    data: &'a [u8],
}

/// Where a leaf or a node with a header of so many bytes keeps its two counts: behind its siblings
/// and magic number, in version 5 behind its whole self-description.
pub(super) fn counts_at(header: usize) -> usize {
    if header == NODE_HEADER { 56 } else { 12 }
}

/// Room for children in a node of `size` bytes.
pub fn node_max(size: usize) -> usize {
    (size - NODE_HEADER) / NODE_ENTRY
}

impl<'a> DaNode<'a> {
    /// The node in `data`: self-description, level, count and the order of its hashes.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(data: &'a [u8], expect: &Expect, at: At) -> Result<DaNode<'a>, Corrupt> {
        verifier::verify(Kind::DaNode, data, expect, at)?;
        DaNode::parse_trusted(data, at)?.check_order(at)
    }

    /// The node in `data`, whose self-description and order were checked when it was read
    /// ([`check_block`]).
    ///
    /// # Errors
    /// A level or a count that cannot be.
    pub fn parse_trusted(data: &'a [u8], at: At) -> Result<DaNode<'a>, Corrupt> {
        let header = Kind::DaNode.header(data, NODE_HEADER);
        let counts = counts_at(header);
        let (count, level) = (u16_at(data, counts), u16_at(data, counts + 2));
        if level == 0 || level > DEPTH_MAX {
            return Err(CorruptKind::DaLevel { found: level }.at(at));
        }
        let limit = ((data.len() - header) / NODE_ENTRY) as u16;
        if count == 0 || count > limit {
            return Err(CorruptKind::DaCount { found: count, limit }.at(at));
        }
        Ok(DaNode { level, count, header, data })
    }

    /// The node, if its hashes do not fall.
    ///
    /// # Errors
    /// [`CorruptKind::HashOrder`].
    pub fn check_order(self, at: At) -> Result<DaNode<'a>, Corrupt> {
        for index in 1..self.len() {
            let (before, hash) = (self.child(index - 1).hash, self.child(index).hash);
            if hash < before {
                return Err(CorruptKind::HashOrder { index: index as u32, hash, before }.at(at));
            }
        }
        Ok(self)
    }

    /// Number of children, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a node is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Child `index`.
    pub fn child(&self, index: usize) -> Child {
        assert!(index < self.len(), "child {index} of {}", self.count);
        let at = self.header + NODE_ENTRY * index;
        Child { hash: u32_at(self.data, at), block: u32_at(self.data, at + 4) }
    }

    /// The first child that can hold this hash. None if all hashes are below it.
    pub fn find(&self, hash: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.child(middle).hash < hash { low = middle + 1 } else { high = middle }
        }
        (low < self.len()).then_some(low)
    }
}

/// Checks a block of a hash tree when it comes into memory: a node's order. Leaves are searched in
/// a way that is right or finds nothing.
///
/// # Errors
/// The first check that fails.
pub fn check_block(data: &[u8], at: At) -> Result<(), Corrupt> {
    match verifier::verify_magic(Kind::DaNode, data, at) {
        Ok(()) => DaNode::parse_trusted(data, at)?.check_order(at).map(|_| ()),
        Err(_) => Ok(()),
    }
}

/// The neighbours of a leaf or node at its level: blocks of the fork, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Siblings {
    /// On the left.
    pub left: u32,
    /// On the right.
    pub right: u32,
}

/// The neighbours of a leaf or node.
pub fn siblings(data: &[u8]) -> Siblings {
    Siblings { right: u32_at(data, 0), left: u32_at(data, 4) }
}

/// Stores the neighbours.
pub fn set_siblings(data: &mut [u8], siblings: Siblings) {
    put_u32(data, 0, siblings.right);
    put_u32(data, 4, siblings.left);
}

/// Writes the header of a leaf or node: self-description without checksum, siblings, no entries.
pub fn init(kind: Kind, data: &mut [u8], expect: &Expect) {
    data[..NODE_HEADER].fill(0);
    verifier::stamp(kind, data, expect);
}

/// Writes a node's children; the self-description stays.
///
/// # Panics
/// If they do not fit.
pub fn emit_node(data: &mut [u8], level: u16, children: &[Child]) {
    assert!(children.len() <= node_max(data.len()), "{} children do not fit", children.len());
    put_u16(data, 56, children.len() as u16);
    put_u16(data, 58, level);
    for (index, child) in children.iter().enumerate() {
        let at = NODE_HEADER + NODE_ENTRY * index;
        put_u32(data, at, child.hash);
        put_u32(data, at + 4, child.block);
    }
}
