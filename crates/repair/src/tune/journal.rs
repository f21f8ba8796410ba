//! A journal that is made, or goes; its copy of the UUID.

use base::Ino;
use ext4::ExternalJournal;
use ext4::format::extent::FileRun;
use ext4::format::super_block::JOURNAL_INO;
use ext4::format::{InodeFlags, InodeValues};
use jbd2::format::Superblock;

use crate::resize::place::Relayout;
use crate::volume::{EditError, refuse};

/// The fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;

impl Relayout<'_> {
    /// Frees the journal's blocks, and empties its inode; an external one is named no more.
    ///
    /// # Errors
    /// Damage; a journal in an unusual inode.
    pub fn drop_journal(&mut self) -> Result<(), EditError> {
        if self.v.g.external_journal() {
            self.raw.s_journal_uuid = [0; 16];
            self.raw.s_journal_dev.set(0);
            return Ok(());
        }
        let ino = self.v.g.journal_ino;
        if ino != JOURNAL_INO {
            return refuse(format!("its journal is no inode {JOURNAL_INO}, but {ino}"));
        }
        self.drop_file(ino)?;
        self.raw.forget_journal();
        Ok(())
    }

    /// Names an external journal.
    ///
    /// # Errors
    /// Its blocks have another size.
    pub fn name_journal(&mut self, journal: &ExternalJournal) -> Result<(), EditError> {
        if journal.block_size != self.g.block_size {
            return refuse(format!(
                "blocks of {} bytes, but the external journal has blocks of {}",
                self.g.block_size, journal.block_size
            ));
        }
        self.raw.s_journal_uuid = journal.uuid;
        self.raw.s_journal_dev.set(journal.number);
        Ok(())
    }

    /// Makes a journal of so many bytes; None for the size that mke2fs chooses.
    ///
    /// # Errors
    /// No room for it.
    pub fn make_journal(&mut self, bytes: Option<u64>) -> Result<(), EditError> {
        let size = u64::from(self.g.block_size);
        let len = match bytes {
            Some(bytes) => bytes / size,
            None => ext4::mkfs::default_journal(self.g.blocks_count).into(),
        };
        if len < BLOCKS_MIN || len > self.v.raw.free_blocks() / 2 {
            let limit = self.v.raw.free_blocks() / 2;
            return refuse(format!("a journal of {len} blocks is not in {BLOCKS_MIN}..={limit}"));
        }
        let runs = self.take_runs(len, "the journal")?;
        // Its superblock belongs to the change, the rest is zeros that nobody sees yet.
        let mut log = vec![0; self.v.size()];
        let mut head = Superblock::new(self.g.block_size, len as u32, self.g.uuid);
        head.users = vec![[0; 16]];
        head.emit(&mut log);
        let first = runs[0].start;
        self.v.view.write(first, &log);
        let cut = |run: &FileRun| match run.start == first {
            true => (run.start + 1, run.len - 1),
            false => (run.start, run.len),
        };
        self.zeroes.extend(runs.iter().map(cut).filter(|run| run.1 > 0));
        let values = self.own_inode(JOURNAL_INO, len * size, InodeFlags::default(), &runs)?;
        self.raw.s_journal_inum.set(JOURNAL_INO);
        self.raw.keep_journal(&values);
        Ok(())
    }

    /// Stores another UUID where the journal in the file system has the old one.
    ///
    /// # Errors
    /// Damage.
    pub fn journal_uuid(&mut self, uuid: [u8; 16]) -> Result<(), EditError> {
        let ino = self.v.g.journal_ino;
        if ino == 0 || ino != self.g.journal_ino {
            return Ok(());
        }
        let slot = self.v.slot(ino)?;
        let values = InodeValues::parse(&slot, Ino(ino.into()), &self.v.g)?;
        let map = self.v.file_map(ino, &values)?;
        let Some(first) = map.runs.first().map(|run| run.start) else { return Ok(()) };
        let mut content = self.v.view.original(first)?;
        let Ok(mut head) = Superblock::parse(&content) else {
            return refuse("its journal is damaged: check it, and repair it first");
        };
        if head.uuid == self.v.g.uuid {
            head.uuid = uuid;
            head.emit(&mut content);
            self.v.view.write(first, &content);
        }
        Ok(())
    }
}
