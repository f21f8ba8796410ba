//! What the queue and an elevator tell each other beside requests.

use block::elevator::{ElevatorNote, NoteKind};
use block::{BioFlags, TraceEvent, TraceKind};

/// Goal: an event that carries a note gives it back, and reads like blkparse prints messages.
#[test]
fn a_note_reads_like_a_message_of_blkparse() {
    let note = ElevatorNote { kind: NoteKind::IdleArmed, ioc: 7, value: 8_000_000 };
    let event = TraceEvent {
        time: base::Nanos(1_000_000_005),
        kind: TraceKind::Message,
        op: block::Op::Read,
        flags: BioFlags::empty(),
        sector: base::Sector(8_000_000),
        count: NoteKind::IdleArmed as u64,
        ioc: 7,
        ..TraceEvent::blank(base::Nanos::ZERO, TraceKind::Message)
    };
    assert_eq!(event.elevator_note(), Some(note));
    assert_eq!(event.to_string(), "    1.000000005     7  m idle_armed 8000000");
    let other = TraceEvent { kind: TraceKind::Queued, ..event };
    assert_eq!(other.elevator_note(), None);
}
