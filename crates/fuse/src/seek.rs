//! `SEEK_DATA` and `SEEK_HOLE` while the kernel has pages that we have not seen.
//!
//! The kernel hands these seeks down without writing its pages first, so that a file just written
//! would seem to be empty. Asked to drop its pages it writes them, through other requests: that is
//! waited for in a task of its own, so that the threads that serve are never all waiting for
//! themselves.

use std::sync::{Arc, OnceLock};

use base::Errno;
use fuser::{INodeNo, Notifier};
use rt::{Channel, Cx};

use crate::abi::{LseekIn, LseekOut};

/// Seeks that may wait for their turn: whoever hands one over fetches the requests that it waits
/// for, and must not wait.
const WAITING_MAX: usize = usize::MAX;

/// One seek.
pub(crate) struct Seek {
    pub node: INodeNo,
    pub arg: LseekIn,
    /// Brings the answer to whoever asked.
    pub answer: Box<dyn FnOnce(Result<LseekOut, Errno>) + Send>,
}

/// Seeks on their way to the task that carries them out.
#[derive(Clone)]
pub(crate) struct Seeks {
    queue: Arc<Channel<Seek>>,
    kernel: Arc<OnceLock<Notifier>>,
}

impl Seeks {
    pub fn new() -> Seeks {
        let queue = Arc::new(Channel::named("fuse seeks", WAITING_MAX));
        Seeks { queue, kernel: Arc::default() }
    }

    /// The way to the kernel, once there is one.
    pub fn connect(&self, kernel: Notifier) {
        let _only_once = self.kernel.set(kernel);
    }

    /// The kernel is to ask for the attributes of a node again. Never waits.
    pub fn drop_attributes(&self, node: INodeNo) {
        if let Some(kernel) = self.kernel.get() {
            // A negative offset leaves the pages alone. The kernel may have forgotten the node.
            let _not_known = kernel.inval_inode(node, -1, 0);
        }
    }

    /// Hands a seek over.
    pub fn push(&self, cx: &mut Cx, seek: Seek) {
        if let Err(closed) = self.queue.send(cx, seek) {
            (closed.0.answer)(Err(Errno::EIO));
        }
    }

    /// The next seek. None at the end. May park.
    pub fn next(&self, cx: &mut Cx) -> Option<Seek> {
        self.queue.recv(cx)
    }

    /// Waits until the kernel has written the pages of a node. Blocks the thread.
    pub fn settle(&self, node: INodeNo) {
        if let Some(kernel) = self.kernel.get() {
            // Nothing cached, or the file is gone: then there is nothing to write.
            let _nothing_there = kernel.inval_inode(node, 0, 0);
        }
    }

    /// The mount ends.
    pub fn close(&self) {
        self.queue.close();
    }
}
