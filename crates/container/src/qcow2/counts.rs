//! The counts of a qcow2 image: how many tables refer to each cluster of the file.
//!
//! They are kept in blocks of one cluster, which a table names. A block that is missing stands for
//! clusters that nobody uses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Error;
use crate::bytes::be64;
use crate::error::Subject;
use crate::source;
use crate::target::{self, Target};

/// Bytes of the table, as QEMU has it.
const TABLE_MAX: u64 = 8 << 20;
/// Blocks that are kept in memory.
const BLOCKS_MAX: usize = 64;

/// A block in memory.
struct Block {
    bytes: Vec<u8>,
    dirty: bool,
}

/// The counts, as far as they were looked at.
pub(super) struct Counts {
    subject: Subject,
    cluster_bits: u32,
    /// Bits of a count: 1 << order.
    order: u32,
    /// Where the table lies, and its clusters.
    table_at: u64,
    table_clusters: u64,
    /// Bytes of the blocks by their number.
    table: Vec<u64>,
    /// Entries that changed since the table was written.
    changed: BTreeSet<usize>,
    /// The clusters of the table that this one takes the place of.
    moved: Option<Range<u64>>,
    blocks: BTreeMap<usize, Block>,
    /// No cluster below this one is free.
    free_from: u64,
    /// Clusters of the file.
    end: u64,
}

/// Where the header says that the table is.
pub(super) struct Place {
    pub table_at: u64,
    pub table_clusters: u32,
    pub order: u32,
    pub cluster_bits: u32,
}

impl Counts {
    /// Reads the table.
    pub fn open(file: &dyn Target, subject: &Subject, place: &Place) -> Result<Counts, Error> {
        let bad = |what: String| subject.damaged("the table of counts", what);
        let cluster = 1 << place.cluster_bits;
        let bytes = u64::from(place.table_clusters) * cluster;
        let end = place.table_at.checked_add(bytes);
        if place.order > 6 {
            return Err(bad(format!("counts of 2^{} bits, known are 2^0 to 2^6", place.order)));
        }
        let there = end.is_some_and(|end| end <= file.size().next_multiple_of(cluster));
        if bytes == 0 || bytes > TABLE_MAX || !there || !place.table_at.is_multiple_of(cluster) {
            let what = format!("{bytes} bytes at byte {}", place.table_at);
            return Err(bad(format!("{what}, the file has {}", file.size())));
        }
        let mut table = source::read_some(file, place.table_at, bytes as usize)?;
        table.resize(bytes as usize, 0);
        Ok(Counts {
            subject: subject.clone(),
            cluster_bits: place.cluster_bits,
            order: place.order,
            table_at: place.table_at,
            table_clusters: place.table_clusters.into(),
            table: table.chunks_exact(8).map(|entry| be64(entry, 0)).collect(),
            changed: BTreeSet::new(),
            moved: None,
            blocks: BTreeMap::new(),
            free_from: 0,
            end: file.size().div_ceil(cluster),
        })
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Counts of a block.
    fn per_block(&self) -> u64 {
        1 << (self.cluster_bits + 3 - self.order)
    }

    /// Whether so many blocks are in memory that they should be written and forgotten.
    pub fn is_crowded(&self) -> bool {
        self.blocks.len() >= BLOCKS_MAX
    }

    /// Forgets what is on the device.
    pub fn forget(&mut self) {
        self.blocks.retain(|_, block| block.dirty);
    }

    /// The block with this number; none where there is none.
    fn block(&mut self, file: &dyn Target, index: usize) -> Result<Option<&mut Block>, Error> {
        let at = self.table.get(index).copied().unwrap_or(0) & !511;
        if at == 0 {
            return Ok(None);
        }
        if !self.blocks.contains_key(&index) {
            if !at.is_multiple_of(self.cluster()) || at >= file.size() {
                let place = format!("the table of counts, entry {index}");
                let what = format!("a block at byte {at}, the file has {}", file.size());
                return Err(self.subject.damaged(place, what));
            }
            let mut bytes = source::read_some(file, at, self.cluster() as usize)?;
            bytes.resize(self.cluster() as usize, 0);
            self.blocks.insert(index, Block { bytes, dirty: false });
        }
        Ok(self.blocks.get_mut(&index))
    }

    /// How many refer to a cluster.
    pub fn get(&mut self, file: &dyn Target, cluster: u64) -> Result<u64, Error> {
        let (index, at, order) = self.place(cluster);
        let block = self.block(file, index)?;
        Ok(block.map_or(0, |block| read(&block.bytes, at, order)))
    }

    fn place(&self, cluster: u64) -> (usize, u64, u32) {
        let per_block = self.per_block();
        ((cluster / per_block) as usize, cluster % per_block, self.order)
    }

    /// Changes a count, whose block is there.
    fn count(&mut self, file: &dyn Target, cluster: u64, change: i64) -> Result<(), Error> {
        let (index, at, order) = self.place(cluster);
        if let Some(block) = self.block(file, index)? {
            let count = read(&block.bytes, at, order).wrapping_add_signed(change);
            write(&mut block.bytes, at, order, count);
            block.dirty = true;
        }
        Ok(())
    }

    /// One reference less.
    pub fn release(&mut self, file: &dyn Target, cluster: u64) -> Result<(), Error> {
        let count = self.get(file, cluster)?;
        if count == 0 {
            let place = format!("cluster {cluster}");
            return Err(self.subject.damaged(place, "it is in use, and its count is 0"));
        }
        if count == 1 {
            self.free_from = self.free_from.min(cluster);
        }
        self.count(file, cluster, -1)
    }

    /// A free cluster, which has one reference from now on.
    pub fn take(&mut self, file: &dyn Target) -> Result<u64, Error> {
        loop {
            let cluster = self.free_from;
            self.free_from += 1;
            if self.take_this(file, cluster)? {
                return Ok(cluster);
            }
        }
    }

    /// Takes a cluster, if it is free and does not become a block of counts.
    fn take_this(&mut self, file: &dyn Target, cluster: u64) -> Result<bool, Error> {
        let (index, _, _) = self.place(cluster);
        if index >= self.table.len() {
            self.enlarge(file)?;
            return Ok(false);
        }
        if self.table[index] == 0 {
            // Nobody uses what it counts: the block is the first one there.
            let bytes = vec![0; self.cluster() as usize];
            self.blocks.insert(index, Block { bytes, dirty: true });
            self.table[index] = cluster << self.cluster_bits;
            self.changed.insert(index);
            self.count(file, cluster, 1)?;
            self.end = self.end.max(cluster + 1);
            return Ok(false);
        }
        if self.get(file, cluster)? != 0 {
            return Ok(false);
        }
        self.count(file, cluster, 1)?;
        self.end = self.end.max(cluster + 1);
        Ok(true)
    }

    /// Gives the table twice the room, at the end of the file.
    fn enlarge(&mut self, file: &dyn Target) -> Result<(), Error> {
        let mut clusters = self.table_clusters * 2;
        while clusters * self.cluster() / 8 * self.per_block() < self.end + 2 * clusters {
            clusters *= 2;
        }
        if clusters * self.cluster() > TABLE_MAX {
            let what = format!("the file has {} clusters, more cannot be counted", self.end);
            return Err(self.subject.unsupported(what, "convert it: qemu-img convert -O qcow2"));
        }
        let first = self.table_at >> self.cluster_bits;
        let old = first..first + self.table_clusters;
        if self.moved.is_some() {
            // The one before was never written: its clusters are free at once.
            for cluster in old.clone() {
                self.release(file, cluster)?;
            }
        }
        self.moved.get_or_insert(old);
        self.table.resize((clusters * self.cluster() / 8) as usize, 0);
        let first = self.take_run(file, clusters)?;
        (self.table_at, self.table_clusters) = (first << self.cluster_bits, clusters);
        Ok(())
    }

    /// So many clusters in one piece, at the end of the file; answers the first.
    pub fn take_run(&mut self, file: &dyn Target, clusters: u64) -> Result<u64, Error> {
        loop {
            // The blocks that count them come first, or they would lie between them.
            let (first, last) = (self.end, self.end + clusters - 1);
            let (index, ..) = self.place(last);
            if index >= self.table.len() {
                self.enlarge(file)?;
                continue;
            }
            let mut blocks = self.place(first).0..=index;
            let Some(missing) = blocks.find(|&index| self.table[index] == 0) else {
                for cluster in first..=last {
                    self.take_this(file, cluster)?;
                }
                return Ok(first);
            };
            if self.take_this(file, first)? {
                let bytes = vec![0; self.cluster() as usize];
                self.blocks.insert(missing, Block { bytes, dirty: true });
                self.table[missing] = first << self.cluster_bits;
                self.changed.insert(missing);
            }
        }
    }

    /// Whether anything is to be written.
    pub fn is_dirty(&self) -> bool {
        self.moved.is_some()
            || !self.changed.is_empty()
            || self.blocks.values().any(|block| block.dirty)
    }

    /// Writes what changed: first the blocks, then what names them. Answers the clusters of a table
    /// that is not used any more.
    pub fn write(&mut self, file: &dyn Target) -> Result<Option<Range<u64>>, Error> {
        for (index, block) in self.blocks.iter_mut().filter(|(_, block)| block.dirty) {
            target::write(file, self.table[*index] & !511, &block.bytes)?;
            block.dirty = false;
        }
        if self.moved.is_none() && self.changed.is_empty() {
            return Ok(None);
        }
        target::flush(file)?;
        if self.moved.is_some() {
            let bytes: Vec<u8> = self.table.iter().flat_map(|entry| entry.to_be_bytes()).collect();
            target::write(file, self.table_at, &bytes)?;
            target::flush(file)?;
            let mut words = self.table_at.to_be_bytes().to_vec();
            words.extend((self.table_clusters as u32).to_be_bytes());
            target::write(file, 48, &words)?;
        } else {
            for &index in &self.changed {
                target::write(
                    file,
                    self.table_at + index as u64 * 8,
                    &self.table[index].to_be_bytes(),
                )?;
            }
        }
        self.changed.clear();
        Ok(self.moved.take())
    }
}

/// A count of a block, of 1 << `order` bits.
fn read(block: &[u8], at: u64, order: u32) -> u64 {
    if order < 3 {
        let (bits, per_byte) = (1 << order, 8 >> order);
        let byte = u64::from(block[(at / per_byte) as usize]);
        return byte >> (at % per_byte * bits) & ((1 << bits) - 1);
    }
    let width = 1 << (order - 3);
    let start = at as usize * width;
    block[start..start + width].iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn write(block: &mut [u8], at: u64, order: u32, count: u64) {
    if order < 3 {
        let (bits, per_byte) = (1 << order, 8 >> order);
        let (shift, mask) = (at % per_byte * bits, (1u64 << bits) - 1);
        let byte = &mut block[(at / per_byte) as usize];
        *byte = *byte & !((mask << shift) as u8) | (count << shift) as u8;
        return;
    }
    let width = 1 << (order - 3);
    let start = at as usize * width;
    block[start..start + width].copy_from_slice(&count.to_be_bytes()[8 - width..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_widths() {
        for order in 0..7 {
            let mut block = vec![0; 512];
            let most = if order == 6 { u64::MAX } else { (1 << (1u64 << order)) - 1 };
            write(&mut block, 5, order, most);
            write(&mut block, 4, order, 1);
            let found: Vec<u64> = (3..7).map(|at| read(&block, at, order)).collect();
            assert_eq!(found, [0, 1, most, 0], "order {order}");
            write(&mut block, 5, order, 0);
            assert_eq!(read(&block, 5, order), 0);
        }
    }
}
