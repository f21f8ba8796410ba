//! Whose turn it is: workloads, queues, slices, and which request of a queue goes.

use super::group::Gid;
use super::queue::{Key, Qid};
use super::tree::Workload;
use super::tunables::Ticks;
use super::{Cfq, Ending};
use crate::RequestId;
use crate::elevator::NoteKind;
use base::Sector;
use rt::{IoClass, IoPriority};

/// Smallest time of a workload, in ticks.
const WORKLOAD_MIN: Ticks = 2;

/// The class and workload that is being served.
#[derive(Clone, Copy)]
pub(super) struct Serving {
    pub class: IoClass,
    pub workload: Workload,
    /// The last tick of its time.
    pub until: Ticks,
    /// A request that did not say NOIDLE completed in this round of the tree without idling per
    /// queue: the device is kept idle at the end of the tree.
    pub tree_idles: bool,
}

impl Default for Serving {
    fn default() -> Serving {
        let (class, workload) = (IoClass::BestEffort, Workload::Async);
        Serving { class, workload, until: 0, tree_idles: false }
    }
}

impl Cfq {
    /// Slice of a level: a fifth of the base more per level above 4, less below.
    pub(super) fn prio_slice(&self, sync: bool, prio: IoPriority) -> Ticks {
        let base = self.tunables.slice(sync);
        base + base / 5 * (4 - prio.level() as Ticks)
    }

    /// The slice that a queue gets now: shorter where so many queues are busy that a round of full
    /// slices would take longer than the target latency.
    pub(super) fn scaled_slice(&mut self, q: Qid) -> Ticks {
        let (sync, prio) = (self.queues[q].sync, self.queues[q].prio);
        let slice = self.prio_slice(sync, prio);
        if !self.tunables.low_latency {
            return slice;
        }
        let group = self.queues[q].group;
        let queues = self.average_busy(group, prio.class());
        let base = self.tunables.slice(true);
        let (expected, target) = (base * queues, self.group_slice(group));
        if expected <= target {
            return slice;
        }
        let least = slice.min(2 * self.tunables.slice_idle() * slice / base);
        (slice * target / expected).max(least)
    }

    /// Average number of busy queues of a class, quick to rise and slow to fall.
    fn average_busy(&mut self, group: Gid, class: IoClass) -> Ticks {
        let busy = self.busy_in(group, class) as Ticks;
        let average = &mut self.groups[group].averages[(class == IoClass::RealTime) as usize];
        *average = (3 * busy.max(*average) + busy.min(*average) + 2) / 4;
        *average
    }

    /// The running slice has no time left. One that has not begun to run has.
    pub(super) fn slice_used(&self, q: Qid) -> bool {
        let slice = &self.queues[q].slice;
        !slice.fresh && self.tick >= slice.end
    }

    /// Whether the slice ends before more requests than now could be served.
    fn slice_used_soon(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        let ahead = self.tunables.slice_idle() * queue.dispatched as Ticks;
        queue.slice.fresh || self.tick + ahead > queue.slice.end
    }

    /// The queue to serve now; none where the device should wait.
    pub(super) fn select(&mut self) -> Option<Qid> {
        let mut next = None;
        if let Some(q) = self.active {
            if self.queues[q].slice.waits_busy && !self.queues[q].is_empty() {
                self.expire(q, Ending::UsedUp, false); // Its group has something to do again.
            } else if self.slice_used(q) {
                if self.keeps_sole_queue(q) || self.group_idles(q) {
                    return None;
                }
                self.expire(q, Ending::UsedUp, false);
            } else if !self.queues[q].is_empty() {
                return Some(q);
            } else if let Some(close) = self.close_cooperator(q) {
                if self.queues[q].merge_into.is_none() {
                    self.plan_merge(q, close);
                }
                self.expire(q, Ending::GivenUp, false);
                next = Some(close);
            } else if self.idle_until.is_some()
                || self.queues[q].dispatched > 0 && self.should_idle(q)
                || self.group_idles(q)
            {
                return None;
            } else {
                self.expire(q, Ending::GivenUp, false);
            }
        }
        let q = next.or_else(|| self.choose())?;
        self.activate(q);
        Some(q)
    }

    /// A queue that is alone, idles and has requests in flight is kept beyond its slice: its
    /// process is expected to go on.
    fn keeps_sole_queue(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        self.groups[queue.group].busy == 1
            && queue.is_empty()
            && queue.dispatched > 0
            && self.should_idle(q)
    }

    /// Chooses group, class, workload and queue.
    fn choose(&mut self) -> Option<Qid> {
        let group = self.choose_group()?;
        let classes = [IoClass::RealTime, IoClass::BestEffort, IoClass::Idle];
        let class = classes.into_iter().find(|&class| self.busy_in(group, class) > 0)?;
        let same_class = class == self.serving.class;
        self.serving.class = class;
        if class == IoClass::Idle {
            self.serving.until = self.tick + 1;
        } else if !same_class
            || self.tree(group, class, self.serving.workload).is_empty()
            || self.tick > self.serving.until
        {
            self.choose_workload(group, class);
        }
        self.tree(group, class, self.serving.workload).first_key_value().map(|(_, &q)| q)
    }

    /// The workload whose first queue has the smallest key, and its time: its share of the group's
    /// by number of queues.
    fn choose_workload(&mut self, group: Gid, class: IoClass) {
        let first = |kind: &Workload| {
            self.tree(group, class, *kind).first_key_value().map(|(&(key, _), _)| (key, *kind))
        };
        let Some((_, kind)) = Workload::ALL.iter().filter_map(first).min() else { return };
        let count = self.tree(group, class, kind).len() as Ticks;
        let average = self.groups[group].averages[(class == IoClass::RealTime) as usize];
        let all = average.max(self.busy_in(group, class) as Ticks);
        let target = self.tunables.target_latency();
        let mut time = self.group_slice(group) * count / all;
        if kind == Workload::Async {
            let share = target * self.busy_async() as Ticks / self.busy as Ticks;
            time = time.min(share) * self.tunables.slice(false) / self.tunables.slice(true);
        } else {
            time = time.max(2 * self.tunables.slice_idle());
        }
        self.serving.workload = kind;
        self.serving.until = self.tick + time.max(WORKLOAD_MIN);
        self.serving.tree_idles = false;
    }

    /// Gives the device to a queue.
    fn activate(&mut self, q: Qid) {
        let now = self.now;
        let slice = &mut self.queues[q].slice;
        slice.fresh = true;
        slice.end = 0;
        slice.started = None;
        slice.waits_busy = false;
        slice.length = 0;
        slice.began = now;
        slice.dispatched = 0;
        slice.fifo_checked = false;
        self.active = Some(q);
        self.active_ioc = None;
        self.idle_until = None;
        let place =
            self.queues[q].place.map_or(0, |place| place.class as u64 + 10 * place.workload as u64);
        self.note(NoteKind::SliceBegin, q, place);
    }

    /// The first completion starts the slice.
    pub(super) fn start_slice(&mut self, q: Qid) {
        let length = self.scaled_slice(q);
        let (start, end) = (self.tick, self.tick + length);
        let slice = &mut self.queues[q].slice;
        slice.fresh = false;
        slice.started = Some(start);
        slice.length = length;
        slice.end = end;
    }

    /// The slice of its group's only queue lasts until the next request is there, for as long as
    /// the device would be kept idle for it.
    pub(super) fn extend_slice(&mut self, q: Qid) {
        let span = match self.should_idle(q) {
            true => self.tunables.slice_idle(),
            false => self.tunables.group_idle(),
        };
        let end = self.tick + span;
        let slice = &mut self.queues[q].slice;
        slice.end = end;
        slice.waits_busy = true;
    }

    /// Ends the slice of the active queue. What is left of it is remembered where `keep_rest`.
    pub(super) fn expire(&mut self, q: Qid, why: Ending, keep_rest: bool) {
        self.cancel_idle(q);
        let seeky = self.is_seeky(q);
        let rest = match self.queues[q].slice.fresh {
            true => self.scaled_slice(q),
            false => self.queues[q].slice.end - self.tick,
        };
        let queue = &mut self.queues[q];
        queue.split |= queue.coop && seeky;
        if keep_rest {
            queue.slice.residual = rest;
        }
        self.charge_group(q);
        let queue = &self.queues[q];
        let had = self.now.since(queue.slice.began).0;
        if queue.is_empty() {
            self.unplace(q);
        } else if queue.place.is_some() {
            self.place(q, false);
        }
        if self.active == Some(q) {
            self.active = None;
        }
        match why {
            Ending::UsedUp => self.note(NoteKind::SliceUsedUp, q, had),
            Ending::GivenUp => self.note(NoteKind::SliceGivenUp, q, had),
            Ending::Drained => self.note(NoteKind::SliceDrained, q, had),
            Ending::IdledOut => {}
            Ending::Preempted(by) => self.note(NoteKind::Preempted, q, by),
        }
        if matches!(why, Ending::UsedUp | Ending::IdledOut | Ending::Drained) {
            self.end_lending(q);
        }
        self.free_if_unused(q);
    }

    /// Whether the active queue may give one more request to the device.
    pub(super) fn may_dispatch(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        let [in_flight_async, in_flight_sync] = self.in_flight;
        if self.should_idle(q) && in_flight_async > 0 {
            return false; // Asynchronous requests drain first.
        }
        if !queue.sync && in_flight_sync > 0 {
            return false;
        }
        let quantum = self.tunables.quantum;
        let is_idle_class = queue.class() == IoClass::Idle;
        let mut most = if is_idle_class { 1 } else { (quantum / 2).max(1) };
        if queue.dispatched >= most {
            if is_idle_class {
                return false;
            }
            let alone = queue.sync && self.busy_sync == 1;
            if self.busy > 1 && !alone && self.slice_used_soon(q) {
                return false;
            }
            most = if self.busy == 1 || alone { u32::MAX } else { quantum };
        }
        if !queue.sync && self.tunables.low_latency {
            most = most.min(self.async_depth(queue.dispatched));
        }
        queue.dispatched < most
    }

    /// Asynchronous requests that may be in flight: one per synchronous slice since a synchronous
    /// request was late, and one to begin with.
    fn async_depth(&self, dispatched: u32) -> u32 {
        let since = (self.tick - self.last_delayed_sync).max(0);
        let depth = (since / self.tunables.slice(true)).min(u32::MAX as Ticks) as u32;
        if depth == 0 && dispatched == 0 { 1 } else { depth }
    }

    /// Requests that an asynchronous queue gives out in one slice.
    pub(super) fn async_slice_requests(&self, q: Qid) -> u32 {
        let base = self.tunables.slice_async_rq;
        2 * (base + base * (IoPriority::LEVELS - 1 - self.queues[q].prio.level()) as u32)
    }

    /// The request of a queue that goes: once per slice the oldest where it has expired, else the
    /// next in order of position.
    pub(super) fn request_of(&mut self, q: Qid) -> Option<RequestId> {
        let queue = &mut self.queues[q];
        if !queue.slice.fifo_checked {
            queue.slice.fifo_checked = true;
            if let Some((&(expiry, _), &id)) = queue.fifo.first_key_value()
                && self.tick >= expiry
            {
                return Some(id);
            }
        }
        let queue = &self.queues[q];
        queue.next.map(|key| queue.sorted[&key])
    }

    /// The request that follows on `key` (which is no longer in the order).
    pub(super) fn following(&self, q: Qid, key: Key) -> Option<Key> {
        let sorted = &self.queues[q].sorted;
        let before = sorted.range(..key).next_back().map(|(&key, _)| key);
        let behind = sorted.range(key..).next().or_else(|| sorted.first_key_value());
        let behind = behind.map(|(&key, _)| key);
        self.better(q, behind, before, key.0)
    }

    /// The better one of two requests for a device that stands at `head`.
    pub(super) fn better(
        &self,
        q: Qid,
        one: Option<Key>,
        other: Option<Key>,
        head: Sector,
    ) -> Option<Key> {
        let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
        let sorted = &self.queues[q].sorted;
        let meta = |key: Key| self.slots[sorted[&key].0 as usize].meta;
        if meta(a) != meta(b) {
            return Some(if meta(a) { a } else { b });
        }
        // Ahead by distance, close behind by distance times the penalty, else around: the lowest.
        let cost = |key: Key| {
            let tunables = &self.tunables;
            let behind = head.0.saturating_sub(key.0.0);
            match key.0 >= head {
                true => (0, key.0.0 - head.0, Sector(u64::MAX - key.0.0)),
                false if behind <= tunables.back_seek_max => {
                    (0, behind * tunables.back_seek_penalty as u64, Sector(u64::MAX - key.0.0))
                }
                false => (1, 0, key.0),
            }
        };
        Some(if cost(b) < cost(a) { b } else { a })
    }
}
