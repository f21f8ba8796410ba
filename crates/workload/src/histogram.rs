//! Latencies in the buckets of fio: exact below 128 ns, then 64 buckets for every power of two.
//!
//! A bucket is reported by its midpoint, so that a high percentile may exceed the largest value by
//! half a bucket (0.8 %), as fio's does. The rule follows from fio's printed percentiles; an
//! interpolated quantile would not reproduce them.

/// Buckets per power of two, as a power of two.
const BITS: u32 = 6;
const PER_GROUP: usize = 1 << BITS;
/// Groups: the last bucket takes everything from about 17 s on.
const GROUPS: usize = 29;
const BUCKETS: usize = GROUPS * PER_GROUP;

/// Counts of latencies, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty until the first value.
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// No values.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Adds a latency in nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.add_many(ns, 1);
    }

    /// Adds a latency that was seen `count` times.
    pub fn add_many(&mut self, ns: u64, count: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.counts[index(ns)] += count;
        self.total += count;
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        }
        self.total += other.total;
    }

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The buckets that hold something: midpoint in nanoseconds and count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let held = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        held.map(|(bucket, &count)| (midpoint(bucket), count))
    }

    /// The midpoint of the bucket at which `percent` (0 to 100) of all values are reached,
    /// nanoseconds; 0 without values.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = percent / 100.0 * self.total as f64;
        let mut seen = 0;
        let mut last = 0;
        for (value, count) in self.buckets() {
            seen += count;
            last = value;
            if seen as f64 >= wanted {
                return value;
            }
        }
        last
    }
}

fn index(ns: u64) -> usize {
    let top = 63 - (ns | 1).leading_zeros();
    if top <= BITS {
        return ns as usize;
    }
    let shift = top - BITS;
    let group = (shift as usize + 1) * PER_GROUP;
    (group + ((ns >> shift) as usize & (PER_GROUP - 1))).min(BUCKETS - 1)
}

fn midpoint(bucket: usize) -> u64 {
    if bucket < 2 * PER_GROUP {
        return bucket as u64;
    }
    let shift = bucket / PER_GROUP - 1;
    let low = (PER_GROUP + bucket % PER_GROUP) as u64;
    (low << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points are percentiles that fio 3.33 printed.
    #[test]
    fn midpoints_are_those_that_fio_prints() {
        for printed in [55552u64, 199_680, 700_416, 1_712_128, 15040, 1496, 804, 127, 0, 128] {
            let printed_again = midpoint(index(printed));
            let exact = printed < 256;
            assert!(printed_again == printed || exact, "{printed} became {printed_again}");
        }
        assert_eq!(midpoint(index(55_300)), 55_552);
        assert_eq!(midpoint(index(129)), 129);
        assert_eq!(midpoint(index(127)), 127);
    }

    #[test]
    fn buckets_ascend_and_hold_their_values() {
        let mut last = 0;
        for bucket in 0..BUCKETS {
            let value = midpoint(bucket);
            assert_eq!(index(value), bucket);
            assert!(bucket == 0 || value > last);
            last = value;
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_is_reached_by_the_count_below_it() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|ns| histogram.add(ns));
        assert_eq!(histogram.percentile(1.0), 1);
        assert_eq!(histogram.percentile(50.0), 50);
        assert_eq!(histogram.percentile(99.5), 100);
        assert_eq!(Histogram::new().percentile(99.0), 0);
        let mut both = Histogram::new();
        both.merge(&histogram);
        both.merge(&histogram);
        assert_eq!((both.total(), both.percentile(50.0)), (200, 50));
    }
}
