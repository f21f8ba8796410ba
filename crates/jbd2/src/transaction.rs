//! What one transaction collects while handles are open on it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::map::HashSet;
use base::{Errno, Nanos};
use cache::BufferRef;
use rt::{Cx, SpinLock};

/// Name of a transaction. Grows by one with each; the low 32 bits begin as the sequence number on
/// disk, so that they agree as long as no empty transaction is skipped. Never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

/// File data that must be on the device before the transaction that refers to it commits.
pub trait OrderedData: Send + Sync {
    /// Starts to write, without waiting for the end. The journal calls it for all files of a
    /// transaction before it waits for the first.
    fn start(&self, _cx: &mut Cx) {}

    /// Writes what is dirty *and allocated already*, and waits for it. Runs in the journal's task:
    /// it must not start a handle, nor wait for a lock under which somebody starts one.
    ///
    /// # Errors
    /// Whatever the write gave; the commit goes on, for the file keeps its error for `fsync`.
    fn flush(&self, cx: &mut Cx) -> Result<(), Errno>;

    /// A fast commit takes it out of its transaction and flushes it: what is written from now on
    /// has to be added again. Called while no handle is open; must not wait.
    fn taken(&self, _cx: &Cx) {}
}

/// Runs in the journal's task when a transaction is safe on the device.
pub type OnCommit = Box<dyn FnOnce(&mut Cx) + Send>;

/// A transaction.
pub(crate) struct Transaction {
    pub tid: Tid,
    pub started: Nanos,
    /// Buffers that joined; those whose `dirtied` is this transaction are logged.
    pub joined: SpinLock<Vec<BufferRef>>,
    /// Fast answer to "is anything revoked": the set need not be looked at.
    pub has_revoked: AtomicBool,
    /// A handle that wants its commit at once has been part of it.
    pub synchronous: AtomicBool,
    pub extra: SpinLock<Extra>,
}

/// The rarer parts of a transaction.
#[derive(Default)]
pub(crate) struct Extra {
    pub revoked: BTreeSet<u64>,
    pub ordered: Vec<Arc<dyn OrderedData>>,
    ordered_seen: HashSet<usize>,
    pub on_commit: Vec<OnCommit>,
    #[cfg(debug_assertions)]
    pub on_freeze: Vec<OnCommit>,
}

impl Transaction {
    pub fn new(tid: Tid, started: Nanos) -> Arc<Transaction> {
        Arc::new(Transaction {
            tid,
            started,
            joined: SpinLock::new(Vec::new()),
            has_revoked: AtomicBool::new(false),
            synchronous: AtomicBool::new(false),
            extra: SpinLock::new(Extra::default()),
        })
    }

    /// Adds the buffer, once.
    pub fn join(&self, cx: &Cx, buffer: &BufferRef) {
        {
            let mut joined = self.joined.lock(cx);
            let head = &buffer.journal_head.joined;
            if head.load(Ordering::Relaxed) == self.tid.0 {
                return;
            }
            head.store(self.tid.0, Ordering::Relaxed);
            joined.push(buffer.clone());
        }
        if self.has_revoked.load(Ordering::Relaxed) {
            // The block is metadata again: its new copy must be replayed.
            self.extra.lock(cx).revoked.remove(&buffer.block());
        }
    }

    /// Adds the block; returns how many are revoked now, or `None` where it was already.
    pub fn revoke(&self, cx: &Cx, block: u64) -> Option<usize> {
        self.has_revoked.store(true, Ordering::Relaxed);
        let mut extra = self.extra.lock(cx);
        extra.revoked.insert(block).then(|| extra.revoked.len())
    }

    /// Takes out what was added so far.
    pub fn take_ordered(&self, cx: &Cx) -> Vec<Arc<dyn OrderedData>> {
        let mut extra = self.extra.lock(cx);
        extra.ordered_seen.clear();
        let ordered = std::mem::take(&mut extra.ordered);
        drop(extra);
        ordered.iter().for_each(|data| data.taken(cx));
        ordered
    }

    pub fn add_ordered(&self, cx: &Cx, data: Arc<dyn OrderedData>) {
        let mut extra = self.extra.lock(cx);
        if extra.ordered_seen.insert(Arc::as_ptr(&data).cast::<()>() as usize) {
            extra.ordered.push(data);
        }
    }
}
