//! Changing the superblock: through the journal, past it, and after an error.
//!
//! It is written in place, two sectors with one checksum. A power cut between the two is repaired
//! by the next mount (`read_super`) with the backup in group 1. A file system of one group has no
//! backup; there every change goes through the log, one change alone between two empty logs, so
//! that the log still has the whole of it while its place on the disk may be torn.

use std::sync::atomic::Ordering;

use base::unit::SECTOR_SIZE;
use base::{Errno, Sector};
use block::BioFlags;
use rt::Cx;

use crate::format::features::{Compat, RoCompat};
use crate::format::super_block::{STATE_ERROR, SUPER_OFFSET, SUPER_SIZE, error_code};
use crate::format::{At, NotedError, RawSuper};
use crate::sb::SuperBlock;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

impl SuperBlock {
    /// Looks at the superblock in its buffer.
    pub(crate) fn super_field<R>(&self, look: impl FnOnce(&RawSuper) -> R) -> R {
        let offset = self.offset;
        self.buffer.with(|data| {
            look(RawSuper::view(&data[offset..]).expect("the buffer holds the superblock"))
        })
    }

    /// Changes the superblock in its buffer and sets its checksum.
    pub(crate) fn change_super(&self, change: impl FnOnce(&mut RawSuper)) {
        let offset = self.offset;
        self.buffer.with_mut(|data| {
            let raw = RawSuper::view_mut(&mut data[offset..]);
            let raw = raw.expect("the buffer holds the superblock");
            change(raw);
            raw.set_checksum();
        });
    }

    /// Changes the superblock on the disk before it returns. Only while the log is empty and
    /// nobody has a handle: at the beginning and at the end of a mount.
    ///
    /// # Errors
    /// The device's, the journal's.
    pub(crate) fn put_super(
        &self,
        cx: &mut Cx,
        change: impl FnOnce(&mut RawSuper),
    ) -> Result<(), Errno> {
        let now = self.now(cx).sec;
        let change = |raw: &mut RawSuper| {
            change(raw);
            raw.s_wtime.set(now as u32);
            raw.s_wtime_hi = (now >> 32) as u8;
        };
        match self.journal().filter(|_| self.super_has_no_backup()) {
            Some(journal) => {
                let mut handle = Handle::Journal(journal.start(cx, credits::SUPER)?, 0);
                self.journal_super(cx, &mut handle, change)?;
                handle.stop(cx)?;
                journal.flush(cx)?;
                self.super_logged.store(false, Ordering::Relaxed);
                Ok(())
            }
            None => self.write_super(cx, change),
        }
    }

    /// Whether a torn superblock could be restored from the log alone.
    pub(crate) fn super_has_no_backup(&self) -> bool {
        let features = &self.geometry.features;
        let first = self.geometry.groups_count > 1 && self.geometry.has_super(1);
        features.metadata_csum() && (!first || features.compat.contains(Compat::SPARSE_SUPER2))
    }

    /// Changes the superblock and writes it to its place at once, past the journal.
    fn write_super(&self, cx: &mut Cx, change: impl FnOnce(&mut RawSuper)) -> Result<(), Errno> {
        self.change_super(change);
        let sectors = u64::from(self.geometry.block_size) / SECTOR_SIZE;
        let sector = Sector(self.buffer.block() * sectors);
        let page = self.buffer.page();
        let flags = BioFlags::META | self.queue.sync_write_flags();
        let through = BioFlags::PREFLUSH | BioFlags::FUA;
        let flags = if self.options.barrier.is_safe() { flags | through } else { flags };
        let written = self.queue.write(cx, sector, page, flags);
        written.map_err(|error| self.device_error(cx, &error))
    }

    /// True where the superblock says that files may exceed 2 GiB.
    pub(crate) fn has_large_file(&self) -> bool {
        self.geometry.features.ro_compat.contains(RoCompat::LARGE_FILE)
            || self.super_field(|raw| raw.features().ro_compat.contains(RoCompat::LARGE_FILE))
    }

    /// Changes the superblock as part of `handle`: `credits::SUPER`.
    pub(crate) fn journal_super(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        change: impl FnOnce(&mut RawSuper),
    ) -> Result<(), Errno> {
        handle.write_access(cx, &self.buffer)?;
        handle.mark_ineligible();
        self.super_logged.store(true, Ordering::Relaxed);
        self.change_super(change);
        handle.dirty(cx, &self.buffer)
    }

    /// Sets the feature `large_file`.
    pub(crate) fn set_large_file(&self, cx: &mut Cx, handle: &mut Handle) -> Result<(), Errno> {
        self.journal_super(cx, handle, |raw| {
            let mut features = raw.features();
            features.ro_compat |= RoCompat::LARGE_FILE;
            raw.set_features(&features);
        })
    }

    /// Puts `ino` at the head of the orphan list; the one that was there.
    pub(crate) fn set_orphan_head(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        ino: u32,
    ) -> Result<u32, Errno> {
        let mut before = 0;
        self.journal_super(cx, handle, |raw| {
            before = raw.s_last_orphan.get();
            raw.s_last_orphan.set(ino);
        })?;
        Ok(before)
    }

    /// Says on the disk that the next check must be a full one. The superblock in memory may be
    /// ahead of what the log holds, so only the one on the disk is changed; the journal stays as it
    /// is.
    pub(crate) fn mark_broken(&self, cx: &mut Cx) -> Result<(), Errno> {
        let len = 2048.max(self.queue.info().logical_block as usize);
        let read = self.queue.read(cx, Sector(0), len);
        let mut page = read.map_err(|error| self.device_error(cx, &error))?;
        let place = SUPER_OFFSET as usize..SUPER_OFFSET as usize + SUPER_SIZE;
        let raw = RawSuper::view_mut(&mut page.make_mut()[place]);
        let raw = raw.expect("the slice has the size");
        raw.s_state.set(raw.s_state.get() | STATE_ERROR);
        if let Some(first) = &*self.first_error.lock(cx) {
            raw.note_error(&first.noted(self.now(cx).sec));
        }
        raw.set_checksum();
        let flags = BioFlags::META | BioFlags::SYNC | BioFlags::FUA;
        let written = self.queue.write(cx, Sector(0), page, flags);
        written.map_err(|error| self.device_error(cx, &error))
    }
}

/// The first error of a mount: what stopped it from writing.
#[derive(Clone, Debug)]
pub(crate) struct FirstError {
    /// In words, for messages.
    pub text: String,
    pub errno: Errno,
    /// The damaged structure, where it was one.
    pub at: Option<At>,
}

impl FirstError {
    /// As the superblock notes it.
    fn noted(&self, now: i64) -> NotedError {
        let (ino, block) = match self.at {
            Some(At::Inode(ino)) => (ino.0, 0),
            Some(At::Block(ino, block)) => (ino.0, block),
            Some(At::Super(block) | At::Device(block)) => (0, block),
            Some(At::Group(_)) | None => (0, 0),
        };
        // The place stands before the words, and is stored as numbers.
        let words = self.text.split_once(": ").filter(|_| self.at.is_some());
        let text = words.map_or(&self.text[..], |(_, words)| words);
        NotedError {
            time: now,
            ino: ino as u32,
            block,
            place: text.as_bytes().to_vec(),
            line: 0,
            code: error_code(self.errno),
        }
    }
}
