//! Control groups: each is served like one queue among those of the root group, and its queues
//! share what it gets by virtual times of their own.

use super::Bfq;
use super::fair::SCALE;
use super::queue::Qid;
use base::Nanos;
use rt::{Cgroup, IoClass};
use std::collections::BTreeMap;

/// `io.bfq.weight` of a group that nobody gave one.
const WEIGHT: u64 = 100;

/// What stands for a group among the queues of the root group.
pub(super) struct Group {
    weight: u64,
    start: u64,
    finish: u64,
    /// The virtual time among its own queues.
    time: u64,
    /// Queues of it that have something to do.
    busy: u32,
    /// When it had nothing more to do.
    left: Option<Nanos>,
}

impl Default for Group {
    fn default() -> Group {
        Group { weight: WEIGHT, start: 0, finish: 0, time: 0, busy: 0, left: None }
    }
}

/// All groups but the root group.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<Cgroup, Group>);

impl Groups {
    /// Gives a group its weight. The root group needs none: its queues stand for themselves.
    pub fn set_weight(&mut self, cgroup: Cgroup, weight: Option<u32>) {
        self.named(cgroup).weight = weight.map_or(WEIGHT, u64::from).max(1);
    }

    fn named(&mut self, cgroup: Cgroup) -> &mut Group {
        self.0.entry(cgroup).or_default()
    }

    /// True where a group has something to do: weights differ then, or may.
    pub fn any_busy(&self) -> bool {
        self.0.values().any(|group| group.busy > 0)
    }
}

/// Who may be served next: a queue of the root group, or a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entity {
    Queue(Qid),
    Group(Cgroup),
}

impl Bfq {
    /// The virtual time that a queue of that group lives by.
    pub(super) fn time_of(&self, cgroup: Cgroup) -> u64 {
        match self.groups.0.get(&cgroup) {
            Some(group) if cgroup != Cgroup::ROOT => group.time,
            _ => self.virtual_time,
        }
    }

    /// The virtual time goes on by so many sectors, among the queues of a group and among the
    /// groups.
    pub(super) fn advance(&mut self, cgroup: Cgroup, sectors: u64) {
        let weights = |of: Cgroup| -> u64 {
            let queues = self.busy.iter().filter(|q| self.queues[**q].cgroup == of);
            queues.map(|&q| self.queues[q].weight()).sum()
        };
        let groups: u64 =
            self.groups.0.values().filter(|group| group.busy > 0).map(|group| group.weight).sum();
        let top = weights(Cgroup::ROOT) + groups;
        let own = weights(cgroup);
        self.virtual_time += SCALE * sectors / top.max(1);
        if cgroup != Cgroup::ROOT {
            self.groups.named(cgroup).time += SCALE * sectors / own.max(1);
        }
    }

    /// A queue of the group has become busy with that budget; the first one makes the group busy. A
    /// group that was away for a moment only, as one whose process waited for its own request,
    /// keeps its place; it would lose what it is behind otherwise.
    pub(super) fn group_joined(&mut self, cgroup: Cgroup, budget: u64) {
        if cgroup == Cgroup::ROOT {
            return;
        }
        let now = self.virtual_time;
        let moment = Nanos(3 * self.tunables.slice_idle.0);
        let clock = self.now;
        let group = self.groups.named(cgroup);
        group.busy += 1;
        if group.busy == 1 {
            let away = group.left.map(|left| clock.since(left));
            let short = away.is_some_and(|away| away <= moment);
            group.start = if short { group.finish } else { group.finish.max(now) };
            group.finish = group.start + SCALE * budget / group.weight;
        }
    }

    /// A queue of the group has nothing more to do.
    pub(super) fn group_left(&mut self, cgroup: Cgroup) {
        let now = self.now;
        if cgroup != Cgroup::ROOT {
            let group = self.groups.named(cgroup);
            group.busy -= 1;
            if group.busy == 0 {
                group.left = Some(now);
                group.finish = group.start; // It pays for what it was served, not for its budget.
            }
        }
    }

    /// A queue was served so much; its budget is that of its next service.
    pub(super) fn group_charged(&mut self, q: Qid, sectors: u64) {
        let (cgroup, budget) = (self.queues[q].cgroup, self.queues[q].budget);
        if cgroup != Cgroup::ROOT {
            let group = self.groups.named(cgroup);
            group.start += SCALE * sectors / group.weight;
            group.finish = group.start + SCALE * budget / group.weight;
        }
    }

    /// The queue to serve: the most urgent class first; then the root's queue or the group with the
    /// smallest finish of those eligible; in a group, the same among its queues.
    pub(super) fn next_queue(&mut self) -> Option<Qid> {
        let class = self.busy.iter().map(|&q| self.queues[q].class()).min()?;
        let first = self.next_entity(class)?;
        let cgroup = match first {
            Entity::Queue(q) => return Some(q),
            Entity::Group(cgroup) => cgroup,
        };
        let of_group: Vec<Qid> = self.of_class(class, cgroup).collect();
        let ends = |q: Qid| (self.queues[q].start, self.queues[q].finish, q);
        let all = of_group.into_iter().map(ends);
        let (q, time) = earliest(all, self.groups.0[&cgroup].time)?;
        self.groups.named(cgroup).time = time;
        Some(q)
    }

    fn of_class(&self, class: IoClass, cgroup: Cgroup) -> impl Iterator<Item = Qid> {
        let busy = self.busy.iter().copied();
        busy.filter(move |&q| self.queues[q].class() == class && self.queues[q].cgroup == cgroup)
    }

    fn next_entity(&mut self, class: IoClass) -> Option<Entity> {
        let queue = |q: Qid| (self.queues[q].start, self.queues[q].finish, Entity::Queue(q));
        let queues = self.of_class(class, Cgroup::ROOT).map(queue);
        let has = |cgroup: Cgroup| self.of_class(class, cgroup).next().is_some();
        let busy = self.groups.0.iter().filter(|(cgroup, group)| group.busy > 0 && has(**cgroup));
        let groups = busy.map(|(&name, one)| (one.start, one.finish, Entity::Group(name)));
        let all: Vec<_> = queues.chain(groups).collect();
        let (next, time) = earliest(all.into_iter(), self.virtual_time)?;
        self.virtual_time = time;
        Some(next)
    }
}

/// Of those whose start is not above the virtual time, the one with the smallest finish, and the
/// virtual time, which goes on to the smallest start where nobody is eligible.
fn earliest<T: Ord + Copy>(
    all: impl Iterator<Item = (u64, u64, T)> + Clone,
    time: u64,
) -> Option<(T, u64)> {
    let first = all.clone().map(|(start, _, _)| start).min()?;
    let time = time.max(first);
    let eligible = all.filter(|&(start, _, _)| start <= time);
    let next = eligible.min_by_key(|&(_, finish, who)| (finish, who))?;
    Some((next.2, time))
}
