//! Counters of a queue and histograms of latencies.

use crate::Op;
use base::Nanos;
use std::fmt;

/// Buckets per power of two.
const SUB: u32 = 8;
const SUB_BITS: u32 = SUB.trailing_zeros();
const BUCKETS: usize = ((64 - SUB_BITS + 1) * SUB) as usize;

/// Latencies counted in buckets whose width is at most an eighth of their value.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    total: u128,
    min: u64,
    max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
            total: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) as u32 % SUB;
    ((exponent - SUB_BITS + 1) * SUB + sub) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let (row, sub) = (bucket as u32 / SUB, bucket as u64 % SUB as u64);
    if row == 0 {
        return sub;
    }
    let shift = row - 1;
    let lower = (SUB as u64 + sub) << shift;
    lower + ((1u64 << shift) - 1)
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Nanos) {
        self.buckets[bucket(latency.0)] += 1;
        self.count += 1;
        self.total += latency.0 as u128;
        self.min = self.min.min(latency.0);
        self.max = self.max.max(latency.0);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, at most 584 years.
    pub fn total(&self) -> Nanos {
        Nanos(u64::try_from(self.total).unwrap_or(u64::MAX))
    }

    /// The mean, exactly; zero where nothing was counted.
    pub fn mean(&self) -> Nanos {
        Nanos((self.total / self.count.max(1) as u128) as u64)
    }

    /// The smallest, exactly; zero where nothing was counted.
    pub fn min(&self) -> Nanos {
        Nanos(if self.count == 0 { 0 } else { self.min })
    }

    /// The largest, exactly.
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// The latency that the part `q` (0 to 1) of all does not exceed, at most an eighth too high.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(upper(index).min(self.max));
            }
        }
        Nanos(self.max)
    }

    /// Adds everything that `other` has counted.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The buckets that are not empty: largest value, count.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.buckets.iter().copied().enumerate();
        counts.filter(|&(_, count)| count > 0).map(|(index, count)| (Nanos(upper(index)), count))
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [0.5, 0.99].map(|q| self.quantile(q));
        let (count, mean, max) = (self.count, self.mean(), self.max());
        write!(f, "{count} (mean {mean}, p50 {p50}, p99 {p99}, max {max})")
    }
}

/// What a queue has counted since it was made. Sizes in bytes; latencies from the arrival of the
/// first bio of a request to the end of the request.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// Bios submitted.
    pub bios: u64,
    /// Bios cut because they were larger than the device's limits.
    pub splits: u64,
    /// Read requests that the device finished.
    pub reads: u64,
    /// Write requests that the device finished.
    pub writes: u64,
    /// Bytes of `reads`.
    pub read_bytes: u64,
    /// Bytes of `writes`.
    pub write_bytes: u64,
    /// Bios that joined at the front of a request.
    pub merges_front: u64,
    /// Bios that joined at the end of a request.
    pub merges_back: u64,
    /// Requests that joined another one, when a bio had closed the gap between them.
    pub merges_requests: u64,
    /// Flushes that the device carried out.
    pub flushes: u64,
    /// Flushes, before or after data or alone, that no volatile cache made needless.
    pub flushes_dropped: u64,
    /// Flushes that shared one with somebody else.
    pub flushes_shared: u64,
    /// Writes that the device made durable by itself.
    pub fua: u64,
    /// Draining barriers that have run.
    pub barriers: u64,
    /// Discards that the device finished.
    pub discards: u64,
    /// Writes of zeroes that the device finished.
    pub zeroes: u64,
    /// Requests that failed, in whole or in part.
    pub errors: u64,
    /// Times that a task waited for a free request (`nr_requests`).
    pub throttled: u64,
    /// Requests that wait at the moment.
    pub queued: u32,
    /// Requests that the device has at the moment.
    pub in_flight: u32,
    /// Most requests that the device had at once.
    pub in_flight_max: u32,
    /// Latencies of reads.
    pub read_latency: LatencyHistogram,
    /// Latencies of writes.
    pub write_latency: LatencyHistogram,
    /// Latencies of flushes.
    pub flush_latency: LatencyHistogram,
}

impl QueueStats {
    /// Counts a request that the device has finished.
    pub(crate) fn finished(&mut self, op: Op, bytes: u64, latency: Nanos, failed: bool) {
        self.errors += failed as u64;
        match op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
                self.read_latency.record(latency);
            }
            Op::Write => {
                self.writes += 1;
                self.write_bytes += bytes;
                self.write_latency.record(latency);
            }
            Op::Flush => {
                self.flushes += 1;
                self.flush_latency.record(latency);
            }
            Op::Discard => self.discards += 1,
            Op::WriteZeroes => self.zeroes += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values_within_an_eighth() {
        for value in (0..5000).chain((3..63).map(|e| (1u64 << e) + 12345)).chain([u64::MAX]) {
            let top = upper(bucket(value));
            assert!(top >= value && top - value <= value / 8, "{value} -> {top}");
        }
    }

    #[test]
    fn quantiles_and_means_follow_the_values() {
        let mut latency = LatencyHistogram::default();
        (1..=1000).for_each(|n| latency.record(Nanos(n * 1000)));
        assert_eq!((latency.count(), latency.mean()), (1000, Nanos(500_500)));
        assert_eq!((latency.min(), latency.max()), (Nanos(1000), Nanos(1_000_000)));
        let p90 = latency.quantile(0.9).0;
        assert!((900_000..=1_012_500).contains(&p90), "{p90}");
        assert_eq!(LatencyHistogram::default().quantile(0.5), Nanos::ZERO);
        let mut sum = latency.clone();
        sum.merge(&latency);
        assert_eq!((sum.count(), sum.mean()), (2000, latency.mean()));
        assert_eq!(sum.buckets().map(|(_, count)| count).sum::<u64>(), 2000);
    }
}
