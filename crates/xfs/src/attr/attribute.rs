//! Attributes in memory, on their way between the forms.

use super::Name;
use crate::format::attr::AttrFlags;
use crate::format::attr_leaf::{LeafAttr, Value, used_size};
use crate::format::hash::Case;

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    pub hash: u32,
    pub flags: AttrFlags,
    pub name: Vec<u8>,
    pub value: Held,
}

/// Where its value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// Here.
    Local(Vec<u8>),
    /// In blocks of its own.
    Remote(RemoteValue),
}

/// A value that has blocks of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteValue {
    /// The first block in the fork.
    pub block: u32,
    /// Bytes.
    pub len: u32,
}

impl Attribute {
    pub fn new(case: Case, name: &Name, value: Held) -> Attribute {
        Attribute { hash: name.hash(case), flags: name.space, name: name.rest.clone(), value }
    }

    pub fn read(attr: &LeafAttr<'_>) -> Attribute {
        let value = match attr.value {
            Value::Local(value) => Held::Local(value.to_vec()),
            Value::Remote { block, len } => Held::Remote(RemoteValue { block, len }),
        };
        Attribute { hash: attr.hash, flags: attr.flags, name: attr.name.to_vec(), value }
    }

    /// Its value, where it lies beside the name.
    pub fn local_value(&self) -> Option<&[u8]> {
        match &self.value {
            Held::Local(value) => Some(value),
            Held::Remote(_) => None,
        }
    }

    pub fn borrowed(&self) -> LeafAttr<'_> {
        let value = match &self.value {
            Held::Local(value) => Value::Local(value),
            Held::Remote(RemoteValue { block, len }) => Value::Remote { block: *block, len: *len },
        };
        LeafAttr { hash: self.hash, flags: self.flags, name: &self.name, value }
    }
}

/// Bytes that attributes take in a leaf, its header left out.
pub(super) fn size_of(list: &[Attribute]) -> usize {
    list.iter().map(|attr| used_size(std::iter::once(&attr.borrowed()))).sum()
}

/// Cuts attributes into lists that fit into `room` bytes each: one, two, or three where a large one
/// comes between. The cut is where the halves are most alike.
pub(super) fn groups(mut list: Vec<Attribute>, room: usize) -> Vec<Vec<Attribute>> {
    let total = size_of(&list);
    if total <= room {
        return vec![list];
    }
    let mut before = 0;
    let mut cuts = Vec::new();
    for index in 1..list.len() {
        before += size_of(&list[index - 1..index]);
        let larger = before.max(total - before);
        cuts.push((larger, index));
    }
    match cuts.iter().min() {
        Some(&(larger, index)) if larger <= room => {
            let right = list.split_off(index);
            vec![list, right]
        }
        _ => {
            // As much as fits from the left, then the rest, which is cut again.
            let mut used = 0;
            let fits = list.iter().take_while(|attr| {
                used += size_of(std::slice::from_ref(*attr));
                used <= room
            });
            let index = fits.count().max(1);
            let right = list.split_off(index);
            let mut all = vec![list];
            all.extend(groups(right, room));
            all
        }
    }
}
