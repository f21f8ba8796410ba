//! The service trees: busy queues by class and workload, in the order of their keys.

use super::queue::Qid;
use super::tunables::Ticks;
use super::{Cfq, CfqQueue, group::Gid};
use rt::{IoClass, IoPriority};
use std::collections::BTreeMap;

/// The kinds of queues inside a class. Each kind gets its share of the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Workload {
    Async,
    /// Synchronous queues that are not worth idling for one by one.
    SyncNoidle,
    Sync,
}

impl Workload {
    pub const ALL: [Workload; 3] = [Workload::Async, Workload::SyncNoidle, Workload::Sync];

    /// True of the trees of asynchronous queues, by their index.
    pub fn is_async_tree(index: usize) -> bool {
        index < TREES - 1 && index % 3 == Workload::Async as usize
    }

    pub fn of(queue: &CfqQueue) -> Workload {
        match (queue.sync, queue.idle_window) {
            (false, _) => Workload::Async,
            (true, false) => Workload::SyncNoidle,
            (true, true) => Workload::Sync,
        }
    }
}

/// A queue's place in the trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueuePlace {
    pub class: IoClass,
    pub workload: Workload,
    pub key: Ticks,
    /// Equal keys in the order of insertion.
    pub order: u64,
}

/// One tree.
pub(super) type Tree = BTreeMap<(Ticks, u64), Qid>;

/// Number of trees: three each for the real-time and the best-effort class, one for idle.
pub(super) const TREES: usize = 7;

pub(super) fn tree_index(class: IoClass, workload: Workload) -> usize {
    match class {
        IoClass::Idle => TREES - 1,
        class => class as usize * 3 + workload as usize,
    }
}

impl Cfq {
    pub(super) fn tree(&self, group: Gid, class: IoClass, workload: Workload) -> &Tree {
        &self.groups[group].trees[tree_index(class, workload)]
    }

    /// Number of queues in the tree of a busy queue.
    pub(super) fn tree_len_of(&self, q: Qid) -> usize {
        let queue = &self.queues[q];
        let tree = |place: QueuePlace| self.tree(queue.group, place.class, place.workload);
        queue.place.map_or(0, |place| tree(place).len())
    }

    /// Busy queues of a class in a group.
    pub(super) fn busy_in(&self, group: Gid, class: IoClass) -> usize {
        match class {
            IoClass::Idle => self.groups[group].trees[TREES - 1].len(),
            class => Workload::ALL.iter().map(|&kind| self.tree(group, class, kind).len()).sum(),
        }
    }

    /// Busy asynchronous queues of all classes: they are in the root group.
    pub(super) fn busy_async(&self) -> usize {
        [IoClass::RealTime, IoClass::BestEffort]
            .iter()
            .map(|&class| self.tree(Gid::ROOT, class, Workload::Async).len())
            .sum()
    }

    /// Makes a queue busy, or sorts a busy one in again.
    pub(super) fn place(&mut self, q: Qid, front: bool) {
        let group = self.group_of(q);
        let queue = &self.queues[q];
        let (class, workload) = (queue.class(), Workload::of(queue));
        let key = self.key_for(q, group, front);
        let queue = &mut self.queues[q];
        if !front {
            queue.slice.residual = 0;
        }
        let new = (class, workload, key);
        if queue.place.is_some_and(|place| (place.class, place.workload, place.key) == new) {
            return;
        }
        // Before it leaves: a group that keeps its queue keeps its turn.
        self.groups.joined(group);
        self.unplace(q);
        self.order += 1;
        let place = QueuePlace { class, workload, key, order: self.order };
        let queue = &mut self.queues[q];
        queue.place = Some(place);
        self.busy += 1;
        self.busy_sync += queue.sync as u32;
        queue.group = group;
        self.groups[group].trees[tree_index(class, workload)].insert((key, place.order), q);
    }

    /// Takes a queue out of its tree.
    pub(super) fn unplace(&mut self, q: Qid) {
        let queue = &mut self.queues[q];
        if let Some(place) = queue.place.take() {
            self.busy -= 1;
            self.busy_sync -= queue.sync as u32;
            let (group, index) = (queue.group, tree_index(place.class, place.workload));
            self.groups[group].trees[index].remove(&(place.key, place.order));
            self.groups.left(group);
        }
    }

    /// The later the key, the later the queue's turn: queues with less urgent levels are put off by
    /// what their slice is shorter, times the number of others; what was left of the last slice
    /// brings the turn forward.
    fn key_for(&self, q: Qid, group: Gid, front: bool) -> Ticks {
        let queue = &self.queues[q];
        let class = queue.class();
        let tree = self.tree(group, class, Workload::of(queue));
        let own = queue.place.map(|place| (place.key, place.order));
        if class == IoClass::Idle {
            let last = tree.keys().next_back().filter(|&&last| Some(last) != own);
            return last.map_or(self.tick, |last| last.0) + self.tunables.hz() / 5;
        }
        if front {
            let first = tree.keys().next().map_or(self.tick, |first| first.0);
            return first - self.tunables.hz();
        }
        let others = self.groups[group].busy as Ticks
            - (queue.place.is_some() && queue.group == group) as Ticks;
        let best = IoPriority::new(IoClass::BestEffort, 0).expect("level 0 exists");
        let offset =
            others * (self.prio_slice(true, best) - self.prio_slice(queue.sync, queue.prio));
        self.tick + offset - queue.slice.residual
    }
}
