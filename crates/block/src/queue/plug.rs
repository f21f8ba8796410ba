//! The plug: a task collects its bios, so that neighbours merge before the device sees the first.

use super::{Queue, charge_submit};
use crate::request::Request;
use crate::trace::{TraceEvent, TraceKind};
use crate::{Bio, BioFlags};
use rt::Cx;
use smallvec::SmallVec;
use std::sync::Arc;

/// Requests that one plug collects for one queue before they are handed over, as in Linux.
pub const PLUG_REQUESTS: usize = 32;

/// Requests for one queue, with what their collection has saved.
#[derive(Default)]
pub(crate) struct Batch {
    #[allow(clippy::vec_box, reason = "a request stays in its box all the way to its end")]
    pub requests: Vec<Box<Request>>,
    pub bios: u64,
    pub merges_back: u64,
    pub merges_front: u64,
}

/// Bios that a task has collected and not yet handed over.
///
/// Give it to [`Queue::submit_plugged`], and call [`Plug::finish`] before waiting for anything that
/// was submitted through it. A plug that is dropped hands its requests over without regard to
/// `nr_requests`. It may serve several queues.
#[derive(Default)]
pub struct Plug {
    batches: SmallVec<[(Option<Arc<Queue>>, Batch); 1]>,
}

impl Plug {
    /// An empty plug.
    pub fn new() -> Plug {
        Plug::default()
    }

    /// Hands everything over, queue by queue in the order of first use. May park (`nr_requests`).
    pub fn finish(mut self, cx: &mut Cx) {
        self.flush(cx);
    }

    /// Hands over what is collected and stays in use. May park (`nr_requests`).
    pub fn flush(&mut self, cx: &mut Cx) {
        for (queue, batch) in self.batches.drain(..) {
            if let Some(queue) = queue {
                queue.unplug(Some(cx), batch);
            }
        }
    }

    /// True where nothing is collected.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(|(_, batch)| batch.requests.is_empty())
    }

    fn batch(&mut self, queue: &Arc<Queue>) -> &mut Batch {
        let known = |entry: &(Option<Arc<Queue>>, Batch)| {
            entry.0.as_ref().is_some_and(|known| Arc::ptr_eq(known, queue))
        };
        let index = self.batches.iter().position(known).unwrap_or_else(|| {
            self.batches.push((Some(queue.clone()), Batch::default()));
            self.batches.len() - 1
        });
        &mut self.batches[index].1
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        for (queue, batch) in self.batches.drain(..) {
            if let Some(queue) = queue {
                queue.unplug(None, batch);
            }
        }
    }
}

impl Batch {
    #[allow(
        clippy::result_large_err,
        reason = "the bio goes back to its owner, not up as an error"
    )]
    /// Lets `bio` join a collected request; gives it back where none takes it.
    fn merge(&mut self, bio: Bio, queue: &Queue) -> Result<(TraceKind, u64), Bio> {
        let limits = queue.limits();
        for request in self.requests.iter_mut().rev() {
            if request.end_sector() == bio.sector && request.takes(&bio, limits) {
                request.push_back(bio);
                self.merges_back += 1;
                return Ok((TraceKind::BackMerge, request.id));
            }
            if bio.end_sector() == request.sector && request.takes(&bio, limits) {
                request.push_front(bio);
                self.merges_front += 1;
                return Ok((TraceKind::FrontMerge, request.id));
            }
        }
        Err(bio)
    }
}

impl Queue {
    /// Puts a bio into `plug`, where it may join neighbours; hands the plug's requests over when
    /// [`PLUG_REQUESTS`] have come together. Flushes, and writes that need one, go on at once.
    ///
    /// Blocking: may park while `nr_requests` requests exist.
    pub fn submit_plugged(self: &Arc<Self>, cx: &mut Cx, plug: &mut Plug, mut bio: Bio) {
        self.own(cx, &mut bio);
        let Some(bio) = self.admit(bio) else { return };
        charge_submit(cx, &bio);
        if self.goes_past_elevator(&bio) {
            if bio.flags.contains(BioFlags::BARRIER) {
                plug.flush(cx); // What this task has sent before comes before.
            }
            return self.submit_admitted(cx, bio);
        }
        if self.is_too_large(&bio) {
            for part in self.split(bio) {
                self.collect(cx, plug, part);
            }
        } else {
            self.collect(cx, plug, bio);
        }
    }

    fn collect(self: &Arc<Self>, cx: &mut Cx, plug: &mut Plug, bio: Bio) {
        let batch = plug.batch(self);
        batch.bios += 1;
        let event = self.event_of_bio(&bio);
        self.trace_event(event);
        let bio = if self.merges() && Request::mergeable(bio.op, bio.flags) {
            match batch.merge(bio, self) {
                Ok((kind, request)) => {
                    return self.trace_event(TraceEvent { kind, request, ..event });
                }
                Err(bio) => bio,
            }
        } else {
            bio
        };
        let request = Request::new(bio, event.time, 0, self.next_id());
        self.trace_event(TraceEvent { kind: TraceKind::Get, request: request.id, ..event });
        if batch.requests.is_empty() {
            self.trace_event(TraceEvent { kind: TraceKind::Plugged, ..event });
        }
        batch.requests.push(request);
        if batch.requests.len() >= PLUG_REQUESTS {
            let batch = std::mem::take(batch);
            self.unplug(Some(cx), batch);
        }
    }
}
