//! How a journal is opened.

mod variant;

use base::Nanos;

pub use self::variant::{CommitRecord, FlusherTimes, JournalIo};
use crate::format::Checksums;

/// What the file system sends through the journal. The journal itself only remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JournalMode {
    /// Metadata; data reaches its place before the metadata that refers to it commits.
    #[default]
    Ordered,
    /// Metadata; data is written at any time.
    Writeback,
    /// Metadata and data. While a data block waits for its checkpoint, its newest content is in
    /// the buffer cache and not yet at its place.
    Data,
}

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// What goes through the journal.
    pub mode: JournalMode,
    /// Age at which a transaction commits by itself.
    pub commit_interval: Nanos,
    /// How the commit record is kept behind what it seals.
    pub commit_record: CommitRecord,
    /// What the log's writes carry.
    pub journal_io: JournalIo,
    /// Who waits for a commit yields his place in the elevator to the journal's task first (Jeff
    /// Moyer, "jbd2: yield the device queue when waiting for journal commits", 2010-07-02).
    pub yield_before_wait: bool,
    /// The commit record is handed over together with the log, with an edge between the two
    /// ([`IoGroup::then`](block::IoGroup::then)): the queue sends it, flush and all, as soon as the
    /// log has completed, and the journal's task wakes up once for both.
    pub chain_record: bool,
    /// Blocks go to their places after some time, by a task of their own, as Linux's flusher has
    /// it; `None`: when their log space is needed, and at the end.
    pub flusher: Option<FlusherTimes>,
    /// Write nothing; handles are refused with `EROFS`. A dirty log is replayed into the buffer
    /// cache only: whoever reads metadata through the cache sees the recovered state.
    pub read_only: bool,
    /// Empty a dirty log instead of replaying it: where the file system says that it needs no
    /// recovery, as Linux does then.
    pub discard_log: bool,
    /// The caller replays fast commits ([`Journal::fast_commits`](crate::Journal::fast_commits)) as
    /// the first transaction: recovery leaves them valid until that one has committed. Without
    /// this a journal that has some is refused.
    pub keep_fast_commits: bool,
    /// Write fast commits, where the journal is large enough.
    pub fast_commit: bool,
    /// Use 64-bit block numbers (file systems with the feature of that name).
    pub bit64: bool,
    /// Checksums to use from now on; `None` keeps what the superblock says.
    pub checksums: Option<Checksums>,
    /// UUID of the file system: an external journal must list it.
    pub fs_uuid: Option<[u8; 16]>,
    /// Panic where a handle dirties more buffers than it reserved, instead of counting it. On in
    /// builds with debug assertions.
    pub strict_credits: bool,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            mode: JournalMode::Ordered,
            commit_interval: Nanos::from_secs(5),
            commit_record: CommitRecord::default(),
            journal_io: JournalIo::default(),
            yield_before_wait: false,
            chain_record: false,
            flusher: None,
            read_only: false,
            discard_log: false,
            keep_fast_commits: false,
            fast_commit: false,
            bit64: false,
            checksums: None,
            fs_uuid: None,
            strict_credits: cfg!(debug_assertions),
        }
    }
}
