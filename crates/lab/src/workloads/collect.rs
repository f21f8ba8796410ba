//! From the events of the block layer to counts, idle times, series and pictures.
//!
//! Events are drained from the queue's ring while the run goes on, so that a run of any length
//! needs little memory.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use block::elevator::NoteKind;
use block::{BioFlags, Op, TraceEvent, TraceKind};

use crate::record::{Detail, IdleCause, Series, Shown};

/// Requests that a time line shows at the most.
const SHOWN_MAX: usize = 240;
/// Span of a time line at the most.
const SHOWN_SPAN: Nanos = Nanos::from_millis(400);
/// Step of a series.
const STEP: Nanos = Nanos::from_millis(100);

/// By what a request is known while it waits or is in the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey {
    write: bool,
    /// Its first sector.
    sector: u64,
}

/// A request that waits or is in the device.
#[derive(Clone, Copy)]
struct Request {
    queued: Nanos,
    dispatched: Nanos,
}

/// From one time to a later one; zero where it is not later.
fn span(from: Nanos, to: Nanos) -> Nanos {
    Nanos(to.0.saturating_sub(from.0))
}

/// What the events of one run add up to.
pub struct Collector {
    start: Nanos,
    end: Nanos,
    detail: bool,
    /// In the elevator: sectors and arrival.
    waiting: BTreeMap<RequestKey, (u64, Nanos)>,
    in_device: BTreeMap<RequestKey, Request>,
    flushing: u32,
    /// Since when, and for whom, the elevator idles.
    idling: Option<(Nanos, u64)>,
    last: Nanos,
    idle_ns: BTreeMap<IdleCause, u64>,
    notes: BTreeMap<&'static str, u64>,
    wait_max: Nanos,
    shown: Vec<Shown>,
    idles: Vec<(u64, u64, u64)>,
    read_bytes: Vec<u64>,
    write_bytes: Vec<u64>,
    iocs: BTreeSet<u64>,
    lost: u64,
}

impl Collector {
    /// A collector of what happens from `start` to `end`; `detail` keeps what pictures need.
    pub fn new(start: Nanos, end: Nanos, detail: bool) -> Collector {
        Collector {
            start,
            end,
            detail,
            waiting: BTreeMap::new(),
            in_device: BTreeMap::new(),
            flushing: 0,
            idling: None,
            last: start,
            idle_ns: BTreeMap::new(),
            notes: BTreeMap::new(),
            wait_max: Nanos::ZERO,
            shown: Vec::new(),
            idles: Vec::new(),
            read_bytes: Vec::new(),
            write_bytes: Vec::new(),
            iocs: BTreeSet::new(),
            lost: 0,
        }
    }

    /// Takes events in, in their order; `lost` older ones were overwritten in the ring.
    pub fn take(&mut self, events: &[TraceEvent], lost: u64) {
        self.lost += lost;
        events.iter().for_each(|event| self.event(event));
    }

    fn event(&mut self, event: &TraceEvent) {
        if event.time < self.start || event.time > self.end {
            return;
        }
        self.pass(event.time);
        let key = RequestKey { write: event.op != Op::Read, sector: event.sector.0 };
        match event.kind {
            TraceKind::Inserted if event.op != Op::Flush => {
                self.waiting.insert(key, (event.count, event.time));
            }
            TraceKind::Dispatched if event.op == Op::Flush => self.flushing += 1,
            TraceKind::Completed if event.op == Op::Flush => {
                self.flushing = self.flushing.saturating_sub(1);
            }
            TraceKind::Dispatched => self.dispatched(event, key),
            TraceKind::Completed => self.completed(event, key),
            TraceKind::Message => self.note(event),
            _ => {}
        }
    }

    /// Time goes on to `now`: an idle device gets it on its account.
    fn pass(&mut self, now: Nanos) {
        let idle = span(self.last, now).0;
        self.last = now;
        if idle == 0 || !self.in_device.is_empty() || self.flushing > 0 {
            return;
        }
        let cause = match (self.idling.is_some(), self.waiting.is_empty()) {
            (true, false) => IdleCause::IdlingOthersWait,
            (true, true) => IdleCause::IdlingNothingWaits,
            (false, false) => IdleCause::HeldOtherwise,
            (false, true) => IdleCause::NothingQueued,
        };
        *self.idle_ns.entry(cause).or_default() += idle;
    }

    fn dispatched(&mut self, event: &TraceEvent, key: RequestKey) {
        // Requests that were joined into this one came under sectors of their own.
        let end = RequestKey { sector: key.sector + event.count.max(1), ..key };
        let joined: Vec<RequestKey> = self.waiting.range(key..end).map(|(key, _)| *key).collect();
        let arrivals = joined.iter().filter_map(|key| self.waiting.remove(key));
        let queued = arrivals.map(|(_, queued)| queued).min().unwrap_or(event.time);
        let wait = span(queued, event.time);
        self.wait_max = self.wait_max.max(wait);
        self.in_device.insert(key, Request { queued, dispatched: event.time });
    }

    fn completed(&mut self, event: &TraceEvent, key: RequestKey) {
        let Some(request) = self.in_device.remove(&key) else { return };
        self.iocs.insert(event.ioc);
        if !self.detail {
            return;
        }
        let bytes = if key.write { &mut self.write_bytes } else { &mut self.read_bytes };
        let step = ((event.time - self.start).0 / STEP.0) as usize;
        if bytes.len() <= step {
            bytes.resize(step + 1, 0);
        }
        bytes[step] += event.count * 512;
        if self.shows(request.dispatched) && self.shown.len() < SHOWN_MAX {
            let since = |time: Nanos| span(self.start, time).0;
            self.shown.push(Shown {
                queued: since(request.queued),
                dispatched: since(request.dispatched),
                completed: since(event.time),
                sector: event.sector.0,
                count: event.count,
                ioc: event.ioc,
                write: key.write,
                sync: event.flags.contains(BioFlags::SYNC) || !key.write,
            });
        }
    }

    /// The time line begins at a third of the run.
    fn shows(&self, time: Nanos) -> bool {
        let from = self.start + Nanos(span(self.start, self.end).0 / 3);
        self.detail && time >= from && time < from + SHOWN_SPAN
    }

    fn note(&mut self, event: &TraceEvent) {
        let Some(note) = event.elevator_note() else { return };
        *self.notes.entry(note.kind.name()).or_default() += 1;
        match note.kind {
            NoteKind::IdleArmed => self.idling = Some((event.time, note.ioc)),
            NoteKind::IdleFired | NoteKind::IdleSatisfied | NoteKind::IdleCancelled => {
                if let Some((from, ioc)) = self.idling.take()
                    && self.shows(from)
                    && self.idles.len() < SHOWN_MAX
                {
                    let since = |time: Nanos| span(self.start, time).0;
                    self.idles.push((since(from), since(event.time), ioc));
                }
            }
            _ => {}
        }
    }

    /// Ends the run, and returns what was found; `name` names an I/O context.
    pub fn finish(mut self, end: Nanos, name: impl Fn(u64) -> String) -> Collected {
        self.end = end;
        self.pass(end);
        // What still waits has waited too.
        for (_, queued) in self.waiting.values() {
            self.wait_max = self.wait_max.max(span(*queued, end));
        }
        let detail = self.detail.then(|| self.picture(&name));
        Collected {
            idle_ns: self.idle_ns,
            notes: self.notes,
            wait_max: self.wait_max,
            lost: self.lost,
            detail,
        }
    }

    fn picture(&mut self, name: impl Fn(u64) -> String) -> Detail {
        let mut timeline = std::mem::take(&mut self.shown);
        timeline.sort_by_key(|shown| (shown.dispatched, shown.sector));
        let last = timeline.last().map_or(0, |shown| shown.dispatched);
        let full = timeline.len() == SHOWN_MAX;
        self.idles.retain(|idle| !full || idle.0 <= last);
        let mb = |bytes: &Vec<u64>| {
            bytes.iter().map(|&b| b as f64 / 1e6 / STEP.as_secs_f64()).collect::<Vec<_>>()
        };
        let series = [
            ("reads of the device", &self.read_bytes),
            ("writes of the device", &self.write_bytes),
        ];
        let series = series.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let series = series.map(|(name, bytes)| Series {
            name: name.to_owned(),
            unit: "MB/s".to_owned(),
            step_ns: STEP.0,
            values: mb(bytes),
        });
        let owners = self.idles.iter().map(|idle| idle.2);
        let iocs: BTreeSet<u64> = timeline.iter().map(|shown| shown.ioc).chain(owners).collect();
        Detail {
            tasks: iocs.into_iter().map(|ioc| (ioc, name(ioc))).collect(),
            timeline,
            idles: std::mem::take(&mut self.idles),
            series: series.collect(),
            latencies: Vec::new(),
        }
    }
}

/// What the events add up to.
pub struct Collected {
    /// Idle time of the device by cause.
    pub idle_ns: BTreeMap<IdleCause, u64>,
    /// Notes of the elevator, counted by kind.
    pub notes: BTreeMap<&'static str, u64>,
    /// The longest time from arrival to dispatch.
    pub wait_max: Nanos,
    /// Events that were lost.
    pub lost: u64,
    /// What pictures need.
    pub detail: Option<Detail>,
}
