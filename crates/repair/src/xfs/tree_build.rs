//! Btrees made of sorted records at once, their blocks filled evenly.

use xfs::format::btree::{self, Shape};
use xfs::format::record::{Rmap, RmapKey};
use xfs::format::{Expect, Extent, Kind, verifier};

/// A block that is written.
pub struct Block {
    /// Its number: in the group, or in the file system.
    pub number: u64,
    /// Its content.
    pub data: Vec<u8>,
}

/// A child of the level above.
pub struct Child {
    low: Vec<u8>,
    high: Vec<u8>,
    /// Its block.
    pub block: u64,
}

impl Child {
    /// The first file block below it, in a map.
    pub fn low_offset(&self) -> u64 {
        u64::from_be_bytes(self.low[..8].try_into().expect("the key of a map"))
    }

    /// Its keys as they stand in the level above: the lowest, and the highest where there is one.
    pub fn keys(&self) -> Vec<u8> {
        [&self.low[..], &self.high].concat()
    }
}

/// Blocks per level for so many records, the leaves first, up to a level of one block.
fn levels(kind: Kind, records: usize, block_size: usize, top: usize) -> Vec<usize> {
    let shape = Shape::of(kind);
    let mut list = vec![records.div_ceil(shape.max(block_size, 0)).max(1)];
    while list[list.len() - 1] > top {
        let below = list[list.len() - 1];
        list.push(below.div_ceil(shape.max(block_size, 1)));
    }
    list
}

/// Blocks of a btree of so many records. Its highest level has `top` blocks at the most: one, or
/// as many as the root in an inode takes.
pub fn blocks_for(kind: Kind, records: usize, block_size: usize, top: usize) -> usize {
    levels(kind, records, block_size, top).iter().sum()
}

/// A tree that is being built.
pub struct Builder<'a> {
    /// The kind of its blocks.
    pub kind: Kind,
    /// Bytes of a block.
    pub block_size: usize,
    /// What a block must say of itself.
    pub expect: &'a dyn Fn(u64) -> Expect,
    /// The blocks that it may have.
    pub numbers: &'a mut dyn Iterator<Item = u64>,
    /// What was built.
    pub blocks: Vec<Block>,
}

/// The lowest key of a record, and its highest.
fn keys(kind: Kind, record: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let shape = Shape::of(kind);
    match kind {
        Kind::Rmap | Kind::RealtimeRmap => {
            let rmap = Rmap::read(record);
            (rmap_key(rmap.key()), rmap_key(rmap.high_key()))
        }
        Kind::Bmap => {
            let offset = Extent::read(record).offset.to_be_bytes().to_vec();
            (offset, Vec::new())
        }
        _ => (record[..shape.key].to_vec(), Vec::new()),
    }
}

fn rmap_key(key: RmapKey) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    key.write(&mut bytes);
    bytes
}

/// The highest of some keys: their bytes order as the numbers do.
fn highest<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    keys.max().cloned().unwrap_or_default()
}

impl Builder<'_> {
    /// Builds all levels; the children of what would be above, and how many levels there are.
    pub fn build(&mut self, records: &[u8], top: usize) -> (Vec<Child>, u16) {
        let shape = Shape::of(self.kind);
        let items: Vec<Child> = records
            .chunks_exact(shape.record)
            .map(|record| {
                let (low, high) = keys(self.kind, record);
                Child { low, high, block: 0 }
            })
            .collect();
        let counts = levels(self.kind, items.len(), self.block_size, top);
        let mut below = items;
        for (level, &count) in counts.iter().enumerate() {
            below = self.level(level as u16, count, below, records);
        }
        (below, counts.len() as u16)
    }

    fn level(&mut self, level: u16, count: usize, items: Vec<Child>, records: &[u8]) -> Vec<Child> {
        let shape = Shape::of(self.kind);
        let numbers: Vec<u64> = (&mut *self.numbers).take(count).collect();
        assert_eq!(numbers.len(), count, "as many blocks as were counted");
        let (each, more) = (items.len() / count, items.len() % count);
        let (mut at, mut above) = (0, Vec::new());
        for (index, &number) in numbers.iter().enumerate() {
            let part = &items[at..at + each + usize::from(index < more)];
            let mut data = vec![0; self.block_size];
            btree::init(self.kind, &mut data, level, &(self.expect)(number));
            btree::set_len(&mut data, part.len());
            let left = index.checked_sub(1).map(|left| numbers[left]);
            let right = numbers.get(index + 1).copied();
            btree::set_siblings(self.kind, &mut data, left, right);
            if level == 0 {
                let bytes = &records[at * shape.record..(at + part.len()) * shape.record];
                data[shape.record_at(0)..][..bytes.len()].copy_from_slice(bytes);
            } else {
                for (place, child) in part.iter().enumerate() {
                    let key = shape.key_at(place);
                    data[key..][..shape.key].copy_from_slice(&child.low);
                    data[key + shape.key..][..child.high.len()].copy_from_slice(&child.high);
                    btree::set_pointer(self.kind, &mut data, place, child.block);
                }
            }
            verifier::update_crc(self.kind, &mut data);
            let low = part.first().map_or_else(Vec::new, |child| child.low.clone());
            let high = highest(part.iter().map(|child| &child.high));
            above.push(Child { low, high, block: number });
            self.blocks.push(Block { number, data });
            at += part.len();
        }
        above
    }
}
