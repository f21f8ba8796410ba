//! Leaves of attributes: entries sorted by hash in front, names and values from the end.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on extended attributes.

use std::ops::RangeInclusive;

use super::attr::AttrFlags;
use super::{At, Corrupt, CorruptKind, Kind, put_u16, put_u32, u16_at, u32_at};

/// Bytes of a leaf's header.
pub const LEAF_HEADER: usize = 80;
/// Bytes of an entry.
pub const LEAF_ENTRY: usize = 8;
/// Bytes of a value at the most.
pub const VALUE_MAX: u32 = 65536;

/// Where an attribute's value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// Beside its name.
    Local(&'a [u8]),
    /// In blocks of its own.
    Remote {
        /// The first of them in the attribute fork.
        block: u32,
        /// Bytes of the value.
        len: u32,
    },
}

/// One attribute of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafAttr<'a> {
    /// Hash of the name.
    pub hash: u32,
    /// Name space and state; the flag of local values is not among them.
    pub flags: AttrFlags,
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

/// A valid leaf, whose self-description was verified.
#[derive(Clone, Copy)]
pub struct AttrLeaf<'a> {
    count: u16,
    header: usize,
    data: &'a [u8],
}

/// Bytes that a local attribute takes behind the entries.
pub fn local_size(name: usize, value: usize) -> usize {
    (3 + name + value).next_multiple_of(4)
}

/// Bytes that an attribute with a remote value takes behind the entries: two more than its nine
/// bytes and its name, because a compiler once padded the structure.
pub fn remote_size(name: usize) -> usize {
    (11 + name).next_multiple_of(4)
}

/// Whether a value of this size lies beside its name in a leaf of `block_size` bytes.
pub fn is_local(name: usize, value: usize, block_size: usize) -> bool {
    local_size(name, value) < block_size / 4 * 3
}

/// Where a header of so many bytes has its counts.
fn counts_at(header: usize) -> usize {
    if header == LEAF_HEADER { 56 } else { 12 }
}

/// What the header says of the names' area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpace {
    /// Bytes of names and values.
    pub used: u16,
    /// Where the first of them lies; 0 stands for 65536.
    pub first: u16,
    /// The area has holes.
    pub holes: bool,
    /// The three largest free ranges: offset, length.
    pub free: [(u16, u16); 3],
}

impl<'a> AttrLeaf<'a> {
    /// The leaf in `data`: every entry's place, and the order of hashes.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(data: &'a [u8], at: At) -> Result<AttrLeaf<'a>, Corrupt> {
        let header = Kind::AttrLeaf.header(data, LEAF_HEADER);
        let count = u16_at(data, counts_at(header));
        let limit = ((data.len() - header) / LEAF_ENTRY) as u16;
        if count > limit {
            return Err(CorruptKind::AttrCount { found: count, limit }.at(at));
        }
        let leaf = AttrLeaf { count, header, data };
        leaf.check_free_ranges(at)?;
        let mut before = 0;
        for index in 0..leaf.len() {
            let hash = leaf.hash(index);
            if hash < before {
                return Err(CorruptKind::HashOrder { index: index as u32, hash, before }.at(at));
            }
            before = hash;
            leaf.try_get(index).ok_or_else(|| {
                CorruptKind::AttrEntry { offset: leaf.entry(index) as u32 }.at(at)
            })?;
        }
        Ok(leaf)
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn entry(&self, index: usize) -> usize {
        self.header + LEAF_ENTRY * index
    }

    /// The hash of attribute `index`.
    pub fn hash(&self, index: usize) -> u32 {
        u32_at(self.data, self.entry(index))
    }

    fn try_get(&self, index: usize) -> Option<LeafAttr<'a>> {
        let (data, entry) = (self.data, self.entry(index));
        let place = usize::from(u16_at(data, entry + 4));
        let flags = AttrFlags::from_bits_retain(data[entry + 6]);
        if place < self.entry(self.len()) {
            return None;
        }
        let hash = self.hash(index);
        let (name, value) = if flags.contains(AttrFlags::LOCAL) {
            let head = data.get(place..place + 3)?;
            let (value, name) = (usize::from(u16_at(head, 0)), usize::from(head[2]));
            let body = data.get(place + 3..place + 3 + name + value)?;
            (&body[..name], Value::Local(&body[name..]))
        } else {
            let head = data.get(place..place + 9)?;
            let (block, len) = (u32_at(head, 0), u32_at(head, 4));
            // An incomplete attribute may not have its blocks yet.
            let complete = !flags.contains(AttrFlags::INCOMPLETE);
            if len > VALUE_MAX || (complete && (block == 0 || len == 0)) {
                return None;
            }
            let name = data.get(place + 9..place + 9 + usize::from(head[8]))?;
            (name, Value::Remote { block, len })
        };
        let flags = flags - AttrFlags::LOCAL;
        (!name.is_empty()).then_some(LeafAttr { hash, flags, name, value })
    }

    /// Attribute `index`.
    pub fn get(&self, index: usize) -> LeafAttr<'a> {
        self.try_get(index).expect("parse checked every entry")
    }

    /// All attributes in the order of their hashes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LeafAttr<'a>> + use<'a> {
        let leaf = *self;
        (0..leaf.len()).map(move |index| leaf.get(index))
    }

    /// The first attribute whose hash is not below `hash`.
    pub fn lower_bound(&self, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.hash(middle) < hash { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Bytes of names and values.
    pub fn used(&self) -> u16 {
        self.iter().map(|attr| body_size(&attr)).sum::<usize>() as u16
    }

    /// Where the header may say that names and values begin: behind the entries, and not behind the
    /// first name.
    pub fn first(&self) -> RangeInclusive<usize> {
        let places = (0..self.len()).map(|index| u16_at(self.data, self.entry(index) + 4).into());
        self.entry(self.len())..=places.min().unwrap_or(self.data.len())
    }

    /// The free ranges are whole words in the block.
    fn check_free_ranges(&self, at: At) -> Result<(), Corrupt> {
        for (base, size) in self.space().free {
            let end = usize::from(base) + usize::from(size);
            if base % 4 != 0 || size % 4 != 0 || end > self.data.len() {
                return Err(CorruptKind::AttrFree { base, size }.at(at));
            }
        }
        Ok(())
    }

    /// A range that the header calls free and that lies over entries, or over another such. Linux
    /// up to 6.18 takes it.
    pub fn free_conflict(&self) -> Option<(u16, u16)> {
        let free = self.space().free;
        let front = self.entry(self.len());
        let end = |(base, size): (u16, u16)| usize::from(base) + usize::from(size);
        let over = |index: usize| {
            let one = free[index];
            let others = free[..index].iter().filter(|other| other.1 > 0);
            let mut others = others.copied();
            one.1 > 0
                && (usize::from(one.0) < front
                    || others
                        .any(|it| usize::from(it.0) < end(one) && usize::from(one.0) < end(it)))
        };
        (0..free.len()).find(|&index| over(index)).map(|index| free[index])
    }

    /// What the header says of the names' area.
    pub fn space(&self) -> LeafSpace {
        let data = &self.data[counts_at(self.header)..];
        LeafSpace {
            used: u16_at(data, 2),
            first: u16_at(data, 4),
            holes: data[6] != 0,
            free: [8, 12, 16].map(|at| (u16_at(data, at), u16_at(data, at + 2))),
        }
    }
}

/// Bytes of entries, names and values of these attributes.
pub fn used_size<'a>(list: impl Iterator<Item = &'a LeafAttr<'a>>) -> usize {
    list.map(|attr| LEAF_ENTRY + body_size(attr)).sum()
}

fn body_size(attr: &LeafAttr<'_>) -> usize {
    match attr.value {
        Value::Local(value) => local_size(attr.name.len(), value.len()),
        Value::Remote { .. } => remote_size(attr.name.len()),
    }
}

/// Writes a compact leaf with these attributes, sorted by hash; the self-description stays.
///
/// # Panics
/// If they do not fit.
pub fn emit(data: &mut [u8], list: &[LeafAttr<'_>]) {
    let size = data.len();
    data[56..].fill(0);
    let (mut place, front) = (size, LEAF_HEADER + LEAF_ENTRY * list.len());
    for (index, attr) in list.iter().enumerate() {
        let bytes = body_size(attr);
        assert!(place >= front + bytes, "attribute {index} of {} does not fit", list.len());
        place -= bytes;
        let entry = LEAF_HEADER + LEAF_ENTRY * index;
        put_u32(data, entry, attr.hash);
        put_u16(data, entry + 4, place as u16);
        let local = matches!(attr.value, Value::Local(_));
        let local = if local { AttrFlags::LOCAL } else { AttrFlags::empty() };
        data[entry + 6] = (attr.flags | local).bits();
        let name = match attr.value {
            Value::Local(value) => {
                put_u16(data, place, value.len() as u16);
                data[place + 2] = attr.name.len() as u8;
                data[place + 3 + attr.name.len()..][..value.len()].copy_from_slice(value);
                place + 3
            }
            Value::Remote { block, len } => {
                put_u32(data, place, block);
                put_u32(data, place + 4, len);
                data[place + 8] = attr.name.len() as u8;
                place + 9
            }
        };
        data[name..][..attr.name.len()].copy_from_slice(attr.name);
    }
    put_u16(data, 56, list.len() as u16);
    put_u16(data, 58, (size - place) as u16);
    // The largest block's end does not fit into 16 bits: zero stands for it.
    put_u16(data, 60, place as u16);
    put_u16(data, 64, front as u16);
    put_u16(data, 66, (place - front) as u16);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_come_back_and_damaged_entries_are_told() {
        let flags = AttrFlags::empty();
        let list = [
            LeafAttr { hash: 1, flags, name: b"a", value: Value::Local(b"value") },
            LeafAttr {
                hash: 1,
                flags: AttrFlags::ROOT,
                name: b"big",
                value: Value::Remote { block: 3, len: 5000 },
            },
            LeafAttr { hash: 7, flags, name: b"empty", value: Value::Local(b"") },
        ];
        let mut data = vec![0; 1024];
        emit(&mut data, &list);
        let leaf = AttrLeaf::parse(&data, At::Block(0)).expect("valid");
        assert_eq!(leaf.iter().collect::<Vec<_>>(), list);
        assert_eq!(usize::from(leaf.space().used) + 3 * LEAF_ENTRY, used_size(list.iter()));
        assert_eq!(leaf.lower_bound(2), 2);
        for (place, value) in [(56, 1), (80, 9), (84, 0xff), (84, 0), (57, 200)] {
            let mut bad = data.clone();
            bad[place] = value;
            assert!(AttrLeaf::parse(&bad, At::Block(0)).is_err(), "byte {place}");
        }
    }
}
