//! One block of a tree, as bytes: entries are put in, taken out and moved.
//!
//! An *entry* is a record in a leaf, and the keys of a child in a node, whose pointer lies apart.

use smallvec::SmallVec;

use crate::format::btree::{ROOT_HEADER, Shape};
use crate::format::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Ranges of bytes that were changed: first, end.
pub(crate) type Dirty = SmallVec<[(usize, usize); 3]>;

/// Where things lie in one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub shape: Shape,
    pub level: u16,
    /// Where the number of entries lies.
    count_at: usize,
    /// Bytes before the first entry.
    header: usize,
    /// Room for entries.
    pub max: usize,
    /// Where pointers begin; meaningless in a leaf.
    pointers: usize,
}

impl Layout {
    /// A block of its own.
    pub fn block(shape: Shape, block_size: usize, level: u16) -> Layout {
        let max = shape.max(block_size, level);
        let pointers = shape.header + max * shape.key * shape.keys;
        Layout { shape, level, count_at: 6, header: shape.header, max, pointers }
    }

    /// A root in an inode's fork of `fork` bytes.
    pub fn in_inode(shape: Shape, fork: usize, level: u16) -> Layout {
        let max = shape.root_max(fork, level);
        let pointers = ROOT_HEADER + max * shape.key * shape.keys;
        Layout { shape, level, count_at: 2, header: ROOT_HEADER, max, pointers }
    }

    /// Fewest entries, where this is not the root.
    pub fn min(&self) -> usize {
        self.max / 2
    }

    /// Entries.
    pub fn len(&self, data: &[u8]) -> usize {
        usize::from(u16_at(data, self.count_at))
    }

    /// Bytes of an entry.
    pub fn entry_size(&self) -> usize {
        if self.level == 0 { self.shape.record } else { self.shape.key * self.shape.keys }
    }

    fn at(&self, index: usize) -> usize {
        self.header + index * self.entry_size()
    }

    /// An entry.
    pub fn entry<'a>(&self, data: &'a [u8], index: usize) -> &'a [u8] {
        &data[self.at(index)..][..self.entry_size()]
    }

    fn pointer_at(&self, index: usize) -> usize {
        self.pointers + index * self.shape.pointer
    }

    /// A child's block.
    pub fn pointer(&self, data: &[u8], index: usize) -> u64 {
        let at = self.pointer_at(index);
        if self.shape.is_long() { u64_at(data, at) } else { u64::from(u32_at(data, at)) }
    }

    fn put_pointer(&self, data: &mut [u8], index: usize, block: u64) {
        let at = self.pointer_at(index);
        if self.shape.is_long() {
            put_u64(data, at, block)
        } else {
            put_u32(data, at, block as u32)
        }
    }

    /// How many of the first entries `before` holds for; it holds for none behind one for which it
    /// does not.
    pub fn partition(&self, data: &[u8], before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len(data));
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.entry(data, middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn dirty(&self, first: usize, end: usize) -> Dirty {
        let mut dirty = Dirty::new();
        dirty.push((self.count_at, self.count_at + 2));
        if first < end {
            dirty.push((self.at(first), self.at(end)));
            if self.level > 0 {
                dirty.push((self.pointer_at(first), self.pointer_at(end)));
            }
        }
        dirty
    }

    /// Puts another entry in the place of one; its pointer stays.
    pub fn replace(&self, data: &mut [u8], index: usize, entry: &[u8]) -> Dirty {
        let (at, size) = (self.at(index), self.entry_size());
        data[at..at + size].copy_from_slice(&entry[..size]);
        let mut dirty = Dirty::new();
        dirty.push((at, at + size));
        dirty
    }

    /// Puts an entry in front of entry `index`; there must be room.
    pub fn insert(&self, data: &mut [u8], index: usize, entry: &[u8], pointer: u64) -> Dirty {
        let (len, size) = (self.len(data), self.entry_size());
        assert!(index <= len && len < self.max, "entry {index} of {len}, room for {}", self.max);
        data.copy_within(self.at(index)..self.at(len), self.at(index + 1));
        let at = self.at(index);
        data[at..at + size].copy_from_slice(&entry[..size]);
        if self.level > 0 {
            let range = self.pointer_at(index)..self.pointer_at(len);
            data.copy_within(range, self.pointer_at(index + 1));
            self.put_pointer(data, index, pointer);
        }
        put_u16(data, self.count_at, len as u16 + 1);
        self.dirty(index, len + 1)
    }

    /// Takes `count` entries from entry `index` on out.
    pub fn remove(&self, data: &mut [u8], index: usize, count: usize) -> Dirty {
        let len = self.len(data);
        data.copy_within(self.at(index + count)..self.at(len), self.at(index));
        if self.level > 0 {
            let range = self.pointer_at(index + count)..self.pointer_at(len);
            data.copy_within(range, self.pointer_at(index));
        }
        put_u16(data, self.count_at, (len - count) as u16);
        self.dirty(index, len - count)
    }

    /// Entries `first..end` with their pointers, to be put elsewhere.
    pub fn take(&self, data: &[u8], first: usize, end: usize) -> Vec<(Vec<u8>, u64)> {
        (first..end)
            .map(|index| {
                let pointer = if self.level > 0 { self.pointer(data, index) } else { 0 };
                (self.entry(data, index).to_vec(), pointer)
            })
            .collect()
    }

    /// Puts entries in front of entry `index`.
    pub fn put(&self, data: &mut [u8], index: usize, entries: &[(Vec<u8>, u64)]) -> Dirty {
        let (len, count) = (self.len(data), entries.len());
        assert!(len + count <= self.max, "{count} more entries than {len}, room for {}", self.max);
        data.copy_within(self.at(index)..self.at(len), self.at(index + count));
        if self.level > 0 {
            let range = self.pointer_at(index)..self.pointer_at(len);
            data.copy_within(range, self.pointer_at(index + count));
        }
        let size = self.entry_size();
        for (number, (entry, pointer)) in entries.iter().enumerate() {
            let at = self.at(index + number);
            data[at..at + size].copy_from_slice(entry);
            if self.level > 0 {
                self.put_pointer(data, index + number, *pointer);
            }
        }
        put_u16(data, self.count_at, (len + count) as u16);
        self.dirty(index, len + count)
    }
}
