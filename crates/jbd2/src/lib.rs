//! The block journal of ext3 and ext4, in the kernel's format: we replay the kernel's journals, and
//! the kernel replays ours.
//!
//! Below are the buffer cache and the block layer; above is a file system. An operation is a
//! [`Handle`]:
//!
//! ```text
//! let mut handle = journal.start(cx, credits)?;     // joins the running transaction
//! handle.write_access(cx, &buffer)?;
//! buffer.with_mut(|bytes| ..);
//! handle.dirty(cx, &buffer)?;
//! let tid = handle.tid();
//! handle.stop(cx)?;
//! journal.commit_tid(cx, tid)?;                     // fsync: shared by all who wait
//! ```
//!
//! One task per journal commits and checkpoints. A commit takes snapshots of the transaction's
//! buffers (references to their pages) and lets the next transaction begin at once; so there is no
//! list of buffers that are frozen, shadowed or forgotten, and nobody waits for a buffer that is
//! on its way to the log.
//!
//! # Locks, and who may wait for whom
//!
//! [`Journal::start`] may wait for a commit, and a commit waits for all open handles. So:
//! 1. a task with an open handle starts no other one, and never calls `commit_tid`, `force_commit`
//!    or `flush`;
//! 2. a lock that is held while a handle is started is never waited for under an open handle:
//!    inode locks come before handles; block-mapping and allocation locks come after;
//! 3. what the journal's task calls ([`OrderedData`], `on_commit`) starts no handle and waits for
//!    no lock of the first kind.
//!
//! Space in the log is no separate thing to wait for: the commit writes older transactions to their
//! places when it needs their space, which depends on nobody else.
//!
//! # Not modelled, compared with Linux
//!
//! The batching delay of synchronous handles, and writing with asynchronous commit (such journals
//! are recovered).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod area;
pub mod error;
mod fast_area;
pub mod fast_commit;
pub mod format;
pub mod handle;
pub mod journal;
mod log;
pub mod options;
pub mod recovery;
mod state;
pub mod stats;
mod task;
pub mod transaction;

pub use area::JournalArea;
pub use error::JournalError;
pub use fast_commit::FastChanges;
pub use format::Checksums;
pub use format::fast_commit::{FastCommitWriter, FastCommits, Record};
pub use handle::Handle;
pub use journal::Journal;
pub use options::{CommitRecord, FlusherTimes, JournalIo, JournalMode, JournalOptions};
pub use recovery::RecoveryReport;
pub use stats::JournalStats;
pub use transaction::{OnCommit, OrderedData, Tid};
