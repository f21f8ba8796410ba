//! Files of the file system's own that are made, or go: quota files and the orphan file.

use std::collections::BTreeMap;

use base::{Ino, Timespec};
use ext4::format::extent::FileRun;
use ext4::format::features::{Compat, Incompat};
use ext4::format::inode::{BASE_SIZE, EXTRA_SIZE};
use ext4::format::mmp::{self, Mmp};
use ext4::format::quota::{self, Dqblk, Kind};
use ext4::format::super_block::{QUOTA_INOS, RESIZE_INO};
use ext4::format::xattr::{self, XattrArea};
use ext4::format::{FileKind, InodeFlags, InodeValues, orphan};
use ext4::mkfs::{Release, Span};

use crate::map_build;
use crate::resize::place::Relayout;
use crate::resize::walk::Nodes;
use crate::volume::{EditError, corrupt, refuse};

/// The quota files that are not there yet, what their accounts say, and where they lie.
type Accounts = [BTreeMap<u32, Dqblk>; 3];

impl Relayout<'_> {
    /// Makes and removes the orphan file as the new features have it, of this size where one is
    /// given, and the quota files: `quota` says which of users, groups and projects have one.
    ///
    /// # Errors
    /// Damage; no room.
    pub fn own_files(
        &mut self,
        quota: [bool; 3],
        orphan_file: Option<Span>,
    ) -> Result<(), EditError> {
        let (old, new) = (self.v.g.features, self.raw.features());
        let had = old.compat.contains(Compat::ORPHAN_FILE);
        let has = new.compat.contains(Compat::ORPHAN_FILE);
        if orphan_file.is_some() && !has {
            return refuse("without orphan_file there is no such file (-O orphan_file)");
        }
        match (had, has) {
            (true, false) => {
                self.drop_file(self.v.g.orphan_file_ino)?;
                self.raw.s_orphan_file_inum.set(0);
            }
            (true, true) if orphan_file.is_some() => {
                self.drop_file(self.v.g.orphan_file_ino)?;
                self.make_orphan_file(orphan_file)?;
            }
            (false, true) => self.make_orphan_file(orphan_file)?,
            _ => {}
        }
        self.quota_files(quota)
    }

    /// Makes the block of multi-mount protection, or frees it, as the new features have it.
    ///
    /// # Errors
    /// Damage; no room.
    pub fn mmp_block(&mut self) -> Result<(), EditError> {
        let had = self.v.g.features.incompat.contains(Incompat::MMP);
        match (had, self.g.features.incompat.contains(Incompat::MMP)) {
            (true, false) => {
                let block = self.raw.s_mmp_block.get();
                self.maps.load_run(&mut self.v, block..block + 1)?;
                self.maps.clear(block..block + 1);
                self.raw.s_mmp_block.set(0);
                self.raw.s_mmp_interval.set(0);
            }
            (false, true) => {
                let block = self.take_runs(1, "the block of mmp")?[0].start;
                let unused = Mmp {
                    sequence: mmp::CLEAN,
                    time: self.v.view.now().into(),
                    node: String::new(),
                    device: String::new(),
                    check_interval: mmp::CHECK_INTERVAL_MIN,
                };
                let mut content = vec![0; self.v.size()];
                let sums = &self.g.checksums;
                unused.emit(&mut content, sums.metadata.then_some(sums.seed));
                self.v.view.write(block, &content);
                self.raw.s_mmp_block.set(block);
                self.raw.s_mmp_interval.set(mmp::CHECK_INTERVAL_MIN);
            }
            _ => {}
        }
        Ok(())
    }

    /// Has each kind of quota file where it is wanted, and nowhere else.
    fn quota_files(&mut self, wanted: [bool; 3]) -> Result<(), EditError> {
        let there = self.v.g.quota_inos;
        let mut accounts = None;
        for kind in Kind::ALL {
            let index = kind as usize;
            let ino = match (there[index], wanted[index]) {
                (0, true) => {
                    if accounts.is_none() {
                        accounts = Some(self.accounts()?);
                    }
                    let list = accounts.as_ref().expect("just counted")[index].clone();
                    self.make_quota_file(kind, list)?
                }
                (ino, false) if ino != 0 => {
                    self.drop_file(ino)?;
                    0
                }
                (ino, _) => ino,
            };
            match kind {
                Kind::User => self.raw.s_usr_quota_inum.set(ino),
                Kind::Group => self.raw.s_grp_quota_inum.set(ino),
                Kind::Project => self.raw.s_prj_quota_inum.set(ino),
            }
        }
        Ok(())
    }

    /// What every owner, group and project uses.
    fn accounts(&mut self) -> Result<Accounts, EditError> {
        let mut accounts = Accounts::default();
        for group in self.v.all_groups() {
            self.v.next_group()?;
            for ino in self.v.inodes_of(group)? {
                if !self.v.g.is_charged(ino) {
                    continue;
                }
                let slot = self.v.slot(ino)?;
                let values = InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?;
                if values.flags.contains(InodeFlags::EA_INODE) {
                    continue;
                }
                let count = 1 + self.large_values(ino, &slot, &values)?;
                let ids = [values.uid, values.gid, values.projid];
                for (account, id) in accounts.iter_mut().zip(ids) {
                    let entry = account.entry(id).or_default();
                    entry.space += values.blocks * 512;
                    entry.inodes += count;
                }
            }
        }
        Ok(accounts)
    }

    /// How many values of the inode's attributes lie in inodes of their own.
    fn large_values(
        &mut self,
        ino: u32,
        slot: &[u8],
        values: &InodeValues,
    ) -> Result<u64, EditError> {
        if !self.v.g.features.incompat.contains(Incompat::EA_INODE) {
            return Ok(0);
        }
        let start = BASE_SIZE + usize::from(values.extra_isize);
        let body = slot.get(start..).unwrap_or_default().to_vec();
        let mut areas = vec![(body, XattrArea::Inode)];
        if values.file_acl != 0 {
            areas.push((self.v.view.original(values.file_acl)?, XattrArea::Block));
        }
        let mut count = 0;
        for (area, place) in areas.iter().filter(|(area, _)| !area.is_empty()) {
            let wrong = |kind| corrupt(kind, ino);
            for entry in xattr::entries(area, *place, true).map_err(wrong)? {
                count += u64::from(entry.map_err(wrong)?.large.is_some());
            }
        }
        Ok(count)
    }

    fn make_quota_file(
        &mut self,
        kind: Kind,
        accounts: BTreeMap<u32, Dqblk>,
    ) -> Result<u32, EditError> {
        let list: Vec<(u32, Dqblk)> = accounts.into_iter().collect();
        let bytes = quota::new_file(kind, &list).0.concat();
        let size = self.v.size();
        let runs = self.take_runs(bytes.len().div_ceil(size) as u64, "a quota file")?;
        for ((_, block), part) in blocks(&runs).zip(bytes.chunks(size)) {
            let mut content = part.to_vec();
            content.resize(size, 0);
            self.v.view.write(block, &content);
        }
        let ino = match kind {
            Kind::User | Kind::Group => QUOTA_INOS[kind as usize],
            Kind::Project => self.new_number()?,
        };
        self.own_inode(ino, bytes.len() as u64, InodeFlags::IMMUTABLE, &runs)?;
        Ok(ino)
    }

    fn make_orphan_file(&mut self, size: Option<Span>) -> Result<(), EditError> {
        let len = match size {
            None => {
                let (blocks, size) = (self.g.blocks_count, self.g.block_size);
                Some(ext4::mkfs::default_orphan_file(Release::default(), blocks, size))
            }
            Some(size) => size.orphan_blocks(self.g.block_size),
        };
        let Some(len) = len.map(u64::from) else {
            return refuse("the orphan file has at least a block and at most 8 MiB");
        };
        let runs = self.take_runs(len, "the orphan file")?;
        let ino = self.new_number()?;
        let seed = self.seed(ino, 0);
        for (_, block) in blocks(&runs) {
            let mut content = vec![0; self.v.size()];
            orphan::set_tail(&mut content, block, seed, &self.g);
            self.v.view.write(block, &content);
        }
        let size = len * u64::from(self.g.block_size);
        self.own_inode(ino, size, InodeFlags::default(), &runs)?;
        self.raw.s_orphan_file_inum.set(ino);
        Ok(())
    }

    /// Takes so many blocks for a file, as the runs of its map.
    ///
    /// # Errors
    /// No room.
    pub fn take_runs(&mut self, len: u64, what: &str) -> Result<Vec<FileRun>, EditError> {
        let mut runs = Vec::new();
        let mut logical = 0;
        while logical < len {
            let Some((start, got)) = self.maps.take_some(&mut self.v, len - logical)? else {
                return Err(EditError::NoRoom(format!("no room for {what}")));
            };
            FileRun { logical, start, len: got, unwritten: false }.join(&mut runs);
            logical += got;
        }
        Ok(runs)
    }

    /// Writes an inode of the file system's own, with its map; answers what it says.
    ///
    /// # Errors
    /// No room for the map.
    pub fn own_inode(
        &mut self,
        ino: u32,
        size: u64,
        flags: InodeFlags,
        runs: &[FileRun],
    ) -> Result<InodeValues, EditError> {
        let seed = self.seed(ino, 0);
        let extents = self.g.features.incompat.contains(Incompat::EXTENTS);
        let mut store = Nodes::new(self);
        let (block, nodes) = match extents {
            true => map_build::extents(&mut store, seed, runs)?,
            false => map_build::indirect(&mut store, runs)?,
        };
        let now = Timespec::from_secs(self.v.view.now().into());
        let len: u64 = runs.iter().map(|run| run.len).sum();
        let clusters = len.div_ceil(self.g.cluster_ratio.into()) + nodes.len() as u64;
        let mut values = InodeValues {
            mode: FileKind::Regular.mode_bits() | 0o600,
            links: 1,
            size,
            blocks: clusters * self.g.cluster_sectors(),
            flags,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: Some(now),
            extra_isize: if self.g.inode_size > 128 { EXTRA_SIZE } else { 0 },
            block,
            ..InodeValues::default()
        };
        values.flags.set(InodeFlags::EXTENTS, extents);
        let mut slot = vec![0; self.g.inode_size as usize];
        values.emit(&mut slot, Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)?;
        Ok(values)
    }

    /// Frees the blocks that the descriptors would have grown into. Nothing else was done yet.
    ///
    /// # Errors
    /// Damage.
    pub fn drop_reserve(&mut self) -> Result<(), EditError> {
        self.place()?;
        let slot = self.v.slot(RESIZE_INO)?;
        let values = InodeValues::parse(&slot, Ino(RESIZE_INO.into()), &self.v.g)?;
        let table = values.resize_table();
        if table != 0 {
            self.maps.load_run(&mut self.v, table..table + 1)?;
            self.maps.clear(table..table + 1);
        }
        self.empty_slot(RESIZE_INO)
    }

    fn empty_slot(&mut self, ino: u32) -> Result<(), EditError> {
        let mut slot = vec![0; self.g.inode_size as usize];
        if ino < self.g.first_ino {
            InodeValues::default().emit(&mut slot, Ino(ino.into()), &self.g);
        }
        self.put_slot(ino, &slot)
    }

    /// Frees the blocks of a file of the file system's own, and empties its inode.
    ///
    /// # Errors
    /// Damage.
    pub fn drop_file(&mut self, ino: u32) -> Result<(), EditError> {
        let slot = self.v.slot(ino)?;
        let values = InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?;
        let map = self.v.file_map(ino, &values)?;
        let runs = map.runs.iter().map(|run| (run.start, run.len));
        for (start, len) in runs.chain(map.nodes.iter().map(|&node| (node, 1))) {
            self.maps.load_run(&mut self.v, start..start + len)?;
            self.maps.clear(start..start + len);
        }
        if ino >= self.g.first_ino {
            self.free_number_of(ino)?;
        }
        self.empty_slot(ino)
    }
}

/// Every block of these runs with its place in the file.
fn blocks(runs: &[FileRun]) -> impl Iterator<Item = (u64, u64)> {
    runs.iter().flat_map(|run| (0..run.len).map(|i| (run.logical + i, run.start + i)))
}
