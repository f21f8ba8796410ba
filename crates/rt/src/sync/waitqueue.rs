//! Waiting for a condition that another task makes true.

use super::shim::{AtomicU32, Ordering, fence};
use super::spin::SpinLock;
use crate::Cx;
use crate::task::{Task, Wait};
use base::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue of tasks that wait for a condition, as Linux's `wait_queue_head_t`.
///
/// Whoever makes the condition true wakes the queue *afterwards*; the waiters look at the condition
/// themselves, so waking too often is harmless.
pub struct WaitQueue {
    name: &'static str,
    /// Length of `list`, so that waking an empty queue costs no lock.
    waiting: AtomicU32,
    list: SpinLock<VecDeque<Arc<Task>>>,
}

impl WaitQueue {
    /// An empty queue without a name.
    pub fn new() -> Self {
        WaitQueue::named("wait queue")
    }

    /// An empty queue that reports call `name`.
    pub fn named(name: &'static str) -> Self {
        WaitQueue {
            name,
            waiting: AtomicU32::new(0),
            list: SpinLock::named("wait queue list", VecDeque::new()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until `cond` is true; returns at once where it is. `cond` may take spin locks
    /// (`lock_irq`) and must not wait; it runs in the waiter, any number of times. May park.
    pub fn wait_until(&self, cx: &mut Cx, why: &'static str, mut cond: impl FnMut() -> bool) {
        self.wait_for(cx, why, || cond().then_some(()));
    }

    /// Waits until `poll` answers with a value, under the rules of
    /// [`wait_until`](WaitQueue::wait_until). May park.
    pub fn wait_for<T>(
        &self,
        cx: &mut Cx,
        why: &'static str,
        poll: impl FnMut() -> Option<T>,
    ) -> T {
        self.wait_deadline(cx, Wait::on_queue(why, self.name), None, poll)
            .expect("a wait without a deadline gets its value")
    }

    /// Waits until `cond` is true or `timeout` has passed; returns the last look at `cond`. May
    /// park.
    pub fn wait_until_timeout(
        &self,
        cx: &mut Cx,
        why: &'static str,
        timeout: Nanos,
        mut cond: impl FnMut() -> bool,
    ) -> bool {
        let deadline = cx.now() + timeout;
        let wait = Wait::on_queue(why, self.name);
        self.wait_deadline(cx, wait, Some(deadline), || cond().then_some(())).is_some()
    }

    pub(crate) fn wait_deadline<T>(
        &self,
        cx: &mut Cx,
        wait: Wait,
        deadline: Option<Nanos>,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = poll() {
            return Some(value);
        }
        cx.settle();
        let me = cx.task_arc().clone();
        loop {
            self.enqueue(&me);
            if let Some(value) = poll() {
                // A wake that came meanwhile was not needed here: another waiter may live on it.
                if !self.dequeue(&me) {
                    self.wake_one();
                }
                return Some(value);
            }
            match deadline {
                Some(deadline) => cx.park_until(wait, deadline),
                None => cx.park_on(wait),
            }
            // Off the list before the look: a wake from here on goes to another waiter.
            self.dequeue(&me);
            if let Some(value) = poll() {
                return Some(value);
            }
            if deadline.is_some_and(|deadline| cx.now() >= deadline) {
                return None;
            }
        }
    }

    fn enqueue(&self, me: &Arc<Task>) {
        let mut list = self.list.lock_irq();
        list.push_back(me.clone());
        self.waiting.store(list.len() as u32, Ordering::Relaxed);
        // Before the look at the condition that follows; the other half is in `has_waiters`.
        fence(Ordering::SeqCst);
    }

    /// False where a wake has taken `me` off the list already.
    fn dequeue(&self, me: &Arc<Task>) -> bool {
        let mut list = self.list.lock_irq();
        let found = list.iter().position(|t| Arc::ptr_eq(t, me));
        if let Some(at) = found {
            list.remove(at);
            self.waiting.store(list.len() as u32, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Wakes the task that has waited longest. Any context; never waits.
    pub fn wake_one(&self) {
        if !self.has_waiters() {
            return;
        }
        let task = {
            let mut list = self.list.lock_irq();
            let task = list.pop_front();
            self.waiting.store(list.len() as u32, Ordering::Relaxed);
            task
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Wakes all the tasks that wait, in the order in which they came. Any context; never waits.
    pub fn wake_all(&self) {
        if !self.has_waiters() {
            return;
        }
        let tasks = {
            let mut list = self.list.lock_irq();
            self.waiting.store(0, Ordering::Relaxed);
            std::mem::take(&mut *list)
        };
        tasks.iter().for_each(|task| task.wake());
    }

    /// True while a task waits. The fence orders the caller's change of the condition before the
    /// look, as `smp_mb()` before Linux's `waitqueue_active()`.
    pub fn has_waiters(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) != 0
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        WaitQueue::new()
    }
}
