//! `SEEK_DATA` and `SEEK_HOLE` while the kernel has pages that we have not seen.
//!
//! The kernel hands these seeks down without writing its pages first, so that a file just written
//! would seem to be empty. Asked for it, it writes them through other requests ([`Pages`]): that is
//! waited for in a task of its own, so that the threads that serve are never all waiting for
//! themselves. If it cannot be asked so, we ask it to drop its pages, and it writes them before.

use std::sync::{Arc, OnceLock};

use base::{Errno, Ino};
use fuser::{INodeNo, Notifier};
use rt::{Channel, Cx};

use crate::abi::{LseekIn, LseekOut};
use crate::kernel;
use crate::open_file::OpenFile;
use crate::pages::Pages;

/// Seeks that may wait for their turn: whoever hands one over fetches the requests that it waits
/// for, and must not wait.
const WAITING_MAX: usize = usize::MAX;

/// One seek.
pub(crate) struct Seek {
    pub node: INodeNo,
    pub arg: LseekIn,
    /// The thread that called.
    pub pid: u32,
    /// Brings the answer to whoever asked.
    pub answer: Box<dyn FnOnce(Result<LseekOut, Errno>) + Send>,
}

/// Seeks on their way to the task that carries them out.
#[derive(Clone)]
pub(crate) struct Seeks {
    queue: Arc<Channel<Seek>>,
    kernel: Arc<OnceLock<Kernel>>,
}

/// The way to the kernel.
struct Kernel {
    notifier: Notifier,
    /// The numbers of the mount's device; none where they are not known, or where a page counts as
    /// written before we have it.
    device: Option<(u32, u32)>,
}

impl Seeks {
    pub fn new() -> Seeks {
        let queue = Arc::new(Channel::named("fuse seeks", WAITING_MAX));
        Seeks { queue, kernel: Arc::default() }
    }

    /// The way to the kernel, once there is one, and the numbers of the mount's device.
    pub fn connect(&self, notifier: Notifier, device: Option<(u32, u32)>) {
        let device = device.filter(|_| kernel::waits_for_pages());
        let _only_once = self.kernel.set(Kernel { notifier, device });
    }

    /// The kernel is to ask for the attributes of a node again. Never waits.
    pub fn drop_attributes(&self, node: INodeNo) {
        if let Some(kernel) = self.kernel.get() {
            // A negative offset leaves the pages alone. The kernel may have forgotten the node.
            let _not_known = kernel.notifier.inval_inode(node, -1, 0);
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

    /// Returns when the kernel has written the pages of the file. May park, and blocks the thread.
    ///
    /// # Errors
    /// A page could not be written.
    pub fn settle(&self, cx: &mut Cx, pages: &Pages, seek: &Seek, ino: Ino) -> Result<(), Errno> {
        let Some(kernel) = self.kernel.get() else { return Ok(()) };
        if let Some(device) = kernel.device {
            let file = OpenFile { pid: seek.pid, ino, device };
            if let Some(result) = pages.write(cx, file) {
                return result;
            }
        }
        // Nothing cached, or the file is gone: then there is nothing to write.
        let _nothing_there = kernel.notifier.inval_inode(seek.node, 0, 0);
        Ok(())
    }

    /// The mount ends.
    pub fn close(&self) {
        self.queue.close();
    }
}
