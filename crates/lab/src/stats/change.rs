//! A change in percent, from pairs that were measured beside each other.

use super::bootstrap::{self, Interval};
use super::center::median;
use super::trimmed::trimmed_mean;
use super::verdict::{RUNS_MIN, THRESHOLD, Verdict, judge};

/// An interval of so many per cent or less is narrow.
const NARROW: f64 = 1.0;
/// Measuring may end early where the interval is narrower than this part of [`NARROW`].
const ENOUGH: f64 = 0.5;

/// How much more was done in the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Per cent; the centre of the pairs.
    pub percent: f64,
    /// 95 % of it.
    pub interval: Interval,
    /// Pairs of rounds or slices.
    pub pairs: usize,
}

impl Change {
    /// The change that these ratios say: their median, with an interval by the bootstrap.
    pub fn of(ratios: &[f64]) -> Change {
        let percent = percent(ratios);
        let interval = bootstrap::percentile(&percent, median);
        Change { percent: median(&percent), interval, pairs: ratios.len() }
    }

    /// As [`Change::of`] for many short slices, some of them disturbed: the trimmed mean.
    pub fn trimmed(ratios: &[f64]) -> Change {
        let (center, interval) = trimmed_mean(&percent(ratios));
        Change { percent: center, interval, pairs: ratios.len() }
    }

    /// How many times as many pairs would make the interval narrow: 1 where it is.
    pub fn times_missing(&self) -> f64 {
        (2.0 * self.interval.half() / NARROW).powi(2).max(1.0)
    }

    /// Is it a loss of more than one per cent, beyond doubt?
    pub fn loses(&self) -> bool {
        self.interval.high < -NARROW
    }

    /// Can a loss of more than one per cent be excluded?
    pub fn loses_nothing(&self) -> bool {
        self.interval.low > -NARROW
    }

    /// Better, worse, the same, or unclear.
    pub fn verdict(&self) -> Verdict {
        let part = |percent: f64| percent / 100.0;
        let Interval { low, high } = self.interval;
        let interval = Interval { low: part(low), high: part(high) };
        let enough = (self.pairs >= RUNS_MIN).then_some(interval);
        judge(part(self.percent), enough, self.pairs, THRESHOLD).0
    }

    /// Is the interval narrower than 1 %?
    pub fn narrow(&self) -> bool {
        2.0 * self.interval.half() <= NARROW
    }

    /// So narrow that more is not asked for.
    pub fn enough(&self) -> bool {
        2.0 * self.interval.half() <= NARROW * ENOUGH
    }

    /// What it says beside a published change: it needs an interval without zero and two per cent,
    /// and only then has a sign to compare.
    pub fn beside(&self, published: Option<f64>) -> &'static str {
        let found = self.verdict();
        let Some(published) = published else { return found.word() };
        let small = published.abs() < THRESHOLD * 100.0;
        match found {
            Verdict::Unclear if self.interval.contains(published) => {
                "unclear, holds the document's"
            }
            Verdict::Unclear => "unclear",
            Verdict::Same if small => "both within 2 %",
            Verdict::Same => "the document's alone",
            Verdict::Better | Verdict::Worse if small => "ours alone",
            Verdict::Better if published > 0.0 => "same sign",
            Verdict::Worse if published < 0.0 => "same sign",
            Verdict::Better | Verdict::Worse => "other sign",
        }
    }
}

fn percent(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(percent: f64, low: f64, high: f64) -> Change {
        Change { percent, interval: Interval { low, high }, pairs: 7 }
    }

    #[test]
    fn a_sign_needs_an_interval_without_zero() {
        let wide = change(-3.0, -9.0, 4.0);
        assert_eq!(wide.beside(Some(11.3)), "unclear");
        assert_eq!(wide.beside(Some(3.5)), "unclear, holds the document's");
        assert_eq!(wide.beside(None), "unclear");
        let better = change(5.0, 3.0, 7.0);
        assert_eq!(better.beside(Some(11.3)), "same sign");
        assert_eq!(better.beside(Some(-5.2)), "other sign");
        assert_eq!(better.beside(Some(0.5)), "ours alone");
        let same = change(0.2, -0.4, 0.9);
        assert_eq!(same.beside(Some(0.0)), "both within 2 %");
        assert_eq!(same.beside(Some(-13.6)), "the document's alone");
        let few = Change { pairs: 2, ..better };
        assert_eq!(few.beside(Some(11.3)), "unclear");
    }
}
