//! When the device is kept idle, and what is known about the habits of processes.

use super::queue::Qid;
use super::tree::Workload;
use super::{Cfq, Ending};
use crate::Request;
use crate::elevator::NoteKind;
use base::Nanos;
use rt::IoClass;

/// A jump of more sectors is a seek.
const SEEK_SECTORS: u64 = 800;
/// On a device without seeks, a request of fewer sectors counts as one.
const SMALL_SECTORS: u64 = 64;
/// Seeks among the last 32 requests that make a queue seeky, when exceeded.
const SEEKY: u32 = 4;
/// Waiting requests that make a queue deep.
const DEEP: usize = 4;

/// Whether the device works on several requests at once, found out by watching.
#[derive(Default)]
pub(super) struct TagWatch {
    /// `None` until enough has been seen; counts as yes.
    queues: Option<bool>,
    deepest: u32,
    samples: u32,
}

impl Cfq {
    pub(super) fn is_seeky(&self, q: Qid) -> bool {
        self.queues[q].seek_history.count_ones() > SEEKY
    }

    /// Idling is of no use on a device without seeks that takes several requests at once.
    fn idling_is_useless(&self) -> bool {
        !self.rotational && self.tags.queues.unwrap_or(true)
    }

    /// Whether it is worth waiting for the next request of a queue: it is a habit of the queue, or
    /// it is the last synchronous one of its tree.
    pub(super) fn should_idle(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        if self.tunables.slice_idle() == 0 || queue.class() == IoClass::Idle {
            return false;
        }
        queue.idle_window && !self.idling_is_useless() || queue.sync && self.tree_len_of(q) == 1
    }

    /// Begins to idle for the active queue, which has become empty.
    pub(super) fn arm_idle(&mut self, q: Qid) {
        if self.idling_is_useless() || self.queues[q].dispatched > 0 {
            return;
        }
        let alone = self.groups[self.queues[q].group].busy == 1;
        let span = match self.should_idle(q) {
            true => self.tunables.slice_idle(),
            false if alone => self.tunables.group_idle(),
            false => 0,
        };
        if span == 0 {
            return;
        }
        // Its process may have ended, or think longer than the slice lasts.
        if self.queues[q].refs == 0 {
            return;
        }
        let Some(context) = self.active_ioc.and_then(|ioc| self.contexts.get(&ioc)) else { return };
        let rest = self.queues[q].slice.end - self.tick;
        if context.think.is_valid() && rest < context.think.mean {
            return;
        }
        let until = self.tick + span;
        self.idle_until = Some(until);
        self.idle_since = self.now;
        let until = self.time_of(until);
        self.note(NoteKind::IdleArmed, q, until.0);
    }

    /// Stops idling because of something else than a request.
    pub(super) fn cancel_idle(&mut self, q: Qid) {
        if self.idle_until.take().is_some() {
            self.note(NoteKind::IdleCancelled, q, self.now.since(self.idle_since).0);
        }
    }

    /// The request came.
    pub(super) fn satisfy_idle(&mut self, q: Qid) {
        if self.idle_until.take().is_some() {
            self.note(NoteKind::IdleSatisfied, q, self.now.since(self.idle_since).0);
        }
    }

    /// The idle timer: nothing came.
    pub(super) fn idle_timer(&mut self) {
        if self.idle_until.is_none_or(|until| self.tick < until) {
            return;
        }
        self.idle_until = None;
        let Some(q) = self.active else { return };
        self.note(NoteKind::IdleFired, q, self.now.since(self.idle_since).0);
        if !self.slice_used(q) {
            if !self.queues[q].is_empty() {
                return;
            }
            self.queues[q].deep = false;
        }
        self.expire(q, Ending::IdledOut, false);
    }

    /// Learns from a new request that lies in `q` already.
    pub(super) fn learn(&mut self, q: Qid, request: &Request) {
        if self.queues[q].sync {
            let most = 2 * self.tunables.slice_idle();
            let tick = self.tick;
            if let Some(context) = self.contexts.get_mut(&request.ioc) {
                context.think.sample(tick, most);
            }
        }
        self.learn_seek(q, request);
        self.update_idle_window(q, request.ioc);
        self.queues[q].last_end = Some(request.end_sector());
    }

    fn learn_seek(&mut self, q: Qid, request: &Request) {
        let rotational = self.rotational;
        let queue = &mut self.queues[q];
        let jump = queue.last_end.map_or(0, |last| last.0.abs_diff(request.sector.0));
        let seek = if rotational { jump > SEEK_SECTORS } else { request.count < SMALL_SECTORS };
        queue.seek_history = queue.seek_history << 1 | seek as u32;
    }

    fn update_idle_window(&mut self, q: Qid, ioc: u64) {
        let seeky = self.is_seeky(q);
        let slice_idle = self.tunables.slice_idle();
        let queue = &mut self.queues[q];
        if !queue.sync || queue.class() == IoClass::Idle {
            return;
        }
        queue.deep |= queue.sorted.len() >= DEEP;
        let next = queue.next.and_then(|key| queue.sorted.get(&key));
        let noidle = next.is_some_and(|id| self.slots[id.0 as usize].noidle);
        let Some(context) = self.contexts.get(&ioc) else { return };
        if slice_idle == 0 || !queue.deep && seeky || self.tunables.next_noidle && noidle {
            queue.idle_window = false;
        } else if context.think.is_valid() {
            queue.idle_window = context.think.mean <= slice_idle;
        }
    }

    /// What a completion means for idling: the active queue is empty and somebody waited for the
    /// request.
    pub(super) fn idle_after(&mut self, q: Qid, noidle: bool) {
        self.serving.tree_idles |= !noidle;
        let alone = self.groups[self.queues[q].group].busy == 1;
        if self.serving.workload == Workload::Sync || self.serving.tree_idles || alone {
            self.arm_idle(q);
        }
    }

    /// Watches how many requests the device takes at once.
    pub(super) fn watch_tags(&mut self) {
        const ENOUGH: u32 = 5;
        let in_driver = self.in_flight[0] + self.in_flight[1];
        self.tags.deepest = self.tags.deepest.max(in_driver);
        if self.tags.queues.is_none() && self.tags.deepest >= ENOUGH {
            self.tags.queues = Some(true);
        }
        if self.waiting <= ENOUGH && in_driver <= ENOUGH {
            return;
        }
        let holds_back = self.active_queue().is_some_and(|queue| {
            queue.idle_window && queue.dispatched + (queue.sorted.len() as u32) < ENOUGH
        });
        if holds_back && in_driver < ENOUGH {
            return;
        }
        self.tags.samples += 1;
        if self.tags.samples >= 50 {
            self.tags.queues = Some(self.tags.deepest >= ENOUGH);
            self.tags.samples = 0;
            self.tags.deepest = 0;
        }
    }

    /// When a tick begins.
    pub(super) fn time_of(&self, tick: super::tunables::Ticks) -> Nanos {
        Nanos((tick.max(0) as u64 * 1_000_000_000).div_ceil(self.tunables.hz() as u64))
    }

    /// The tick at a time.
    pub(super) fn tick_of(&self, now: Nanos) -> super::tunables::Ticks {
        (now.0 as u128 * self.tunables.hz() as u128 / 1_000_000_000) as super::tunables::Ticks
    }
}
