//! Real time: OS threads, the machine's clock, and one thread for timers, started by the first
//! timer and stopped with the runtime.
#![allow(unsafe_code)]

use crate::Runtime;
use crate::exit::ExitHooks;
use crate::sync::shim::{self, AtomicU32, AtomicU64, Ordering};
use crate::task::{Task, TaskId};
use crate::timers::{Action, Callback, TimerId, Timers};
use base::{Nanos, Timespec};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Real {
    start: Instant,
    pub cpus: usize,
    pub seed: u64,
    last_task: AtomicU64,
    timers: Arc<Service>,
    pub exits: ExitHooks,
    pub asleep: Asleep,
}

/// How many tasks of each remainder of their ids sleep, for whoever wants to know whether the
/// holder of a lock does. A hint: several tasks share a count.
pub(crate) struct Asleep(Box<[AtomicU32]>);

impl Asleep {
    const COUNTS: usize = 1024;

    fn new() -> Asleep {
        Asleep((0..Asleep::COUNTS).map(|_| AtomicU32::new(0)).collect())
    }

    fn count(&self, task: u64) -> &AtomicU32 {
        &self.0[task as usize % Asleep::COUNTS]
    }

    /// False for task 0, which is none.
    pub fn any(&self, task: u64) -> bool {
        task != 0 && self.count(task).load(Ordering::Relaxed) != 0
    }

    pub fn during(&self, task: u64, f: impl FnOnce()) {
        self.count(task).fetch_add(1, Ordering::Relaxed);
        f();
        self.count(task).fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the timer thread and the users of timers share.
struct Service {
    start: Instant,
    state: Mutex<ServiceState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServiceState {
    timers: Timers,
    running: bool,
    stop: bool,
}

impl Real {
    pub fn new(cpus: usize, seed: u64) -> Real {
        let start = Instant::now();
        let timers = Arc::new(Service { start, state: Mutex::default(), changed: Condvar::new() });
        let exits = ExitHooks::default();
        let last_task = AtomicU64::new(0);
        Real { start, cpus, seed, last_task, timers, exits, asleep: Asleep::new() }
    }

    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    pub fn instant(&self, when: Nanos) -> Option<Instant> {
        self.start.checked_add(Duration::from_nanos(when.0))
    }

    pub fn next_task(&self) -> TaskId {
        TaskId(self.last_task.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn at(&self, when: Nanos, f: Callback) -> TimerId {
        let mut state = self.timers.lock();
        if !state.running {
            state.running = true;
            let service = self.timers.clone();
            let spawned =
                std::thread::Builder::new().name("rt-timers".into()).spawn(move || service.serve());
            spawned.expect("the system gives us a thread for timers");
        }
        let first = state.timers.next_time().is_none_or(|next| when < next);
        let id = state.timers.push(when, Action::Call(f));
        if first {
            self.timers.changed.notify_one();
        }
        id
    }

    pub fn cancel(&self, id: TimerId) -> bool {
        let action = self.timers.lock().timers.cancel(id);
        action.is_some()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let dropped = {
            let mut state = self.timers.lock();
            state.stop = true;
            std::mem::take(&mut state.timers)
        };
        self.timers.changed.notify_one();
        drop(dropped);
    }
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        // No callback runs under this lock, so nothing can be half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = Nanos(self.start.elapsed().as_nanos() as u64);
            if let Some(event) = state.timers.pop_due(now) {
                drop(state);
                if let Action::Call(f) = event.action {
                    // A broken callback is reported by the panic hook; the other timers go on.
                    let _ = catch_unwind(AssertUnwindSafe(|| f(now)));
                }
                state = self.lock();
                continue;
            }
            let wait = state.timers.next_time().map(|next| Duration::from_nanos(next.since(now).0));
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let waited = self.changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Starts an OS thread that becomes task `id`.
///
/// # Panics
/// Where the system refuses a thread.
pub(crate) fn spawn_thread(
    rt: &Runtime,
    id: TaskId,
    name: &str,
    body: impl FnOnce(Arc<Task>) + Send + 'static,
) {
    let (rt, name) = (rt.clone(), name.to_owned());
    shim::spawn(name.clone(), move || {
        body(Task::new(rt, id, &name, 0, Some(shim::current())));
    });
}

/// A seed that differs between processes.
pub(crate) fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The calendar time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn coarse_realtime() -> Timespec {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.expect("the clock of the host is past 1970");
    Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

/// `CLOCK_REALTIME_COARSE`: the time of the last tick, at a few nanoseconds' cost.
#[cfg(target_os = "linux")]
pub(crate) fn coarse_realtime() -> Timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for one timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    assert_eq!(failed, 0, "every Linux has CLOCK_REALTIME_COARSE");
    Timespec { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

#[cfg(all(test, not(iopath_shuttle)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Goal: a timer that panics does not take the others with it, and the thread ends with the
    /// runtime, whose remaining callbacks are dropped.
    #[test]
    fn the_timer_thread_survives_callbacks_and_ends_with_the_runtime() {
        let real = Real::new(1, 0);
        let service = Arc::downgrade(&real.timers);
        let (send, recv) = mpsc::channel();
        real.at(Nanos(0), Box::new(|_| panic!("as intended")));
        let sent = send.clone();
        real.at(Nanos(1000), Box::new(move |now| sent.send(now).expect("we listen")));
        assert!(recv.recv().expect("the timer fires") >= Nanos(1000));
        real.at(Nanos::MAX, Box::new(move |now| send.send(now).expect("it never comes to this")));
        drop(real);
        assert!(recv.recv().is_err(), "the callback was dropped");
        while service.strong_count() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
