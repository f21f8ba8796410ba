//! `relay`: our own elevator. Whoever waits for another one's work passes the turn on to it.
//!
//! It is made for what "[PATCH 0/6 v6][RFC] jbd[2]: enhance fsync performance when using CFQ" (Jeff
//! Moyer, 2010-07-02) leaves open: "I/O from the two streams really needs to be interleaved in
//! order to keep the storage busy".
//!
//! - **Edges** (`relay/edge.rs`): `yield_to(from, to)` is an edge from a waiter to the holder of
//!   what it waits for, followed transitively. The holder works for the waiter's *party*: with its
//!   priority, as part of its share, and its asynchronous requests count as synchronous.
//! - **Mixed** (this file): requests go out as they come, in the order of position where the device
//!   is full, old ones first; a sequential stream keeps its share (`relay/guard.rs`).
//!   Asynchronous requests beside synchronous ones are limited to the number that does not make
//!   those much slower (`relay/depth.rs`).
//! - **Held** (`relay/hold.rs`): one party at a time has the device, which is kept idle for it
//!   where its next request comes soon. That pays where changing from one to another is dear.
//! - **Which of the two** (`relay/mode.rs`) is not configured: both are tried, what gets more done
//!   is kept.
//!
//! No synchronous request is passed over for more than `max_wait` (50 ms) as long as slices are
//! short; slices of 120 ms are used where they were measured to be better by more than 5 %.

mod depth;
mod edge;
mod guard;
mod hold;
mod mode;
mod stream;

use super::order::BackSeek;
use super::{Dispatch, Elevator, ElevatorNote, Newcomer, NoteKind, TunableError, unknown_tunable};
use crate::bio::is_sync;
use crate::{DeviceInfo, Request, RequestId};
use base::map::HashMap;
use base::{Nanos, Sector};
use edge::Edge;
use guard::Guard;
use hold::Turn;
use mode::{Mode, Trials};
use rt::IoClass;
use smallvec::SmallVec;
use stream::{Sid, Slot, Stream, Streams};

struct Tunables {
    /// A synchronous request that has waited half of it goes first.
    max_wait: Nanos,
    /// The same for asynchronous requests, while synchronous ones wait.
    async_wait: Nanos,
    /// Synchronous requests that may pass an asynchronous one.
    async_passed: u32,
}

impl Default for Tunables {
    fn default() -> Tunables {
        let (max_wait, async_wait) = (Nanos::from_millis(50), Nanos::from_millis(500));
        Tunables { max_wait, async_wait, async_passed: 32 }
    }
}

/// The elevator.
pub struct Relay {
    tunables: Tunables,
    rotational: bool,
    depth: u32,
    now: Nanos,
    streams: Streams,
    contexts: HashMap<u64, Sid>,
    async_streams: [Option<Sid>; 3],
    slots: Vec<Slot>,
    /// Stream and time of dispatch of each request in flight, by number.
    flights: HashMap<u64, (Sid, Nanos)>,
    waiting: u32,
    /// Requests that have ended.
    ended: u64,
    /// Requests in flight: asynchronous, synchronous.
    in_flight: [u32; 2],
    /// Synchronous requests that have passed waiting asynchronous ones.
    passed: u32,
    /// Asynchronous requests that may be in flight beside synchronous ones.
    async_limit: f64,
    edges: Vec<Edge>,
    trials: Trials,
    guard: Guard,
    turn: Option<Turn>,
    pool_vtime: u64,
    async_vtime: u64,
    idle_until: Option<Nanos>,
    idle_since: Nanos,
    last_sync_end: Option<Nanos>,
    last_position: Sector,
    notes: Vec<ElevatorNote>,
}

impl Default for Relay {
    fn default() -> Relay {
        Relay {
            tunables: Tunables::default(),
            rotational: true,
            depth: 1,
            now: Nanos::ZERO,
            streams: Streams::default(),
            contexts: HashMap::default(),
            async_streams: [None; 3],
            slots: Vec::new(),
            flights: HashMap::default(),
            waiting: 0,
            ended: 0,
            in_flight: [0; 2],
            passed: 0,
            async_limit: 1.0,
            edges: Vec::new(),
            trials: Trials::default(),
            guard: Guard::default(),
            turn: None,
            pool_vtime: 0,
            async_vtime: 0,
            idle_until: None,
            idle_since: Nanos::ZERO,
            last_sync_end: None,
            last_position: Sector(0),
            notes: Vec::new(),
        }
    }
}

impl Relay {
    fn note(&mut self, kind: NoteKind, s: Sid, value: u64) {
        let ioc = self.streams[s].owner;
        self.notes.push(ElevatorNote { kind, ioc, value });
    }

    fn waiting_streams(&self) -> impl Iterator<Item = Sid> {
        self.streams.ids().filter(|&s| !self.streams[s].order.is_empty())
    }

    /// After so long a synchronous request goes first.
    fn late_after(&self) -> Nanos {
        Nanos(self.tunables.max_wait.0 / 2)
    }

    /// The stream that a new request belongs to. What somebody waits for is synchronous.
    fn stream_for(&mut self, request: &Request) -> Sid {
        let (ioc, prio, now) = (request.ioc, request.ioprio, self.now);
        if !request.is_sync() && !self.has_waiters(ioc) {
            let class = prio.class() as usize;
            if let Some(s) = self.async_streams[class] {
                return s;
            }
            let s = self.streams.add(Stream::new(0, false, prio, now));
            self.async_streams[class] = Some(s);
            return s;
        }
        if let Some(&s) = self.contexts.get(&ioc) {
            self.streams[s].prio = prio;
            return s;
        }
        let s = self.streams.add(Stream::new(ioc, true, prio, now));
        self.contexts.insert(ioc, s);
        s
    }

    /// The class in which a stream is served: that of its party, where that is more urgent.
    fn urgency(&self, s: Sid) -> IoClass {
        self.streams[s].class().min(self.streams[self.party(s)].class())
    }

    /// The waiting request of `streams` that the device reaches best.
    fn nearest(&self, streams: impl Iterator<Item = Sid>) -> Option<RequestId> {
        let head = self.last_position;
        let back = BackSeek { max: 0, penalty: 1 };
        let found = streams.filter_map(|s| self.streams[s].order.nearest(head, back));
        // Upwards from the head, then from the bottom.
        found.min_by_key(|&(sector, id)| (sector < head, sector, id)).map(|(_, id)| id)
    }

    /// The next request while requests are mixed.
    fn choose_mixed(&mut self) -> Option<RequestId> {
        let free = || self.waiting_streams().filter(|&s| !self.is_held(s));
        let class = free().map(|s| self.urgency(s)).min()?;
        let [waiting_async, waiting_sync] = [false, true].map(|sync| {
            let of_kind = |s: &Sid| self.streams[*s].sync == sync && self.urgency(*s) == class;
            free().filter(of_kind).collect::<SmallVec<[Sid; 16]>>()
        });
        let oldest = |of: &[Sid]| of.iter().filter_map(|&s| self.streams[s].order.oldest()).min();
        if let Some((arrival, id)) = oldest(&waiting_sync)
            && arrival + self.late_after() <= self.now
        {
            return Some(id);
        }
        if let Some((arrival, id)) = oldest(&waiting_async) {
            let late = arrival + self.tunables.async_wait <= self.now;
            let due = late || self.passed >= self.tunables.async_passed;
            if due && self.has_room_for_async() {
                self.passed = 0;
                return Some(id);
            }
        }
        if let Some(id) = self.nearest(waiting_sync.into_iter()) {
            self.passed += !waiting_async.is_empty() as u32;
            return Some(id);
        }
        self.nearest(waiting_async.into_iter()).filter(|_| self.has_room_for_async())
    }

    /// Anything, in the order of urgency and age.
    fn choose_forced(&mut self) -> Option<RequestId> {
        self.end_turn(NoteKind::SliceDrained);
        let oldest = self.waiting_streams().filter_map(|s| {
            self.streams[s].order.oldest().map(|(arrival, id)| (self.urgency(s), arrival, id))
        });
        oldest.min().map(|(_, _, id)| id)
    }

    fn give(&mut self, id: RequestId, view: &Dispatch<'_>) -> RequestId {
        let request = view.requests.get(id);
        let Slot { stream: s, arrival, number } = self.slots[id.0 as usize];
        let now = self.now;
        let stream = &mut self.streams[s];
        stream.order.remove(request.sector, number, arrival);
        stream.in_flight += 1;
        stream.held = None;
        self.in_flight[stream.sync as usize] += 1;
        self.waiting -= 1;
        self.flights.insert(number, (s, now));
        self.last_position = request.end_sector();
        if let Some(turn) = &mut self.turn {
            turn.dispatched += 1;
        }
        id
    }
}

impl Elevator for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.rotational = info.rotational;
        self.depth = info.depth;
    }

    fn allow_merge(&self, id: RequestId, request: &Request, new: &Newcomer) -> bool {
        let s = Some(self.slots[id.0 as usize].stream);
        if is_sync(request.op, new.flags) || self.has_waiters(new.ioc) {
            return self.contexts.get(&new.ioc).copied() == s;
        }
        self.async_streams[new.ioprio.class() as usize] == s
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        self.now = now;
        self.stop_waiting(request.ioc);
        let s = self.stream_for(request);
        let party = self.party(s);
        if self.streams[party].is_idle() && self.streams[s].is_idle() {
            self.streams[party].party_goes_on(now);
        }
        let stream = &mut self.streams[s];
        stream.learn(request, now);
        stream.order.insert(id, request, now);
        stream::fill(&mut self.slots, id, Slot { stream: s, arrival: now, number: request.number });
        self.waiting += 1;
        if self.trials.mode == Mode::Mixed {
            self.hold_back(s);
        }
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        let s = self.slots[id.0 as usize].stream;
        if old_start != request.sector {
            self.streams[s].order.moved(id, request, old_start);
        }
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        let (old, own) = (self.slots[gone.0 as usize], self.slots[into.0 as usize]);
        self.streams[old.stream].order.remove(absorbed.sector, old.number, old.arrival);
        self.waiting -= 1;
        if old.arrival < own.arrival {
            self.streams[own.stream].order.aged(into, own.number, own.arrival, old.arrival);
            self.slots[into.0 as usize].arrival = old.arrival;
        }
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        self.now = view.now;
        if self.waiting == 0 {
            return None;
        }
        let id = match self.trials.mode {
            _ if view.force => self.choose_forced(),
            Mode::Mixed => self.choose_mixed(),
            Mode::Held(ms) => self.choose_held(Nanos::from_millis(ms)),
        };
        id.map(|id| self.give(id, view))
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        self.now = now;
        let Some((s, began)) = self.flights.remove(&request.number) else { return };
        let party = self.party(s);
        self.streams[party].window_bytes += request.bytes();
        self.streams[party].window_ends += 1;
        self.streams[party].guard_bytes += request.bytes();
        self.ended += 1;
        self.streams[party].pace.ended(request.bytes(), now, self.ended);
        self.streams[party].party_end = now;
        self.learn_async_limit(s, request, now.since(began));
        let stream = &mut self.streams[s];
        stream.finished(request, now.since(began), now);
        self.in_flight[stream.sync as usize] -= 1;
        if stream.sync {
            self.last_sync_end = Some(now);
        }
        self.tick();
        self.correct_share();
    }

    fn next_timer(&self) -> Option<Nanos> {
        let mixed = self.trials.mode == Mode::Mixed && self.waiting > 0;
        let held = self.waiting_streams().filter(|&s| mixed && self.is_held(s));
        let held = held.filter_map(|s| self.looks_again_at(s));
        held.chain(self.idle_until).chain(self.async_wakes()).min()
    }

    fn timer(&mut self, now: Nanos) {
        self.now = now;
        if self.idle_until.is_some_and(|until| until <= now) {
            self.end_idle(NoteKind::IdleFired);
            self.end_turn(NoteKind::SliceGivenUp);
        }
    }

    fn yield_to(&mut self, from: u64, to: u64, now: Nanos) {
        self.now = now;
        self.wait_for(from, to);
    }

    fn ioc_exit(&mut self, ioc: u64, now: Nanos) {
        self.now = now;
        self.end_edges(|edge| edge.waiter == ioc || edge.holder == ioc);
        if let Some(s) = self.contexts.remove(&ioc) {
            self.streams[s].gone = true;
        }
    }

    fn take_notes(&mut self, out: &mut Vec<ElevatorNote>) {
        out.append(&mut self.notes);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let t = &self.tunables;
        vec![
            ("max_wait", (t.max_wait.0 / 1_000_000).to_string()),
            ("async_wait", (t.async_wait.0 / 1_000_000).to_string()),
            ("async_passed", t.async_passed.to_string()),
        ]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        if self.tunables().iter().all(|&(known, _)| known != name) {
            return Err(unknown_tunable(self, name));
        }
        let number = value.parse::<u32>().ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| TunableError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "a whole number from 1",
        })?;
        match name {
            "max_wait" => self.tunables.max_wait = Nanos::from_millis(number as u64),
            "async_wait" => self.tunables.async_wait = Nanos::from_millis(number as u64),
            _ => self.tunables.async_passed = number,
        }
        Ok(())
    }
}
