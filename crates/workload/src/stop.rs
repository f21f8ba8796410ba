//! The end of a run, asked for from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Nanos;
use rt::Cx;

/// Ends workloads: a flag, and a deadline on the clock of the tasks. All clones are one.
///
/// A workload looks between its operations; an operation that is under way is not cut off.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requested: AtomicBool,
    /// Nanoseconds on the runtime's clock; `u64::MAX`: never.
    deadline: AtomicU64,
    /// Ends this one too.
    outer: Option<Stop>,
}

impl Stop {
    /// A run to its own end, unless [`request`](Self::request) is called.
    pub fn never() -> Stop {
        Stop::at(Nanos::MAX)
    }

    /// A run until `deadline`, a time on the clock of [`Cx::now`].
    pub fn at(deadline: Nanos) -> Stop {
        let deadline = AtomicU64::new(deadline.0);
        Stop(Arc::new(Inner { requested: AtomicBool::new(false), deadline, outer: None }))
    }

    /// One that ends with this one, and may end before it.
    pub fn nested(&self) -> Stop {
        let deadline = AtomicU64::new(Nanos::MAX.0);
        let requested = AtomicBool::new(false);
        Stop(Arc::new(Inner { requested, deadline, outer: Some(self.clone()) }))
    }

    /// Asks for the end now. Never waits.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Relaxed);
    }

    /// Moves the deadline.
    pub fn set_deadline(&self, deadline: Nanos) {
        self.0.deadline.store(deadline.0, Ordering::Relaxed);
    }

    /// The deadline; [`Nanos::MAX`] where there is none.
    pub fn deadline(&self) -> Nanos {
        Nanos(self.0.deadline.load(Ordering::Relaxed))
    }

    /// Has the end come?
    pub fn is_due(&self, cx: &Cx) -> bool {
        if self.0.requested.load(Ordering::Relaxed) {
            return true;
        }
        if self.0.outer.as_ref().is_some_and(|outer| outer.is_due(cx)) {
            return true;
        }
        let deadline = self.deadline();
        deadline != Nanos::MAX && cx.now() >= deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_or_the_clock_ends_a_run_in_both_clocks() {
        rt::testing::both(|cx| {
            let stop = Stop::never();
            assert!(!stop.is_due(cx));
            let inner = stop.nested();
            inner.nested().request();
            assert!(!inner.is_due(cx));
            stop.clone().request();
            assert!(stop.is_due(cx) && inner.is_due(cx));
            let stop = Stop::at(cx.now() + Nanos::from_millis(5));
            assert!(cx.is_virtual() as u8 <= !stop.is_due(cx) as u8);
            cx.sleep(Nanos::from_millis(6));
            assert!(stop.is_due(cx));
        });
    }
}
