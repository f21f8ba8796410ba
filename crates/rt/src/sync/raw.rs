//! The one algorithm under [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock).
//!
//! `state` counts readers and has three flags. A free lock may be taken by whoever comes first,
//! even before those who wait (a woken task needs microseconds to run, and the lock should not idle
//! meanwhile). Nobody starves: a waiter stays at its place in the queue until it has the lock, a
//! waiter that was woken and came too late sets `HANDOFF`, and then the next release gives the lock
//! to the head of the queue directly; new readers do not pass a queue at all.
//!
//! Whoever is woken is woken after `queue` is free again: waking is a system call in real time, and
//! the first thing that a woken waiter wants is the queue.

use super::shim::{AtomicU32, AtomicU64, Ordering, spin_loop};
use super::spin::{SpinGuard, SpinLock};
use crate::Cx;
use crate::task::{Task, Wait};
use std::collections::VecDeque;
use std::sync::Arc;

/// Held by a writer.
const WRITER: u32 = 1;
/// The queue is not empty: a release must look at it.
const WAITERS: u32 = 2;
/// The head of the queue came too late once: only it may have the lock next.
const HANDOFF: u32 = 4;
/// One reader.
const READER: u32 = 8;
/// Looks at a held lock before parking, in real time. (An explored schedule would hardly ever come
/// past many of them.)
const SPINS: u32 = if cfg!(iopath_shuttle) { 1 } else { 40 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Read,
    Write,
}

struct Waiter {
    task: Arc<Task>,
    mode: Mode,
}

// Boxed: most locks never see a waiter, and there is one in every inode and buffer.
type Queue = Option<Box<VecDeque<Waiter>>>;

/// Tasks that have been given the lock and must be woken.
type Granted = Vec<Arc<Task>>;

pub(crate) struct RawLock {
    state: AtomicU32,
    queue: SpinLock<Queue>,
    /// Task id of the writer for reports, 0 for none.
    owner: AtomicU64,
}

impl RawLock {
    pub fn new() -> RawLock {
        RawLock {
            state: AtomicU32::new(0),
            queue: SpinLock::named("lock queue", None),
            owner: AtomicU64::new(0),
        }
    }

    /// Takes the lock if nobody holds it or waits for it. `owner` is for reports.
    #[inline]
    pub fn try_write(&self, owner: u64) -> bool {
        let free = self.state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            self.owner.store(owner, Ordering::Relaxed);
        }
        free.is_ok()
    }

    #[inline]
    pub fn try_read(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & (WRITER | WAITERS) == 0 {
            match self.state.compare_exchange_weak(
                state,
                state + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => state = seen,
            }
        }
        false
    }

    #[inline]
    pub fn write(&self, cx: &mut Cx, name: &'static str) {
        cx.preempt_point();
        if !self.try_write(cx.task().0) {
            self.wait(cx, Mode::Write, name);
        }
    }

    #[inline]
    pub fn read(&self, cx: &mut Cx, name: &'static str) {
        cx.preempt_point();
        if !self.try_read() {
            self.wait(cx, Mode::Read, name);
        }
    }

    #[inline]
    pub fn release_write(&self) {
        self.owner.store(0, Ordering::Relaxed);
        let alone = self.state.compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed);
        if alone.is_err() {
            self.release_slow(WRITER);
        }
    }

    #[inline]
    pub fn release_read(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state & WAITERS == 0 {
            let free = self.state.compare_exchange(
                state,
                state - READER,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if free.is_ok() {
                return;
            }
        }
        self.release_slow(READER);
    }

    /// Makes the writer a reader, without a moment in which the lock is free.
    pub fn downgrade(&self) {
        self.owner.store(0, Ordering::Relaxed);
        let mut queue = self.queue.lock_irq();
        self.state.fetch_add(READER - WRITER, Ordering::AcqRel);
        let granted = self.grant_readers(&mut queue);
        drop(queue);
        wake(granted);
    }

    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) & !(WAITERS | HANDOFF) != 0
    }

    /// Task id of the writer, 0 for none. May be late by the time the caller reads it.
    pub fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    #[cold]
    fn wait(&self, cx: &mut Cx, mode: Mode, name: &'static str) {
        if !cx.is_virtual() && self.spin(cx, mode) {
            return;
        }
        cx.settle();
        let me = cx.task_arc().clone();
        me.clear_granted();
        let mut queued = false;
        loop {
            let mut queue = self.queue.lock_irq();
            if queued && me.granted() {
                break;
            }
            if self.take_or_flag(&queue, &me, mode, queued) {
                if queued {
                    remove(&mut queue, &me);
                }
                let others = match mode {
                    Mode::Read => self.grant_readers(&mut queue),
                    Mode::Write => Granted::new(),
                };
                self.settle_flags(&queue);
                drop(queue);
                wake(others);
                break;
            }
            if !queued {
                let entry = Waiter { task: me.clone(), mode };
                queue.get_or_insert_default().push_back(entry);
                queued = true;
            }
            drop(queue);
            let why = if mode == Mode::Read { "read lock" } else { "lock" };
            cx.park_on(Wait::on_lock(why, name, &self.owner));
        }
        if mode == Mode::Write {
            self.owner.store(me.id.0, Ordering::Relaxed);
        }
    }

    /// Hopes, for a short time, that the holder is running and almost done.
    fn spin(&self, cx: &Cx, mode: Mode) -> bool {
        for _ in 0..SPINS {
            let state = self.state.load(Ordering::Relaxed);
            if state & HANDOFF != 0 {
                return false;
            }
            let taken = match mode {
                Mode::Write => state == 0 && self.try_write(cx.task().0),
                Mode::Read => self.try_read(),
            };
            if taken {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// With the queue locked: takes the lock if `me` may have it, else makes sure that the next
    /// release sees the queue.
    fn take_or_flag(&self, queue: &Queue, me: &Arc<Task>, mode: Mode, queued: bool) -> bool {
        let head = queue.as_ref().and_then(|q| q.front());
        let am_head = head.is_some_and(|w| Arc::ptr_eq(&w.task, me));
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let holders = state & !(WAITERS | HANDOFF);
            let fits = match mode {
                Mode::Write => holders == 0,
                Mode::Read => state & WRITER == 0 && (am_head || state & WAITERS == 0),
            };
            let take = fits && (am_head || state & HANDOFF == 0);
            let next = match (take, mode) {
                (true, Mode::Write) => state | WRITER,
                (true, Mode::Read) => state + READER,
                (false, _) if queued && am_head => state | WAITERS | HANDOFF,
                (false, _) => state | WAITERS,
            };
            match self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return take,
                Err(seen) => state = seen,
            }
        }
    }

    /// With the queue locked, after the holder of the lock or the head has changed: `WAITERS` says
    /// whether the queue is empty, and a new head has not come too late yet.
    fn settle_flags(&self, queue: &Queue) {
        if queue.as_ref().is_none_or(|q| q.is_empty()) {
            self.state.fetch_and(!(WAITERS | HANDOFF), Ordering::AcqRel);
        } else {
            self.state.fetch_and(!HANDOFF, Ordering::AcqRel);
        }
    }

    /// With the queue locked and a reader inside: lets in the readers at the head of the queue.
    /// The caller wakes them once the queue is free.
    fn grant_readers(&self, queue: &mut SpinGuard<'_, Queue>) -> Granted {
        let mut granted = Granted::new();
        let Some(waiters) = queue.as_mut() else { return granted };
        while waiters.front().is_some_and(|w| w.mode == Mode::Read) {
            self.state.fetch_add(READER, Ordering::AcqRel);
            let waiter = waiters.pop_front().expect("the front was just seen");
            waiter.task.grant();
            granted.push(waiter.task);
        }
        if !granted.is_empty() {
            self.settle_flags(queue);
        }
        granted
    }

    /// Gives back one `unit` (a writer or a reader) of a lock that somebody waits for, or whose
    /// state changed under the fast path.
    #[cold]
    fn release_slow(&self, unit: u32) {
        let mut queue = self.queue.lock_irq();
        let state = self.state.load(Ordering::Relaxed);
        // Bits may still change under us: readers leave by the fast path only where no one waits,
        // and whoever wants to wait needs the queue. What can change is the count of readers.
        let last = unit == WRITER || state & !(WAITERS | HANDOFF) == READER;
        let empty = queue.as_ref().is_none_or(|q| q.is_empty());
        if !last || empty || state & HANDOFF == 0 {
            let before = self.state.fetch_sub(unit, Ordering::AcqRel);
            let free = (before - unit) & !(WAITERS | HANDOFF) == 0;
            let head = queue.as_ref().and_then(|q| q.front()).filter(|_| free);
            let head = head.map(|waiter| waiter.task.clone());
            drop(queue);
            if let Some(head) = head {
                head.wake();
            }
            return;
        }
        let head = queue.as_mut().and_then(|q| q.pop_front()).expect("the queue has a head");
        let (take, owner) = match head.mode {
            Mode::Write => (WRITER, head.task.id.0),
            Mode::Read => (READER, 0),
        };
        // Both in one step: the lock is never seen free.
        self.state.fetch_add(take.wrapping_sub(unit), Ordering::AcqRel);
        self.owner.store(owner, Ordering::Relaxed);
        head.task.grant();
        let others = match head.mode {
            Mode::Read => self.grant_readers(&mut queue),
            Mode::Write => Granted::new(),
        };
        self.settle_flags(&queue);
        drop(queue);
        head.task.wake();
        wake(others);
    }
}

fn wake(granted: Granted) {
    granted.iter().for_each(|task| task.wake());
}

fn remove(queue: &mut Queue, me: &Arc<Task>) {
    if let Some(waiters) = queue
        && let Some(at) = waiters.iter().position(|w| Arc::ptr_eq(&w.task, me))
    {
        waiters.remove(at);
    }
}
