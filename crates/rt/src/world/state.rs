//! The part of a world that its tasks, wakers and timers reach: the run queue, the event heap, the
//! processors, the hash and the ring of last events.
//!
//! It lies under one spin lock that is never contended (a world is one OS thread), but that makes
//! handles safe to send: a waker may be called from anywhere. No user code runs, and none is
//! dropped, under that lock.

use super::report::{Record, Ring};
use super::{Order, WorldConfig};
use crate::cx::Inherit;
use crate::exit::ExitHooks;
use crate::sync::shim::{AtomicU64, Ordering};
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::task::{Task, TaskId};
use crate::timers::{Action, Callback, Event, TimerId, Timers};
use crate::{Charges, Cx, Runtime};
use base::{EventHash, Nanos, Rng, Timespec};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) type Body = Box<dyn FnOnce(&mut Cx) + Send>;

/// Tasks that wait for a processor, and for how long they want it.
type CpuQueue = VecDeque<(Arc<Task>, Nanos)>;

/// Streams of the world's seed that are not a task's (those are the task ids).
const STREAM_ORDER: u64 = u64::MAX;
const STREAM_PREEMPT: u64 = u64::MAX - 1;

/// A task that was spawned and has no fiber yet.
pub(crate) struct Birth {
    pub task: Arc<Task>,
    pub inherit: Inherit,
    pub body: Body,
}

pub(crate) struct Virtual {
    pub seed: u64,
    pub cpus: usize,
    pub epoch: Timespec,
    /// Chance of a switch at a lock, in 1024ths.
    pub preempt: u32,
    /// The cost of named work; `None` where all of it is free.
    pub charges: Option<Box<Charges>>,
    now: AtomicU64,
    pub exits: ExitHooks,
    state: SpinLock<State>,
}

pub(crate) struct State {
    ready: Ready,
    timers: Timers,
    pub births: Vec<Birth>,
    free_slots: Vec<u32>,
    slots: u32,
    last_task: u64,
    preempt_rng: Rng,
    /// Processors that nobody occupies, and tasks that wait for one.
    cpus_free: usize,
    cpu_queue: CpuQueue,
    pub hash: EventHash,
    pub ring: Ring,
    /// The world is being dropped: nothing more shall happen.
    dead: bool,
    pub switches: u64,
    pub events: u64,
}

struct Ready {
    /// Slot and id of each runnable task.
    queue: VecDeque<(u32, TaskId)>,
    order: Order,
    rng: Rng,
}

impl Ready {
    #[inline]
    fn push(&mut self, task: &Task) {
        self.queue.push_back((task.slot, task.id));
    }

    #[inline]
    fn pop(&mut self) -> Option<(u32, TaskId)> {
        match self.order {
            Order::Fifo => self.queue.pop_front(),
            Order::Seeded if self.queue.len() > 1 => {
                let at = self.rng.below(self.queue.len() as u64) as usize;
                self.queue.swap_remove_back(at)
            }
            Order::Seeded => self.queue.pop_front(),
        }
    }
}

/// What the executor does next.
pub(crate) enum Next {
    Run(u32),
    Fire(Event),
    Idle,
}

impl Virtual {
    pub fn new(config: &WorldConfig) -> Virtual {
        let cpus = config.cpus.max(1);
        let ready = Ready {
            queue: VecDeque::new(),
            order: config.order,
            rng: Rng::new(config.seed, STREAM_ORDER),
        };
        let state = State {
            ready,
            timers: Timers::default(),
            births: Vec::new(),
            free_slots: Vec::new(),
            slots: 0,
            last_task: 0,
            preempt_rng: Rng::new(config.seed, STREAM_PREEMPT),
            cpus_free: cpus,
            cpu_queue: VecDeque::new(),
            hash: EventHash::new(),
            ring: Ring::default(),
            dead: false,
            switches: 0,
            events: 0,
        };
        Virtual {
            seed: config.seed,
            cpus,
            epoch: config.epoch,
            preempt: config.preempt,
            charges: (!config.charges.is_free()).then(|| Box::new(config.charges.clone())),
            now: AtomicU64::new(0),
            exits: ExitHooks::default(),
            state: SpinLock::named("world", state),
        }
    }

    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    pub fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock_irq()
    }

    pub fn note(&self, tag: u64, value: u64) {
        let now = self.now();
        self.lock().record(now, Record::Note(tag, value));
    }

    #[inline]
    pub fn make_ready(&self, task: &Task) {
        let mut state = self.lock();
        if !state.dead {
            state.ready.push(task);
        }
    }

    pub fn draws_preemption(&self) -> bool {
        let preempt = self.preempt as u64;
        self.lock().preempt_rng.below(1024) < preempt
    }

    pub fn at(&self, when: Nanos, f: Callback) -> TimerId {
        self.push_event(when, Action::Call(f))
    }

    pub fn wake_at(&self, when: Nanos, task: Arc<Task>) -> TimerId {
        self.push_event(when, Action::Wake(task))
    }

    fn push_event(&self, when: Nanos, action: Action) -> TimerId {
        let when = when.max(self.now());
        let mut state = self.lock();
        if state.dead {
            let id = state.timers.push(when, Action::Call(Box::new(|_| ())));
            drop(state);
            drop(action);
            return id;
        }
        state.timers.push(when, action)
    }

    pub fn cancel(&self, id: TimerId) -> bool {
        let action = self.lock().timers.cancel(id);
        action.is_some()
    }

    /// Gives `task` a slot and an id; `None` in a world that is being dropped.
    pub fn new_task(&self, rt: &Runtime, name: &str) -> Option<Arc<Task>> {
        let now = self.now();
        let mut state = self.lock();
        if state.dead {
            return None;
        }
        state.last_task += 1;
        let id = TaskId(state.last_task);
        let slot = match state.free_slots.pop() {
            Some(slot) => slot,
            None => {
                state.slots += 1;
                state.slots - 1
            }
        };
        state.record(now, Record::Spawn(id.0));
        Some(Task::new(rt.clone(), id, name, slot, None))
    }

    pub fn spawn(&self, rt: &Runtime, name: &str, inherit: Inherit, body: Body) -> TaskId {
        let Some(task) = self.new_task(rt, name) else { return TaskId(0) };
        let id = task.id;
        let mut state = self.lock();
        state.ready.push(&task);
        state.births.push(Birth { task, inherit, body });
        id
    }

    /// A task has ended.
    pub fn end_task(&self, task: &Task) {
        let now = self.now();
        let mut state = self.lock();
        state.record(now, Record::Exit(task.id.0));
        state.free_slots.push(task.slot);
    }

    /// Lets `task` occupy a processor for `span`, or queues it for one.
    pub fn charge(&self, task: &Arc<Task>, span: Nanos) {
        let now = self.now();
        let mut state = self.lock();
        if state.cpus_free > 0 {
            state.cpus_free -= 1;
            state.timers.push(now + span, Action::CpuDone(task.clone()));
        } else {
            state.cpu_queue.push_back((task.clone(), span));
        }
    }

    /// A processor is done with a task: the next one in the queue gets it.
    pub fn cpu_done(&self) {
        let now = self.now();
        let mut state = self.lock();
        match state.cpu_queue.pop_front() {
            Some((task, span)) => {
                state.timers.push(now + span, Action::CpuDone(task));
            }
            None => state.cpus_free += 1,
        }
    }

    /// Chooses what happens next, not looking beyond `limit`, and moves the clock there.
    #[inline]
    pub fn next(&self, limit: Nanos, births: &mut Vec<Birth>) -> Next {
        let mut state = self.lock();
        loop {
            births.append(&mut state.births);
            if let Some((slot, id)) = state.ready.pop() {
                state.switches += 1;
                state.record(self.now(), Record::Run(id.0));
                return Next::Run(slot);
            }
            let Some(event) = state.timers.pop_due(limit) else { return Next::Idle };
            state.events += 1;
            self.now.store(event.time.0, Ordering::Relaxed);
            state.record(event.time, Record::Event(event.seq));
            match event.action {
                // The commonest event needs no callback: save the way through the executor.
                Action::Wake(task) => {
                    if task.fire_timer() {
                        state.ready.push(&task);
                    }
                }
                _ => return Next::Fire(event),
            }
        }
    }

    /// Moves the clock forward where nothing happens before `to`.
    pub fn advance(&self, to: Nanos) {
        self.now.fetch_max(to.0, Ordering::Relaxed);
    }

    /// Stops everything. What was pending is handed out to be dropped outside the lock.
    pub fn kill(&self) -> (Timers, Vec<Birth>, CpuQueue) {
        let mut state = self.lock();
        state.dead = true;
        state.ready.queue.clear();
        (
            std::mem::take(&mut state.timers),
            std::mem::take(&mut state.births),
            std::mem::take(&mut state.cpu_queue),
        )
    }
}

impl State {
    #[inline]
    pub fn record(&mut self, now: Nanos, record: Record) {
        let (kind, a, b) = record.parts();
        self.hash.update(now.0 ^ kind << 56);
        self.hash.update(a);
        if b != 0 {
            self.hash.update(b);
        }
        self.ring.push(now, record);
    }
}
