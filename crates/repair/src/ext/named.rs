//! Inodes that the superblock names by number: a wrong number may be that of a user's file.

use std::ops::RangeInclusive;

use base::Ino;
use block::DeviceError;
use ext4::Rule;
use ext4::format::quota::{Info, Kind};
use ext4::format::super_block::{FIRST_INO, JOURNAL_INO};
use ext4::format::{At, FileKind, InodeFlags, InodeValues, RawSuper, orphan};

use super::Fs;

/// System files lie among the first inodes: behind the first free one, so many are searched.
const SEARCHED: u32 = 32;

impl Fs<'_> {
    /// Puts the numbers right.
    ///
    /// # Errors
    /// The device's.
    pub fn named_inodes(&mut self) -> Result<(), DeviceError> {
        self.find_first()?;
        self.find_journal()?;
        if self.g.orphan_file_ino != 0 {
            self.find_orphan_file()?;
        }
        for kind in Kind::ALL {
            self.find_quota(kind)?;
        }
        Ok(())
    }

    /// The first inode that is not reserved: where mke2fs puts it, if that one is in use.
    fn find_first(&mut self) -> Result<(), DeviceError> {
        let found = self.g.first_ino;
        if found <= FIRST_INO || FIRST_INO > self.g.inodes_count {
            return Ok(());
        }
        let slot = self.slot(FIRST_INO)?;
        let first = InodeValues::parse(&slot, Ino(FIRST_INO.into()), &self.g);
        if !first.is_ok_and(|values| values.kind().is_some() && values.links > 0) {
            return Ok(());
        }
        let detail = format!("inodes before {found} are reserved, and {FIRST_INO} is in use");
        let act = format!("reserve those before {FIRST_INO}");
        if self.safe(Rule::SuperGeometry, At::Super(0), detail, &act) {
            self.edit_super(|raw| raw.s_first_ino.set(FIRST_INO))?;
            self.g.first_ino = FIRST_INO;
        }
        Ok(())
    }

    /// The journal, where the superblock names an inode that holds none and its usual inode does,
    /// or the superblock has a copy of that.
    fn find_journal(&mut self) -> Result<(), DeviceError> {
        let named = self.g.journal_ino;
        let lost = self.g.external_journal() && self.raw.s_journal_uuid == [0; 16];
        if named == JOURNAL_INO || named == 0 && !lost || self.holds_journal(named)? {
            return Ok(());
        }
        if !self.holds_journal(JOURNAL_INO)? && self.journal_copy().is_none() {
            return Ok(());
        }
        let set = |raw: &mut RawSuper| raw.s_journal_inum.set(JOURNAL_INO);
        if self.name_inode(Rule::JournalInode, "journal", named, JOURNAL_INO, set)? {
            self.g.journal_ino = JOURNAL_INO;
        }
        Ok(())
    }

    fn find_orphan_file(&mut self) -> Result<(), DeviceError> {
        let named = self.g.orphan_file_ino;
        if self.holds_orphans(named)? {
            return Ok(());
        }
        // The journal holds such blocks, too.
        let first = self.g.first_ino;
        let Some(ino) = self.find_system(|fs, ino| Ok(ino >= first && fs.holds_orphans(ino)?))?
        else {
            return Ok(());
        };
        let set = |raw: &mut RawSuper| raw.s_orphan_file_inum.set(ino);
        if self.name_inode(Rule::OrphanFileMagic, "orphan file", named, ino, set)? {
            self.g.orphan_file_ino = ino;
        }
        Ok(())
    }

    fn find_quota(&mut self, kind: Kind) -> Result<(), DeviceError> {
        let named = self.g.quota_inos[kind as usize];
        if named == 0 || self.holds_quota(named, kind)? || self.is_immutable(named)? {
            return Ok(());
        }
        let Some(found) = self.find_system(|fs, ino| fs.holds_quota(ino, kind))? else {
            return Ok(());
        };
        let set = |raw: &mut RawSuper| match kind {
            Kind::User => raw.s_usr_quota_inum.set(found),
            Kind::Group => raw.s_grp_quota_inum.set(found),
            Kind::Project => raw.s_prj_quota_inum.set(found),
        };
        if self.name_inode(Rule::QuotaInode, "quota file", named, found, set)? {
            self.g.quota_inos[kind as usize] = found;
        }
        Ok(())
    }

    /// Corrects a number in the superblock.
    fn name_inode(
        &mut self,
        rule: Rule,
        what: &str,
        named: u32,
        found: u32,
        set: impl FnOnce(&mut RawSuper),
    ) -> Result<bool, DeviceError> {
        let detail = format!("names inode {named} as its {what}, which is none");
        let wanted = self.safe(rule, At::Super(0), detail, &format!("name inode {found}"));
        if wanted {
            self.edit_super(set)?;
        }
        Ok(wanted)
    }

    /// The first inode that may be a system file and is the one; not one whose checksum says that
    /// it belongs elsewhere.
    fn find_system(
        &mut self,
        mut is_it: impl FnMut(&mut Self, u32) -> Result<bool, DeviceError>,
    ) -> Result<Option<u32>, DeviceError> {
        for ino in self.searched() {
            let slot = self.slot(ino)?;
            if self.slot_trusted(ino, &slot) && is_it(self, ino)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// Where system files may lie: in reserved inodes, and in the first ones of mke2fs.
    fn searched(&self) -> RangeInclusive<u32> {
        3..=(self.g.first_ino + SEARCHED).min(self.g.inodes_count)
    }

    /// May it be a system file that can be read no more?
    pub fn is_among_system_files(&self, ino: u32) -> bool {
        self.searched().contains(&ino)
    }

    /// Is it a whole file that begins with a superblock of a journal?
    fn holds_journal(&mut self, ino: u32) -> Result<bool, DeviceError> {
        self.some_block(ino, 1, |content| jbd2::format::Superblock::parse(content).is_ok())
    }

    fn holds_quota(&mut self, ino: u32, kind: Kind) -> Result<bool, DeviceError> {
        self.some_block(ino, 1, |content| Info::parse(content, kind).is_ok())
    }

    /// Does a block of it end as those of an orphan file do?
    pub fn holds_orphans(&mut self, ino: u32) -> Result<bool, DeviceError> {
        self.some_block(ino, usize::MAX, orphan::is_marked)
    }

    /// Is it so of one of the first blocks of a file whose map is sound?
    fn some_block(
        &mut self,
        ino: u32,
        first: usize,
        is_so: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, DeviceError> {
        if !(1..=self.g.inodes_count).contains(&ino) {
            return Ok(false);
        }
        let values = self.values(ino)?;
        let regular = values.kind() == Some(FileKind::Regular) && values.links > 0;
        if !regular || values.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let map = self.map(ino, &values)?;
        if !map.damage.is_empty() {
            return Ok(false);
        }
        for block in map.runs.iter().flat_map(|run| run.start..run.start + run.len).take(first) {
            if is_so(&self.view.read(block)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Is it marked as no file of a user's?
    fn is_immutable(&mut self, ino: u32) -> Result<bool, DeviceError> {
        let known = (1..=self.g.inodes_count).contains(&ino);
        let reserved = ino < self.g.first_ino;
        Ok(known && (reserved || self.values(ino)?.flags.contains(InodeFlags::IMMUTABLE)))
    }
}
