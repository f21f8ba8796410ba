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

use crate::abi::LseekOut;
use crate::wire::Device;

/// Seeks that may wait for their turn.
const WAITING_MAX: usize = 1024;

/// One seek.
pub(crate) struct Seek {
    pub node: INodeNo,
    pub offset: i64,
    pub whence: u32,
    /// The request's number, and where it came from.
    pub unique: u64,
    pub device: Arc<Device>,
}

impl Seek {
    /// Answers it.
    pub fn answer(&self, found: Result<u64, Errno>) {
        self.device.answer_with(self.unique, found.map(|offset| LseekOut { offset }));
    }
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

    /// Hands a seek over. May park.
    pub fn push(&self, cx: &mut Cx, seek: Seek) {
        if let Err(closed) = self.queue.send(cx, seek) {
            closed.0.answer(Err(Errno::EIO));
        }
    }

    /// The next seek, after the kernel has written the pages of its file. None at the end. May
    /// park, and blocks the thread.
    pub fn next(&self, cx: &mut Cx) -> Option<Seek> {
        let seek = self.queue.recv(cx)?;
        if let Some(kernel) = self.kernel.get() {
            // Nothing cached, or the file is gone: then there is nothing to write.
            let _nothing_there = kernel.inval_inode(seek.node, 0, 0);
        }
        Some(seek)
    }

    /// The mount ends.
    pub fn close(&self) {
        self.queue.close();
    }
}
