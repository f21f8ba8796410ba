//! The queues of `bfq`: what is known about one process.

use crate::elevator::order::Order;
use crate::{Request, RequestId};
use base::{Nanos, Sector};
use rt::{Cgroup, IoClass, IoPriority};

/// Names a queue of one elevator; queues live as long as it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Qid(pub u32);

/// What the elevator keeps per waiting request, by its id.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub queue: Qid,
    pub expiry: Nanos,
    pub number: u64,
}

/// A jump of more sectors is a seek.
const SEEK_SECTORS: u64 = 800;

/// A queue: of one process for synchronous requests, of a priority for asynchronous ones.
pub(super) struct BfqQueue {
    /// The process; 0 for an asynchronous queue.
    pub owner: u64,
    pub sync: bool,
    pub prio: IoPriority,
    /// The group that its service counts against; the root group for an asynchronous one.
    pub cgroup: Cgroup,
    pub order: Order,
    pub dispatched: u32,
    /// It is in the list of busy queues.
    pub busy: bool,
    /// Virtual times between which its budget would be served by an ideal device.
    pub start: u64,
    pub finish: u64,
    /// Sectors that it may be served in a turn, and has been in this one.
    pub budget: u64,
    pub served: u64,
    /// Mean time from the end of a request to the next one, and when the latest one ended.
    pub think: Nanos,
    pub samples: u32,
    pub last_end_time: Nanos,
    pub seek_history: u32,
    pub last_end: Option<Sector>,
    /// Requests of others that may be in flight while it is empty in service.
    pub inject_limit: u32,
    /// When it was lowered last.
    pub lowered: Nanos,
    /// Time from arrival to completion of a request that came into the empty queue, without
    /// injection; the smallest seen.
    pub base_time: Option<Nanos>,
    /// Such a request is under way: its number, when it came, and whether something was injected.
    pub measured: Option<(u64, Nanos)>,
    pub injected: bool,
    /// Who wakes it up: for sure, or seen so many times in a row.
    pub waker: Option<u64>,
    pub suspect: Option<(u64, u32)>,
    pub gone: bool,
}

impl BfqQueue {
    pub fn new(owner: u64, sync: bool, prio: IoPriority, budget: u64) -> BfqQueue {
        BfqQueue {
            owner,
            sync,
            prio,
            cgroup: Cgroup::ROOT,
            order: Order::default(),
            dispatched: 0,
            busy: false,
            start: 0,
            finish: 0,
            budget,
            served: 0,
            think: Nanos::ZERO,
            samples: 0,
            last_end_time: Nanos::ZERO,
            seek_history: 0,
            last_end: None,
            inject_limit: 0,
            lowered: Nanos::ZERO,
            base_time: None,
            measured: None,
            injected: false,
            waker: None,
            suspect: None,
            gone: false,
        }
    }

    /// 10 per level: 80 for level 0, 40 for level 4, 10 for level 7.
    pub fn weight(&self) -> u64 {
        (IoPriority::LEVELS - self.prio.level()) as u64 * 10
    }

    pub fn class(&self) -> IoClass {
        self.prio.class()
    }

    /// More than half of the last 32 requests jumped.
    pub fn is_seeky(&self) -> bool {
        self.seek_history.count_ones() > 19
    }

    /// Learns from a new request.
    pub fn learn(&mut self, request: &Request, now: Nanos, slice_idle: Nanos) {
        if self.sync && self.dispatched == 0 && self.order.is_empty() {
            let think = now.since(self.last_end_time).0.min(2 * slice_idle.0);
            self.think = match self.samples {
                0 => Nanos(think / 8),
                _ => Nanos((7 * self.think.0 + think) / 8),
            };
            self.samples += 1;
        }
        let jump = self.last_end.map_or(0, |last| last.0.abs_diff(request.sector.0));
        self.seek_history = self.seek_history << 1 | (jump > SEEK_SECTORS) as u32;
        self.last_end = Some(request.end_sector());
    }
}

/// All queues.
#[derive(Default)]
pub(super) struct Queues(Vec<BfqQueue>);

impl Queues {
    /// A place for a new queue: that of a queue that has gone, where there is one.
    pub fn add(&mut self, queue: BfqQueue) -> Qid {
        let unused = |old: &BfqQueue| old.gone && !old.busy && old.dispatched == 0;
        if let Some(place) = self.0.iter().position(unused) {
            self.0[place] = queue;
            return Qid(place as u32);
        }
        self.0.push(queue);
        Qid(self.0.len() as u32 - 1)
    }
}

impl std::ops::Index<Qid> for Queues {
    type Output = BfqQueue;
    fn index(&self, id: Qid) -> &BfqQueue {
        &self.0[id.0 as usize]
    }
}

impl std::ops::IndexMut<Qid> for Queues {
    fn index_mut(&mut self, id: Qid) -> &mut BfqQueue {
        &mut self.0[id.0 as usize]
    }
}

pub(super) type Slots = Vec<Slot>;

/// Enters a request into the table of slots.
pub(super) fn fill(slots: &mut Slots, id: RequestId, slot: Slot) {
    let index = id.0 as usize;
    if slots.len() <= index {
        slots.resize(index + 1, slot);
    }
    slots[index] = slot;
}
