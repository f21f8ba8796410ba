//! Which worker of a mount reads the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rt::WaitQueue;

/// Which worker leads.
pub(crate) struct Lead {
    /// A worker leads.
    pub led: AtomicBool,
    /// A worker was woken to lead and does not run yet.
    pub called: AtomicBool,
    /// Odd while the leader answers a request and still leads. Who makes it even ends that: the
    /// leader goes on leading, or another worker was woken.
    turn: AtomicU64,
    pub waiting: WaitQueue,
}

impl Lead {
    pub fn new() -> Lead {
        Lead {
            led: AtomicBool::new(false),
            called: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            waiting: WaitQueue::named("fuse workers"),
        }
    }

    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::SeqCst)
    }

    /// Leads if nobody does.
    pub fn try_lead(&self) -> bool {
        self.called.store(false, Ordering::SeqCst);
        !self.led.swap(true, Ordering::SeqCst)
    }

    /// Lets another worker lead.
    pub fn hand_over(&self) {
        self.led.store(false, Ordering::SeqCst);
        if !self.called.swap(true, Ordering::SeqCst) {
            self.waiting.wake_one();
        }
    }

    /// The leader begins to answer a request. Returns the number of its turn.
    pub fn begin(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The leader has answered a request. Returns whether it still leads.
    pub fn finish(&self, turn: u64) -> bool {
        let order = Ordering::SeqCst;
        self.turn.compare_exchange(turn, turn + 1, order, order).is_ok()
    }

    /// The current request waits for other requests: another worker must read them meanwhile.
    pub fn let_others(&self) {
        let turn = self.turn();
        if turn % 2 == 1 && self.finish(turn) {
            self.hand_over();
        }
    }
}
