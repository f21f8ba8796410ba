//! What the queue writes into the trace.

use super::Queue;
use super::state::State;
use crate::trace::{ProcessNames, TraceEvent, TraceKind};
use crate::{Bio, Request};
use base::{Nanos, Sector};
use rt::Cx;
use std::sync::atomic::Ordering;

impl Queue {
    /// Fills in what the issuer left to the submitting task, and remembers the task's name.
    pub(crate) fn own(&self, cx: &Cx, bio: &mut Bio) {
        bio.own(cx);
        if self.recording {
            let names = &mut self.state.lock_irq().names;
            names.note(bio.issuer.task, || cx.name().to_owned());
        }
    }

    /// A name for one more request.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the trace events out of the ring, oldest first, with the number of lost older ones.
    pub fn take_trace(&self) -> (Vec<TraceEvent>, u64) {
        self.state.lock_irq().trace.take()
    }

    /// Names of the tasks that have submitted something since the queue was made, where the queue
    /// keeps trace events.
    pub fn task_names(&self) -> ProcessNames {
        self.state.lock_irq().names.clone()
    }

    /// Takes what the elevator has to say into the trace.
    pub(crate) fn trace_notes(&self, state: &mut State, time: Nanos) {
        let mut notes = std::mem::take(&mut state.notes);
        state.elevator.take_notes(&mut notes);
        for note in notes.drain(..) {
            self.push_event(state, TraceEvent::of_note(time, note));
        }
        state.notes = notes;
    }

    /// The merges of whole requests that have just happened.
    pub(crate) fn trace_absorbed(&self, state: &mut State, time: Nanos) {
        while let Some(event) = state.absorbed.pop() {
            self.push_event(state, TraceEvent { time, ..event });
        }
    }

    /// An event about a bio as of now, of kind Q and without a request.
    pub(crate) fn event_of_bio(&self, bio: &Bio) -> TraceEvent {
        TraceEvent { time: self.now(), ..event_of_bio(bio) }
    }

    /// Records an event from outside of the queue's lock.
    pub(crate) fn trace_event(&self, event: TraceEvent) {
        if self.tracing {
            self.push_event(&mut self.state.lock_irq(), event);
        }
    }

    /// The cuts of a bio: each event has the place of what was left and the length up to the cut.
    pub(crate) fn trace_split(&self, parts: &[Bio]) {
        if !self.tracing {
            return;
        }
        let mut state = self.state.lock_irq();
        for part in &parts[..parts.len() - 1] {
            let event = TraceEvent { kind: TraceKind::Split, ..self.event_of_bio(part) };
            self.push_event(&mut state, event);
        }
    }

    pub(crate) fn trace_bio(&self, state: &mut State, kind: TraceKind, time: Nanos, bio: &Bio) {
        if self.tracing {
            self.push_event(state, TraceEvent { kind, time, ..event_of_bio(bio) });
        }
    }

    pub(crate) fn trace_request(
        &self,
        state: &mut State,
        kind: TraceKind,
        time: Nanos,
        request: &Request,
    ) {
        self.push_event(state, TraceEvent { kind, time, ..TraceEvent::of_request(request) });
    }

    #[allow(clippy::vec_box, reason = "a request stays in its box all the way to its end")]
    pub(crate) fn trace_unplug(&self, state: &mut State, time: Nanos, batch: &[Box<Request>]) {
        let Some(first) = batch.first().filter(|_| self.tracing) else { return };
        let event = TraceEvent {
            kind: TraceKind::Unplugged,
            time,
            sector: Sector(0),
            count: batch.len() as u64,
            flags: crate::BioFlags::empty(),
            request: 0,
            ..TraceEvent::of_request(first)
        };
        self.push_event(state, event);
    }

    #[inline]
    pub(crate) fn push_event(&self, state: &mut State, event: TraceEvent) {
        if self.tracing {
            let (tag, value) = event.note();
            self.runtime.note(tag, value);
            state.trace.push(event);
        }
    }
}

fn event_of_bio(bio: &Bio) -> TraceEvent {
    TraceEvent {
        op: bio.op,
        flags: bio.flags,
        sector: bio.sector,
        count: bio.sectors,
        ioc: bio.ioc,
        task: bio.issuer.task,
        cpu: bio.issuer.cpu,
        ..TraceEvent::blank(Nanos::ZERO, TraceKind::Queued)
    }
}
