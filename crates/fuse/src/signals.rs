//! The signals that unmount.

use nix::sys::signal::{SigSet, Signal};

/// SIGINT, SIGTERM and SIGHUP, held back so that one task can wait for them.
pub struct Signals(SigSet);

impl Signals {
    /// Holds the signals back in this thread and in all that it starts from now on. Call it before
    /// there is any other thread.
    pub fn block() -> Signals {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().expect("these signals can be blocked");
        Signals(set)
    }

    /// Waits for one of them; returns its name. Blocks the thread.
    pub fn wait(&self) -> &'static str {
        loop {
            if let Ok(signal) = self.0.wait() {
                return signal.as_str();
            }
        }
    }
}
