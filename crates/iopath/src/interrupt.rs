//! Ctrl-C: long work ends between two files, and leaves what it works on as it should be. The
//! second one ends the process at once; an image is then as after a power cut.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a thread of the host, not a task, waits for signals"
)]

use std::sync::atomic::{AtomicBool, Ordering};

use fuse::Signals;

static ASKED: AtomicBool = AtomicBool::new(false);

/// The exit status of a command that was interrupted, as a shell has it.
pub const STATUS: u8 = 130;

/// Waits for the signals in a thread of its own from now on. Call it before there is any other
/// thread.
pub fn listen() {
    let signals = Signals::block();
    let wait = move || {
        signals.wait();
        ASKED.store(true, Ordering::Relaxed);
        signals.wait();
        std::process::exit(STATUS.into());
    };
    let thread = std::thread::Builder::new().name("iopath-signals".to_owned());
    // Without it, signals stay blocked: worse than a process that cannot be interrupted is none.
    if thread.spawn(wait).is_err() {
        std::process::exit(1);
    }
}

/// Whether the work is to end.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
