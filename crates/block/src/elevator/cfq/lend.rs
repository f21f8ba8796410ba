//! Yielding: a process that waits for another one lends it its queue.
//!
//! As version 6 of "[PATCH 0/6 v6][RFC] jbd[2]: enhance fsync performance when using CFQ" (Jeff
//! Moyer, 2010-07-02) describes it: the yield does not end the slice; new *synchronous* requests of
//! the process that is waited for are issued in the waiter's queue. So they count against its
//! slice, end its idling, and keep its share. The code of the series was not at hand: what the text
//! leaves open is decided here, each point with a test of its name in `tests/cfq_yield.rs`.

use super::Cfq;
use super::queue::Qid;
use crate::elevator::NoteKind;
use rt::IoClass;

/// One process waits for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub waiter: u64,
    pub holder: u64,
}

impl Cfq {
    /// Begins to lend, in the place of what the waiter lent before.
    pub(super) fn lend(&mut self, waiter: u64, holder: u64) {
        if !self.tunables.yields {
            return;
        }
        if !self.can_lend(waiter, holder) {
            let note = |kind, ioc, value| crate::elevator::ElevatorNote { kind, ioc, value };
            self.notes.push(note(NoteKind::YieldRefused, waiter, holder));
            return;
        }
        let lease = Lease { waiter, holder };
        if self.leases.contains(&lease) {
            return; // It keeps its place in the order.
        }
        self.end_leases(|lease| lease.waiter == waiter);
        self.leases.push(lease);
        self.note_lease(NoteKind::YieldBegin, lease);
    }

    /// Both must have done I/O here (a waiter whose queue is on another device has nothing to
    /// lend), and the waiter's class must not be less urgent than the holder's: it would put the
    /// holder's requests back. Their groups must be one, since the waiter's would pay for the
    /// holder's requests, unless `yield_across` allows it.
    fn can_lend(&self, waiter: u64, holder: u64) -> bool {
        let (Some(from), Some(to)) = (self.contexts.get(&waiter), self.contexts.get(&holder))
        else {
            return false;
        };
        let Some(lends) = from.sync.map(|q| &self.queues[q]) else { return false };
        let class = lends.class();
        let other = to.sync.map_or(to.home, |q| self.queues[q].group);
        waiter != holder
            && class != IoClass::Idle
            && class <= to.prio.class()
            && (self.tunables.yield_across || lends.group == other)
    }

    /// The queue in which a new synchronous request of `holder` is issued, where somebody lends:
    /// the active queue before others, then that of the first waiter. A request stays where it was
    /// issued, so no waiter's share goes to another one.
    pub(super) fn lender(&self, holder: u64) -> Option<Qid> {
        if self.leases.is_empty() {
            return None;
        }
        let waiters = self.leases.iter().filter(|lease| lease.holder == holder);
        let queues = waiters.filter_map(|lease| self.contexts.get(&lease.waiter)?.sync);
        let mut first = None;
        for q in queues {
            if Some(q) == self.active {
                return Some(q);
            }
            first.get_or_insert(q);
        }
        first
    }

    /// The waiter's own next request shows that it waits no longer.
    pub(super) fn stop_waiting(&mut self, ioc: u64) {
        if !self.leases.is_empty() {
            self.end_leases(|lease| lease.waiter == ioc);
        }
    }

    /// The slice of a queue has ended: what its processes lent ends with it.
    pub(super) fn end_lending(&mut self, q: Qid) {
        if self.leases.is_empty() {
            return;
        }
        let contexts = std::mem::take(&mut self.contexts);
        self.end_leases(|lease| {
            contexts.get(&lease.waiter).is_some_and(|context| context.sync == Some(q))
        });
        self.contexts = contexts;
    }

    /// Either side has ended.
    pub(super) fn forget_leases_of(&mut self, ioc: u64) {
        self.end_leases(|lease| lease.waiter == ioc || lease.holder == ioc);
    }

    fn end_leases(&mut self, over: impl Fn(&Lease) -> bool) {
        let ended: Vec<Lease> = self.leases.iter().copied().filter(&over).collect();
        self.leases.retain(|lease| !over(lease));
        for lease in ended {
            self.note_lease(NoteKind::YieldEnd, lease);
        }
    }

    fn note_lease(&mut self, kind: NoteKind, lease: Lease) {
        let (ioc, value) = (lease.waiter, lease.holder);
        self.notes.push(crate::elevator::ElevatorNote { kind, ioc, value });
    }
}
