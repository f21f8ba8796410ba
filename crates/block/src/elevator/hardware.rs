//! Hardware queues that take turns.
//!
//! A device of today has several queues that requests are put into, one for each processor or for
//! some of them, and takes from those that have any in turn (NVMe: round robin). Whoever fills one
//! does not stand before those of the others. Elevators that have one order for the whole device
//! (`mq-deadline`, `bfq`) give that up; `none` and `kyber` keep one list for each.
//!
//! A task stays on one processor here: its number chooses the queue. Linux also has driver tags for
//! each queue; here the device's depth is what it works on at once, of all queues together.

use super::TunableError;
use crate::request::Request;

/// Of each hardware queue a `Q`.
pub(super) struct Turns<Q> {
    queues: Vec<Q>,
    /// Whose turn it is.
    turn: usize,
}

impl<Q: Default> Default for Turns<Q> {
    fn default() -> Self {
        Turns { queues: vec![Q::default()], turn: 0 }
    }
}

impl<Q: Default> Turns<Q> {
    const TUNABLE: &'static str = "hw_queues";

    /// So many queues; only while nothing waits.
    pub fn resize(&mut self, count: u32) {
        self.queues.resize_with(count.max(1) as usize, Q::default);
        self.turn = 0;
    }

    /// The queue that a request is in.
    pub fn of(&mut self, request: &Request) -> &mut Q {
        let count = self.queues.len() as u64;
        &mut self.queues[(request.ioc % count) as usize]
    }

    /// What the first queue gives that gives anything, from the one on whose turn it is.
    pub fn next<T>(&mut self, mut give: impl FnMut(&mut Q) -> Option<T>) -> Option<T> {
        let count = self.queues.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            if let Some(given) = give(&mut self.queues[place]) {
                self.turn = (place + 1) % count;
                return Some(given);
            }
        }
        None
    }

    /// Name and value of the tunable.
    pub fn tunable(&self) -> (&'static str, String) {
        (Self::TUNABLE, self.queues.len().to_string())
    }

    /// Sets the number of queues, before requests come; false where the name is another.
    pub fn set_tunable(&mut self, name: &str, value: &str) -> Result<bool, TunableError> {
        if name != Self::TUNABLE {
            return Ok(false);
        }
        match value.parse() {
            Ok(count @ 1..=1024) => self.resize(count),
            _ => {
                return Err(TunableError::Value {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    expected: "a whole number from 1 to 1024",
                });
            }
        }
        Ok(true)
    }
}
