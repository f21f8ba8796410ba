//! Intervals by the bootstrap, with a fixed seed.
//!
//! Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 13 and 14.

use base::Rng;

use super::center::{quantile_sorted, sorted};
use super::normal;

/// Resamples of every interval.
pub const RESAMPLES: usize = 10_000;
/// The seed of every interval.
const SEED: u64 = 0x10_ba7;

/// An interval of confidence.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies in it, ends included.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Half of its width.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The statistic of `RESAMPLES` resamples, ascending. `draw` makes one resample's statistic.
fn resamples(stream: u64, mut draw: impl FnMut(&mut Rng) -> f64) -> Vec<f64> {
    let mut rng = Rng::new(SEED, stream);
    sorted(&(0..RESAMPLES).map(|_| draw(&mut rng)).collect::<Vec<_>>())
}

fn pick(rng: &mut Rng, values: &[f64], into: &mut Vec<f64>) {
    into.clear();
    into.extend((0..values.len()).map(|_| values[rng.below(values.len() as u64) as usize]));
}

fn ends(sorted: &[f64], low: f64, high: f64) -> Interval {
    Interval { low: quantile_sorted(sorted, low), high: quantile_sorted(sorted, high) }
}

/// The 95 % percentile interval of a statistic of one sample, which must not be empty.
pub fn percentile(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Interval {
    let mut sample = Vec::with_capacity(values.len());
    let all = resamples(1, |rng| {
        pick(rng, values, &mut sample);
        statistic(&sample)
    });
    ends(&all, 0.025, 0.975)
}

/// The 95 % BCa interval of a statistic of one sample, which must not be empty: the percentile
/// interval corrected for bias (from the share of resamples below the statistic) and for
/// acceleration (from the jackknife).
pub fn bca(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Interval {
    let mut sample = Vec::with_capacity(values.len());
    let all = resamples(1, |rng| {
        pick(rng, values, &mut sample);
        statistic(&sample)
    });
    let observed = statistic(values);
    let below = all.iter().filter(|&&value| value < observed).count();
    let equal = all.iter().filter(|&&value| value == observed).count();
    let share = (below as f64 + equal as f64 / 2.0) / all.len() as f64;
    let bias = normal::quantile(share);
    let acceleration = acceleration(values, &statistic);
    if !bias.is_finite() || !acceleration.is_finite() {
        return ends(&all, 0.025, 0.975);
    }
    let [low, high] = [0.025, 0.975].map(|p| {
        let z = bias + normal::quantile(p);
        normal::below(bias + z / (1.0 - acceleration * z))
    });
    ends(&all, low, high)
}

fn acceleration(values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> f64 {
    let without = |index: usize| {
        let mut rest = values.to_vec();
        rest.remove(index);
        statistic(&rest)
    };
    if values.len() < 2 {
        return 0.0;
    }
    let left: Vec<f64> = (0..values.len()).map(without).collect();
    let center = super::mean(&left);
    let moment = |power: i32| left.iter().map(|value| (center - value).powi(power)).sum::<f64>();
    let spread = moment(2);
    if spread == 0.0 { 0.0 } else { moment(3) / (6.0 * spread.powf(1.5)) }
}

/// The 95 % percentile interval of a statistic of two independent samples, neither empty.
pub fn two_samples(
    before: &[f64],
    after: &[f64],
    statistic: impl Fn(&[f64], &[f64]) -> f64,
) -> Interval {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let all = resamples(2, |rng| {
        pick(rng, before, &mut left);
        pick(rng, after, &mut right);
        statistic(&left, &right)
    });
    ends(&all, 0.025, 0.975)
}

/// As [`two_samples`], of pairs (the same seed before and after), which stay together.
///
/// # Panics
/// Where the two are not of one length.
pub fn pairs(before: &[f64], after: &[f64], statistic: impl Fn(&[f64], &[f64]) -> f64) -> Interval {
    assert_eq!(before.len(), after.len(), "pairs have two sides");
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let all = resamples(3, |rng| {
        left.clear();
        right.clear();
        for _ in 0..before.len() {
            let index = rng.below(before.len() as u64) as usize;
            left.push(before[index]);
            right.push(after[index]);
        }
        statistic(&left, &right)
    });
    ends(&all, 0.025, 0.975)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{mean, median};

    /// The survival times of the treated mice in Efron and Tibshirani, table 2.1.
    const MICE: [f64; 7] = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];

    fn close(got: Interval, low: f64, high: f64, within: f64) {
        assert!((got.low - low).abs() < within && (got.high - high).abs() < within, "{got:?}");
    }

    #[test]
    fn intervals_agree_with_scipy() {
        // scipy.stats.bootstrap((mice,), np.mean, n_resamples=300_000, method=...)
        close(percentile(&MICE, mean), 43.43, 134.71, 1.5);
        close(bca(&MICE, mean), 46.29, 138.86, 1.5);
        close(percentile(&MICE, median), 23.0, 141.0, 1e-9);
    }

    #[test]
    fn an_interval_is_the_same_every_time_and_a_point_where_nothing_varies() {
        assert_eq!(bca(&MICE, mean), bca(&MICE, mean));
        assert_eq!(bca(&[5.0; 6], median), Interval { low: 5.0, high: 5.0 });
        assert_eq!(percentile(&[7.0], mean), Interval { low: 7.0, high: 7.0 });
    }

    #[test]
    fn pairs_stay_together() {
        // Seeds differ by a factor of ten, the ratio is always 2.
        let before = [1.0, 10.0, 100.0, 1000.0, 5.0];
        let after = before.map(|value| value * 2.0);
        let ratio = |b: &[f64], a: &[f64]| median(a) / median(b);
        assert_eq!(pairs(&before, &after, ratio), Interval { low: 2.0, high: 2.0 });
        assert!(two_samples(&before, &after, ratio).half() > 1.0);
    }
}
