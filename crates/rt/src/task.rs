//! Tasks as the rest of the crate sees them: identity, the park permit, and waking.

use crate::sync::completion::Completion;
use crate::sync::shim::{AtomicU32, AtomicU64, Ordering, Thread, park, park_timeout};
use crate::{Cx, Runtime};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// Names a task, from 1, in the order of spawning; never used twice in one runtime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({})", self.0)
    }
}

/// No permit, running.
const EMPTY: u32 = 0;
/// Parked: whoever wakes it must make it runnable.
const PARKED: u32 = 1;
/// A wake came; the next park returns at once.
const NOTIFIED: u32 = 2;

/// What a parked task waits for, for the deadlock report.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub why: &'static str,
    /// Name of the lock or queue, or empty.
    pub name: &'static str,
    /// A number that the caller of `park` chose.
    pub what: u64,
    /// Where the lock keeps its holder's id. Valid while the task is parked: the fiber that waits
    /// borrows the lock.
    pub owner: Option<NonNull<AtomicU64>>,
}

impl Wait {
    pub fn on_lock(why: &'static str, name: &'static str, owner: &AtomicU64) -> Wait {
        Wait { why, name, what: 0, owner: Some(NonNull::from(owner)) }
    }

    pub fn on_queue(why: &'static str, name: &'static str) -> Wait {
        Wait { why, name, what: 0, owner: None }
    }
}

pub(crate) struct Task {
    pub id: TaskId,
    pub name: Box<str>,
    pub rt: Runtime,
    /// Place in the world's table of fibers; 0 in real time.
    pub slot: u32,
    /// The OS thread, in real time.
    thread: Option<Thread>,
    permit: AtomicU32,
    /// Set by a lock that hands itself to this task, and by a timer that ends its wait.
    granted: AtomicU32,
}

impl Task {
    pub fn new(
        rt: Runtime,
        id: TaskId,
        name: &str,
        slot: u32,
        thread: Option<Thread>,
    ) -> Arc<Task> {
        Arc::new(Task {
            id,
            name: name.into(),
            rt,
            slot,
            thread,
            permit: AtomicU32::new(EMPTY),
            granted: AtomicU32::new(0),
        })
    }

    #[inline]
    pub fn wake(&self) {
        if self.permit.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            match &self.thread {
                Some(thread) => thread.unpark(),
                None => self.rt.make_ready(self),
            }
        }
    }

    pub fn clear_granted(&self) {
        self.granted.store(0, Ordering::Relaxed);
    }

    pub fn granted(&self) -> bool {
        self.granted.load(Ordering::Acquire) != 0
    }

    /// The caller wakes the task afterwards.
    pub fn grant(&self) {
        self.granted.store(1, Ordering::Release);
    }

    /// A timer's wake, which leaves a mark so that it is not cancelled afterwards. True where the
    /// caller must make the task runnable.
    #[inline]
    pub fn fire_timer(&self) -> bool {
        self.granted.store(1, Ordering::Release);
        self.permit.swap(NOTIFIED, Ordering::AcqRel) == PARKED
    }

    /// Uses up the permit, or says that the task must now suspend until [`Task::wake`].
    #[inline]
    pub fn must_suspend(&self) -> bool {
        let parked =
            self.permit.compare_exchange(EMPTY, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_err() {
            // Not a plain store: a second wake may have come since, and what it says must be seen.
            self.permit.swap(EMPTY, Ordering::AcqRel);
        }
        parked.is_ok()
    }

    /// After a suspension: the task runs again and its permit is used up.
    #[inline]
    pub fn resumed(&self) {
        self.permit.swap(EMPTY, Ordering::AcqRel);
    }

    /// Parks this OS thread, which is the task's own, until a wake or until `deadline`.
    pub fn park_thread(&self, deadline: Option<Instant>) {
        if !self.must_suspend() {
            return;
        }
        self.rt.while_asleep(self.id, || {
            while self.permit.load(Ordering::Acquire) != NOTIFIED {
                match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                    None => park(),
                    Some(left) if left.is_zero() => break,
                    Some(left) => park_timeout(left),
                }
            }
        });
        self.resumed();
    }
}

/// Makes a parked task run again. From any context and any thread; in virtual time a call from
/// another OS thread than the world's is safe but not deterministic.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<Task>);

impl Waker {
    /// Gives the task a permit: if it is parked it becomes runnable, else its next
    /// [`Cx::park`] returns at once. Several wakes are one permit. Never waits.
    #[inline]
    pub fn wake(&self) {
        self.0.wake();
    }

    /// The task that would be woken.
    pub fn task(&self) -> TaskId {
        self.0.id
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waker(task {} `{}`)", self.0.id, self.0.name)
    }
}

pub(crate) type Outcome<T> = std::thread::Result<T>;

/// The result of a spawned task, once there. Dropping it lets the task run on by itself.
pub struct JoinHandle<T> {
    pub(crate) id: TaskId,
    pub(crate) outcome: Arc<Completion<Outcome<T>>>,
}

impl<T> JoinHandle<T> {
    /// The task's id.
    pub fn task(&self) -> TaskId {
        self.id
    }

    /// True once the task has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.is_done()
    }

    /// The task's result. May park: waits for the end of the task.
    ///
    /// # Panics
    /// Where the task panicked, with its panic. (In virtual time a panic stops the world at once
    /// and comes out of [`World::run`](crate::World::run).)
    pub fn join(self, cx: &mut Cx) -> T {
        let wait = Wait { why: "the end of task", name: "", what: self.id.0, owner: None };
        match self.outcome.wait_reporting(cx, wait) {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
