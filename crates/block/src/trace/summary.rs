//! A trace in numbers: for each operation how long each step took, and how many bios merged.

use super::pair::Lives;
use super::{TraceEvent, TraceKind};
use crate::elevator::NoteKind;
use crate::{LatencyHistogram, Op};
use base::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Counts and times of one operation. Times are per bio, but for `d2c`, which is per request.
#[derive(Clone, Debug, Default)]
pub struct OpSummary {
    /// Bios that were queued.
    pub bios: u64,
    /// Requests that the device finished.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Bios that joined a request, at either side.
    pub merges: u64,
    /// From the arrival of a bio to the end of its request.
    pub q2c: LatencyHistogram,
    /// From the arrival of a bio to the device.
    pub q2d: LatencyHistogram,
    /// In the device.
    pub d2c: LatencyHistogram,
}

/// The numbers of a trace.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// From the first event to the last.
    pub span: Nanos,
    /// By operation.
    pub ops: BTreeMap<Op, OpSummary>,
    /// Whole requests that joined another.
    pub request_merges: u64,
    /// Most requests in the device at once.
    pub depth_max: u64,
    /// Bios without an end in the trace.
    pub unfinished: u64,
    /// How often the elevator said what.
    pub notes: BTreeMap<NoteKind, u64>,
}

impl Summary {
    /// Counts `events`, which are in the order of their times.
    pub fn of(events: &[TraceEvent]) -> Summary {
        let lives = Lives::of(events);
        let mut summary = Summary::default();
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            summary.span = last.time.since(first.time);
        }
        for bio in &lives.bios {
            let op = summary.ops.entry(bio.queued.op).or_default();
            op.bios += 1;
            let request = lives.request_of(bio);
            if let Some(at) = request.and_then(|request| request.dispatched) {
                op.q2d.record(at.since(bio.queued.time));
            }
            match request.and_then(|request| request.completed) {
                Some(at) => op.q2c.record(at.since(bio.queued.time)),
                None => summary.unfinished += 1,
            }
        }
        for request in &lives.requests {
            let op = summary.ops.entry(request.op).or_default();
            if let (Some(from), Some(to)) = (request.dispatched, request.completed) {
                op.requests += 1;
                op.bytes += request.count * 512;
                op.merges += (request.bios.len() as u64).saturating_sub(1);
                op.d2c.record(to.since(from));
            }
        }
        summary.count(events, &lives);
        summary
    }

    fn count(&mut self, events: &[TraceEvent], lives: &Lives) {
        let merges = |kind| matches!(kind, TraceKind::BackMerge | TraceKind::FrontMerge);
        let all = events.iter().filter(|event| merges(event.kind)).count() as u64;
        let made = lives.requests.iter().filter(|request| request.got.is_some()).count() as u64;
        let known = lives.bios.iter().filter(|bio| bio.request.is_some()).count() as u64;
        // Every bio whose request is known began one or joined one.
        self.request_merges = (all + made).saturating_sub(known);
        let mut in_device = BTreeSet::new();
        for event in events {
            match event.kind {
                TraceKind::Dispatched => drop(in_device.insert(event.request)),
                TraceKind::Completed => drop(in_device.remove(&event.request)),
                _ => {}
            }
            self.depth_max = self.depth_max.max(in_device.len() as u64);
            if let Some(note) = event.elevator_note() {
                *self.notes.entry(note.kind).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Summary {
    /// A line for each operation, in microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15} {:>8} {:>8} {:>8} {:>10}  {:>22}  {:>22}  {:>22}",
            "", "bios", "merges", "requests", "KiB", "Q2C mean/p99/max us", "Q2D", "D2C"
        )?;
        for (op, sum) in &self.ops {
            let times = [&sum.q2c, &sum.q2d, &sum.d2c].map(|latency| {
                let us = |span: Nanos| format!("{:.1}", span.0 as f64 / 1000.0);
                let p99 = latency.quantile(0.99);
                format!("{}/{}/{}", us(latency.mean()), us(p99), us(latency.max()))
            });
            let [q2c, q2d, d2c] = times;
            let name = op.to_string();
            let OpSummary { bios, merges, requests, bytes, .. } = sum;
            let kib = bytes / 1024;
            writeln!(
                f,
                "{name:<15} {bios:>8} {merges:>8} {requests:>8} {kib:>10}  {q2c:>22}  {q2d:>22}  \
                 {d2c:>22}"
            )?;
        }
        write!(
            f,
            "{} requests joined another; at most {} were in the device at once",
            { self.request_merges },
            self.depth_max
        )
    }
}
