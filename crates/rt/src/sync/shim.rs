//! The atomics and thread operations that everything in this crate is built from, so that the
//! schedule explorer can stand in for them in tests (`--cfg iopath_shuttle`), those of the crates
//! above too.

#[cfg(not(iopath_shuttle))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::{Thread, current, park, park_timeout, yield_now},
};

#[cfg(iopath_shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::{Thread, current, park, park_timeout, yield_now},
};

/// Starts a detached thread.
///
/// # Panics
/// Where the system refuses a thread.
#[cfg(not(iopath_shuttle))]
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.expect("the system gives us a thread");
}

/// Starts a detached thread of the explored schedule.
#[cfg(iopath_shuttle)]
pub fn spawn(_name: String, body: impl FnOnce() + Send + 'static) {
    shuttle::thread::spawn(body);
}
