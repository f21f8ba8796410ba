//! `deadline`: sector order in batches, and no request waits for ever.
//!
//! Per direction there is a list sorted by sector and a list sorted by expiry. A batch goes on in
//! sector order; after `fifo_batch` requests, or at the end of the order, the direction is chosen
//! again: reads, unless writes have been passed over `writes_starved` times. The new batch starts
//! at the oldest request where that has expired or the order has ended, else goes on in order.
//! Source: Linux, Documentation/block/deadline-iosched.rst.

use super::{Dispatch, Elevator, TunableError, unknown_tunable};
use crate::request::{Request, RequestId, Requests};
use base::{Nanos, Sector};
use std::collections::{BTreeMap, BTreeSet};

const READ: usize = 0;
const WRITE: usize = 1;

/// One direction.
#[derive(Default)]
struct Direction {
    /// By (first sector, number).
    sorted: BTreeMap<(Sector, u64), RequestId>,
    /// By (expiry, number).
    fifo: BTreeSet<(Nanos, u64, RequestId)>,
    /// Where the batch goes on in `sorted`.
    next: Option<(Sector, u64)>,
}

/// The elevator with its tunables.
pub struct Deadline {
    lists: [Direction; 2],
    /// Expiry and number of each waiting request in `fifo`, by its id.
    expiry: Vec<(Nanos, u64)>,
    /// Requests given out in this batch.
    batched: u32,
    /// Times that writes were passed over.
    starved: u32,
    /// Time after which a request goes first: reads, writes.
    expire: [Nanos; 2],
    fifo_batch: u32,
    writes_starved: u32,
    front_merges: bool,
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline {
            lists: Default::default(),
            expiry: Vec::new(),
            batched: 0,
            starved: 0,
            expire: [Nanos::from_millis(500), Nanos::from_millis(5000)],
            fifo_batch: 16,
            writes_starved: 2,
            front_merges: true,
        }
    }
}

fn direction(request: &Request) -> usize {
    if request.op.is_write() { WRITE } else { READ }
}

impl Deadline {
    fn forget(&mut self, id: RequestId, request: &Request) {
        let (expiry, number) = self.expiry[id.0 as usize];
        let list = &mut self.lists[direction(request)];
        list.fifo.remove(&(expiry, number, id));
        let key = (request.sector, request.number);
        list.sorted.remove(&key);
        if list.next == Some(key) {
            list.next = list.sorted.range(key..).next().map(|(&key, _)| key);
        }
    }

    /// Takes a request out; the batch goes on behind it in its direction.
    fn give(&mut self, id: RequestId, requests: &Requests) -> RequestId {
        let request = requests.get(id);
        let way = direction(request);
        self.forget(id, request);
        let key = (request.sector, request.number);
        self.lists[1 - way].next = None;
        let list = &mut self.lists[way];
        list.next = list.sorted.range(key..).next().map(|(&key, _)| key);
        self.batched += 1;
        id
    }

    fn choose_direction(&mut self) -> Option<usize> {
        let [reads, writes] = [READ, WRITE].map(|way| !self.lists[way].sorted.is_empty());
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
        "deadline"
    }

    fn front_merges(&self) -> bool {
        self.front_merges
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        let way = direction(request);
        let expiry = now + self.expire[way];
        let slot = id.0 as usize;
        if self.expiry.len() <= slot {
            self.expiry.resize(slot + 1, (Nanos::ZERO, 0));
        }
        self.expiry[slot] = (expiry, request.number);
        self.lists[way].fifo.insert((expiry, request.number, id));
        self.lists[way].sorted.insert((request.sector, request.number), id);
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        if old_start == request.sector {
            return;
        }
        let list = &mut self.lists[direction(request)];
        let (old, new) = ((old_start, request.number), (request.sector, request.number));
        list.sorted.remove(&old);
        list.sorted.insert(new, id);
        if list.next == Some(old) {
            list.next = Some(new);
        }
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        self.forget(gone, absorbed);
        let (earlier, own) = (self.expiry[gone.0 as usize], self.expiry[into.0 as usize]);
        if earlier < own {
            let list = &mut self.lists[direction(absorbed)];
            list.fifo.remove(&(own.0, own.1, into));
            list.fifo.insert((earlier.0, earlier.1, into));
            self.expiry[into.0 as usize] = earlier;
        }
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        let running = [WRITE, READ].into_iter().find(|&way| self.lists[way].next.is_some());
        if let Some(way) = running
            && self.batched < self.fifo_batch
        {
            let key = self.lists[way].next.expect("just found");
            return Some(self.give(self.lists[way].sorted[&key], view.requests));
        }
        let way = self.choose_direction()?;
        let list = &self.lists[way];
        let &(expiry, _, oldest) = list.fifo.first().expect("both lists hold the same requests");
        let id = match list.next {
            Some(key) if expiry > view.now => list.sorted[&key],
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
        ]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        let number = value.parse::<u32>().map_err(|_| TunableError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "a whole number from 0",
        });
        match name {
            "read_expire" => self.expire[READ] = Nanos::from_millis(number? as u64),
            "write_expire" => self.expire[WRITE] = Nanos::from_millis(number? as u64),
            "fifo_batch" => self.fifo_batch = number?,
            "writes_starved" => self.writes_starved = number?,
            "front_merges" => self.front_merges = number? != 0,
            _ => return Err(unknown_tunable(self, name)),
        }
        Ok(())
    }
}
