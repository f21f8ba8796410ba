//! Control groups: each has service trees of its own, and time in proportion to its weight.
//!
//! A group is charged for the ticks that its queues had the device, times 2^12 and 500 over its
//! weight; the group with the smallest sum is served next. A group that becomes busy joins behind
//! the last one, and one that has nothing more is forgotten: so a group of one process that waits
//! for its own requests loses its share, unless the device is kept for it ([`Cfq::waits_busy`],
//! `group_idle`).
//!
//! All asynchronous queues are in the root group. Without `group_isolation` so are the queues that
//! are not worth idling for (SYNC_NOIDLE), for as long as they are such.
//!
//! Differences to Linux: groups do not nest; where the root group is the only one, a queue is not
//! kept beyond its slice for the sake of the group's share.

use super::Cfq;
use super::queue::Qid;
use super::select::Serving;
use super::tree::{TREES, Tree, Workload};
use super::tunables::Ticks;
use rt::Cgroup;
use std::collections::BTreeMap;

/// Names a group of one elevator; the root group comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Gid(pub u32);

impl Gid {
    pub const ROOT: Gid = Gid(0);
}

/// Weight of the root group, and of one without a weight of its own.
const ROOT_WEIGHT: u32 = 1000;
const WEIGHT: u32 = 500;
/// A tick of a group of weight 500.
const TICK: u64 = 1 << 12;

/// One group.
pub(super) struct Group {
    weight: u32,
    pub trees: [Tree; TREES],
    /// Queues in its trees.
    pub busy: u32,
    /// Averages of busy queues: other classes, real time.
    pub averages: [Ticks; 2],
    /// Its requests in flight.
    pub in_flight: u32,
    /// What it was charged, while it is busy.
    charged: u64,
    /// Its place among the busy groups.
    place: Option<(u64, u64)>,
    /// What was served when another group got the device, and the time that was left.
    left: Option<(Serving, Ticks)>,
}

impl Group {
    fn new(weight: u32) -> Group {
        Group {
            weight,
            trees: Default::default(),
            busy: 0,
            averages: [0; 2],
            in_flight: 0,
            charged: 0,
            place: None,
            left: None,
        }
    }
}

/// All groups of an elevator.
pub(super) struct Groups {
    all: Vec<Group>,
    by_name: BTreeMap<Cgroup, Gid>,
    /// Busy groups by (charge, order of joining).
    busy: BTreeMap<(u64, u64), Gid>,
    order: u64,
    least: u64,
    /// The group that is served.
    pub serving: Gid,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            all: vec![Group::new(ROOT_WEIGHT)],
            by_name: [(Cgroup::ROOT, Gid::ROOT)].into_iter().collect(),
            busy: BTreeMap::new(),
            order: 0,
            least: 0,
            serving: Gid::ROOT,
        }
    }
}

impl std::ops::Index<Gid> for Groups {
    type Output = Group;
    fn index(&self, id: Gid) -> &Group {
        &self.all[id.0 as usize]
    }
}

impl std::ops::IndexMut<Gid> for Groups {
    fn index_mut(&mut self, id: Gid) -> &mut Group {
        &mut self.all[id.0 as usize]
    }
}

impl Groups {
    /// The group of that name, which exists from now on.
    pub fn named(&mut self, name: Cgroup) -> Gid {
        if name == Cgroup::ROOT {
            return Gid::ROOT;
        }
        let next = Gid(self.all.len() as u32);
        let id = *self.by_name.entry(name).or_insert(next);
        if id == next {
            self.all.push(Group::new(WEIGHT));
        }
        id
    }

    /// Gives a group its weight; without one it has that of everybody.
    pub fn set_weight(&mut self, name: Cgroup, weight: Option<u32>) {
        let id = self.named(name);
        let usual = if id == Gid::ROOT { ROOT_WEIGHT } else { WEIGHT };
        self[id].weight = weight.unwrap_or(usual);
    }

    /// True where there is another group than the root group.
    pub fn any(&self) -> bool {
        self.all.len() > 1
    }

    /// A busy queue, by group, class and workload.
    pub fn first_busy(&self) -> Option<Qid> {
        let mut trees = self.all.iter().flat_map(|group| &group.trees);
        trees.find_map(|tree| tree.values().next().copied())
    }

    /// Nothing waits any more: all are as at the beginning but for their weights.
    pub fn begin_anew(&mut self) {
        let weights: Vec<u32> = self.all.iter().map(|group| group.weight).collect();
        let by_name = std::mem::take(&mut self.by_name);
        let all = weights.into_iter().map(Group::new).collect();
        *self = Groups { all, by_name, ..Groups::default() };
    }

    /// A group has a busy queue more; the first one makes it busy, behind all others.
    pub fn joined(&mut self, id: Gid) {
        self[id].busy += 1;
        if self[id].place.is_some() {
            return;
        }
        let last = self.busy.keys().next_back().map(|&(charged, _)| charged + 1);
        self[id].charged = last.unwrap_or(self.least);
        self[id].left = None;
        self.enter(id);
    }

    /// A group has a busy queue less.
    pub fn left(&mut self, id: Gid) {
        self[id].busy -= 1;
        if self[id].busy == 0
            && let Some(place) = self[id].place.take()
        {
            self.busy.remove(&place);
        }
    }

    fn enter(&mut self, id: Gid) {
        self.order += 1;
        let place = (self[id].charged, self.order);
        self[id].place = Some(place);
        self.busy.insert(place, id);
    }

    /// Charges a busy group for ticks that its queue had the device.
    fn charge(&mut self, id: Gid, ticks: Ticks) {
        let weight = u64::from(self[id].weight.max(1));
        let Some(place) = self[id].place.take() else { return };
        self.busy.remove(&place);
        self[id].charged += ticks.max(0) as u64 * TICK * u64::from(WEIGHT) / weight;
        self.enter(id);
        let first = self.busy.keys().next().map_or(0, |&(charged, _)| charged);
        self.least = self.least.max(first);
    }

    /// The share of a busy group in `time`.
    fn share(&self, id: Gid, time: Ticks) -> Ticks {
        let all: u32 = self.busy.values().map(|&one| self[one].weight).sum();
        if all == 0 || self[id].place.is_none() {
            return time;
        }
        time * Ticks::from(self[id].weight) / Ticks::from(all)
    }
}

impl Cfq {
    /// The time of a round that belongs to a group.
    pub(super) fn group_slice(&self, id: Gid) -> Ticks {
        self.groups.share(id, self.tunables.target_latency())
    }

    /// The group to serve now; what the last one was served with is kept for its next turn.
    pub(super) fn choose_group(&mut self) -> Option<Gid> {
        let (_, &next) = self.groups.busy.first_key_value()?;
        let last = std::mem::replace(&mut self.groups.serving, next);
        if last != next {
            let tick = self.tick;
            let left = self.serving.until - tick;
            self.groups[last].left = (left > 0).then_some((self.serving, left));
            self.serving = match self.groups[next].left.take() {
                Some((serving, left)) => Serving { until: tick + left, ..serving },
                None => Serving { until: tick - 1, ..self.serving },
            };
        }
        Some(next)
    }

    /// The slice of a queue ends: its group pays for it. An asynchronous queue in a group without
    /// synchronous ones pays for its whole slice.
    pub(super) fn charge_group(&mut self, q: Qid) {
        let queue = &self.queues[q];
        let slice = &queue.slice;
        let chosen = self.tick_of(slice.began);
        let used = match slice.started {
            Some(started) if started < self.tick => (self.tick - started).min(slice.length),
            _ => (self.tick - chosen).max(1),
        };
        let group = queue.group;
        let only_async = !queue.sync
            && self.groups[group]
                .trees
                .iter()
                .enumerate()
                .all(|(i, t)| t.is_empty() || Workload::is_async_tree(i));
        let used = if only_async { used.max(slice.length) } else { used };
        self.groups.charge(group, used);
    }

    /// The group that a queue belongs to now.
    pub(super) fn group_of(&self, q: Qid) -> Gid {
        let queue = &self.queues[q];
        let noidle = Workload::of(queue) == Workload::SyncNoidle;
        match noidle && !self.tunables.group_isolation {
            true => Gid::ROOT,
            false => queue.home,
        }
    }

    /// Whether a queue whose slice ends is kept until its next request is there: it is the only one
    /// of its group, which would lose its place.
    pub(super) fn waits_busy(&self, q: Qid) -> bool {
        let queue = &self.queues[q];
        if !self.groups.any() || !queue.is_empty() || self.groups[queue.group].busy > 1 {
            return false;
        }
        if self.slice_used(q) {
            return true;
        }
        let rest = queue.slice.end - self.tick;
        let context = self.active_ioc.and_then(|ioc| self.contexts.get(&ioc));
        let thinks = context.is_some_and(|one| one.think.is_valid() && rest < one.think.mean);
        thinks || rest == 1
    }

    /// The active queue has nothing, but its group, of which it is the only queue, has requests in
    /// flight that its next one may wait for.
    pub(super) fn group_idles(&self, q: Qid) -> bool {
        let group = &self.groups[self.queues[q].group];
        self.tunables.group_idle() > 0 && group.busy == 1 && group.in_flight > 0
    }
}
