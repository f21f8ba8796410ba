//! The context of a task: its identity, its credentials, its clock, and the right to wait.

use crate::task::{Task, TaskId, Wait};
use crate::world::fiber::FiberRef;
use crate::{Cgroup, Charge, Cred, IoPriority, JoinHandle, Runtime, Waker};
use base::{Nanos, Rng, Timespec};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A task that owes this much spends it at the next charge.
const DEBT_MAX: Nanos = Nanos::from_micros(5);

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
    ioprio: IoPriority,
    cgroup: Cgroup,
    cpu: u32,
    rng: Option<Rng>,
    preempt: bool,
    /// Named work costs something in this world.
    charged: bool,
    /// Processor time that is charged and not yet spent; zero in a world without costs.
    debt: Nanos,
    not_send: PhantomData<*mut ()>,
}

/// What a task inherits from the one that spawns it.
#[derive(Clone, Default)]
pub(crate) struct Inherit {
    pub cred: Cred,
    /// `None`: the task's own id.
    pub ioc: Option<u64>,
    pub ioprio: IoPriority,
    pub cgroup: Cgroup,
}

impl Cx {
    pub(crate) fn new(task: Arc<Task>, fiber: Option<FiberRef>, from: Inherit) -> Cx {
        Cx {
            ioc: from.ioc.unwrap_or(task.id.0),
            cpu: (task.id.0 % task.rt.cpus() as u64) as u32,
            preempt: task.rt.preempts(),
            charged: task.rt.charges().is_some(),
            debt: Nanos::ZERO,
            task,
            fiber,
            cred: from.cred,
            ioprio: from.ioprio,
            cgroup: from.cgroup,
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

    /// The I/O priority that this task's bios carry, by default that of the task that spawned it.
    #[inline]
    pub fn ioprio(&self) -> IoPriority {
        self.ioprio
    }

    /// Changes the I/O priority, as ionice(1); counts from the next bio on.
    pub fn set_ioprio(&mut self, ioprio: IoPriority) {
        self.ioprio = ioprio;
    }

    /// The control group that this task's bios count against, by default that of the task that
    /// spawned it.
    #[inline]
    pub fn cgroup(&self) -> Cgroup {
        self.cgroup
    }

    /// Moves this task into a control group; counts from the next bio on.
    pub fn set_cgroup(&mut self, cgroup: Cgroup) {
        self.cgroup = cgroup;
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

    /// Time since the runtime began, as this task has it: what it was charged and has not spent
    /// yet counts as passed.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.task.rt.now() + self.debt
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

    /// A random UUID of version 4 from the task's own stream.
    pub fn random_uuid(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.random().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random().to_le_bytes());
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
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
        self.settle();
        let deadline = self.now() + span;
        while self.task.rt.now() < deadline {
            let wait = Wait { why: "sleep", name: "", what: deadline.0, owner: None };
            self.park_until(wait, deadline);
        }
    }

    /// Lets other tasks run. May park.
    pub fn yield_now(&mut self) {
        self.settle();
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
            self.suspend_on(wait);
        }
    }

    /// Charges `count` pieces of named work with what the world's table ([`crate::Charges`]) says.
    /// Nothing where that is free, and in real time. The time is spent in parts: at the latest when
    /// the task waits, submits a bio or ends, or owes 5 microseconds. May park.
    #[inline]
    pub fn charge_for(&mut self, charge: Charge, count: u64) {
        if self.charged {
            self.owe(charge, count, 1);
        }
    }

    /// As [`charge_for`](Cx::charge_for) for work that goes with the number of bytes: the table has
    /// the cost of 4 KiB. May park.
    #[inline]
    pub fn charge_bytes(&mut self, charge: Charge, bytes: u64) {
        if self.charged {
            self.owe(charge, bytes, 4096);
        }
    }

    fn owe(&mut self, charge: Charge, part: u64, whole: u64) {
        let cost = self.task.rt.charges().map_or(Nanos::ZERO, |charges| charges.get(charge));
        self.debt += Nanos(cost.0.saturating_mul(part) / whole);
        if self.debt >= DEBT_MAX {
            self.settle();
        }
    }

    /// Spends what this task was charged and still owes. May park.
    #[inline]
    pub fn settle(&mut self) {
        if self.debt > Nanos::ZERO {
            let debt = std::mem::take(&mut self.debt);
            self.charge_virtual(debt);
        }
    }

    /// Starts a task that runs `f`. It inherits the credentials, the I/O priority and the control
    /// group. Never waits.
    pub fn spawn<T, F>(&self, name: &str, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx) -> T + Send + 'static,
    {
        let inherit = Inherit {
            cred: self.cred.clone(),
            ioc: None,
            ioprio: self.ioprio,
            cgroup: self.cgroup,
        };
        self.task.rt.spawn_from(name, inherit, f)
    }

    /// A handle with which others make this task go on after [`park`](Cx::park).
    pub fn waker(&self) -> Waker {
        Waker(self.task.clone())
    }

    /// Waits until this task's [`Waker`] is called; returns at once where it was called since the
    /// last park. It may also return for no reason: look at the condition again. `why` and `what`
    /// appear in the deadlock report. May park.
    pub fn park(&mut self, why: &'static str, what: u64) {
        if self.debt > Nanos::ZERO {
            // A wake may come meanwhile and be used up: the caller must look again.
            return self.settle();
        }
        self.park_on(Wait { why, name: "", what, owner: None });
    }

    /// As [`park`](Cx::park), but for at most `timeout`.
    pub fn park_timeout(&mut self, why: &'static str, what: u64, timeout: Nanos) {
        if self.debt > Nanos::ZERO {
            return self.settle();
        }
        let deadline = self.now() + timeout;
        self.park_until(Wait { why, name: "", what, owner: None }, deadline);
    }

    pub(crate) fn park_on(&mut self, wait: Wait) {
        if self.suspend_on(wait) && self.charged {
            self.owe_switch();
        }
    }

    /// The processor must come back to this task, which costs; it is spent with the next debts.
    fn owe_switch(&mut self) {
        if let Some(charges) = self.task.rt.charges() {
            self.debt += charges.get(Charge::ContextSwitch);
        }
    }

    /// Parks; true where the task was really suspended in virtual time.
    fn suspend_on(&mut self, wait: Wait) -> bool {
        match &self.fiber {
            None => {
                self.task.park_thread(None);
                false
            }
            Some(fiber) => {
                let suspends = self.task.must_suspend();
                if suspends {
                    fiber.suspend(wait);
                    self.task.resumed();
                }
                suspends
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
                    if self.charged {
                        self.owe_switch();
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

impl Drop for Cx {
    /// The task's own I/O context ends with it, also where its bios carried another one at last.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.task.rt.ioc_exited(self.task.id.0);
        }
    }
}
