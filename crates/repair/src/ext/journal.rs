//! The journal: replayed into the write set, or given up where it cannot be.

use block::DeviceError;
use cache::{BufferCache, BufferConfig};
use ext4::format::features::{Compat, Incompat};
use ext4::format::super_block::{STATE_CLEAN, SUPER_OFFSET};
use ext4::format::{At, FileKind, InodeFlags, InodeValues, RawSuper};
use ext4::{MountError, Rule};
use jbd2::{JournalArea, JournalError, JournalOptions};

use super::Fs;
use super::map::Map;
use crate::RepairError;

/// Bytes of buffers that a replay may keep.
const REPLAY_CACHE: u64 = 8 << 20;

impl Fs<'_> {
    /// Replays the journal where it must be. True where blocks were replayed.
    ///
    /// # Errors
    /// The device's.
    pub fn replay(&mut self) -> Result<bool, RepairError> {
        let asked = self.g.features.incompat.contains(Incompat::RECOVER);
        if self.g.journal_ino == 0 {
            // What its log holds would be forgotten.
            return match asked && self.g.external_journal() {
                true => Err(RepairError::ExternalLog),
                false => Ok(false),
            };
        }
        let Some(map) = self.journal_map()? else {
            if asked {
                self.give_up("its inode cannot be followed", None)?;
            }
            return Ok(false);
        };
        let first = self.view.read(map.runs[0].start)?;
        let log = jbd2::format::Superblock::parse(&first);
        let dirty = log.as_ref().is_ok_and(|log| log.start != 0);
        let unclean = self.raw.s_state.get() & STATE_CLEAN == 0 || self.from_copy;
        let left_over = dirty && unclean;
        if !asked && !left_over {
            return Ok(false);
        }
        let runs = map.runs.iter().map(|run| (run.start, run.len as u32));
        let area = JournalArea::internal(runs);
        let (mut overlay, mut queue) = self.view.overlay()?;
        let fast_commits = match ext4::replay_fast_commits(self.view.cx(), &queue, None) {
            Ok(count) => count,
            Err(MountError::Device(error)) => return Err(error.into()),
            Err(MountError::FastCommit(bad)) => {
                self.give_up(&bad.to_string(), Some(&map))?;
                return Ok(false);
            }
            Err(_) => {
                // Other damage is in the way: opening the journal shows whether there are some.
                (overlay, queue) = self.view.overlay()?;
                0
            }
        };
        let block_size = self.g.block_size;
        let config = BufferConfig { block_size, limit_bytes: REPLAY_CACHE, ..Default::default() };
        let cache = BufferCache::new(queue, config);
        let options = JournalOptions { fs_uuid: Some(self.g.uuid), ..Default::default() };
        let cx = self.view.cx();
        let report = match jbd2::Journal::open(cx, cache.clone(), area, options) {
            Ok((journal, report)) => {
                // It writes the overlay only; an error of the end is one that the log recorded.
                let _recorded = journal.shutdown(cx);
                cache.sync(cx)?;
                report.unwrap_or_default()
            }
            Err(JournalError::Device(error)) => return Err(error.into()),
            Err(error) => {
                self.give_up(&error.to_string(), Some(&map))?;
                return Ok(false);
            }
        };
        let text = match fast_commits {
            0 => format!("{} transactions, {} blocks", report.transactions, report.written),
            count => format!("with {count} fast commits"),
        };
        if !self.safe(Rule::JournalNeedsRecovery, At::Super(0), text, "replay the journal") {
            return Ok(false);
        }
        self.view.absorb(&overlay)?;
        self.set_recover(false)?;
        Ok(true)
    }

    /// Says that the journal must be replayed, or not.
    fn set_recover(&mut self, on: bool) -> Result<(), DeviceError> {
        self.edit_super(|raw| {
            let mut features = raw.features();
            features.incompat.set(Incompat::RECOVER, on);
            raw.set_features(&features);
        })
    }

    /// Changes the superblock, and sets its checksum.
    ///
    /// # Errors
    /// The device's.
    pub fn edit_super(&mut self, change: impl FnOnce(&mut RawSuper)) -> Result<(), DeviceError> {
        let mut bytes = self.view.read_bytes(SUPER_OFFSET, 1024)?;
        let raw = RawSuper::view_mut(&mut bytes).expect("1024 bytes");
        change(raw);
        raw.set_checksum();
        self.raw = *raw;
        self.g.features = raw.features();
        self.view.write_bytes(SUPER_OFFSET, &bytes)
    }

    /// A journal whose content is lost: a new one in the same place, or none.
    fn give_up(&mut self, why: &str, map: Option<&Map>) -> Result<(), DeviceError> {
        let loss = "the changes since its last checkpoint";
        let act = match map {
            Some(_) => "write an empty journal in its place",
            None => "go on without its content",
        };
        if !self.lossy(Rule::JournalSuper, At::Super(0), why, act, loss) {
            return Ok(());
        }
        if let Some(map) = map {
            self.empty_journal(map)?;
        }
        self.set_recover(false)
    }

    /// Writes the superblock of an empty journal.
    ///
    /// # Errors
    /// The device's.
    pub fn empty_journal(&mut self, map: &Map) -> Result<(), DeviceError> {
        let blocks: u64 = map.runs.iter().map(|run| run.len).sum();
        let mut log = jbd2::format::Superblock::new(self.g.block_size, blocks as u32, self.g.uuid);
        log.users.clear();
        let mut content = vec![0; self.g.block_size as usize];
        log.emit(&mut content);
        self.view.write(map.runs[0].start, &content);
        Ok(())
    }

    /// The journal's blocks, where its inode can be followed; from the superblock's copy of its map
    /// where the inode is damaged. None where neither can be.
    ///
    /// # Errors
    /// The device's.
    pub fn journal_map(&mut self) -> Result<Option<Map>, DeviceError> {
        let ino = self.g.journal_ino;
        if ino > self.g.inodes_count {
            return Ok(None);
        }
        let values = self.values(ino)?;
        if let Some(map) = self.whole_file(ino, &values)? {
            return Ok(Some(map));
        }
        let Some(copy) = self.journal_copy() else { return Ok(None) };
        let Some(map) = self.whole_file(ino, &copy)? else { return Ok(None) };
        let detail = "its inode is damaged";
        let act = "restore it from the superblock's copy";
        if !self.safe(Rule::JournalInode, Self::at(ino), detail, act) {
            return Ok(None);
        }
        let mut slot = vec![0; self.g.inode_size as usize];
        copy.emit(&mut slot, base::Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)?;
        Ok(Some(map))
    }

    /// The inode of the journal that the superblock remembers.
    pub fn journal_copy(&self) -> Option<InodeValues> {
        let (block, size) = self.raw.kept_journal()?;
        let mut values = InodeValues {
            mode: FileKind::Regular.mode_bits() | 0o600,
            links: 1,
            extra_isize: self.g.want_extra_isize,
            block,
            size,
            ..InodeValues::default()
        };
        let extents = u16::from_le_bytes([block[0], block[1]]) == ext4::format::extent::MAGIC;
        values.flags.set(InodeFlags::EXTENTS, extents);
        Some(values)
    }

    /// The blocks of a regular file without holes or damage; None for any other.
    ///
    /// # Errors
    /// The device's.
    pub fn whole_file(
        &mut self,
        ino: u32,
        values: &InodeValues,
    ) -> Result<Option<Map>, DeviceError> {
        if values.kind() != Some(FileKind::Regular) || values.links == 0 {
            return Ok(None);
        }
        let map = self.map(ino, values)?;
        let blocks: u64 = map.runs.iter().map(|run| run.len).sum();
        let size = blocks * u64::from(self.g.block_size);
        let whole = map.damage.is_empty() && blocks == map.end() && blocks > 0;
        Ok(Some(map).filter(|_| whole && size == values.size))
    }

    /// After the inodes: the journal is a sound file with a sound, empty log, or there is none.
    ///
    /// # Errors
    /// The device's.
    pub fn journal_file(&mut self) -> Result<(), DeviceError> {
        let ino = self.g.journal_ino;
        if ino == 0 {
            return Ok(());
        }
        let Some(map) = self.journal_map()? else {
            let loss = "the journal: make a new one with tune2fs -j";
            let act = "go on without a journal";
            if self.lossy(Rule::JournalInode, Self::at(ino), "it is no whole file", act, loss) {
                self.drop_journal(ino)?;
            }
            return Ok(());
        };
        let first = map.runs[0].start;
        let content = self.view.read(first)?;
        let blocks: u64 = map.runs.iter().map(|run| run.len).sum();
        let sound = jbd2::format::Superblock::parse(&content).is_ok_and(|log| {
            log.block_size == self.g.block_size
                && u64::from(log.maxlen) <= blocks
                && log.start == 0
                && log.errno == 0
        });
        let text = "its superblock is damaged, or its log is not empty";
        if !sound && self.safe(Rule::JournalSuper, At::Device(first), text, "write an empty one") {
            self.empty_journal(&map)?;
        }
        Ok(())
    }

    fn drop_journal(&mut self, ino: u32) -> Result<(), DeviceError> {
        self.edit_super(|raw| {
            let mut features = raw.features();
            features.compat -= Compat::HAS_JOURNAL;
            features.incompat -= Incompat::RECOVER;
            raw.set_features(&features);
            raw.forget_journal();
        })?;
        self.g.journal_ino = 0;
        // A wrong number may be that of a file.
        if ino < self.g.first_ino {
            self.inodes.remove(&ino);
            let slot = vec![0; self.g.inode_size as usize];
            self.put_slot(ino, &slot)?;
        }
        Ok(())
    }
}
