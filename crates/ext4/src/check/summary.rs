//! Fifth pass: bitmaps and counts against what is in use.

use base::bitmap;
use block::DeviceError;

use super::Checker;
use super::rule::Rule;
use super::share::OF_BLOCK;
use crate::format::{At, CorruptKind, FileKind, GroupDesc, GroupFlags};

impl Checker<'_> {
    /// Goes over all groups, then compares the sums in the superblock.
    ///
    /// # Errors
    /// The device's.
    pub fn summary(&mut self) -> Result<(), DeviceError> {
        let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
        let mut all = true;
        for group in 0..self.g.groups_count {
            let Some(desc) = self.descs[group as usize] else {
                all = false;
                continue;
            };
            let blocks = self.block_bitmap(group, &desc)?;
            // A count beyond the group was reported.
            let limit = self.g.clusters_in_group(group);
            if desc.free_blocks != blocks && desc.free_blocks <= limit {
                let detail = format!("{}, counted {blocks}", desc.free_blocks);
                self.findings.add(Rule::GroupFreeBlocks, At::Group(group), detail);
            }
            free_blocks += u64::from(blocks);
            let inodes = self.inode_bitmap(group, &desc)?;
            let limit = self.g.inodes_per_group;
            if desc.free_inodes != inodes && desc.free_inodes <= limit {
                let detail = format!("{}, counted {inodes}", desc.free_inodes);
                self.findings.add(Rule::GroupFreeInodes, At::Group(group), detail);
            }
            free_inodes += u64::from(inodes);
            self.directories_of(group, &desc);
        }
        let at = At::Super(0);
        let free_blocks = free_blocks << self.g.cluster_bits();
        if all && self.raw.free_blocks() != free_blocks {
            let detail = format!("{}, counted {free_blocks}", self.raw.free_blocks());
            self.findings.add(Rule::SuperFreeBlocks, at, detail);
        }
        let stored = u64::from(self.raw.s_free_inodes_count.get());
        if all && stored != free_inodes {
            self.findings.add(
                Rule::SuperFreeInodes,
                at,
                format!("{stored}, counted {free_inodes}"),
            );
        }
        Ok(())
    }

    /// Compares a block bitmap; returns the free blocks.
    fn block_bitmap(&mut self, group: u32, desc: &GroupDesc) -> Result<u32, DeviceError> {
        let at = At::Group(group);
        let bits = self.g.clusters_in_group(group) as usize;
        let uninit = self.g.features.group_csum() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let disk = if uninit {
            let mut map = vec![0; self.g.block_size as usize];
            self.g.init_block_bitmap(group, desc, &mut map);
            map
        } else {
            let page = self.io.read(desc.block_bitmap, 1)?;
            if let Err(corrupt) = desc.check_block_bitmap(&page, group, &self.g) {
                self.findings.corrupt(&corrupt);
            }
            page.to_vec()
        };
        if let Some(bit) = bitmap::find_next_zero(&disk, bits, disk.len() * 8) {
            let detail = format!("bit {bit} behind {bits} blocks is clear");
            self.findings.add(Rule::BlockBitmapPadding, at, detail);
        }
        let used = self.used.in_clusters(group, self.g.cluster_bits());
        let (missing, leaked) = compare(&used, &disk, bits);
        let counted = bits - count_ones(&used, bits);
        let first = self.g.group_first_block(group);
        let block = |bit: u64| first + (bit << self.g.cluster_bits());
        let unit = if self.g.has_clusters() { "cluster of block" } else { "block" };
        if let Some((bit, count)) = missing {
            let detail = format!("{unit} {} and {} more are in use", block(bit), count - 1);
            self.findings.add(Rule::BlockBitmapMissing, at, detail);
        }
        if self.blocks_unknown {
            return Ok(bitmap::count_zeros(&disk, bits) as u32);
        }
        if let Some((bit, count)) = leaked {
            let detail = format!("{unit} {} and {} more have no owner", block(bit), count - 1);
            self.findings.add(Rule::BlockBitmapLeaked, at, detail);
        }
        Ok(counted as u32)
    }

    /// Compares an inode bitmap; returns the free inodes.
    fn inode_bitmap(&mut self, group: u32, desc: &GroupDesc) -> Result<u32, DeviceError> {
        let at = At::Group(group);
        let bits = self.g.inodes_per_group as usize;
        let uninit = self.g.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT);
        let disk = if uninit {
            let mut map = vec![0; self.g.block_size as usize];
            self.g.init_inode_bitmap(&mut map);
            map
        } else {
            let page = self.io.read(desc.inode_bitmap, 1)?;
            if let Err(corrupt) = desc.check_inode_bitmap(&page, group, &self.g) {
                self.findings.corrupt(&corrupt);
            }
            page.to_vec()
        };
        if let Some(bit) = bitmap::find_next_zero(&disk, bits, disk.len() * 8) {
            let detail = format!("bit {bit} behind {bits} inodes is clear");
            self.findings.add(Rule::InodeBitmapPadding, at, detail);
        }
        let mut used = vec![0u8; bits.div_ceil(8)];
        for (index, info) in self.inodes.group(group).iter().enumerate() {
            if info.is_used() {
                bitmap::set(&mut used, index);
            }
        }
        let (missing, leaked) = compare(&used, &disk, bits);
        let first = u64::from(group) * bits as u64 + 1;
        if let Some((bit, count)) = missing {
            let detail = format!("inode {} and {} more are in use", first + bit, count - 1);
            self.findings.add(Rule::InodeBitmapMissing, at, detail);
        }
        if let Some((bit, count)) = leaked {
            let detail = format!("inode {} and {} more are not in use", first + bit, count - 1);
            self.findings.add(Rule::InodeBitmapLeaked, at, detail);
        }
        Ok((bits - count_ones(&used, bits)) as u32)
    }

    fn directories_of(&mut self, group: u32, desc: &GroupDesc) {
        let list = self.inodes.group(group);
        let directories = |info: &&super::inodes::InodeInfo| {
            info.is_used() && info.kind == Some(FileKind::Directory)
        };
        let counted = list.iter().filter(directories).count() as u32;
        if desc.used_dirs != counted && desc.used_dirs <= self.g.inodes_per_group {
            let detail = format!("{}, counted {counted}", desc.used_dirs);
            self.findings.add(Rule::GroupDirectories, At::Group(group), detail);
        }
        // They are the last that is counted of a group.
        self.io.meter.add(OF_BLOCK);
    }

    /// How many inodes of a group to read: up to the last one that the bitmap marks, even where the
    /// descriptor says that it was never used.
    ///
    /// # Errors
    /// The device's.
    pub fn last_inode(&mut self, group: u32) -> Result<u32, DeviceError> {
        let count = self.inodes_to_read(group);
        let Some(desc) = self.descs[group as usize] else { return Ok(0) };
        let uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
        if !self.g.features.group_csum() || uninit || count == self.g.inodes_per_group {
            return Ok(count);
        }
        let page = self.io.read(desc.inode_bitmap, 1)?;
        let (from, end) = (count as usize, self.g.inodes_per_group as usize);
        let sound = self.g.inode_bitmap_csum(&page) == desc.inode_bitmap_csum;
        let mut last = None;
        let mut at = from;
        while let Some(bit) = bitmap::find_next_set(&page, at, end) {
            (last, at) = (Some(bit), bit + 1);
        }
        let Some(last) = last.filter(|_| sound || !self.g.checksums.metadata) else {
            return Ok(count);
        };
        let kind = CorruptKind::GroupUnusedInodes { found: desc.itable_unused, limit: end as u32 };
        let detail = format!("inode {} of the group is in use: {kind}", last + 1);
        self.findings.add(Rule::GroupUnusedInodes, At::Group(group), detail);
        Ok(last as u32 + 1)
    }
}

/// The first bit of a kind, and how many there are.
type Bits = Option<(u64, u64)>;

/// Bits in use that the disk has not, and bits of the disk that are not in use: the first of each
/// kind and how many. `used` may be shorter than the map: the rest is not in use.
fn compare(used: &[u8], disk: &[u8], bits: usize) -> (Bits, Bits) {
    let (mut missing, mut leaked) = (None, None);
    let mut note = |slot: u8, bit: usize| {
        let found: &mut Bits = if slot == 0 { &mut missing } else { &mut leaked };
        found.get_or_insert((bit as u64, 0)).1 += 1;
    };
    for (byte, &theirs) in disk.iter().enumerate().take(bits.div_ceil(8)) {
        let ours = used.get(byte).copied().unwrap_or(0);
        let mut differ = ours ^ theirs;
        while differ != 0 {
            let bit = byte * 8 + differ.trailing_zeros() as usize;
            if bit < bits {
                note(u8::from(theirs & 1 << (bit % 8) != 0), bit);
            }
            differ &= differ - 1;
        }
    }
    (missing, leaked)
}

fn count_ones(map: &[u8], bits: usize) -> usize {
    let bits = bits.min(map.len() * 8);
    bits - bitmap::count_zeros(map, bits)
}
