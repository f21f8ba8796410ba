//! What the queue's lock guards.

use super::barrier::BarrierState;
use super::flush::FlushState;
use super::{Queue, QueueConfig};
use crate::elevator::{Dispatch, Elevator, ElevatorNote, Newcomer, TunableError};
use crate::request::{Limits, Request, RequestId, Requests};
use crate::share::GroupShare;
use crate::trace::{ProcessNames, Ring, TraceEvent, TraceKind};
use crate::{Bio, Op, QueueStats};
use base::map::HashMap;
use base::{Nanos, Sector};
use rt::{Cgroup, TimerId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A request on its way through the device.
pub(crate) struct Flight {
    pub queue: Arc<Queue>,
    pub request: Box<Request>,
    pub tag: u32,
}

/// Where the request of a tag is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Free,
    /// Its submitter has not come back from the device.
    Submitting,
    /// As above, and it is done already: the submitter goes on with the queue.
    DoneEarly,
    /// The device has it; whoever completes it goes on with the queue.
    InDevice,
}

/// Waiting requests by where they begin and end.
#[derive(Default)]
struct MergeIndex {
    starts: HashMap<(Op, Sector), RequestId>,
    ends: HashMap<(Op, Sector), RequestId>,
}

impl MergeIndex {
    fn add(&mut self, id: RequestId, request: &Request) {
        if Request::mergeable(request.op, request.flags) {
            self.starts.insert((request.op, request.sector), id);
            self.ends.insert((request.op, request.end_sector()), id);
        }
    }

    fn remove(&mut self, id: RequestId, request: &Request) {
        let keys = [(request.op, request.sector), (request.op, request.end_sector())];
        for (map, key) in [&mut self.starts, &mut self.ends].into_iter().zip(keys) {
            // Two requests may begin at one sector; the index knows the later one.
            if map.get(&key) == Some(&id) {
                map.remove(&key);
            }
        }
    }
}

pub(crate) struct State {
    pub elevator: Box<dyn Elevator>,
    shares: BTreeMap<Cgroup, GroupShare>,
    /// What waits in the elevator.
    pub requests: Requests,
    index: MergeIndex,
    /// What goes before the elevator: flushes, and data between flushes.
    pub direct: VecDeque<Box<Request>>,
    pub flush: FlushState,
    /// Draining barriers, with what goes before and after each.
    pub barrier: BarrierState,
    tags: Vec<Tag>,
    free_tags: Vec<u32>,
    pub in_flight: u32,
    /// Requests that count against `nr_requests`: asynchronous, synchronous.
    allocated: [u32; 2],
    /// Of those, how many have ended since the waiters were last woken.
    released: [u32; 2],
    pub nr_requests: u32,
    pub merging: bool,
    number: u64,
    pub timer: Option<(Nanos, TimerId)>,
    pub stats: QueueStats,
    pub trace: Ring,
    /// Empty between two calls of the elevator; kept for its memory.
    pub notes: Vec<ElevatorNote>,
    /// Merges of whole requests that are not in the trace yet.
    pub absorbed: Vec<TraceEvent>,
    /// Names of the tasks in the trace.
    pub names: ProcessNames,
}

impl State {
    pub fn new(elevator: Box<dyn Elevator>, config: &QueueConfig, depth: u32) -> State {
        let depth = depth.min(1 << 16);
        State {
            elevator,
            shares: BTreeMap::new(),
            requests: Requests::default(),
            index: MergeIndex::default(),
            direct: VecDeque::new(),
            flush: FlushState::default(),
            barrier: BarrierState::default(),
            tags: vec![Tag::Free; depth as usize],
            free_tags: (0..depth).rev().collect(),
            in_flight: 0,
            allocated: [0; 2],
            released: [0; 2],
            nr_requests: config.nr_requests.max(1),
            merging: config.merge,
            number: 0,
            timer: None,
            stats: QueueStats::default(),
            trace: Ring::new(config.trace_events),
            notes: Vec::new(),
            absorbed: Vec::new(),
            names: ProcessNames::default(),
        }
    }

    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub fn try_allocate(&mut self, class: usize) -> bool {
        let most = match class {
            0 => self.elevator.async_requests(self.nr_requests),
            _ => self.nr_requests,
        };
        let free = self.allocated[class] < most.saturating_add(self.elevator.held()[class]);
        self.allocated[class] += free as u32;
        free
    }

    /// Allocates where nobody can wait.
    pub fn allocate_beyond(&mut self, class: usize) {
        self.allocated[class] += 1;
    }

    pub fn release(&mut self, request: &Request) {
        if request.allocated {
            let class = request.is_sync() as usize;
            self.allocated[class] -= 1;
            self.released[class] += 1;
        }
    }

    pub fn take_released(&mut self) -> [u32; 2] {
        std::mem::take(&mut self.released)
    }

    /// True where the device takes one more request.
    pub fn has_tag(&self) -> bool {
        !self.free_tags.is_empty()
    }

    pub fn take_tag(&mut self) -> u32 {
        let tag = self.free_tags.pop().expect("the caller has seen a free tag");
        self.tags[tag as usize] = Tag::Submitting;
        self.in_flight += 1;
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.in_flight);
        tag
    }

    /// The submitter of this tag is back from the device.
    pub fn submitted(&mut self, tag: u32) {
        match self.tags[tag as usize] {
            Tag::Submitting => self.tags[tag as usize] = Tag::InDevice,
            Tag::DoneEarly => self.free(tag),
            Tag::Free | Tag::InDevice => unreachable!("a tag is submitted once"),
        }
    }

    /// The request of this tag is done; true where the caller has to go on with the queue.
    pub fn finished(&mut self, tag: u32) -> bool {
        self.in_flight -= 1;
        match self.tags[tag as usize] {
            Tag::Submitting => {
                self.tags[tag as usize] = Tag::DoneEarly;
                false
            }
            Tag::InDevice => {
                self.free(tag);
                true
            }
            Tag::Free | Tag::DoneEarly => unreachable!("a request is completed once"),
        }
    }

    fn free(&mut self, tag: u32) {
        self.tags[tag as usize] = Tag::Free;
        self.free_tags.push(tag);
    }

    /// Nothing waits and the device has nothing.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self.requests.is_empty()
            && self.direct.is_empty()
            && self.flush.is_idle()
            && self.barrier.is_idle()
    }

    /// Something could be given to the device, had it room.
    pub fn has_waiting(&self) -> bool {
        !self.requests.is_empty() || !self.direct.is_empty() || self.barrier.waiting() > 0
    }

    pub fn insert(&mut self, request: Box<Request>, now: Nanos, indexed: bool) {
        let id = self.requests.add(request);
        let request = self.requests.get(id);
        if indexed && self.merging {
            self.index.add(id, request);
        }
        let before = self.elevator.held();
        self.elevator.insert(id, request, now);
        for (class, held) in self.elevator.held().into_iter().enumerate() {
            // What is held back makes room for another one.
            self.released[class] += held - before[class];
        }
    }

    /// The elevator's next request, out of all lists.
    pub fn next_of_elevator(&mut self, now: Nanos, force: bool) -> Option<Box<Request>> {
        if self.requests.is_empty() {
            return None;
        }
        let in_flight = self.in_flight;
        let view = Dispatch { now, in_flight, force, requests: &self.requests };
        let id = self.elevator.dispatch(&view)?;
        let mut request = self.requests.remove(id);
        self.index.remove(id, &request);
        request.by_elevator = true;
        Some(request)
    }

    #[allow(
        clippy::result_large_err,
        reason = "the bio goes back to its owner, not up as an error"
    )]
    /// Lets `bio` join a waiting request and answers on which side and which; gives it back
    /// otherwise.
    pub fn merge(&mut self, bio: Bio, limits: Limits) -> Result<(TraceKind, u64), Bio> {
        if !Request::mergeable(bio.op, bio.flags) {
            return Err(bio);
        }
        if let Some(&id) = self.index.ends.get(&(bio.op, bio.sector))
            && self.may_join(id, &bio, limits)
        {
            self.grow(id, |request| request.push_back(bio));
            self.stats.merges_back += 1;
            let name = self.requests.get(id).id;
            self.close_gap(id, limits);
            return Ok((TraceKind::BackMerge, name));
        }
        if self.elevator.front_merges()
            && let Some(&id) = self.index.starts.get(&(bio.op, bio.end_sector()))
            && self.may_join(id, &bio, limits)
        {
            self.grow(id, |request| request.push_front(bio));
            self.stats.merges_front += 1;
            return Ok((TraceKind::FrontMerge, self.requests.get(id).id));
        }
        Err(bio)
    }

    fn may_join(&self, id: RequestId, bio: &Bio, limits: Limits) -> bool {
        let request = self.requests.get(id);
        request.takes(bio, limits) && self.elevator.allow_merge(id, request, &Newcomer::of(bio))
    }

    /// Lets a request that is not in the elevator yet join a waiting one at its end; gives it back
    /// otherwise.
    pub fn join(&mut self, next: Box<Request>, limits: Limits) -> Option<Box<Request>> {
        let Some(&id) = self.index.ends.get(&(next.op, next.sector)) else { return Some(next) };
        let request = self.requests.get(id);
        if !request.takes_request(&next, limits)
            || !self.elevator.allow_merge(id, request, &Newcomer::of_request(&next))
        {
            return Some(next);
        }
        self.note_absorbed(&next, id);
        self.grow(id, |request| request.absorb(next));
        self.stats.merges_requests += 1;
        self.close_gap(id, limits);
        None
    }

    fn note_absorbed(&mut self, gone: &Request, into: RequestId) {
        let request = self.requests.get(into).id;
        let event = TraceEvent { request, ..TraceEvent::of_request(gone) };
        self.absorbed.push(TraceEvent { kind: TraceKind::BackMerge, ..event });
    }

    fn grow(&mut self, id: RequestId, change: impl FnOnce(&mut Request)) {
        let request = self.requests.get_mut(id);
        self.index.remove(id, request);
        let old_start = request.sector;
        change(request);
        self.index.add(id, request);
        self.elevator.merged(id, request, old_start);
    }

    /// After `id` has grown at its end: takes in the request that begins there.
    fn close_gap(&mut self, id: RequestId, limits: Limits) {
        let request = self.requests.get(id);
        let Some(&next_id) = self.index.starts.get(&(request.op, request.end_sector())) else {
            return;
        };
        let next = self.requests.get(next_id);
        if next_id == id
            || !request.takes_request(next, limits)
            || !self.elevator.allow_merge(id, request, &Newcomer::of_request(next))
        {
            return;
        }
        let next = self.requests.remove(next_id);
        self.index.remove(next_id, &next);
        self.elevator.absorbed(next_id, &next, id);
        self.release(&next);
        self.note_absorbed(&next, id);
        self.grow(id, |request| request.absorb(next));
        self.stats.merges_requests += 1;
    }

    /// What a control group is given, of this elevator and of those after it.
    pub fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.elevator.set_group(cgroup, share);
        self.shares.insert(cgroup, *share);
    }

    pub fn replace_elevator(&mut self, elevator: Box<dyn Elevator>, now: Nanos) {
        self.elevator = elevator;
        for (&cgroup, share) in &self.shares {
            self.elevator.set_group(cgroup, share);
        }
        for id in self.requests.in_order() {
            let request = self.requests.get(id);
            self.index.add(id, request);
            self.elevator.insert(id, request, now);
        }
    }

    /// Sets one of the queue's own tunables; false where it has none of that name.
    pub fn set_tunable(&mut self, name: &str, value: &str) -> Result<bool, TunableError> {
        let number = value.parse::<u32>().ok().filter(|&n| n > 0 || name != "nr_requests");
        let number = number.ok_or_else(|| TunableError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "a whole number, for nr_requests above 0",
        });
        match name {
            "nr_requests" => self.nr_requests = number?,
            "nomerges" => self.merging = number? == 0,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
