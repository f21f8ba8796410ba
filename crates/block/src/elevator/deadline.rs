//! `deadline`: sector order in batches, and no request waits for ever.
//!
//! Per priority class and direction there is a list sorted by sector and a list sorted by arrival.
//! A batch goes on in sector order; after `fifo_batch` requests, or at the end of the order, the
//! direction is chosen again: reads, unless writes have been passed over `writes_starved` times.
//! The new batch starts at the oldest request where that has expired or the order has ended, else
//! goes on in order. `mq-deadline` of today goes on from where the last batch of its direction
//! ended (as seen in the traces of Linux 6.18, see `tests/kernel_elevators.rs`), and lets
//! asynchronous requests have all of `nr_requests`.
//!
//! The classes are those of today's `mq-deadline`: a class is served while no more urgent one has a
//! request waiting, or when its oldest request has waited `prio_aging_expire`. `async_depth` limits
//! how many asynchronous requests may exist, so that synchronous ones find room in the device.
//! Sources: Linux, Documentation/block/deadline-iosched.rst; ionice(1).

use super::{Dispatch, Elevator, Newcomer, TunableError, unknown_tunable};
use crate::request::{Request, RequestId, Requests};
use base::{Nanos, Sector};
use std::collections::{BTreeMap, BTreeSet};

const READ: usize = 0;
const WRITE: usize = 1;

/// One direction of one class.
#[derive(Default)]
struct Direction {
    /// By (first sector, number).
    sorted: BTreeMap<(Sector, u64), RequestId>,
    /// By (arrival, number).
    fifo: BTreeSet<(Nanos, u64, RequestId)>,
    /// Where the batch goes on in `sorted`.
    next: Option<(Sector, u64)>,
    /// Where the last request lay.
    latest: Sector,
}

impl Direction {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    fn oldest(&self) -> Option<(Nanos, RequestId)> {
        self.fifo.first().map(|&(arrival, _, id)| (arrival, id))
    }
}

/// What the lists know about a waiting request, by its id.
#[derive(Clone, Copy, Default)]
struct Slot {
    arrival: Nanos,
    number: u64,
    class: usize,
}

/// The elevator with its tunables.
pub struct Deadline {
    name: &'static str,
    /// A batch goes on from where the last one of its direction ended, whatever was in between.
    from_latest: bool,
    /// The direction of the last request; the first batch is one of writes, if there are any.
    last: usize,
    /// By class, then direction.
    lists: [[Direction; 2]; 3],
    slots: Vec<Slot>,
    /// Requests given out in this batch.
    batched: u32,
    /// Times that writes were passed over.
    starved: u32,
    /// Time after which a request goes first: reads, writes.
    expire: [Nanos; 2],
    fifo_batch: u32,
    writes_starved: u32,
    front_merges: bool,
    /// Time after which a request of a less urgent class goes first.
    prio_aging_expire: Nanos,
    /// Most asynchronous requests; 0 for three quarters of `nr_requests`, today for all.
    async_depth: u32,
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline {
            name: "deadline",
            from_latest: false,
            last: WRITE,
            lists: Default::default(),
            slots: Vec::new(),
            batched: 0,
            starved: 0,
            expire: [Nanos::from_millis(500), Nanos::from_millis(5000)],
            fifo_batch: 16,
            writes_starved: 2,
            front_merges: true,
            prio_aging_expire: Nanos::from_secs(10),
            async_depth: 0,
        }
    }
}

fn direction(request: &Request) -> usize {
    if request.op.is_write() { WRITE } else { READ }
}

impl Deadline {
    /// As `mq-deadline` of Linux 6.18.
    pub fn today() -> Deadline {
        Deadline { name: "mq-deadline", from_latest: true, ..Deadline::default() }
    }

    fn list(&mut self, id: RequestId, request: &Request) -> &mut Direction {
        let class = self.slots[id.0 as usize].class;
        &mut self.lists[class][direction(request)]
    }

    fn forget(&mut self, id: RequestId, request: &Request) {
        let Slot { arrival, number, .. } = self.slots[id.0 as usize];
        let list = self.list(id, request);
        list.fifo.remove(&(arrival, number, id));
        let key = (request.sector, request.number);
        list.sorted.remove(&key);
        if list.next == Some(key) {
            list.next = list.sorted.range(key..).next().map(|(&key, _)| key);
        }
    }

    /// Takes a request out; the batch goes on behind it in its direction.
    fn give(&mut self, id: RequestId, requests: &Requests) -> RequestId {
        let request = requests.get(id);
        let (class, way) = (self.slots[id.0 as usize].class, direction(request));
        self.forget(id, request);
        let key = (request.sector, request.number);
        let lists = &mut self.lists[class];
        lists[1 - way].next = None;
        lists[way].latest = request.sector;
        self.last = way;
        lists[way].next = lists[way].sorted.range(key..).next().map(|(&key, _)| key);
        self.batched += 1;
        id
    }

    /// Where a direction goes on.
    fn ahead(&self, class: usize, way: usize) -> Option<(Sector, u64)> {
        let list = &self.lists[class][way];
        match self.from_latest {
            true => list.sorted.range((list.latest, 0)..).next().map(|(&key, _)| key),
            false => list.next,
        }
    }

    /// The class to serve: one whose oldest request has waited too long, else the most urgent one.
    fn choose_class(&self, now: Nanos) -> Option<usize> {
        let waits = |&class: &usize| !self.lists[class].iter().all(Direction::is_empty);
        let first = (0..3).find(waits)?;
        let aged = |&class: &usize| {
            let oldest = self.lists[class].iter().filter_map(Direction::oldest).min();
            oldest.is_some_and(|(arrival, _)| arrival + self.prio_aging_expire <= now)
        };
        Some((first + 1..3).find(aged).unwrap_or(first))
    }

    fn choose_direction(&mut self, class: usize) -> Option<usize> {
        let [reads, writes] = [READ, WRITE].map(|way| !self.lists[class][way].is_empty());
        if reads {
            if writes && self.starved >= self.writes_starved {
                self.starved = 0;
                return Some(WRITE);
            }
            self.starved += writes as u32;
            return Some(READ);
        }
        self.starved = 0;
        writes.then_some(WRITE)
    }
}

impl Elevator for Deadline {
    fn name(&self) -> &'static str {
        self.name
    }

    fn front_merges(&self) -> bool {
        self.front_merges
    }

    fn allow_merge(&self, id: RequestId, _request: &Request, new: &Newcomer) -> bool {
        self.slots[id.0 as usize].class == new.ioprio.class() as usize
    }

    fn async_requests(&self, nr_requests: u32) -> u32 {
        let most = match (self.async_depth, self.from_latest) {
            (0, true) => nr_requests,
            (0, false) => nr_requests * 3 / 4,
            (depth, _) => depth,
        };
        most.clamp(1, nr_requests)
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        let slot = id.0 as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Slot::default());
        }
        let class = request.ioprio.class() as usize;
        self.slots[slot] = Slot { arrival: now, number: request.number, class };
        let list = self.list(id, request);
        list.fifo.insert((now, request.number, id));
        list.sorted.insert((request.sector, request.number), id);
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        if old_start == request.sector {
            return;
        }
        let (old, new) = ((old_start, request.number), (request.sector, request.number));
        let list = self.list(id, request);
        list.sorted.remove(&old);
        list.sorted.insert(new, id);
        if list.next == Some(old) {
            list.next = Some(new);
        }
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        self.forget(gone, absorbed);
        let (earlier, own) = (self.slots[gone.0 as usize], self.slots[into.0 as usize]);
        if earlier.arrival < own.arrival {
            let list = self.list(into, absorbed);
            list.fifo.remove(&(own.arrival, own.number, into));
            list.fifo.insert((earlier.arrival, own.number, into));
            self.slots[into.0 as usize].arrival = earlier.arrival;
        }
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        let class = self.choose_class(view.now)?;
        let running = match self.from_latest {
            true => Some(self.last),
            false => [WRITE, READ].into_iter().find(|&way| self.lists[class][way].next.is_some()),
        };
        if self.batched < self.fifo_batch
            && let Some(way) = running
            && let Some(key) = self.ahead(class, way)
        {
            return Some(self.give(self.lists[class][way].sorted[&key], view.requests));
        }
        let way = self.choose_direction(class)?;
        let list = &self.lists[class][way];
        let (arrival, oldest) = list.oldest().expect("both lists hold the same requests");
        let id = match self.ahead(class, way) {
            Some(key) if arrival + self.expire[way] > view.now => list.sorted[&key],
            _ => oldest,
        };
        self.batched = 0;
        Some(self.give(id, view.requests))
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let millis = |span: Nanos| (span.0 / 1_000_000).to_string();
        vec![
            ("read_expire", millis(self.expire[READ])),
            ("write_expire", millis(self.expire[WRITE])),
            ("fifo_batch", self.fifo_batch.to_string()),
            ("writes_starved", self.writes_starved.to_string()),
            ("front_merges", (self.front_merges as u8).to_string()),
            ("prio_aging_expire", millis(self.prio_aging_expire)),
            ("async_depth", self.async_depth.to_string()),
        ]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        let number = value.parse::<u32>().map_err(|_| TunableError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "a whole number from 0",
        });
        let millis = |number: u32| Nanos::from_millis(number as u64);
        match name {
            "read_expire" => self.expire[READ] = millis(number?),
            "write_expire" => self.expire[WRITE] = millis(number?),
            "fifo_batch" => self.fifo_batch = number?,
            "writes_starved" => self.writes_starved = number?,
            "front_merges" => self.front_merges = number? != 0,
            "prio_aging_expire" => self.prio_aging_expire = millis(number?),
            "async_depth" => self.async_depth = number?,
            _ => return Err(unknown_tunable(self, name)),
        }
        Ok(())
    }
}
