//! Virtual time: who is served next, and for how much.
//!
//! The algorithm is B-WF2Q+ (Jon Bennett and Hui Zhang, "Hierarchical packet fair queueing
//! algorithms", 1996) with budgets of sectors, as Paolo Valente and Fabio Checconi, "High
//! throughput disk scheduling with fair bandwidth distribution", 2010, use it: a queue with budget
//! b and weight w is busy from virtual time S to F = S + b / w; of the queues with S not above the
//! system's virtual time the one with the smallest F is served.

use super::queue::Qid;
use super::{Bfq, Ending};
use crate::elevator::NoteKind;
use base::Nanos;
use rt::IoClass;

/// Virtual time per sector and unit of weight.
pub(super) const SCALE: u64 = 1 << 16;
/// The sectors of asynchronous requests count so many times, since they come in floods.
const ASYNC_CHARGE: u64 = 3;
/// Largest budget until the rate of the device is known.
const FIRST_BUDGET: u64 = 16 * 1024;

/// The rate of the device, to size budgets by.
#[derive(Default)]
pub(super) struct PeakRate {
    /// Sectors per second; 0 until known.
    pub rate: u64,
    since: Nanos,
    sectors: u64,
}

impl PeakRate {
    /// A request completed; `idle` where the device had nothing else.
    pub fn completed(&mut self, sectors: u64, now: Nanos, idle: bool) {
        self.sectors += sectors;
        let span = now.since(self.since);
        if span >= Nanos::from_millis(100) {
            let rate = (self.sectors as u128 * 1_000_000_000 / span.0 as u128) as u64;
            self.rate = if rate > self.rate { rate } else { (15 * self.rate + rate) / 16 };
            (self.since, self.sectors) = (now, 0);
        } else if idle {
            (self.since, self.sectors) = (now, 0);
        }
    }
}

impl Bfq {
    /// Largest budget in sectors: what the device does in `timeout_sync`.
    pub(super) fn max_budget(&self) -> u64 {
        if self.tunables.max_budget > 0 {
            return self.tunables.max_budget;
        }
        match self.peak.rate {
            0 => FIRST_BUDGET,
            rate => (rate as u128 * self.tunables.timeout_sync.0 as u128 / 1_000_000_000) as u64,
        }
        .max(32)
    }

    fn min_budget(&self) -> u64 {
        self.max_budget() / 32
    }

    /// A queue has something to do.
    pub(super) fn activate(&mut self, q: Qid) {
        if self.queues[q].busy {
            return;
        }
        let cgroup = self.queues[q].cgroup;
        let first = !self.busy.iter().any(|&other| {
            let other = &self.queues[other];
            other.class() < IoClass::Idle && other.cgroup == cgroup
        });
        let time = self.time_of(cgroup);
        let queue = &mut self.queues[q];
        queue.busy = true;
        queue.served = 0;
        queue.start = if first { time } else { queue.finish.max(time) };
        queue.finish = queue.start + SCALE * queue.budget / queue.weight();
        let budget = queue.budget;
        self.busy.push(q);
        self.group_joined(cgroup, budget);
    }

    fn deactivate(&mut self, q: Qid) {
        self.queues[q].busy = false;
        self.busy.retain(|&other| other != q);
        self.group_left(self.queues[q].cgroup);
    }

    /// Serves the next queue.
    pub(super) fn choose(&mut self) -> Option<Qid> {
        let q = self.next_queue()?;
        self.queues[q].served = 0;
        self.in_service = Some(q);
        self.service_began = self.now;
        let queue = &self.queues[q];
        let place = queue.class() as u64 + 10 * if queue.sync { 2 } else { 0 };
        self.note(NoteKind::SliceBegin, q, place);
        Some(q)
    }

    /// Sectors of a request as they count against its queue.
    pub(super) fn charge(&mut self, q: Qid, sectors: u64) {
        let factor = if self.queues[q].sync { 1 } else { ASYNC_CHARGE };
        let in_service = self.in_service == Some(q);
        let queue = &mut self.queues[q];
        if in_service {
            queue.served += sectors * factor;
        } else {
            // Injected: it comes later for that.
            let later = SCALE * sectors * factor / queue.weight();
            queue.start += later;
            queue.finish += later;
            self.group_charged(q, sectors * factor);
        }
        self.advance(self.queues[q].cgroup, sectors * factor);
    }

    /// Ends the service of a queue: it is charged, by time where it was slow, and gets a new
    /// budget.
    pub(super) fn expire(&mut self, q: Qid, why: Ending) {
        self.stop_idle(q, NoteKind::IdleCancelled);
        let (least, most) = (self.min_budget(), self.max_budget());
        let took = self.now.since(self.service_began);
        let timeout = self.tunables.timeout_sync;
        let by_time = (most as u128 * took.0.min(timeout.0) as u128 / timeout.0 as u128) as u64;
        let queue = &mut self.queues[q];
        let slow = why == Ending::Timeout || queue.is_seeky();
        let charged = if slow { queue.served.max(by_time) } else { queue.served };
        let (budget, served) = (queue.budget, queue.served);
        queue.budget = match why {
            _ if !queue.sync => most,
            Ending::Exhausted => budget * 4,
            Ending::Timeout => budget * 2,
            Ending::Idle => budget.saturating_sub(4 * least),
            Ending::Empty => served,
            Ending::Drained => budget,
        }
        .clamp(least, most);
        queue.start += SCALE * charged / queue.weight();
        queue.finish = queue.start;
        self.group_charged(q, charged);
        self.in_service = None;
        let kind = match why {
            Ending::Exhausted | Ending::Timeout => NoteKind::SliceUsedUp,
            Ending::Idle | Ending::Empty => NoteKind::SliceGivenUp,
            Ending::Drained => NoteKind::SliceDrained,
        };
        self.note(kind, q, took.0);
        let queue = &mut self.queues[q];
        if queue.order.is_empty() {
            self.deactivate(q);
        } else {
            queue.finish = queue.start + SCALE * queue.budget / queue.weight();
        }
    }

    /// A queue that is not in service has lost its last request.
    pub(super) fn emptied(&mut self, q: Qid) {
        if self.in_service != Some(q) && self.queues[q].order.is_empty() {
            let queue = &mut self.queues[q];
            queue.finish = queue.start;
            self.deactivate(q);
        }
    }
}
