//! Latencies in the buckets of the tool, by which it shows percentiles and draws its histogram:
//! 1,024 of them, at equal steps of the logarithm from 0.001 ms to 100 s, each one stands for its
//! middle. Taken from what it prints.

/// Buckets.
const COUNT: usize = 1024;
/// Middle of the first and of the last, milliseconds.
const RANGE: (f64, f64) = (0.001, 100_000.0);
/// Stars of the fullest bucket.
const STARS: u64 = 40;

/// Counts of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Empty until the first.
    counts: Vec<u64>,
    total: u64,
}

fn step() -> f64 {
    (RANGE.1 / RANGE.0).ln() / (COUNT - 1) as f64
}

fn middle(bucket: usize) -> f64 {
    RANGE.0 * (bucket as f64 * step()).exp()
}

impl Latency {
    /// Adds a latency in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; COUNT];
        }
        let ms = (ns as f64 / 1e6).max(RANGE.0);
        let bucket = ((ms / RANGE.0).ln() / step()).round() as usize;
        self.counts[bucket.min(COUNT - 1)] += 1;
        self.total += 1;
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Latency) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        }
        self.total += other.total;
    }

    /// What came after `before`, which was a part of this.
    pub(super) fn since(&self, before: &Latency) -> Latency {
        let mut rest = self.clone();
        rest.counts.iter_mut().zip(&before.counts).for_each(|(own, less)| *own -= less);
        rest.total -= before.total;
        rest
    }

    /// The latency that `percent` of all do not exceed, milliseconds; 0 without any.
    pub fn percentile(&self, percent: u32) -> f64 {
        let wanted = (self.total as f64 * f64::from(percent) / 100.0).round() as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if count > 0 && seen >= wanted {
                return middle(bucket);
            }
        }
        0.0
    }

    /// The tool's drawing.
    pub(super) fn drawing(&self) -> String {
        let mut out = String::from(
            "Latency histogram (values are in milliseconds)\n       \
             value  ------------- distribution ------------- count\n",
        );
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let stars = "*".repeat((count * STARS).div_ceil(most).min(STARS) as usize);
            out.push_str(&format!("{:12.3} |{stars:<40} {count}\n", middle(bucket)));
        }
        out.push_str(" \n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the tool printed.
    #[test]
    fn buckets_are_those_of_the_tool() {
        let mut latency = Latency::default();
        latency.add(32_420_000);
        assert_eq!(format!("{:.3}", latency.percentile(99)), "32.525");
        for (ns, printed) in [(4_480_000, "4.487"), (4_570_000, "4.569"), (4_650_000, "4.652")] {
            let mut one = Latency::default();
            one.add(ns);
            assert_eq!(format!("{:.3}", one.percentile(50)), printed);
            latency.merge(&one);
        }
        assert_eq!(format!("{:.3}", latency.percentile(50)), "4.569");
        assert_eq!(format!("{:.3}", latency.percentile(100)), "32.525");
        let drawing = latency.drawing();
        assert!(drawing.contains("      32.525 |**************************************** 1\n"));
        assert_eq!(Latency::default().percentile(95), 0.0);
        latency.add(u64::MAX);
        assert_eq!(format!("{:.0}", latency.percentile(100)), "100000");
    }
}
