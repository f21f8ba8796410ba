//! Files of the file system itself: journal, orphans, resize inode.

use base::{FsBlock, Ino};
use block::DeviceError;
use vfs::check::Holder;

use super::Checker;
use super::mapping::FileBlocks;
use super::rule::Rule;
use crate::format::checksum::u32_at;
use crate::format::extent::FileRun;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::resize_inode::ResizeMap;
use crate::format::super_block::{JOURNAL_INO, LARGE_FILE, QUOTA_INOS};
use crate::format::{At, CorruptKind, FileKind, InodeValues, mmp, orphan};

/// A system file whose blocks were walked over.
pub struct SystemFile {
    ino: u32,
    values: InodeValues,
    runs: Vec<FileRun>,
    complete: bool,
    end: u64,
}

impl SystemFile {
    /// Its runs, where all of them are known and it has no holes.
    pub fn whole(&self) -> Option<&[FileRun]> {
        let sum: u64 = self.runs.iter().map(|run| run.len).sum();
        (self.complete && sum == self.end && sum > 0).then_some(&self.runs[..])
    }
}

impl Checker<'_> {
    /// Is this the journal, the orphan file or a quota file?
    pub fn is_system(&self, ino: u32) -> bool {
        let [user, group, project] = self.g.quota_inos;
        let known = [self.g.journal_ino, self.g.orphan_file_ino, user, group, project];
        ino != 0 && known.contains(&ino)
    }

    /// A system file of a feature that is not there.
    pub fn unused_system_file(&mut self, ino: u32, size: u64) {
        let at = At::Inode(Ino(ino.into()));
        if QUOTA_INOS.contains(&ino) && !self.is_system(ino) {
            let detail = format!("{} bytes in an inode that no quota uses", size);
            self.findings.add(Rule::QuotaInode, at, detail);
        } else if ino == JOURNAL_INO && !self.is_system(ino) {
            let detail = format!("{} bytes in the inode of a journal that is not there", size);
            self.findings.add(Rule::JournalInode, at, detail);
        } else if ino == self.raw.s_orphan_file_inum.get() && self.g.orphan_file_ino == 0 {
            let detail = format!("s_orphan_file_inum names inode {ino}, without the feature");
            self.findings.add(Rule::SuperUnusedFields, At::Super(0), detail);
        }
    }

    /// Linux sets these features with the first inode that needs them; e2fsck takes no notice of a
    /// block of attributes without.
    pub fn needed_features(&mut self, ino: u32, values: &InodeValues) {
        let features = &self.g.features;
        let large = features.ro_compat.contains(RoCompat::LARGE_FILE)
            || values.kind() != Some(FileKind::Regular)
            || values.size < LARGE_FILE;
        let attributes = features.compat.contains(Compat::EXT_ATTR) || values.file_acl == 0;
        for (name, fits) in [("large_file", large), ("ext_attr", attributes)] {
            if !fits && !self.missing.contains(&name) {
                self.missing.push(name);
                let detail = format!("{name}, which inode {ino} needs");
                self.findings.add(Rule::SuperFeatureMissing, At::Super(0), detail);
            }
        }
    }

    /// Keeps the blocks of a system file for its own check.
    pub fn keep_system(&mut self, ino: u32, values: &InodeValues, mapped: &FileBlocks) {
        self.system.push(SystemFile {
            ino,
            values: *values,
            runs: mapped.runs.clone(),
            complete: mapped.complete,
            end: mapped.end,
        });
    }

    /// A system file that was walked over.
    pub fn system_file(&self, ino: u32) -> Option<&SystemFile> {
        self.system.iter().find(|file| file.ino == ino)
    }

    /// Before the inodes: who needs no name, and who awaits deletion.
    ///
    /// # Errors
    /// The device's.
    pub fn system_inodes(&mut self) -> Result<(), DeviceError> {
        let [user, group, project] = self.g.quota_inos;
        for ino in [self.g.journal_ino, self.g.orphan_file_ino, user, group, project] {
            if (1..=self.g.inodes_count).contains(&ino) {
                self.inodes.get_mut(ino).set_nameless(true);
            }
        }
        if self.g.features.incompat.contains(Incompat::MMP) {
            self.mmp_block()?;
        }
        self.orphan_list()?;
        if self.g.orphan_file_ino != 0 {
            self.orphan_file()?;
        }
        if !self.orphans.is_empty() {
            let detail = format!("{} inodes, the first is {}", self.orphans.len(), self.orphans[0]);
            self.findings.add(Rule::OrphanInodes, At::Super(0), detail);
        }
        Ok(())
    }

    /// The block of multi-mount protection, which belongs to no inode.
    fn mmp_block(&mut self) -> Result<(), DeviceError> {
        let (at, block) = (At::Super(0), self.raw.s_mmp_block.get());
        if !self.in_range(FsBlock(block), 1) {
            let (first, end) = (u64::from(self.g.first_data_block) + 1, self.g.blocks_count);
            self.findings.corrupt(&CorruptKind::MmpPlace { block, first, end }.at(at));
            return Ok(());
        }
        self.watch.note(block..block + 1, |_| Holder::of("multi-mount protection"));
        self.used.set(block, 1);
        if let Some(taken) = self.meta.set(block, 1) {
            let detail = format!("multi-mount protection: block {taken} is taken");
            self.findings.add(Rule::MetadataOverlap, at, detail);
        }
        let page = self.io.read(block, 1)?;
        let seed = self.g.checksums.metadata.then_some(self.g.checksums.seed);
        match mmp::Mmp::parse(&page, seed) {
            Err(kind) => self.findings.corrupt(&kind.at(At::Device(block))),
            Ok(found) if found.sequence == mmp::FSCK => {
                let mmp::Mmp { node, device, .. } = found;
                let detail = format!("a check is at work on {node} as {device}, or was stopped");
                self.findings.add(Rule::MmpCheck, At::Device(block), detail);
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Follows the list that begins in the superblock and goes on in the times of deletion.
    fn orphan_list(&mut self) -> Result<(), DeviceError> {
        let mut ino = self.raw.s_last_orphan.get();
        while ino != 0 {
            let at = At::Inode(Ino(ino.into()));
            let slot = if self.is_orphan_number(ino) { self.read_slot(ino)? } else { None };
            let Some(slot) = slot.filter(|_| !self.inodes.get(ino).is_used()) else {
                self.findings.add(Rule::OrphanList, at, "not an inode that can be on the list");
                return Ok(());
            };
            let values = InodeValues::read(&slot, &self.g);
            if values.kind().is_none() {
                self.findings.add(Rule::OrphanList, at, format!("mode {:#o}", values.mode));
                return Ok(());
            }
            self.add_orphan(ino, &values);
            ino = values.dtime;
        }
        Ok(())
    }

    fn is_orphan_number(&self, ino: u32) -> bool {
        (self.g.first_ino..=self.g.inodes_count).contains(&ino) && !self.is_system(ino)
    }

    fn add_orphan(&mut self, ino: u32, values: &InodeValues) {
        let info = self.inodes.get_mut(ino);
        info.set_used();
        // One with links is only truncated.
        info.set_nameless(values.links == 0);
        self.orphans.push(ino);
    }

    /// The orphan file is read before all other inodes, because it names some of them.
    fn orphan_file(&mut self) -> Result<(), DeviceError> {
        let ino = self.g.orphan_file_ino;
        let at = At::Inode(Ino(ino.into()));
        let Some(slot) = self.read_slot(ino)? else {
            self.findings.add(Rule::OrphanFileMagic, at, "the orphan file's inode is missing");
            return Ok(());
        };
        self.slot(ino, &slot)?;
        let Some(file) = self.system_file(ino) else {
            self.findings.add(Rule::OrphanFileMagic, at, "the orphan file is not in use");
            return Ok(());
        };
        let Some(runs) = file.whole().map(<[FileRun]>::to_vec) else {
            self.findings.add(Rule::OrphanFileMagic, at, "the orphan file has holes");
            return Ok(());
        };
        let seed = self.g.checksums.inode_seed(Ino(ino.into()), file.values.generation);
        let mut entries = 0;
        for block in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            let page = self.io.read(block, 1)?;
            let at = At::Block(Ino(ino.into()), block);
            if let Err(corrupt) = orphan::check(&page, block, seed, &self.g, at) {
                self.findings.corrupt(&corrupt);
                continue;
            }
            for slot in 0..orphan::slots_per_block(self.g.block_size) {
                let entry = orphan::slot(&page, slot);
                if entry != 0 {
                    entries += 1;
                    self.orphan_entry(entry, at)?;
                }
            }
        }
        let present = self.g.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if present != (entries > 0) {
            let detail = format!("orphan_present is {present}, {entries} entries");
            self.findings.add(Rule::OrphanPresentFlag, at, detail);
        }
        Ok(())
    }

    fn orphan_entry(&mut self, ino: u32, at: At) -> Result<(), DeviceError> {
        let slot = if self.is_orphan_number(ino) { self.read_slot(ino)? } else { None };
        let values = slot.map(|slot| InodeValues::read(&slot, &self.g));
        match values.filter(|values| values.kind().is_some() && !self.inodes.get(ino).is_used()) {
            Some(values) => self.add_orphan(ino, &values),
            None => {
                let detail = format!("inode {ino} cannot await its deletion");
                self.findings.add(Rule::OrphanList, at, detail);
            }
        }
        Ok(())
    }

    /// After the inodes: the journal's superblock.
    ///
    /// # Errors
    /// The device's.
    pub fn system_files(&mut self) -> Result<(), DeviceError> {
        let ino = self.g.journal_ino;
        if ino == 0 {
            return Ok(());
        }
        let at = At::Inode(Ino(ino.into()));
        let Some(file) = self.system_file(ino) else {
            self.findings.add(Rule::JournalInode, at, "the journal's inode is not in use");
            return Ok(());
        };
        let regular = file.values.kind() == Some(FileKind::Regular) && file.values.links > 0;
        let Some(runs) = file.whole().filter(|_| regular) else {
            // What is wrong with its blocks was said.
            if file.complete {
                self.findings.add(Rule::JournalInode, at, "the journal is no whole file");
            }
            return Ok(());
        };
        let (first, blocks) = (runs[0].start, file.end);
        let page = self.io.read(first, 1)?;
        let at = At::Device(first);
        let journal = match jbd2::format::Superblock::parse(&page) {
            Ok(journal) => journal,
            Err(error) => {
                self.findings.add(Rule::JournalSuper, at, error.to_string());
                return Ok(());
            }
        };
        let sound = journal.block_size == self.g.block_size && u64::from(journal.maxlen) <= blocks;
        if !sound {
            let (size, len) = (journal.block_size, journal.maxlen);
            let detail = format!("{len} blocks of {size} bytes in a file of {blocks} blocks");
            self.findings.add(Rule::JournalSuper, at, detail);
        } else if journal.start != 0 {
            let detail = format!("the log begins at {}, needs_recovery is clear", journal.start);
            self.findings.add(Rule::JournalSuper, at, detail);
        }
        if journal.errno != 0 {
            self.findings.add(Rule::JournalError, at, format!("errno {}", journal.errno));
        }
        Ok(())
    }

    /// The resize inode: its double indirect block names the reserved descriptor blocks, and each
    /// of those names its copies.
    ///
    /// # Errors
    /// The device's.
    pub fn resize_inode(&mut self, values: &InodeValues) -> Result<(), DeviceError> {
        let at = At::Inode(Ino(crate::format::super_block::RESIZE_INO.into()));
        let dind = values.resize_table();
        let mut only = *values;
        only.set_resize_table(dind);
        let empty = only.block == values.block;
        if !self.in_range(FsBlock(dind), 1) || !empty {
            let detail = format!("double indirect block {dind}, or others beside it");
            self.findings.add(Rule::ResizeInode, at, detail);
            self.blocks_unknown = true;
            return Ok(());
        }
        self.note(crate::format::super_block::RESIZE_INO, "an indirect block", dind);
        self.claim(crate::format::super_block::RESIZE_INO, dind, 1);
        let map = ResizeMap::of_geometry(&self.g);
        let differs = |found: &[u8], wanted: &[u8]| {
            (0..wanted.len() / 4).find(|slot| found[slot * 4..][..4] != wanted[slot * 4..][..4])
        };
        let table = self.io.read(dind, 1)?;
        if let Some(slot) = differs(&table, &map.table()) {
            let detail = format!("entry {slot} names block {}", u32_at(&table, slot * 4));
            self.findings.add(Rule::ResizeInode, at, detail);
            return Ok(());
        }
        // They lie in a row: hundreds of them on a small file system.
        let batch = self.io.batch();
        for first in map.blocks().step_by(batch as usize) {
            let pages = self.io.read(first, batch.min(map.blocks().end - first))?;
            let blocks = pages.chunks_exact(self.g.block_size as usize);
            for (block, page) in (first..).zip(blocks) {
                if let Some(slot) = differs(page, &map.copies_of(block)) {
                    let detail = format!("block {block}: entry {slot} is wrong");
                    self.findings.add(Rule::ResizeInode, at, detail);
                    return Ok(());
                }
            }
        }
        if !map.sizes().contains(&values.size) {
            let detail = format!("{} bytes do not hold what it maps", values.size);
            self.findings.add(Rule::ResizeInode, at, detail);
        }
        let sectors = map.sectors(&self.g);
        if values.blocks != sectors {
            let detail = format!("{} sectors of 512 bytes, counted {sectors}", values.blocks);
            self.findings.add(Rule::InodeBlocks, at, detail);
        }
        Ok(())
    }
}
