//! The one algorithm under [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock).
//!
//! `state` counts readers and has four flags. A free lock may be taken by whoever comes first,
//! even before those who wait (a woken task needs microseconds to run, and the lock should not idle
//! meanwhile). Nobody starves: a waiter stays at its place in the queue until it has the lock, the
//! head of the queue that has waited too long gets it directly from whoever releases it, and new
//! readers do not pass a queue at all. Too long is, in virtual time, having been woken and come too
//! late (`HANDOFF`); in real time, having been the head for [`PATIENCE`].
//!
//! In real time, whoever finds the lock held looks at it for a while before it sleeps ([`SPIN`]),
//! unless the holder sleeps itself. Of the writers only one looks at a time (`SPINNING`): the
//! others sleep, and are not woken while it looks, since it is there sooner than they would be.
//!
//! Whoever is woken is woken after `queue` is free again: waking is a system call in real time, and
//! the first thing that a woken waiter wants is the queue.

use super::shim::{AtomicU32, AtomicU64, Ordering, spin_loop};
use super::spin::{SpinGuard, SpinLock};
use crate::Cx;
use crate::task::{Task, Wait};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Held by a writer.
const WRITER: u32 = 1;
/// The queue is not empty: a release must look at it.
const WAITERS: u32 = 2;
/// The head of the queue has waited too long: only it may have the lock next.
const HANDOFF: u32 = 4;
/// A writer that does not sleep looks at the lock: a release need not wake anybody.
const SPINNING: u32 = 8;
/// One reader.
const READER: u32 = 16;
/// The part of the state that says who holds the lock.
const HOLDERS: u32 = !(WAITERS | HANDOFF | SPINNING);

/// How long a waiter looks at a held lock before it sleeps, in real time: about as long as it takes
/// to put a thread to sleep and to wake it, so that looking in vain costs no more than it may save.
const SPIN: Duration = Duration::from_micros(40);
/// How long the head of the queue is passed by others in real time (as Linux's `rw_semaphore`).
const PATIENCE: Duration = Duration::from_millis(4);
/// Pauses between the first two looks, and at most between two: they double. A look takes the cache
/// line away from the holder; and a holder that comes back at once may have the lock again between
/// two looks, with all that it guards still in the cache of its processor. (An explored schedule
/// would hardly ever come past many looks.)
const PAUSES: (u32, u32) = if cfg!(iopath_shuttle) { (1, 1) } else { (4, 64) };
/// Pauses between two questions whether to go on looking.
const PAUSES_ASK: u32 = if cfg!(iopath_shuttle) { 1 } else { 128 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// How a writer's looking ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spun {
    /// The lock was taken.
    Taken,
    /// It is no longer needed.
    Done,
    /// Neither.
    InVain,
}

struct Waiter {
    task: Arc<Task>,
    mode: Mode,
}

#[derive(Default)]
struct Waiters {
    list: VecDeque<Waiter>,
    /// Since when the head is the head; none in virtual time.
    since: Option<Instant>,
}

impl Waiters {
    /// The head may not be passed any more, now that it was woken and came too late or that
    /// somebody else releases the lock.
    fn overdue(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    fn new_head(&mut self) {
        if self.since.is_some() {
            self.since = Some(Instant::now());
        }
    }

    fn pop(&mut self) -> Option<Waiter> {
        self.new_head();
        self.list.pop_front()
    }
}

// Boxed: most locks never see a waiter, and there is one in every inode and buffer.
type Queue = Option<Box<Waiters>>;

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
        let taken = match free {
            Ok(_) => true,
            // Whoever looks at the lock may have lost its processor.
            Err(SPINNING) => self.take_from_spinner(),
            Err(_) => false,
        };
        if taken {
            self.owner.store(owner, Ordering::Relaxed);
        }
        taken
    }

    #[cold]
    fn take_from_spinner(&self) -> bool {
        let (free, taken) = (SPINNING, SPINNING | WRITER);
        self.state.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
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

    /// As [`RawLock::write`], unless `done` is true first; true where the lock was taken. Whoever
    /// sleeps has it taken in the end. `done` stays true.
    pub fn write_unless(
        &self,
        cx: &mut Cx,
        name: &'static str,
        done: impl FnMut() -> bool,
    ) -> bool {
        cx.preempt_point();
        if self.try_write(cx.task().0) {
            return true;
        }
        let spun = if cx.is_virtual() { Spun::InVain } else { self.spin_to_write(cx, done) };
        if spun == Spun::InVain {
            self.queue_up(cx, Mode::Write, name);
        }
        spun != Spun::Done
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
        self.release(WRITER, WRITER);
    }

    #[inline]
    pub fn release_read(&self) {
        self.release(self.state.load(Ordering::Relaxed), READER);
    }

    /// Gives back one `unit` of a lock whose state was `state` not long ago.
    #[inline]
    fn release(&self, mut state: u32, unit: u32) {
        while state & WAITERS == 0 {
            let next = state - unit;
            match self.state.compare_exchange(state, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => state = seen,
            }
        }
        self.release_slow(unit);
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
        self.state.load(Ordering::Relaxed) & HOLDERS != 0
    }

    /// Task id of the writer, 0 for none. May be late by the time the caller reads it.
    pub fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    #[cold]
    fn wait(&self, cx: &mut Cx, mode: Mode, name: &'static str) {
        if cx.is_virtual() || !self.spin(cx, mode) {
            self.queue_up(cx, mode, name);
        }
    }

    /// Takes the lock, and sleeps in its queue until that is done.
    fn queue_up(&self, cx: &mut Cx, mode: Mode, name: &'static str) {
        let real = !cx.is_virtual();
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
            if queued {
                let looks = real && is_head(&queue, &me);
                drop(queue);
                if looks && self.spin_as_head(cx, mode) {
                    continue;
                }
            } else {
                let waiters = queue.get_or_insert_default();
                if waiters.list.is_empty() {
                    waiters.since = (real && !cfg!(iopath_shuttle)).then(Instant::now);
                }
                waiters.list.push_back(Waiter { task: me.clone(), mode });
                queued = true;
                drop(queue);
            }
            let why = if mode == Mode::Read { "read lock" } else { "lock" };
            cx.park_on(Wait::on_lock(why, name, &self.owner));
        }
        if mode == Mode::Write {
            self.owner.store(me.id.0, Ordering::Relaxed);
        }
    }

    /// Hopes, for a short time, that the holder is running and almost done; true where the lock was
    /// taken. Of the writers one at a time.
    fn spin(&self, cx: &Cx, mode: Mode) -> bool {
        if mode == Mode::Write {
            return self.spin_to_write(cx, || false) == Spun::Taken;
        }
        let mut taken = false;
        let look = |lock: &RawLock, state| {
            taken = lock.try_read();
            taken || state & WAITERS != 0
        };
        self.look_until(cx, look, || false);
        taken
    }

    /// The same for a writer, which stops where `done` is true.
    fn spin_to_write(&self, cx: &Cx, mut done: impl FnMut() -> bool) -> Spun {
        if self.state.fetch_or(SPINNING, Ordering::Relaxed) & SPINNING != 0 {
            return Spun::InVain;
        }
        let mut taken = false;
        let look = |lock: &RawLock, state| {
            if state & HOLDERS == 0 && state & HANDOFF == 0 {
                let next = state & !SPINNING | WRITER;
                let cas =
                    lock.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed);
                taken = cas.is_ok();
            }
            taken || state & HANDOFF != 0
        };
        self.look_until(cx, look, &mut done);
        if taken {
            self.owner.store(cx.task().0, Ordering::Relaxed);
            return Spun::Taken;
        }
        // If the lock is free now and somebody sleeps, nobody was woken: the caller takes the lock
        // and wakes him by its release.
        let last = self.state.fetch_and(!SPINNING, Ordering::AcqRel);
        let sleepers_only = last & WAITERS != 0 && last & HOLDERS == 0;
        if !sleepers_only && done() { Spun::Done } else { Spun::InVain }
    }

    /// The same for the head of the queue; true where it must look at the queue again.
    fn spin_as_head(&self, cx: &Cx, mode: Mode) -> bool {
        let blocked = if mode == Mode::Read { WRITER } else { HOLDERS };
        let writer = mode == Mode::Write;
        if writer && self.state.fetch_or(SPINNING, Ordering::Relaxed) & SPINNING != 0 {
            return false;
        }
        let me = cx.task_arc();
        self.look_until(cx, |_, state| state & blocked == 0 || me.granted(), || false);
        let last = match writer {
            true => self.state.fetch_and(!SPINNING, Ordering::AcqRel),
            false => self.state.load(Ordering::Relaxed),
        };
        last & blocked == 0 || me.granted()
    }

    /// Looks at the state until `done`, or until it is not worth while any more; between two looks
    /// until `meanwhile` is true, which does not disturb the holder.
    fn look_until(
        &self,
        cx: &Cx,
        mut done: impl FnMut(&RawLock, u32) -> bool,
        mut meanwhile: impl FnMut() -> bool,
    ) {
        let (mut until, mut pauses, mut unasked) = (None, PAUSES.0, 0);
        while !done(self, self.state.load(Ordering::Relaxed)) {
            let mut pause = || {
                spin_loop();
                meanwhile()
            };
            if (0..pauses).any(|_| pause()) {
                return;
            }
            unasked += pauses;
            pauses = PAUSES.1.min(2 * pauses);
            if unasked < PAUSES_ASK {
                continue;
            }
            unasked = 0;
            if cfg!(iopath_shuttle) || cx.runtime().sleeps(self.owner()) {
                return;
            }
            let now = Instant::now();
            if now >= *until.get_or_insert(now + SPIN) {
                return;
            }
        }
    }

    /// With the queue locked: takes the lock if `me` may have it, else makes sure that the next
    /// release sees the queue.
    fn take_or_flag(&self, queue: &Queue, me: &Arc<Task>, mode: Mode, queued: bool) -> bool {
        let am_head = is_head(queue, me);
        // In virtual time whoever was woken and came too late.
        let late = || queue.as_ref().is_some_and(|q| q.since.is_none() || q.overdue());
        let insists = queued && am_head && late();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let fits = match mode {
                Mode::Write => state & HOLDERS == 0,
                Mode::Read => state & WRITER == 0 && (am_head || state & WAITERS == 0),
            };
            let take = fits && (am_head || state & HANDOFF == 0);
            let next = match (take, mode) {
                (true, Mode::Write) => state | WRITER,
                (true, Mode::Read) => state + READER,
                (false, _) if insists => state | WAITERS | HANDOFF,
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
        if queue.as_ref().is_none_or(|q| q.list.is_empty()) {
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
        while waiters.list.front().is_some_and(|w| w.mode == Mode::Read) {
            self.state.fetch_add(READER, Ordering::AcqRel);
            let waiter = waiters.pop().expect("the front was just seen");
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
        let last = unit == WRITER || state & HOLDERS == READER;
        let head = queue.as_ref().and_then(|q| q.list.front());
        let due = state & HANDOFF != 0 || queue.as_ref().is_some_and(|q| q.overdue());
        if !last || head.is_none() || !due {
            let before = self.state.fetch_sub(unit, Ordering::AcqRel);
            let free = (before - unit) & HOLDERS == 0 && before & SPINNING == 0;
            let head = head.filter(|_| free).map(|waiter| waiter.task.clone());
            drop(queue);
            if let Some(head) = head {
                head.wake();
            }
            return;
        }
        let head = queue.as_mut().and_then(|q| q.pop()).expect("the queue has a head");
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

fn is_head(queue: &Queue, me: &Arc<Task>) -> bool {
    let head = queue.as_ref().and_then(|q| q.list.front());
    head.is_some_and(|waiter| Arc::ptr_eq(&waiter.task, me))
}

fn remove(queue: &mut Queue, me: &Arc<Task>) {
    if let Some(waiters) = queue
        && let Some(at) = waiters.list.iter().position(|w| Arc::ptr_eq(&w.task, me))
    {
        waiters.list.remove(at);
        if at == 0 {
            waiters.new_head();
        }
    }
}
