//! The queues of `cfq` and the processes that fill them.

use super::tunables::Ticks;
use super::{Cfq, group::Gid, tree::QueuePlace};
use crate::RequestId;
use base::{Nanos, Sector};
use rt::{IoClass, IoPriority};
use std::collections::BTreeMap;

/// Names a queue of one elevator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Qid(pub u32);

/// Where a request lies in its queue's order: first sector and number.
pub(super) type Key = (Sector, u64);

/// What the elevator keeps per waiting request, by its id.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub queue: Qid,
    /// When it expires.
    pub expiry: Ticks,
    pub number: u64,
    pub meta: bool,
    /// It says NOIDLE.
    pub noidle: bool,
}

/// The time that a queue has the device.
#[derive(Default)]
pub(super) struct Slice {
    /// Nothing has completed yet, so the time does not run.
    pub fresh: bool,
    pub end: Ticks,
    /// When the time began to run.
    pub started: Option<Ticks>,
    /// It was made longer until the next request of its group's only queue is there.
    pub waits_busy: bool,
    /// Full length of the running slice.
    pub length: Ticks,
    /// When the queue was chosen.
    pub began: Nanos,
    /// Requests given out in it.
    pub dispatched: u32,
    /// What was left of the last one when it was taken away; negative where it was overdrawn.
    pub residual: Ticks,
    /// The oldest request has been looked at.
    pub fifo_checked: bool,
}

/// A queue: of one process (or several close ones) for synchronous requests, of everybody with one
/// priority for asynchronous ones.
pub(super) struct CfqQueue {
    /// The process that it was made for; 0 for an asynchronous one.
    pub owner: u64,
    pub sync: bool,
    pub prio: IoPriority,
    /// The group that it belongs to, and the one that it is in now.
    pub home: Gid,
    pub group: Gid,
    /// Contexts whose queue this is.
    pub refs: u32,
    pub sorted: BTreeMap<Key, RequestId>,
    /// By (expiry, number).
    pub fifo: BTreeMap<(Ticks, u64), RequestId>,
    /// The request that would go next.
    pub next: Option<Key>,
    pub meta_waiting: u32,
    /// Requests in flight.
    pub dispatched: u32,
    pub slice: Slice,
    /// Its place in a service tree, while it is busy.
    pub place: Option<QueuePlace>,
    /// Its place in the order by position.
    pub near: Option<(u8, Sector)>,
    /// The device is kept idle for it.
    pub idle_window: bool,
    /// It once had four requests waiting.
    pub deep: bool,
    /// One bit per request, the latest lowest: it was far from the one before.
    pub seek_history: u32,
    /// End of the latest request.
    pub last_end: Option<Sector>,
    /// The queue that its processes move to with their next request.
    pub merge_into: Option<Qid>,
    /// Queues with this one as `merge_into`.
    pub merging_in: u32,
    /// Several processes have come together in it.
    pub coop: bool,
    /// They no longer work close to each other.
    pub split: bool,
}

impl CfqQueue {
    pub fn new(owner: u64, sync: bool, prio: IoPriority, home: Gid) -> CfqQueue {
        CfqQueue {
            owner,
            sync,
            prio,
            home,
            group: home,
            refs: 1,
            sorted: BTreeMap::new(),
            fifo: BTreeMap::new(),
            next: None,
            meta_waiting: 0,
            dispatched: 0,
            slice: Slice::default(),
            place: None,
            near: None,
            idle_window: sync && prio.class() != IoClass::Idle,
            deep: false,
            seek_history: 0,
            last_end: None,
            merge_into: None,
            merging_in: 0,
            coop: false,
            split: false,
        }
    }

    pub fn class(&self) -> IoClass {
        self.prio.class()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// Think time of a process: from the end of a synchronous request to the next one.
#[derive(Default)]
pub(super) struct ThinkTime {
    /// When the latest one ended.
    pub last_end: Ticks,
    /// Weighted sums of 256 per sample, each older one by 7/8.
    total: Ticks,
    samples: Ticks,
    pub mean: Ticks,
}

impl ThinkTime {
    pub fn sample(&mut self, now: Ticks, most: Ticks) {
        let think = (now - self.last_end).clamp(0, most);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * think) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    /// From the third sample on.
    pub fn is_valid(&self) -> bool {
        self.samples > 80
    }
}

/// A process as this elevator knows it.
pub(super) struct Context {
    pub sync: Option<Qid>,
    pub prio: IoPriority,
    pub home: Gid,
    pub think: ThinkTime,
}

/// All queues, by name.
#[derive(Default)]
pub(super) struct Queues {
    slots: Vec<Option<Box<CfqQueue>>>,
    free: Vec<Qid>,
}

impl Queues {
    pub fn add(&mut self, queue: CfqQueue) -> Qid {
        let queue = Some(Box::new(queue));
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = queue;
            return id;
        }
        self.slots.push(queue);
        Qid(self.slots.len() as u32 - 1)
    }

    pub fn remove(&mut self, id: Qid) -> Option<Box<CfqQueue>> {
        self.free.push(id);
        self.slots[id.0 as usize].take()
    }
}

impl std::ops::Index<Qid> for Queues {
    type Output = CfqQueue;
    fn index(&self, id: Qid) -> &CfqQueue {
        self.slots[id.0 as usize].as_deref().expect("a queue lives while anything names it")
    }
}

impl std::ops::IndexMut<Qid> for Queues {
    fn index_mut(&mut self, id: Qid) -> &mut CfqQueue {
        self.slots[id.0 as usize].as_deref_mut().expect("a queue lives while anything names it")
    }
}

impl Cfq {
    pub(super) fn active_queue(&self) -> Option<&CfqQueue> {
        self.active.map(|q| &self.queues[q])
    }

    /// The synchronous queue of a process, which exists from its first synchronous request on.
    /// Merges and splits of queues happen here.
    pub(super) fn sync_queue(&mut self, ioc: u64, prio: IoPriority, home: Gid) -> Qid {
        if let Some(q) = self.contexts.get(&ioc).and_then(|context| context.sync)
            && self.queues[q].home != home
        {
            self.leave(ioc, q); // It moved to another group.
        }
        if let Some(q) = self.contexts.get(&ioc).and_then(|context| context.sync)
            && let Some(q) = self.split_or_merge(ioc, q)
        {
            self.set_prio(q, prio);
            return q;
        }
        let q = self.queues.add(CfqQueue::new(ioc, true, prio, home));
        self.context(ioc, prio).sync = Some(q);
        q
    }

    /// The asynchronous queue of a priority, which exists for good from its first request on.
    pub(super) fn async_queue(&mut self, prio: IoPriority) -> Qid {
        if let Some(q) = self.async_queues[async_index(prio)] {
            return q;
        }
        let q = self.queues.add(CfqQueue::new(0, false, prio, Gid::ROOT));
        self.async_queues[async_index(prio)] = Some(q);
        q
    }

    pub(super) fn context(&mut self, ioc: u64, prio: IoPriority) -> &mut Context {
        let last_end = self.tick;
        let context = self.contexts.entry(ioc).or_insert_with(|| {
            let think = ThinkTime { last_end, ..ThinkTime::default() };
            Context { sync: None, prio, home: Gid::ROOT, think }
        });
        context.prio = prio;
        context
    }

    /// A changed priority counts from the next place in a tree on.
    fn set_prio(&mut self, q: Qid, prio: IoPriority) {
        let queue = &mut self.queues[q];
        if queue.prio == prio {
            return;
        }
        queue.prio = prio;
        if prio.class() == IoClass::Idle {
            queue.idle_window = false;
        }
        self.update_near(q);
    }

    /// Ends a queue that nobody can reach any more.
    pub(super) fn free_if_unused(&mut self, q: Qid) {
        let queue = &self.queues[q];
        let used = queue.refs > 0
            || queue.dispatched > 0
            || queue.merging_in > 0
            || queue.place.is_some()
            || !queue.is_empty()
            || self.active == Some(q);
        if used {
            return;
        }
        let gone = self.queues.remove(q);
        if let Some(target) = gone.and_then(|queue| queue.merge_into) {
            self.queues[target].merging_in -= 1;
            self.free_if_unused(target);
        }
    }
}

pub(super) fn async_index(prio: IoPriority) -> usize {
    prio.class() as usize * IoPriority::LEVELS as usize + prio.level() as usize
}
