//! Flushes: PREFLUSH and FUA as steps of plain flushes and writes, and flushes that are shared.
//!
//! A write with PREFLUSH waits for a flush, then goes to the device. A write with FUA on a device
//! without FUA is followed by a flush before it ends. One flush runs at a time; all who ask while
//! it runs share the next one, because only a flush that *begins* after their writes completed
//! covers them. Flushes and the data between them go past the elevator, as in Linux
//! (Documentation/block/writeback_cache_control.rst; the scheme of blk-flush by Tejun Heo, 2011).

use super::Queue;
use super::complete::{Ended, Outcome};
use super::state::State;
use crate::request::Request;
use crate::trace::TraceKind;
use crate::{Bio, BioFlags, DeviceError, Op, Segments};
use base::Nanos;

/// Who waits for a flush.
pub(crate) enum Waiter {
    /// Its data goes to the device afterwards.
    Before(Box<Request>),
    /// It ends afterwards: data written, here are its pages; or it is a flush itself.
    After(Box<Request>, Segments),
}

/// The flush that runs and the one that comes next.
#[derive(Default)]
pub(crate) struct FlushState {
    pending: Vec<Waiter>,
    running: Vec<Waiter>,
    active: bool,
}

impl FlushState {
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.active
    }
}

impl Queue {
    /// True where the device cannot do what `bio` asks for in one step.
    pub(crate) fn needs_sequence(&self, bio: &Bio) -> bool {
        self.info.volatile_cache
            && (bio.flags.contains(BioFlags::PREFLUSH)
                || bio.flags.contains(BioFlags::FUA) && !self.info.fua)
    }

    /// Begins the steps of a flush or of a write that needs one.
    pub(crate) fn start_sequence(&self, state: &mut State, bio: Bio, now: Nanos) {
        let number = state.next_number();
        let mut request = Request::new(bio, now, number, self.next_id());
        self.trace_request(state, TraceKind::Get, now, &request);
        let before = request.flags.contains(BioFlags::PREFLUSH);
        request.post_flush = request.flags.contains(BioFlags::FUA) && !self.info.fua;
        request.flags.remove(BioFlags::PREFLUSH);
        if request.post_flush {
            request.flags.remove(BioFlags::FUA);
        }
        if request.op == Op::Flush {
            self.wait_for_flush(state, Waiter::After(request, Segments::new()), now);
        } else if before {
            self.wait_for_flush(state, Waiter::Before(request), now);
        } else {
            state.direct.push_back(request);
        }
    }

    pub(crate) fn wait_for_flush(&self, state: &mut State, waiter: Waiter, now: Nanos) {
        state.flush.pending.push(waiter);
        self.issue_flush(state, now);
    }

    fn issue_flush(&self, state: &mut State, now: Nanos) {
        if state.flush.active || state.flush.pending.is_empty() {
            return;
        }
        state.flush.active = true;
        state.flush.running = std::mem::take(&mut state.flush.pending);
        state.stats.flushes_shared += state.flush.running.len() as u64 - 1;
        let number = state.next_number();
        state.direct.push_back(Request::flush(now, number, self.next_id()));
    }

    /// The running flush is done: its waiters go on or end; the next flush begins.
    pub(crate) fn flush_done(
        &self,
        state: &mut State,
        result: Result<(), DeviceError>,
        now: Nanos,
        ended: &mut Ended,
    ) {
        state.flush.active = false;
        for waiter in std::mem::take(&mut state.flush.running) {
            match (waiter, &result) {
                (Waiter::Before(request), Ok(())) => state.direct.push_back(request),
                (Waiter::Before(mut request), Err(_)) => {
                    self.trace_request(state, TraceKind::Completed, now, &request);
                    let segs = request.take_segments();
                    ended.push(Outcome { request, segs, result: result.clone() });
                }
                (Waiter::After(request, segs), _) => {
                    if request.op == Op::Flush {
                        // The device has seen the queue's own flush only.
                        self.trace_request(state, TraceKind::Completed, now, &request);
                    }
                    ended.push(Outcome { request, segs, result: result.clone() });
                }
            }
        }
        self.issue_flush(state, now);
    }
}
