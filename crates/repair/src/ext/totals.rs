//! Inodes as they were decided; then bitmaps, counts and the superblock, counted anew.

use base::bitmap;
use block::DeviceError;
use ext4::Rule;
use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::super_block::{LARGE_FILE, RESIZE_INO, STATE_CLEAN, STATE_ERROR, SUPER_OFFSET};
use ext4::format::{At, Features, FileKind, GroupDesc, GroupFlags, InodeFlags, RawSuper};

use super::Fs;

/// What a group has free.
#[derive(Default)]
struct Free {
    blocks: u64,
    inodes: u64,
}

impl Fs<'_> {
    /// Writes maps, counts of links and of blocks into the inodes.
    ///
    /// # Errors
    /// The device's.
    pub fn write_inodes(&mut self) -> Result<(), DeviceError> {
        let children = self.children();
        let size = u64::from(self.g.block_size);
        for ino in self.inodes.keys().copied().collect::<Vec<u32>>() {
            let unused = ino < self.g.first_ino && self.inodes[&ino].links == 0;
            if self.inodes[&ino].rewrite && ino != RESIZE_INO {
                self.store_map(ino)?;
            }
            if ino == RESIZE_INO || unused {
                continue;
            }
            let links = self.links_of(ino, &children);
            let inode = &self.inodes[&ino];
            let clusters = self.clusters_of(&inode.map).count() as u64 + u64::from(inode.acl != 0);
            let sectors = clusters * self.g.cluster_sectors() + inode.extra_sectors;
            let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
            let directory = inode.kind == FileKind::Directory;
            let (flags, mut end) = (inode.flags, inode.map.end() * size);
            if directory && inline {
                end = self.inline_bytes(ino)?.len() as u64;
            }
            let values = self.values(ino)?;
            let mut fixed = values;
            fixed.flags = flags | values.flags & InodeFlags::HUGE_FILE;
            if directory {
                fixed.size = end;
            }
            fixed.blocks = sectors;
            if let Some(links) = links.filter(|&links| links > 0) {
                fixed.links = links.min(u32::from(u16::MAX)) as u16;
            }
            let mut wanted = fixed != values;
            if fixed.links != values.links {
                wanted &= self.count_links(ino, values.links, fixed.links);
            }
            if fixed.blocks != values.blocks {
                let detail = format!("{} sectors, counted {sectors}", values.blocks);
                wanted &= self.safe(Rule::InodeBlocks, Self::at(ino), detail, "store the count");
            }
            if fixed.size != values.size {
                let detail = format!("size {}, blocks up to {end}", values.size);
                let act = "store the size of the blocks";
                wanted &= self.safe(Rule::InodeSize, Self::at(ino), detail, act);
            }
            if wanted {
                self.edit(ino, |values| *values = fixed)?;
            }
        }
        Ok(())
    }

    /// An inode claims other links than it has; true where it is to be changed.
    pub fn count_links(&mut self, ino: u32, found: u16, counted: u16) -> bool {
        let detail = format!("{found} links, counted {counted}");
        self.safe(Rule::InodeLinks, Self::at(ino), detail, "store the count")
    }

    /// Counts everything anew: bitmaps, descriptors, superblock, copies.
    ///
    /// # Errors
    /// The device's.
    pub fn totals(&mut self) -> Result<(), DeviceError> {
        if self.counted.is_none() {
            self.mark_all();
        }
        let mut free = Free::default();
        for group in 0..self.g.groups_count {
            let mut desc = self.descs[group as usize];
            let before = desc;
            free.blocks += self.block_bitmap(group, &mut desc)? << self.g.cluster_bits();
            free.inodes += self.inode_bitmap_of(group, &mut desc)?;
            if desc != before || !self.summed(group)? {
                let counts = desc.free_blocks != before.free_blocks
                    || desc.free_inodes != before.free_inodes
                    || desc.used_dirs != before.used_dirs;
                let rule = if counts { Rule::GroupFreeBlocks } else { Rule::GroupChecksum };
                let detail = "its counts or its checksum are wrong";
                if self.safe(rule, At::Group(group), detail, "count anew") {
                    self.put_descriptor(group, &desc)?;
                    self.descs[group as usize] = desc;
                }
            }
        }
        self.stale.clear();
        self.finish_super(&free)?;
        self.copies_of_super()
    }

    fn summed(&mut self, group: u32) -> Result<bool, DeviceError> {
        let (block, offset) = self.g.desc_place(group);
        let content = self.view.read(block.0)?;
        let bytes = &content[offset..offset + self.g.desc_size as usize];
        Ok(GroupDesc::parse(bytes, group, &self.g).is_ok())
    }

    /// The block bitmap of a group; returns its free clusters.
    fn block_bitmap(&mut self, group: u32, desc: &mut GroupDesc) -> Result<u64, DeviceError> {
        let bits = self.g.clusters_in_group(group) as usize;
        let mut map = self.clusters_in_use(group);
        bitmap::set_range(&mut map, bits, self.g.block_size as usize * 8);
        let free = bitmap::count_zeros(&map, bits) as u64;
        desc.free_blocks = free as u32;
        let mut unused = vec![0; map.len()];
        self.g.init_block_bitmap(group, desc, &mut unused);
        let uninit = desc.flags.contains(GroupFlags::BLOCK_UNINIT) && self.g.features.group_csum();
        if uninit && unused == map {
            return Ok(free);
        }
        let old = self.view.read(desc.block_bitmap)?;
        desc.flags -= GroupFlags::BLOCK_UNINIT;
        let at = At::Group(group);
        let wanted = old == map || {
            let more =
                (0..bits).filter(|&b| bitmap::test(&map, b) && !bitmap::test(&old, b)).count();
            let less =
                (0..bits).filter(|&b| !bitmap::test(&map, b) && bitmap::test(&old, b)).count();
            let rule = if more > 0 { Rule::BlockBitmapMissing } else { Rule::BlockBitmapLeaked };
            let detail =
                format!("{more} blocks in use are not marked, {less} marked have no owner");
            self.safe(rule, at, detail, "write the bitmap anew")
        };
        if wanted {
            self.view.write(desc.block_bitmap, &map);
            desc.block_bitmap_csum = self.stored_sum(self.g.block_bitmap_csum(&map));
        }
        Ok(free)
    }

    /// A bit for each cluster of a group that somebody has, in a block.
    fn clusters_in_use(&self, group: u32) -> Vec<u8> {
        let size = self.g.block_size as usize;
        if let Some(counted) = &self.counted {
            let mut map = counted.clusters(group).into_owned();
            map.resize(size, 0);
            return map;
        }
        let first = self.g.group_first_block(group);
        let mut map = vec![0; size];
        for bit in 0..self.g.clusters_in_group(group) as usize {
            let block = first + ((bit as u64) << self.g.cluster_bits());
            if self.used.get(block) || self.meta.get(block) {
                bitmap::set(&mut map, bit);
            }
        }
        map
    }

    /// The inodes in use of a group: index, and whether it is a directory.
    fn inodes_in_use(&self, group: u32) -> Vec<(u32, bool)> {
        if let Some(counted) = &self.counted {
            return counted.inodes(group).collect();
        }
        let (per, start) = (self.g.inodes_per_group, group * self.g.inodes_per_group);
        let inodes = self.inodes.range(start + 1..=start + per);
        inodes.map(|(ino, i)| (ino - start - 1, i.kind == FileKind::Directory)).collect()
    }

    /// A bitmap's checksum, 0 where there are none.
    fn stored_sum(&self, sum: u32) -> u32 {
        if self.g.checksums.metadata { sum } else { 0 }
    }

    /// The inode bitmap of a group; returns its free inodes.
    fn inode_bitmap_of(&mut self, group: u32, desc: &mut GroupDesc) -> Result<u64, DeviceError> {
        let per = self.g.inodes_per_group;
        let start = group * per;
        let mut map = vec![0; self.g.block_size as usize];
        for ino in (start + 1..=start + per).filter(|&ino| ino < self.g.first_ino) {
            bitmap::set(&mut map, (ino - start - 1) as usize);
        }
        let mut directories = 0;
        for (index, directory) in self.inodes_in_use(group) {
            bitmap::set(&mut map, index as usize);
            directories += u32::from(directory);
        }
        desc.used_dirs = directories;
        let free = bitmap::count_zeros(&map, per as usize) as u64;
        desc.free_inodes = free as u32;
        let last = (0..per).rev().find(|&bit| bitmap::test(&map, bit as usize));
        bitmap::set_range(&mut map, per as usize, self.g.block_size as usize * 8);
        let grouped = self.g.features.group_csum();
        if grouped && desc.flags.contains(GroupFlags::INODE_UNINIT) && last.is_none() {
            desc.itable_unused = desc.itable_unused.min(per);
            return Ok(free);
        }
        desc.flags -= GroupFlags::INODE_UNINIT;
        let behind = last.map_or(per, |last| per - 1 - last);
        desc.itable_unused = if grouped { desc.itable_unused.min(behind) } else { 0 };
        let old = self.view.read(desc.inode_bitmap)?;
        let wanted = old == map || {
            let detail = "marks other inodes than those in use";
            let rule = Rule::InodeBitmapMissing;
            self.safe(rule, At::Group(group), detail, "write the bitmap anew")
        };
        if wanted {
            self.view.write(desc.inode_bitmap, &map);
            desc.inode_bitmap_csum = self.stored_sum(self.g.inode_bitmap_csum(&map));
        }
        Ok(free)
    }

    /// Sums, state and orphans in the superblock.
    fn finish_super(&mut self, free: &Free) -> Result<(), DeviceError> {
        let old = self.raw;
        let now = self.view.now();
        let mut features = old.features();
        features.incompat -= Incompat::RECOVER;
        features.ro_compat -= RoCompat::ORPHAN_PRESENT;
        self.needed_features(&mut features)?;
        let counts = old.free_blocks() != free.blocks
            || u64::from(old.s_free_inodes_count.get()) != free.inodes;
        let detail = format!(
            "{} free blocks and {} free inodes, counted {} and {}",
            old.free_blocks(),
            old.s_free_inodes_count.get(),
            free.blocks,
            free.inodes
        );
        if counts && !self.safe(Rule::SuperFreeBlocks, At::Super(0), detail, "store the counts") {
            return Ok(());
        }
        let state = old.s_state.get();
        if state & STATE_ERROR != 0 || state & STATE_CLEAN == 0 {
            let act = "mark the file system as clean";
            let detail = format!("state {state:#x}");
            self.safe(Rule::SuperErrorState, At::Super(0), detail, act);
        }
        let mut idle = old.idle_fields().join(", ");
        if self.suspects.rules.contains(&Rule::SuperUnusedFields) && idle.is_empty() {
            idle = "s_orphan_file_inum".into();
        }
        if !idle.is_empty() {
            let detail = format!("{idle} without the feature that uses it");
            self.safe(Rule::SuperUnusedFields, At::Super(0), detail, "clear it");
        }
        self.edit_super(|raw| {
            raw.clear_idle_fields();
            raw.set_free_blocks(free.blocks);
            raw.s_free_inodes_count.set(free.inodes as u32);
            raw.s_state.set(STATE_CLEAN);
            raw.s_last_orphan.set(0);
            raw.set_features(&features);
            raw.s_lastcheck.set(now);
            raw.s_mnt_count.set(0);
            forget_errors(raw);
        })
    }

    /// Adds the features that inodes need.
    fn needed_features(&mut self, features: &mut Features) -> Result<(), DeviceError> {
        let large = !features.ro_compat.contains(RoCompat::LARGE_FILE) && self.has_large_file()?;
        if large && self.feature_missing("large_file") {
            features.ro_compat |= RoCompat::LARGE_FILE;
        }
        let attributes = !features.compat.contains(Compat::EXT_ATTR)
            && self.inodes.values().any(|inode| inode.acl != 0);
        if attributes && self.feature_missing("ext_attr") {
            features.compat |= Compat::EXT_ATTR;
        }
        Ok(())
    }

    fn feature_missing(&mut self, name: &str) -> bool {
        let detail = format!("{name}, which inodes need");
        self.safe(Rule::SuperFeatureMissing, At::Super(0), detail, "set it")
    }

    fn has_large_file(&mut self) -> Result<bool, DeviceError> {
        let files = self.inodes.iter().filter(|(_, inode)| inode.kind == FileKind::Regular);
        let files: Vec<u32> = files.map(|(&ino, _)| ino).chain([RESIZE_INO]).collect();
        for ino in files {
            let values = self.values(ino)?;
            if values.kind() == Some(FileKind::Regular) && values.size >= LARGE_FILE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The copies of superblock and descriptors describe the same file system.
    fn copies_of_super(&mut self) -> Result<(), DeviceError> {
        if !self.suspects.rules.contains(&Rule::SuperBackup) && !self.from_copy {
            return Ok(());
        }
        let bytes = self.view.read_bytes(SUPER_OFFSET, 1024)?;
        let size = u64::from(self.g.block_size);
        let table = self.g.desc_place(0).0.0;
        for group in 1..self.g.groups_count {
            if !self.g.has_super(group) {
                continue;
            }
            let block = self.g.group_first_block(group);
            let its = self.view.read_bytes(block * size, 1024)?;
            let Some(fault) = ext4::check::fault_of_copy(&self.g, group, &its) else { continue };
            let act = "write the copy anew";
            if !self.safe(Rule::SuperBackup, At::Super(block), fault, act) {
                continue;
            }
            let mut copy = bytes.clone();
            let raw = RawSuper::view_mut(&mut copy).expect("1024 bytes");
            raw.s_block_group_nr.set(u16::try_from(group).unwrap_or(u16::MAX));
            raw.set_checksum();
            self.view.write_bytes(block * size, &copy)?;
            for index in 0..u64::from(self.g.descs_behind_super(group)) {
                let content = self.view.read(table + index)?;
                self.view.write(block + 1 + index, &content);
            }
        }
        self.from_copy = false;
        Ok(())
    }
}

/// Clears what was noted of errors.
fn forget_errors(raw: &mut RawSuper) {
    raw.s_error_count.set(0);
    for word in [
        &mut raw.s_first_error_time,
        &mut raw.s_first_error_ino,
        &mut raw.s_first_error_line,
        &mut raw.s_last_error_time,
        &mut raw.s_last_error_ino,
        &mut raw.s_last_error_line,
    ] {
        word.set(0);
    }
    raw.s_first_error_block.set(0);
    raw.s_last_error_block.set(0);
    raw.s_first_error_func = [0; 32];
    raw.s_last_error_func = [0; 32];
    raw.s_first_error_time_hi = 0;
    raw.s_last_error_time_hi = 0;
    raw.s_first_error_errcode = 0;
    raw.s_last_error_errcode = 0;
}
