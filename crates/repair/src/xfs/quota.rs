//! Inodes that hold records of quota: what of them is damaged is made anew, and the next mount
//! counts where counts are wrong.

use base::{FsBlock, Ino};
use block::DeviceError;

use xfs::Rule;
use xfs::format::At;
use xfs::format::dquot::{self, DquotId, Kind, QuotaFlags, RECORD_SIZE, RawDquot};
use xfs::format::features::Version;

use super::{Fs, lossy, safe};
use crate::restore;

/// Where a record keeps its checksum.
const CRC: usize = 108;
/// The flags that say that counts are right.
const CHECKED: QuotaFlags =
    QuotaFlags::USER_CHECKED.union(QuotaFlags::GROUP_CHECKED).union(QuotaFlags::PROJECT_CHECKED);

impl Fs<'_> {
    /// Puts the records of all kinds right.
    ///
    /// # Errors
    /// The device's.
    pub fn settle_quota(&mut self) -> Result<(), DeviceError> {
        let named = self.g.metadata_root.is_some();
        for kind in Kind::ALL {
            if !named {
                self.quota_inos[kind as usize] = self.raw.quota_ino(kind);
            }
            let Some(ino) = self.quota_inos[kind as usize] else {
                let flags = QuotaFlags::of(&self.raw);
                if !(flags & QuotaFlags::all_of(kind)).is_empty() {
                    self.forget_quota(kind, "it is counted, and no inode has the records")?;
                }
                continue;
            };
            match self.holds_records(kind, Ino(ino))? {
                true => self.renew_records(kind, Ino(ino))?,
                false => self.forget_quota(kind, "the inode does not hold its records")?,
            }
        }
        let known = self.raw.sb_versionnum.get() & Version::QUOTA.bits() != 0;
        if named && !known && self.quota_inos.iter().any(Option::is_some) {
            self.raw.sb_versionnum.set(self.raw.sb_versionnum.get() | Version::QUOTA.bits());
            self.write_super()?;
            let detail = "there are records of quota, and the version says that there are none";
            self.note(safe(Rule::QuotaFile, At::Super(0), detail, "store that there are"));
        }
        if self.suspects.rules.contains(&Rule::QuotaUsage) {
            self.forget_counts()?;
        }
        Ok(())
    }

    /// Has the next mount count anew what everybody has.
    ///
    /// # Errors
    /// The device's.
    pub fn forget_counts(&mut self) -> Result<(), DeviceError> {
        let flags = QuotaFlags::of(&self.raw);
        if (flags & CHECKED).is_empty() {
            return Ok(());
        }
        self.raw.sb_qflags.set(flags.difference(CHECKED).bits());
        self.write_super()?;
        let detail = "records of quota do not say what the inodes have";
        self.note(safe(Rule::QuotaUsage, At::Super(0), detail, "have the next mount count anew"));
        Ok(())
    }

    /// A kind has no records any more.
    fn forget_quota(&mut self, kind: Kind, why: &str) -> Result<(), DeviceError> {
        let flags = QuotaFlags::of(&self.raw).difference(QuotaFlags::all_of(kind));
        self.raw.sb_qflags.set(flags.bits());
        let named = self.g.metadata_root.is_some();
        if let Some(ino) = self.quota_inos[kind as usize].take().filter(|_| named) {
            self.remove_names(Ino(ino));
        }
        if !named {
            self.raw.set_quota_ino(kind, xfs::format::NULL64);
        }
        if !named && Kind::ALL.iter().all(|&kind| self.raw.quota_ino(kind).is_none()) {
            self.raw = self.raw.without_quota();
            self.raw.sb_versionnum.set(self.raw.sb_versionnum.get() & !Version::QUOTA.bits());
        }
        self.write_super()?;
        let (detail, action) = (format!("{}: {why}", kind.name()), "end their quota");
        self.note(lossy(Rule::QuotaFile, At::Super(0), detail, action, "their limits"));
        Ok(())
    }

    /// Whether an inode is one for records of a kind: a file without a name, in which there is
    /// nothing or a sound record.
    fn holds_records(&mut self, kind: Kind, ino: Ino) -> Result<bool, DeviceError> {
        let mut all = Kind::ALL.into_iter();
        let first = all.find(|&kind| self.quota_inos[kind as usize] == Some(ino.0));
        let named = self.g.metadata_root.is_some();
        let Some(inode) = self.inodes.get(&ino.0) else { return Ok(false) };
        let system = ino == self.g.root_ino || self.g.realtime_inos.contains(&ino);
        if first != Some(kind) || system || inode.core.file_type() != 0x8000 {
            return Ok(false);
        }
        if inode.data.extents.is_empty() {
            return Ok(named || inode.names == 0);
        }
        let sound = self.quota_kind(ino)? == Some(kind);
        if sound && !named && self.inodes[&ino.0].names > 0 {
            self.remove_names(ino);
            let detail = "a name points at records of quota";
            self.note(safe(Rule::DirectoryEntry, At::Inode(ino), detail, "remove the name"));
        }
        Ok(sound)
    }

    /// Takes all names of an inode out of the directories.
    fn remove_names(&mut self, ino: Ino) {
        for dir in self.dirs.keys().copied().collect::<Vec<_>>() {
            while self.dirs[&dir].names.iter().any(|name| name.ino == ino) {
                self.remove_name(Ino(dir), ino, false);
            }
        }
    }

    /// The kind whose records the data of an inode are, by the first sound one.
    pub fn quota_kind(&mut self, ino: Ino) -> Result<Option<Kind>, DeviceError> {
        for (number, place) in self.quota_blocks(ino) {
            let block = self.view.read(place)?;
            for kind in Kind::ALL {
                let mut records = self.records(&block, kind, number).into_iter();
                if records.any(|(id, record)| self.is_sound(record, id)) {
                    return Ok(Some(kind));
                }
            }
        }
        Ok(None)
    }

    /// The inode of a superblock that has lost it, by its records.
    ///
    /// # Errors
    /// The device's.
    pub fn take_quota(&mut self, ino: Ino) -> Result<bool, DeviceError> {
        let inode = &self.inodes[&ino.0];
        let named = self.g.metadata_root.is_some();
        if named || inode.core.file_type() != 0x8000 || inode.core.links != 1 {
            return Ok(false);
        }
        let Some(kind) = self.quota_kind(ino)? else { return Ok(false) };
        if self.raw.quota_ino(kind).is_some() {
            return Ok(false);
        }
        for other in Kind::ALL {
            // Without quota there are no numbers.
            if self.raw.quota_ino(other).is_none() {
                self.raw.set_quota_ino(other, xfs::format::NULL64);
            }
        }
        self.raw.set_quota_ino(kind, ino.0);
        self.raw.sb_versionnum.set(self.raw.sb_versionnum.get() | Version::QUOTA.bits());
        self.write_super()?;
        let detail =
            format!("holds the records of {}, the superblock does not know it", kind.name());
        self.note(safe(Rule::QuotaFile, At::Inode(ino), detail, "store its number there"));
        self.renew_records(kind, ino)?;
        Ok(true)
    }

    /// The blocks of records: their numbers in the file, and their places.
    fn quota_blocks(&self, ino: Ino) -> Vec<(u64, u64)> {
        let per_block = u64::from(dquot::per_block(self.g.block_size));
        let end = (u64::from(u32::MAX) + 1).div_ceil(per_block);
        let mut blocks = Vec::new();
        for extent in &self.inodes[&ino.0].data.extents {
            for number in extent.offset..extent.end().min(end) {
                let place = FsBlock(extent.start.0 + number - extent.offset);
                blocks.push((number, self.linear(place)));
            }
        }
        blocks
    }

    /// The records of a block of a kind, with their ids.
    fn records<'b>(&self, block: &'b [u8], kind: Kind, number: u64) -> Vec<(DquotId, &'b [u8])> {
        let per_block = u64::from(dquot::per_block(self.g.block_size));
        let ids = number * per_block..;
        let ids = ids.map_while(|id| u32::try_from(id).ok()).map(|id| DquotId { kind, id });
        ids.zip(block.chunks_exact(RECORD_SIZE)).collect()
    }

    fn is_sound(&self, record: &[u8], id: DquotId) -> bool {
        RawDquot::parse(record, id, Some(&self.g.meta_uuid), At::Super(0)).is_ok()
    }

    /// Puts one wrong byte of a record right, and makes those anew that cannot be read.
    fn renew_records(&mut self, kind: Kind, ino: Ino) -> Result<(), DeviceError> {
        let (uuid, bigtime) = (self.g.meta_uuid, self.g.features.bigtime());
        let mut lost = false;
        for (number, place) in self.quota_blocks(ino) {
            let mut block = self.view.read(place)?.to_vec();
            let [mut restored, mut renewed] = [0, 0];
            let ids: Vec<DquotId> =
                self.records(&block, kind, number).into_iter().map(|(id, _)| id).collect();
            for (id, record) in ids.into_iter().zip(block.chunks_exact_mut(RECORD_SIZE)) {
                if self.is_sound(record, id) {
                    continue;
                }
                let stored = |bytes: &[u8]| {
                    u32::from_le_bytes(bytes[CRC..CRC + 4].try_into().expect("four bytes"))
                };
                let fixed = restore::one_byte(record, dquot::checksum, stored);
                match fixed.filter(|fixed| self.is_sound(fixed, id)) {
                    Some(fixed) => {
                        record.copy_from_slice(&fixed);
                        restored += 1;
                    }
                    None => {
                        dquot::init_block(record, id, bigtime, &uuid);
                        renewed += 1;
                    }
                }
            }
            let at = At::InodeBlock(ino, number);
            if restored > 0 {
                let detail = format!("{restored} records with one wrong byte");
                self.note(safe(Rule::Checksum, at, detail, "put that byte right"));
            }
            if renewed > 0 {
                let detail = format!("{renewed} records cannot be read");
                let (action, loss) = ("make them anew", "their limits");
                self.note(lossy(Rule::QuotaFile, at, detail, action, loss));
                lost = true;
            }
            if restored + renewed > 0 {
                self.view.write(place, &block);
            }
        }
        if lost {
            self.forget_counts()?;
        }
        Ok(())
    }
}
