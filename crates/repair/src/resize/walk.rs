//! Every inode: its number, its map, what it says of blocks and of other inodes.

use std::collections::{BTreeMap, BTreeSet};

use base::Ino;
use ext4::format::checksum::InodeSeed;
use ext4::format::extent::FileRun;
use ext4::format::features::Incompat;
use ext4::format::inode::{BASE_SIZE, BLOCK_AREA};
use ext4::format::super_block::{BAD_BLOCKS_INO, RESIZE_INO};
use ext4::format::xattr::{self, XattrArea};
use ext4::format::{FileKind, GroupFlags, InodeFlags, InodeValues, orphan};

use super::Move;
use super::place::Relayout;
use crate::map_build::{self, NodeStore};
use crate::volume::map::{FileMap, has_map};
use crate::volume::{EditError, corrupt, refuse};

/// What a walk remembers.
#[derive(Default)]
pub struct Walk {
    /// Attribute blocks that were written.
    xattr_blocks: BTreeSet<u64>,
    /// Bytes that owners have more or less: by kind of quota and id.
    charges: BTreeMap<(usize, u32), i64>,
}

/// Where new nodes of a map go.
pub struct Nodes<'r, 'a> {
    layout: &'r mut Relayout<'a>,
    spare: Vec<u64>,
}

impl<'r, 'a> Nodes<'r, 'a> {
    /// For a new map.
    pub fn new(layout: &'r mut Relayout<'a>) -> Nodes<'r, 'a> {
        Nodes { layout, spare: Vec::new() }
    }
}

impl NodeStore for Nodes<'_, '_> {
    type Error = EditError;

    fn take_node(&mut self, _goal: u64) -> Result<Option<u64>, EditError> {
        if let Some(block) = self.spare.pop() {
            return Ok(Some(block));
        }
        let ratio = u64::from(self.layout.g.cluster_ratio);
        match self.layout.maps.take_some(&mut self.layout.v, ratio)? {
            Some((block, _)) => Ok(Some(block)),
            None => Err(EditError::NoRoom("no block is left for an extent tree".into())),
        }
    }

    fn put_node(&mut self, block: u64, data: &[u8]) {
        self.layout.v.view.write(block, data);
    }

    fn block_size(&self) -> u32 {
        self.layout.g.block_size
    }
}

impl Relayout<'_> {
    /// Looks at all inodes where blocks or inodes move, or where tables do.
    ///
    /// # Errors
    /// Damage; no room for a larger map; accounts that would change.
    pub fn walk(&mut self) -> Result<(), EditError> {
        self.move_tables()?;
        if self.moved.is_empty() && self.numbers.is_empty() {
            return Ok(());
        }
        let mut walk = Walk::default();
        for group in self.v.all_groups() {
            for ino in self.v.inodes_of(group)? {
                self.inode(ino, &mut walk)?;
            }
            self.v.next_group()?;
        }
        self.charge_all(walk)
    }

    /// Enters into the quota files what a walk has found.
    ///
    /// # Errors
    /// The device's; a damaged quota file.
    pub fn charge_all(&mut self, walk: Walk) -> Result<(), EditError> {
        for ((kind, id), bytes) in walk.charges {
            self.charge(kind, id, bytes)?;
        }
        Ok(())
    }

    /// Copies the tables that move, as far as they are in use. Longer slots end with zeros, and
    /// have new checksums.
    fn move_tables(&mut self) -> Result<(), EditError> {
        let same = self.g.inode_size == self.v.g.inode_size;
        for group in 0..self.kept() {
            let (old, new) = (self.v.descs[group as usize], self.descs[group as usize]);
            if old.inode_table == new.inode_table && same {
                continue;
            }
            let lazy = self.v.g.features.group_csum();
            let unused = if lazy { old.itable_unused } else { 0 };
            let slots = self.g.inodes_per_group - unused.min(self.g.inodes_per_group);
            let empty = lazy && old.flags.contains(GroupFlags::INODE_UNINIT);
            let slots = if empty { 0 } else { slots };
            match same {
                true => self.move_table(group, slots)?,
                false => self.widen_table(group, slots)?,
            }
            self.descs[group as usize].flags |= GroupFlags::INODE_ZEROED;
        }
        Ok(())
    }

    fn move_table(&mut self, group: u32, slots: u32) -> Result<(), EditError> {
        let from = self.v.descs[group as usize].inode_table;
        let to = self.descs[group as usize].inode_table;
        let blocks = slots.div_ceil(self.g.inodes_per_block);
        for block in 0..u64::from(self.g.itable_blocks) {
            let content = match block < u64::from(blocks) {
                true => self.v.view.original(from + block)?,
                false => vec![0; self.v.size()],
            };
            self.v.view.write(to + block, &content);
        }
        Ok(())
    }

    /// Writes the first slots of a group into its new table, where they are longer.
    fn widen_table(&mut self, group: u32, slots: u32) -> Result<(), EditError> {
        let to = self.descs[group as usize].inode_table;
        let size = self.g.inode_size as usize;
        let used = slots.div_ceil(self.g.inodes_per_block);
        for block in 0..used {
            let mut content = vec![0; self.v.size()];
            let first = block * self.g.inodes_per_block;
            let numbers = first..(first + self.g.inodes_per_block).min(slots);
            for (slot, index) in content.chunks_exact_mut(size).zip(numbers) {
                let ino = group * self.g.inodes_per_group + index + 1;
                let old = self.v.slot(ino)?;
                slot[..old.len()].copy_from_slice(&old);
                if self.g.checksums.metadata && old.iter().any(|&byte| byte != 0) {
                    self.seed(ino, InodeValues::generation_of(slot)).set_inode(slot);
                }
            }
            self.v.view.write(to + u64::from(block), &content);
        }
        self.zeroes.push((to + u64::from(used), u64::from(self.g.itable_blocks - used)));
        self.v.next_group()
    }

    /// The slot of an inode where the old table has it, as long as it will be.
    ///
    /// # Errors
    /// The device's.
    pub fn old_slot(&mut self, ino: u32) -> Result<Vec<u8>, EditError> {
        let mut slot = self.v.slot(ino)?;
        slot.resize(self.g.inode_size as usize, 0);
        Ok(slot)
    }

    /// Writes a slot where the new table has it.
    ///
    /// # Errors
    /// The device's.
    pub fn put_slot(&mut self, ino: u32, slot: &[u8]) -> Result<(), EditError> {
        let (group, index) = self.g.inode_group(Ino(ino.into()))?;
        let (block, offset) = self.g.inode_offset(index);
        let block = self.descs[group as usize].inode_table + block;
        let mut content = self.v.view.read(block)?;
        content[offset..offset + slot.len()].copy_from_slice(slot);
        self.v.view.write(block, &content);
        Ok(())
    }

    /// The seed of the checksums of an inode by its new number.
    pub fn seed(&self, ino: u32, generation: u32) -> InodeSeed {
        self.g.checksums.inode_seed(Ino(ino.into()), generation)
    }

    fn inode(&mut self, ino: u32, walk: &mut Walk) -> Result<(), EditError> {
        if ino == RESIZE_INO && self.has_reserve() {
            return Ok(());
        }
        let old = InodeValues::parse(&self.v.slot(ino)?, Ino(ino.into()), &self.v.g)?;
        let mut slot = self.old_slot(ino)?;
        let number = self.numbers.of(ino);
        let mut values = old;
        if has_map(&old) {
            self.move_file(ino, number, &mut values, walk)?;
        }
        if old.file_acl != 0 {
            values.file_acl = self.attribute_block(old.file_acl, walk)?;
        }
        let mut changed = values != old || number != ino;
        changed |= self.patch_slot(&mut slot, &mut values)?;
        if !changed {
            return Ok(());
        }
        if number != ino && values.kind() == Some(FileKind::Directory) {
            let group = (number - 1) / self.g.inodes_per_group;
            self.descs[group as usize].used_dirs += 1;
        }
        values.emit(&mut slot, Ino(number.into()), &self.g);
        self.put_slot(number, &slot)?;
        if number == self.g.journal_ino && self.raw.s_jnl_backup_type != 0 {
            self.raw.keep_journal(&values);
        }
        Ok(())
    }

    /// Moves the blocks of a file, and writes its map anew where it changes.
    fn move_file(
        &mut self,
        ino: u32,
        number: u32,
        values: &mut InodeValues,
        walk: &mut Walk,
    ) -> Result<(), EditError> {
        let map = self.v.file_map(ino, values)?;
        let new = self.moved_map(&map);
        let same = new == map;
        if !same && ino == BAD_BLOCKS_INO {
            return refuse("it has a list of bad blocks, some of which lie in the way");
        }
        let directory = values.kind() == Some(FileKind::Directory);
        if directory && (!self.numbers.is_empty() || new.runs != map.runs) {
            self.directory(number, values, &map)?;
        } else if ino == self.v.g.orphan_file_ino {
            self.orphan_file(number, values, &map)?;
        } else if let Some(kind) = self.v.g.quota_inos.iter().position(|&quota| quota == ino) {
            self.quota_file(kind, &map)?;
        } else if !directory {
            self.copy_runs(&map)?;
        }
        if same && (number == ino || map.nodes.is_empty()) {
            return Ok(());
        }
        self.write_map([ino, number], values, new, walk)
    }

    /// Writes the map of a file anew, into the nodes that it has and, where it is longer, more. The
    /// inode has an old number and a new one.
    ///
    /// # Errors
    /// No room.
    pub fn write_map(
        &mut self,
        [ino, number]: [u32; 2],
        values: &mut InodeValues,
        map: FileMap,
        walk: &mut Walk,
    ) -> Result<(), EditError> {
        let FileMap { runs, nodes } = map;
        let seed = self.seed(number, values.generation);
        let before = nodes.len() as i64;
        let extents = values.flags.contains(InodeFlags::EXTENTS);
        let mut store = Nodes { layout: self, spare: nodes.into_iter().rev().collect() };
        let (block, kept) = match extents {
            true => map_build::extents(&mut store, seed, &runs)?,
            false => map_build::indirect(&mut store, &runs)?,
        };
        let spare = store.spare;
        for node in spare {
            self.maps.clear(node..node + 1);
        }
        values.block = block;
        let more = kept.len() as i64 - before;
        let sectors = more * self.g.cluster_sectors() as i64;
        values.blocks = values.blocks.saturating_add_signed(sectors);
        let system = self.v.g.quota_inos.contains(&ino) || ino == self.v.g.orphan_file_ino;
        if more != 0 && ino >= self.v.g.first_ino && !system {
            for (kind, id) in [values.uid, values.gid, values.projid].into_iter().enumerate() {
                *walk.charges.entry((kind, id)).or_default() += sectors * 512;
            }
        }
        Ok(())
    }

    /// The runs and nodes of a map where they will be.
    fn moved_map(&self, map: &FileMap) -> FileMap {
        let mut runs = Vec::new();
        for run in &map.runs {
            self.pieces(run, &mut |piece, to| FileRun { start: to, ..piece }.join(&mut runs));
        }
        let place = |&block: &u64| self.moved.of(block).unwrap_or(block);
        FileMap { runs, nodes: map.nodes.iter().map(place).collect() }
    }

    /// Cuts a run where the place of its blocks changes: each piece, and where it goes.
    fn pieces(&self, run: &FileRun, each: &mut dyn FnMut(FileRun, u64)) {
        let mut done = 0;
        while done < run.len {
            let start = run.start + done;
            let len = self.moved.until(start).saturating_sub(start).min(run.len - done).max(1);
            let piece = FileRun { logical: run.logical + done, start, len, ..*run };
            each(piece, self.moved.of(start).unwrap_or(start));
            done += len;
        }
    }

    /// Copies what moves of a file's content.
    fn copy_runs(&mut self, map: &FileMap) -> Result<(), EditError> {
        let mut parts = Vec::new();
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            self.pieces(run, &mut |piece, to| {
                if to != piece.start {
                    parts.push(Move { from: piece.start, to, len: piece.len });
                }
            });
        }
        for part in parts {
            let over = (part.to..part.to + part.len).any(|block| self.maps.was_used(block));
            if !over {
                self.copies.push(part);
                continue;
            }
            // The place is in use until the change is made: the copy belongs to it.
            for index in 0..part.len {
                let content = self.v.view.original(part.from + index)?;
                self.v.view.write(part.to + index, &content);
            }
        }
        Ok(())
    }

    /// The blocks of the orphan file, whose checksums depend on their place.
    fn orphan_file(&mut self, ino: u32, v: &InodeValues, map: &FileMap) -> Result<(), EditError> {
        let seed = self.seed(ino, v.generation);
        for (_, block) in map.blocks() {
            let to = self.moved.of(block).unwrap_or(block);
            let mut content = self.v.view.original(block)?;
            orphan::set_tail(&mut content, to, seed, &self.g);
            self.v.view.write(to, &content);
        }
        Ok(())
    }

    /// The blocks of a quota file, which belong to the change: accounts in them may change.
    ///
    /// # Errors
    /// The device's.
    pub fn quota_file(&mut self, kind: usize, map: &FileMap) -> Result<(), EditError> {
        for (_, block) in map.blocks() {
            let to = self.moved.of(block).unwrap_or(block);
            let content = self.v.view.original(block)?;
            self.v.view.write(to, &content);
            self.quota_blocks[kind].push(to);
        }
        Ok(())
    }

    /// Moves an attribute block once, however many inodes share it; answers its place.
    fn attribute_block(&mut self, block: u64, walk: &mut Walk) -> Result<u64, EditError> {
        let to = self.moved.of(block).unwrap_or(block);
        if !walk.xattr_blocks.insert(block) {
            return Ok(to);
        }
        let mut content = self.v.view.original(block)?;
        let patched = self.patch_values(&mut content, XattrArea::Block, 0)?;
        if to != block || patched {
            if self.g.checksums.metadata {
                xattr::set_checksum(&self.g.checksums, to, &mut content);
            }
            self.v.view.write(to, &content);
        }
        Ok(to)
    }

    /// New numbers in attributes whose values are inodes. True where one changed.
    fn patch_values(&self, area: &mut [u8], place: XattrArea, ino: u32) -> Result<bool, EditError> {
        if self.numbers.is_empty() || !self.g.features.incompat.contains(Incompat::EA_INODE) {
            return Ok(false);
        }
        let mut found = Vec::new();
        let entries = xattr::entries(area, place, true).map_err(|kind| corrupt(kind, ino))?;
        for entry in entries {
            let entry = entry.map_err(|kind| corrupt(kind, ino))?;
            if let Some(large) = entry.large {
                found.push((entry.offset as usize + 4, self.numbers.of(large.ino), large.ino));
            }
        }
        for &(at, number, _) in &found {
            area[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        Ok(found.iter().any(|(_, new, old)| new != old))
    }

    /// Numbers of other inodes in the slot itself: attributes, and entries of a directory.
    fn patch_slot(&self, slot: &mut [u8], values: &mut InodeValues) -> Result<bool, EditError> {
        if self.numbers.is_empty() || slot.len() <= BASE_SIZE {
            return Ok(false);
        }
        let area = &mut slot[BASE_SIZE + usize::from(values.extra_isize)..];
        let mut changed = self.patch_values(area, XattrArea::Inode, 0)?;
        let inline = values.flags.contains(InodeFlags::INLINE_DATA);
        if values.kind() != Some(FileKind::Directory) || !inline {
            return Ok(changed);
        }
        let mut bytes = values.block.to_vec();
        let rest = xattr::inline_value(area).map_err(|kind| corrupt(kind, 0))?;
        bytes.extend_from_slice(&area[rest.clone()]);
        changed |= self.patch_inline(&mut bytes);
        values.block.copy_from_slice(&bytes[..BLOCK_AREA]);
        area[rest].copy_from_slice(&bytes[BLOCK_AREA..]);
        Ok(changed)
    }
}
