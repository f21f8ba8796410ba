//! How the log is written: the choices that Linux made at one time or another, each on its own.
//!
//! | [`JournalIo`] | log blocks | commit record | as in |
//! | --- | --- | --- | --- |
//! | `Async` | plain, or W where a synchronous handle took part | W | 2.6.34 |
//! | `Sync` | W | W | the series of 2010-07-02 |
//! | `Noidle` | SYNC, NOIDLE | SYNC, NOIDLE | 2.6.37 |
//! | `Waited` | W where somebody waits for the commit, else plain | W | 3.x |
//! | `Meta` | SYNC, META | SYNC, META | today |
//!
//! W is [`Queue::sync_write_flags`](block::Queue::sync_write_flags): SYNC, with NOIDLE where the
//! queue says so. Sources: Jeff Moyer, "jbd2: use WRITE_SYNC for journal I/O", 2010-07-02; Corrado
//! Zoccolo, "cfq: improve fsync performance for small files", 2010; Jan Kara, "jbd: Refine commit
//! writeout logic".

use std::str::FromStr;

use base::Nanos;
use block::{BioFlags, Queue};

use super::JournalOptions;

/// What the writes of the log carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum JournalIo {
    /// Nobody is said to wait for log blocks, except where a handle with
    /// [`set_sync`](crate::Handle::set_sync) took part. The commit record is synchronous.
    Async,
    /// Everything is synchronous.
    Sync,
    /// Everything is synchronous and carries NOIDLE, whatever the queue says.
    Noidle,
    /// Log blocks are synchronous where somebody waits for the commit when they are written.
    Waited,
    /// Everything is synchronous and metadata, without NOIDLE.
    #[default]
    Meta,
}

/// How the commit record is kept behind what it seals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitRecord {
    /// The log blocks are waited for; a flush of the device's cache, the record, through the cache.
    #[default]
    FlushFua,
    /// As `FlushFua`, and the record is a draining barrier, as before 2.6.37: no other request is
    /// in the device while it is written.
    Barrier,
    /// The log blocks are waited for; the record is a plain write. Nothing is promised of a crash
    /// where the device has a volatile cache.
    Plain,
}

/// When blocks go to their places although the log has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlusherTimes {
    /// How often somebody looks (Linux: `dirty_writeback_centisecs`).
    pub interval: Nanos,
    /// Age of the oldest block at which all that wait are written (Linux:
    /// `dirty_expire_centisecs`).
    pub expire: Nanos,
}

impl CommitRecord {
    /// True where a power cut finds every transaction whole or not at all.
    pub fn is_safe(self) -> bool {
        self != CommitRecord::Plain
    }

    fn flags(self) -> BioFlags {
        let through = BioFlags::PREFLUSH.union(BioFlags::FUA);
        match self {
            CommitRecord::FlushFua => through,
            CommitRecord::Barrier => through.union(BioFlags::BARRIER),
            CommitRecord::Plain => BioFlags::empty(),
        }
    }
}

impl JournalIo {
    /// All of them with the names that mount options have.
    pub const ALL: [(&'static str, JournalIo); 5] = [
        ("async", JournalIo::Async),
        ("sync", JournalIo::Sync),
        ("noidle", JournalIo::Noidle),
        ("waited", JournalIo::Waited),
        ("meta", JournalIo::Meta),
    ];

    /// Flags of the log blocks on `queue`, of a transaction with a synchronous handle, for which
    /// somebody waits.
    pub(crate) fn log_flags(self, queue: &Queue, synchronous: bool, waited: bool) -> BioFlags {
        match self {
            JournalIo::Async if !synchronous => BioFlags::empty(),
            JournalIo::Waited if !(synchronous || waited) => BioFlags::empty(),
            _ => self.sync_flags(queue),
        }
    }

    /// Flags of what is always synchronous.
    fn sync_flags(self, queue: &Queue) -> BioFlags {
        match self {
            JournalIo::Async | JournalIo::Sync | JournalIo::Waited => queue.sync_write_flags(),
            JournalIo::Noidle => BioFlags::SYNC | BioFlags::NOIDLE,
            JournalIo::Meta => BioFlags::SYNC | BioFlags::META,
        }
    }
}

impl FromStr for JournalIo {
    type Err = String;

    /// # Errors
    /// A sentence with the names that are known.
    fn from_str(text: &str) -> Result<JournalIo, String> {
        let found = JournalIo::ALL.iter().find(|(name, _)| *name == text);
        let names = JournalIo::ALL.map(|(name, _)| name).join(", ");
        let answer = found.map(|&(_, io)| io);
        answer.ok_or_else(|| format!("`{text}` is no way to write a journal; there are {names}"))
    }
}

impl JournalOptions {
    /// Flags of a commit record.
    pub(crate) fn record_flags(&self, queue: &Queue) -> BioFlags {
        self.journal_io.sync_flags(queue) | self.commit_record.flags()
    }

    /// Flags of a write of the journal's superblock that must find all earlier writes on the
    /// medium and be there itself. Never a draining barrier: all that it follows was waited for.
    pub(crate) fn tail_flags(&self, queue: &Queue) -> BioFlags {
        self.record_flags(queue) - BioFlags::BARRIER
    }
}
