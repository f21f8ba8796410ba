//! What happens while a queue in service is empty: idling, and requests of others in between.

use super::Bfq;
use super::queue::Qid;
use crate::Request;
use crate::elevator::NoteKind;
use base::Nanos;

/// A queue that becomes busy so soon after a completion of another one may have been woken by it.
const WAKE_WINDOW: Nanos = Nanos::from_millis(4);
/// So many times in a row make it certain.
const WAKES: u32 = 3;
/// After so long, injection that did harm is tried again.
const RETRY: Nanos = Nanos::from_secs(1);
/// Idling for a queue that seeks is worth at most this.
const SEEKY_IDLE: Nanos = Nanos::from_millis(2);

impl Bfq {
    /// Whether to keep the device for an empty queue: a process that goes on soon and in sequence
    /// makes that pay, and queues of unequal weight need it to get their share.
    pub(super) fn better_to_idle(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        let slice_idle = self.tunables.slice_idle;
        if !queue.sync || queue.class() == rt::IoClass::Idle || slice_idle == Nanos::ZERO {
            return false;
        }
        if queue.gone || queue.samples >= 3 && queue.think > slice_idle {
            return false;
        }
        let seeks_cost = self.rotational || self.depth == 1;
        let sequential = !queue.is_seeky();
        seeks_cost && sequential || self.tunables.strict_guarantees || self.is_asymmetric()
    }

    /// Busy queues differ in weight or class, or are of groups.
    fn is_asymmetric(&self) -> bool {
        if self.groups.any_busy() {
            return true;
        }
        let mut kinds = self.busy.iter().map(|&q| {
            let queue = &self.queues[q];
            (queue.class(), queue.weight())
        });
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// A queue that is empty for a moment only keeps the device beyond its time where shares depend
    /// on it: the others would be alone, whatever their weights.
    pub(super) fn must_wait(&self, q: Qid) -> bool {
        let empty = self.queues[q].order.is_empty();
        let comes = self.idle_until.is_some() || self.queues[q].dispatched > 0;
        empty && comes && self.is_asymmetric() && self.better_to_idle(q)
    }

    /// Begins to idle for the queue in service, which is empty.
    pub(super) fn arm_idle(&mut self, q: Qid) {
        let mut span = self.tunables.slice_idle;
        if self.queues[q].is_seeky() && !self.is_asymmetric() {
            span = span.min(SEEKY_IDLE);
        }
        self.idle_until = Some(self.now + span);
        self.idle_since = self.now;
        self.note(NoteKind::IdleArmed, q, (self.now + span).0);
    }

    /// Ends the idling, if any.
    pub(super) fn stop_idle(&mut self, q: Qid, why: NoteKind) {
        if self.idle_until.take().is_some() {
            self.note(why, q, self.now.since(self.idle_since).0);
        }
    }

    /// Another queue whose next request may go while the queue in service is empty: its waker, else
    /// anybody while fewer requests are in flight than its limit allows.
    pub(super) fn choose_injected(&self, q: Qid) -> Option<Qid> {
        let queue = &self.queues[q];
        let waker = queue.waker.and_then(|ioc| self.contexts.get(&ioc).copied());
        if let Some(waker) = waker.filter(|&waker| !self.queues[waker].order.is_empty()) {
            return Some(waker);
        }
        if self.in_flight >= queue.inject_limit || self.tunables.strict_guarantees {
            return None;
        }
        let others = self.busy.iter().copied();
        others
            .filter(|&other| other != q && !self.queues[other].order.is_empty())
            .min_by_key(|&other| (self.queues[other].class(), self.queues[other].finish, other))
    }

    /// Learns who wakes the owner of a queue, from a request that makes it busy.
    pub(super) fn detect_waker(&mut self, q: Qid) {
        let Some((waker, when)) = self.last_completed else { return };
        let now = self.now;
        let queue = &mut self.queues[q];
        let idle = queue.sync && queue.order.is_empty() && queue.dispatched == 0;
        if !idle || waker == queue.owner || waker == 0 || now.since(when) > WAKE_WINDOW {
            return;
        }
        let seen = match queue.suspect {
            Some((suspect, seen)) if suspect == waker => seen + 1,
            _ => 1,
        };
        queue.suspect = Some((waker, seen.min(WAKES)));
        if seen == WAKES && queue.waker != Some(waker) {
            queue.waker = Some(waker);
            self.note(NoteKind::WakerFound, q, waker);
        }
    }

    /// A request that came into an empty queue in service: how long it takes shows whether what
    /// was injected did harm.
    pub(super) fn begin_measure(&mut self, q: Qid, request: &Request) {
        let now = self.now;
        let empty = self.in_service == Some(q);
        let queue = &mut self.queues[q];
        if empty && queue.order.is_empty() && queue.dispatched == 0 {
            queue.measured = Some((request.number, now));
        }
    }

    /// Such a request is done: one more may be injected where it took not half as long again as
    /// without any injection, one less where it did.
    pub(super) fn end_measure(&mut self, q: Qid, request: &Request) {
        let (now, depth) = (self.now, self.depth);
        let queue = &mut self.queues[q];
        let Some((_, came)) = queue.measured.take_if(|measured| measured.0 == request.number)
        else {
            return;
        };
        let took = now.since(came);
        match queue.base_time {
            None => {
                queue.base_time = Some(took);
                queue.inject_limit = 1;
            }
            Some(base) if took < base => queue.base_time = Some(took),
            Some(base) if queue.injected && took.0 * 2 >= base.0 * 3 => {
                queue.inject_limit = queue.inject_limit.saturating_sub(1);
                queue.lowered = now;
            }
            Some(_) if queue.injected => queue.inject_limit = (queue.inject_limit + 1).min(depth),
            Some(_) if queue.inject_limit == 0 && now.since(queue.lowered) > RETRY => {
                queue.inject_limit = 1;
            }
            Some(_) => {}
        }
        queue.injected = false;
    }
}
