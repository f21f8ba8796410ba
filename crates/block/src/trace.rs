//! Trace events in the letters of blktrace, in a ring of the last ones, and writers of the formats
//! that the field's tools read.
//!
//! A queue keeps events where `QueueConfig::trace_events` is above 0; [`Queue::take_trace`] takes
//! them out, [`write_all`] writes files of them, [`Summary`] counts. A bio's life is Q, then G (it
//! begins a request) or M or F (it joins one), I (the request is in the elevator), D (in the
//! device), C. P and U stand around what a plug collects; m is what the elevator says.
//!
//! [`Queue::take_trace`]: crate::Queue::take_trace

pub mod blktrace;
mod files;
pub mod iolog;
mod names;
mod pair;
pub mod perfetto;
mod summary;
pub mod text;

pub use files::{Format, write_all};
pub use names::ProcessNames;
pub use pair::{BioLife, Lives, RequestLife};
pub use summary::{OpSummary, Summary};

use crate::elevator::{ElevatorNote, NoteKind};
use crate::{BioFlags, Op, Request};
use base::{Nanos, Sector};
use std::collections::VecDeque;
use std::fmt;

/// What happened. The letters are those of blkparse(1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TraceKind {
    /// A bio came.
    Queued = b'Q',
    /// A request was made for it.
    Get = b'G',
    /// The request was handed to the elevator.
    Inserted = b'I',
    /// The request went to the device.
    Dispatched = b'D',
    /// The device has finished it.
    Completed = b'C',
    /// The bio joined a request at its end.
    BackMerge = b'M',
    /// The bio joined a request at its front.
    FrontMerge = b'F',
    /// A task began to collect requests.
    Plugged = b'P',
    /// A task hands over what it has collected; the count is the number of requests.
    Unplugged = b'U',
    /// A bio was cut.
    Split = b'X',
    /// A task waits for a free request.
    Sleeping = b'S',
    /// The timer of the elevator fired.
    Timer = b'T',
    /// The elevator says what it decided: [`TraceEvent::elevator_note`].
    Message = b'm',
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// When, by the queue's clock.
    pub time: Nanos,
    /// What happened.
    pub kind: TraceKind,
    /// Operation of the bio or request.
    pub op: Op,
    /// Its flags.
    pub flags: BioFlags,
    /// First sector.
    pub sector: Sector,
    /// Number of sectors (for U: of requests).
    pub count: u64,
    /// The I/O context.
    pub ioc: u64,
    /// The task that submitted the bio, or the first bio of the request; 0 is the queue itself.
    pub task: u32,
    /// That task's processor.
    pub cpu: u16,
    /// Name of the request, from 1; of a merge, the request that grew. 0 where there is none.
    pub request: u64,
}

impl TraceEvent {
    /// An event without bio or request.
    pub fn blank(time: Nanos, kind: TraceKind) -> TraceEvent {
        TraceEvent {
            time,
            kind,
            op: Op::Read,
            flags: BioFlags::empty(),
            sector: Sector(0),
            count: 0,
            ioc: 0,
            task: 0,
            cpu: 0,
            request: 0,
        }
    }

    /// An event about a request, of kind G and of the time when the request came.
    pub(crate) fn of_request(request: &Request) -> TraceEvent {
        TraceEvent {
            op: request.op,
            flags: request.flags,
            sector: request.sector,
            count: request.count,
            ioc: request.ioc,
            task: request.issuer.task,
            cpu: request.issuer.cpu,
            request: request.id,
            ..TraceEvent::blank(request.queued, TraceKind::Get)
        }
    }

    /// The event of kind `m` that carries `note`: the kind of note takes the place of the count,
    /// its value that of the sector.
    pub(crate) fn of_note(time: Nanos, note: ElevatorNote) -> TraceEvent {
        TraceEvent {
            sector: Sector(note.value),
            count: note.kind as u64,
            ioc: note.ioc,
            ..TraceEvent::blank(time, TraceKind::Message)
        }
    }

    /// What the elevator said, where this is an event of kind `m`.
    pub fn elevator_note(&self) -> Option<ElevatorNote> {
        let kind = NoteKind::ALL.iter().find(|&&kind| kind as u64 == self.count);
        let note = kind.map(|&kind| ElevatorNote { kind, ioc: self.ioc, value: self.sector.0 });
        note.filter(|_| self.kind == TraceKind::Message)
    }

    /// The letters of operation and flags, in the order of blkparse(1), with B for a barrier and Z
    /// for a write of zeroes.
    pub fn rwbs(&self) -> String {
        let mut rwbs = String::new();
        if self.flags.contains(BioFlags::PREFLUSH) {
            rwbs.push('F');
        }
        rwbs.push(match self.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
            Op::Discard => 'D',
            Op::WriteZeroes => 'Z',
        });
        let letters = [
            (BioFlags::FUA, 'F'),
            (BioFlags::BARRIER, 'B'),
            (BioFlags::RAHEAD, 'A'),
            (BioFlags::SYNC, 'S'),
            (BioFlags::META, 'M'),
        ];
        rwbs.extend(letters.iter().filter(|(flag, _)| self.flags.contains(*flag)).map(|&(_, l)| l));
        rwbs
    }

    /// The event as two numbers for a running hash: kind, operation and context; place and length.
    pub(crate) fn note(&self) -> (u64, u64) {
        let tag = (self.kind as u64) << 56 | (self.op as u64) << 48 | self.ioc & 0xffff_ffff_ffff;
        (tag, self.sector.0 << 20 ^ self.count)
    }
}

impl fmt::Display for TraceEvent {
    /// As blkparse prints it: time in seconds, context, event, operation with flags, place, length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sec, nsec) = (self.time.0 / 1_000_000_000, self.time.0 % 1_000_000_000);
        let rwbs = self.rwbs();
        let kind = self.kind as u8 as char;
        if let Some(note) = self.elevator_note() {
            return write!(f, "{sec:5}.{nsec:09} {:5} {kind:>2} {note}", self.ioc);
        }
        write!(f, "{sec:5}.{nsec:09} {:5} {kind:>2} {rwbs:>4} ", self.ioc)?;
        match self.kind {
            TraceKind::Plugged | TraceKind::Timer => Ok(()),
            TraceKind::Unplugged => write!(f, "{}", self.count),
            _ => write!(f, "{} + {}", self.sector, self.count),
        }
    }
}

/// The last events, up to a fixed number.
#[derive(Default)]
pub(crate) struct Ring {
    capacity: usize,
    events: VecDeque<TraceEvent>,
    lost: u64,
}

impl Ring {
    pub fn new(capacity: usize) -> Ring {
        Ring { capacity, events: VecDeque::new(), lost: 0 }
    }

    pub fn push(&mut self, event: TraceEvent) {
        if self.capacity == 0 {
            return;
        }
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(event);
    }

    /// Takes all events out, with the number of older ones that were overwritten.
    pub fn take(&mut self) -> (Vec<TraceEvent>, u64) {
        (std::mem::take(&mut self.events).into(), std::mem::take(&mut self.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_like_blkparse_and_the_ring_keeps_the_last_ones() {
        let mut ring = Ring::new(2);
        for sector in 1..=3 {
            ring.push(TraceEvent {
                time: Nanos(1_000_000_005),
                kind: TraceKind::Queued,
                op: Op::Write,
                flags: BioFlags::SYNC | BioFlags::META | BioFlags::FUA,
                sector: Sector(sector),
                count: 8,
                ioc: 7,
                ..TraceEvent::blank(Nanos::ZERO, TraceKind::Queued)
            });
        }
        let (events, lost) = ring.take();
        assert_eq!((events.len(), lost), (2, 1));
        assert_eq!(events[1].to_string(), "    1.000000005     7  Q WFSM 3 + 8");
    }
}
