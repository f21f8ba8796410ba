//! `bfq`: budget fair queueing, in the manner of Linux since 4.12.
//!
//! Every process has a queue for its synchronous requests; asynchronous ones share a queue per
//! priority. A queue in service may send a *budget* of sectors; budgets are served in the order
//! of virtual finish times, so that each queue gets device throughput in proportion to its weight
//! (`bfq/fair.rs`); control groups do so among each other and beside the queues of the root group
//! (`bfq/group.rs`). While a queue in service is empty, the device is kept for it where that pays,
//! and requests of others are *injected*: those of the process that wakes its owner, and of anybody
//! as long as the owner does not suffer (`bfq/inject.rs`).
//!
//! Left out, compared with Linux: weight raising for interactive and soft real-time processes
//! (`low_latency` can only be 0), bursts of queues, merging of queues, groups inside of groups.
//!
//! Sources: Documentation/block/bfq-iosched.rst of Linux; Paolo Valente and Fabio Checconi, "High
//! throughput disk scheduling with fair bandwidth distribution", IEEE Transactions on Computers
//! 59(9), 2010.

mod fair;
mod group;
mod inject;
mod queue;

use super::order::BackSeek;
use super::{Dispatch, Elevator, ElevatorNote, Newcomer, NoteKind, TunableError, unknown_tunable};
use crate::bio::is_sync;
use crate::share::GroupShare;
use crate::{DeviceInfo, Request, RequestId};
use base::map::HashMap;
use base::unit::SECTOR_SIZE;
use base::{Nanos, Sector};
use fair::PeakRate;
use group::Groups;
use queue::{BfqQueue, Qid, Queues, Slot, Slots};
use rt::{Cgroup, IoPriority};

/// Why the service of a queue ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exhausted,
    Timeout,
    /// Nothing came while the device was kept for it.
    Idle,
    Empty,
    Drained,
}

struct Tunables {
    slice_idle: Nanos,
    timeout_sync: Nanos,
    /// Asynchronous, synchronous.
    fifo_expire: [Nanos; 2],
    back: BackSeek,
    /// Sectors; 0 for automatic.
    max_budget: u64,
    strict_guarantees: bool,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            slice_idle: Nanos::from_millis(8),
            timeout_sync: Nanos::from_millis(125),
            fifo_expire: [Nanos::from_millis(250), Nanos::from_millis(125)],
            back: BackSeek::default(),
            max_budget: 0,
            strict_guarantees: false,
        }
    }
}

/// The elevator.
pub struct Bfq {
    tunables: Tunables,
    rotational: bool,
    depth: u32,
    now: Nanos,
    queues: Queues,
    contexts: HashMap<u64, Qid>,
    async_queues: [Option<Qid>; 24],
    slots: Slots,
    /// Queue of each request in flight, by number.
    flights: HashMap<u64, Qid>,
    in_flight: u32,
    waiting: u32,
    /// Queues with requests, and the one in service; in the order in which they became busy.
    busy: Vec<Qid>,
    virtual_time: u64,
    groups: Groups,
    in_service: Option<Qid>,
    service_began: Nanos,
    /// The oldest request has been looked at in this service.
    fifo_checked: bool,
    idle_until: Option<Nanos>,
    idle_since: Nanos,
    last_position: Sector,
    /// Owner of the latest synchronous completion, and when it was.
    last_completed: Option<(u64, Nanos)>,
    peak: PeakRate,
    notes: Vec<ElevatorNote>,
}

impl Default for Bfq {
    fn default() -> Bfq {
        Bfq {
            tunables: Tunables::default(),
            rotational: true,
            depth: 1,
            now: Nanos::ZERO,
            queues: Queues::default(),
            contexts: HashMap::default(),
            async_queues: [None; 24],
            slots: Slots::new(),
            flights: HashMap::default(),
            in_flight: 0,
            waiting: 0,
            busy: Vec::new(),
            virtual_time: 0,
            groups: Groups::default(),
            in_service: None,
            service_began: Nanos::ZERO,
            fifo_checked: false,
            idle_until: None,
            idle_since: Nanos::ZERO,
            last_position: Sector(0),
            last_completed: None,
            peak: PeakRate::default(),
            notes: Vec::new(),
        }
    }
}

fn async_index(prio: IoPriority) -> usize {
    prio.class() as usize * IoPriority::LEVELS as usize + prio.level() as usize
}

impl Bfq {
    fn note(&mut self, kind: NoteKind, q: Qid, value: u64) {
        let ioc = self.queues[q].owner;
        self.notes.push(ElevatorNote { kind, ioc, value });
    }

    /// The queue that a new request belongs to.
    fn queue_for(&mut self, request: &Request) -> Qid {
        let (ioc, prio) = (request.ioc, request.ioprio);
        let budget = self.max_budget();
        if !request.is_sync() {
            let index = async_index(prio);
            if let Some(q) = self.async_queues[index] {
                return q;
            }
            let q = self.queues.add(BfqQueue::new(0, false, prio, budget));
            self.async_queues[index] = Some(q);
            return q;
        }
        if let Some(&q) = self.contexts.get(&ioc) {
            let queue = &mut self.queues[q];
            if queue.order.is_empty() && !queue.busy {
                queue.cgroup = request.cgroup; // Its process may have moved.
            }
            self.queues[q].prio = prio;
            return q;
        }
        let mut queue = BfqQueue::new(ioc, true, prio, budget * 2 / 3);
        queue.cgroup = request.cgroup;
        queue.finish = self.time_of(request.cgroup);
        queue.last_end_time = self.now;
        let q = self.queues.add(queue);
        self.contexts.insert(ioc, q);
        q
    }

    /// The queue to serve now, and whether in the place of the one in service.
    fn select(&mut self, view: &Dispatch<'_>) -> Option<(Qid, bool)> {
        if let Some(q) = self.in_service {
            let over = self.now.since(self.service_began) >= self.tunables.timeout_sync;
            if over && !self.must_wait(q) {
                self.expire(q, Ending::Timeout);
            } else if let Some(id) = self.next_of(q, true) {
                let sectors = view.requests.get(id).count;
                if self.queues[q].served == 0
                    || self.queues[q].served + sectors <= self.queues[q].budget
                {
                    return Some((q, false));
                }
                self.expire(q, Ending::Exhausted);
            } else if self.idle_until.is_some()
                || self.queues[q].dispatched > 0 && self.better_to_idle(q)
            {
                return self.choose_injected(q).map(|other| (other, true));
            } else {
                self.expire(q, Ending::Empty);
            }
        }
        self.fifo_checked = false;
        self.choose().map(|q| (q, false))
    }

    /// The next request of a queue: once per service the oldest where it has expired.
    fn next_of(&self, q: Qid, look: bool) -> Option<RequestId> {
        let order = &self.queues[q].order;
        let oldest = order.oldest().filter(|&(expiry, _)| expiry <= self.now);
        match oldest {
            Some((_, id)) if look && !self.fifo_checked => Some(id),
            _ => order.nearest(self.last_position, self.tunables.back).map(|(_, id)| id),
        }
    }

    fn give(&mut self, id: RequestId, q: Qid, view: &Dispatch<'_>) -> RequestId {
        let request = view.requests.get(id);
        let Slot { expiry, number, .. } = self.slots[id.0 as usize];
        let queue = &mut self.queues[q];
        queue.order.remove(request.sector, number, expiry);
        queue.dispatched += 1;
        self.waiting -= 1;
        self.in_flight += 1;
        self.flights.insert(number, q);
        self.last_position = request.end_sector();
        self.charge(q, request.count);
        self.emptied(q);
        id
    }
}

impl Elevator for Bfq {
    fn name(&self) -> &'static str {
        "bfq"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.rotational = info.rotational;
        self.depth = info.depth;
    }

    fn allow_merge(&self, id: RequestId, request: &Request, new: &Newcomer) -> bool {
        let q = Some(self.slots[id.0 as usize].queue);
        match is_sync(request.op, new.flags) {
            true => self.contexts.get(&new.ioc).copied() == q,
            false => self.async_queues[async_index(new.ioprio)] == q,
        }
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        self.now = now;
        let q = self.queue_for(request);
        self.detect_waker(q);
        self.begin_measure(q, request);
        let slice_idle = self.tunables.slice_idle;
        let queue = &mut self.queues[q];
        queue.learn(request, now, slice_idle);
        let expiry = now + self.tunables.fifo_expire[queue.sync as usize];
        queue.order.insert(id, request, expiry);
        let slot = Slot { queue: q, expiry, number: request.number };
        queue::fill(&mut self.slots, id, slot);
        self.waiting += 1;
        self.activate(q);
        if self.in_service == Some(q) {
            self.stop_idle(q, NoteKind::IdleSatisfied);
        }
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        let q = self.slots[id.0 as usize].queue;
        if old_start != request.sector {
            self.queues[q].order.moved(id, request, old_start);
        }
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        let (old, own) = (self.slots[gone.0 as usize], self.slots[into.0 as usize]);
        self.queues[old.queue].order.remove(absorbed.sector, old.number, old.expiry);
        self.waiting -= 1;
        if old.expiry < own.expiry {
            self.queues[own.queue].order.aged(into, own.number, own.expiry, old.expiry);
            self.slots[into.0 as usize].expiry = old.expiry;
        }
        self.emptied(old.queue);
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        self.now = view.now;
        if self.waiting == 0 {
            return None;
        }
        if view.force {
            if let Some(q) = self.in_service {
                self.expire(q, Ending::Drained);
            }
            let q = self.busy.first().copied()?;
            let id = self.next_of(q, true)?;
            return Some(self.give(id, q, view));
        }
        let (q, injected) = self.select(view)?;
        let id = self.next_of(q, !injected)?;
        if injected && let Some(owner) = self.in_service {
            let other = self.queues[q].owner;
            self.queues[owner].injected = true;
            self.note(NoteKind::Injected, owner, other);
        } else {
            self.fifo_checked = true;
        }
        Some(self.give(id, q, view))
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        self.now = now;
        let Some(q) = self.flights.remove(&request.number) else { return };
        self.in_flight -= 1;
        self.peak.completed(request.count, now, self.in_flight == 0);
        self.end_measure(q, request);
        let queue = &mut self.queues[q];
        queue.dispatched -= 1;
        queue.last_end_time = now;
        let (sync, owner) = (queue.sync, queue.owner);
        let empty = queue.order.is_empty() && queue.dispatched == 0;
        if sync {
            self.last_completed = Some((owner, now));
        }
        if self.in_service == Some(q) && empty {
            if self.better_to_idle(q) {
                self.arm_idle(q);
            } else {
                self.expire(q, Ending::Empty);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.idle_until
    }

    fn timer(&mut self, now: Nanos) {
        self.now = now;
        if let Some(q) = self.in_service
            && self.idle_until.is_some_and(|until| until <= now)
        {
            self.stop_idle(q, NoteKind::IdleFired);
            self.expire(q, Ending::Idle);
        }
    }

    fn ioc_exit(&mut self, ioc: u64, now: Nanos) {
        self.now = now;
        let Some(q) = self.contexts.remove(&ioc) else { return };
        self.queues[q].gone = true;
        if self.in_service == Some(q) && self.queues[q].order.is_empty() {
            self.expire(q, Ending::Empty);
        }
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.groups.set_weight(cgroup, share.weight);
    }

    fn take_notes(&mut self, out: &mut Vec<ElevatorNote>) {
        out.append(&mut self.notes);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let t = &self.tunables;
        let millis = |span: Nanos| (span.0 / 1_000_000).to_string();
        vec![
            ("slice_idle", millis(t.slice_idle)),
            ("slice_idle_us", (t.slice_idle.0 / 1000).to_string()),
            ("timeout_sync", millis(t.timeout_sync)),
            ("fifo_expire_sync", millis(t.fifo_expire[1])),
            ("fifo_expire_async", millis(t.fifo_expire[0])),
            ("back_seek_max", (t.back.max * SECTOR_SIZE / 1024).to_string()),
            ("back_seek_penalty", t.back.penalty.to_string()),
            ("max_budget", t.max_budget.to_string()),
            ("strict_guarantees", (t.strict_guarantees as u8).to_string()),
            ("low_latency", "0".to_owned()),
        ]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        if self.tunables().iter().all(|&(known, _)| known != name) {
            return Err(unknown_tunable(self, name));
        }
        let (least, most, expected) = match name {
            "timeout_sync" | "fifo_expire_sync" | "fifo_expire_async" | "back_seek_penalty" => {
                (1, u32::MAX, "a whole number from 1")
            }
            "low_latency" => (0, 0, "0: nothing is raised here"),
            _ => (0, u32::MAX, "a whole number from 0"),
        };
        let number = value.parse::<u32>().ok().filter(|number| (least..=most).contains(number));
        let (own, value) = (name.to_owned(), value.to_owned());
        let number = number.ok_or(TunableError::Value { name: own, value, expected })? as u64;
        let t = &mut self.tunables;
        match name {
            "slice_idle" => t.slice_idle = Nanos::from_millis(number),
            "slice_idle_us" => t.slice_idle = Nanos::from_micros(number),
            "timeout_sync" => t.timeout_sync = Nanos::from_millis(number),
            "fifo_expire_sync" => t.fifo_expire[1] = Nanos::from_millis(number),
            "fifo_expire_async" => t.fifo_expire[0] = Nanos::from_millis(number),
            "back_seek_max" => t.back.max = number * 1024 / SECTOR_SIZE,
            "back_seek_penalty" => t.back.penalty = number,
            "max_budget" => t.max_budget = number,
            "strict_guarantees" => t.strict_guarantees = number != 0,
            _ => {}
        }
        Ok(())
    }
}
