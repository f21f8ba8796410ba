//! The log of a recorded run: the medium as it was, and everything that was done to it.
//!
//! A log is one file, written front to back while the run goes on, so that it needs little memory:
//!
//! ```text
//! head     magic, version
//! frames   each: kind, lengths, checksum, zstd
//!            header    what the log says about itself, JSON; the first
//!            content   pieces of up to 4 KiB, each distinct content once, about 1 MiB a frame
//!            pieces    length and hash of every piece of the content before
//!            base      which pieces the medium held before; before all entries
//!            entries   what happened, in the order of completion; their content lies before
//! index    the places of the frames
//! tail     where the index lies, its checksum, magic
//! ```
//!
//! [`LogWriter`] writes it, [`Log`] reads it. The reader keeps the entries in memory and fetches
//! content by number when it is needed. A log whose writer was killed has no tail; it holds the
//! entries up to there ([`Log::cut_short`]). What is no log, of another version, or damaged is
//! refused by name.

use std::fs::{File, TryLockError};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::Page;
use base::map::HashMap;
use base::unit::SECTOR_SIZE;
use device::{Content, Entry, Event, WriteLog};
use serde::{Deserialize, Serialize};

use crate::calls::Call;
use crate::output;

mod frame;
mod part;
mod read;
mod store;
mod write;

pub use write::LogWriter;

use store::Store;

/// Bytes of a piece of content at the most, and its alignment on the medium.
pub const PIECE: usize = 4096;

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The host refused.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The host's answer.
        error: std::io::Error,
    },
    /// Sectors that are not a part.
    #[error(
        "{count} sectors from {start} of {sectors} are not explored: the part is not empty, lies \
         on the disk and begins at a multiple of 4 KiB (8 sectors)"
    )]
    Part {
        /// The first.
        start: u64,
        /// How many.
        count: u64,
        /// Sectors of the medium.
        sectors: u64,
    },
    /// Something else.
    #[error("not a crash log: it begins with {0:02x?}")]
    Foreign(Vec<u8>),
    /// Written by another version of this crate.
    #[error("a crash log of version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// Its writer did not come to the first entries.
    #[error(
        "the crash log is cut short after {0} bytes, before its first entries: the recording did \
         not end"
    )]
    Cut(u64),
    /// A part of it is not what was written.
    #[error("the crash log is damaged at byte {at}: {what}")]
    Damaged {
        /// First byte of the part.
        at: u64,
        /// What is wrong there.
        what: String,
    },
}

impl LogError {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> LogError {
        move |error| LogError::Io { what, error }
    }

    fn damaged(at: u64, what: impl Into<String>) -> LogError {
        LogError::Damaged { at, what: what.into() }
    }
}

/// Opens or makes the file of a log, and locks it as long as it is open. An older log there stays
/// until the file is [emptied](output::empty); any other file is left alone.
///
/// # Errors
/// The host refuses; the path names something that is no log, or one that is being recorded.
pub fn open(path: &Path) -> Result<File, LogError> {
    let file = output::open(path, MAGIC).map_err(LogError::io("make the log"))?;
    // Where the file system has no locks nobody knows of another one.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let busy = std::io::Error::new(
            std::io::ErrorKind::ResourceBusy,
            "another recording or an exploration uses it",
        );
        return Err(LogError::io("make the log")(busy));
    }
    Ok(file)
}

/// How a log begins.
pub const MAGIC: &[u8; 8] = b"iopcrash";

/// The version of the format that is written and read.
pub const VERSION: u32 = 3;

/// What a log says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Sectors of the medium.
    pub sectors: u64,
    /// The file system on it: `ext4`, `xfs`, or another name for one that is not ours.
    pub file_system: String,
    /// What was run.
    pub command: String,
    /// The program and its version that recorded.
    pub recorded_by: String,
    /// What the disk did wrong meanwhile.
    #[serde(default)]
    pub faults: Vec<String>,
    /// The options of the mount with which our ext4 promises less: `noauto_da_alloc`,
    /// `dioread_nolock`.
    #[serde(default)]
    pub mount_options: Vec<String>,
}

impl Header {
    /// The name of a file system that was not known when the recording began.
    pub const UNKNOWN: &str = "unknown";
}

/// Something that was noted in the log beside what the device did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// The user's mark: something that the workload says was reached.
    Mark(String),
    /// A call of the file system that returned.
    Call(Call),
}

impl Log {
    /// Entries up to the first mark with this text, it included.
    pub fn at_mark(&self, text: &str) -> Option<usize> {
        let is = |note: Option<&Note>| matches!(note, Some(Note::Mark(mark)) if mark == text);
        (0..self.len()).find(|entry| is(self.note(*entry))).map(|entry| entry + 1)
    }
}

impl Note {
    /// Does a state differ by whether this was noted? So it is with marks and with what promises.
    pub fn decides(&self) -> bool {
        match self {
            Note::Mark(_) => true,
            Note::Call(call) => call.promises(),
        }
    }
}

/// Where the content of a write is: pieces in the order of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Index of the first piece's number in the table of references.
    first: u32,
    /// Length in bytes.
    bytes: u32,
}

impl Content for Chunks {
    fn bytes(&self) -> u64 {
        u64::from(self.bytes)
    }
}

/// Number of a distinct piece of content; 0 is zeroes of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u32);

impl PieceId {
    /// Zeroes.
    pub const ZERO: PieceId = PieceId(0);
}

/// An opened log. Cloning shares everything.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    header: Header,
    writes: WriteLog<Chunks>,
    /// `flushed[n]`: entries below that number are durable behind the first `n` entries.
    flushed: Vec<u32>,
    /// The same without the last flush that made a difference.
    flushed_before: Vec<u32>,
    refs: Vec<PieceId>,
    notes: Vec<Note>,
    /// Content of the notes that have one: by their number.
    contents: HashMap<u32, Range<usize>>,
    base: Vec<(u32, PieceId)>,
    digest: u64,
    cut: Option<u64>,
    store: Arc<Store>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({:?}, {} entries)", self.header(), self.len())
    }
}

impl Log {
    /// What it says about itself.
    pub fn header(&self) -> &Header {
        &self.inner.header
    }

    /// What happened, in the order of completion. [`Event::Mark`] holds the number of a note.
    pub fn writes(&self) -> &WriteLog<Chunks> {
        &self.inner.writes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.inner.writes.entries.len()
    }

    /// True where nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The notes, in order.
    pub fn notes(&self) -> &[Note] {
        &self.inner.notes
    }

    /// The note of an entry, where it is one.
    pub fn note(&self, index: usize) -> Option<&Note> {
        match self.inner.writes.entries[index].event {
            Event::Mark(number) => self.inner.notes.get(number as usize),
            _ => None,
        }
    }

    /// The pages of a file that a write call changed, from the one with its first byte on; bytes
    /// beside the call's are zeroes.
    pub fn written(&self, index: usize) -> &[PieceId] {
        let Event::Mark(number) = self.inner.writes.entries[index].event else { return &[] };
        let content = self.inner.contents.get(&(number as u32)).cloned();
        content.map_or(&[], |content| &self.inner.refs[content])
    }

    /// Marks among the first `upto` entries, in order.
    pub fn marks(&self, upto: usize) -> Vec<&str> {
        let mark = |index| match self.note(index) {
            Some(Note::Mark(text)) => Some(text.as_str()),
            _ => None,
        };
        (0..upto).filter_map(mark).collect()
    }

    /// Entries below the answer are durable behind the first `upto` entries, as far as flushes
    /// made them so.
    pub fn flushed(&self, upto: usize) -> usize {
        self.inner.flushed[upto] as usize
    }

    /// As [`flushed`](Log::flushed), as if the last flush that made a difference had not been.
    pub fn flushed_before(&self, upto: usize) -> usize {
        self.inner.flushed_before[upto] as usize
    }

    /// Blocks of 4 KiB that were not zero when recording began, with their content.
    pub fn base(&self) -> &[(u32, PieceId)] {
        &self.inner.base
    }

    /// The content of a piece, filled with zeroes to 4 KiB.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn page(&self, piece: PieceId) -> Result<Page, LogError> {
        self.inner.store.page(piece)
    }

    /// A hash of the content of a piece of 4 KiB.
    pub fn hash(&self, piece: PieceId) -> u128 {
        self.inner.store.hash(piece)
    }

    /// The size of a log whose recording did not end: it holds what had been written until then.
    pub fn cut_short(&self) -> Option<u64> {
        self.inner.cut
    }

    /// A hash of everything in it: another log has another one.
    pub fn digest(&self) -> u64 {
        self.inner.digest
    }

    /// Bytes of distinct content, and of the file.
    pub fn sizes(&self) -> (u64, u64) {
        self.inner.store.sizes()
    }

    /// The pieces of an entry: first byte on the medium, length, and content.
    pub fn pieces(&self, entry: &Entry<Chunks>) -> impl Iterator<Item = (u64, usize, PieceId)> {
        let (mut at, end, mut next) = match &entry.event {
            Event::Write { sector, segs, .. } => {
                (sector.bytes(), sector.bytes() + segs.bytes(), Some(segs.first as usize))
            }
            Event::Zero { sector, count, .. } => {
                (sector.bytes(), sector.bytes() + count * SECTOR_SIZE, None)
            }
            Event::Flush | Event::Mark(_) => (0, 0, None),
        };
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let len = (PIECE as u64 - at % PIECE as u64).min(end - at);
            let piece = match &mut next {
                Some(index) => {
                    *index += 1;
                    self.inner.refs[*index - 1]
                }
                None => PieceId::ZERO,
            };
            let start = at;
            at += len;
            Some((start, len as usize, piece))
        })
    }
}

/// The hash by which equal content is known.
pub fn content_hash(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

#[cfg(test)]
mod tests;
