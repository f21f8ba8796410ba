//! The resize inode: it keeps blocks behind the descriptors, so that the table can grow in place.
//!
//! Its double indirect block names the reserved blocks behind the first table; each of these is an
//! indirect block that names its copies in the groups that have a copy of the superblock.

use super::checksum::u32_at;
use super::{Geometry, InodeValues};

/// The slot of `i_block` with the double indirect block; the others are empty.
const DOUBLE: usize = 13;

/// What the resize inode of a file system maps.
pub struct ResizeMap {
    /// The first reserved block.
    pub first: u64,
    /// How many of them there are.
    pub reserved: u64,
    /// Blocks of descriptors before them.
    descs: u64,
    /// How far behind a reserved block its copies lie.
    copies: Vec<u64>,
    block_size: usize,
}

fn put(table: &mut [u8], slot: usize, block: u64) {
    table[slot * 4..][..4].copy_from_slice(&(block as u32).to_le_bytes());
}

impl ResizeMap {
    /// Of this geometry.
    pub fn of_geometry(g: &Geometry) -> ResizeMap {
        let holders = (1..g.groups_count).filter(|&group| g.has_super(group));
        ResizeMap {
            first: g.desc_place(0).0.0 + u64::from(g.desc_blocks),
            reserved: g.reserved_gdt_blocks.into(),
            descs: g.desc_blocks.into(),
            copies: holders.map(|n| u64::from(n) * u64::from(g.blocks_per_group)).collect(),
            block_size: g.block_size as usize,
        }
    }

    /// What the double indirect block holds.
    pub fn table(&self) -> Vec<u8> {
        let mut table = vec![0; self.block_size];
        let per = self.block_size as u64 / 4;
        for index in 0..self.reserved {
            put(&mut table, ((self.descs + index) % per) as usize, self.first + index);
        }
        table
    }

    /// What a reserved block holds.
    pub fn copies_of(&self, block: u64) -> Vec<u8> {
        let mut page = vec![0; self.block_size];
        for (slot, copy) in self.copies.iter().enumerate().take(self.block_size / 4) {
            put(&mut page, slot, block + copy);
        }
        page
    }

    /// The reserved blocks.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.reserved
    }

    /// Units of 512 bytes that the inode counts.
    pub fn sectors(&self, g: &Geometry) -> u64 {
        (1 + self.reserved * (1 + self.copies.len() as u64)) * g.cluster_sectors()
    }

    /// The sizes that the inode may have, in bytes: what it maps lies before the end.
    pub fn sizes(&self) -> std::ops::RangeInclusive<u64> {
        let (per, block) = (self.block_size as u64 / 4, self.block_size as u64);
        let slots = (0..self.reserved).map(|index| (self.descs + index) % per);
        let mapped = |slot: u64| 12 + per + slot * per + self.copies.len() as u64;
        let least = slots.max().filter(|_| !self.copies.is_empty()).map_or(0, mapped);
        least * block..=(12 + per + per * per + per * per * per) * block
    }

    /// The size that the inode has, in bytes: up to the last triple indirect block.
    pub fn size(&self) -> u64 {
        let per = self.block_size as u64 / 4;
        (12 + per + per * per) * self.block_size as u64
    }
}

impl InodeValues {
    /// The double indirect block of a resize inode; 0 where it has none.
    pub fn resize_table(&self) -> u64 {
        u32_at(&self.block, DOUBLE * 4).into()
    }

    /// Makes a block the only one that the map of a resize inode begins with.
    pub fn set_resize_table(&mut self, block: u64) {
        self.block.fill(0);
        put(&mut self.block, DOUBLE, block);
    }
}
