//! Streams: what is known about one issuer of requests.

use crate::elevator::order::Order;
use crate::{Request, RequestId};
use base::{Nanos, Sector};
use rt::{IoClass, IoPriority};

/// Names a stream of one elevator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sid(pub u32);

/// What the elevator keeps per waiting request, by its id.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub stream: Sid,
    pub arrival: Nanos,
    pub number: u64,
}

/// A request goes on in sequence where it begins at most so many sectors behind the last one.
const GAP_SECTORS: u64 = 256;
/// Of the last 16 requests, so many must go on in sequence.
const SEQUENTIAL: u32 = 10;
/// A process may think so much longer than it usually does.
pub(super) const THINK_SLACK: Nanos = Nanos::from_micros(200);
/// The best service time is that of the last one or two times so long.
const BEST_OF: Nanos = Nanos::from_secs(20);

/// The smallest value of the recent past.
#[derive(Default)]
pub(super) struct RecentMin {
    before: Option<u64>,
    now: Option<u64>,
    since: Nanos,
}

impl RecentMin {
    pub fn add(&mut self, value: u64, now: Nanos) {
        if now.since(self.since) > BEST_OF {
            self.before = self.now.take();
            self.since = now;
        }
        self.now = Some(self.now.map_or(value, |old| old.min(value)));
    }

    pub fn get(&self) -> Option<u64> {
        [self.before, self.now].into_iter().flatten().min()
    }
}

/// What a party gets while nobody is in its way: the best pace of some requests in a row, from the
/// end of one to the end of the next, so that the pauses of its process count. Between them no
/// request of others has ended. After a pause the first ones are left out (the device may have read
/// ahead of them), and after a request of others some (the device may still work for it).
#[derive(Default)]
pub(super) struct Pace {
    /// Requests to be left out.
    skip: u32,
    /// Requests of the current row, their bytes, and when it began.
    count: u32,
    bytes: u64,
    began: Nanos,
    last: Nanos,
    /// Requests of all that had ended at the last end.
    last_ended: u64,
    /// Mean time between two ends (weight 1/8).
    mean: Nanos,
    /// ns per KiB.
    best: RecentMin,
}

/// Requests in a row, and those that are left out before: after a pause, after others.
const ROW: u32 = 6;
const AFTER_PAUSE: u32 = 12;
const AFTER_OTHERS: u32 = 2;
/// So many times the mean is a pause.
const PAUSE: u64 = 4;

impl Pace {
    /// A request has ended, the `ended`-th of all.
    pub fn ended(&mut self, bytes: u64, now: Nanos, ended: u64) {
        let others = ended != self.last_ended + 1;
        self.last_ended = ended;
        let span = now.since(self.last);
        self.last = now;
        let paused = span.0 > PAUSE * self.mean.0;
        self.mean = Nanos((7 * self.mean.0 + span.0) / 8);
        if paused {
            self.skip = AFTER_PAUSE;
        } else if others {
            self.skip = self.skip.max(AFTER_OTHERS);
        }
        if self.skip > 0 {
            self.skip -= 1;
            (self.count, self.bytes, self.began) = (0, 0, now);
            return;
        }
        self.count += 1;
        self.bytes += bytes;
        if self.count == ROW {
            self.best.add(now.since(self.began).0 * 1024 / self.bytes.max(512), now);
            (self.count, self.bytes, self.began) = (0, 0, now);
        }
    }

    /// Bytes per second.
    pub fn rate(&self) -> Option<u64> {
        self.best.get().map(|ns| 1_024_000_000_000 / ns.max(1))
    }
}

/// Requests in a row without others that show a stream's pace.
pub(super) const PROBE: u32 = AFTER_OTHERS + ROW + 3;

/// The synchronous requests of one I/O context, or the asynchronous ones of a class.
pub(super) struct Stream {
    /// The context; 0 for asynchronous requests.
    pub owner: u64,
    pub sync: bool,
    pub prio: IoPriority,
    /// By position, and by arrival.
    pub order: Order,
    pub in_flight: u32,
    /// One bit per request, the latest lowest: it went on in sequence.
    history: u32,
    requests: u32,
    last_end: Option<Sector>,
    /// Mean time from the end of a request to the next one (weight 1/8), and the latest end.
    pub think: Nanos,
    pub last_end_time: Nanos,
    /// The same for the party of which this is the root: from the end of any of its requests to the
    /// next one of any.
    pub party_think: Option<Nanos>,
    pub party_end: Nanos,
    /// Mean bytes of a request (weight 1/8).
    pub size: u64,
    /// Smallest recent time in the device, ns per KiB.
    pub best: RecentMin,
    /// That of the party of which this is the root.
    pub pace: Pace,
    /// When others were last held back to learn it.
    pub probed: Option<Nanos>,
    /// Requests that have completed.
    pub completed: u64,
    /// Bytes completed in the current window, of it and of those that it waits for.
    pub window_bytes: u64,
    /// Requests completed in it.
    pub window_ends: u32,
    /// Bytes in the window of the share guard.
    pub guard_bytes: u64,
    /// Time that it has had the device for itself, divided by its weight.
    pub vtime: u64,
    /// It waits until that stream has completed so many requests.
    pub held: Option<(Sid, u64)>,
    pub gone: bool,
    pub born: Nanos,
}

impl Stream {
    pub fn new(owner: u64, sync: bool, prio: IoPriority, now: Nanos) -> Stream {
        Stream {
            owner,
            sync,
            prio,
            order: Order::default(),
            in_flight: 0,
            history: 0,
            requests: 0,
            last_end: None,
            think: Nanos::ZERO,
            last_end_time: now,
            party_think: None,
            party_end: now,
            size: 0,
            best: RecentMin::default(),
            pace: Pace::default(),
            probed: None,
            completed: 0,
            window_bytes: 0,
            window_ends: 0,
            guard_bytes: 0,
            vtime: 0,
            held: None,
            gone: false,
            born: now,
        }
    }

    pub fn class(&self) -> IoClass {
        self.prio.class()
    }

    /// 1 for level 7 to 8 for level 0.
    pub fn weight(&self) -> u64 {
        (IoPriority::LEVELS - self.prio.level()) as u64
    }

    /// Most of its requests go on where the last one ended.
    pub fn is_sequential(&self) -> bool {
        self.requests >= 4
            && (self.history & 0xffff).count_ones() >= SEQUENTIAL.min(self.requests - 1)
    }

    pub fn is_idle(&self) -> bool {
        self.order.is_empty() && self.in_flight == 0
    }

    /// Learns from a new request.
    pub fn learn(&mut self, request: &Request, now: Nanos) {
        if self.is_idle() {
            // Longer than a second is not a habit but a pause.
            let think = now.since(self.last_end_time).0.min(1_000_000_000);
            self.think = Nanos((7 * self.think.0 + think) / 8);
        }
        let next = self
            .last_end
            .is_some_and(|last| request.sector >= last && request.sector.0 - last.0 <= GAP_SECTORS);
        self.history = self.history << 1 | next as u32;
        self.requests = self.requests.saturating_add(1);
        self.last_end = Some(request.end_sector());
    }

    /// The party of which this is the root goes on after it had nothing to do.
    pub fn party_goes_on(&mut self, now: Nanos) {
        let think = now.since(self.party_end).0.min(1_000_000_000);
        self.party_think = Some(Nanos(match self.party_think {
            None => think,
            Some(mean) => (7 * mean.0 + think) / 8,
        }));
    }

    /// Learns from the end of a request that was in the device for `took`.
    pub fn finished(&mut self, request: &Request, took: Nanos, now: Nanos) {
        self.in_flight -= 1;
        self.completed += 1;
        self.last_end_time = now;
        self.size =
            if self.size == 0 { request.bytes() } else { (7 * self.size + request.bytes()) / 8 };
        self.best.add(took.0 * 1024 / request.bytes().max(512), now);
    }

    /// Until when it may be that its process thinks: then it goes on soon.
    pub fn goes_on_until(&self) -> Nanos {
        self.last_end_time + Nanos(2 * self.think.0) + THINK_SLACK
    }

    /// Bytes per second that it would get alone: what it got in its best row, else its best service
    /// time and its think time.
    pub fn alone_rate(&self) -> Option<u64> {
        if let Some(rate) = self.pace.rate() {
            return Some(rate);
        }
        let best = self.best.get()?;
        let ns = best * self.size / 1024 + self.think.0;
        (self.size > 0).then(|| (self.size as u128 * 1_000_000_000 / ns.max(1) as u128) as u64)
    }
}

/// All streams.
#[derive(Default)]
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    /// A place for a new stream: that of one that has gone, where there is one.
    pub fn add(&mut self, stream: Stream) -> Sid {
        if let Some(place) = self.0.iter().position(|old| old.gone && old.is_idle()) {
            self.0[place] = stream;
            return Sid(place as u32);
        }
        self.0.push(stream);
        Sid(self.0.len() as u32 - 1)
    }

    pub fn ids(&self) -> impl Iterator<Item = Sid> + use<> {
        (0..self.0.len() as u32).map(Sid)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.0.iter_mut()
    }
}

impl std::ops::Index<Sid> for Streams {
    type Output = Stream;
    fn index(&self, id: Sid) -> &Stream {
        &self.0[id.0 as usize]
    }
}

impl std::ops::IndexMut<Sid> for Streams {
    fn index_mut(&mut self, id: Sid) -> &mut Stream {
        &mut self.0[id.0 as usize]
    }
}

/// Enters a request into the table of slots.
pub(super) fn fill(slots: &mut Vec<Slot>, id: RequestId, slot: Slot) {
    let index = id.0 as usize;
    if slots.len() <= index {
        slots.resize(index + 1, slot);
    }
    slots[index] = slot;
}
