//! `io.max`: bytes and requests a second, by direction.
//!
//! A group may be a tenth of a second ahead of its rate; a request that would be further ahead
//! waits. Unused time is not saved up. A request that takes longer than a tenth by itself waits
//! until all requests before it are paid for.

use super::{GroupShare, IoMax, Leave, Policy};
use crate::Request;
use crate::elevator::Dispatch;
use base::Nanos;
use base::map::HashMap;
use rt::Cgroup;

/// So far ahead of its rate may a group be.
const AHEAD: Nanos = Nanos::from_millis(100);

/// One limit of a group.
#[derive(Clone, Copy, Default)]
struct Limit {
    /// A second.
    rate: Option<u64>,
    /// Until when what it used is paid for.
    paid: Nanos,
}

impl Limit {
    /// The time that so much takes at the rate.
    fn cost(&self, more: u64) -> Nanos {
        let rate = self.rate.map_or(u128::MAX, u128::from);
        Nanos((u128::from(more) * 1_000_000_000 / rate) as u64)
    }

    /// When so much more may be used, where not now.
    fn wait(&self, more: u64, now: Nanos) -> Option<Nanos> {
        let ahead = AHEAD.0 - self.cost(more).0.min(AHEAD.0);
        let when = Nanos(self.paid.0.saturating_sub(ahead));
        (when > now).then_some(when)
    }

    fn take(&mut self, more: u64, now: Nanos) {
        if self.rate.is_some() {
            self.paid = self.paid.max(now) + self.cost(more);
        }
    }
}

/// The policy.
#[derive(Default)]
pub(super) struct Max {
    /// By group and direction: bytes, requests.
    limits: HashMap<super::Line, [Limit; 2]>,
}

impl Policy for Max {
    fn name(&self) -> &'static str {
        "io.max"
    }

    fn set_group(&mut self, cgroup: Cgroup, share: &GroupShare) {
        let IoMax { rbps, wbps, riops, wiops } = share.max;
        for (write, rates) in [(false, [rbps, riops]), (true, [wbps, wiops])] {
            let limits = rates.map(|rate| Limit { rate, ..Limit::default() });
            self.limits.insert((cgroup, write), limits);
        }
    }

    fn ask(&mut self, request: &Request, view: &Dispatch<'_>) -> Leave {
        let line = (request.cgroup, request.op.is_write());
        let Some(limits) = self.limits.get_mut(&line) else { return Leave::Now };
        let more = [request.bytes(), 1];
        let pairs = limits.iter().zip(more);
        let when = pairs.filter_map(|(limit, more)| limit.wait(more, view.now)).max();
        if let Some(when) = when {
            return Leave::At(when);
        }
        limits.iter_mut().zip(more).for_each(|(limit, more)| limit.take(more, view.now));
        Leave::Now
    }
}
