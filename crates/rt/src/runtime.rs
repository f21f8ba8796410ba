//! The handle to a clock and its tasks, real or virtual.

use crate::cx::Inherit;
use crate::exit::ExitHooks;
use crate::real::Real;
use crate::sync::completion::Completion;
use crate::task::{Outcome, Task, TaskId};
use crate::timers::{Callback, TimerId};
use crate::world::state::{Body, Virtual};
use crate::{Charges, Cx, JoinHandle, OnIocExit};
use base::{Nanos, Timespec};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A clock with its tasks, timers and processors. A cheap handle; all clones are one runtime.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

// One of each exists per runtime, and the clock is asked often: no box between.
#[allow(clippy::large_enum_variant)]
enum Inner {
    Real(Real),
    Virtual(Virtual),
}

impl Runtime {
    /// A runtime in real time: tasks are OS threads. `cpus` (at least 1) is the number of per-CPU
    /// structures that the layers above keep, not a limit on threads.
    pub fn real(cpus: usize) -> Runtime {
        Runtime::real_seeded(cpus, crate::real::entropy())
    }

    /// As [`Runtime::real`], with random streams that follow from `seed`.
    pub fn real_seeded(cpus: usize, seed: u64) -> Runtime {
        Runtime(Arc::new(Inner::Real(Real::new(cpus.max(1), seed))))
    }

    pub(crate) fn of_world(virt: Virtual) -> Runtime {
        Runtime(Arc::new(Inner::Virtual(virt)))
    }

    /// Time since the runtime began.
    #[inline]
    pub fn now(&self) -> Nanos {
        match &*self.0 {
            Inner::Real(real) => real.now(),
            Inner::Virtual(virt) => virt.now(),
        }
    }

    /// Calendar time. In real time this is the coarse clock that Linux takes for inode times too:
    /// it steps with the timer tick (1 to 10 ms). In virtual time it is the world's epoch plus
    /// [`now`](Runtime::now).
    pub fn realtime(&self) -> Timespec {
        match &*self.0 {
            Inner::Real(_) => crate::real::coarse_realtime(),
            Inner::Virtual(virt) => virt.epoch.after(virt.now()),
        }
    }

    /// True in virtual time.
    #[inline]
    pub fn is_virtual(&self) -> bool {
        matches!(&*self.0, Inner::Virtual(_))
    }

    /// Number of processors, at least 1.
    #[inline]
    pub fn cpus(&self) -> usize {
        match &*self.0 {
            Inner::Real(real) => real.cpus,
            Inner::Virtual(virt) => virt.cpus,
        }
    }

    /// The seed that all random streams follow from.
    pub fn seed(&self) -> u64 {
        match &*self.0 {
            Inner::Real(real) => real.seed,
            Inner::Virtual(virt) => virt.seed,
        }
    }

    /// Makes this OS thread a task named `name` while `f` runs. Any number of threads may be inside
    /// at once.
    ///
    /// # Panics
    /// In virtual time, where [`World::run`](crate::World::run) is the way in.
    pub fn enter<T>(&self, name: &str, f: impl FnOnce(&mut Cx) -> T) -> T {
        let Inner::Real(real) = &*self.0 else {
            panic!("a world is entered with World::run");
        };
        let thread = Some(crate::sync::shim::current());
        let task = Task::new(self.clone(), real.next_task(), name, 0, thread);
        f(&mut Cx::new(task, None, Inherit::default()))
    }

    /// Starts a task with root's credentials, where no [`Cx`] is at hand. Never waits.
    pub fn spawn<T, F>(&self, name: &str, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx) -> T + Send + 'static,
    {
        self.spawn_from(name, Inherit::default(), f)
    }

    pub(crate) fn spawn_from<T, F>(&self, name: &str, inherit: Inherit, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx) -> T + Send + 'static,
    {
        let outcome = Arc::new(Completion::<Outcome<T>>::new());
        let theirs = outcome.clone();
        let id = match &*self.0 {
            Inner::Real(real) => {
                let id = real.next_task();
                crate::real::spawn_thread(self, id, name, move |task| {
                    let run = || f(&mut Cx::new(task, None, inherit));
                    theirs.complete(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
                });
                id
            }
            Inner::Virtual(virt) => {
                let body: Body = Box::new(move |cx| {
                    let value = f(cx);
                    cx.settle();
                    theirs.complete(Ok(value));
                });
                virt.spawn(self, name, inherit, body)
            }
        };
        JoinHandle { id, outcome }
    }

    /// Reports to `hook`, while it lives, the end of every task's own I/O context.
    pub fn on_ioc_exit(&self, hook: Weak<dyn OnIocExit>) {
        self.exits().add(hook);
    }

    pub(crate) fn ioc_exited(&self, ioc: u64) {
        self.exits().call(ioc);
    }

    fn exits(&self) -> &ExitHooks {
        match &*self.0 {
            Inner::Real(real) => &real.exits,
            Inner::Virtual(virt) => &virt.exits,
        }
    }

    /// Calls `f` in event context at `when` (at once if that is past), with the time at which it
    /// happens. `f` must not wait and should be short: in real time one thread serves all timers.
    pub fn at(&self, when: Nanos, f: Callback) -> TimerId {
        match &*self.0 {
            Inner::Real(real) => real.at(when, f),
            Inner::Virtual(virt) => virt.at(when, f),
        }
    }

    /// Takes back an event; false where it has happened, is happening or was cancelled.
    pub fn cancel(&self, id: TimerId) -> bool {
        match &*self.0 {
            Inner::Real(real) => real.cancel(id),
            Inner::Virtual(virt) => virt.cancel(id),
        }
    }

    /// Adds an observation to the world's event hash and to its ring of last events. Nothing in
    /// real time. `tag` shows what `value` is; the layers choose their own.
    pub fn note(&self, tag: u64, value: u64) {
        if let Inner::Virtual(virt) = &*self.0 {
            virt.note(tag, value);
        }
    }

    #[inline]
    pub(crate) fn make_ready(&self, task: &Task) {
        self.virt().make_ready(task);
    }

    #[inline]
    pub(crate) fn virt(&self) -> &Virtual {
        match &*self.0 {
            Inner::Virtual(virt) => virt,
            Inner::Real(_) => unreachable!("a fiber belongs to a world"),
        }
    }

    #[inline]
    pub(crate) fn preempts(&self) -> bool {
        matches!(&*self.0, Inner::Virtual(virt) if virt.preempt > 0)
    }

    /// The cost of named work, where there is any.
    #[inline]
    pub(crate) fn charges(&self) -> Option<&Charges> {
        match &*self.0 {
            Inner::Virtual(virt) => virt.charges.as_deref(),
            Inner::Real(_) => None,
        }
    }

    /// Whether the task of this id is known to sleep, in real time; another one may be meant.
    #[inline]
    pub(crate) fn sleeps(&self, task: u64) -> bool {
        matches!(&*self.0, Inner::Real(real) if real.asleep.any(task))
    }

    /// Counts a task of real time as asleep while `f` runs.
    pub(crate) fn while_asleep(&self, task: TaskId, f: impl FnOnce()) {
        match &*self.0 {
            Inner::Real(real) => real.asleep.during(task.0, f),
            Inner::Virtual(_) => f(),
        }
    }

    /// The instant of `when`; `None` beyond the clock's range.
    pub(crate) fn instant(&self, when: Nanos) -> Option<Instant> {
        match &*self.0 {
            Inner::Real(real) => real.instant(when),
            Inner::Virtual(_) => None,
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = if self.is_virtual() { "virtual" } else { "real" };
        write!(f, "Runtime({clock}, {} cpus, at {})", self.cpus(), self.now())
    }
}
