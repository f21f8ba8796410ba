//! `io.latency`: groups with a target for their requests, at the cost of those with a larger one.
//!
//! Latencies are checked in windows. A group misses its target if the mean of its window (on a
//! disk), or a tenth of its requests (on flash), lies above it. Then the groups with a larger
//! target, or none, may have half as many requests in the device as before, down to one. If no
//! group misses, they get a sixteenth of all back at a time. A group with no more than a twentieth
//! of the window's requests is not limited. Metadata passes.

use super::{GroupShare, Leave, Policy};
use crate::elevator::Dispatch;
use crate::{BioFlags, DeviceInfo, Request};
use base::Nanos;
use rt::Cgroup;
use std::collections::BTreeMap;

const WINDOW: Nanos = Nanos::from_millis(100);
/// Between two changes of depths.
const PAUSE: Nanos = Nanos::from_millis(500);
/// Requests that a group without limits may have.
const DEPTH: u32 = 128;

#[derive(Clone, Copy)]
struct Group {
    target: Option<Nanos>,
    depth: u32,
    in_flight: u32,
    /// Of this window.
    samples: u64,
    late: u64,
    sum: u64,
}

impl Default for Group {
    fn default() -> Group {
        Group { target: None, depth: DEPTH, in_flight: 0, samples: 0, late: 0, sum: 0 }
    }
}

impl Group {
    fn misses(&self, rotational: bool) -> bool {
        let Some(target) = self.target.filter(|_| self.samples > 0) else { return false };
        match rotational {
            true => self.sum / self.samples > target.0,
            false => self.late * 10 >= self.samples,
        }
    }

    /// The smaller one is protected from the larger one.
    fn rank(&self) -> Nanos {
        self.target.unwrap_or(Nanos(u64::MAX))
    }
}

/// The policy.
#[derive(Default)]
pub(super) struct Latency {
    rotational: bool,
    groups: BTreeMap<Cgroup, Group>,
    window: Nanos,
    changed: Nanos,
}

impl Latency {
    fn look(&mut self, now: Nanos) {
        if now.since(self.window) < WINDOW {
            return;
        }
        self.window = now;
        let all: u64 = self.groups.values().map(|group| group.samples).sum();
        let rotational = self.rotational;
        let missing = self.groups.values().filter(|group| group.misses(rotational));
        let strictest = missing.map(Group::rank).min();
        let changes = now.since(self.changed) >= PAUSE;
        for group in self.groups.values_mut() {
            match strictest {
                _ if !changes => {}
                Some(rank) if group.rank() > rank && group.samples * 20 > all => {
                    group.depth = (group.depth / 2).max(1);
                }
                Some(_) => {}
                None => group.depth = (group.depth + DEPTH / 16).min(DEPTH),
            }
            (group.samples, group.late, group.sum) = (0, 0, 0);
        }
        if changes {
            self.changed = now;
        }
    }

    fn done(&mut self, cgroup: Cgroup) -> Option<&mut Group> {
        let group = self.groups.get_mut(&cgroup)?;
        group.in_flight = group.in_flight.saturating_sub(1);
        Some(group)
    }
}

impl Policy for Latency {
    fn name(&self) -> &'static str {
        "io.latency"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.rotational = info.rotational;
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.groups.entry(cgroup).or_default().target = share.latency;
    }

    fn ask(&mut self, request: &Request, view: &Dispatch<'_>) -> Leave {
        self.look(view.now);
        let group = self.groups.entry(request.cgroup).or_default();
        if group.in_flight >= group.depth && !request.flags.contains(BioFlags::META) {
            return Leave::Later;
        }
        group.in_flight += 1;
        Leave::Now
    }

    fn joined(&mut self, gone: &Request) {
        self.done(gone.cgroup);
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        if let Some(group) = self.done(request.cgroup) {
            let took = now.since(request.queued);
            group.samples += 1;
            group.sum += took.0;
            group.late += group.target.is_some_and(|target| took > target) as u64;
        }
        self.look(now);
    }
}
