//! Walking the btrees of a group, and those whose roots lie in inodes: every block once, keys and
//! neighbours as they must be.

use std::collections::BTreeSet;

use base::{FsBlock, Ino};
use block::DeviceError;

use super::{Checker, Rule};
use crate::buf::meta::{Meta, ReadRequest};
use crate::error::Fault;
use crate::format::ag::Root;
use crate::format::btree::{Neighbours, Node, ROOT_HEADER, Shape};
use crate::format::record::{FreeExtent, Refcount, Rmap, RmapKey};
use crate::format::{AgBlock, At, CorruptKind, Kind, u16_at, u32_at, u64_at};

/// Levels of a tree below a root in an inode at the most.
const LEVELS_MAX: u16 = 9;

/// What orders the records of a tree.
pub(super) type Key = (u64, u64, u64);

/// What a walk found.
#[derive(Default)]
pub(super) struct Content {
    /// Blocks of the tree: of the group, or of the file system.
    pub blocks: Vec<u64>,
    /// Every block could be read.
    pub complete: bool,
}

/// Is shown all records of a tree in their order.
pub(super) type Look<'l> = &'l mut dyn FnMut(&mut Checker<'_>, &[u8]);

/// Where the blocks of a tree lie, and who owns them.
#[derive(Clone, Copy)]
enum Home {
    /// In a group.
    Group(u32),
    /// Of an inode that holds the root.
    Inode(Ino),
}

impl Home {
    fn at(self, block: u64) -> At {
        match self {
            Home::Group(ag) => At::AgBlock(ag, block.min(u64::from(u32::MAX)) as u32),
            Home::Inode(ino) => At::Inode(ino),
        }
    }
}

struct Walk<'l> {
    home: Home,
    kind: Kind,
    look: Look<'l>,
    content: Content,
    seen: BTreeSet<u64>,
    neighbours: Neighbours,
    /// The key of the record before.
    before: Option<Key>,
}

impl<'l> Walk<'l> {
    fn new(home: Home, kind: Kind, look: Look<'l>) -> Walk<'l> {
        let content = Content { complete: true, ..Content::default() };
        let (seen, neighbours) = (BTreeSet::new(), Neighbours::default());
        Walk { home, kind, look, content, seen, neighbours, before: None }
    }
}

/// A child of a node: its lowest and highest key there, and its block.
struct Child<'a> {
    key: &'a [u8],
    high: Option<&'a [u8]>,
    block: u64,
}

/// The key of a record.
fn record_key(kind: Kind, record: &[u8]) -> Key {
    match kind {
        Kind::FreeByBlock | Kind::FreeBySize => free_key(kind, FreeExtent::read(record)),
        Kind::Rmap | Kind::RealtimeRmap => rmap_key(Rmap::read(record).key()),
        Kind::Refcount | Kind::RealtimeRefcount => (u64::from(Refcount::read(record).key()), 0, 0),
        _ => (u64::from(u32_at(record, 0)), 0, 0),
    }
}

/// A key of a node.
fn node_key(kind: Kind, key: &[u8]) -> Key {
    match kind {
        Kind::FreeByBlock | Kind::FreeBySize => free_key(kind, FreeExtent::read(key)),
        Kind::Rmap | Kind::RealtimeRmap => rmap_key(RmapKey::read(key)),
        _ => (u64::from(u32_at(key, 0)), 0, 0),
    }
}

fn free_key(kind: Kind, extent: FreeExtent) -> Key {
    let (start, len) = (u64::from(extent.start), u64::from(extent.len));
    if kind == Kind::FreeBySize { (len, start, 0) } else { (start, 0, 0) }
}

fn rmap_key(key: RmapKey) -> Key {
    (u64::from(key.start), key.owner, key.offset)
}

/// The highest key of a record, in the tree whose ranges overlap.
fn record_high(kind: Kind, record: &[u8]) -> Key {
    match kind {
        Kind::Rmap | Kind::RealtimeRmap => rmap_key(Rmap::read(record).high_key()),
        _ => record_key(kind, record),
    }
}

impl Checker<'_> {
    /// Walks a tree of group `ag`; shows its records.
    pub(super) fn walk_tree(
        &mut self,
        ag: u32,
        kind: Kind,
        root: Root,
        look: Look<'_>,
    ) -> Result<Content, DeviceError> {
        let mut walk = Walk::new(Home::Group(ag), kind, look);
        self.walk_block(&mut walk, u64::from(root.block), root.levels as u16 - 1)?;
        Ok(self.walked(walk))
    }

    /// Walks a tree whose root is the data fork of an inode; shows its records.
    pub(super) fn walk_inode_tree(
        &mut self,
        ino: Ino,
        kind: Kind,
        root: &[u8],
        look: Look<'_>,
    ) -> Result<Content, DeviceError> {
        let shape = Shape::of(kind);
        let (level, count) = (u16_at(root, 0), u16_at(root, 2));
        let (at, most) = (At::Inode(ino), shape.root_max(root.len(), level));
        let mut walk = Walk::new(Home::Inode(ino), kind, look);
        if level > LEVELS_MAX || usize::from(count) > most {
            let limit = most as u16;
            let kind = CorruptKind::BtreeCount { what: kind.name(), found: count, limit };
            self.findings.add(Rule::BtreeBlock, at, kind.to_string());
            walk.content.complete = false;
            return Ok(walk.content);
        }
        let size = if level == 0 { shape.record } else { shape.key * shape.keys };
        let entries = root[ROOT_HEADER..].chunks_exact(size).take(usize::from(count));
        if level == 0 {
            self.walk_leaf(&mut walk, entries, at);
            return Ok(walk.content);
        }
        let pointers = ROOT_HEADER + most * size;
        let children = entries.enumerate().map(|(index, keys)| Child {
            key: &keys[..shape.key],
            high: (shape.keys == 2).then(|| &keys[shape.key..]),
            block: u64_at(root, pointers + index * shape.pointer),
        });
        self.walk_children(&mut walk, children, level, at)?;
        Ok(self.walked(walk))
    }

    /// What the walk over all blocks of a tree has found.
    fn walked(&mut self, walk: Walk<'_>) -> Content {
        if let Some(block) = walk.neighbours.dangling() {
            let at = walk.home.at(block);
            let text = "the last block of its level has a neighbour on its right";
            self.findings.add(Rule::BtreeBlock, at, text);
        }
        walk.content
    }

    /// Whether a tree may have a block there.
    fn has_place(&self, home: Home, block: u64) -> bool {
        let geometry = &self.reader.geometry;
        match home {
            Home::Group(ag) => {
                let inside = u64::from(geometry.header_blocks())..u64::from(geometry.ag_length(ag));
                inside.contains(&block)
            }
            Home::Inode(_) => geometry.block_valid(FsBlock(block)),
        }
    }

    fn tree_block(&mut self, home: Home, block: u64, kind: Kind) -> Result<Meta, Fault> {
        match home {
            Home::Group(ag) => {
                self.reader.read_ag(self.cx, AgBlock { ag, block: block as u32 }, kind)
            }
            Home::Inode(ino) => {
                let want = ReadRequest { kinds: kind.alone(), owner: Some(ino.0), at: home.at(0) };
                Ok(self.reader.read(self.cx, &[(FsBlock(block), 1)], &want)?.1)
            }
        }
    }

    /// Walks the subtree below a block; returns its lowest and its highest key.
    fn walk_block(
        &mut self,
        walk: &mut Walk<'_>,
        block: u64,
        level: u16,
    ) -> Result<Option<(Key, Key)>, DeviceError> {
        let (home, kind) = (walk.home, walk.kind);
        let at = home.at(block);
        let inside = self.has_place(home, block);
        if !inside || !walk.seen.insert(block) {
            walk.content.complete = false;
            let bad = CorruptKind::BtreePointer { what: kind.name(), index: 0, block };
            let text =
                if inside { "the block is in the tree twice".into() } else { bad.to_string() };
            self.findings.add(Rule::BtreeBlock, at, text);
            return Ok(None);
        }
        walk.content.blocks.push(block);
        let data = self.tree_block(home, block, kind);
        let Some(data) = self.keep(data)? else {
            walk.content.complete = false;
            return Ok(None);
        };
        let parsed = Node::parse_trusted(kind, &data, Some(level), at);
        let Some(node) = self.keep(parsed.map_err(Into::into))? else {
            walk.content.complete = false;
            return Ok(None);
        };
        self.check_siblings(walk, &node, block, at);
        if level == 0 {
            let records = (0..node.len()).map(|index| node.record(index));
            return Ok(self.walk_leaf(walk, records, at));
        }
        let children = (0..node.len()).map(|index| Child {
            key: node.key(index),
            high: node.high_key(index),
            block: node.pointer(index),
        });
        self.walk_children(walk, children, level, at)
    }

    /// Walks the children of a node of this level.
    fn walk_children<'a>(
        &mut self,
        walk: &mut Walk<'_>,
        children: impl Iterator<Item = Child<'a>>,
        level: u16,
        at: At,
    ) -> Result<Option<(Key, Key)>, DeviceError> {
        let kind = walk.kind;
        let mut range: Option<(Key, Key)> = None;
        for (index, child) in children.enumerate() {
            let Some((low, high)) = self.walk_block(walk, child.block, level - 1)? else {
                continue;
            };
            let key = node_key(kind, child.key);
            let high_key = child.high.map(|key| node_key(kind, key));
            if key != low || high_key.is_some_and(|key| key != high) {
                let text = format!("keys of child {index} are not those of its content");
                self.findings.add(Rule::BtreeOrder, at, text);
            }
            range = Some(range.map_or((low, high), |(first, last)| (first, last.max(high))));
        }
        Ok(range)
    }

    fn walk_leaf<'a>(
        &mut self,
        walk: &mut Walk<'_>,
        records: impl Iterator<Item = &'a [u8]>,
        at: At,
    ) -> Option<(Key, Key)> {
        let mut range: Option<(Key, Key)> = None;
        for (index, record) in records.enumerate() {
            let key = record_key(walk.kind, record);
            if walk.before.is_some_and(|before| key <= before) {
                let kind = CorruptKind::BtreeOrder { what: walk.kind.name(), index: index as u32 };
                self.findings.add(Rule::BtreeOrder, at, kind.to_string());
            }
            walk.before = Some(key);
            (walk.look)(self, record);
            let high = record_high(walk.kind, record);
            range = Some(range.map_or((key, high), |(first, last)| (first, last.max(high))));
        }
        range
    }

    fn check_siblings(&mut self, walk: &mut Walk<'_>, node: &Node<'_>, block: u64, at: At) {
        let wrong = walk.neighbours.next(block, node);
        // If a block between could not be read the neighbours prove nothing.
        if let Some(text) = wrong.filter(|_| walk.content.complete) {
            self.findings.add(Rule::BtreeBlock, at, text);
        }
    }
}
