//! What a job measures while it runs.

use base::Nanos;

use crate::{Histogram, Stats};

/// Times of one kind: summary and distribution, nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Minimum, maximum, mean, deviation.
    pub stats: Stats,
    /// The buckets of fio.
    pub histogram: Histogram,
}

impl Latency {
    /// Adds a time.
    pub fn add(&mut self, span: Nanos) {
        self.stats.add(span.0);
        self.histogram.add(span.0);
    }

    /// Adds all times of another.
    pub fn merge(&mut self, other: &Latency) {
        self.stats.merge(&other.stats);
        self.histogram.merge(&other.histogram);
    }
}

/// Upper ends of the bands in nanoseconds and microseconds.
pub(super) const BANDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Upper ends of the bands in milliseconds; what is longer goes to a twelfth one.
pub(super) const BANDS_MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// Operations by how long they took, in the bands that fio prints (`lat (usec) : 2=..`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyBands {
    /// Below 2, 4, 10, .. 1000 ns.
    pub ns: [u64; 10],
    /// Below 2, 4, 10, .. 1000 us.
    pub us: [u64; 10],
    /// Below 2, 4, 10, .. 2000 ms, and the rest.
    pub ms: [u64; 12],
}

impl LatencyBands {
    /// Adds a time.
    pub fn add(&mut self, span: Nanos) {
        let band = |bands: &[u64], value: u64| bands.iter().position(|&end| value < end);
        if let Some(band) = band(&BANDS, span.0) {
            self.ns[band] += 1;
        } else if let Some(band) = band(&BANDS, span.0 / 1000) {
            self.us[band] += 1;
        } else {
            let last = self.ms.len() - 1;
            self.ms[band(&BANDS_MS, span.0 / 1_000_000).unwrap_or(last)] += 1;
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &LatencyBands) {
        let add = |own: &mut [u64], more: &[u64]| {
            own.iter_mut().zip(more).for_each(|(own, more)| *own += more);
        };
        add(&mut self.ns, &other.ns);
        add(&mut self.us, &other.us);
        add(&mut self.ms, &other.ms);
    }
}

/// Samples of a rate: how much was done in each interval of about `span`.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    span: Nanos,
    since: Nanos,
    done: u64,
    pub samples: Stats,
}

impl Rate {
    pub fn new(start: Nanos, span: Nanos) -> Rate {
        Rate { span, since: start, done: 0, samples: Stats::new() }
    }

    /// Counts `amount`; where the interval is over, a sample of units per second (divided by
    /// `unit`) is taken, and answered.
    pub fn add(&mut self, now: Nanos, amount: u64, unit: u64) -> Option<u64> {
        self.done += amount;
        let passed = now.since(self.since);
        if passed < self.span {
            return None;
        }
        let each_second = u128::from(self.done) * 1_000_000_000 / u128::from(passed.0.max(1));
        let sample = (each_second / u128::from(unit)) as u64;
        self.samples.add(sample);
        self.since = now;
        self.done = 0;
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_end_below_their_names() {
        let mut bands = LatencyBands::default();
        for ns in [0, 1, 2, 999, 1000, 1999, 999_999, 1_000_000, 1_999_999_999, 2_000_000_000] {
            bands.add(Nanos(ns));
        }
        assert_eq!((bands.ns[0], bands.ns[1], bands.ns[9]), (2, 1, 1));
        assert_eq!((bands.us[0], bands.us[9]), (2, 1));
        assert_eq!((bands.ms[0], bands.ms[10], bands.ms[11]), (1, 1, 1));
    }

    #[test]
    fn a_rate_is_sampled_after_each_interval() {
        let mut rate = Rate::new(Nanos(0), Nanos::from_millis(500));
        assert_eq!(rate.add(Nanos::from_millis(250), 1024, 1024), None);
        assert_eq!(rate.add(Nanos::from_millis(500), 1024, 1024), Some(4));
        assert_eq!(rate.add(Nanos::from_millis(1000), 0, 1024), Some(0));
        assert_eq!(rate.samples.count(), 2);
    }
}
