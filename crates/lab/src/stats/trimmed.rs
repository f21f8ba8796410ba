//! The trimmed mean and its interval: for many short measurements of which some were disturbed.
//!
//! Source: Tukey and McLaughlin, "Less vulnerable confidence and significance procedures for
//! location based on a single sample", Sankhya A 25, 1963: Student's t of the trimmed mean with the
//! Winsorized variance.

use super::bootstrap::Interval;
use super::center::{mean, sorted};
use super::normal;

/// The part of the values that is left out at either end.
pub const TRIM: f64 = 0.2;

/// The mean of the values without the lowest and the highest [`TRIM`] of them, and the interval of
/// 95 % around it; the interval is everything where fewer than two values are left.
pub fn trimmed_mean(values: &[f64]) -> (f64, Interval) {
    trimmed(values, TRIM)
}

fn trimmed(values: &[f64], part: f64) -> (f64, Interval) {
    let values = sorted(values);
    let cut = (values.len() as f64 * part) as usize;
    let kept = &values[cut..values.len() - cut];
    let center = mean(kept);
    if kept.len() < 2 {
        return (center, Interval { low: f64::NEG_INFINITY, high: f64::INFINITY });
    }
    let (low, high) = (kept[0], kept[kept.len() - 1]);
    let winsorized: Vec<f64> = values.iter().map(|value| value.clamp(low, high)).collect();
    let middle = mean(&winsorized);
    let squares: f64 = winsorized.iter().map(|value| (value - middle).powi(2)).sum();
    let left = kept.len() as f64;
    let error = (squares / (left * (left - 1.0))).sqrt();
    let half = t_quantile(0.975, left - 1.0) * error;
    (center, Interval { low: center - half, high: center + half })
}

/// The quantile of Student's t by the expansion of Abramowitz and Stegun, "Handbook of Mathematical
/// Functions", 26.7.5: to two digits behind the point from five degrees of freedom on.
fn t_quantile(p: f64, freedom: f64) -> f64 {
    let z = normal::quantile(p);
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Student's t, 0.975.
        for (freedom, t) in [(5.0, 2.571), (9.0, 2.262), (17.0, 2.110), (60.0, 2.000)] {
            assert!((t_quantile(0.975, freedom) - t).abs() < 4e-3, "{freedom}");
        }
    }

    #[test]
    fn without_trimming_it_is_students_interval() {
        // 1..=10: mean 5.5, deviation 3.02765, error 0.957427, half 2.262 * error.
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let (center, interval) = trimmed(&values, 0.0);
        assert!((center - 5.5).abs() < 1e-12);
        assert!((interval.half() - 2.1658).abs() < 2e-3, "{interval:?}");
    }

    #[test]
    fn disturbed_values_change_little() {
        // 1..=10 with 20 % cut: mean of 3..=8; Winsorized sum of squares 42.5, error
        // sqrt(42.5 / (6 * 5)) = 1.1902, t of 5 degrees 2.571.
        let mut values: Vec<f64> = (1..=10).map(f64::from).collect();
        let (center, interval) = trimmed_mean(&values);
        assert!((center - 5.5).abs() < 1e-12);
        assert!((interval.half() - 2.571 * 1.190_2).abs() < 6e-3, "{interval:?}");
        values[9] = 1e6;
        assert_eq!(trimmed_mean(&values), (center, interval));
    }

    #[test]
    fn of_one_value_nothing_is_known() {
        let (center, interval) = trimmed_mean(&[3.0]);
        assert_eq!(center, 3.0);
        assert!(interval.half().is_infinite());
    }
}
