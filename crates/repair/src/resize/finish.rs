//! The end of a resize: bitmaps, descriptors, the reserve of descriptors, superblocks.

use base::{Ino, bitmap};
use ext4::format::resize_inode::ResizeMap;
use ext4::format::super_block::{RESIZE_INO, SUPER_OFFSET, SUPER_SIZE};
use ext4::format::{GroupFlags, InodeValues};
use zerocopy::IntoBytes;

use super::place::Relayout;
use crate::volume::EditError;

impl Relayout<'_> {
    /// Writes everything that counts or describes.
    ///
    /// # Errors
    /// The device's; no room for a block of the resize inode.
    pub fn finish(&mut self) -> Result<(), EditError> {
        self.named_inodes()?;
        if self.has_reserve() {
            self.resize_inode()?;
        }
        for group in 0..self.kept() {
            if self.v.descs[group as usize].block_bitmap != self.descs[group as usize].block_bitmap
            {
                self.maps.load(&mut self.v, group)?;
            }
        }
        let mut free = (0, 0);
        for group in 0..self.g.groups_count {
            self.block_bitmap(group)?;
            self.inode_bitmap(group)?;
            let desc = &self.descs[group as usize];
            free.0 += u64::from(desc.free_blocks);
            free.1 += desc.free_inodes;
        }
        self.keep_zeroes()?;
        self.raw.set_free_blocks(free.0 << self.g.cluster_bits());
        self.raw.s_free_inodes_count.set(free.1);
        // The kernel counts it anew.
        self.raw.s_overhead_clusters.set(0);
        self.descriptors()
    }

    /// Inodes and blocks that the superblock names.
    fn named_inodes(&mut self) -> Result<(), EditError> {
        let raw = &mut self.raw;
        for word in [
            &mut raw.s_journal_inum,
            &mut raw.s_usr_quota_inum,
            &mut raw.s_grp_quota_inum,
            &mut raw.s_prj_quota_inum,
            &mut raw.s_orphan_file_inum,
            &mut raw.s_lpf_ino,
        ] {
            word.set(self.numbers.of(word.get()));
        }
        let mmp = raw.s_mmp_block.get();
        if let Some(to) = self.moved.of(mmp) {
            raw.s_mmp_block.set(to);
            let content = self.v.view.original(mmp)?;
            self.v.view.write(to, &content);
        }
        Ok(())
    }

    /// A stored checksum; 0 where there are none.
    fn sum(&self, sum: u32) -> u32 {
        if self.g.checksums.metadata { sum } else { 0 }
    }

    /// Do the checksums of all bitmaps change?
    fn sums_change(&self) -> bool {
        self.resummed || self.g.desc_size != self.v.g.desc_size && self.g.checksums.metadata
    }

    /// The block bitmap of a group, its checksum and count.
    fn block_bitmap(&mut self, group: u32) -> Result<(), EditError> {
        let bits = self.g.clusters_in_group(group) as usize;
        let mut desc = self.descs[group as usize];
        let known = self.maps.of(group).map(<[u8]>::to_vec);
        let fresh = group >= self.v.g.groups_count;
        let widened = self.sums_change();
        let lazy = self.g.features.group_csum();
        let mut unused = vec![0; self.v.size()];
        self.g.init_block_bitmap(group, &desc, &mut unused);
        let map = match known {
            Some(map) => map,
            None if fresh => unused.clone(),
            None if widened => self.v.block_bitmap(group)?,
            None => return Ok(()),
        };
        desc.free_blocks = bitmap::count_zeros(&map, bits) as u32;
        let was_unused = fresh || desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        if lazy && was_unused && map == unused && group + 1 < self.g.groups_count {
            desc.flags |= GroupFlags::BLOCK_UNINIT;
            desc.block_bitmap_csum = 0;
        } else {
            desc.flags -= GroupFlags::BLOCK_UNINIT;
            if self.resummed && lazy != self.v.g.features.group_csum() {
                desc.flags |= GroupFlags::INODE_ZEROED;
            }
            desc.block_bitmap_csum = self.sum(self.g.block_bitmap_csum(&map));
            self.v.view.write(desc.block_bitmap, &map);
        }
        self.descs[group as usize] = desc;
        Ok(())
    }

    /// The inode bitmap of a group and its checksum.
    fn inode_bitmap(&mut self, group: u32) -> Result<(), EditError> {
        let mut desc = self.descs[group as usize];
        if self.g.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let fresh = group >= self.v.g.groups_count;
        let moved = !fresh && self.v.descs[group as usize].inode_bitmap != desc.inode_bitmap;
        let widened = self.sums_change();
        if self.resummed && !self.g.features.group_csum() {
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.itable_unused = 0;
        }
        let map = match self.numbers.map(group) {
            Some(map) => map.clone(),
            None if fresh => {
                let mut map = vec![0; self.v.size()];
                self.g.init_inode_bitmap(&mut map);
                map
            }
            None if moved || widened => self.v.inode_bitmap(group)?,
            None => return Ok(()),
        };
        desc.inode_bitmap_csum = self.sum(self.g.inode_bitmap_csum(&map));
        self.v.view.write(desc.inode_bitmap, &map);
        self.descs[group as usize] = desc;
        Ok(())
    }

    /// Zeros for new tables: those over blocks that are in use now belong to the change.
    fn keep_zeroes(&mut self) -> Result<(), EditError> {
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for (start, len) in std::mem::take(&mut self.zeroes) {
            for block in start..start + len {
                if self.maps.was_used(block) {
                    let zeros = vec![0; self.v.size()];
                    self.v.view.write(block, &zeros);
                    continue;
                }
                match kept.last_mut() {
                    Some((from, count)) if *from + *count == block => *count += 1,
                    _ => kept.push((block, 1)),
                }
            }
        }
        self.zeroes = kept;
        Ok(())
    }

    /// The groups with a copy of the superblock, but for the first.
    fn copies(&self) -> Vec<u32> {
        (1..self.g.groups_count).filter(|&group| self.g.has_super(group)).collect()
    }

    /// The resize inode names the reserved descriptor blocks, and these their copies.
    fn resize_inode(&mut self) -> Result<(), EditError> {
        let old = self.v.slot(RESIZE_INO)?;
        let old = InodeValues::parse(&old, Ino(RESIZE_INO.into()), &self.v.g)?;
        let slot = self.old_slot(RESIZE_INO)?;
        let named = old.resize_table();
        let block = match named {
            0 => match self.maps.take_some(&mut self.v, self.g.cluster_ratio.into())? {
                Some((block, _)) => block,
                None => return Err(EditError::NoRoom("no block for the resize inode".into())),
            },
            named => self.moved.of(named).unwrap_or(named),
        };
        let map = ResizeMap::of_geometry(&self.g);
        for reserved in map.blocks() {
            self.v.view.write(reserved, &map.copies_of(reserved));
        }
        self.v.view.write(block, &map.table());
        let mut values = old;
        values.set_resize_table(block);
        values.blocks = map.sectors(&self.g);
        let mut slot = slot;
        values.emit(&mut slot, Ino(RESIZE_INO.into()), &self.g);
        self.put_slot(RESIZE_INO, &slot)
    }

    /// The descriptors and the superblock, and their copies.
    fn descriptors(&mut self) -> Result<(), EditError> {
        let size = self.v.size();
        let desc_size = self.g.desc_size as usize;
        let holders = self.copies();
        for index in 0..self.g.desc_blocks {
            let first = index * self.g.descs_per_block;
            let end = (first + self.g.descs_per_block).min(self.g.groups_count);
            let mut content = self.old_table(index)?;
            for group in first..end {
                let at = (group - first) as usize * desc_size;
                let bytes = &mut content[at..at + desc_size];
                self.descs[group as usize].emit(bytes, group, &self.g);
            }
            let (primary, _) = self.g.desc_place(first);
            let mut places = vec![primary.0];
            places.extend(self.g.desc_copies(index));
            for block in places {
                self.v.view.write(block, &content);
            }
        }
        for group in std::iter::once(0).chain(holders) {
            let mut raw = self.raw;
            raw.s_block_group_nr.set(group as u16);
            if group > 0 {
                // As mke2fs makes them: nobody keeps copies up to date.
                raw.s_state.set(0);
            }
            raw.set_checksum();
            if group == 0 {
                self.v.view.write_bytes(SUPER_OFFSET, raw.as_bytes())?;
            } else {
                let mut data = vec![0; size];
                data[..SUPER_SIZE].copy_from_slice(raw.as_bytes());
                self.v.view.write(self.g.group_first_block(group), &data);
            }
        }
        Ok(())
    }

    /// What a block of descriptors holds beside the values: nothing where descriptors change size.
    fn old_table(&mut self, index: u32) -> Result<Vec<u8>, EditError> {
        let same = self.g.desc_size == self.v.g.desc_size && index < self.v.g.desc_blocks;
        if !same {
            return Ok(vec![0; self.v.size()]);
        }
        let (block, _) = self.v.g.desc_place(index * self.v.g.descs_per_block);
        let mut content = self.v.view.original(block.0)?;
        let first = index * self.g.descs_per_block;
        let known = self.kept().saturating_sub(first).min(self.g.descs_per_block);
        content[known as usize * self.g.desc_size as usize..].fill(0);
        Ok(content)
    }
}
