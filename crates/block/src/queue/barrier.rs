//! Draining barriers: everything before completes, the barrier runs alone, then the rest.
//!
//! A barrier that comes has the elevator give out all that it holds, whatever its policy says; that
//! and the barrier itself wait in one list in front of the elevator. Later bios go on into the
//! elevator, which is not asked while the list holds anything. So a barrier takes away what the
//! elevator had in mind for the tasks: the list is first come, first served. Source: Linux 2.6.36,
//! Documentation/block/barrier.txt (ordering by draining).

use super::Queue;
use super::state::State;
use crate::request::Request;
use crate::{Bio, BioFlags, Op};
use base::Nanos;
use std::collections::VecDeque;

/// What waits in front of the elevator because of a barrier.
enum Entry {
    /// The elevator had to give it out before a barrier.
    Before(Box<Request>),
    /// The barrier; with the steps that its flags ask for, once it is its turn.
    Barrier(Bio),
    /// A flush, or a write that needs one, that came after a barrier.
    Sequence(Bio),
}

/// The barrier that runs, and those that wait with what is before them.
#[derive(Default)]
pub(crate) struct BarrierState {
    list: VecDeque<Entry>,
    active: bool,
}

impl BarrierState {
    /// Nothing waits and no barrier runs.
    pub fn is_idle(&self) -> bool {
        self.list.is_empty() && !self.active
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.list.len()
    }

    /// The elevator must not be asked now.
    pub fn holds(&self) -> bool {
        !self.is_idle()
    }

    /// The bios of a request end: the barrier is over if it was it.
    pub fn ended(&mut self, request: &Request) {
        if request.flags.contains(BioFlags::BARRIER) {
            self.active = false;
        }
    }
}

impl Queue {
    /// True where `bio` is a flush, needs one, or is a barrier.
    pub(crate) fn goes_past_elevator(&self, bio: &Bio) -> bool {
        bio.op == Op::Flush || bio.flags.contains(BioFlags::BARRIER) || self.needs_sequence(bio)
    }

    /// Takes a bio that goes past the elevator: at once, or in its turn where a barrier waits.
    pub(crate) fn start_special(&self, state: &mut State, bio: Bio, now: Nanos) {
        if bio.flags.contains(BioFlags::BARRIER) {
            drain_elevator(state, now);
            self.trace_notes(state, now);
            state.barrier.list.push_back(Entry::Barrier(bio));
        } else if state.barrier.holds() {
            state.barrier.list.push_back(Entry::Sequence(bio));
        } else {
            self.start_sequence(state, bio, now);
        }
    }

    /// The next request that does not come from the elevator.
    pub(crate) fn next_around_barriers(
        &self,
        state: &mut State,
        now: Nanos,
    ) -> Option<Box<Request>> {
        loop {
            if let Some(request) = state.direct.pop_front() {
                return Some(request);
            }
            if state.barrier.active {
                return None;
            }
            let drained = state.in_flight == 0 && state.flush.is_idle();
            match state.barrier.list.pop_front()? {
                Entry::Before(request) => return Some(request),
                Entry::Sequence(bio) => self.start_sequence(state, bio, now),
                Entry::Barrier(bio) if drained => {
                    state.barrier.active = true;
                    state.stats.barriers += 1;
                    self.start_sequence(state, bio, now);
                }
                barrier => {
                    state.barrier.list.push_front(barrier);
                    return None;
                }
            }
        }
    }
}

/// Has the elevator give out everything, and puts it into the list in the order of the sectors.
fn drain_elevator(state: &mut State, now: Nanos) {
    let mut before = Vec::new();
    while let Some(request) = state.next_of_elevator(now, true) {
        before.push(request);
    }
    before.sort_by_key(|request| (request.sector, request.number));
    state.barrier.list.extend(before.into_iter().map(Entry::Before));
}
