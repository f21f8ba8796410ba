//! `relay`: our own elevator. Whoever waits for another one's work passes the turn on to it.
//!
//! It is made for what "[PATCH 0/6 v6][RFC] jbd[2]: enhance fsync performance when using CFQ" (Jeff
//! Moyer, 2010-07-02) leaves open: "I/O from the two streams really needs to be interleaved in
//! order to keep the storage busy".
//!
//! - **Edges**: `yield_to(from, to)` is an edge from a waiter to the holder of what it waits for,
//!   followed transitively. The holder works for the waiter's *party*: with its priority, as part
//!   of its share, and its asynchronous requests count as synchronous.
//! - **Mixing**: requests go out as they come, in the order of position where the device is full,
//!   old ones first. Asynchronous requests beside synchronous ones are limited to the number that
//!   does not make those much slower.
//! - **Turns**: each sequential party, all other synchronous streams together, and the asynchronous
//!   ones are a *group*. A group that has its turn has the device for itself, and it is kept idle
//!   for a party whose next request comes soon.
//! - **A bargain**: what a group gets by mixing, and what it would get alone, are measured. Where
//!   turns leave something over after every group has got as much as by mixing, turns are taken,
//!   and what is over is shared alike. So nobody loses by them.
//! - **A favour**: where mixing is better than turns, the sequential party that suffers most from
//!   it has turns that cost the others `favour` of what they would get alone.

mod stream;
mod turn;

use super::order::BackSeek;
use super::{Dispatch, Elevator, ElevatorNote, Newcomer, NoteKind, TunableError, unknown_tunable};
use crate::bio::is_sync;
use crate::{DeviceInfo, Request, RequestId};
use base::map::HashMap;
use base::{Nanos, Sector};
use rt::{IoClass, IoPriority};
use smallvec::SmallVec;
use stream::{ASYNC, CONTEXTS, POOL, Sid, Slot, Stream};
use turn::{HOLD_FIRST, Turn};

/// Longest chain of waiters that is followed.
const CHAIN: usize = 16;
/// A synchronous request is slow when it took so many times its best time and this more, or longer
/// than `SLOW_MAX`.
const SLOW: u64 = 8;
const SLACK: Nanos = Nanos::from_millis(2);
const SLOW_MAX: Nanos = Nanos::from_millis(60);
/// Asynchronous requests have the device for themselves when no synchronous one has ended for so
/// long.
const QUIET: Nanos = Nanos::from_millis(50);

struct Tunables {
    /// ms; a synchronous request that has waited half of it goes first, where requests are mixed.
    max_wait: u32,
    /// ms; the same for asynchronous requests, while synchronous ones wait.
    async_wait: u32,
    /// Synchronous requests that may pass an asynchronous one.
    async_passed: u32,
    /// ms; the longest round of turns.
    round: u32,
    /// Thousandths of what the others would get alone that they give up for the party that
    /// suffers most from mixing.
    favour: u32,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables { max_wait: 50, async_wait: 500, async_passed: 32, round: 300, favour: 32 }
    }
}

/// The elevator.
pub struct Relay {
    tunables: Tunables,
    rotational: bool,
    depth: u32,
    now: Nanos,
    streams: Vec<Stream>,
    contexts: HashMap<u64, Sid>,
    slots: Vec<Slot>,
    /// Stream and time of dispatch of each request in flight, by number.
    flights: HashMap<u64, (Sid, Nanos)>,
    waiting: u32,
    /// Asynchronous and synchronous requests in flight.
    in_flight: [u32; 2],
    /// Synchronous requests that have passed waiting asynchronous ones.
    passed: u32,
    /// Asynchronous requests that may be in flight beside synchronous ones.
    async_limit: f64,
    last_sync_end: Option<Nanos>,
    last_position: Sector,
    /// Waiter and holder.
    edges: Vec<(u64, u64)>,
    turn: Option<Turn>,
    /// The device is kept idle: until when, since when.
    idle: Option<(Nanos, Nanos)>,
    window_began: Nanos,
    /// The groups of the last window with their weights.
    groups: Vec<(Sid, f64)>,
    /// Turns are taken, until then.
    hold: Option<Nanos>,
    hold_span: Nanos,
    /// They are tried only.
    trial: bool,
    next_trial: Nanos,
    /// When the paces are forgotten.
    forget: Nanos,
    favoured: Option<Sid>,
    next_favour: Nanos,
    notes: Vec<ElevatorNote>,
}

impl Default for Relay {
    fn default() -> Relay {
        let fixed = |sync, class| {
            let prio = IoPriority::new(class, 4).unwrap_or_default();
            Stream::new(0, sync, prio, Nanos::ZERO)
        };
        let classes = [IoClass::RealTime, IoClass::BestEffort, IoClass::Idle];
        let pool = fixed(true, IoClass::BestEffort);
        let streams = [pool].into_iter().chain(classes.map(|class| fixed(false, class)));
        Relay {
            tunables: Tunables::default(),
            rotational: true,
            depth: 1,
            now: Nanos::ZERO,
            streams: streams.collect(),
            contexts: HashMap::default(),
            slots: Vec::new(),
            flights: HashMap::default(),
            waiting: 0,
            in_flight: [0; 2],
            passed: 0,
            async_limit: 1.0,
            last_sync_end: None,
            last_position: Sector(0),
            edges: Vec::new(),
            turn: None,
            idle: None,
            window_began: Nanos::ZERO,
            groups: Vec::new(),
            hold: None,
            hold_span: HOLD_FIRST,
            trial: false,
            next_trial: Nanos::ZERO,
            forget: Nanos::ZERO,
            favoured: None,
            next_favour: Nanos::ZERO,
            notes: Vec::new(),
        }
    }
}

/// Edges and parties.
impl Relay {
    /// The waiter waits for `holder` from now on, and for nobody else.
    fn wait_for(&mut self, waiter: u64, holder: u64) {
        let edge = (waiter, holder);
        if waiter == holder || !self.contexts.contains_key(&waiter) {
            self.note(NoteKind::YieldRefused, waiter, holder); // It has nothing to lend here.
        } else if !self.edges.contains(&edge) {
            self.end_edges(|edge| edge.0 == waiter);
            self.edges.push(edge);
            self.note(NoteKind::YieldBegin, waiter, holder);
        }
    }

    fn end_edges(&mut self, over: impl Fn(&(u64, u64)) -> bool) {
        let notes = &mut self.notes;
        self.edges.retain(|edge| {
            let (ioc, value) = *edge;
            if over(edge) {
                notes.push(ElevatorNote { kind: NoteKind::YieldEnd, ioc, value });
            }
            !over(edge)
        });
    }

    fn has_waiters(&self, ioc: u64) -> bool {
        self.edges.iter().any(|edge| edge.1 == ioc)
    }

    /// The stream that a stream's work counts for: that of the first one that waits for it, for
    /// that one, and so on; itself where nobody waits.
    fn party(&self, s: Sid) -> Sid {
        let own = self.streams[s].owner;
        let mut root = own;
        for _ in 0..CHAIN {
            match self.edges.iter().find(|edge| edge.1 == root) {
                Some(&(waiter, _)) if waiter != own => root = waiter,
                _ => break,
            }
        }
        if root == own { s } else { self.contexts.get(&root).copied().unwrap_or(s) }
    }

    fn group(&self, s: Sid) -> Sid {
        let party = self.party(s);
        let stream = &self.streams[party];
        if stream.sync && !stream.is_sequential() { POOL } else { party }
    }

    /// Whether the one that `ioc` waits for in the end is known to this device.
    fn works_here(&self, ioc: u64) -> bool {
        let next = |&ioc: &u64| self.edges.iter().find(|edge| edge.0 == ioc).map(|edge| edge.1);
        let last = std::iter::successors(Some(ioc), next).take(CHAIN).last();
        last.is_some_and(|last| self.contexts.contains_key(&last))
    }

    /// The stream that a new request belongs to. What somebody waits for is synchronous.
    fn stream_for(&mut self, request: &Request) -> Sid {
        let (ioc, prio) = (request.ioc, request.ioprio);
        if !request.is_sync() && !self.has_waiters(ioc) {
            return ASYNC + prio.class() as usize;
        }
        if let Some(&s) = self.contexts.get(&ioc) {
            self.streams[s].prio = prio;
            return s;
        }
        let new = Stream::new(ioc, true, prio, self.now);
        let free = (CONTEXTS..self.streams.len())
            .find(|&s| self.streams[s].gone && self.streams[s].is_idle());
        let s = match free {
            Some(s) => {
                self.streams[s] = new;
                s
            }
            None => {
                self.streams.push(new);
                self.streams.len() - 1
            }
        };
        self.contexts.insert(ioc, s);
        s
    }

    /// The class in which a stream is served: that of its party, where that is more urgent.
    fn urgency(&self, s: Sid) -> IoClass {
        self.streams[s].prio.class().min(self.streams[self.party(s)].prio.class())
    }

    fn waiting(&self) -> impl Iterator<Item = Sid> {
        (0..self.streams.len()).filter(|&s| !self.streams[s].order.is_empty())
    }

    fn note(&mut self, kind: NoteKind, ioc: u64, value: u64) {
        self.notes.push(ElevatorNote { kind, ioc, value });
    }
}

/// Mixing.
impl Relay {
    /// The waiting request of `streams` that the device reaches best: upwards from the head, then
    /// from the bottom.
    fn nearest(&self, streams: impl Iterator<Item = Sid>) -> Option<RequestId> {
        let head = self.last_position;
        let back = BackSeek { max: 0, penalty: 1 };
        let found = streams.filter_map(|s| self.streams[s].order.nearest(head, back));
        found.min_by_key(|&(sector, id)| (sector < head, sector, id)).map(|(_, id)| id)
    }

    fn oldest(&self, streams: impl Iterator<Item = Sid>) -> Option<(Nanos, RequestId)> {
        streams.filter_map(|s| self.streams[s].order.oldest()).min()
    }

    fn is_late(&self, arrival: Nanos, ms: u32) -> bool {
        arrival + Nanos(ms as u64 * 1_000_000) <= self.now
    }

    fn choose_mixed(&mut self) -> Option<RequestId> {
        let class = self.waiting().map(|s| self.urgency(s)).min()?;
        let [asynchronous, synchronous] = [false, true].map(|sync| {
            let same = |&s: &Sid| self.streams[s].sync == sync && self.urgency(s) == class;
            self.waiting().filter(same).collect::<SmallVec<[Sid; 16]>>()
        });
        if let Some((arrival, id)) = self.oldest(synchronous.iter().copied())
            && self.is_late(arrival, self.tunables.max_wait / 2)
        {
            return Some(id);
        }
        let waits_async = self.oldest(asynchronous.iter().copied());
        if let Some((arrival, id)) = waits_async {
            let late = self.is_late(arrival, self.tunables.async_wait);
            if (late || self.passed >= self.tunables.async_passed) && self.has_room_for_async() {
                self.passed = 0;
                return Some(id);
            }
        }
        if let Some(id) = self.nearest(synchronous.into_iter()) {
            self.passed += waits_async.is_some() as u32;
            return Some(id);
        }
        self.nearest(asynchronous.into_iter()).filter(|_| self.has_room_for_async())
    }

    /// Learns from a request of `s` that was in the device for `took` how many asynchronous ones
    /// may be there beside it: one more per eight that were not slow, half as many after one that
    /// was, none after one that was very slow (a device that hides writes in a cache gives no other
    /// sign). Below one, only those go that have waited `async_wait`, one at a time.
    fn learn_async_limit(&mut self, s: Sid, bytes: u64, took: Nanos) {
        let stream = &self.streams[s];
        let Some(best) = stream.best.filter(|_| stream.sync) else { return };
        let slow = (SLOW * best * bytes / 1024 + SLACK.0).min(SLOW_MAX.0);
        self.async_limit = match took.0 / slow {
            0 => self.async_limit + 0.125,
            _ if self.in_flight[0] == 0 => self.async_limit,
            1..=3 => self.async_limit / 2.0,
            _ => 0.0,
        }
        .min(self.depth as f64);
    }

    fn has_room_for_async(&self) -> bool {
        let waits = self.waiting().any(|s| self.streams[s].sync);
        let recent = |end| self.now.since(end) < QUIET;
        let quiet = !waits && self.in_flight[1] == 0 && !self.last_sync_end.is_some_and(recent);
        let most = if quiet { self.depth } else { self.async_limit as u32 };
        let oldest = self.oldest(ASYNC..CONTEXTS);
        let late = oldest.is_some_and(|(at, _)| self.is_late(at, self.tunables.async_wait));
        self.in_flight[0] < most || self.in_flight[0] == 0 && late
    }

    /// When asynchronous requests that wait for the quiet of synchronous ones may go, where nothing
    /// else will happen.
    fn async_wakes(&self) -> Option<Nanos> {
        let alone = self.waiting > 0 && self.in_flight == [0; 2] && !self.has_room_for_async();
        let end = self.last_sync_end.filter(|_| alone)?;
        Some(end + QUIET).filter(|&when| when > self.now)
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
        let s = self.slots[id.0 as usize].stream;
        if is_sync(request.op, new.flags) || self.has_waiters(new.ioc) {
            return self.contexts.get(&new.ioc) == Some(&s);
        }
        ASYNC + new.ioprio.class() as usize == s
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        self.now = now;
        self.end_edges(|edge| edge.0 == request.ioc); // Who asks for something waits no longer.
        let s = self.stream_for(request);
        let party = self.party(s);
        if self.streams[party].is_idle() && self.streams[s].is_idle() {
            self.streams[party].learn_think(now);
        }
        self.streams[party].active = true;
        let stream = &mut self.streams[s];
        stream.learn_place(request);
        stream.order.insert(id, request, now);
        let slot = Slot { stream: s, arrival: now, number: request.number };
        let index = id.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, slot);
        }
        self.slots[index] = slot;
        self.waiting += 1;
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
        let id = match view.force {
            true => {
                self.end_turn(NoteKind::SliceDrained);
                let first =
                    |s: Sid| self.streams[s].order.oldest().map(|old| (self.urgency(s), old));
                self.waiting().filter_map(first).min().map(|(_, (_, id))| id)
            }
            false => self.choose(),
        }?;
        let request = view.requests.get(id);
        let Slot { stream: s, arrival, number } = self.slots[id.0 as usize];
        let stream = &mut self.streams[s];
        stream.order.remove(request.sector, number, arrival);
        stream.in_flight += 1;
        self.in_flight[stream.sync as usize] += 1;
        self.waiting -= 1;
        self.flights.insert(number, (s, self.now));
        self.last_position = request.end_sector();
        Some(id)
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        self.now = now;
        let Some((s, began)) = self.flights.remove(&request.number) else { return };
        let (bytes, took) = (request.bytes(), now.since(began));
        let (party, group) = (self.party(s), self.group(s));
        self.streams[party].learn_service(bytes, took, now);
        self.learn_async_limit(party, bytes, took);
        let stream = &mut self.streams[s];
        stream.in_flight -= 1;
        self.in_flight[stream.sync as usize] -= 1;
        if stream.sync {
            self.last_sync_end = Some(now);
        }
        match &mut self.turn {
            Some(turn) if turn.group == group => {
                match turn.ends {
                    0 => turn.first = now,
                    _ => turn.bytes += bytes,
                }
                turn.ends += 1;
                turn.last = now;
            }
            _ => {}
        }
        if self.turn.is_none() || self.hold.is_some() {
            self.streams[group].bytes += bytes;
            self.streams[group].ends += 1;
        }
        self.tick();
    }

    fn next_timer(&self) -> Option<Nanos> {
        let idle = self.idle.map(|(until, _)| until);
        let ends = self.turn.filter(|turn| self.waiting > 0 && turn.end > self.now);
        idle.into_iter().chain(ends.map(|turn| turn.end)).chain(self.async_wakes()).min()
    }

    fn timer(&mut self, now: Nanos) {
        self.now = now;
        if self.idle.is_some_and(|(until, _)| until <= now) {
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
        self.end_edges(|edge| edge.0 == ioc || edge.1 == ioc);
        if let Some(s) = self.contexts.remove(&ioc) {
            self.streams[s].gone = true;
        }
    }

    fn take_notes(&mut self, out: &mut Vec<ElevatorNote>) {
        out.append(&mut self.notes);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let t = &self.tunables;
        let all = [
            ("max_wait", t.max_wait),
            ("async_wait", t.async_wait),
            ("async_passed", t.async_passed),
            ("round", t.round),
            ("favour", t.favour),
        ];
        all.map(|(name, value)| (name, value.to_string())).into()
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        let t = &mut self.tunables;
        let (place, least) = match name {
            "max_wait" => (&mut t.max_wait, 1),
            "async_wait" => (&mut t.async_wait, 1),
            "async_passed" => (&mut t.async_passed, 1),
            "round" => (&mut t.round, 1),
            "favour" => (&mut t.favour, 0),
            _ => return Err(unknown_tunable(self, name)),
        };
        let most = if name == "favour" { 1000 } else { u32::MAX };
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        let expected = match name {
            "favour" => "a whole number from 0 to 1000",
            _ => "a whole number from 1",
        };
        let wrong = || TunableError::Value { name: name.into(), value: value.into(), expected };
        *place = number.ok_or_else(wrong)?;
        Ok(())
    }
}
