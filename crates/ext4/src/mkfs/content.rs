//! Third phase of mkfs: what every block holds.

use std::collections::BTreeMap;

use base::{Ino, Timespec};
use zerocopy::IntoBytes;

use super::journal::{self, MappedFile};
use super::place::Placed;
use super::shape::Shape;
use super::{MkfsError, MkfsOptions, MkfsReport, Plan, Surroundings};
use crate::format::dir::{self, DirLayout, Dots};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{BASE_SIZE, EXTRA_SIZE};
use crate::format::quota::{self, Dqblk, Kind};
use crate::format::resize_inode::ResizeMap;
use crate::format::super_block::{FIRST_INO, JOURNAL_INO, RESIZE_INO, ROOT_INO, SUPER_OFFSET};
use crate::format::{FileKind, Geometry, GroupFlags, InodeFlags, InodeValues, RawSuper};
use crate::format::{orphan, xattr};

mod asked;

/// The hidden inodes of the quota files of users and groups.
const USER_QUOTA_INO: u32 = 3;
const GROUP_QUOTA_INO: u32 = 4;
/// `/lost+found`, the first inode that is not reserved.
const LOST_INO: u32 = FIRST_INO;
/// Bytes that `/lost+found` keeps ready, so that e2fsck need not allocate.
const LOST_BYTES: u32 = 16384;
/// At the end of the device: remains of other formats (md) would be found there.
const TAIL_BYTES: u64 = 65536;

/// The image that grows.
struct Builder<'a> {
    options: &'a MkfsOptions,
    now: Timespec,
    g: &'a Geometry,
    raw: RawSuper,
    placed: Placed,
    blocks: BTreeMap<u64, Vec<u8>>,
    zeroes: Vec<(u64, u64)>,
    /// Inodes in use: all up to this one.
    last_ino: u32,
    layout: DirLayout,
    /// Owner, group and project of the inodes that quota counts, and their bytes.
    charged: Vec<([u32; 3], u64)>,
}

/// Fills all blocks and turns them into a plan.
///
/// # Errors
/// Where root directory, journal or orphan file do not fit.
pub fn build(
    options: &MkfsOptions,
    around: &Surroundings,
    shape: Shape,
    placed: Placed,
) -> Result<Plan, MkfsError> {
    let g = &shape.geometry;
    let mut builder = Builder {
        options,
        now: around.now,
        g,
        raw: shape.raw,
        placed,
        blocks: BTreeMap::new(),
        zeroes: Vec::new(),
        last_ino: FIRST_INO - 1,
        layout: g.dir_layout(),
        charged: Vec::new(),
    };
    if options.super_only {
        builder.super_only();
        return Ok(builder.finish(0, around.device_bytes));
    }
    let tables = builder.placed.used_clusters() - shape.bad_blocks.len() as u64;
    builder.reserved_inodes();
    builder.directories()?;
    if !shape.bad_blocks.is_empty() {
        builder.bad_blocks(&shape.bad_blocks)?;
    }
    if g.features.compat.contains(Compat::RESIZE_INODE) {
        builder.resize_inode()?;
    }
    if shape.journal_blocks > 0 {
        builder.journal(shape.journal_blocks, shape.fast_commit_blocks)?;
    }
    if g.features.incompat.contains(Incompat::MMP) {
        builder.mmp_block()?;
    }
    if g.features.ro_compat.contains(RoCompat::QUOTA) {
        builder.quota_files()?;
    }
    if shape.orphan_blocks > 0 {
        builder.orphan_file(shape.orphan_blocks)?;
    }
    let overhead = tables + u64::from(shape.journal_blocks.div_ceil(g.cluster_ratio));
    builder.raw.s_overhead_clusters.set(overhead as u32);
    builder.bitmaps();
    builder.tables_to_zero();
    builder.descriptors();
    Ok(builder.finish(shape.journal_blocks, around.device_bytes))
}

impl Builder<'_> {
    fn full(&self) -> MkfsError {
        MkfsError::TooSmall { blocks: self.g.blocks_count, block_size: self.g.block_size }
    }

    /// The block, zeroes where it was not touched.
    fn block(&mut self, block: u64) -> &mut Vec<u8> {
        let size = self.g.block_size as usize;
        self.blocks.entry(block).or_insert_with(|| vec![0; size])
    }

    /// Writes an inode into its table.
    fn put_inode(&mut self, ino: u32, values: &InodeValues) {
        let g = self.g;
        values.emit(self.slot(ino), Ino(ino.into()), g);
        self.last_ino = self.last_ino.max(ino);
    }

    /// Where an inode lies in its table.
    fn slot(&mut self, ino: u32) -> &mut [u8] {
        let g = self.g;
        let (group, index) = g.inode_group(Ino(ino.into())).expect("a low inode");
        let (block, offset) = g.inode_offset(index);
        let table = self.placed.descs[group as usize].inode_table;
        &mut self.block(table + block)[offset..][..g.inode_size as usize]
    }

    /// An inode of this kind, owned by root, made now.
    fn values(&self, kind: FileKind, permissions: u16, links: u16) -> InodeValues {
        InodeValues {
            mode: kind.mode_bits() | permissions,
            links,
            atime: self.now,
            ctime: self.now,
            mtime: self.now,
            crtime: Some(self.now),
            extra_isize: if self.g.inode_size > 128 { EXTRA_SIZE } else { 0 },
            ..InodeValues::default()
        }
    }

    /// Gives an inode the blocks of a mapping and writes its nodes.
    fn attach(&mut self, ino: u32, values: &mut InodeValues, mapped: MappedFile) {
        values.block = mapped.block;
        values.blocks = mapped.blocks * u64::from(self.g.block_size / 512);
        if mapped.extents {
            values.flags |= InodeFlags::EXTENTS;
        }
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), values.generation);
        for (block, mut node) in mapped.nodes {
            if mapped.extents && self.g.checksums.metadata {
                seed.set_extent_block(&mut node);
            }
            self.blocks.insert(block, node);
        }
    }

    /// Inodes 1 to 10: empty but for the times of the (empty) list of bad blocks.
    fn reserved_inodes(&mut self) {
        let now = self.now;
        let times = InodeValues { atime: now, ctime: now, mtime: now, ..InodeValues::default() };
        self.put_inode(1, &times);
        for ino in 2..FIRST_INO {
            self.put_inode(ino, &InodeValues::default());
        }
    }

    /// The root directory and `/lost+found`.
    fn directories(&mut self) -> Result<(), MkfsError> {
        let lost = self.options.lost_and_found;
        let size = self.g.block_size;
        let mut root = self.values(FileKind::Directory, self.options.root_mode & 0o7777, 2);
        (root.uid, root.gid) = self.options.root_owner;
        root.links += u16::from(lost);
        root.size = size.into();
        let mapped = journal::map(self.g, &mut self.placed, 0, 1).map_err(|_| self.full())?;
        let block = mapped.pieces[0].0;
        self.attach(ROOT_INO, &mut root, mapped);
        let mut data = vec![0; size as usize];
        dir::init_dots(&mut data, self.layout, ROOT_INO, ROOT_INO, FileKind::Directory.dir_type());
        if lost {
            let name = b"lost+found";
            let room = dir::entry_len(1) as u32;
            let kind = FileKind::Directory.dir_type();
            dir::insert(&mut data, self.layout, room, LOST_INO, kind, name);
        }
        let label = self.root_selinux(&mut root)?;
        self.charged.push(([root.uid, root.gid, 0], root.blocks * 512));
        self.put_dir_block(ROOT_INO, block, data);
        self.put_inode(ROOT_INO, &root);
        if let Some(area) = label {
            // Once more, for the checksum.
            self.slot(ROOT_INO)[BASE_SIZE + usize::from(root.extra_isize)..].copy_from_slice(&area);
            self.put_inode(ROOT_INO, &root);
        }
        if lost { self.lost_and_found() } else { Ok(()) }
    }

    fn lost_and_found(&mut self) -> Result<(), MkfsError> {
        let size = self.g.block_size;
        // Where directories begin in the inode, the first step to make it longer is the way out.
        let inline = self.g.inline_data();
        let count = u64::from(LOST_BYTES / size).clamp(2, 12) - u64::from(inline);
        let mut lost = self.values(FileKind::Directory, 0o700, 2);
        lost.size = count * u64::from(size);
        let mapped = journal::map(self.g, &mut self.placed, 0, count).map_err(|_| self.full())?;
        let list: Vec<u64> =
            mapped.pieces.iter().flat_map(|&(start, len)| start..start + len).collect();
        self.attach(LOST_INO, &mut lost, mapped);
        for (index, block) in list.into_iter().enumerate() {
            let mut data = vec![0; size as usize];
            let (ino, parent, dir_type) = (LOST_INO, ROOT_INO, FileKind::Directory.dir_type());
            match index {
                0 if inline => {
                    let (dots, moved) = (Dots { ino, parent, dir_type }, dir::empty_inline(parent));
                    dir::init_from_inline(&mut data, self.layout, dots, &moved);
                }
                0 => dir::init_dots(&mut data, self.layout, ino, parent, dir_type),
                _ => dir::init_empty(&mut data, self.layout),
            }
            self.put_dir_block(LOST_INO, block, data);
        }
        self.charged.push(([0; 3], lost.blocks * 512));
        self.put_inode(LOST_INO, &lost);
        if inline {
            // What is left of the attribute is the area's magic number.
            let at = BASE_SIZE + usize::from(lost.extra_isize);
            self.slot(LOST_INO)[at..at + 4].copy_from_slice(&xattr::MAGIC.to_le_bytes());
            self.put_inode(LOST_INO, &lost);
        }
        Ok(())
    }

    /// The quota files, with what the directories use.
    fn quota_files(&mut self) -> Result<(), MkfsError> {
        let mut wanted = self.options.quota_kinds.unwrap_or([true, true, false]);
        wanted[Kind::Project as usize] |= self.g.features.ro_compat.contains(RoCompat::PROJECT);
        for kind in Kind::ALL.into_iter().filter(|&kind| wanted[kind as usize]) {
            let ino = match kind {
                Kind::User => USER_QUOTA_INO,
                Kind::Group => GROUP_QUOTA_INO,
                Kind::Project => self.last_ino.max(FIRST_INO) + 1,
            };
            let mut usage: BTreeMap<u32, Dqblk> = BTreeMap::new();
            for (ids, space) in &self.charged {
                let entry = usage.entry(ids[kind as usize]).or_default();
                entry.space += space;
                entry.inodes += 1;
            }
            let usage: Vec<_> = usage.into_iter().collect();
            let bytes = quota::new_file(kind, &usage).0.concat();
            self.quota_file(kind, ino, &bytes)?;
        }
        Ok(())
    }

    fn quota_file(&mut self, kind: Kind, ino: u32, bytes: &[u8]) -> Result<(), MkfsError> {
        let size = self.g.block_size as usize;
        let count = bytes.len().div_ceil(size) as u64;
        // The second block of blocks of 1 KiB is the root of the tree, which mke2fs writes behind
        // the four nodes of the first id.
        let late = (self.g.block_size == 1024).then_some(1..6);
        let mapped = journal::map_late(self.g, &mut self.placed, count, late);
        let mapped = mapped.map_err(|_| self.full())?;
        let list: Vec<u64> =
            mapped.pieces.iter().flat_map(|&(start, len)| start..start + len).collect();
        for (block, bytes) in list.into_iter().zip(bytes.chunks(size)) {
            self.block(block)[..bytes.len()].copy_from_slice(bytes);
        }
        let mut values = self.values(FileKind::Regular, 0o600, 1);
        values.flags |= InodeFlags::IMMUTABLE;
        values.size = bytes.len() as u64;
        self.attach(ino, &mut values, mapped);
        self.put_inode(ino, &values);
        match kind {
            Kind::User => self.raw.s_usr_quota_inum.set(ino),
            Kind::Group => self.raw.s_grp_quota_inum.set(ino),
            Kind::Project => self.raw.s_prj_quota_inum.set(ino),
        }
        Ok(())
    }

    fn put_dir_block(&mut self, ino: u32, block: u64, mut data: Vec<u8>) {
        if self.layout.checksum {
            let seed = self.g.checksums.inode_seed(Ino(ino.into()), 0);
            dir::set_checksum(seed, &mut data);
        }
        self.blocks.insert(block, data);
    }

    /// Inode 7: each reserved block behind the primary descriptors is an indirect block that names
    /// its copies, and one double indirect block names them all.
    fn resize_inode(&mut self) -> Result<(), MkfsError> {
        let g = self.g;
        let map = ResizeMap::of_geometry(g);
        let goal = map.first + map.reserved + 1 + u64::from(g.itable_blocks);
        let dind = self.placed.take_run(goal, 1).ok_or_else(|| self.full())?;
        for block in map.blocks() {
            self.blocks.insert(block, map.copies_of(block));
        }
        self.blocks.insert(dind, map.table());
        let mut values = self.values(FileKind::Regular, 0o600, 1);
        values.size = map.size();
        values.blocks = map.sectors(g);
        values.set_resize_table(dind);
        self.put_inode(RESIZE_INO, &values);
        Ok(())
    }

    fn journal(&mut self, len: u32, fast_commit: u32) -> Result<(), MkfsError> {
        let g = self.g;
        let extents = g.features.incompat.contains(Incompat::EXTENTS);
        let goal = match self.options.journal_place.map(|place| place.blocks(g.block_size)) {
            Some(place) if place >= g.blocks_count => return Err(MkfsError::JournalPlace(place)),
            // Without extents mke2fs begins at the first free block, whatever was asked for.
            _ if !extents => 0,
            Some(place) => place,
            None if self.options.packed_meta_blocks => 0,
            None => journal::goal(g, &self.placed),
        };
        let free = (0..g.groups_count).map(|n| u64::from(self.placed.free_clusters(g, n)));
        let free = free.sum::<u64>() << g.cluster_bits();
        if self.options.journal_size.is_some() && u64::from(len) > free / 2 {
            return Err(MkfsError::JournalSize { blocks: len.into(), limit: free / 2 });
        }
        let mapped = journal::map(g, &mut self.placed, goal, len.into())?;
        let block_size = u64::from(g.block_size);
        for &(start, count) in &mapped.pieces {
            self.zeroes.push((start * block_size, count * block_size));
        }
        self.blocks.insert(mapped.pieces[0].0, journal::super_block(g, len, fast_commit));
        let mut values = self.values(FileKind::Regular, 0o600, 1);
        values.size = u64::from(len) * block_size;
        self.attach(JOURNAL_INO, &mut values, mapped);
        self.put_inode(JOURNAL_INO, &values);
        // A copy of how the journal is mapped, for repair.
        self.raw.keep_journal(&values);
        Ok(())
    }

    fn orphan_file(&mut self, len: u32) -> Result<(), MkfsError> {
        let g = self.g;
        let ino = self.last_ino.max(FIRST_INO) + 1;
        let mapped = journal::map(g, &mut self.placed, 0, len.into()).map_err(|_| self.full())?;
        let seed = g.checksums.inode_seed(Ino(ino.into()), 0);
        for &(start, count) in &mapped.pieces {
            for block in start..start + count {
                let mut data = vec![0; g.block_size as usize];
                orphan::set_tail(&mut data, block, seed, g);
                self.blocks.insert(block, data);
            }
        }
        let mut values = self.values(FileKind::Regular, 0o600, 1);
        values.size = u64::from(len) * u64::from(g.block_size);
        self.attach(ino, &mut values, mapped);
        self.put_inode(ino, &values);
        self.raw.s_orphan_file_inum.set(ino);
        Ok(())
    }

    /// Counts, flags and bitmaps of all groups.
    fn bitmaps(&mut self) {
        let g = self.g;
        let free = self.placed.count(g, self.options.release);
        self.raw.set_free_blocks(free);
        self.raw.s_free_inodes_count.set(g.inodes_count - self.last_ino);
        let per_group = g.inodes_per_group;
        for group in 0..g.groups_count {
            let used = self.last_ino.saturating_sub(group.saturating_mul(per_group)).min(per_group);
            let mut desc = self.placed.descs[group as usize];
            desc.free_inodes = per_group - used;
            if used > 0 {
                desc.flags -= GroupFlags::BLOCK_UNINIT;
            }
            let lost = self.options.lost_and_found && (LOST_INO - 1) / per_group == group;
            desc.used_dirs = u32::from((ROOT_INO - 1) / per_group == group) + u32::from(lost);
            if g.features.group_csum() {
                desc.itable_unused = per_group - used;
                if used == 0 {
                    desc.flags |= GroupFlags::INODE_UNINIT;
                }
            }
            if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                let mut map = vec![0; g.block_size as usize];
                self.placed.fill_bitmap(g, group, &mut map);
                if g.checksums.metadata {
                    desc.block_bitmap_csum = g.block_bitmap_csum(&map);
                }
                self.blocks.insert(desc.block_bitmap, map);
            }
            if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                let mut map = vec![0; g.block_size as usize];
                g.init_inode_bitmap(&mut map);
                base::bitmap::set_range(&mut map, 0, used as usize);
                if g.checksums.metadata {
                    desc.inode_bitmap_csum = g.inode_bitmap_csum(&map);
                }
                self.blocks.insert(desc.inode_bitmap, map);
            }
            self.placed.descs[group as usize] = desc;
        }
    }

    /// The ranges of inode tables; neighbours are joined.
    fn tables_to_zero(&mut self) {
        let size = u64::from(self.g.block_size);
        let len = u64::from(self.g.itable_blocks) * size;
        let mut tables: Vec<u64> =
            self.placed.descs.iter().map(|desc| desc.inode_table * size).collect();
        tables.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for start in tables {
            match ranges.last_mut() {
                Some((from, before)) if *from + *before == start => *before += len,
                _ => ranges.push((start, len)),
            }
        }
        self.zeroes.append(&mut ranges);
    }

    /// Descriptors and superblock, and their copies.
    fn descriptors(&mut self) {
        let g = self.g;
        let size = g.block_size as usize;
        let mut table = vec![0u8; g.desc_blocks as usize * size];
        for (group, desc) in self.placed.descs.iter().enumerate() {
            let bytes = &mut table[group * g.desc_size as usize..][..g.desc_size as usize];
            desc.emit(bytes, group as u32, g);
        }
        for group in (0..g.groups_count).filter(|&group| g.has_super(group)) {
            let mut raw = self.raw;
            raw.s_block_group_nr.set(group as u16);
            if group > 0 {
                // Copies never claim to be clean: nobody keeps them up to date.
                raw.s_state.set(0);
            }
            raw.set_checksum();
            let mut place = g.group_first_block(group);
            let mut data = vec![0; size];
            if group == 0 {
                let offset = SUPER_OFFSET as usize % size;
                data[offset..offset + 1024].copy_from_slice(raw.as_bytes());
                place = SUPER_OFFSET / size as u64;
            } else {
                data[..1024].copy_from_slice(raw.as_bytes());
            }
            self.blocks.insert(place, data);
            if g.features.incompat.contains(Incompat::META_BG) {
                continue;
            }
            for (index, block) in table.chunks_exact(size).enumerate() {
                self.blocks.insert(place + 1 + index as u64, block.to_vec());
            }
        }
        if g.features.incompat.contains(Incompat::META_BG) {
            self.meta_groups(&table);
        }
    }

    /// With `meta_bg` each block of descriptors lies in the first, the second and the last of its
    /// groups.
    fn meta_groups(&mut self, table: &[u8]) {
        let g = self.g;
        for (block, first) in table.chunks_exact(g.block_size as usize).zip(0..) {
            let first = first * g.descs_per_block;
            for group in [first, first + 1, first + g.descs_per_block - 1] {
                if group < g.groups_count {
                    let place = g.group_first_block(group) + u64::from(g.has_super(group));
                    self.blocks.insert(place, block.to_vec());
                }
            }
        }
    }

    /// Joins neighbouring blocks and splits off the primary superblock.
    fn finish(mut self, journal_blocks: u32, device_bytes: u64) -> Plan {
        let g = self.g;
        let size = u64::from(g.block_size);
        let head_blocks = (2 * SUPER_OFFSET).div_ceil(size);
        let head = (0..head_blocks).flat_map(|block| std::mem::take(self.block(block))).collect();
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        for (block, mut data) in self.blocks.split_off(&head_blocks) {
            match writes.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == block * size => {
                    bytes.append(&mut data);
                }
                _ => writes.push((block * size, data)),
            }
        }
        let end = g.blocks_count * size;
        let tail = self.placed.free_tail(TAIL_BYTES / size) * size;
        if tail > 0 && !self.options.super_only {
            self.zeroes.push((end.min(device_bytes) - tail, tail));
        }
        self.zeroes.sort_unstable();
        let report = MkfsReport {
            block_size: g.block_size,
            blocks_count: g.blocks_count,
            inodes_count: g.inodes_count,
            groups_count: g.groups_count,
            journal_blocks,
            backups: (1..g.groups_count)
                .filter(|&group| g.has_super(group))
                .map(|group| g.group_first_block(group))
                .collect(),
            uuid: g.uuid,
            features: g.features,
        };
        let super_only = self.options.super_only;
        Plan { zeroes: self.zeroes, writes, head, super_only, report }
    }
}
