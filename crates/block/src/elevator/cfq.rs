//! `cfq`: completely fair queueing, as Linux had it from 2.6.33 to 2.6.36.
//!
//! Every process has a queue of its own for synchronous requests; asynchronous ones share a queue
//! per priority. Queues get the device in turn, each for a *slice* of time, and the device is
//! kept *idle* for a moment when the active queue has nothing more, because its process may go on.
//!
//! - `cfq/queue.rs`: queues and processes; `cfq/tree.rs`: busy queues by class (RT, BE, IDLE) and
//!   workload (ASYNC, SYNC_NOIDLE, SYNC), sorted by key;
//! - `cfq/select.rs`: whose turn it is, slices, limits, the next request of a queue;
//! - `cfq/idle.rs`: idling, think time, seeks; `cfq/preempt.rs`: preemption;
//! - `cfq/coop.rs`: close cooperators, merge and split; `cfq/lend.rs`: yielding;
//! - `cfq/group.rs`: control groups.
//!
//! All comparisons of time are made in ticks of HZ (tunable `hz`), and the idle timer fires at the
//! beginning of a tick, so that 8 ms of idling last from 7 to 8 ms.
//!
//! Not modelled: groups inside of groups, the per-request boost of a process that holds a
//! file-system resource. Where Linux would wait for the unplug of a small request that ends the
//! idling of a lone queue, we dispatch at once: plugs are on the task's side here.
//!
//! Sources: Documentation/block/cfq-iosched.txt of Linux; "[PATCH 0/6 v6][RFC] jbd[2]: enhance
//! fsync performance when using CFQ", Jeff Moyer, 2010-07-02; descriptions of the algorithm.

mod coop;
mod group;
mod idle;
mod lend;
mod preempt;
mod queue;
mod select;
mod tree;
mod tunables;

use super::{Dispatch, Elevator, ElevatorNote, Newcomer, NoteKind, TunableError, unknown_tunable};
use crate::bio::is_sync;
use crate::share::GroupShare;
use crate::{BioFlags, DeviceInfo, Request, RequestId};
use base::map::HashMap;
use base::{Nanos, Sector};
use group::{Gid, Groups};
use idle::TagWatch;
use lend::Lease;
use queue::{CfqQueue, Context, Qid, Queues, Slot};
use rt::{Cgroup, IoClass};
use select::Serving;
use std::collections::BTreeSet;
use tunables::{Ticks, Tunables};

/// Queues whose next request is at most so many sectors from the device's place are close.
const CLOSE_SECTORS: u64 = 8 * 1024;

/// Why a slice ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    UsedUp,
    /// Nothing more to do, and not worth waiting.
    GivenUp,
    /// Nothing came while the device was kept idle.
    IdledOut,
    Drained,
    /// By the queue of that process.
    Preempted(u64),
}

/// A request in flight: what it was of when it left.
#[derive(Clone, Copy)]
struct Given {
    queue: Qid,
    group: Gid,
}

/// The elevator.
pub struct Cfq {
    tunables: Tunables,
    rotational: bool,
    tags: TagWatch,
    /// The clock at the beginning of the current call, in both units.
    now: Nanos,
    tick: Ticks,
    queues: Queues,
    contexts: HashMap<u64, Context>,
    async_queues: [Option<Qid>; 24],
    slots: Vec<Slot>,
    /// Each request in flight, by number.
    flights: HashMap<u64, Given>,
    groups: Groups,
    /// Counts places in trees.
    order: u64,
    /// Queues in trees, and the synchronous ones of them.
    busy: u32,
    busy_sync: u32,
    serving: Serving,
    /// The queue that has the device.
    active: Option<Qid>,
    /// The process of its latest request.
    active_ioc: Option<u64>,
    /// The device is kept idle for the active queue until this tick.
    idle_until: Option<Ticks>,
    idle_since: Nanos,
    /// Waiting requests.
    waiting: u32,
    /// Requests in flight: asynchronous, synchronous.
    in_flight: [u32; 2],
    /// When a synchronous request completed that had taken longer than `fifo_expire_sync`.
    last_delayed_sync: Ticks,
    /// End of the latest request that went to the device.
    last_position: Sector,
    /// Synchronous queues with requests by (level, sector of the next request).
    positions: BTreeSet<(u8, Sector, Qid)>,
    leases: Vec<Lease>,
    notes: Vec<ElevatorNote>,
}

impl Default for Cfq {
    fn default() -> Cfq {
        let tunables = Tunables::default();
        Cfq {
            // As if the last late request lay a second back: no slow start after boot.
            last_delayed_sync: -tunables.hz(),
            tunables,
            rotational: true,
            tags: TagWatch::default(),
            now: Nanos::ZERO,
            tick: 0,
            queues: Queues::default(),
            contexts: HashMap::default(),
            async_queues: [None; 24],
            slots: Vec::new(),
            flights: HashMap::default(),
            groups: Groups::default(),
            order: 0,
            busy: 0,
            busy_sync: 0,
            serving: Serving::default(),
            active: None,
            active_ioc: None,
            idle_until: None,
            idle_since: Nanos::ZERO,
            waiting: 0,
            in_flight: [0; 2],
            last_position: Sector(0),
            positions: BTreeSet::new(),
            leases: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Cfq {
    fn clock(&mut self, now: Nanos) {
        self.now = now;
        self.tick = self.tick_of(now);
    }

    fn note(&mut self, kind: NoteKind, q: Qid, value: u64) {
        let ioc = self.queues[q].owner;
        self.notes.push(ElevatorNote { kind, ioc, value });
    }

    /// The queue that a new request belongs to.
    fn queue_for(&mut self, request: &Request) -> Qid {
        self.stop_waiting(request.ioc);
        let home = self.groups.named(request.cgroup);
        self.context(request.ioc, request.ioprio).home = home;
        if !request.is_sync() {
            return self.async_queue(request.ioprio);
        }
        if let Some(q) = self.lender(request.ioc) {
            self.note(NoteKind::YieldRequest, q, request.ioc);
            return q;
        }
        self.sync_queue(request.ioc, request.ioprio, home)
    }

    /// Takes a request out of its queue's lists.
    fn forget(&mut self, id: RequestId, sector: Sector) -> Qid {
        let Slot { queue: q, expiry, number, meta, .. } = self.slots[id.0 as usize];
        let key = (sector, number);
        let queue = &mut self.queues[q];
        queue.sorted.remove(&key);
        queue.fifo.remove(&(expiry, number));
        queue.meta_waiting -= meta as u32;
        self.waiting -= 1;
        if self.queues[q].next == Some(key) {
            self.queues[q].next = self.following(q, key);
            self.update_near(q);
        }
        q
    }

    /// Gives a request out.
    fn give(&mut self, id: RequestId, view: &Dispatch<'_>) -> RequestId {
        let request = view.requests.get(id);
        let q = self.forget(id, request.sector);
        let next = self.following(q, (request.sector, request.number));
        let sync = self.queues[q].sync;
        let queue = &mut self.queues[q];
        queue.next = next;
        queue.dispatched += 1;
        queue.slice.dispatched += 1;
        self.in_flight[sync as usize] += 1;
        let group = self.queues[q].group;
        self.groups[group].in_flight += 1;
        self.flights.insert(request.number, Given { queue: q, group });
        self.last_position = request.end_sector();
        self.update_near(q);
        if self.active == Some(q) {
            self.active_ioc = Some(request.ioc);
        }
        id
    }

    /// A request that somebody waited for is done.
    fn sync_completed(&mut self, request: &Request) {
        let tick = self.tick;
        if let Some(context) = self.contexts.get_mut(&request.ioc) {
            context.think.last_end = tick;
        }
        let late =
            self.tunables.fifo_expire(true) as u64 * 1_000_000_000 / self.tunables.hz() as u64;
        if self.now.since(request.queued).0 >= late {
            self.last_delayed_sync = tick;
        }
    }

    /// The next request whatever the policy: the slice ends, and the trees are emptied in order.
    fn dispatch_forced(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        if let Some(active) = self.active {
            self.expire(active, Ending::Drained, false);
        }
        let q = self.groups.first_busy()?;
        let id = self.request_of(q)?;
        self.give(id, view);
        if self.queues[q].is_empty() {
            self.unplace(q);
        }
        Some(id)
    }

    /// A queue that is not entitled to a whole slice gives the device up after its share.
    fn limit_slice(&mut self, q: Qid) {
        let queue = &self.queues[q];
        let over = !queue.sync && queue.slice.dispatched >= self.async_slice_requests(q);
        if self.busy > 1 && (over || queue.class() == IoClass::Idle) {
            self.expire(q, Ending::UsedUp, false);
        }
    }
}

impl Elevator for Cfq {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.rotational = info.rotational;
    }

    fn allow_merge(&self, id: RequestId, request: &Request, new: &Newcomer) -> bool {
        // A neighbour joins only in the queue that it would come into itself.
        let q = self.slots[id.0 as usize].queue;
        if !is_sync(request.op, new.flags) {
            return self.async_queues[queue::async_index(new.ioprio)] == Some(q);
        }
        let own = || self.contexts.get(&new.ioc)?.sync;
        self.lender(new.ioc).or_else(own) == Some(q)
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        self.clock(now);
        let q = self.queue_for(request);
        let number = request.number;
        let expiry = self.tick + self.tunables.fifo_expire(self.queues[q].sync);
        let meta = request.flags.contains(BioFlags::META);
        let noidle = request.flags.contains(BioFlags::NOIDLE);
        let slot = Slot { queue: q, expiry, number, meta, noidle };
        if self.slots.len() <= id.0 as usize {
            self.slots.resize(id.0 as usize + 1, slot);
        }
        self.slots[id.0 as usize] = slot;
        let key = (request.sector, number);
        let queue = &mut self.queues[q];
        queue.sorted.insert(key, id);
        queue.fifo.insert((expiry, number), id);
        queue.meta_waiting += meta as u32;
        self.waiting += 1;
        if self.queues[q].place.is_none() {
            self.place(q, false);
        }
        let next = self.queues[q].next;
        self.queues[q].next = self.better(q, next, Some(key), self.last_position);
        self.update_near(q);
        self.learn(q, request);
        if self.active == Some(q) {
            self.satisfy_idle(q);
        } else if self.preempts(q, request) {
            self.preempt(q);
        }
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        if old_start == request.sector {
            return;
        }
        let q = self.slots[id.0 as usize].queue;
        let (old, new) = ((old_start, request.number), (request.sector, request.number));
        let queue = &mut self.queues[q];
        queue.sorted.remove(&old);
        queue.sorted.insert(new, id);
        if queue.next == Some(old) {
            queue.next = Some(new);
        }
        let next = self.queues[q].next;
        self.queues[q].next = self.better(q, next, Some(new), self.last_position);
        self.update_near(q);
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        let (gone_slot, into_slot) = (self.slots[gone.0 as usize], self.slots[into.0 as usize]);
        let q = self.forget(gone, absorbed.sector);
        if gone_slot.expiry < into_slot.expiry {
            let queue = &mut self.queues[into_slot.queue];
            queue.fifo.remove(&(into_slot.expiry, into_slot.number));
            queue.fifo.insert((gone_slot.expiry, into_slot.number), into);
            self.slots[into.0 as usize].expiry = gone_slot.expiry;
        }
        if self.queues[q].is_empty() && self.active != Some(q) {
            self.unplace(q);
            self.free_if_unused(q);
        }
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        self.clock(view.now);
        if self.waiting == 0 {
            return None;
        }
        if view.force {
            return self.dispatch_forced(view);
        }
        let q = self.select()?;
        if !self.may_dispatch(q) {
            return None;
        }
        let id = self.request_of(q)?;
        self.give(id, view);
        self.limit_slice(q);
        Some(id)
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        self.clock(now);
        self.watch_tags();
        let Some(given) = self.flights.remove(&request.number) else { return };
        let q = given.queue;
        self.groups[given.group].in_flight -= 1;
        let queue = &mut self.queues[q];
        queue.dispatched -= 1;
        let (sync, fresh) = (queue.sync, queue.slice.fresh);
        self.in_flight[sync as usize] -= 1;
        if sync {
            self.sync_completed(request);
        }
        if self.active == Some(q) {
            if fresh {
                self.start_slice(q);
            }
            let empty = self.queues[q].is_empty();
            if sync && self.waits_busy(q) {
                self.extend_slice(q);
            }
            if self.slice_used(q) || self.queues[q].class() == IoClass::Idle {
                self.expire(q, Ending::UsedUp, true);
            } else if sync && empty && self.close_cooperator(q).is_none() {
                self.idle_after(q, request.flags.contains(BioFlags::NOIDLE));
            }
        } else {
            self.free_if_unused(q);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.idle_until.map(|tick| self.time_of(tick))
    }

    fn timer(&mut self, now: Nanos) {
        self.clock(now);
        self.idle_timer();
    }

    fn yield_to(&mut self, from: u64, to: u64, now: Nanos) {
        self.clock(now);
        self.lend(from, to);
    }

    fn ioc_exit(&mut self, ioc: u64, now: Nanos) {
        self.clock(now);
        self.forget_leases_of(ioc);
        if let Some(q) = self.contexts.get(&ioc).and_then(|context| context.sync) {
            if self.active == Some(q) && self.queues[q].refs == 1 {
                self.expire(q, Ending::GivenUp, false);
            }
            self.leave(ioc, q);
        }
        self.contexts.remove(&ioc);
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.groups.set_weight(cgroup, share.weight);
    }

    fn take_notes(&mut self, out: &mut Vec<ElevatorNote>) {
        out.append(&mut self.notes);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        self.tunables.list()
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        let before = self.tunables.hz();
        let quiet = self.waiting == 0 && self.in_flight == [0; 2];
        if name == "hz" && !quiet && value != before.to_string() {
            let (name, value) = (name.to_owned(), value.to_owned());
            let expected = "no change while requests are under way";
            return Err(TunableError::Value { name, value, expected });
        }
        if !self.tunables.set(name, value)? {
            return Err(unknown_tunable(self, name));
        }
        if self.tunables.hz() != before {
            // Only habits are lost: nothing is under way.
            let tunables = std::mem::take(&mut self.tunables);
            let last_delayed_sync = -tunables.hz();
            let (rotational, notes) = (self.rotational, std::mem::take(&mut self.notes));
            let mut groups = std::mem::take(&mut self.groups);
            groups.begin_anew();
            *self =
                Cfq { tunables, last_delayed_sync, rotational, notes, groups, ..Cfq::default() };
        }
        if !self.tunables.yields {
            self.leases.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Requests;
    use crate::{Bio, Segment};
    use base::Page;

    fn request(requests: &mut Requests, sector: u64, ioc: u64, number: u64) -> RequestId {
        let mut bio = Bio::read(Sector(sector), [Page::zeroed(4096)], Box::new(|_| ()));
        bio.ioc = ioc;
        assert_eq!(bio.segs.iter().map(Segment::bytes).map(<[u8]>::len).sum::<usize>(), 4096);
        requests.add(Request::new(bio, Nanos::ZERO, number, number))
    }

    /// Goal: a drain (force) ends slice, idling and lending, and gives everything out, whatever
    /// policy says. Method: three queues, the first idles.
    #[test]
    fn a_forced_dispatch_ends_the_slice_and_empties_every_queue() {
        let (mut cfq, mut requests) = (Cfq::default(), Requests::default());
        let now = Nanos::from_millis(1);
        let view = |force, requests: &Requests, cfq: &mut Cfq| {
            let view = Dispatch { now, in_flight: 0, force, requests };
            cfq.dispatch(&view)
        };
        let first = request(&mut requests, 0, 1, 1);
        cfq.insert(first, requests.get(first), now);
        assert_eq!(view(false, &requests, &mut cfq), Some(first));
        let done = requests.remove(first);
        cfq.completed(&done, now);
        assert!(cfq.next_timer().is_some(), "the disk is kept idle");
        for (sector, ioc, number) in [(90_000, 2, 2), (50_000, 3, 3), (90_008, 2, 4)] {
            let id = request(&mut requests, sector, ioc, number);
            cfq.insert(id, requests.get(id), now);
        }
        cfq.lend(1, 2);
        assert_eq!(view(false, &requests, &mut cfq), None, "it idles");
        let mut order = Vec::new();
        while let Some(id) = view(true, &requests, &mut cfq) {
            order.push(requests.remove(id).sector.0);
        }
        assert_eq!(order, [90_000, 90_008, 50_000]);
        assert!(cfq.next_timer().is_none() && cfq.active.is_none() && cfq.leases.is_empty());
        let mut notes = Vec::new();
        cfq.take_notes(&mut notes);
        let kinds: Vec<NoteKind> = notes.iter().map(|note| note.kind).skip(1).collect();
        use NoteKind::*;
        assert_eq!(kinds, [IdleArmed, YieldBegin, IdleCancelled, SliceDrained, YieldEnd]);
    }
}
