//! Files of a realtime section in groups that describe themselves: the btrees, whose roots lie in
//! inodes of the metadata directory and whose blocks lie in the groups of the data; bitmaps and
//! summaries.

use std::collections::BTreeMap;

use base::{FsBlock, Ino};
use block::DeviceError;
use xfs::format::btree::{Node, ROOT_HEADER, Shape};
use xfs::format::inode::{Flags2, ForkFormat, InodeCore, MetadataType, RawInode, fork_ranges};
use xfs::format::record::Rmap;
use xfs::format::{At, Kind, verifier};

use super::Fs;
use super::forks::{Fork, Which};
use super::tree_build::{Builder, Child, blocks_for};
use crate::RepairError;

/// Levels of a tree at the most.
const LEVELS_MAX: u16 = 9;

/// The kind of the tree whose root lies in an inode's slot.
pub fn kind_of(slot: &[u8]) -> Option<Kind> {
    MetadataType::tree_of(RawInode::view(slot)?.di_onlink.get())
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

/// Level and number of entries of a root.
fn put_head(root: &mut [u8], level: u16, count: usize) {
    root.fill(0);
    root[..2].copy_from_slice(&level.to_be_bytes());
    root[2..ROOT_HEADER].copy_from_slice(&(count as u16).to_be_bytes());
}

/// The pointers in a root of a level above the leaves.
fn pointers(shape: &Shape, root: &[u8], count: usize) -> Vec<u64> {
    let level = u16_at(root, 0);
    let at = ROOT_HEADER + shape.root_max(root.len(), level) * shape.key * shape.keys;
    let pointers = root[at..].chunks_exact(shape.pointer).take(count);
    pointers.map(|word| u64::from_be_bytes(word.try_into().expect("eight bytes"))).collect()
}

/// Writes a root with children.
fn emit_root(kind: Kind, root: &mut [u8], level: u16, children: &[Child]) {
    let shape = Shape::of(kind);
    let most = shape.root_max(root.len(), level);
    assert!(children.len() <= most, "{} children in a root for {most}", children.len());
    put_head(root, level, children.len());
    let pointers = ROOT_HEADER + most * shape.key * shape.keys;
    for (index, child) in children.iter().enumerate() {
        let at = ROOT_HEADER + index * shape.key * shape.keys;
        let keys = child.keys();
        root[at..at + keys.len()].copy_from_slice(&keys);
        let at = pointers + index * shape.pointer;
        root[at..at + shape.pointer].copy_from_slice(&child.block.to_be_bytes());
    }
}

impl Fs<'_> {
    /// Walks the tree whose root lies in an inode: its blocks come into the fork. The records, in
    /// their order; what is wrong comes into the fork, too.
    ///
    /// # Errors
    /// The device's.
    pub fn walk_section_tree(
        &mut self,
        ino: Ino,
        slot: &[u8],
        core: &InodeCore,
        fork: &mut Fork,
    ) -> Result<Vec<u8>, DeviceError> {
        let Some(kind) = kind_of(slot) else {
            fork.wrong = Some("the root of a btree of no known kind".into());
            return Ok(Vec::new());
        };
        let (shape, at) = (Shape::of(kind), At::Inode(ino));
        let root = &slot[fork_ranges(core.forkoff, slot.len()).0];
        let (level, count) = (u16_at(root, 0), usize::from(u16_at(root, 2)));
        if level >= LEVELS_MAX || count > shape.root_max(root.len(), level) {
            fork.wrong = Some(format!("a root of level {level} with {count} entries"));
            return Ok(Vec::new());
        }
        if level == 0 {
            return Ok(root[ROOT_HEADER..][..count * shape.record].to_vec());
        }
        let first = pointers(&shape, root, count);
        let mut todo: Vec<(u64, u16)> =
            first.into_iter().rev().map(|block| (block, level - 1)).collect();
        let mut records = Vec::new();
        while let Some((block, level)) = todo.pop() {
            let number = FsBlock(block);
            let known = self.g.extent_valid(number, 1) && !fork.tree.contains(&number);
            let data = match known {
                true => self.meta(&[(number, 1)], &[kind], ino.0, at)?,
                false => None,
            };
            let node =
                data.as_ref().map(|(kind, data)| Node::parse_trusted(*kind, data, Some(level), at));
            let Some(Ok(node)) = node else {
                fork.wrong = Some(format!("block {block} of its btree cannot be read"));
                continue;
            };
            fork.tree.push(number);
            match level {
                0 => (0..node.len()).for_each(|at| records.extend_from_slice(node.record(at))),
                _ => todo.extend((0..node.len()).rev().map(|at| (node.pointer(at), level - 1))),
            }
        }
        Ok(records)
    }

    /// The records of a tree of the section that is in order; with other owners where these have
    /// other numbers. None where no owner has.
    ///
    /// # Errors
    /// The device's.
    pub fn section_records(
        &mut self,
        ino: Ino,
        numbers: &BTreeMap<u64, Ino>,
    ) -> Result<(Vec<u8>, bool), DeviceError> {
        let (slot, core) = (self.slot(ino)?, self.inodes[&ino.0].core.clone());
        let records = self.walk_section_tree(ino, &slot, &core, &mut Fork::default())?;
        if kind_of(&slot) != Some(Kind::RealtimeRmap) {
            return Ok((records, false));
        }
        let size = Shape::of(Kind::RealtimeRmap).record;
        let mut list: Vec<Rmap> = records.chunks_exact(size).map(Rmap::read).collect();
        let mut renamed = false;
        for record in &mut list {
            if let Some(to) = numbers.get(&record.owner) {
                (record.owner, renamed) = (to.0, true);
            }
        }
        list.sort_unstable_by_key(|record| (record.key(), record.len));
        let mut bytes = vec![0; records.len()];
        for (record, slot) in list.iter().zip(bytes.chunks_exact_mut(size)) {
            record.write(slot);
        }
        Ok((bytes, renamed))
    }

    /// Writes a tree of the section anew, into blocks of its own. The inode is to be stored.
    ///
    /// # Errors
    /// The device's; no room.
    pub fn build_section_tree(&mut self, ino: Ino, records: &[u8]) -> Result<(), RepairError> {
        let mut slot = self.slot(ino)?;
        let kind = kind_of(&slot).expect("an inode that holds a root");
        let (shape, size) = (Shape::of(kind), self.g.block_size as usize);
        let range = fork_ranges(self.inodes[&ino.0].core.forkoff, slot.len()).0;
        let root = &mut slot[range];
        let count = records.len() / shape.record;
        let mut tree = Vec::new();
        if count <= shape.root_max(root.len(), 0) {
            put_head(root, 0, count);
            root[ROOT_HEADER..][..records.len()].copy_from_slice(records);
        } else {
            let top = shape.root_max(root.len(), 1);
            let runs = self.take_blocks(blocks_for(kind, count, size, top) as u32)?;
            let each = runs.iter().flat_map(|&(start, count)| (0..count).map(move |n| (start, n)));
            tree.extend(each.map(|(start, n)| FsBlock(start.0 + u64::from(n))));
            let g = self.g.clone();
            let expect = |block: u64| g.expect(g.sector(FsBlock(block)), Some(ino.0));
            let mut numbers = tree.iter().map(|block| block.0);
            let mut builder = Builder {
                kind,
                block_size: size,
                expect: &expect,
                numbers: &mut numbers,
                blocks: Vec::new(),
            };
            let (children, levels) = builder.build(records, top);
            emit_root(kind, root, levels, &children);
            for block in builder.blocks {
                let linear = self.linear(FsBlock(block.number));
                self.view.write(linear, &block.data);
            }
        }
        self.put_slot(ino, &mut slot)?;
        let inode = self.inodes.get_mut(&ino.0).expect("in use");
        (inode.data.tree, inode.dirty) = (tree, true);
        inode.data.wrong = None;
        Ok(())
    }

    /// Bitmaps and summaries say in each block where it lies and whose it is: they say so where
    /// that has changed.
    ///
    /// # Errors
    /// The device's.
    pub fn stamp_section_files(&mut self) -> Result<(), DeviceError> {
        if self.g.realtime.groups.is_none() {
            return Ok(());
        }
        let files: Vec<u64> = self.inodes.keys().copied().collect();
        for ino in files.into_iter().map(Ino) {
            let inode = &self.inodes[&ino.0];
            let metadata = inode.core.flags2.contains(Flags2::METADATA);
            if !metadata || inode.core.format == ForkFormat::MetaBtree {
                continue;
            }
            let holds = RawInode::view(&self.slot(ino)?).expect("a slot holds a core").di_onlink;
            let kind = match holds.get() {
                found if found == MetadataType::RealtimeBitmap as u16 => Kind::RealtimeBitmap,
                found if found == MetadataType::RealtimeSummary as u16 => Kind::RealtimeSummary,
                _ => continue,
            };
            for extent in self.inodes[&ino.0].fork(Which::Data).extents.clone() {
                for block in extent.start.0..extent.start.0 + u64::from(extent.count) {
                    let expect = self.g.expect(self.g.sector(FsBlock(block)), Some(ino.0));
                    let linear = self.linear(FsBlock(block));
                    let mut data = self.view.read(linear)?;
                    if verifier::verify(kind, &data, &expect, At::Inode(ino)).is_err() {
                        verifier::stamp(kind, &mut data, &expect);
                        verifier::update_crc(kind, &mut data);
                        self.view.write(linear, &data);
                    }
                }
            }
        }
        Ok(())
    }
}
