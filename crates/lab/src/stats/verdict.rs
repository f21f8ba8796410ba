//! Before and after: one row of a comparison, and the word for it.

use serde::{Deserialize, Serialize};

use super::bootstrap::{self, Interval};
use super::center::{median, sorted};
use super::effect::cliffs_delta;
use super::rank;

/// The smallest change that counts, as a part of the value before.
pub const THRESHOLD: f64 = 0.02;
/// Runs below which there is no interval.
pub const RUNS_MIN: usize = 5;

/// Which direction is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: rates.
    #[default]
    Higher,
    /// Less is better: times.
    Lower,
}

/// The word for a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval lies above zero, and the change is not below the threshold.
    Better,
    /// The interval lies below zero, and the change is not below the threshold.
    Worse,
    /// The interval lies within the threshold on both sides.
    Same,
    /// Anything else: more runs are needed.
    Unclear,
}

impl Verdict {
    /// A sign beside the colour.
    pub fn sign(self) -> &'static str {
        match self {
            Verdict::Better => "▲",
            Verdict::Worse => "▼",
            Verdict::Same => "=",
            Verdict::Unclear => "?",
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::Unclear => "unclear",
        }
    }
}

/// One metric before and after. Changes are parts of the value before, positive where it became
/// better.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Runs before and after.
    pub n: (usize, usize),
    /// The runs are pairs of one seed each.
    pub paired: bool,
    /// Median before.
    pub before: f64,
    /// Its interval, from five runs on.
    pub before_interval: Option<Interval>,
    /// Median after.
    pub after: f64,
    /// Its interval.
    pub after_interval: Option<Interval>,
    /// The change of the medians.
    pub change: f64,
    /// Its interval.
    pub change_interval: Option<Interval>,
    /// Cliff's delta, positive where it became better.
    pub effect: f64,
    /// Probability where nothing differs; adjusted by [`holm`] in a report.
    pub p: f64,
    /// The word.
    pub verdict: Verdict,
    /// Why, in words: the range where there are too few runs, the runs still needed.
    pub reason: String,
}

/// Compares independent runs. Neither side may be empty.
pub fn compare(before: &[f64], after: &[f64], better: Better, threshold: f64) -> Comparison {
    let p = rank::mann_whitney(before, after).p;
    build(before, after, better, threshold, false, p)
}

/// Compares runs paired by seed. Neither side may be empty.
///
/// # Panics
/// Where the two are not of one length.
pub fn compare_paired(before: &[f64], after: &[f64], better: Better, threshold: f64) -> Comparison {
    assert_eq!(before.len(), after.len(), "pairs have two sides");
    let differences: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let p = rank::wilcoxon(&differences).p;
    build(before, after, better, threshold, true, p)
}

fn build(
    before: &[f64],
    after: &[f64],
    better: Better,
    threshold: f64,
    paired: bool,
    p: f64,
) -> Comparison {
    let sign = if better == Better::Higher { 1.0 } else { -1.0 };
    let change_of = |b: &[f64], a: &[f64]| sign * (median(a) / median(b) - 1.0);
    let enough = before.len() >= RUNS_MIN && after.len() >= RUNS_MIN;
    // Of what does not vary an interval says nothing.
    let varies = |values: &[f64]| values.iter().any(|value| *value != values[0]);
    let interval =
        |values: &[f64]| (enough && varies(values)).then(|| bootstrap::bca(values, median));
    let any = varies(before) || varies(after);
    let change_interval = (enough && any).then(|| match paired {
        true => bootstrap::pairs(before, after, change_of),
        false => bootstrap::two_samples(before, after, change_of),
    });
    let change = change_of(before, after);
    let n = before.len().min(after.len());
    let point = (enough && !any).then_some(Interval { low: change, high: change });
    let (verdict, mut reason) = judge(change, change_interval.or(point), n, threshold);
    if point.is_some() {
        reason = "the same at every seed".to_owned();
    } else if change_interval.is_none() {
        reason = format!("{reason}; before {}, after {}", range(before), range(after));
    }
    Comparison {
        n: (before.len(), after.len()),
        paired,
        before: median(before),
        before_interval: interval(before),
        after: median(after),
        after_interval: interval(after),
        change,
        change_interval,
        effect: sign * cliffs_delta(before, after),
        p,
        verdict,
        reason,
    }
}

fn range(values: &[f64]) -> String {
    let sorted = sorted(values);
    match (sorted.first(), sorted.last()) {
        (Some(low), Some(high)) if low != high => format!("{low:.4} to {high:.4}"),
        (Some(low), _) => format!("{low:.4}"),
        _ => "nothing".to_owned(),
    }
}

/// The word for a change with its interval over `n` runs, and why.
pub fn judge(
    change: f64,
    interval: Option<Interval>,
    n: usize,
    threshold: f64,
) -> (Verdict, String) {
    let Some(interval) = interval else {
        return (Verdict::Unclear, format!("{n} of at least {RUNS_MIN} runs"));
    };
    let percent = threshold * 100.0;
    if interval.low > -threshold && interval.high < threshold {
        return (Verdict::Same, format!("the interval lies within ±{percent} %"));
    }
    if interval.low > 0.0 && change >= threshold {
        return (Verdict::Better, format!("above zero, and at least {percent} %"));
    }
    if interval.high < 0.0 && change <= -threshold {
        return (Verdict::Worse, format!("below zero, and at least {percent} %"));
    }
    (Verdict::Unclear, more_runs(change, interval, n, threshold))
}

/// How many runs would make the interval narrow enough, if it shrinks with the root of their
/// number and the change stays.
fn more_runs(change: f64, interval: Interval, n: usize, threshold: f64) -> String {
    let room = if change.abs() >= threshold { change.abs() } else { threshold - change.abs() };
    let factor = (interval.half() / room.max(1e-9)).powi(2);
    let needed = (n as f64 * factor).ceil();
    match needed.is_finite() && needed < 1e6 {
        true => format!("about {} runs would decide", needed.max(n as f64 + 1.0)),
        false => "at the threshold: no number of runs decides".to_owned(),
    }
}

/// The p below which a difference counts as shown.
pub const ALPHA: f64 = 0.05;

/// Pairs from which an exact paired test of the first of so many rows can fall below [`ALPHA`]
/// after Holm's adjustment: of `n` pairs that all point one way it is 2^(1-n).
pub fn pairs_for(rows: usize) -> usize {
    let least = |n: usize| 0.5f64.powi(n as i32 - 1) * rows as f64;
    (2..64).find(|&n| least(n) <= ALPHA).unwrap_or(64)
}

/// Holm's adjustment of the p of one report's rows, in their order (Holm, "A simple sequentially
/// rejective multiple test procedure", 1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let (mut adjusted, mut least) = (vec![0.0; p.len()], 0.0f64);
    for (place, &index) in order.iter().enumerate() {
        least = least.max((p[index] * (p.len() - place) as f64).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [f64; 5] = [100.0, 101.0, 99.0, 100.5, 99.5];

    fn times(factor: f64) -> Vec<f64> {
        BASE.iter().map(|value| value * factor).collect()
    }

    #[test]
    fn the_four_verdicts_need_interval_and_threshold() {
        let verdict = |factor, better| compare(&BASE, &times(factor), better, THRESHOLD).verdict;
        assert_eq!(verdict(1.2, Better::Higher), Verdict::Better);
        assert_eq!(verdict(1.2, Better::Lower), Verdict::Worse);
        assert_eq!(verdict(1.0, Better::Higher), Verdict::Same);
        assert_eq!(verdict(1.015, Better::Higher), Verdict::Unclear);
        // Clearly different from zero, and yet below the threshold: neither better nor the same.
        let pair = compare_paired(&BASE, &times(1.01), Better::Higher, THRESHOLD);
        assert_eq!(pair.verdict, Verdict::Same);
        assert!(pair.change_interval.is_some_and(|interval| interval.low > 0.0));
    }

    #[test]
    fn fewer_than_five_runs_have_a_range_and_no_verdict() {
        let row = compare(&[1.0, 2.0], &[5.0, 6.0], Better::Higher, THRESHOLD);
        assert_eq!((row.verdict, row.change_interval), (Verdict::Unclear, None));
        assert_eq!(
            row.reason,
            "2 of at least 5 runs; before 1.0000 to 2.0000, after 5.0000 to 6.0000"
        );
    }

    /// Bug: "worse, -99 %" beside a p of 1, which five pairs over many rows can never leave, and
    /// intervals from -79.9 to -79.9.
    #[test]
    fn p_can_fall_and_what_does_not_vary_has_no_interval() {
        assert_eq!([1, 8, 60].map(pairs_for), [6, 9, 12]);
        let before: Vec<f64> = (0..9).map(|i| 100.0 + f64::from(i)).collect();
        let after: Vec<f64> = before.iter().map(|value| value / 2.0).collect();
        let row = compare_paired(&before, &after, Better::Higher, THRESHOLD);
        assert!(holm(&[row.p; 8]).iter().all(|p| *p < ALPHA), "{}", row.p);
        let row = compare_paired(&[100.0; 5], &[20.0; 5], Better::Higher, THRESHOLD);
        assert_eq!((row.verdict, row.change_interval), (Verdict::Worse, None));
        assert_eq!((row.before_interval, row.reason.as_str()), (None, "the same at every seed"));
    }

    #[test]
    fn more_runs_are_asked_for_where_they_would_decide() {
        let interval = Some(Interval { low: -0.01, high: 0.11 });
        let (verdict, reason) = judge(0.05, interval, 5, THRESHOLD);
        assert_eq!((verdict, reason.as_str()), (Verdict::Unclear, "about 8 runs would decide"));
    }

    #[test]
    fn holm_adjusts_as_published() {
        // statsmodels.stats.multitest.multipletests([0.01, 0.04, 0.03, 0.005], method="holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        assert!(adjusted.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-12));
        assert!(holm(&[]).is_empty());
    }
}
