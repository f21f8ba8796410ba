//! Fibers: a task's body on its own stack, and the two doors between it and the executor.
//!
//! # Safety invariant
//!
//! A [`FiberRef`] points at the yielder of the coroutine whose body made it, and uses it only while
//! it runs on that coroutine's own stack: `suspend` checks. (A `Cx` is neither `Send` nor made by
//! users, but with worlds inside worlds two of them can be swapped.) Every test in virtual time
//! exercises it.
#![allow(unsafe_code)]

use super::stack::Stack;
use crate::Cx;
use crate::cx::Inherit;
use crate::task::{Task, Wait};
use base::Nanos;
use corosensei::stack::Stack as _;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) type Panic = Box<dyn Any + Send>;

/// What the executor says to a fiber when it resumes it.
pub(crate) enum Resume {
    Run,
    /// The world is being dropped: unwind.
    Unwind,
}

/// The panic payload that unwinds the fibers of a dropped world. No hook is called for it.
struct WorldDropped;

/// The way out of the running fiber.
pub(crate) struct FiberRef {
    yielder: NonNull<Yielder<Resume, Wait>>,
    /// Addresses of the fiber's stack.
    stack: Range<usize>,
}

impl FiberRef {
    /// Leaves the fiber until the executor resumes it.
    #[inline]
    pub fn suspend(&self, wait: Wait) {
        let here = std::ptr::from_ref(&wait).addr();
        assert!(self.stack.contains(&here), "a Cx was used outside its own task");
        // SAFETY: we run on the stack of the coroutine that this yielder is of, so it is alive.
        let yielder = unsafe { self.yielder.as_ref() };
        if let Resume::Unwind = yielder.suspend(wait) {
            resume_unwind(Box::new(WorldDropped));
        }
    }
}

type Co = Coroutine<Resume, Wait, Result<(), Panic>, Stack>;

enum Stage<'f> {
    /// Not started: it needs no stack yet.
    Born(Inherit, Box<dyn FnOnce(&mut Cx) + 'f>),
    Started(Co),
    Ended,
}

/// A task's execution state, in the world's table.
pub(crate) struct Fiber {
    pub task: Arc<Task>,
    /// What it waits for, while it is suspended.
    pub wait: Option<Wait>,
    /// Since when it has been waiting.
    pub since: Nanos,
    /// The lowest page of its stack, once it has one: touching it is an overflow.
    pub guard: Option<usize>,
    stage: Stage<'static>,
}

/// How a resumption ended.
pub(crate) enum Ran {
    Suspended,
    Ended(Stack),
    Panicked(Stack, Panic),
}

impl Fiber {
    pub fn new(task: Arc<Task>, inherit: Inherit, body: Box<dyn FnOnce(&mut Cx)>) -> Fiber {
        Fiber {
            task,
            wait: None,
            since: Nanos::ZERO,
            guard: None,
            stage: Stage::Born(inherit, body),
        }
    }

    /// As [`Fiber::new`], for a body that borrows from [`World::run`](crate::World::run), which
    /// returns after the fiber has ended, or else panics and has the fiber leaked: it is then
    /// neither resumed nor dropped.
    pub fn borrowing<'f>(task: Arc<Task>, body: Box<dyn FnOnce(&mut Cx) + 'f>) -> Fiber {
        // SAFETY: only the lifetime changes. What the body borrows outlives its use, as above:
        // `World::broken` is set wherever `run` panics, and a broken world resumes and drops none.
        let body: Box<dyn FnOnce(&mut Cx)> = unsafe { std::mem::transmute(body) };
        Fiber::new(task, Inherit::default(), body)
    }

    /// True where the fiber needs a stack before it can run.
    pub fn needs_stack(&self) -> bool {
        matches!(self.stage, Stage::Born(..))
    }

    /// Puts the body on `stack`; it has not begun to run.
    pub fn start(&mut self, stack: Stack) {
        let Stage::Born(inherit, body) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            unreachable!("a fiber starts once");
        };
        let task = self.task.clone();
        let range = stack.limit().get()..stack.base().get();
        self.guard = Some(range.start);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<_, _>, first| {
            if let Resume::Unwind = first {
                return Ok(());
            }
            let out = FiberRef { yielder: NonNull::from(yielder), stack: range };
            let mut cx = Cx::new(task, Some(out), inherit);
            catch_unwind(AssertUnwindSafe(|| body(&mut cx)))
        });
        self.stage = Stage::Started(coroutine);
    }

    /// Runs the fiber until it suspends or ends.
    #[inline]
    pub fn resume(&mut self, how: Resume) -> Ran {
        let Stage::Started(coroutine) = &mut self.stage else {
            unreachable!("a fiber is started before it is resumed, and resumed until it ends");
        };
        match coroutine.resume(how) {
            CoroutineResult::Yield(wait) => {
                self.wait = Some(wait);
                Ran::Suspended
            }
            CoroutineResult::Return(result) => {
                let stage = std::mem::replace(&mut self.stage, Stage::Ended);
                let Stage::Started(coroutine) = stage else { unreachable!("it just ran") };
                let stack = coroutine.into_stack();
                match result {
                    Ok(()) => Ran::Ended(stack),
                    Err(panic) => Ran::Panicked(stack, panic),
                }
            }
        }
    }

    /// Ends the fiber from outside: its stack is unwound, and what lies there is dropped. True
    /// where that worked; a destructor that waits makes the fiber leak instead, with its stack.
    ///
    /// A destructor that panics meanwhile aborts the process, as always in Rust.
    pub fn unwind(mut self) -> bool {
        if let Stage::Started(_) = self.stage
            && let Ran::Suspended = self.resume(Resume::Unwind)
        {
            self.leak();
            return false;
        }
        true
    }

    /// Forgets the fiber with its stack and everything on it.
    pub fn leak(self) {
        std::mem::forget(self.stage);
    }

    /// Id of the task that holds what this one waits for; 0 where nobody is known.
    pub fn holder(&self) -> u64 {
        let owner = self.wait.and_then(|wait| wait.owner);
        // SAFETY: the fiber is suspended inside the lock operation that set `owner`, and that
        // borrows the lock.
        owner
            .map_or(0, |owner| unsafe { owner.as_ref() }.load(std::sync::atomic::Ordering::Relaxed))
    }
}
