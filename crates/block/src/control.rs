//! Controllers: how much of a device each control group may use, before any elevator sees its
//! requests.
//!
//! A [`Controlled`] elevator is another one behind a *policy*: requests of a group wait until the
//! policy lets them go on. The policies are those of today's Linux: `io.max` (`control/max.rs`),
//! `io.latency` (`control/latency.rs`) and `io.cost` (`control/cost.rs`). The root group is never
//! held back, and neither is what the queue sends past the elevator.
//!
//! What is held back counts against no `nr_requests`, as in Linux, where a bio waits before it gets
//! a request: a group over its limit takes none of the others'.
//!
//! Differences to Linux: there, `io.cost` and `io.latency` make the submitting task wait; here the
//! request waits, in the queue, so that its task goes on.
//!
//! Sources: Documentation/admin-guide/cgroup-v2.rst and
//! Documentation/admin-guide/blk-iolatency.rst of Linux 6.18.

mod cost;
mod latency;
mod max;

pub use crate::share::{GroupShare, IoMax};

use crate::elevator::{Dispatch, Elevator, ElevatorNote, Newcomer, TunableError, by_name};
use crate::{DeviceInfo, Request, RequestId};
use base::{Nanos, Sector};
use rt::Cgroup;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whether a request may go on.
enum Leave {
    Now,
    /// Not before that time.
    At(Nanos),
    /// Not before another request is done.
    Later,
}

/// Who may go on, and when.
trait Policy: Send {
    /// Its name, as the file of a control group.
    fn name(&self) -> &'static str;

    /// The device that it works for.
    fn attach(&mut self, _info: &DeviceInfo) {}

    /// What a group is given.
    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare);

    /// May the first waiting request of its group and direction go on? Where the answer is yes, it
    /// counts.
    fn ask(&mut self, request: &Request, view: &Dispatch<'_>) -> Leave;

    /// A request that has gone on joined another one of its group.
    fn joined(&mut self, _gone: &Request) {}

    /// A request that has gone on is done.
    fn completed(&mut self, _request: &Request, _now: Nanos) {}

    /// Names and values of its tunables.
    fn tunables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Sets one of them; false where it has none of that name.
    fn set_tunable(&mut self, _name: &str, _value: &str) -> Result<bool, TunableError> {
        Ok(false)
    }
}

/// Names of the policies.
pub const CONTROLLERS: [&str; 3] = ["io.max", "io.latency", "io.cost"];

fn policy(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "io.max" => Box::new(max::Max::default()),
        "io.latency" => Box::new(latency::Latency::default()),
        "io.cost" => Box::new(cost::Cost::default()),
        _ => return None,
    })
}

/// A new elevator of that name with default tunables, behind a controller where one is named;
/// `None` where there is no such elevator or controller.
pub fn controlled(name: &str, controller: Option<&str>) -> Option<Box<dyn Elevator>> {
    let elevator = by_name(name)?;
    Some(match controller {
        None => elevator,
        Some(controller) => Box::new(Controlled::new(controller, elevator)?),
    })
}

/// Requests of a group wait in the order of their arrival, reads and writes apart.
type Line = (Cgroup, bool);

/// An elevator behind a policy.
pub(crate) struct Controlled {
    inner: Box<dyn Elevator>,
    policy: Box<dyn Policy>,
    lines: BTreeMap<Line, VecDeque<RequestId>>,
    held: BTreeSet<RequestId>,
    /// Of what is held: asynchronous, synchronous requests that were allocated.
    counts: [u32; 2],
    /// When a line may go on.
    wanted: Option<Nanos>,
}

impl Controlled {
    /// `inner` behind the policy of that name, where there is one.
    pub fn new(name: &str, inner: Box<dyn Elevator>) -> Option<Controlled> {
        Some(Controlled {
            inner,
            policy: policy(name)?,
            lines: BTreeMap::new(),
            held: BTreeSet::new(),
            counts: [0; 2],
            wanted: None,
        })
    }

    /// Gives to the elevator what may go on now.
    fn release(&mut self, view: &Dispatch<'_>) {
        self.wanted = None;
        for line in self.lines.values_mut() {
            while let Some(&id) = line.front() {
                let request = view.requests.get(id);
                if !view.force {
                    match self.policy.ask(request, view) {
                        Leave::Now => {}
                        Leave::At(when) => {
                            let when = when.max(view.now + Nanos(1));
                            self.wanted = Some(self.wanted.map_or(when, |one| one.min(when)));
                            break;
                        }
                        Leave::Later => break,
                    }
                }
                line.pop_front();
                self.held.remove(&id);
                self.counts[request.is_sync() as usize] -= request.allocated as u32;
                self.inner.insert(id, request, view.now);
            }
        }
        self.lines.retain(|_, line| !line.is_empty());
    }

    fn line_of(request: &Request) -> Line {
        (request.cgroup, request.op.is_write())
    }
}

impl Elevator for Controlled {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.policy.attach(info);
        self.inner.attach(info);
    }

    fn allow_merge(&self, id: RequestId, request: &Request, new: &Newcomer) -> bool {
        // What waits here is in no elevator yet; its group is that of the newcomer.
        self.held.contains(&id) || self.inner.allow_merge(id, request, new)
    }

    fn front_merges(&self) -> bool {
        self.inner.front_merges()
    }

    fn async_requests(&self, nr_requests: u32) -> u32 {
        self.inner.async_requests(nr_requests)
    }

    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos) {
        if request.cgroup == Cgroup::ROOT {
            return self.inner.insert(id, request, now);
        }
        self.lines.entry(Controlled::line_of(request)).or_default().push_back(id);
        self.held.insert(id);
        self.counts[request.is_sync() as usize] += request.allocated as u32;
    }

    fn held(&self) -> [u32; 2] {
        self.counts
    }

    fn merged(&mut self, id: RequestId, request: &Request, old_start: Sector) {
        if !self.held.contains(&id) {
            self.inner.merged(id, request, old_start);
        }
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId) {
        match self.held.remove(&gone) {
            true => {
                self.counts[absorbed.is_sync() as usize] -= absorbed.allocated as u32;
                if let Some(line) = self.lines.get_mut(&Controlled::line_of(absorbed)) {
                    line.retain(|&id| id != gone);
                }
            }
            false => {
                self.policy.joined(absorbed);
                self.inner.absorbed(gone, absorbed, into);
            }
        }
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        self.release(view);
        self.inner.dispatch(view)
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        if request.cgroup != Cgroup::ROOT {
            self.policy.completed(request, now);
        }
        self.inner.completed(request, now);
    }

    fn next_timer(&self) -> Option<Nanos> {
        [self.wanted, self.inner.next_timer()].into_iter().flatten().min()
    }

    fn timer(&mut self, now: Nanos) {
        // The device may be full, and then no dispatch sets it anew: the next completion does.
        self.wanted = self.wanted.filter(|&when| when > now);
        if self.inner.next_timer().is_some_and(|when| when <= now) {
            self.inner.timer(now);
        }
    }

    fn yield_to(&mut self, from: u64, to: u64, now: Nanos) {
        self.inner.yield_to(from, to, now);
    }

    fn ioc_exit(&mut self, ioc: u64, now: Nanos) {
        self.inner.ioc_exit(ioc, now);
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        self.policy.set_group(cgroup, share);
        self.inner.set_group(cgroup, share);
    }

    fn take_notes(&mut self, out: &mut Vec<ElevatorNote>) {
        self.inner.take_notes(out);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let mut all = self.inner.tunables();
        all.push(("controller", self.policy.name().to_owned()));
        all.extend(self.policy.tunables());
        all
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        match self.policy.set_tunable(name, value)? {
            true => Ok(()),
            false => self.inner.set_tunable(name, value),
        }
    }
}
