//! One block of metadata made fit for a dump: what nobody uses is zeros, what is private is
//! obscured.

use base::Ino;
use xfs::format::attr::{AttrFlags, PARENT_VALUE};
use xfs::format::attr_leaf::{self, AttrLeaf, LeafAttr, Value};
use xfs::format::btree::{Node, Shape};
use xfs::format::da::{DaNode, NODE_ENTRY, NODE_HEADER};
use xfs::format::dir::{DATA_HEADER, DataBlock, Item, LEAF_ENTRY};
use xfs::format::dir_index::{FREE_HEADER, LEAF_HEADER, Leaf};
use xfs::format::{At, Kind, remote};

use crate::metadump::{DumpOptions, permute};

/// Names that every file system has, and that checkers know.
const COMMON: [&[u8]; 3] = [b".", b"..", b"lost+found"];
/// What is put in place of a value.
pub const FILL: u8 = b'x';
/// Attributes of these names are ACLs, which checkers look into.
const ACLS: [&[u8]; 2] = [b"SGI_ACL_FILE", b"SGI_ACL_DEFAULT"];

/// Who owns a block, and how it is obscured.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// How to obscure.
    pub options: &'a DumpOptions,
    /// The inode.
    pub ino: Ino,
    /// Of the file system itself: its names are fixed.
    pub metadata: bool,
    /// Directory entries have types.
    pub ftype: bool,
}

impl Owner<'_> {
    /// The name of a directory entry.
    pub fn name(&self, name: &mut [u8]) {
        self.name_in(self.ino.0, name);
    }

    fn name_in(&self, directory: u64, name: &mut [u8]) {
        if !self.options.keep_names && !self.metadata && !COMMON.contains(&&*name) {
            permute::same_hash(&self.options.key, directory, name);
        }
    }

    /// Name and value of an attribute.
    pub fn attribute(&self, flags: AttrFlags, name: &mut [u8], value: &mut [u8]) {
        if flags.contains(AttrFlags::PARENT) {
            let number = value.get(..8).filter(|_| value.len() == PARENT_VALUE);
            let number = number
                .map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")));
            return self.name_in(number, name);
        }
        let acl = flags.contains(AttrFlags::ROOT) && ACLS.contains(&&*name);
        if self.options.keep_names || acl {
            return;
        }
        permute::same_hash(&self.options.key, u64::MAX, name);
        value.fill(FILL);
    }

    /// The target of a symbolic link.
    pub fn target(&self, target: &mut [u8]) {
        if !self.options.keep_names {
            permute::text(&self.options.key, b"target", target);
        }
    }
}

/// Zeros behind the records or children of a btree's block.
pub fn clear_tail(kind: Kind, data: &mut [u8]) {
    let (shape, size) = (Shape::of(kind), data.len());
    let Ok(node) = Node::parse_trusted(kind, data, None, At::Block(0)) else { return };
    let (level, len) = (node.level, node.len());
    if level == 0 {
        return data[shape.record_at(len)..].fill(0);
    }
    let pointers = shape.pointer_at(size, 0);
    data[shape.key_at(len)..pointers].fill(0);
    data[shape.pointer_at(size, len)..].fill(0);
}

/// Makes a block of a directory or of attributes fit. False if it cannot be parsed.
pub fn clean(kind: Kind, data: &mut [u8], owner: &Owner<'_>, at: At) -> bool {
    match kind {
        Kind::DirBlock | Kind::DirData => names(kind, data, owner, at),
        Kind::DirLeaf1 | Kind::DirLeafN => {
            let Ok(leaf) = Leaf::parse_counts(kind, data, at) else { return false };
            let used = LEAF_HEADER + LEAF_ENTRY * leaf.entries().len();
            let bests = leaf.bests().len();
            let tail = if kind == Kind::DirLeaf1 { 4 + 2 * bests } else { 0 };
            let end = data.len() - tail;
            data[used..end].fill(0);
            true
        }
        Kind::DirFree => {
            let valid = u32::from_be_bytes(data[52..56].try_into().expect("four bytes"));
            let used = FREE_HEADER.saturating_add(2 * valid as usize);
            if used > data.len() {
                return false;
            }
            data[used..].fill(0);
            true
        }
        Kind::DaNode => {
            let Ok(node) = DaNode::parse_trusted(data, at) else { return false };
            let used = NODE_HEADER + NODE_ENTRY * node.len();
            data[used..].fill(0);
            true
        }
        Kind::AttrLeaf => attributes(data, owner, at),
        Kind::AttrRemote | Kind::Symlink => piece(kind, data, owner),
        _ => true,
    }
}

/// The entries of a directory's data block.
fn names(kind: Kind, data: &mut [u8], owner: &Owner<'_>, at: At) -> bool {
    let Ok(block) = DataBlock::new(kind, data, owner.ftype, at) else { return false };
    let mut list: Vec<(usize, usize, usize)> = Vec::new();
    let mut place = block.start().max(DATA_HEADER);
    while place < block.end() {
        let Ok((item, next)) = block.item(place, at) else { return false };
        let name = match item {
            Item::Entry { name, .. } => name.len(),
            Item::Unused { .. } => 0,
        };
        list.push((place, name, next));
        place = next;
    }
    for (place, name, next) in list {
        // Two bytes at the end of each say where it begins.
        let used = match name {
            0 => place + 4,
            len => {
                owner.name(&mut data[place + 9..][..len]);
                place + 9 + len + usize::from(owner.ftype)
            }
        };
        data[used..next - 2].fill(0);
    }
    true
}

/// A leaf of attributes, written anew.
fn attributes(data: &mut [u8], owner: &Owner<'_>, at: At) -> bool {
    let Ok(leaf) = AttrLeaf::parse(data, at) else { return false };
    let mut list = Vec::new();
    for attr in leaf.iter() {
        let mut value = match attr.value {
            Value::Local(value) => value.to_vec(),
            Value::Remote { .. } => Vec::new(),
        };
        let mut name = attr.name.to_vec();
        owner.attribute(attr.flags, &mut name, &mut value);
        let remote = match attr.value {
            Value::Local(_) => None,
            Value::Remote { block, len } => Some((block, len)),
        };
        list.push((attr.hash, attr.flags, name, value, remote));
    }
    let list: Vec<LeafAttr<'_>> = list
        .iter()
        .map(|(hash, flags, name, value, remote)| LeafAttr {
            hash: *hash,
            flags: *flags,
            name,
            value: match *remote {
                None => Value::Local(value),
                Some((block, len)) => Value::Remote { block, len },
            },
        })
        .collect();
    if attr_leaf::used_size(list.iter()) > data.len() - attr_leaf::LEAF_HEADER {
        // Entries that overlap.
        return false;
    }
    attr_leaf::emit(data, &list);
    true
}

/// A piece of a value, or of the target of a symbolic link.
fn piece(kind: Kind, data: &mut [u8], owner: &Owner<'_>) -> bool {
    let bytes = u32::from_be_bytes(data[8..12].try_into().expect("four bytes")) as usize;
    let Some(end) = remote::HEADER.checked_add(bytes).filter(|&end| end <= data.len()) else {
        return false;
    };
    data[end..].fill(0);
    let content = &mut data[remote::HEADER..end];
    match kind {
        Kind::Symlink => owner.target(content),
        _ if !owner.options.keep_names => content.fill(FILL),
        _ => {}
    }
    true
}
