//! Many tasks that create in one directory: whoever holds the directory's lock makes the files of
//! those who wait for it, too.
//!
//! Nearly all of a creation happens under that lock, and changes blocks that the one before it has
//! changed. So the directory stays with one processor for several files, instead of going to and
//! fro between the caches of two for each of them, and those who wait need no lock.
//!
//! A *create* is put on the directory's list before its task waits for the lock, and is taken off
//! the list only by a holder of the lock. So whoever gets the lock finds its own create on the
//! list, or carried out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use base::Errno;
use rt::SpinLock;
use smallvec::SmallVec;
use vfs::{Attr, NewNode};

/// A file that somebody who holds the directory's lock is to make.
pub(crate) struct QueuedCreate {
    pub(crate) name: SmallVec<[u8; 64]>,
    pub(crate) node: NewNode<'static>,
    pub(crate) answer: SpinLock<Option<Result<Attr, Errno>>>,
    /// `answer` is there.
    pub(crate) done: AtomicBool,
}

impl QueuedCreate {
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn finish(&self, answer: Result<Attr, Errno>) {
        *self.answer.lock_irq() = Some(answer);
        self.done.store(true, Ordering::Release);
    }

    /// What came of it. Only a task that panicked leaves a create undone that it has taken.
    pub(crate) fn answer(&self) -> Result<Attr, Errno> {
        self.answer.lock_irq().take().unwrap_or(Err(Errno::EIO))
    }
}

/// The creates of a directory, the oldest first.
#[derive(Default)]
pub(crate) struct CreateBatch {
    /// How many there are, for a look without the lock.
    count: AtomicU32,
    list: SpinLock<Vec<Arc<QueuedCreate>>>,
}

impl CreateBatch {
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<Arc<QueuedCreate>>) -> R) -> R {
        let mut list = self.list.lock_irq();
        let result = change(&mut list);
        self.count.store(list.len() as u32, Ordering::Relaxed);
        result
    }

    pub(crate) fn add(&self, create: Arc<QueuedCreate>) {
        self.change(|list| list.push(create));
    }

    /// Takes the oldest one.
    pub(crate) fn next(&self) -> Option<Arc<QueuedCreate>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.change(|list| (!list.is_empty()).then(|| list.remove(0)))
    }

    /// Takes this one; false if somebody has it.
    pub(crate) fn take_back(&self, create: &Arc<QueuedCreate>) -> bool {
        self.change(|list| {
            let at = list.iter().position(|other| Arc::ptr_eq(other, create));
            at.map(|at| list.remove(at)).is_some()
        })
    }
}
