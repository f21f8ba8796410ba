//! qcow2: counts of 16 bits, nothing compressed.
//!
//! ```text
//!   header | table of counts | counts | L1 | L2 .. | data ..
//! ```
//!
//! Source: QEMU's docs/interop/qcow2.txt.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Disk, put};
use crate::qcow2::header::{BACKING_FORMAT, NAME_MAX};

/// The form of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The version: 2, which everything reads, or 3.
    pub version: u32,
    /// Bytes of a cluster as a power of two, 9 to 21.
    pub cluster_bits: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { version: 3, cluster_bits: 16 }
    }
}

impl Shape {
    fn cluster(self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries of a table of the second level.
    fn entries(self) -> u64 {
        self.cluster() / 8
    }

    /// Counts of a cluster.
    fn counts(self) -> u64 {
        self.cluster() / 2
    }
}

/// This cluster has one owner, and may be written in place.
const COPIED: u64 = 1 << 63;

/// Where the parts lie, in clusters.
struct Layout {
    shape: Shape,
    count_table: u64,
    count_blocks: u64,
    l1: u64,
    l1_entries: u64,
    /// Tables of the second level: which entries of the first have one.
    tables: Vec<u64>,
    first_table: u64,
    first_data: u64,
    total: u64,
}

impl Layout {
    fn new(shape: Shape, bytes: u64, used: &[u64]) -> Layout {
        let cluster = shape.cluster();
        let l1_entries = bytes.div_ceil(cluster * shape.entries()).max(1);
        let l1 = (l1_entries * 8).div_ceil(cluster);
        let mut tables: Vec<u64> = used.iter().map(|number| number / shape.entries()).collect();
        tables.dedup();
        let rest = 1 + l1 + tables.len() as u64 + used.len() as u64;
        // The counts count themselves, too.
        let (mut count_table, mut count_blocks) = (1, 1);
        loop {
            let total = rest + count_table + count_blocks;
            let blocks = total.div_ceil(shape.counts());
            let table = (blocks * 8).div_ceil(cluster);
            if (table, blocks) == (count_table, count_blocks) {
                let l1_at = 1 + count_table + count_blocks;
                let first_table = l1_at + l1;
                let first_data = first_table + tables.len() as u64;
                let l1 = l1_at;
                return Layout {
                    shape,
                    count_table,
                    count_blocks,
                    l1,
                    l1_entries,
                    tables,
                    first_table,
                    first_data,
                    total,
                };
            }
            (count_table, count_blocks) = (table, blocks);
        }
    }

    fn header(&self, bytes: u64) -> Vec<u8> {
        let mut header = Vec::new();
        let word = |header: &mut Vec<u8>, word: u32| header.extend(word.to_be_bytes());
        let long = |header: &mut Vec<u8>, long: u64| header.extend(long.to_be_bytes());
        header.extend(b"QFI\xfb");
        word(&mut header, self.shape.version);
        // No backing file: its place and its length.
        long(&mut header, 0);
        word(&mut header, 0);
        word(&mut header, self.shape.cluster_bits);
        long(&mut header, bytes);
        // Not encrypted.
        word(&mut header, 0);
        word(&mut header, self.l1_entries as u32);
        long(&mut header, self.l1 * self.shape.cluster());
        long(&mut header, self.shape.cluster());
        word(&mut header, self.count_table as u32);
        // No snapshots: their count and place.
        word(&mut header, 0);
        long(&mut header, 0);
        if self.shape.version < 3 {
            return header;
        }
        // No features: three sets of them.
        (0..3).for_each(|_| long(&mut header, 0));
        // Counts of 1 << 4 bits; the length of this header.
        word(&mut header, 4);
        word(&mut header, 104);
        header
    }

    /// Each cluster of the image has one owner.
    fn write_counts(&self, out: &mut File) -> io::Result<()> {
        let (first, cluster) = (1 + self.count_table, self.shape.cluster());
        put(out, cluster, &table((first..first + self.count_blocks).map(|at| at * cluster)))?;
        let ones: Vec<u8> = (0..self.total).flat_map(|_| 1_u16.to_be_bytes()).collect();
        put(out, first * cluster, &ones)
    }
}

/// Writes an image of `bytes` bytes without content, over the raw disk `backing`.
pub fn overlay(bytes: u64, backing: &str, out: &mut File) -> io::Result<()> {
    if backing.len() as u64 > NAME_MAX.into() {
        let what = format!(
            "`{backing}` has {} bytes, and the name of a backing file has at most {NAME_MAX}",
            backing.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let layout = Layout::new(Shape::default(), bytes, &[]);
    let mut header = layout.header(bytes);
    header.extend(BACKING_FORMAT.to_be_bytes());
    header.extend(3_u32.to_be_bytes());
    header.extend(b"raw\0\0\0\0\0");
    // No further extension; then the name.
    header.extend([0; 8]);
    let (at, len) = (header.len() as u64, backing.len() as u32);
    header[8..16].copy_from_slice(&at.to_be_bytes());
    header[16..20].copy_from_slice(&len.to_be_bytes());
    header.extend(backing.as_bytes());
    out.set_len(layout.total * layout.shape.cluster())?;
    put(out, 0, &header)?;
    layout.write_counts(out)
}

/// Numbers as a table of 8 bytes each.
fn table(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_be_bytes).collect()
}

/// Writes the disk.
pub fn write(disk: &Disk, shape: Shape, out: &mut File) -> io::Result<()> {
    let (cluster, entries) = (shape.cluster(), shape.entries());
    let mut used = Vec::new();
    disk.each(cluster, |number, _| {
        used.push(number);
        Ok(())
    })?;
    let bytes = disk.bytes.next_multiple_of(512);
    let layout = Layout::new(shape, bytes, &used);
    out.set_len(layout.total * cluster)?;
    put(out, 0, &layout.header(bytes))?;
    layout.write_counts(out)?;
    let mut l1 = vec![0; layout.l1_entries as usize];
    for (index, &entry) in layout.tables.iter().enumerate() {
        l1[entry as usize] = COPIED | ((layout.first_table + index as u64) * cluster);
    }
    put(out, layout.l1 * cluster, &table(l1.into_iter()))?;
    // One table of the second level after the other.
    let (mut data, mut rest) = (layout.first_data, &used[..]);
    for (index, &entry) in layout.tables.iter().enumerate() {
        let mut l2 = vec![0; entries as usize];
        let count = rest.partition_point(|&number| number / entries == entry);
        for &number in &rest[..count] {
            l2[(number % entries) as usize] = COPIED | (data * cluster);
            data += 1;
        }
        rest = &rest[count..];
        let at = layout.first_table + index as u64;
        put(out, at * cluster, &table(l2.into_iter()))?;
    }
    let mut data = layout.first_data;
    disk.each(cluster, |_, block| {
        data += 1;
        out.write_all_at(block, (data - 1) * cluster)
    })
}
