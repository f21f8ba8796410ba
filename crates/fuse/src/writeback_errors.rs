//! Writes that the kernel had collected and that were refused: who writes on is told.
//!
//! The kernel takes what write(2) brings and hands it down later. Where it finds no room, only
//! fsync and close tell, and a program that does neither would write for ever. But write(2) looks
//! at the attributes first: where the kernel was told that those it has count no more, it asks for
//! them, by the open file and not by the name, and an error of the answer is the error of write(2).
//! Other calls ask otherwise, or not at all (observed on Linux 6.18: stat and fstat ask without the
//! file, read and lseek do not ask). So a refusal is kept, the attributes are taken back, and the
//! question by the open file that comes next is answered with the error, once. Where it cannot be
//! so, on older kernels, all stays as the kernel does it by itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::map::HashMap;
use base::{Errno, Nanos};
use fuser::INodeNo;
use rt::{Channel, Cx, SpinLock};

/// Files whose attributes wait to be taken back; a further refusal tells of them again.
const WAITING_MAX: usize = 256;
/// How long an answer with attributes takes to reach the kernel.
const LINGER: Nanos = Nanos::from_millis(1);

/// What was refused of a file last.
struct Refusal {
    errno: Errno,
    /// Free blocks of the file system: more of them, and the cause may be gone.
    free: u64,
}

/// Refusals that nobody has been told of.
pub(crate) struct Refused {
    files: SpinLock<HashMap<u64, Refusal>>,
    /// How many there are.
    count: AtomicUsize,
    news: Channel<News>,
}

/// The kernel is to ask for a file's attributes again.
struct News {
    node: INodeNo,
    /// They are just being given to it.
    given: bool,
}

impl Refused {
    pub fn new() -> Refused {
        Refused {
            files: SpinLock::named("fuse refused", HashMap::default()),
            count: AtomicUsize::new(0),
            news: Channel::named("fuse refused", WAITING_MAX),
        }
    }

    /// A write to a node was refused while the file system had `free` blocks. Never waits.
    pub fn note(&self, node: INodeNo, errno: Errno, free: u64) {
        let mut files = self.files.lock_irq();
        // Requests that are refused together hold blocks of each other for a moment.
        let free = files.get(&node.0).map_or(free, |known| known.free.max(free));
        files.insert(node.0, Refusal { errno, free });
        self.count.store(files.len(), Ordering::SeqCst);
        drop(files);
        // Where many wait the next refusal tells.
        let _told_later = self.news.try_send(News { node, given: false });
    }

    /// Whether nothing was refused: for most questions that is all.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Attributes of a node are given to the kernel: it is to ask again where somebody waits to be
    /// told. Never waits.
    pub fn given(&self, node: INodeNo) {
        if !self.is_empty() && self.files.lock_irq().contains_key(&node.0) {
            let _told_later = self.news.try_send(News { node, given: true });
        }
    }

    /// What whoever writes to a node is to be told; nobody is told it again. None where the file
    /// system has more than the `free` blocks it had: there may be room by now.
    pub fn take(&self, node: INodeNo, free: u64) -> Option<Errno> {
        let refusal = self.remove(node)?;
        (free <= refusal.free).then_some(refusal.errno)
    }

    /// The kernel has forgotten a node.
    pub fn forget(&self, node: INodeNo) {
        if !self.is_empty() {
            self.remove(node);
        }
    }

    fn remove(&self, node: INodeNo) -> Option<Refusal> {
        let mut files = self.files.lock_irq();
        let refusal = files.remove(&node.0);
        self.count.store(files.len(), Ordering::SeqCst);
        refusal
    }

    /// Takes attributes back by `work`, until [`Refused::close`]. May park.
    pub fn run(&self, cx: &mut Cx, work: impl Fn(INodeNo)) {
        while let Some(news) = self.news.recv(cx) {
            if news.given {
                cx.sleep(LINGER);
            }
            work(news.node);
        }
    }

    /// The mount ends.
    pub fn close(&self) {
        self.news.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_not_where_there_is_room_by_now() {
        let (refused, node) = (Refused::new(), INodeNo(7));
        assert!(refused.is_empty() && refused.take(node, 0).is_none());
        refused.note(node, Errno::ENOSPC, 5);
        refused.note(node, Errno::ENOSPC, 3);
        assert!(!refused.is_empty());
        assert_eq!(refused.take(INodeNo(8), 0), None);
        assert_eq!(refused.take(node, 5), Some(Errno::ENOSPC));
        assert!(refused.is_empty() && refused.take(node, 5).is_none());
        refused.note(node, Errno::EDQUOT, 5);
        assert_eq!((refused.take(node, 6), refused.is_empty()), (None, true));
    }
}
