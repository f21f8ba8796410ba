//! `io.cost`: time of the device in proportion to weights, by a model of what requests cost.
//!
//! A request costs device time: a base, by direction and by whether it jumps, and so much a page
//! (`control/cost/model.rs`). The device's *virtual time* runs at a rate, `vrate`, of the clock's.
//! A group with the share h of the weights pays cost / h, and waits where that would bring it ahead
//! of the device's virtual time.
//!
//! Once a period: a group that used less than its share gives what it does not need to the others
//! (*donation*), and takes back as much as it needs, in steps of a quarter, before it would come
//! close to waiting; `vrate` goes down where
//! requests miss the percentile of `rlat` and `wlat` or the device was full for more than a
//! twentieth of the period, and up where groups waited and it was not. Metadata goes on at once and
//! is paid for later (*debt*).

mod model;

use super::{GroupShare, Leave, Policy};
use crate::elevator::{Dispatch, TunableError};
use crate::{BioFlags, DeviceInfo, Op, Request};
use base::map::HashMap;
use base::{Nanos, Sector};
use model::Model;
use rt::Cgroup;
use std::collections::BTreeMap;

/// Weight of a group that nobody gave one.
const WEIGHT: u32 = 100;
/// Bounds of `vrate` in percent.
const VRATE: [f64; 2] = [1.0, 10_000.0];
/// From these levels of being busy on, `vrate` changes by 1, 2, 4, 8 and 16 %.
const STEPS: [(i32, f64); 5] = [(4, 0.01), (20, 0.02), (36, 0.04), (44, 0.08), (52, 0.16)];
/// A group may be so much of a period ahead after it was quiet.
const MARGIN: f64 = 0.5;
/// A group that has given takes back where it would have less than that of a period left.
const LOW: f64 = 0.1;
/// By so much at a time.
const BACK: f64 = 1.25;

struct Group {
    weight: u32,
    /// Its part of the device's time in this period.
    share: f64,
    /// Virtual time that it has paid for, in ns.
    paid: f64,
    /// Device time that it used in this period, in ns.
    used: f64,
    waited: bool,
    active: bool,
    cursor: Option<Sector>,
}

/// The policy.
pub(super) struct Cost {
    model: Model,
    depth: u32,
    groups: BTreeMap<Cgroup, Group>,
    /// The device's virtual time in ns, and when it was that.
    virtual_time: f64,
    seen: Nanos,
    /// Of the clock's rate.
    vrate: f64,
    period_began: Nanos,
    busy: i32,
    /// For how long the device was full in this period.
    full: u64,
    /// Of this period, by direction: requests, and those that took too long.
    done: [[u64; 2]; 2],
    /// When each request went on, by number.
    sent: HashMap<u64, Nanos>,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost {
            model: Model::default(),
            depth: 1,
            groups: BTreeMap::new(),
            virtual_time: 0.0,
            seen: Nanos::ZERO,
            vrate: 1.0,
            period_began: Nanos::ZERO,
            busy: 0,
            full: 0,
            done: [[0; 2]; 2],
            sent: HashMap::default(),
        }
    }
}

impl Cost {
    /// Lets time pass, and ends the periods that are over.
    fn pass(&mut self, now: Nanos, in_flight: u32) {
        let passed = now.since(self.seen);
        self.seen = self.seen.max(now);
        self.virtual_time += passed.0 as f64 * self.vrate;
        if in_flight >= self.depth {
            self.full += passed.0;
        }
        let period = now.since(self.period_began);
        if period >= self.model.period() {
            self.end_period(period);
            self.period_began = now;
        }
    }

    fn end_period(&mut self, period: Nanos) {
        self.adjust_rate(period);
        let span = period.0 as f64 * self.vrate;
        let least = self.virtual_time - span * MARGIN;
        let mut wanted = BTreeMap::new();
        for (&name, group) in &mut self.groups {
            group.active = group.used > 0.0 || group.waited;
            group.paid = group.paid.max(least);
            let need = if group.waited { f64::INFINITY } else { group.used / span * 1.25 };
            if group.active {
                wanted.insert(name, need);
            }
            (group.used, group.waited) = (0.0, false);
        }
        self.share_out(&wanted);
    }

    /// Shares by weight; what a group does not need goes to those that need more.
    fn share_out(&mut self, wanted: &BTreeMap<Cgroup, f64>) {
        let weight = |name: &Cgroup| f64::from(self.groups[name].weight);
        let all: f64 = wanted.keys().map(weight).sum();
        let fair = |name: &Cgroup| weight(name) / all;
        let (donors, others): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|&(name, &need)| need < fair(name));
        let given: f64 = donors.iter().map(|&(_, &need)| need).sum();
        let rest: f64 = others.iter().map(|&(name, _)| weight(name)).sum();
        let mut shares: Vec<(Cgroup, f64)> = Vec::new();
        for (&name, &need) in donors {
            shares.push((name, if others.is_empty() { fair(&name) } else { need }));
        }
        for &(&name, _) in &others {
            shares.push((name, (1.0 - given) * weight(&name) / rest));
        }
        for (name, share) in shares {
            if let Some(group) = self.groups.get_mut(&name) {
                group.share = share.max(1e-4);
            }
        }
    }

    /// A group that was quiet has its share by weight again, as all that are active.
    fn activate(&mut self, name: Cgroup) {
        if self.group(name).active {
            return;
        }
        self.group(name).active = true;
        let active = self.groups.iter().filter(|(_, group)| group.active);
        let wanted = active.map(|(&name, _)| (name, f64::INFINITY)).collect();
        self.share_out(&wanted);
    }

    /// A group that has given some of its share takes back what `cost` needs of it.
    fn take_back(&mut self, name: Cgroup, cost: f64) {
        let active = self.groups.values().filter(|group| group.active);
        let all: f64 = active.map(|group| f64::from(group.weight)).sum();
        let least = self.model.period().0 as f64 * self.vrate * LOW;
        let left = self.virtual_time - least;
        let group = self.group(name);
        let (fair, old) = (f64::from(group.weight) / all, group.share);
        let mut share = old;
        while group.paid + cost / share > left && share < fair {
            share = (share * BACK).min(fair);
        }
        if share > old && old < 1.0 {
            let rest = (1.0 - share) / (1.0 - old);
            self.groups.values_mut().filter(|group| group.active).for_each(|one| one.share *= rest);
            self.group(name).share = share;
        }
    }

    fn adjust_rate(&mut self, period: Nanos) {
        let missed = (0..2).any(|way| self.model.misses(way, self.done[way]));
        let full = self.full * 20 > period.0;
        let waited = self.groups.values().any(|group| group.waited);
        self.busy = match (missed || full, waited) {
            (true, _) => self.busy.max(0) + 1,
            (false, true) => self.busy.min(0) - 1,
            (false, false) => 0,
        };
        let step = STEPS.iter().rev().find(|&&(from, _)| self.busy.abs() >= from);
        if let Some(&(_, step)) = step {
            let factor = if self.busy > 0 { 1.0 - step } else { 1.0 + step };
            self.vrate = (self.vrate * factor).clamp(VRATE[0] / 100.0, VRATE[1] / 100.0);
        }
        (self.full, self.done) = (0, [[0; 2]; 2]);
    }

    fn group(&mut self, name: Cgroup) -> &mut Group {
        let start = self.virtual_time;
        self.groups.entry(name).or_insert(Group {
            weight: WEIGHT,
            share: 1.0,
            paid: start,
            used: 0.0,
            waited: false,
            active: false,
            cursor: None,
        })
    }
}

impl Policy for Cost {
    fn name(&self) -> &'static str {
        "io.cost"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.depth = info.depth;
        self.model = Model::of(info);
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.group(cgroup).weight = share.weight.unwrap_or(WEIGHT);
    }

    fn ask(&mut self, request: &Request, view: &Dispatch<'_>) -> Leave {
        if !matches!(request.op, Op::Read | Op::Write) {
            return Leave::Now;
        }
        self.pass(view.now, view.in_flight);
        let name = request.cgroup;
        let cursor = self.group(name).cursor;
        let cost = self.model.cost(request, cursor);
        self.activate(name);
        self.take_back(name, cost);
        let (time, rate) = (self.virtual_time, self.vrate);
        let group = self.group(name);
        let price = cost / group.share;
        if group.paid + price > time && !request.flags.contains(BioFlags::META) {
            group.waited = true;
            let ahead = group.paid + price - time;
            return Leave::At(view.now + Nanos((ahead / rate) as u64 + 1));
        }
        group.paid += price;
        group.used += cost;
        group.cursor = Some(request.end_sector());
        self.sent.insert(request.number, view.now);
        Leave::Now
    }

    fn joined(&mut self, gone: &Request) {
        self.sent.remove(&gone.number);
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        let Some(sent) = self.sent.remove(&request.number) else { return };
        let way = request.op.is_write() as usize;
        let late = self.model.is_late(way, now.since(sent));
        self.done[way][0] += 1;
        self.done[way][1] += late as u64;
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("vrate", format!("{:.2}", self.vrate * 100.0))];
        all.extend(self.model.tunables());
        all
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<bool, TunableError> {
        self.model.set_tunable(name, value)
    }
}
