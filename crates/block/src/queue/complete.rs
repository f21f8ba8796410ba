//! Completion: from the device back to the tasks that submitted bios.

use super::flush::Waiter;
use super::{Flight, Queue};
use crate::request::Request;
use crate::trace::TraceKind;
use crate::{BioFlags, DeviceError, Op, Segments};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// A request whose bios end now.
pub(crate) struct Outcome {
    pub request: Box<Request>,
    pub segs: Segments,
    pub result: Result<(), DeviceError>,
}

pub(crate) type Ended = SmallVec<[Outcome; 1]>;

impl Flight {
    /// The device has finished the request. Any context; may be inside the device's `submit`.
    pub(crate) fn complete(self, segs: Segments, result: Result<(), DeviceError>) {
        let Flight { queue, request, tag } = self;
        let now = queue.now();
        let mut ended = Ended::new();
        let mut state = queue.state.lock_irq();
        let goes_on = state.finished(tag);
        queue.trace_request(&mut state, TraceKind::Completed, now, &request);
        let latency = now.since(request.queued);
        state.stats.finished(request.op, request.bytes(), latency, result.is_err());
        state.stats.fua += request.flags.contains(BioFlags::FUA) as u64;
        if request.by_elevator {
            state.elevator.completed(&request, now);
            queue.trace_notes(&mut state, now);
        }
        if request.op == Op::Flush {
            queue.flush_done(&mut state, result, now, &mut ended);
        } else if request.post_flush && result.is_ok() {
            queue.wait_for_flush(&mut state, Waiter::After(request, segs), now);
        } else {
            ended.push(Outcome { request, segs, result });
        }
        for Outcome { request, .. } in &ended {
            state.release(request);
            state.barrier.ended(request);
        }
        // A drain must not be over before the last end has been called.
        let count = ended.len() as u32;
        queue.ending.fetch_add(count, Ordering::Relaxed);
        if goes_on && state.has_waiting() {
            queue.run(state, now);
        } else {
            if goes_on {
                queue.arm_timer(&mut state);
            }
            let released = state.take_released();
            drop(state);
            queue.wake(released);
        }
        queue.end(ended, count);
    }
}

impl Queue {
    fn end(&self, ended: Ended, count: u32) {
        for outcome in ended {
            outcome.request.end(outcome.segs, &outcome.result);
        }
        if self.ending.fetch_sub(count, Ordering::Release) == count {
            self.idle.wake_all();
        }
    }
}
