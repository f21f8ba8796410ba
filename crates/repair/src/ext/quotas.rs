//! Quota files, counted anew; limits are kept as far as they can be read.

use std::collections::BTreeMap;

use base::Ino;
use block::DeviceError;
use ext4::Rule;
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::quota::{self, BLOCK_SIZE, Block, Dqblk, InMemory, Info, Kind};
use ext4::format::{FileKind, InodeFlags, InodeValues};

use super::Fs;
use super::inodes::Inode;
use super::map::Map;

/// What is in a file: by id, and the grace times.
struct Known {
    entries: BTreeMap<u32, Dqblk>,
    info: Option<Info>,
    whole: bool,
}

impl Fs<'_> {
    /// Writes the quota files anew that the check complains of.
    ///
    /// # Errors
    /// The device's.
    pub fn quotas(&mut self) -> Result<(), DeviceError> {
        if !self.g.features.ro_compat.contains(RoCompat::QUOTA) {
            return Ok(());
        }
        for kind in Kind::ALL {
            let ino = self.g.quota_inos[kind as usize];
            let rules = [Rule::QuotaFile, Rule::QuotaUsage];
            let known = (1..=self.g.inodes_count).contains(&ino);
            if !known || !rules.iter().any(|&rule| self.suspect(ino, rule)) {
                continue;
            }
            let old = self.known_quotas(kind, ino)?;
            let act = "count the usage anew";
            let wanted = match old.whole {
                true => self.safe(Rule::QuotaUsage, Self::at(ino), "it has other sums", act),
                false => {
                    let detail = "the quota file is damaged";
                    let loss = "limits that cannot be read";
                    self.lossy(Rule::QuotaFile, Self::at(ino), detail, act, loss)
                }
            };
            if wanted {
                self.write_quotas(kind, ino, old)?;
            }
        }
        Ok(())
    }

    /// What can be read of a quota file.
    fn known_quotas(&mut self, kind: Kind, ino: u32) -> Result<Known, DeviceError> {
        let mut known = Known { entries: BTreeMap::new(), info: None, whole: false };
        let Some(inode) = self.inodes.get(&ino) else { return Ok(known) };
        let runs = inode.map.runs.clone();
        let mut bytes = Vec::new();
        for block in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            bytes.extend(self.view.read(block)?);
        }
        let blocks = bytes.chunks_exact(BLOCK_SIZE);
        let mut file = InMemory(blocks.map(|b| Block::try_from(b).expect("a block")).collect());
        let Some(Ok(info)) = file.0.first().map(|head| Info::parse(head, kind)) else {
            return Ok(known);
        };
        let entries = &mut known.entries;
        let read = quota::walk(&mut file, &info, &mut |id, entry| {
            entries.insert(id, *entry);
        });
        known.whole = read.is_ok();
        known.info = Some(info);
        Ok(known)
    }

    fn write_quotas(&mut self, kind: Kind, ino: u32, old: Known) -> Result<(), DeviceError> {
        let mut entries = old.entries;
        for entry in entries.values_mut() {
            (entry.space, entry.inodes) = (0, 0);
        }
        for ino in self.inodes.keys().copied().collect::<Vec<u32>>() {
            let inode = &self.inodes[&ino];
            if inode.flags.contains(InodeFlags::EA_INODE) || !self.g.is_charged(ino) {
                continue;
            }
            let count = 1 + u64::from(inode.large_values);
            let values = self.values(ino)?;
            let id = [values.uid, values.gid, values.projid][kind as usize];
            let entry = entries.entry(id).or_default();
            entry.space += values.blocks * 512;
            entry.inodes += count;
        }
        entries.retain(|&id, entry| id == 0 || *entry != Dqblk::default());
        let entries: Vec<(u32, Dqblk)> = entries.into_iter().collect();
        let mut file = quota::new_file(kind, &entries);
        if let Some(old) = old.info
            && let Ok(new) = Info::parse(&file.0[0], kind)
        {
            let Info { block_grace, inode_grace, .. } = old;
            Info { block_grace, inode_grace, ..new }.emit(&mut file.0[0], kind);
        }
        self.put_system_file(ino, &file.0.concat())
    }

    /// Gives a file of the file system's own this content.
    fn put_system_file(&mut self, ino: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let size = self.g.block_size as usize;
        let old = self.inodes.get(&ino).map(|inode| inode.map.clone()).unwrap_or_default();
        let blocks = bytes.chunks(size).map(|part| {
            let mut block = part.to_vec();
            block.resize(size, 0);
            block
        });
        let map = self.place(&old, blocks.collect())?;
        let mut slot = self.slot(ino)?;
        let mut values = InodeValues::read(&slot, &self.g);
        if values.kind() != Some(FileKind::Regular) || values.links == 0 {
            slot.fill(0);
            let extra_isize = self.g.want_extra_isize;
            values = InodeValues { extra_isize, ..InodeValues::default() };
            values.mode = FileKind::Regular.mode_bits() | 0o600;
            values.flags = InodeFlags::IMMUTABLE;
            let extents = self.g.features.incompat.contains(Incompat::EXTENTS);
            values.flags.set(InodeFlags::EXTENTS, extents);
            values.links = 1;
        }
        values.size = bytes.len() as u64;
        let mut inode = Inode::new(&values, FileKind::Regular, Map::default());
        let clusters = self.clusters_of(&map).count() as u64;
        values.blocks = clusters * self.g.cluster_sectors();
        inode.map = map;
        inode.nameless = true;
        self.inodes.insert(ino, inode);
        values.emit(&mut slot, Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)?;
        self.store_map(ino)
    }
}
