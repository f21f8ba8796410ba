//! Inodes without names that the kernel has forgotten: their space is freed by a task of its own,
//! many after each other, so that no request waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Ino, Nanos};
use rt::{Channel, Cx, WaitQueue};

/// Inodes that wait, at most: beyond them whoever forgets frees.
const WAITING_MAX: usize = 1024;
/// How long the first one waits for more of them.
const LINGER: Nanos = Nanos::from_millis(1);
/// How long whoever counts free space waits for it.
const SETTLE: Nanos = Nanos::from_millis(100);

/// An inode, and how often it is open in the file system.
pub(crate) type Free = (Ino, u32);

/// Inodes on their way to the task that frees them.
pub(crate) struct Frees {
    queue: Channel<Free>,
    /// Handed over and not freed yet.
    pending: AtomicUsize,
    settled: WaitQueue,
}

impl Frees {
    pub fn new() -> Frees {
        Frees {
            queue: Channel::named("fuse frees", WAITING_MAX),
            pending: AtomicUsize::new(0),
            settled: WaitQueue::named("fuse frees"),
        }
    }

    /// Hands an inode over; gives it back where too many wait, or after the end. Never waits.
    pub fn push(&self, free: Free) -> Option<Free> {
        self.pending.fetch_add(1, Ordering::SeqCst);
        if self.queue.try_send(free).is_ok() {
            return None;
        }
        self.done();
        Some(free)
    }

    fn done(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.settled.wake_all();
        }
    }

    /// Whether something handed over is not freed yet.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    /// Waits a while until what was handed over is freed. May park.
    pub fn settle(&self, cx: &mut Cx) {
        self.settled.wait_until_timeout(cx, "freed inodes", SETTLE, || !self.is_pending());
    }

    /// Frees by `work` whatever is handed over, until [`Frees::close`]. May park.
    pub fn run(&self, cx: &mut Cx, mut work: impl FnMut(&mut Cx, Free)) {
        while let Some(mut free) = self.queue.recv(cx) {
            cx.sleep(LINGER);
            loop {
                work(cx, free);
                self.done();
                match self.queue.try_recv() {
                    Ok(next) => free = next,
                    Err(_) => break,
                }
            }
        }
    }

    /// The mount ends: what was handed over is freed yet.
    pub fn close(&self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Whoever counts free space finds what was handed over freed, each once and in order; at the
    /// end the rest is freed, and later ones are given back.
    #[test]
    fn what_is_handed_over_is_freed_once() {
        for seed in 0..50 {
            let mut world = rt::World::new(rt::WorldConfig::exploring(seed));
            let freed = world.run("free", |cx| {
                let frees = Arc::new(Frees::new());
                let task = cx.spawn("task", {
                    let frees = frees.clone();
                    move |cx| {
                        let mut freed = Vec::new();
                        frees.run(cx, |cx, (ino, _)| {
                            cx.sleep(Nanos::from_micros(10));
                            freed.push(ino.0);
                        });
                        freed
                    }
                });
                let hand_over = |from: u64| {
                    assert!((from..from + 20).all(|ino| frees.push((Ino(ino), 1)).is_none()));
                };
                hand_over(0);
                frees.settle(cx);
                assert!(!frees.is_pending());
                hand_over(20);
                frees.close();
                assert_eq!(frees.push((Ino(99), 1)), Some((Ino(99), 1)));
                task.join(cx)
            });
            assert_eq!(freed, (0..40).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
