//! What ends a mount besides an unmount.

use std::sync::mpsc::Receiver;

use crate::signals::Signals;

/// Waits for a reason to end a mount, on a thread of its own.
pub struct Stop(Box<dyn FnOnce() -> Option<&'static str> + Send>);

impl Stop {
    /// Ends it with this reason once somebody asks for it. Never, if nobody can any more.
    pub fn when_asked(asked: Receiver<()>, why: &'static str) -> Stop {
        Stop(Box::new(move || asked.recv().ok().map(|()| why)))
    }

    /// The reason; None where there will be none. Blocks the thread.
    pub(crate) fn wait(self) -> Option<&'static str> {
        self.0()
    }
}

/// Ends it when a signal comes.
impl From<Signals> for Stop {
    fn from(signals: Signals) -> Stop {
        Stop(Box::new(move || Some(signals.wait().as_str())))
    }
}
