//! Files of the file system itself: orphans, the resize inode, the journal.

use block::DeviceError;
use ext4::Rule;
use ext4::format::features::{Compat, RoCompat};
use ext4::format::resize_inode::ResizeMap;
use ext4::format::super_block::RESIZE_INO;
use ext4::format::{At, FileKind, InodeFlags, InodeValues, orphan};

use super::Fs;
use super::inodes::Inode;
use super::map::Map;

impl Fs<'_> {
    /// Inodes that await their deletion, or a truncation: that is done.
    ///
    /// # Errors
    /// The device's.
    pub fn system_inodes(&mut self) -> Result<(), DeviceError> {
        let mut next = self.raw.s_last_orphan.get();
        let mut count = 0;
        while next != 0 && count < self.g.inodes_count {
            count += 1;
            if !self.may_be_orphan(next) {
                let detail = format!("inode {next} cannot be on the list");
                self.safe(Rule::OrphanList, At::Super(0), detail, "end the list there");
                break;
            }
            let values = self.values(next)?;
            let following = values.dtime;
            if values.kind().is_none() {
                break;
            }
            self.orphan(next, &values)?;
            next = following;
        }
        if self.raw.s_last_orphan.get() != 0 {
            self.edit_super(|raw| raw.s_last_orphan.set(0))?;
        }
        if self.g.orphan_file_ino != 0 {
            self.orphan_file()?;
        }
        Ok(())
    }

    fn may_be_orphan(&self, ino: u32) -> bool {
        (self.g.first_ino..=self.g.inodes_count).contains(&ino) && !self.is_system(ino)
    }

    /// Deletes an orphan, or cuts it to its size.
    fn orphan(&mut self, ino: u32, values: &InodeValues) -> Result<(), DeviceError> {
        let at = Self::at(ino);
        if values.links == 0 {
            if self.safe(Rule::OrphanInodes, at, "awaits its deletion", "delete it") {
                self.clear_slot(ino)?;
            }
            return Ok(());
        }
        if !self.safe(Rule::OrphanInodes, at, "awaits its truncation", "cut it to its size") {
            return Ok(());
        }
        self.edit(ino, |values| values.dtime = 0)?;
        // Behind the end of one with verity lies its tree.
        let whole = InodeFlags::VERITY | InodeFlags::INLINE_DATA;
        if values.kind() != Some(FileKind::Regular) || values.flags.intersects(whole) {
            return Ok(());
        }
        let mut map = self.map(ino, values)?;
        let end = values.size.div_ceil(u64::from(self.g.block_size));
        if map.end() <= end || !map.damage.is_empty() {
            return Ok(());
        }
        map.cut(end);
        let kind = FileKind::Regular;
        self.inodes.insert(ino, Inode::new(values, kind, map));
        self.store_map(ino)?;
        self.inodes.remove(&ino);
        Ok(())
    }

    /// The orphan file: its entries are done, its blocks are empty and sound.
    fn orphan_file(&mut self) -> Result<(), DeviceError> {
        let ino = self.g.orphan_file_ino;
        let known = ino <= self.g.inodes_count;
        let values = if known { Some(self.values(ino)?) } else { None };
        let map = match &values {
            Some(values) if self.holds_orphans(ino)? => self.whole_file(ino, values)?,
            _ => None,
        };
        let (Some(map), Some(values)) = (map, values) else {
            let act = "go on without an orphan file";
            if self.safe(Rule::OrphanFileMagic, At::Super(0), "it is no whole file", act) {
                self.drop_orphan_file(ino, known)?;
            }
            return Ok(());
        };
        let seed = self.seed(ino, values.generation);
        let mut entries = 0;
        for block in map.runs.iter().flat_map(|run| run.start..run.start + run.len) {
            let mut content = self.view.read(block)?;
            let at = At::Device(block);
            let sound = orphan::check(&content, block, seed, &self.g, at);
            let slots = 0..orphan::slots_per_block(self.g.block_size);
            let listed: Vec<u32> =
                slots.map(|slot| orphan::slot(&content, slot)).filter(|&ino| ino != 0).collect();
            let mut wanted = false;
            if let Err(corrupt) = sound {
                let rule = Rule::of(&corrupt.kind);
                let act = "write an empty block";
                wanted = self.safe(rule, at, corrupt.kind.to_string(), act);
            } else {
                for ino in listed {
                    entries += 1;
                    wanted = true;
                    if !self.may_be_orphan(ino) {
                        let detail = format!("inode {ino} cannot await its deletion");
                        self.safe(Rule::OrphanList, at, detail, "forget the entry");
                        continue;
                    }
                    let values = self.values(ino)?;
                    if values.kind().is_some() {
                        self.orphan(ino, &values)?;
                    }
                }
            }
            if wanted {
                content.fill(0);
                orphan::set_tail(&mut content, block, seed, &self.g);
                self.view.write(block, &content);
            }
        }
        let present = self.g.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if present || entries > 0 {
            let act = "clear orphan_present";
            self.safe(Rule::OrphanPresentFlag, At::Super(0), format!("{entries} entries"), act);
            self.edit_super(|raw| {
                let mut features = raw.features();
                features.ro_compat -= RoCompat::ORPHAN_PRESENT;
                raw.set_features(&features);
            })?;
        }
        Ok(())
    }

    fn drop_orphan_file(&mut self, ino: u32, known: bool) -> Result<(), DeviceError> {
        self.edit_super(|raw| {
            let mut features = raw.features();
            features.compat -= Compat::ORPHAN_FILE;
            features.ro_compat -= RoCompat::ORPHAN_PRESENT;
            raw.set_features(&features);
            raw.s_orphan_file_inum.set(0);
        })?;
        self.g.orphan_file_ino = 0;
        let own = ino >= self.g.first_ino && self.is_among_system_files(ino);
        if known && own && !self.is_system(ino) {
            self.clear_slot(ino)?;
        }
        Ok(())
    }

    /// After the inodes: what the file system keeps in files.
    ///
    /// # Errors
    /// The device's.
    pub fn system_files(&mut self) -> Result<(), DeviceError> {
        if self.g.features.compat.contains(Compat::RESIZE_INODE) {
            self.resize_inode()?;
        }
        self.journal_file()?;
        self.settle_mmp()?;
        self.quotas()
    }

    /// The blocks that belong to the resize inode alone.
    pub fn resize_blocks(&mut self, values: &InodeValues) -> Result<Vec<u64>, DeviceError> {
        if !self.g.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(Vec::new());
        }
        let block = values.resize_table();
        let own = self.in_range(block..block + 1) && !self.meta.get(block);
        Ok(if own { vec![block] } else { Vec::new() })
    }

    /// The resize inode names the reserved descriptor blocks, and these their copies.
    fn resize_inode(&mut self) -> Result<(), DeviceError> {
        let map = ResizeMap::of_geometry(&self.g);
        let known = self.inodes.get(&RESIZE_INO).and_then(|inode| inode.map.nodes.first().copied());
        let block = match known {
            Some(block) => block,
            None => match self.take_block(map.first)? {
                Some(block) => block,
                None => return Ok(()),
            },
        };
        let (table, mut wrong) = (map.table(), false);
        for reserved in map.blocks() {
            let page = map.copies_of(reserved);
            if self.view.read(reserved)? != page {
                wrong |= self.fix_resize("a reserved block names other copies");
                self.view.write(reserved, &page);
            }
        }
        if self.view.read(block)? != table || known.is_none() {
            wrong |= self.fix_resize("it names other blocks than the reserved ones");
            self.view.write(block, &table);
        }
        let values = self.values(RESIZE_INO)?;
        let mut fixed = values;
        fixed.set_resize_table(block);
        fixed.blocks = map.sectors(&self.g);
        if values.kind() != Some(FileKind::Regular)
            || values.links != 1
            || wrong && values.size == 0
            || !map.sizes().contains(&values.size)
        {
            fixed.mode = FileKind::Regular.mode_bits() | 0o600;
            fixed.links = 1;
            fixed.size = map.size();
            fixed.extra_isize = self.g.want_extra_isize;
        }
        fixed.flags = Default::default();
        fixed.dtime = 0;
        fixed.file_acl = 0;
        let sound = fixed == values
            && ext4::format::InodeValues::parse(
                &self.slot(RESIZE_INO)?,
                base::Ino(RESIZE_INO.into()),
                &self.g,
            )
            .is_ok();
        if !sound && self.fix_resize("its fields are wrong") {
            self.edit(RESIZE_INO, |values| *values = fixed)?;
        }
        let mut inode = Inode::new(&fixed, FileKind::Regular, Map::default());
        inode.map.nodes = vec![block];
        inode.nameless = true;
        self.inodes.insert(RESIZE_INO, inode);
        Ok(())
    }

    fn fix_resize(&mut self, detail: &str) -> bool {
        self.safe(Rule::ResizeInode, Self::at(RESIZE_INO), detail, "write it anew")
    }
}
