//! Walking the btrees of a group: every block once, keys and neighbours as they must be.

use std::collections::BTreeSet;

use block::DeviceError;

use super::{Checker, Rule};
use crate::format::ag::Root;
use crate::format::btree::Node;
use crate::format::record::{FreeExtent, Refcount, Rmap, RmapKey};
use crate::format::{AgBlock, At, CorruptKind, Kind, u32_at};

/// What orders the records of a tree.
pub(super) type Key = (u64, u64, u64);

/// What a walk found.
#[derive(Default)]
pub(super) struct Content {
    /// All records, one behind the other.
    pub records: Vec<u8>,
    /// Blocks of the tree.
    pub blocks: Vec<u32>,
    /// Every block could be read.
    pub complete: bool,
}

/// The last block seen at one level.
#[derive(Clone, Copy)]
struct Last {
    block: u32,
    right: Option<u64>,
}

struct Walk {
    ag: u32,
    kind: Kind,
    content: Content,
    seen: BTreeSet<u32>,
    last: Vec<Option<Last>>,
    /// The key of the record before.
    before: Option<Key>,
}

/// The key of a record.
fn record_key(kind: Kind, record: &[u8]) -> Key {
    match kind {
        Kind::FreeByBlock | Kind::FreeBySize => free_key(kind, FreeExtent::read(record)),
        Kind::Rmap => rmap_key(Rmap::read(record).key()),
        Kind::Refcount => (u64::from(Refcount::read(record).key()), 0, 0),
        _ => (u64::from(u32_at(record, 0)), 0, 0),
    }
}

/// A key of a node.
fn node_key(kind: Kind, key: &[u8]) -> Key {
    match kind {
        Kind::FreeByBlock | Kind::FreeBySize => free_key(kind, FreeExtent::read(key)),
        Kind::Rmap => rmap_key(RmapKey::read(key)),
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
        Kind::Rmap => rmap_key(Rmap::read(record).high_key()),
        _ => record_key(kind, record),
    }
}

impl Checker<'_> {
    /// Walks a tree of group `ag`.
    pub(super) fn walk_tree(
        &mut self,
        ag: u32,
        kind: Kind,
        root: Root,
    ) -> Result<Content, DeviceError> {
        let levels = root.levels as usize;
        let content = Content { complete: true, ..Content::default() };
        let (seen, last) = (BTreeSet::new(), vec![None; levels]);
        let mut walk = Walk { ag, kind, content, seen, last, before: None };
        self.walk_block(&mut walk, root.block, root.levels as u16 - 1)?;
        let dangling = walk.last.iter().flatten().find(|last| last.right.is_some());
        if let Some(last) = dangling {
            let at = At::AgBlock(ag, last.block);
            let text = "the last block of its level has a neighbour on its right";
            self.findings.add(Rule::BtreeBlock, at, text);
        }
        Ok(walk.content)
    }

    /// Walks the subtree below a block; returns its lowest and its highest key.
    fn walk_block(
        &mut self,
        walk: &mut Walk,
        block: u32,
        level: u16,
    ) -> Result<Option<(Key, Key)>, DeviceError> {
        let geometry = self.geometry();
        let (ag, kind) = (walk.ag, walk.kind);
        let at = At::AgBlock(ag, block);
        let inside = block >= geometry.header_blocks() && block < geometry.ag_length(ag);
        if !inside || !walk.seen.insert(block) {
            walk.content.complete = false;
            let pointer = u64::from(block);
            let bad = CorruptKind::BtreePointer { what: kind.name(), index: 0, block: pointer };
            let text =
                if inside { "the block is in the tree twice".into() } else { bad.to_string() };
            self.findings.add(Rule::BtreeBlock, at, text);
            return Ok(None);
        }
        walk.content.blocks.push(block);
        let data = self.reader.read_ag(self.cx, AgBlock { ag, block }, kind);
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
            return Ok(self.walk_leaf(walk, &node, at));
        }
        let mut range: Option<(Key, Key)> = None;
        for index in 0..node.len() {
            let child = node.pointer(index).min(u64::from(u32::MAX)) as u32;
            let Some((low, high)) = self.walk_block(walk, child, level - 1)? else { continue };
            let key = node_key(kind, node.key(index));
            let high_key = node.high_key(index).map(|key| node_key(kind, key));
            if key != low || high_key.is_some_and(|key| key != high) {
                let text = format!("keys of child {index} are not those of its content");
                self.findings.add(Rule::BtreeOrder, at, text);
            }
            range = Some(range.map_or((low, high), |(first, last)| (first, last.max(high))));
        }
        Ok(range)
    }

    fn walk_leaf(&mut self, walk: &mut Walk, node: &Node<'_>, at: At) -> Option<(Key, Key)> {
        let mut range: Option<(Key, Key)> = None;
        for index in 0..node.len() {
            let record = node.record(index);
            let key = record_key(walk.kind, record);
            if walk.before.is_some_and(|before| key <= before) {
                let kind = CorruptKind::BtreeOrder { what: walk.kind.name(), index: index as u32 };
                self.findings.add(Rule::BtreeOrder, at, kind.to_string());
            }
            walk.before = Some(key);
            walk.content.records.extend_from_slice(record);
            let high = record_high(walk.kind, record);
            range = Some(range.map_or((key, high), |(first, last)| (first, last.max(high))));
        }
        range
    }

    fn check_siblings(&mut self, walk: &mut Walk, node: &Node<'_>, block: u32, at: At) {
        let (left, right) = node.siblings();
        let before = walk.last[usize::from(node.level)].replace(Last { block, right });
        let expected = before.map(|last| u64::from(last.block));
        let agrees = before.is_none_or(|last| last.right == Some(u64::from(block)));
        // If a block between could not be read the neighbours prove nothing.
        if (left != expected || !agrees) && walk.content.complete {
            let text = format!("left neighbour {left:?} should be {expected:?}");
            self.findings.add(Rule::BtreeBlock, at, text);
        }
    }
}
