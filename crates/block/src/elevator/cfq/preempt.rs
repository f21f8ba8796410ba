//! When a new request takes the device away from the active queue.

use super::queue::Qid;
use super::tree::Workload;
use super::{CLOSE_SECTORS, Cfq, Ending};
use crate::{BioFlags, Request};
use rt::IoClass;

impl Cfq {
    /// Whether `request`, which has come into `q`, ends the slice of the active queue.
    pub(super) fn preempts(&self, q: Qid, request: &Request) -> bool {
        let Some(active) = self.active else { return false };
        let (new, old) = (&self.queues[q], &self.queues[active]);
        if new.class() == IoClass::Idle {
            return false;
        }
        if old.class() == IoClass::Idle {
            return true;
        }
        if old.class() == IoClass::RealTime && new.class() != IoClass::RealTime {
            return false;
        }
        if request.is_sync() && !old.sync {
            return true;
        }
        if new.group != old.group {
            return false;
        }
        if self.slice_used(active) {
            return true;
        }
        if self.shares_noidle_tree(q, active) {
            return true;
        }
        if new.sync && request.flags.contains(BioFlags::META) && old.meta_waiting == 0 {
            return true;
        }
        if new.class() == IoClass::RealTime && old.class() != IoClass::RealTime {
            return true;
        }
        // While the device idles anyway, a request as close as the one that is waited for may go.
        self.idle_until.is_some() && new.sync && self.is_close(request)
    }

    /// The device is kept idle for the tree of queues that are not worth idling for, and one of
    /// these comes.
    fn shares_noidle_tree(&self, q: Qid, active: Qid) -> bool {
        let new = &self.queues[q];
        self.serving.workload == Workload::SyncNoidle
            && new.place.is_some_and(|place| place.workload == Workload::SyncNoidle)
            && self.tree_len_of(q) == 2
            && self.queues[active].is_empty()
    }

    fn is_close(&self, request: &Request) -> bool {
        self.last_position.0.abs_diff(request.sector.0) <= CLOSE_SECTORS
    }

    /// Takes the device away from the active queue; `q` is served next.
    pub(super) fn preempt(&mut self, q: Qid) {
        if let Some(active) = self.active {
            let kind = |place: super::tree::QueuePlace| (place.class, place.workload);
            let before = self.queues[active].place.map(kind);
            let by = self.queues[q].owner;
            self.expire(active, Ending::Preempted(by), true);
            let after = self.queues[q].place.map(kind);
            if before != after {
                self.serving.until = self.tick - 1; // The other tree is chosen at once.
            }
        }
        self.place(q, true);
    }
}
