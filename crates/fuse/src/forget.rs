//! Deferred freeing of unlinked inodes after FORGET.
//!
//! When the kernel forgets an inode without names, its space becomes free. A task of its own frees
//! many of them after each other, so that no request waits for it (XFS in Linux has background
//! inode inactivation for the same reason).

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Ino, Nanos};
use rt::{Channel, Cx, WaitQueue};

/// Inodes in the queue, at most. If it is full, the task that handles FORGET frees by itself.
const WAITING_MAX: usize = 1024;
/// How long the first inode waits for more of them.
const LINGER: Nanos = Nanos::from_millis(1);
/// How long statfs waits at most until the queue is empty.
const EMPTY_WAIT_MAX: Nanos = Nanos::from_millis(100);

/// A forgotten inode without names, and how often it is open in the file system.
pub(crate) type Forgotten = (Ino, u32);

/// The inodes that wait for the task that frees them.
pub(crate) struct ForgetQueue {
    inodes: Channel<Forgotten>,
    /// Pushed and not freed yet.
    pending: AtomicUsize,
    empty: WaitQueue,
}

impl ForgetQueue {
    pub fn new() -> ForgetQueue {
        ForgetQueue {
            inodes: Channel::named("fuse forget", WAITING_MAX),
            pending: AtomicUsize::new(0),
            empty: WaitQueue::named("fuse forget"),
        }
    }

    /// Queues an inode. Returns it if the queue is full or closed. Never waits.
    pub fn push(&self, inode: Forgotten) -> Option<Forgotten> {
        self.pending.fetch_add(1, Ordering::SeqCst);
        if self.inodes.try_send(inode).is_ok() {
            return None;
        }
        self.done();
        Some(inode)
    }

    fn done(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.empty.wake_all();
        }
    }

    /// Whether a queued inode is not freed yet.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    /// Waits until all queued inodes are freed, at most [`EMPTY_WAIT_MAX`]. May park.
    pub fn wait_empty(&self, cx: &mut Cx) {
        self.empty.wait_until_timeout(cx, "freed inodes", EMPTY_WAIT_MAX, || !self.is_pending());
    }

    /// Calls `free` for each queued inode, until [`ForgetQueue::close`]. May park.
    pub fn run(&self, cx: &mut Cx, mut free: impl FnMut(&mut Cx, Forgotten)) {
        while let Some(mut inode) = self.inodes.recv(cx) {
            cx.sleep(LINGER);
            loop {
                free(cx, inode);
                self.done();
                match self.inodes.try_recv() {
                    Ok(next) => inode = next,
                    Err(_) => break,
                }
            }
        }
    }

    /// The mount ends. Inodes that are queued are still freed.
    pub fn close(&self) {
        self.inodes.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// After `wait_empty` queued inodes are freed, each once and in order. `close` lets the rest
    /// be freed; a later `push` returns the inode.
    #[test]
    fn each_queued_inode_is_freed_once() {
        for seed in 0..50 {
            let mut world = rt::World::new(rt::WorldConfig::exploring(seed));
            let freed = world.run("free", |cx| {
                let queue = Arc::new(ForgetQueue::new());
                let task = cx.spawn("task", {
                    let queue = queue.clone();
                    move |cx| {
                        let mut freed = Vec::new();
                        queue.run(cx, |cx, (ino, _)| {
                            cx.sleep(Nanos::from_micros(10));
                            freed.push(ino.0);
                        });
                        freed
                    }
                });
                let push_20 = |from: u64| {
                    assert!((from..from + 20).all(|ino| queue.push((Ino(ino), 1)).is_none()));
                };
                push_20(0);
                queue.wait_empty(cx);
                assert!(!queue.is_pending());
                push_20(20);
                queue.close();
                assert_eq!(queue.push((Ino(99), 1)), Some((Ino(99), 1)));
                task.join(cx)
            });
            assert_eq!(freed, (0..40).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
