//! The files of a mount whose content has arrived on the device before their blocks are written
//! ones: see [`dioread_nolock`](crate::MountOptions::dioread_nolock).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Ino, Nanos};
use rt::{Cx, Runtime, SpinLock, WaitQueue};

use crate::inode::Inode;

/// The files that wait for the task.
pub(crate) struct Arrivals {
    runtime: OnceLock<Runtime>,
    waiting: SpinLock<Waiting>,
    delay: WaitQueue,
    ended: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    files: BTreeMap<Ino, Arc<Inode>>,
    /// The task runs.
    running: bool,
}

impl Arrivals {
    /// None.
    pub fn none() -> Arrivals {
        Arrivals {
            runtime: OnceLock::new(),
            waiting: SpinLock::new(Waiting::default()),
            delay: WaitQueue::named("ext4 arrivals"),
            ended: AtomicBool::new(false),
        }
    }

    /// The task runs there from now on.
    pub fn run_in(&self, cx: &Cx) {
        self.runtime.get_or_init(|| cx.runtime().clone());
    }

    /// Event context: a file waits. `task` starts where none runs.
    pub fn enter(&self, inode: Arc<Inode>, task: impl FnOnce(&mut Cx) + Send + 'static) {
        let start = {
            let mut waiting = self.waiting.lock_irq();
            waiting.files.insert(inode.ino, inode);
            !std::mem::replace(&mut waiting.running, true)
        };
        if start && let Some(runtime) = self.runtime.get() {
            drop(runtime.spawn("ext4-arrived", task));
        }
    }

    /// The task: the next file; `None` where it has to end.
    pub fn next(&self, cx: &Cx) -> Option<Arc<Inode>> {
        let mut waiting = self.waiting.lock(cx);
        let next = waiting.files.values().next().filter(|_| !self.have_ended()).cloned();
        waiting.running = next.is_some();
        next
    }

    /// The file waits no longer, unless more of it has arrived.
    pub fn leave(&self, cx: &Cx, inode: &Inode) {
        let mut waiting = self.waiting.lock(cx);
        // The number may be that of a newer file by now.
        let is_it =
            waiting.files.get(&inode.ino).is_some_and(|known| std::ptr::eq(&**known, inode));
        if is_it && inode.arrived.lock(cx).is_empty() {
            waiting.files.remove(&inode.ino);
        }
    }

    /// All files that wait.
    pub fn all(&self, cx: &Cx) -> Vec<Arc<Inode>> {
        self.waiting.lock(cx).files.values().cloned().collect()
    }

    /// The task: what has arrived is taken to be under way for so long. May park.
    pub fn linger(&self, cx: &mut Cx, delay: Nanos) {
        if delay > Nanos::ZERO {
            self.delay.wait_until_timeout(cx, "the delay of arrivals", delay, || self.have_ended());
        }
    }

    /// The task has to end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.delay.wake_all();
    }

    fn have_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}
