//! The event heap: what shall happen when, ordered by (time, sequence). Both clocks use it.

use crate::task::Task;
use base::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Names an event given to [`Runtime::at`](crate::Runtime::at), for
/// [`Runtime::cancel`](crate::Runtime::cancel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    slot: u32,
    seq: u64,
}

pub(crate) type Callback = Box<dyn FnOnce(Nanos) + Send>;

pub(crate) enum Action {
    /// Wake a task that sleeps.
    Wake(Arc<Task>),
    /// A processor of the world has done what this task charged.
    CpuDone(Arc<Task>),
    Call(Callback),
}

pub(crate) struct Event {
    pub time: Nanos,
    pub seq: u64,
    pub action: Action,
}

/// A heap with cancellation: a cancelled event loses its action at once, its place in the heap when
/// it comes up or when half of the heap is such places.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    slots: Vec<Option<(u64, Action)>>,
    free: Vec<u32>,
    cancelled: usize,
    next_seq: u64,
}

impl Timers {
    pub fn push(&mut self, time: Nanos, action: Action) -> TimerId {
        self.next_seq += 1;
        let seq = self.next_seq;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize] = Some((seq, action));
        self.heap.push(Reverse((time, seq, slot)));
        TimerId { slot, seq }
    }

    /// The action of an event that has not happened yet.
    pub fn cancel(&mut self, id: TimerId) -> Option<Action> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let (_, action) = slot.take_if(|(seq, _)| *seq == id.seq)?;
        self.free.push(id.slot);
        self.cancelled += 1;
        if self.cancelled > 64 && self.cancelled * 2 > self.heap.len() {
            let slots = &self.slots;
            self.heap.retain(|&Reverse((_, seq, slot))| live(slots, seq, slot));
            self.cancelled = 0;
        }
        Some(action)
    }

    /// The time of the next event.
    pub fn next_time(&mut self) -> Option<Nanos> {
        while let Some(&Reverse((time, seq, slot))) = self.heap.peek() {
            if live(&self.slots, seq, slot) {
                return Some(time);
            }
            self.heap.pop();
            self.cancelled -= 1;
        }
        None
    }

    /// The next event, if its time has come at `now`.
    pub fn pop_due(&mut self, now: Nanos) -> Option<Event> {
        if self.next_time()? > now {
            return None;
        }
        let Reverse((time, seq, slot)) = self.heap.pop()?;
        let (_, action) = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(Event { time, seq, action })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len() - self.cancelled
    }
}

fn live(slots: &[Option<(u64, Action)>], seq: u64, slot: u32) -> bool {
    slots[slot as usize].as_ref().is_some_and(|(s, _)| *s == seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Action {
        Action::Call(Box::new(|_| ()))
    }

    #[test]
    fn events_come_by_time_then_by_order_of_arrival() {
        let mut timers = Timers::default();
        for time in [5, 3, 5, 3, 9] {
            timers.push(Nanos(time), nothing());
        }
        let order: Vec<_> =
            std::iter::from_fn(|| timers.pop_due(Nanos(8))).map(|e| (e.time.0, e.seq)).collect();
        assert_eq!(order, [(3, 2), (3, 4), (5, 1), (5, 3)]);
        assert_eq!((timers.len(), timers.next_time()), (1, Some(Nanos(9))));
    }

    #[test]
    fn a_cancelled_event_does_not_come_and_cannot_be_cancelled_twice() {
        let mut timers = Timers::default();
        let ids: Vec<_> = (0..1000).map(|t| timers.push(Nanos(t), nothing())).collect();
        for id in ids.iter().skip(1) {
            assert!(timers.cancel(*id).is_some());
            assert!(timers.cancel(*id).is_none());
        }
        assert!(timers.heap.len() < 130, "places of cancelled events pile up");
        assert!(timers.pop_due(Nanos(2000)).is_some_and(|e| e.time == Nanos(0)));
        assert!(timers.pop_due(Nanos(2000)).is_none());
        // A slot is used again, and the old name does not reach the new event.
        timers.push(Nanos(1), nothing());
        assert!(ids.iter().all(|id| timers.cancel(*id).is_none()));
        assert_eq!(timers.len(), 1);
    }
}
