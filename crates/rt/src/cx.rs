//! The context of a task: its identity, its credentials, its clock, and the right to wait.

use crate::task::{Task, TaskId, Wait};
use crate::world::fiber::FiberRef;
use crate::{Cred, JoinHandle, Runtime, Waker};
use base::{Nanos, Rng, Timespec};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// What a task has in its hands. Every function that may wait takes `&mut Cx`; one that takes `&Cx`
/// may look but not wait.
///
/// A `Cx` stays with its task: it is made by [`Runtime::enter`], [`World::run`](crate::World::run)
/// or [`Cx::spawn`], and cannot move to another thread.
pub struct Cx {
    task: Arc<Task>,
    /// The way out of the fiber; `None` in real time.
    fiber: Option<FiberRef>,
    cred: Cred,
    ioc: u64,
    cpu: u32,
    rng: Option<Rng>,
    preempt: bool,
    not_send: PhantomData<*mut ()>,
}

/// What a task inherits from the one that spawns it.
#[derive(Clone, Default)]
pub(crate) struct Inherit {
    pub cred: Cred,
    /// `None`: the task's own id.
    pub ioc: Option<u64>,
}

impl Cx {
    pub(crate) fn new(task: Arc<Task>, fiber: Option<FiberRef>, from: Inherit) -> Cx {
        Cx {
            ioc: from.ioc.unwrap_or(task.id.0),
            cpu: (task.id.0 % task.rt.cpus() as u64) as u32,
            preempt: task.rt.preempts(),
            task,
            fiber,
            cred: from.cred,
            rng: None,
            not_send: PhantomData,
        }
    }

    /// This task's id.
    #[inline]
    pub fn task(&self) -> TaskId {
        self.task.id
    }

    /// This task's name.
    pub fn name(&self) -> &str {
        &self.task.name
    }

    /// The processor whose caches this task uses, below [`Runtime::cpus`]. Fixed for the task's
    /// life: tasks are dealt out in turn.
    #[inline]
    pub fn cpu(&self) -> usize {
        self.cpu as usize
    }

    /// The I/O context that this task's bios carry, by default its own id.
    #[inline]
    pub fn ioc(&self) -> u64 {
        self.ioc
    }

    /// Makes this task's bios carry another I/O context, e.g. that of the task it works for.
    pub fn set_ioc(&mut self, ioc: u64) {
        self.ioc = ioc;
    }

    /// The credentials under which this task asks.
    #[inline]
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// Changes the credentials and returns the former ones.
    pub fn set_cred(&mut self, cred: Cred) -> Cred {
        std::mem::replace(&mut self.cred, cred)
    }

    /// Time since the runtime began.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.task.rt.now()
    }

    /// Calendar time, as [`Runtime::realtime`].
    #[inline]
    pub fn realtime(&self) -> Timespec {
        self.task.rt.realtime()
    }

    /// The runtime this task belongs to.
    #[inline]
    pub fn runtime(&self) -> &Runtime {
        &self.task.rt
    }

    /// True in virtual time.
    #[inline]
    pub fn is_virtual(&self) -> bool {
        self.fiber.is_some()
    }

    /// A random number from the task's own stream, which follows from the runtime's seed and the
    /// task's id.
    pub fn random(&mut self) -> u64 {
        self.rng().next_u64()
    }

    /// The task's own random stream.
    pub fn rng(&mut self) -> &mut Rng {
        let (seed, stream) = (self.task.rt.seed(), self.task.id.0);
        self.rng.get_or_insert_with(|| Rng::new(seed, stream))
    }

    /// Waits for `span`. May park.
    pub fn sleep(&mut self, span: Nanos) {
        if !self.is_virtual() {
            return std::thread::sleep(Duration::from_nanos(span.0));
        }
        let deadline = self.now() + span;
        while self.now() < deadline {
            let wait = Wait { why: "sleep", name: "", what: deadline.0, owner: None };
            self.park_until(wait, deadline);
        }
    }

    /// Lets other tasks run. May park.
    pub fn yield_now(&mut self) {
        match &self.fiber {
            None => crate::sync::shim::yield_now(),
            Some(fiber) => {
                self.task.rt.make_ready(&self.task);
                fiber.suspend(Wait { why: "its turn", name: "", what: 0, owner: None });
            }
        }
    }

    /// Spends `span` of modelled processor time: in virtual time this task occupies one of the
    /// world's processors for so long, after waiting for one to be free. Nothing in real time,
    /// where the processor charges by itself. May park.
    #[inline]
    pub fn charge(&mut self, span: Nanos) {
        if self.is_virtual() && span > Nanos::ZERO {
            self.charge_virtual(span);
        }
    }

    fn charge_virtual(&mut self, span: Nanos) {
        self.task.clear_granted();
        self.task.rt.virt().charge(&self.task, span);
        let wait = Wait { why: "processor", name: "", what: span.0, owner: None };
        while !self.task.granted() {
            self.park_on(wait);
        }
    }

    /// Starts a task that runs `f`. It inherits the credentials. Never waits.
    pub fn spawn<T, F>(&self, name: &str, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx) -> T + Send + 'static,
    {
        self.task.rt.spawn_from(name, Inherit { cred: self.cred.clone(), ioc: None }, f)
    }

    /// A handle with which others make this task go on after [`park`](Cx::park).
    pub fn waker(&self) -> Waker {
        Waker(self.task.clone())
    }

    /// Waits until this task's [`Waker`] is called; returns at once where it was called since the
    /// last park. It may also return for no reason: look at the condition again. `why` and `what`
    /// appear in the deadlock report. May park.
    pub fn park(&mut self, why: &'static str, what: u64) {
        self.park_on(Wait { why, name: "", what, owner: None });
    }

    /// As [`park`](Cx::park), but for at most `timeout`.
    pub fn park_timeout(&mut self, why: &'static str, what: u64, timeout: Nanos) {
        let deadline = self.now() + timeout;
        self.park_until(Wait { why, name: "", what, owner: None }, deadline);
    }

    pub(crate) fn park_on(&mut self, wait: Wait) {
        match &self.fiber {
            None => self.task.park_thread(None),
            Some(fiber) => {
                if self.task.must_suspend() {
                    fiber.suspend(wait);
                    self.task.resumed();
                }
            }
        }
    }

    pub(crate) fn park_until(&mut self, wait: Wait, deadline: Nanos) {
        match &self.fiber {
            None => self.task.park_thread(self.task.rt.instant(deadline)),
            Some(fiber) => {
                if self.task.must_suspend() {
                    let virt = self.task.rt.virt();
                    self.task.clear_granted();
                    let timer = virt.wake_at(deadline, self.task.clone());
                    fiber.suspend(wait);
                    self.task.resumed();
                    if !self.task.granted() {
                        virt.cancel(timer);
                    }
                }
            }
        }
    }

    #[inline]
    pub(crate) fn task_arc(&self) -> &Arc<Task> {
        &self.task
    }

    /// A place where another task could have run, had the processor been taken away here.
    #[inline]
    pub(crate) fn preempt_point(&mut self) {
        if self.preempt && self.task.rt.virt().draws_preemption() {
            self.yield_now();
        }
    }
}
