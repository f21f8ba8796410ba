//! Checksums of everything: added, removed, or with another seed.

use std::collections::BTreeSet;

use base::Ino;
use ext4::format::checksum::{self, InodeSeed};
use ext4::format::dir::{self, DirLayout, Names};
use ext4::format::features::Incompat;
use ext4::format::mmp::Mmp;
use ext4::format::{At, FileKind, InodeFlags, InodeValues, htree, orphan, xattr};

use crate::resize::place::Relayout;
use crate::volume::map::{FileMap, has_map};
use crate::volume::{EditError, refuse};

/// Where the checksum of a block of multi-mount protection lies.
const MMP_SUM: std::ops::Range<usize> = 1020..1024;

impl Relayout<'_> {
    /// Gives every structure the checksum of the new superblock.
    ///
    /// # Errors
    /// Damage; a directory without room for checksums.
    pub fn resum(&mut self) -> Result<(), EditError> {
        self.resummed = true;
        let mut attributes = BTreeSet::new();
        for group in self.v.all_groups() {
            self.v.next_group()?;
            self.table(group)?;
            for ino in self.v.inodes_of(group)? {
                let slot = self.v.slot(ino)?;
                let values = InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?;
                if has_map(&values) {
                    self.file(ino, &values)?;
                }
                if values.file_acl != 0 && attributes.insert(values.file_acl) {
                    self.attributes(values.file_acl)?;
                }
            }
        }
        self.mmp()
    }

    /// The slots of a table, as far as they were ever in use; where groups may no longer be
    /// uninitialised the rest becomes zeros.
    fn table(&mut self, group: u32) -> Result<(), EditError> {
        let desc = self.v.descs[group as usize];
        let per = self.g.inodes_per_group;
        let unused = if self.v.g.features.group_csum() { desc.itable_unused.min(per) } else { 0 };
        let size = self.g.inode_size as usize;
        for block in 0..u64::from(self.g.itable_blocks) {
            let place = desc.inode_table + block;
            let first = block as u32 * self.g.inodes_per_block;
            let used = (per - unused).saturating_sub(first).min(self.g.inodes_per_block) as usize;
            if used == 0 {
                if !self.g.features.group_csum() {
                    let zeros = vec![0; self.v.size()];
                    self.v.view.write(place, &zeros);
                }
                continue;
            }
            // The journal's inode may have been made or cleared.
            let mut content = self.v.view.read(place)?;
            let number = group * per + first + 1;
            for (slot, ino) in content.chunks_exact_mut(size).take(used).zip(number..) {
                if slot.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let seed = self.seed(ino, InodeValues::generation_of(slot));
                sum_slot(slot, self.g.checksums.metadata.then_some(seed));
            }
            if !self.g.features.group_csum() {
                content[used * size..].fill(0);
            }
            self.v.view.write(place, &content);
        }
        Ok(())
    }

    fn file(&mut self, ino: u32, values: &InodeValues) -> Result<(), EditError> {
        let map = self.v.file_map(ino, values)?;
        let seed = self.seed(ino, values.generation);
        if values.flags.contains(InodeFlags::EXTENTS) {
            for &node in &map.nodes {
                let mut content = self.v.view.original(node)?;
                seed.set_extent_block(&mut content);
                self.v.view.write(node, &content);
            }
        }
        if ino == self.v.g.orphan_file_ino {
            for (_, block) in map.blocks() {
                let mut content = self.v.view.original(block)?;
                orphan::set_tail(&mut content, block, seed, &self.g);
                self.v.view.write(block, &content);
            }
        }
        if values.kind() == Some(FileKind::Directory) {
            self.dir_blocks(ino, values, &map)?;
        }
        Ok(())
    }

    fn layouts(&self, values: &InodeValues) -> [DirLayout; 2] {
        let names = self.g.dir_names(values.flags);
        [&self.v.g, &self.g].map(|g| DirLayout { names, ..g.dir_layout() })
    }

    fn dir_blocks(&mut self, ino: u32, v: &InodeValues, map: &FileMap) -> Result<(), EditError> {
        let [old, new] = self.layouts(v);
        let seed = self.seed(ino, v.generation);
        let indexed = v.flags.contains(InodeFlags::INDEX);
        if old.names == Names::Hashed && old.checksum != new.checksum {
            return refuse(format!(
                "directory inode {ino} is encrypted and casefolded: its entries are not moved here"
            ));
        }
        for (logical, block) in map.blocks() {
            let mut content = self.v.view.original(block)?;
            let fits = match htree::array_of(&content, logical, indexed, old) {
                Some(array) => index_block(&mut content, array, new, seed),
                None => leaf_block(&mut content, old, new, seed),
            };
            if !fits {
                return refuse(format!(
                    "directory inode {ino} has no room for a checksum in block {logical} of it: \
                     make it anew (cp -a into a new directory), or run e2fsck -fD first"
                ));
            }
            self.v.view.write(block, &content);
        }
        Ok(())
    }

    fn attributes(&mut self, block: u64) -> Result<(), EditError> {
        let mut content = self.v.view.original(block)?;
        if self.g.checksums.metadata {
            xattr::set_checksum(&self.g.checksums, block, &mut content);
        } else {
            content[16..20].fill(0);
        }
        self.v.view.write(block, &content);
        Ok(())
    }

    fn mmp(&mut self) -> Result<(), EditError> {
        let (old, new) = (self.v.g.features.incompat, self.g.features.incompat);
        if !(old & new).contains(Incompat::MMP) {
            return Ok(());
        }
        let block = self.raw.s_mmp_block.get();
        let mut content = self.v.view.original(block)?;
        let seed = |g: &ext4::format::Geometry| g.checksums.metadata.then_some(g.checksums.seed);
        let mmp = Mmp::parse(&content, seed(&self.v.g));
        let mmp = mmp.map_err(|kind| kind.at(At::Device(block)))?;
        content[MMP_SUM].fill(0);
        mmp.emit(&mut content, seed(&self.g));
        self.v.view.write(block, &content);
        Ok(())
    }
}

/// A slot with its checksum, or without one.
fn sum_slot(slot: &mut [u8], seed: Option<InodeSeed>) {
    if let Some(seed) = seed {
        return seed.set_inode(slot);
    }
    checksum::clear_inode(slot, checksum::inode_has_high(slot));
}

/// A node of an index, with or without room for its checksum. False where the room is taken.
fn index_block(data: &mut [u8], array: usize, new: DirLayout, seed: InodeSeed) -> bool {
    let limit = htree::limit(new, array);
    if htree::Node::new(data, array).count() > limit {
        return false;
    }
    data[array..array + 2].copy_from_slice(&limit.to_le_bytes());
    if new.checksum {
        let tail = array + usize::from(limit) * 8;
        data[tail..].fill(0);
        htree::set_checksum(seed, data, array);
    }
    true
}

/// A block of entries, with a tail or without one. False where its entries take all of it.
fn leaf_block(data: &mut Vec<u8>, old: DirLayout, new: DirLayout, seed: InodeSeed) -> bool {
    if old.checksum != new.checksum {
        let list: Vec<dir::Entry<'_>> =
            dir::entries(data, old).filter(|entry| entry.ino != 0).collect();
        let taken: usize = list.iter().map(|entry| entry.need(new)).sum();
        if taken > new.end() {
            return false;
        }
        let mut packed = vec![0; data.len()];
        dir::pack(&mut packed, new, list.into_iter());
        *data = packed;
    }
    if new.checksum {
        dir::set_checksum(seed, data);
    }
    true
}
