//! The levels of a hash tree over leaves that are complete but for their neighbours.

use xfs::format::Kind;
use xfs::format::da::{Child, Siblings, emit_node, node_max, set_siblings};

/// A leaf, and the highest hash in it.
pub struct Leaf {
    /// That hash.
    pub hash: u32,
    /// Its content without self-description.
    pub data: Vec<u8>,
}

/// A block of the tree.
pub struct TreeBlock {
    /// Distance from the leaves.
    pub level: u16,
    /// Its block in the fork.
    pub place: u32,
    /// Its content without self-description.
    pub data: Vec<u8>,
}

/// Builds the nodes above some leaves of `size` bytes. `place` names the block of the fork of each
/// number; the root has number 0.
pub fn levels(leaves: Vec<Leaf>, size: usize, place: &dyn Fn(u64) -> u32) -> Vec<TreeBlock> {
    let (mut below, mut level, mut next, mut out) = (leaves, 0, 1, Vec::new());
    loop {
        let root = below.len() == 1;
        let places: Vec<u32> = match root {
            true => vec![place(0)],
            false => (next..next + below.len() as u64).map(place).collect(),
        };
        next += if root { 0 } else { places.len() as u64 };
        let mut children = Vec::with_capacity(places.len());
        for (index, Leaf { hash, mut data }) in below.into_iter().enumerate() {
            let left = index.checked_sub(1).map_or(0, |left| places[left]);
            let right = places.get(index + 1).copied().unwrap_or(0);
            set_siblings(&mut data, Siblings { left, right });
            children.push(Child { hash, block: places[index] });
            out.push(TreeBlock { level, place: places[index], data });
        }
        if root {
            return out;
        }
        level += 1;
        below = children
            .chunks(node_max(size))
            .map(|children| {
                let mut data = vec![0; size];
                emit_node(&mut data, level, children);
                Leaf { hash: children[children.len() - 1].hash, data }
            })
            .collect();
    }
}

/// The kind of a block of a tree of attributes.
pub fn attr_kind(level: u16) -> Kind {
    if level == 0 { Kind::AttrLeaf } else { Kind::DaNode }
}
