//! qcow2, version 3: clusters of 64 KiB, counts of 16 bits, nothing compressed.
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

const CLUSTER: u64 = 64 << 10;
/// Entries of a table of the second level.
const ENTRIES: u64 = CLUSTER / 8;
/// Counts of a cluster.
const COUNTS: u64 = CLUSTER / 2;
/// This cluster has one owner, and may be written in place.
const COPIED: u64 = 1 << 63;

/// Where the parts lie, in clusters.
struct Layout {
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
    fn new(bytes: u64, used: &[u64]) -> Layout {
        let l1_entries = bytes.div_ceil(CLUSTER * ENTRIES).max(1);
        let l1 = (l1_entries * 8).div_ceil(CLUSTER);
        let mut tables: Vec<u64> = used.iter().map(|cluster| cluster / ENTRIES).collect();
        tables.dedup();
        let rest = 1 + l1 + tables.len() as u64 + used.len() as u64;
        // The counts count themselves, too.
        let (mut count_table, mut count_blocks) = (1, 1);
        loop {
            let total = rest + count_table + count_blocks;
            let blocks = total.div_ceil(COUNTS);
            let table = (blocks * 8).div_ceil(CLUSTER);
            if (table, blocks) == (count_table, count_blocks) {
                let l1_at = 1 + count_table + count_blocks;
                let first_table = l1_at + l1;
                let first_data = first_table + tables.len() as u64;
                let l1 = l1_at;
                return Layout {
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
        word(&mut header, 3);
        // No backing file: its place and its length.
        long(&mut header, 0);
        word(&mut header, 0);
        word(&mut header, CLUSTER.trailing_zeros());
        long(&mut header, bytes);
        // Not encrypted.
        word(&mut header, 0);
        word(&mut header, self.l1_entries as u32);
        long(&mut header, self.l1 * CLUSTER);
        long(&mut header, CLUSTER);
        word(&mut header, self.count_table as u32);
        // No snapshots: their count and place. No features: three sets of them.
        word(&mut header, 0);
        (0..4).for_each(|_| long(&mut header, 0));
        // Counts of 1 << 4 bits; the length of this header.
        word(&mut header, 4);
        word(&mut header, 104);
        header
    }

    /// Each cluster of the image has one owner.
    fn write_counts(&self, out: &mut File) -> io::Result<()> {
        let first = 1 + self.count_table;
        put(out, CLUSTER, &table((first..first + self.count_blocks).map(|at| at * CLUSTER)))?;
        let ones: Vec<u8> = (0..self.total).flat_map(|_| 1_u16.to_be_bytes()).collect();
        put(out, first * CLUSTER, &ones)
    }
}

/// Type of the extension of a header that names the format of the file behind.
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// Writes an image of `bytes` bytes without content, over the raw disk `backing`.
pub fn overlay(bytes: u64, backing: &str, out: &mut File) -> io::Result<()> {
    let layout = Layout::new(bytes, &[]);
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
    out.set_len(layout.total * CLUSTER)?;
    put(out, 0, &header)?;
    layout.write_counts(out)
}

/// Numbers as a table of 8 bytes each.
fn table(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_be_bytes).collect()
}

/// Writes the disk.
pub fn write(disk: &Disk, out: &mut File) -> io::Result<()> {
    let mut used = Vec::new();
    disk.each(CLUSTER, |number, _| {
        used.push(number);
        Ok(())
    })?;
    let bytes = disk.bytes.next_multiple_of(512);
    let layout = Layout::new(bytes, &used);
    out.set_len(layout.total * CLUSTER)?;
    put(out, 0, &layout.header(bytes))?;
    layout.write_counts(out)?;
    let mut l1 = vec![0; layout.l1_entries as usize];
    for (index, &entry) in layout.tables.iter().enumerate() {
        l1[entry as usize] = COPIED | ((layout.first_table + index as u64) * CLUSTER);
    }
    put(out, layout.l1 * CLUSTER, &table(l1.into_iter()))?;
    // One table of the second level after the other.
    let (mut data, mut rest) = (layout.first_data, &used[..]);
    for (index, &entry) in layout.tables.iter().enumerate() {
        let mut l2 = vec![0; ENTRIES as usize];
        let count = rest.partition_point(|&cluster| cluster / ENTRIES == entry);
        for &cluster in &rest[..count] {
            l2[(cluster % ENTRIES) as usize] = COPIED | (data * CLUSTER);
            data += 1;
        }
        rest = &rest[count..];
        let at = layout.first_table + index as u64;
        put(out, at * CLUSTER, &table(l2.into_iter()))?;
    }
    let mut data = layout.first_data;
    disk.each(CLUSTER, |_, block| {
        data += 1;
        out.write_all_at(block, (data - 1) * CLUSTER)
    })
}
