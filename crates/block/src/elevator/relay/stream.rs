//! Streams: what is known of one issuer of requests, and of the party or group named by it.

use crate::Request;
use crate::elevator::order::Order;
use base::{Nanos, Sector};
use rt::IoPriority;

/// A place in the list of streams. A group is named by one as well: a party by that of its root.
pub(super) type Sid = usize;
/// All synchronous streams that do not work in sequence, as a group.
pub(super) const POOL: Sid = 0;
/// Asynchronous requests of the three classes.
pub(super) const ASYNC: Sid = 1;
pub(super) const CONTEXTS: Sid = 4;

/// A request goes on in sequence where it begins at most so many sectors behind the last one; of
/// the last 16 so many must.
const GAP_SECTORS: u64 = 256;
const SEQUENTIAL: u32 = 10;

/// Where a waiting request stands, by its id.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub stream: Sid,
    pub arrival: Nanos,
    pub number: u64,
}

/// The synchronous requests of one I/O context, or the asynchronous ones of a class, and what is
/// known of the party or group that is named by it.
pub(super) struct Stream {
    /// The context; 0 for asynchronous requests.
    pub owner: u64,
    pub sync: bool,
    pub prio: IoPriority,
    pub order: Order,
    pub in_flight: u32,
    pub gone: bool,
    /// One bit per request, the latest lowest: it went on in sequence.
    pub history: u32,
    pub requests: u32,
    pub last_sector: Option<Sector>,

    /// Of the party: mean time from an end to the next request, where it had nothing to do, the
    /// latest end, mean bytes of a request, least time in the device in ns per KiB.
    pub think: Option<u64>,
    pub last_end: Nanos,
    pub size: u64,
    pub best: Option<u64>,

    /// Of the group, in this window: bytes and requests that have ended.
    pub bytes: u64,
    pub ends: u32,
    /// Whether the stream had requests in this window.
    pub active: bool,
    /// Bytes per ns by mixing, and while it has its turn; ns that a change to it costs.
    pub mixed: Option<f64>,
    pub alone: Option<f64>,
    pub change: Option<u64>,
    /// When its last turn ended.
    pub served: Nanos,
}

impl Stream {
    pub fn new(owner: u64, sync: bool, prio: IoPriority, now: Nanos) -> Stream {
        Stream {
            owner,
            sync,
            prio,
            order: Order::default(),
            in_flight: 0,
            gone: false,
            history: 0,
            requests: 0,
            last_sector: None,
            think: None,
            last_end: now,
            size: 0,
            best: None,
            bytes: 0,
            ends: 0,
            active: false,
            mixed: None,
            alone: None,
            change: None,
            served: now,
        }
    }

    /// 1 for level 7 to 8 for level 0; half of it for asynchronous requests.
    pub fn weight(&self) -> f64 {
        (IoPriority::LEVELS - self.prio.level()) as f64 * if self.sync { 1.0 } else { 0.5 }
    }

    /// Most of its requests go on where the last one ended.
    pub fn is_sequential(&self) -> bool {
        let kept = (self.history & 0xffff).count_ones();
        self.requests >= 4 && kept >= SEQUENTIAL.min(self.requests - 1)
    }

    pub fn is_idle(&self) -> bool {
        self.order.is_empty() && self.in_flight == 0
    }

    pub fn learn_place(&mut self, request: &Request) {
        let follows = |last: Sector| (last..=last + GAP_SECTORS).contains(&request.sector);
        self.history = self.history << 1 | self.last_sector.is_some_and(follows) as u32;
        self.requests = self.requests.saturating_add(1);
        self.last_sector = Some(request.end_sector());
    }

    pub fn learn_think(&mut self, now: Nanos) {
        // Longer than a second is not a habit but a pause.
        let think = now.since(self.last_end).0.min(1_000_000_000);
        self.think = Some(mean(self.think, think, 8));
    }

    pub fn learn_service(&mut self, bytes: u64, took: Nanos, now: Nanos) {
        let pace = took.0 * 1024 / bytes.max(512);
        self.best = Some(self.best.map_or(pace, |best| best.min(pace)));
        self.size = mean((self.size > 0).then_some(self.size), bytes, 8);
        self.last_end = now;
    }

    /// Bytes per ns that it might get alone, if all went as well as it ever did.
    pub fn hoped(&self) -> f64 {
        let size = self.size.max(512);
        let service = self.best.unwrap_or(0) * size / 1024 + self.think.unwrap_or(0);
        size as f64 / service.max(1) as f64
    }
}

/// A mean that forgets: the new value has a weight of one of `of`.
pub(super) fn mean(old: Option<u64>, new: u64, of: u64) -> u64 {
    old.map_or(new, |old| (old * (of - 1) + new) / of)
}
