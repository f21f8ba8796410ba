//! Counts of requests: by operation how many, how long they took, and which failed.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Errno, Nanos};
use device::nbd::{Observer, wire::cmd};

/// Bounds of the buckets of latencies: powers of two, from 1.024 microseconds to 8.59 seconds.
const BOUNDS: usize = 24;
/// The first bound is this power of two, nanoseconds.
const FIRST_SHIFT: u32 = 10;
/// Errors of larger numbers share the last place.
const ERRNO_MAX: usize = 134;

/// The operations of an NBD server.
pub const OF_NBD: &[&str] =
    &["read", "write", "flush", "trim", "write_zeroes", "block_status", "other"];

/// The bound of a bucket in seconds; none for the last, which has none.
pub fn bound_seconds(bucket: usize) -> Option<f64> {
    (bucket < BOUNDS).then(|| (1u64 << (FIRST_SHIFT + bucket as u32)) as f64 / 1e9)
}

/// The first bucket whose bound is not below.
fn bucket(took: Nanos) -> usize {
    let power = 64 - took.0.saturating_sub(1).leading_zeros();
    (power.saturating_sub(FIRST_SHIFT) as usize).min(BOUNDS)
}

/// Latencies, counted.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Histogram {
    /// How many were in each bucket; the last has no bound.
    pub buckets: [u64; BOUNDS + 1],
    /// All together, seconds.
    pub seconds: f64,
}

impl Histogram {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Of those that a queue has counted.
    pub fn of_device(latency: &block::LatencyHistogram) -> Histogram {
        let mut of = Histogram { seconds: latency.total().0 as f64 / 1e9, ..Histogram::default() };
        latency.buckets().for_each(|(most, count)| of.buckets[bucket(most)] += count);
        of
    }
}

/// On a cache line of its own: processors count different operations beside each other.
#[derive(Default)]
#[repr(align(128))]
struct Operation {
    buckets: [AtomicU64; BOUNDS + 1],
    nanoseconds: AtomicU64,
}

/// The requests to a mount or a server.
pub struct Requests {
    face: &'static str,
    names: &'static [&'static str],
    operations: Box<[Operation]>,
    errors: [AtomicU64; ERRNO_MAX + 1],
    in_flight: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Requests {
    /// Nothing yet, of operations with these names.
    pub fn new(face: &'static str, names: &'static [&'static str]) -> Requests {
        Requests {
            face,
            names,
            operations: names.iter().map(|_| Operation::default()).collect(),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
            in_flight: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// One begins.
    pub fn begin(&self) {
        add(&self.in_flight, 1);
    }

    /// One that has begun ends.
    pub fn end(&self, operation: usize, took: Nanos, failed: Option<Errno>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.note(operation, took, failed);
    }

    /// One is done.
    pub fn note(&self, operation: usize, took: Nanos, failed: Option<Errno>) {
        let counts = &self.operations[operation];
        add(&counts.buckets[bucket(took)], 1);
        add(&counts.nanoseconds, took.0);
        if let Some(errno) = failed {
            let number = usize::try_from(errno.0).unwrap_or(ERRNO_MAX);
            add(&self.errors[number.min(ERRNO_MAX)], 1);
        }
    }

    /// Bytes were read from it.
    pub fn note_read(&self, bytes: u64) {
        add(&self.read_bytes, bytes);
    }

    /// Bytes were written to it.
    pub fn note_written(&self, bytes: u64) {
        add(&self.written_bytes, bytes);
    }

    /// Whom requests come from: a mount, NFS, NBD.
    pub fn face(&self) -> &'static str {
        self.face
    }

    /// Requests that are being carried out.
    pub fn in_flight(&self) -> u64 {
        get(&self.in_flight)
    }

    /// Bytes that were read, and written.
    pub fn bytes(&self) -> [u64; 2] {
        [get(&self.read_bytes), get(&self.written_bytes)]
    }

    /// The latencies of each operation that there was.
    pub fn latencies(&self) -> impl Iterator<Item = (&'static str, Histogram)> {
        let each = self.names.iter().zip(&self.operations);
        let each = each.map(|(name, counts)| {
            let buckets = std::array::from_fn(|at| get(&counts.buckets[at]));
            (*name, Histogram { buckets, seconds: get(&counts.nanoseconds) as f64 / 1e9 })
        });
        each.filter(|(_, latency)| latency.count() > 0)
    }

    /// The errors that there were, and how often.
    pub fn errors(&self) -> impl Iterator<Item = (Errno, u64)> {
        let each = self.errors.iter().enumerate();
        let each = each.map(|(number, count)| (Errno(number as i32), get(count)));
        each.filter(|(_, count)| *count > 0)
    }
}

impl Observer for Requests {
    fn done(&self, kind: u16, bytes: u64, took: Nanos, failed: Option<Errno>) {
        let operation = match kind {
            cmd::READ => 0,
            cmd::WRITE => 1,
            cmd::FLUSH => 2,
            cmd::TRIM => 3,
            cmd::WRITE_ZEROES => 4,
            cmd::BLOCK_STATUS => 5,
            _ => 6,
        };
        self.note(operation, took, failed);
        match kind {
            cmd::READ if failed.is_none() => self.note_read(bytes),
            cmd::WRITE if failed.is_none() => self.note_written(bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_first_bucket_that_holds_it() {
        for (nanos, wanted) in [
            (0, 0),
            (1024, 0),
            (1025, 1),
            (2048, 1),
            (2049, 2),
            (1 << 33, BOUNDS - 1),
            ((1 << 33) + 1, BOUNDS),
            (u64::MAX, BOUNDS),
        ] {
            assert_eq!(bucket(Nanos(nanos)), wanted, "{nanos}");
            let bound = bound_seconds(wanted).unwrap_or(f64::INFINITY);
            assert!(nanos as f64 / 1e9 <= bound, "{nanos}");
        }
    }

    #[test]
    fn latencies_of_a_device_are_all_counted() {
        let mut latency = block::LatencyHistogram::default();
        [500, 1500, 1 << 40].into_iter().for_each(|nanos| latency.record(Nanos(nanos)));
        let histogram = Histogram::of_device(&latency);
        assert_eq!((histogram.buckets[0], histogram.buckets[1]), (1, 1));
        assert_eq!((histogram.buckets[BOUNDS], histogram.count()), (1, 3));
        assert_eq!(histogram.seconds, (2000 + (1u64 << 40)) as f64 / 1e9);
    }
}
