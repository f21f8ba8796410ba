//! Trace events in the letters of blktrace, in a ring of the last ones.

use crate::{BioFlags, Op};
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
}

impl TraceEvent {
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
            (BioFlags::RAHEAD, 'A'),
            (BioFlags::SYNC, 'S'),
            (BioFlags::META, 'M'),
        ];
        rwbs.extend(letters.iter().filter(|(flag, _)| self.flags.contains(*flag)).map(|&(_, l)| l));
        let kind = self.kind as u8 as char;
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
            });
        }
        let (events, lost) = ring.take();
        assert_eq!((events.len(), lost), (2, 1));
        assert_eq!(events[1].to_string(), "    1.000000005     7  Q WFSM 3 + 8");
    }
}
