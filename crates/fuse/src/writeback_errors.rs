//! Errors of the kernel's write-back, reported to the next writer of the file.
//!
//! The kernel takes the data of write(2) and sends it later. If the file system refuses it then,
//! the kernel reports the error only to fsync and close, and a program that calls neither would
//! write for ever. But write(2) looks at the attributes first. If the kernel has been notified that
//! its attributes are not valid, it asks for them with a handle of the open file, and an error in
//! the answer is the error of write(2). Other calls ask without the handle, or do not ask (observed
//! on Linux 6.18: stat and fstat ask without it, lseek does not ask, read asks with it past the
//! end). So an error is kept, the attributes are invalidated, and the next question with a handle
//! is answered with the error, once. Older kernels do not ask so; there, everything stays as the
//! kernel does it by itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::map::HashMap;
use base::{Errno, Nanos};
use fuser::INodeNo;
use rt::{Channel, Cx, SpinLock};

/// Files whose attributes wait for invalidation, at most; the next error of a file asks again.
const WAITING_MAX: usize = 256;
/// How long an answer with attributes takes to reach the kernel.
const LINGER: Nanos = Nanos::from_millis(1);

/// The last error of a file.
struct WritebackError {
    errno: Errno,
    /// Free blocks of the file system then. If there are more of them now, the cause may be gone.
    free: u64,
}

/// Errors that are not reported yet.
pub(crate) struct WritebackErrors {
    files: SpinLock<HashMap<u64, WritebackError>>,
    /// How many there are.
    count: AtomicUsize,
    invalidations: Channel<Invalidation>,
}

/// The kernel is to ask for a file's attributes again.
struct Invalidation {
    node: INodeNo,
    /// An answer with its attributes is on the way to the kernel.
    after_answer: bool,
}

impl WritebackErrors {
    pub fn new() -> WritebackErrors {
        WritebackErrors {
            files: SpinLock::named("fuse writeback errors", HashMap::default()),
            count: AtomicUsize::new(0),
            invalidations: Channel::named("fuse writeback errors", WAITING_MAX),
        }
    }

    /// Records that a write to a node failed while the file system had `free` free blocks. Never
    /// waits.
    pub fn record(&self, node: INodeNo, errno: Errno, free: u64) {
        let mut files = self.files.lock_irq();
        // Requests that fail at the same time hold reserved blocks for a moment: the larger count
        // is the true one.
        let free = files.get(&node.0).map_or(free, |known| known.free.max(free));
        files.insert(node.0, WritebackError { errno, free });
        self.count.store(files.len(), Ordering::SeqCst);
        drop(files);
        // If the channel is full, the next error of the file asks again.
        let _asked_later = self.invalidations.try_send(Invalidation { node, after_answer: false });
    }

    /// Whether no error waits, which is the usual case and cheap to ask. Never waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Attributes of a node go to the kernel. If an error of the node waits, they are invalidated
    /// again afterwards. Never waits.
    pub fn attributes_sent(&self, node: INodeNo) {
        if !self.is_empty() && self.files.lock_irq().contains_key(&node.0) {
            let _asked_later =
                self.invalidations.try_send(Invalidation { node, after_answer: true });
        }
    }

    /// Takes the error to report to the next writer of a node. None if there is none, or if the
    /// file system has more free blocks (`free`) than it had then: the write may succeed now.
    pub fn take(&self, node: INodeNo, free: u64) -> Option<Errno> {
        let error = self.remove(node)?;
        (free <= error.free).then_some(error.errno)
    }

    /// Drops the error of a node that the kernel has forgotten.
    pub fn forget(&self, node: INodeNo) {
        if !self.is_empty() {
            self.remove(node);
        }
    }

    fn remove(&self, node: INodeNo) -> Option<WritebackError> {
        let mut files = self.files.lock_irq();
        let error = files.remove(&node.0);
        self.count.store(files.len(), Ordering::SeqCst);
        error
    }

    /// Calls `invalidate` for each node whose attributes the kernel is to ask for again, until
    /// [`WritebackErrors::close`]. May park.
    pub fn run(&self, cx: &mut Cx, invalidate: impl Fn(INodeNo)) {
        while let Some(next) = self.invalidations.recv(cx) {
            if next.after_answer {
                cx.sleep(LINGER);
            }
            invalidate(next.node);
        }
    }

    /// The mount ends.
    pub fn close(&self) {
        self.invalidations.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_and_not_if_blocks_were_freed_since() {
        let (errors, node) = (WritebackErrors::new(), INodeNo(7));
        assert!(errors.is_empty() && errors.take(node, 0).is_none());
        errors.record(node, Errno::ENOSPC, 5);
        errors.record(node, Errno::ENOSPC, 3);
        assert!(!errors.is_empty());
        assert_eq!(errors.take(INodeNo(8), 0), None);
        assert_eq!(errors.take(node, 5), Some(Errno::ENOSPC));
        assert!(errors.is_empty() && errors.take(node, 5).is_none());
        errors.record(node, Errno::EDQUOT, 5);
        assert_eq!((errors.take(node, 6), errors.is_empty()), (None, true));
    }
}
