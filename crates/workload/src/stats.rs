//! Minimum, maximum, mean and sample deviation of a stream of values.

/// A running summary (Welford's method, so that long runs do not lose digits).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    count: u64,
    min: u64,
    max: u64,
    mean: f64,
    squares: f64,
}

impl Stats {
    /// No values.
    pub fn new() -> Stats {
        Stats::default()
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        let delta = value as f64 - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value as f64 - self.mean);
    }

    /// Adds all values of another summary.
    pub fn merge(&mut self, other: &Stats) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (own, more) = (self.count as f64, other.count as f64);
        let delta = other.mean - self.mean;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.mean += delta * more / (own + more);
        self.squares += other.squares + delta * delta * own * more / (own + more);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value, 0 without any.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// The largest value, 0 without any.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean, 0 without values.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The sum of all values.
    pub fn sum(&self) -> f64 {
        self.mean * self.count as f64
    }

    /// The sample deviation (divided by count - 1), 0 below two values.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_the_same_as_adding_all() {
        let values = [3u64, 900, 41, 7, 7, 12_000, 5, 0];
        let mut all = Stats::new();
        values.iter().for_each(|&value| all.add(value));
        for cut in 0..=values.len() {
            let (mut left, mut right) = (Stats::new(), Stats::new());
            values[..cut].iter().for_each(|&value| left.add(value));
            values[cut..].iter().for_each(|&value| right.add(value));
            left.merge(&right);
            assert_eq!((left.count(), left.min(), left.max()), (8, 0, 12_000));
            assert!((left.mean() - all.mean()).abs() < 1e-9);
            assert!((left.deviation() - all.deviation()).abs() < 1e-6);
        }
        assert!((all.deviation() - 4_205.56).abs() < 0.01, "{}", all.deviation());
    }
}
