//! `kyber`: domains of operations, each with a number of tokens that follows its latencies.
//!
//! Requests wait in the order of their arrival, by *domain*: reads, writes, discards, the rest. The
//! domains take turns, a batch of requests each; a request leaves if its domain has a token. Every
//! tenth of a second the latencies are compared with a target, in quarters of it. If the 90th
//! percentile of a domain's device times, or the 99th of its total times, lies above the target,
//! the numbers of tokens change. A domain that is well within its target gives up tokens for the
//! sake of one that is not.
//!
//! As in Linux since 4.20: each hardware queue has its lists and batches, the tokens are the
//! device's. There are no priorities and no order of sectors. Asynchronous requests may take three
//! quarters of `nr_requests`.

use super::hardware::Turns;
use super::{Dispatch, Elevator, TunableError, unknown_tunable};
use crate::request::{Request, RequestId};
use crate::{DeviceInfo, Op};
use base::Nanos;
use base::map::HashMap;
use std::collections::VecDeque;

/// Reads, writes, discards, the rest.
const DOMAINS: usize = 4;
/// The most tokens of a domain: requests that the device may have at once.
const TOKENS: [u32; DOMAINS] = [256, 128, 64, 16];
/// Requests of a domain before the next one has its turn.
const BATCH: [u32; DOMAINS] = [16, 8, 1, 1];
/// Eight buckets of a quarter of the target each; the first four are good.
const BUCKETS: usize = 8;
const GOOD: usize = 4;
/// How often latencies are looked at.
const WINDOW: Nanos = Nanos::from_millis(100);
/// So many samples are enough for a percentile; fewer after `SAMPLES_WAIT`.
const SAMPLES: u32 = 500;
const SAMPLES_WAIT: Nanos = Nanos::from_millis(1000);

/// Latencies in quarters of a target, since a percentile was taken last.
#[derive(Clone, Copy, Default)]
struct Histogram {
    buckets: [u32; BUCKETS],
    /// A percentile is taken now, even of few samples.
    until: Option<Nanos>,
}

impl Histogram {
    fn add(&mut self, latency: Nanos, target: Nanos) {
        let bucket = latency.0.saturating_sub(1) / (target.0 / GOOD as u64).max(1);
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    /// The bucket in which so many of a hundred samples end; the histogram begins anew. `None`
    /// while there are too few.
    fn percentile(&mut self, of_hundred: u32, now: Nanos) -> Option<usize> {
        let samples: u32 = self.buckets.iter().sum();
        if samples == 0 {
            return None;
        }
        let until = *self.until.get_or_insert(now + SAMPLES_WAIT);
        if samples < SAMPLES && now < until {
            return None;
        }
        let wanted = (u64::from(samples) * u64::from(of_hundred)).div_ceil(100);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        });
        *self = Histogram::default();
        bucket
    }
}

/// Requests of one kind.
struct Domain {
    /// What its latencies should be below; none for the rest.
    target: Option<Nanos>,
    tokens: u32,
    in_flight: u32,
    /// From the dispatch on.
    device: Histogram,
    /// From the arrival on.
    total: Histogram,
    /// The bucket of the last percentile of all times that did not yet change the tokens.
    slow: Option<usize>,
}

/// What waits in a hardware queue, by domain.
#[derive(Default)]
struct Lists {
    fifos: [VecDeque<RequestId>; DOMAINS],
    /// Whose turn it is, and how many requests it has had of it.
    current: usize,
    batched: u32,
}

impl Lists {
    /// The next request of the domain whose turn it is, if it has one and a token.
    fn give(&mut self, domains: &mut [Domain; DOMAINS], force: bool) -> Option<RequestId> {
        let domain = &mut domains[self.current];
        if domain.in_flight >= domain.tokens && !force {
            return None;
        }
        let id = self.fifos[self.current].pop_front()?;
        domain.in_flight += 1;
        self.batched += 1;
        Some(id)
    }

    /// The next request of any domain.
    fn next(&mut self, domains: &mut [Domain; DOMAINS], force: bool) -> Option<RequestId> {
        if self.batched < BATCH[self.current]
            && let Some(id) = self.give(domains, force)
        {
            return Some(id);
        }
        self.batched = 0;
        for _ in 0..DOMAINS {
            self.current = (self.current + 1) % DOMAINS;
            if let Some(id) = self.give(domains, force) {
                return Some(id);
            }
        }
        None
    }
}

/// The elevator.
pub struct Kyber {
    domains: [Domain; DOMAINS],
    queues: Turns<Lists>,
    /// When each request in flight was given out, by number.
    given: HashMap<u64, Nanos>,
    timer: Option<Nanos>,
}

impl Default for Kyber {
    fn default() -> Self {
        let targets = [Some(2), Some(10), Some(5000), None];
        let domain = |index: usize| Domain {
            target: targets[index].map(Nanos::from_millis),
            tokens: TOKENS[index],
            in_flight: 0,
            device: Histogram::default(),
            total: Histogram::default(),
            slow: None,
        };
        Kyber {
            domains: std::array::from_fn(domain),
            queues: Turns::default(),
            given: HashMap::default(),
            timer: None,
        }
    }
}

fn domain_of(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Discard => 2,
        Op::Flush | Op::WriteZeroes => 3,
    }
}

impl Kyber {
    /// Gives the domains tokens by what their latencies were.
    fn adjust(&mut self, now: Nanos) {
        let mut bad = false;
        for domain in &mut self.domains {
            let p90 = domain.device.percentile(90, now);
            bad |= p90.is_some_and(|bucket| bucket >= GOOD);
        }
        for (domain, most) in self.domains.iter_mut().zip(TOKENS) {
            if let Some(bucket) = domain.total.percentile(99, now) {
                domain.slow = Some(bucket);
            }
            let Some(bucket) = domain.slow else { continue };
            if bad || bucket >= GOOD {
                let tokens = domain.tokens * (bucket as u32 + 1) / GOOD as u32;
                domain.tokens = tokens.clamp(1, most);
                domain.slow = None;
            }
        }
    }
}

impl Elevator for Kyber {
    fn name(&self) -> &'static str {
        "kyber"
    }

    fn attach(&mut self, info: &DeviceInfo) {
        self.queues.resize(info.hw_queues);
    }

    fn async_requests(&self, nr_requests: u32) -> u32 {
        (nr_requests * 3 / 4).max(1)
    }

    fn insert(&mut self, id: RequestId, request: &Request, _now: Nanos) {
        self.queues.of(request).fifos[domain_of(request.op)].push_back(id);
    }

    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, _into: RequestId) {
        self.queues.of(absorbed).fifos[domain_of(absorbed.op)].retain(|&id| id != gone);
    }

    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId> {
        let domains = &mut self.domains;
        let id = self.queues.next(|lists| lists.next(domains, view.force))?;
        self.given.insert(view.requests.get(id).number, view.now);
        Some(id)
    }

    fn completed(&mut self, request: &Request, now: Nanos) {
        let given = self.given.remove(&request.number);
        let domain = &mut self.domains[domain_of(request.op)];
        domain.in_flight = domain.in_flight.saturating_sub(1);
        let (Some(given), Some(target)) = (given, domain.target) else { return };
        domain.device.add(now - given, target);
        domain.total.add(now - request.queued, target);
        self.timer.get_or_insert(now + WINDOW);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.timer
    }

    fn timer(&mut self, now: Nanos) {
        self.timer = None;
        self.adjust(now);
    }

    fn tunables(&self) -> Vec<(&'static str, String)> {
        let nanos = |index: usize| self.domains[index].target.map_or(0, |target| target.0);
        let (read, write) = (nanos(0).to_string(), nanos(1).to_string());
        vec![("read_lat_nsec", read), ("write_lat_nsec", write), self.queues.tunable()]
    }

    fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), TunableError> {
        if self.queues.set_tunable(name, value)? {
            return Ok(());
        }
        let index = match name {
            "read_lat_nsec" => 0,
            "write_lat_nsec" => 1,
            _ => return Err(unknown_tunable(self, name)),
        };
        match value.parse::<u64>() {
            Ok(nanos @ 1..) => self.domains[index].target = Some(Nanos(nanos)),
            _ => {
                return Err(TunableError::Value {
                    name: name.to_owned(),
                    value: value.to_owned(),
                    expected: "nanoseconds, at least 1",
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_five_hundred_samples_or_a_second() {
        let target = Nanos::from_millis(2);
        let mut histogram = Histogram::default();
        for _ in 0..98 {
            histogram.add(Nanos::from_micros(500), target);
        }
        histogram.add(Nanos::from_micros(501), target);
        histogram.add(Nanos::from_millis(70), target);
        let start = Nanos::from_millis(10);
        assert_eq!(histogram.percentile(99, start), None);
        assert_eq!(histogram.percentile(99, start + Nanos::from_millis(999)), None);
        assert_eq!(histogram.percentile(99, start + SAMPLES_WAIT), Some(1));
        assert_eq!(histogram.percentile(99, start + SAMPLES_WAIT), None, "it begins anew");
        for _ in 0..500 {
            histogram.add(Nanos::from_millis(3), target);
        }
        assert_eq!(histogram.percentile(90, start), Some(5), "500 are enough at once");
    }
}
