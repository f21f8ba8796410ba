//! Processes that work close to each other share a queue, until they no longer do.

use super::queue::Qid;
use super::{CLOSE_SECTORS, Cfq};
use crate::elevator::NoteKind;
use base::Sector;
use rt::IoClass;

impl Cfq {
    /// Keeps the queue's place in the order by position, after its next request or priority
    /// changed.
    pub(super) fn update_near(&mut self, q: Qid) {
        let queue = &mut self.queues[q];
        let level = queue.prio.level();
        let near = queue.next.filter(|_| queue.sync).map(|(sector, _)| (level, sector));
        if near == queue.near {
            return;
        }
        let old = std::mem::replace(&mut queue.near, near);
        if let Some((level, sector)) = old {
            self.positions.remove(&(level, sector, q));
        }
        if let Some((level, sector)) = near {
            self.positions.insert((level, sector, q));
        }
    }

    /// Another synchronous queue of the same level and class that goes on close to where the device
    /// stands, where neither seeks.
    pub(super) fn close_cooperator(&self, q: Qid) -> Option<Qid> {
        let queue = &self.queues[q];
        let alone = self.groups[queue.group].busy == 1;
        if queue.class() == IoClass::Idle || !queue.sync || alone || self.is_seeky(q) {
            return None;
        }
        let (level, head) = (queue.prio.level(), self.last_position);
        let close = self.closest(level, head).filter(|&close| close != q)?;
        let other = &self.queues[close];
        let akin = other.class() == queue.class() && other.group == queue.group;
        (akin && !self.is_seeky(close)).then_some(close)
    }

    fn closest(&self, level: u8, head: Sector) -> Option<Qid> {
        let from = (level, head, Qid(0));
        let ahead = self.positions.range(from..).next();
        let behind = self.positions.range(..from).next_back();
        let near = [ahead, behind].into_iter().flatten();
        near.filter(|place| place.0 == level)
            .map(|&(_, sector, q)| (sector.0.abs_diff(head.0), q))
            .filter(|&(distance, _)| distance <= CLOSE_SECTORS)
            .min()
            .map(|(_, q)| q)
    }

    /// From their next request on, the processes of one queue use the other one: those of the queue
    /// with fewer processes move.
    pub(super) fn plan_merge(&mut self, q: Qid, close: Qid) {
        let mut close = close;
        while let Some(target) = self.queues[close].merge_into {
            close = target;
        }
        if close == q || self.queues[q].refs == 0 || self.queues[close].refs == 0 {
            return;
        }
        let (from, into) = match self.queues[close].refs >= self.queues[q].refs {
            true => (q, close),
            false => (close, q),
        };
        if self.queues[from].merge_into.is_some() {
            return;
        }
        self.queues[from].merge_into = Some(into);
        self.queues[into].merging_in += 1;
        let owner = self.queues[into].owner;
        self.note(NoteKind::Merge, from, owner);
    }

    /// The queue that a process uses from now on; none where it gets a new one.
    pub(super) fn split_or_merge(&mut self, ioc: u64, q: Qid) -> Option<Qid> {
        if self.queues[q].coop && self.queues[q].split {
            if self.queues[q].refs > 1 {
                self.leave(ioc, q);
                self.note(NoteKind::Split, q, ioc);
                return None;
            }
            let queue = &mut self.queues[q];
            (queue.coop, queue.split) = (false, false);
            queue.owner = ioc;
        }
        let Some(into) = self.queues[q].merge_into else { return Some(q) };
        let target = &mut self.queues[into];
        target.coop = true;
        target.refs += 1;
        self.leave(ioc, q);
        if let Some(context) = self.contexts.get_mut(&ioc) {
            context.sync = Some(into);
        }
        Some(into)
    }

    /// A process no longer uses a queue.
    pub(super) fn leave(&mut self, ioc: u64, q: Qid) {
        if let Some(context) = self.contexts.get_mut(&ioc) {
            context.sync = None;
        }
        self.queues[q].refs -= 1;
        self.free_if_unused(q);
    }
}
