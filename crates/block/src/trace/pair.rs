//! Matches events: which bio went into which request, and when each step happened.

use super::{TraceEvent, TraceKind};
use crate::{BioFlags, Op};
use base::{Nanos, Sector};
use std::collections::BTreeMap;

/// A bio from its arrival to its end.
#[derive(Clone, Debug)]
pub struct BioLife {
    /// Its first event.
    pub queued: TraceEvent,
    /// Name of the request that it became or joined; `None` where the trace does not show.
    pub request: Option<u64>,
}

/// A request from its making to its end. Times that the trace does not show are `None`.
#[derive(Clone, Debug)]
pub struct RequestLife {
    /// Its name.
    pub id: u64,
    /// What it does.
    pub op: Op,
    /// Flags of its first bio.
    pub flags: BioFlags,
    /// First sector, of what the device got.
    pub sector: Sector,
    /// Sectors that the device got.
    pub count: u64,
    /// The I/O context of its first bio.
    pub ioc: u64,
    /// The task that submitted it.
    pub task: u32,
    /// When it was made.
    pub got: Option<Nanos>,
    /// When the elevator got it.
    pub inserted: Option<Nanos>,
    /// When the device got it.
    pub dispatched: Option<Nanos>,
    /// When the device had finished it.
    pub completed: Option<Nanos>,
    /// Its bios: places in [`Lives::bios`].
    pub bios: Vec<usize>,
}

/// All bios and requests of a trace, each in the order of its first event.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// The bios.
    pub bios: Vec<BioLife>,
    /// The requests.
    pub requests: Vec<RequestLife>,
}

/// What a bio and the event about its fate have in common.
type Key = (u32, Op, Sector, u64);

fn key(event: &TraceEvent) -> Key {
    (event.task, event.op, event.sector, event.count)
}

#[derive(Default)]
struct Pairing {
    lives: Lives,
    /// Bios whose fate is not known yet.
    open: BTreeMap<Key, usize>,
    /// Requests that are not finished: places by name.
    live: BTreeMap<u64, usize>,
}

impl Lives {
    /// Reads the events, which are in the order of their times. Events of requests that began
    /// before the trace did make lives without the earlier times.
    pub fn of(events: &[TraceEvent]) -> Lives {
        let mut pairing = Pairing::default();
        for event in events {
            pairing.take(event);
        }
        pairing.lives
    }

    /// The request of a bio.
    pub fn request_of(&self, bio: &BioLife) -> Option<&RequestLife> {
        let id = bio.request?;
        let at = self.requests.partition_point(|request| request.id < id);
        self.requests.get(at).filter(|request| request.id == id)
    }
}

impl Pairing {
    fn take(&mut self, event: &TraceEvent) {
        match event.kind {
            TraceKind::Queued => {
                self.open.insert(key(event), self.lives.bios.len());
                self.lives.bios.push(BioLife { queued: *event, request: None });
            }
            TraceKind::Get => {
                let at = self.request(event);
                self.lives.requests[at].got = Some(event.time);
                self.join(event, at);
            }
            TraceKind::BackMerge | TraceKind::FrontMerge => self.merge(event),
            TraceKind::Inserted => {
                let at = self.request(event);
                self.lives.requests[at].inserted = Some(event.time);
            }
            TraceKind::Dispatched => {
                let at = self.request(event);
                let request = &mut self.lives.requests[at];
                request.dispatched = Some(event.time);
                (request.sector, request.count) = (event.sector, event.count);
            }
            TraceKind::Completed => {
                let at = self.request(event);
                self.lives.requests[at].completed = Some(event.time);
                self.live.remove(&event.request);
            }
            _ => {}
        }
    }

    /// The place of an event's request; a new one where it is not known.
    fn request(&mut self, event: &TraceEvent) -> usize {
        if let Some(&at) = self.live.get(&event.request) {
            return at;
        }
        let life = RequestLife {
            id: event.request,
            op: event.op,
            flags: event.flags,
            sector: event.sector,
            count: event.count,
            ioc: event.ioc,
            task: event.task,
            got: None,
            inserted: None,
            dispatched: None,
            completed: None,
            bios: Vec::new(),
        };
        // Names grow, but a request may become visible after a later one.
        let at = self.lives.requests.partition_point(|request| request.id < event.request);
        self.lives.requests.insert(at, life);
        if at + 1 < self.lives.requests.len() {
            self.live.values_mut().filter(|place| **place >= at).for_each(|place| *place += 1);
        }
        self.live.insert(event.request, at);
        at
    }

    fn join(&mut self, event: &TraceEvent, at: usize) -> bool {
        let Some(bio) = self.open.remove(&key(event)) else { return false };
        self.lives.bios[bio].request = Some(event.request);
        self.lives.requests[at].bios.push(bio);
        true
    }

    /// A bio joined a request; or a whole request did.
    fn merge(&mut self, event: &TraceEvent) {
        let at = self.request(event);
        if !self.join(event, at) {
            let same = |place: &usize| {
                let request = &self.lives.requests[*place];
                (request.op, request.sector, request.count) == (event.op, event.sector, event.count)
            };
            let gone = self.live.values().copied().find(|place| *place != at && same(place));
            let Some(gone) = gone else { return };
            let bios = std::mem::take(&mut self.lives.requests[gone].bios);
            bios.iter().for_each(|&bio| self.lives.bios[bio].request = Some(event.request));
            self.lives.requests[at].bios.extend(bios);
            self.live.remove(&self.lives.requests[gone].id);
        }
        let request = &mut self.lives.requests[at];
        request.count += event.count;
        if event.kind == TraceKind::FrontMerge {
            request.sector = event.sector;
        }
    }
}
