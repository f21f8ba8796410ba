//! Tasks, clocks and locks: the same blocking code in real time and in virtual time.
//!
//! In **real time** a task is an OS thread, and the clock is the machine's. In **virtual time** a
//! task is a fiber of one [`World`] on one OS thread, and the clock jumps to the next event; the
//! order of everything follows from the world's seed, and [`World::hash`] proves it.
//!
//! ```
//! use rt::{Mutex, Nanos, World, WorldConfig};
//! use std::sync::Arc;
//!
//! let mut world = World::new(WorldConfig { seed: 7, ..WorldConfig::default() });
//! let total = world.run("main", |cx| {
//!     let total = Arc::new(Mutex::named("total", 0));
//!     let other = total.clone();
//!     let adder = cx.spawn("adder", move |cx| {
//!         cx.sleep(Nanos::from_secs(3600)); // costs no real time
//!         *other.lock(cx) += 1;
//!     });
//!     adder.join(cx);
//!     *total.lock(cx)
//! });
//! assert_eq!((total, world.now()), (1, Nanos::from_secs(3600)));
//! ```
//!
//! One circle of modules stays: a task runs in a run time, and what it waits for wakes it there.
//!
//! # Who may wait
//!
//! A function that may wait takes `cx: &mut Cx`; a function without it cannot wait. A spin guard
//! taken with [`SpinLock::lock`] borrows the `Cx`, so waiting under a spin lock does not compile.
//! Guards of the sleeping locks ([`Mutex`], [`RwLock`]) do not borrow it: a task may wait while it
//! holds one. Code in *event context* — callbacks of [`Runtime::at`], completions — has no `Cx`: it
//! takes spin locks with [`SpinLock::lock_irq`] and may call [`Waker::wake`],
//! [`WaitQueue::wake_one`], [`WaitQueue::wake_all`], [`Completion::complete`],
//! [`Semaphore::release`] and the `try_` functions.
//!
//! # Not modelled, compared with Linux
//!
//! No preemption (a world switches only where a task waits, or at locks where
//! [`WorldConfig::preempt`] asks for it), no priorities, no signals, no lockdep classes: a deadlock
//! is reported when it happens.

#![deny(missing_docs)]
#![deny(unsafe_code)]
// This crate is where threads, clocks and system locks come from.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod cgroup;
mod charge;
mod cred;
mod cx;
mod exit;
#[cfg(target_os = "linux")]
mod files;
mod ioprio;
mod meter;
mod real;
mod runtime;
mod sync;
mod task;
pub mod testing;
mod timers;
mod world;

pub use base::{Nanos, Timespec};
pub use cgroup::Cgroup;
pub use charge::{Charge, Charges};
pub use cred::Cred;
pub use cx::Cx;
pub use exit::OnIocExit;
#[cfg(target_os = "linux")]
pub use files::{spawn_apart, write_pages};
pub use ioprio::{IoClass, IoPriority, ParseIoPriorityError};
pub use meter::{Meter, Step};
pub use runtime::Runtime;
pub use sync::channel::{Channel, Closed, TryRecvError, TrySendError};
pub use sync::completion::Completion;
pub use sync::mutex::{Mutex, MutexGuard};
pub use sync::registry::Registry;
pub use sync::rwlock::{ReadGuard, RwLock, WriteGuard};
pub use sync::semaphore::Semaphore;
pub use sync::spin::{SpinGuard, SpinLock};
pub use sync::waitqueue::WaitQueue;
pub use task::{JoinHandle, TaskId, Waker};
pub use timers::TimerId;
pub use world::{Order, World, WorldConfig, WorldStats};
