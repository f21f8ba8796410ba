//! Virtual time: one clock, one OS thread, and an order of events that the seed decides.

pub(crate) mod fiber;
#[cfg(target_os = "linux")]
mod overflow;
mod report;
#[cfg(target_os = "linux")]
mod stack;
#[cfg(not(target_os = "linux"))]
#[path = "world/stack_elsewhere.rs"]
mod stack;
#[cfg(all(test, target_os = "linux"))]
mod stack_elsewhere;
pub(crate) mod state;

use crate::timers::{Action, Event};
use crate::{Charges, Cx, Runtime};
use base::{Nanos, Timespec};
use fiber::{Fiber, Panic, Ran, Resume};
use stack::StackPool;
use state::{Birth, Next, Virtual};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Which of several tasks that can run goes first. Events of one time are always ordered by their
/// sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that became runnable first.
    #[default]
    Fifo,
    /// Any, drawn from the world's seed.
    Seeded,
}

/// The parameters of a [`World`].
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Where every random stream of the world begins.
    pub seed: u64,
    /// Choice among runnable tasks.
    pub order: Order,
    /// Chance, in 1024ths, that a task gives way before it takes a sleeping lock: it finds races
    /// between sections that otherwise run through without a wait. 0 (the default): never.
    pub preempt: u32,
    /// Processors that [`Cx::charge`] occupies, at least 1.
    pub cpus: usize,
    /// Calendar time at the start of the world.
    pub epoch: Timespec,
    /// Usable bytes of a task's stack (at least 16 KiB); memory is committed page by page as it is
    /// touched. The default is 128 KiB, and twice that with debug assertions.
    pub stack_size: usize,
    /// What the processors cost at the named points; nothing by default.
    pub charges: Charges,
}

impl Default for WorldConfig {
    /// Seed 0, first in first out, 4 processors, beginning at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        WorldConfig {
            seed: 0,
            order: Order::Fifo,
            preempt: 0,
            cpus: 4,
            epoch: Timespec::from_secs(1_767_225_600),
            stack_size: if cfg!(debug_assertions) { 256 << 10 } else { 128 << 10 },
            charges: Charges::default(),
        }
    }
}

impl WorldConfig {
    /// The default with `seed`, [`Order::Seeded`], and a switch at one lock in eight: what tests
    /// that explore schedules want.
    pub fn exploring(seed: u64) -> Self {
        WorldConfig { seed, order: Order::Seeded, preempt: 128, ..WorldConfig::default() }
    }
}

/// What a world did and needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldStats {
    /// Times a task was given the processor.
    pub switches: u64,
    /// Events that happened.
    pub events: u64,
    /// Tasks that were started.
    pub tasks: u64,
    /// Most tasks that had a stack at the same time.
    pub tasks_max: usize,
    /// Bytes of the deepest stack, in whole pages.
    pub stack_high_water: usize,
    /// Bytes that a stack may have.
    pub stack_size: usize,
}

/// A world in virtual time: its tasks are fibers of the OS thread that made it.
///
/// # Dropping
///
/// A world may be dropped with tasks in the middle of anything; a crash test does. Every suspended
/// task is then unwound, so that what it owns is freed: its destructors run (and find
/// `std::thread::panicking()` true), wakes and timers do nothing any more, and nothing of the
/// task's ordinary code runs. A destructor that waits cannot be served: that task is leaked with
/// its stack. After a panic or a deadlock all suspended tasks are leaked, since their destructors
/// may rest on what is broken.
pub struct World {
    rt: Runtime,
    fibers: Vec<Option<Fiber>>,
    pool: StackPool,
    births: Vec<Birth>,
    stats: WorldStats,
    live: usize,
    broken: bool,
    report: Option<String>,
}

impl World {
    /// A world at time 0 without tasks.
    pub fn new(config: WorldConfig) -> World {
        World {
            rt: Runtime::of_world(Virtual::new(&config)),
            fibers: Vec::new(),
            pool: StackPool::new(config.stack_size),
            births: Vec::new(),
            stats: WorldStats::default(),
            live: 0,
            broken: false,
            report: None,
        }
    }

    /// The handle to this world's clock, timers and tasks.
    pub fn runtime(&self) -> Runtime {
        self.rt.clone()
    }

    /// Runs `f` as a task, and everything else beside it, until `f` ends. Other tasks stay where
    /// they are, and go on in the next `run`.
    ///
    /// # Panics
    /// With a task's panic, after a report on standard error; and where nothing can happen any more
    /// while `f` waits, with a report of who waits for what. The world is then broken and cannot
    /// run again.
    pub fn run<T>(&mut self, name: &str, f: impl FnOnce(&mut Cx) -> T) -> T {
        self.assert_whole();
        let mut result = None;
        let task = self.rt.virt().new_task(&self.rt, name).expect("a world lives while it runs");
        self.rt.make_ready(&task);
        let slot = task.slot;
        let fiber = Fiber::borrowing(
            task,
            Box::new(|cx| {
                result = Some(f(cx));
                cx.settle();
            }),
        );
        self.put(slot, fiber);
        // Whatever panics from here to the end of the fiber leaves the world broken: the fiber
        // borrows from this frame, and a broken world neither resumes nor drops it.
        self.broken = true;
        #[cfg(target_os = "linux")]
        let _running = overflow::Running::enter(self);
        let mut ended = false;
        while !ended {
            ended = match self.step(Nanos::MAX) {
                Step::Ended(which) => which == slot,
                Step::Went => false,
                Step::Idle => self.deadlock(),
            };
        }
        self.broken = false;
        result.expect("the task has ended and left its result")
    }

    /// Runs what can run, until nothing is left to happen: no task is runnable and no event is
    /// pending. Tasks that wait for each other stay. Tasks that sleep in a loop keep this from ever
    /// ending; use [`run_until`](World::run_until) there.
    pub fn run_idle(&mut self) {
        self.assert_whole();
        #[cfg(target_os = "linux")]
        let _running = overflow::Running::enter(self);
        while !matches!(self.step(Nanos::MAX), Step::Idle) {}
    }

    /// Runs what happens up to and including time `until`, and leaves the clock there (or where it
    /// was, if that is later).
    pub fn run_until(&mut self, until: Nanos) {
        self.assert_whole();
        #[cfg(target_os = "linux")]
        let _running = overflow::Running::enter(self);
        while !matches!(self.step(until), Step::Idle) {}
        self.rt.virt().advance(until);
    }

    /// The hash of everything that happened: two runs are the same exactly where it is equal.
    pub fn hash(&self) -> u64 {
        self.rt.virt().lock().hash.finish()
    }

    /// The world's time.
    pub fn now(&self) -> Nanos {
        self.rt.now()
    }

    /// Tasks that have not ended.
    pub fn unfinished(&self) -> usize {
        self.fibers.iter().flatten().count() + self.rt.virt().lock().births.len()
    }

    /// Counters up to now. Looks at every stack: not for hot paths.
    pub fn stats(&self) -> WorldStats {
        let (switches, events) = {
            let state = self.rt.virt().lock();
            (state.switches, state.events)
        };
        WorldStats {
            switches,
            events,
            stack_high_water: self.pool.high_water(),
            stack_size: self.pool.stack_size(),
            ..self.stats
        }
    }

    /// Who waits for what now, one line for each waiting task.
    pub fn waiters(&self) -> String {
        report::waiters(self.now(), &self.fibers)
    }

    /// The report of the panic or deadlock that broke this world.
    pub fn report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    fn assert_whole(&self) {
        assert!(!self.broken, "this world has panicked or deadlocked and cannot go on");
    }

    fn put(&mut self, slot: u32, fiber: Fiber) {
        let slot = slot as usize;
        if slot >= self.fibers.len() {
            self.fibers.resize_with(slot + 1, || None);
        }
        self.stats.tasks += 1;
        self.fibers[slot] = Some(fiber);
    }

    #[inline]
    fn step(&mut self, limit: Nanos) -> Step {
        let next = self.rt.virt().next(limit, &mut self.births);
        while let Some(birth) = self.births.pop() {
            let slot = birth.task.slot;
            self.put(slot, Fiber::new(birth.task, birth.inherit, birth.body));
        }
        match next {
            Next::Run(slot) => self.switch_to(slot),
            Next::Fire(event) => {
                self.fire(event);
                Step::Went
            }
            Next::Idle => Step::Idle,
        }
    }

    #[inline]
    fn switch_to(&mut self, slot: u32) -> Step {
        let virt = self.rt.virt();
        let fiber = self.fibers[slot as usize].as_mut().expect("a runnable task has a fiber");
        if fiber.needs_stack() {
            fiber.start(self.pool.take());
            self.live += 1;
            self.stats.tasks_max = self.stats.tasks_max.max(self.live);
        }
        fiber.wait = None;
        let panicking = std::thread::panicking();
        match fiber.resume(Resume::Run) {
            Ran::Suspended => {
                fiber.since = virt.now();
                if !panicking && std::thread::panicking() {
                    self.broken = true;
                    self.make_report("a task panicked, and waits while it unwinds", slot);
                    panic!("a task of the world panicked");
                }
                Step::Went
            }
            Ran::Ended(stack) => {
                self.end(slot, stack);
                Step::Ended(slot)
            }
            Ran::Panicked(stack, panic) => {
                self.make_report("a task panicked", slot);
                self.end(slot, stack);
                self.give_up(panic)
            }
        }
    }

    fn end(&mut self, slot: u32, stack: stack::Stack) {
        self.pool.give_back(stack);
        self.live -= 1;
        let fiber = self.fibers[slot as usize].take().expect("the task just ran");
        self.rt.virt().end_task(&fiber.task);
    }

    fn fire(&mut self, event: Event) {
        match event.action {
            Action::Wake(task) => task.wake(),
            Action::CpuDone(task) => {
                self.rt.virt().cpu_done();
                task.grant();
                task.wake();
            }
            Action::Call(f) => {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(event.time))) {
                    self.make_report("an event panicked", u32::MAX);
                    self.give_up(panic);
                }
            }
        }
    }

    fn make_report(&mut self, what: &str, slot: u32) {
        let fiber = self.fibers.get(slot as usize).and_then(Option::as_ref);
        let task =
            fiber.map_or_else(String::new, |f| format!(": task {} `{}`", f.task.id, f.task.name));
        let trailer = report::trailer(self.rt.virt(), &self.fibers);
        self.report = Some(format!("world stopped: {what}{task}\n{trailer}"));
        eprintln!("\n{}", self.report().expect("it was just written"));
    }

    fn give_up(&mut self, panic: Panic) -> ! {
        self.broken = true;
        resume_unwind(panic)
    }

    fn deadlock(&mut self) -> bool {
        self.broken = true;
        let waiters = self.waiters();
        let trailer = report::trailer(self.rt.virt(), &self.fibers);
        let report =
            format!("deadlock: no task can run and no event is pending\n{waiters}{trailer}");
        self.report = Some(report.clone());
        panic!("{report}");
    }
}

enum Step {
    /// The task in this slot ended.
    Ended(u32),
    Went,
    Idle,
}

impl Drop for World {
    fn drop(&mut self) {
        let pending = self.rt.virt().kill();
        for fiber in self.fibers.iter_mut().filter_map(Option::take) {
            if self.broken {
                fiber.leak();
            } else {
                fiber.unwind();
            }
        }
        drop(pending);
    }
}
