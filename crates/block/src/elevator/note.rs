//! Notes about the decisions of an elevator, for the trace.

use std::fmt;

/// A decision of an elevator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElevatorNote {
    /// What was decided.
    pub kind: NoteKind,
    /// The I/O context whose queue it is about; 0 for a queue that is shared.
    pub ioc: u64,
    /// A number, see [`NoteKind`].
    pub value: u64,
}

/// Kinds of decisions. The value of a note is in brackets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum NoteKind {
    /// The device is kept idle for the queue's next request (until when, ns).
    IdleArmed = 1,
    /// Nothing came: the device goes on with others (how long it idled, ns).
    IdleFired,
    /// The request came for which the device was kept idle (how long it idled, ns).
    IdleSatisfied,
    /// The idling ended for another reason: preemption, exit, drain (how long it idled, ns).
    IdleCancelled,
    /// The queue has the device (its class: 0 real time, 1 best effort, 2 idle; plus 10 times the
    /// workload: 0 asynchronous, 1 synchronous without idling, 2 synchronous).
    SliceBegin,
    /// The queue gives the device up because its time is used up (how long it had it, ns).
    SliceUsedUp,
    /// The queue gives the device up because it has nothing more to do (how long it had it, ns).
    SliceGivenUp,
    /// Another queue takes the device away (context of that queue).
    Preempted,
    /// Everything must go out: a drain ends the slice (how long it lasted, ns).
    SliceDrained,
    /// The owner waits for another context, whose synchronous requests are now issued in this
    /// queue (that context).
    YieldBegin,
    /// That is over (that context).
    YieldEnd,
    /// A yield had no effect (the other context).
    YieldRefused,
    /// A request of another context was issued in this queue (that context).
    YieldRequest,
    /// The queue is to be merged with one that works close to it (context of that queue).
    Merge,
    /// A queue that several contexts share is split again (context that gets its own).
    Split,
    /// A request of another queue is given out although this one has the device (that context).
    Injected,
    /// The context woke this one up three times: its requests are injected from now on (that
    /// context).
    WakerFound,
    /// A request had waited too long and goes first (how long it waited, ns).
    Expired,
}

impl NoteKind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [NoteKind; 18] = [
        NoteKind::IdleArmed,
        NoteKind::IdleFired,
        NoteKind::IdleSatisfied,
        NoteKind::IdleCancelled,
        NoteKind::SliceBegin,
        NoteKind::SliceUsedUp,
        NoteKind::SliceGivenUp,
        NoteKind::Preempted,
        NoteKind::SliceDrained,
        NoteKind::YieldBegin,
        NoteKind::YieldEnd,
        NoteKind::YieldRefused,
        NoteKind::YieldRequest,
        NoteKind::Merge,
        NoteKind::Split,
        NoteKind::Injected,
        NoteKind::WakerFound,
        NoteKind::Expired,
    ];

    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            NoteKind::IdleArmed => "idle_armed",
            NoteKind::IdleFired => "idle_fired",
            NoteKind::IdleSatisfied => "idle_satisfied",
            NoteKind::IdleCancelled => "idle_cancelled",
            NoteKind::SliceBegin => "slice_begin",
            NoteKind::SliceUsedUp => "slice_used_up",
            NoteKind::SliceGivenUp => "slice_given_up",
            NoteKind::Preempted => "preempted",
            NoteKind::SliceDrained => "slice_drained",
            NoteKind::YieldBegin => "yield_begin",
            NoteKind::YieldEnd => "yield_end",
            NoteKind::YieldRefused => "yield_refused",
            NoteKind::YieldRequest => "yield_request",
            NoteKind::Merge => "merge",
            NoteKind::Split => "split",
            NoteKind::Injected => "injected",
            NoteKind::WakerFound => "waker_found",
            NoteKind::Expired => "expired",
        }
    }
}

impl fmt::Display for ElevatorNote {
    /// `idle_armed 8000000`: the kind and the value. The context stands elsewhere in a trace line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kinds_is_complete_and_in_order() {
        for (index, kind) in NoteKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index + 1, "{}", kind.name());
        }
        let names: std::collections::BTreeSet<_> = NoteKind::ALL.map(NoteKind::name).into();
        assert_eq!(names.len(), NoteKind::ALL.len());
    }
}
