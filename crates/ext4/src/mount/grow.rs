//! Growth of a mounted file system.
//!
//! 1. What lies behind the old end is written: bitmaps and inode tables of new groups, their copies
//!    of superblock and descriptors. So are the copies of new descriptors, in blocks that were kept
//!    for them. Nobody looks at any of it yet.
//! 2. One transaction changes everything else: the descriptors, the reserve of descriptors in the
//!    resize inode, the bitmap of the group that was the last one, the superblock and its copies.
//!
//! A power cut leaves the size before or after. What no transaction can hold takes several, each
//! from one size to a larger one. Where the reserve of descriptors is used up, those of further
//! groups lie in the groups (`meta_bg`), as Linux does it.
//!
//! Facts: the kernel's documentation of group descriptors and `meta_bg`, and what e2fsck says.

mod groups;
mod step;

use base::{Errno, Ino, Page, Sector};
use block::BioFlags;
use cache::BufferRef;
use rt::Cx;
use zerocopy::IntoBytes;

use self::groups::NewGroups;
use self::step::Step;
use crate::Ext4;
use crate::alloc::balloc::Group;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::resize_inode::ResizeMap;
use crate::format::super_block::RESIZE_INO;
use crate::format::{Geometry, InodeValues, RawSuper};
use crate::trans::ext4_jbd2::Handle;

impl Ext4 {
    /// Grows to so many blocks: see [`vfs::FileSystem::grow`].
    pub(super) fn grow_to(&self, cx: &mut Cx, blocks: u64) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let _alone = self.growing.lock(cx);
        if blocks < self.sb.geometry.blocks_count {
            return Err(Errno::EINVAL);
        }
        if self.sb.geometry.reserve_fault().is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let size = u64::from(self.sb.geometry.block_size);
        let wanted = blocks.checked_mul(size).ok_or(Errno::EINVAL)?;
        if wanted > self.sb.queue.grow(wanted) {
            return Err(Errno::ENOSPC);
        }
        while let Some(step) = self.next_step(blocks)? {
            self.grow_by(cx, &step)?;
        }
        Ok(())
    }

    fn next_step(&self, blocks: u64) -> Result<Option<Step>, Errno> {
        let most = self.sb.journal().map_or(u32::MAX, |journal| journal.max_large_credits());
        let raw = self.super_block();
        step::next_step(&raw, &self.sb.geometry, blocks, most).map_err(|_| Errno::ENOSPC)
    }

    fn grow_by(&self, cx: &mut Cx, step: &Step) -> Result<(), Errno> {
        let old = (*self.sb.geometry).clone();
        let new = &step.g;
        let groups = NewGroups::behind(new, old.groups_count).ok_or(Errno::ENOSPC)?;
        let tables = self.new_tables(&groups, new);
        self.write_groups(cx, &groups, new)?;
        self.write_desc_copies(cx, step, &old, &tables)?;
        self.sb.flush_device(cx)?;
        let last = old.groups_count - 1;
        self.alloc.load_group(cx, last)?;
        let credits = step::credits(&old, new) as u32;
        let mut handle = match self.sb.journal() {
            Some(journal) => Handle::Journal(journal.start_large(cx, credits)?, 0),
            None => self.sb.journal_start(cx, credits)?,
        };
        let result = self.grow_in(cx, &mut handle, step, &old, groups, &tables);
        let tid = handle.tid();
        let stopped = handle.stop(cx);
        if let Err(errno) = result {
            // Half of it is in the transaction, which must not commit.
            self.sb.latch(errno, format!("growing failed: {errno}"), None);
            if let Some(journal) = self.sb.journal() {
                journal.abort(errno);
            }
            return Err(errno);
        }
        stopped?;
        match tid {
            Some(_) => self.sb.make_durable(cx, tid),
            None => self.sync_all(cx),
        }
    }

    /// The blocks of descriptors that get new ones, with their indices.
    fn new_tables(&self, groups: &NewGroups, new: &Geometry) -> Vec<(u32, Vec<u8>)> {
        let first = groups.first / new.descs_per_block;
        let mut tables: Vec<(u32, Vec<u8>)> = (first..new.desc_blocks)
            .map(|index| (index, vec![0; new.block_size as usize]))
            .collect();
        if !groups.first.is_multiple_of(new.descs_per_block) {
            tables[0].1 = self.alloc.desc_buffer(groups.first - 1).with(<[u8]>::to_vec);
        }
        for (group, desc) in groups.iter() {
            let (index, at) = (group / new.descs_per_block, new.desc_place(group).1);
            let table = &mut tables[(index - first) as usize].1;
            desc.emit(&mut table[at..at + new.desc_size as usize], group, new);
        }
        tables
    }

    fn write(&self, cx: &mut Cx, block: u64, data: &[u8]) -> Result<(), Errno> {
        let sector = Sector::from_bytes(block * u64::from(self.sb.geometry.block_size));
        let written = self.sb.queue.write(cx, sector, Page::from_slice(data), BioFlags::META);
        written.map_err(|error| self.sb.device_error(cx, &error))
    }

    /// Bitmaps and inode tables of the new groups.
    fn write_groups(&self, cx: &mut Cx, groups: &NewGroups, new: &Geometry) -> Result<(), Errno> {
        let size = u64::from(new.block_size);
        let mut inodes = vec![0; size as usize];
        new.init_inode_bitmap(&mut inodes);
        for (group, desc) in groups.iter() {
            let start = Sector::from_bytes(desc.inode_table * size);
            let sectors = u64::from(new.itable_blocks) * size / 512;
            let zeroed = self.sb.queue.write_zeroes(cx, start, sectors);
            zeroed.map_err(|error| self.sb.device_error(cx, &error))?;
            if let Some(map) = groups.maps.get(&group) {
                self.write(cx, desc.block_bitmap, map)?;
            }
            if !new.features.group_csum() {
                self.write(cx, desc.inode_bitmap, &inodes)?;
            }
        }
        Ok(())
    }

    /// The copies of descriptors, and in new groups those of the superblock.
    fn write_desc_copies(
        &self,
        cx: &mut Cx,
        step: &Step,
        old: &Geometry,
        tables: &[(u32, Vec<u8>)],
    ) -> Result<(), Errno> {
        let new = &step.g;
        for group in old.groups_count..new.groups_count {
            if new.has_super(group) {
                let mut data = vec![0; new.block_size as usize];
                let raw = self.copy_of_super(&step.raw, group);
                data[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
                self.write(cx, new.group_first_block(group), &data)?;
            }
        }
        for index in 0..new.desc_blocks {
            let changed = tables.iter().find(|(of, _)| *of == index).map(|(_, data)| data);
            // What does not change goes to new groups alone.
            let places = new.desc_copies(index);
            for &place in
                places.iter().filter(|&&place| changed.is_some() || place >= old.blocks_count)
            {
                let group = index * new.descs_per_block;
                match changed {
                    Some(data) => self.write(cx, place, data)?,
                    None => {
                        let data = self.alloc.desc_buffer(group).with(<[u8]>::to_vec);
                        self.write(cx, place, &data)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The copy of a superblock in a group.
    fn copy_of_super(&self, raw: &RawSuper, group: u32) -> RawSuper {
        let mut copy = *raw;
        let mut features = copy.features();
        features.incompat.remove(Incompat::RECOVER);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        copy.set_features(&features);
        copy.s_block_group_nr.set(group as u16);
        copy.s_state.set(0);
        copy.set_checksum();
        copy
    }

    /// The transaction.
    fn grow_in(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        step: &Step,
        old: &Geometry,
        groups: NewGroups,
        tables: &[(u32, Vec<u8>)],
    ) -> Result<(), Errno> {
        let new = &step.g;
        if step.converts {
            self.end_reserve(cx, handle)?;
        } else if new.features.compat.contains(Compat::RESIZE_INODE) {
            self.use_reserve(cx, handle, new)?;
        }
        let fresh = self.change_tables(cx, handle, new, &groups, tables)?;
        let more = self.alloc.extend_last(cx, handle, old, new)?;
        for group in (1..old.groups_count).filter(|&group| old.has_super(group)) {
            let buffer = self.sb.read_block(cx, old.group_first_block(group))?;
            handle.write_access(cx, &buffer)?;
            let raw = self.copy_of_super(&step.raw, group);
            buffer.with_mut(|data| data[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes()));
            handle.dirty(cx, &buffer)?;
        }
        let free = (more + groups.free_blocks()) << new.cluster_bits();
        let (overhead, inodes) = (groups.overhead(new), new.inodes_count - old.inodes_count);
        self.sb.journal_super(cx, handle, |raw| {
            take_size(raw, &step.raw);
            raw.set_free_blocks(raw.free_blocks() + free);
            raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() + inodes);
            if raw.s_overhead_clusters.get() != 0 {
                let clusters = u64::from(raw.s_overhead_clusters.get()) + overhead;
                raw.s_overhead_clusters.set(u32::try_from(clusters).unwrap_or(0));
            }
        })?;
        // From here on everybody uses what is new, in this transaction or a later one.
        self.alloc.add_groups(groups.descs.iter().map(|desc| Group::new(*desc)), fresh, new);
        self.sb.geometry.replace(new.clone());
        self.alloc.complete_cluster(cx, old);
        self.alloc.count_more(&step.raw, new, more + groups.free_blocks(), inodes);
        Ok(())
    }

    /// New descriptors; the buffers of their blocks that hold no others.
    fn change_tables(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        new: &Geometry,
        groups: &NewGroups,
        tables: &[(u32, Vec<u8>)],
    ) -> Result<Vec<BufferRef>, Errno> {
        let mut fresh = Vec::new();
        for (index, table) in tables {
            let first = (index * new.descs_per_block).max(groups.first);
            if !first.is_multiple_of(new.descs_per_block) {
                // Others change the descriptors before it meanwhile.
                let at = new.desc_place(first).1;
                let buffer = self.alloc.desc_buffer(groups.first - 1);
                handle.write_access(cx, buffer)?;
                buffer.with_mut(|data| data[at..].copy_from_slice(&table[at..]));
                handle.dirty(cx, buffer)?;
                continue;
            }
            let buffer = self.sb.new_buffer(cx, handle, new.desc_place(first).0.0)?;
            buffer.with_mut(|data| data.copy_from_slice(table));
            handle.dirty(cx, &buffer)?;
            fresh.push(buffer);
        }
        Ok(fresh)
    }

    /// Takes descriptor blocks out of the reserve, and names the copies of the others in new
    /// groups.
    fn use_reserve(&self, cx: &mut Cx, handle: &mut Handle, new: &Geometry) -> Result<(), Errno> {
        let ino = Ino(RESIZE_INO.into());
        let (slot, at) = self.inodes.inode_slot(cx, ino)?;
        let size = new.inode_size as usize;
        let values = slot.with(|data| InodeValues::parse(&data[at..at + size], ino, new));
        let mut values = values.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
        let map = ResizeMap::of_geometry(new);
        let mut put = |cx: &mut Cx, block: u64, data: Vec<u8>| {
            let buffer = self.sb.read_block(cx, block)?;
            if buffer.with(|before| before == data) {
                return Ok(());
            }
            handle.write_access(cx, &buffer)?;
            buffer.with_mut(|bytes| bytes.copy_from_slice(&data));
            handle.dirty(cx, &buffer)
        };
        for block in map.blocks() {
            put(cx, block, map.copies_of(block))?;
        }
        put(cx, values.resize_table(), map.table())?;
        values.blocks = map.sectors(new);
        handle.write_access(cx, &slot)?;
        slot.with_mut(|data| values.emit(&mut data[at..at + size], ino, new));
        handle.dirty(cx, &slot)
    }

    /// The resize inode, which names no reserve any more, goes.
    fn end_reserve(&self, cx: &mut Cx, handle: &mut Handle) -> Result<(), Errno> {
        let ino = Ino(RESIZE_INO.into());
        let (slot, at) = self.inodes.inode_slot(cx, ino)?;
        let size = self.sb.geometry.inode_size as usize;
        let g = &*self.sb.geometry;
        if !g.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let values = slot.with(|data| InodeValues::parse(&data[at..at + size], ino, g));
        let values = values.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
        handle.forget_block(cx, values.resize_table())?;
        self.alloc.free_blocks(cx, handle, values.resize_table(), 1)?;
        handle.write_access(cx, &slot)?;
        slot.with_mut(|data| data[at..at + size].fill(0));
        handle.dirty(cx, &slot)
    }
}

/// Takes over what says how large it is.
fn take_size(raw: &mut RawSuper, new: &RawSuper) {
    raw.s_blocks_count_lo = new.s_blocks_count_lo;
    raw.s_blocks_count_hi = new.s_blocks_count_hi;
    raw.s_inodes_count = new.s_inodes_count;
    raw.s_r_blocks_count_lo = new.s_r_blocks_count_lo;
    raw.s_r_blocks_count_hi = new.s_r_blocks_count_hi;
    raw.s_reserved_gdt_blocks = new.s_reserved_gdt_blocks;
    raw.s_first_meta_bg = new.s_first_meta_bg;
    let (mut features, made) = (raw.features(), new.features());
    features.incompat |= made.incompat & Incompat::META_BG;
    if !made.compat.contains(Compat::RESIZE_INODE) {
        features.compat.remove(Compat::RESIZE_INODE);
    }
    raw.set_features(&features);
}
