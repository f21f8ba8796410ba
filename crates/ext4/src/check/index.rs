//! Hash trees: which block has which place in the tree.

use base::Ino;
use block::DeviceError;

use super::Checker;
use super::rule::Rule;
use crate::format::features::Incompat;
use crate::format::hash::HashVersion;
use crate::format::htree::{self, NODE_ARRAY, Node};
use crate::format::{At, CorruptKind};

/// The place of a block in its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Not reached.
    None,
    /// Reached twice: what it may hold is unknown.
    Twice,
    /// The root.
    Root,
    /// A node between root and leaves.
    Node,
    /// A leaf with names from hash `low` up to the hash of the next leaf.
    Leaf {
        /// The hash in the tree, bit 0 included.
        low: u32,
        /// That of the next leaf; None in the last one.
        next: Option<u32>,
    },
}

/// The tree of one directory.
pub struct Tree {
    roles: Vec<Role>,
    /// How names are hashed; `None`: their hashes stand beside them.
    pub version: Option<HashVersion>,
}

impl Tree {
    /// The place of a logical block.
    pub fn role(&self, logical: u64) -> Role {
        self.roles.get(logical as usize).copied().unwrap_or(Role::None)
    }
}

/// A block that is yet to be given its place.
struct Visit {
    logical: u64,
    levels: u8,
    low: u32,
    next: Option<u32>,
}

impl Checker<'_> {
    /// Walks over a directory's tree. None where its root is broken.
    ///
    /// # Errors
    /// The device's.
    pub fn tree(&mut self, dir: usize) -> Result<Option<Tree>, DeviceError> {
        let blocks = self.dirs[dir].len();
        let Some(first) = self.dirs[dir].device_block(0) else { return Ok(None) };
        let page = self.io.read(first, 1)?;
        let at = At::Block(Ino(self.dirs[dir].ino.into()), first);
        let large = self.g.features.incompat.contains(Incompat::LARGEDIR);
        let info = match htree::parse_root(&page, self.names(dir), if large { 2 } else { 1 }) {
            Ok(info) => info,
            Err(kind) => {
                self.findings.corrupt(&kind.at(at));
                return Ok(None);
            }
        };
        let version = HashVersion::from_disk(info.hash_version, self.g.hash_unsigned);
        let mut tree = Tree { roles: vec![Role::None; blocks as usize], version };
        tree.roles[0] = Role::Root;
        let root = Visit { logical: 0, levels: info.levels + 1, low: 0, next: None };
        let mut todo = Vec::new();
        if !self.tree_node(dir, &root, &page, at, &mut todo) {
            return Ok(None);
        }
        let mut broken = false;
        while let Some(visit) = todo.pop() {
            let Some(role) = tree.roles.get_mut(visit.logical as usize) else { continue };
            if *role != Role::None {
                if *role != Role::Twice {
                    let detail = format!("block {} is reached twice", visit.logical);
                    self.findings.add(Rule::HtreeBlocks, at, detail);
                }
                if matches!(role, Role::Leaf { .. }) {
                    *role = Role::Twice;
                }
                broken = true;
                continue;
            }
            if visit.levels == 0 {
                *role = Role::Leaf { low: visit.low, next: visit.next };
                continue;
            }
            *role = Role::Node;
            let Some(block) = self.dirs[dir].device_block(visit.logical) else { continue };
            let page = self.io.read(block, 1)?;
            let at = At::Block(Ino(self.dirs[dir].ino.into()), block);
            broken |= !self.tree_node(dir, &visit, &page, at, &mut todo);
        }
        if broken {
            // Whose leaves are missing is known; what they hold is read as ordinary blocks.
            return Ok(Some(tree));
        }
        if let Some(block) = tree.roles.iter().position(|&role| role == Role::None) {
            self.findings.add(Rule::HtreeBlocks, at, format!("block {block} is not reached"));
        }
        Ok(Some(tree))
    }

    /// One root or node: its checks, and its children onto the list. False where it is broken.
    fn tree_node(
        &mut self,
        dir: usize,
        visit: &Visit,
        data: &[u8],
        at: At,
        todo: &mut Vec<Visit>,
    ) -> bool {
        let record = &self.dirs[dir];
        let array = match visit.logical {
            0 => htree::root_array(data, self.names(dir)),
            _ => NODE_ARRAY,
        };
        let seed = self.g.checksums.inode_seed(Ino(record.ino.into()), record.generation());
        let layout = self.g.dir_layout();
        if let Err(kind) = htree::check(data, layout, array, record.len()) {
            self.findings.corrupt(&kind.at(at));
            return false;
        }
        if layout.checksum
            && let Err(kind) = htree::verify_checksum(seed, data, array)
        {
            self.findings.corrupt(&kind.at(at));
        }
        let node = Node::new(data, array);
        for index in 0..node.count() {
            let low = if index == 0 { visit.low } else { node.hash(index) };
            let last = index + 1 == node.count();
            let next = if last { visit.next } else { Some(node.hash(index + 1)) };
            if low < visit.low || visit.next.is_some_and(|next| low > next) {
                let kind = CorruptKind::HtreeOrder { index, hash: low, before: visit.low };
                self.findings.corrupt(&kind.at(at));
            }
            let logical = node.block(index).into();
            todo.push(Visit { logical, levels: visit.levels - 1, low, next });
        }
        true
    }
}
