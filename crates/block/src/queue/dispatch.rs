//! Dispatch: from the queue to the device.

use super::state::State;
use super::{Flight, Queue};
use crate::device::{DeviceIo, Owner};
use crate::trace::{TraceEvent, TraceKind};
use crate::{BioFlags, Request};
use base::Nanos;
use rt::SpinGuard;
use std::sync::Arc;

impl Queue {
    /// Sends to the device what it takes, and lets go of the lock. Requests that complete inside
    /// the device's `submit` come back to this loop, not to another one.
    pub(crate) fn run<'a>(self: &'a Arc<Self>, mut state: SpinGuard<'a, State>, mut now: Nanos) {
        let mut next = self.pick(&mut state, now);
        while let Some((mut io, tag)) = next {
            let ahead = self.pick(&mut state, now);
            io.more = ahead.is_some();
            drop(state);
            self.device.submit(io);
            state = self.state.lock_irq();
            state.submitted(tag);
            next = match ahead {
                Some(ahead) => Some(ahead),
                None if state.has_waiting() => {
                    now = self.now();
                    self.pick(&mut state, now)
                }
                None => None,
            };
        }
        self.arm_timer(&mut state);
        let released = state.take_released();
        drop(state);
        self.wake(released);
    }

    /// Wakes the tasks that wait for a free request: some are free.
    pub(crate) fn wake(&self, released: [u32; 2]) {
        for (queue, count) in self.throttle.iter().zip(released) {
            (0..count).for_each(|_| queue.wake_one());
        }
    }

    /// The next request with a tag, where there is one and the device takes it.
    fn pick(self: &Arc<Self>, state: &mut State, now: Nanos) -> Option<(DeviceIo, u32)> {
        if !state.has_tag() {
            return None;
        }
        let mut request = match self.next_around_barriers(state, now) {
            Some(request) => request,
            None if state.barrier.holds() => return None,
            None => {
                let next = state.next_of_elevator(now, false);
                self.trace_notes(state, now);
                next?
            }
        };
        let tag = state.take_tag();
        self.trace_request(state, TraceKind::Dispatched, now, &request);
        let segs = request.take_segments();
        let Request { op, sector, count, flags, ioc, .. } = *request;
        let owner = Owner::Queue(Flight { queue: self.clone(), request, tag });
        let flags = flags - BioFlags::BARRIER; // The queue's business, done.
        let mut io = DeviceIo::with_owner(op, sector, count, segs, flags, owner);
        io.ioc = ioc;
        Some((io, tag))
    }

    /// Keeps one event for the time that the elevator wants to be called at.
    pub(super) fn arm_timer(self: &Arc<Self>, state: &mut State) {
        let wanted = state.elevator.next_timer();
        if wanted == state.timer.map(|(when, _)| when) {
            return;
        }
        if let Some((_, id)) = state.timer.take() {
            self.runtime.cancel(id);
        }
        if let Some(when) = wanted {
            let queue = Arc::downgrade(self);
            let id = self.runtime.at(
                when,
                Box::new(move |now| {
                    if let Some(queue) = queue.upgrade() {
                        queue.timer_fired(when, now);
                    }
                }),
            );
            state.timer = Some((when, id));
        }
    }

    fn timer_fired(self: &Arc<Self>, when: Nanos, now: Nanos) {
        let mut state = self.state.lock_irq();
        if state.timer.is_none_or(|(armed, _)| armed != when) {
            return; // Cancelled while it was on its way.
        }
        state.timer = None;
        self.push_event(&mut state, TraceEvent::blank(now, TraceKind::Timer));
        state.elevator.timer(now);
        self.trace_notes(&mut state, now);
        self.run(state, now);
    }
}
