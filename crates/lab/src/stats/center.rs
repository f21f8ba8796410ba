//! Where the middle is.

/// The values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile `q` (0 to 1) by linear interpolation between the order statistics (type 7 of
/// Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996); NaN of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    quantile_sorted(&sorted(values), q)
}

/// As [`quantile`], of values in ascending order.
pub fn quantile_sorted(values: &[f64], q: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (place.floor() as usize, place.fract());
    let high = (low + 1).min(last);
    values[low] + (values[high] - values[low]) * part
}

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample (divided by n - 1); NaN of fewer than two.
pub fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// The geometric mean of positive values, for ratios; NaN of nothing.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The harmonic mean of positive values, for rates; NaN of nothing.
pub fn harmonic_mean(values: &[f64]) -> f64 {
    values.len() as f64 / values.iter().map(|value| value.recip()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centres_are_those_of_the_textbooks() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        // numpy.quantile([1, 2, 3, 4, 10], 0.9) == 7.6
        assert!((quantile(&[1.0, 2.0, 3.0, 4.0, 10.0], 0.9) - 7.6).abs() < 1e-12);
        // scipy.stats.gmean([1, 2, 4, 8]) == 2.8284271247461903; hmean == 2.1333333333333333
        assert!((geometric_mean(&[1.0, 2.0, 4.0, 8.0]) - 2.828_427_124_746_19).abs() < 1e-12);
        assert!((harmonic_mean(&[1.0, 2.0, 4.0, 8.0]) - 32.0 / 15.0).abs() < 1e-12);
        assert!(
            (deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) - 2.138_089_935).abs() < 1e-9
        );
        assert!(median(&[]).is_nan() && mean(&[]).is_nan());
    }
}
