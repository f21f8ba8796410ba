//! The order of runs, and whether the machine changed meanwhile.

use super::center::mean;
use super::rank::ranks;

/// The order of `rounds` runs of each of `variants` variants, as (variant, round): ABBA, never
/// AABB, so that a slow change of the machine meets all of them alike.
pub fn abba(variants: usize, rounds: usize) -> Vec<(usize, usize)> {
    (0..rounds)
        .flat_map(|round| {
            let place = move |i| if round % 2 == 0 { i } else { variants - 1 - i };
            (0..variants).map(move |i| (place(i), round))
        })
        .collect()
}

/// Spearman's rank correlation of the values with their order; 0 of fewer than three values or of
/// equal ones.
pub fn order_correlation(values: &[f64]) -> f64 {
    if values.len() < 3 {
        return 0.0;
    }
    let (places, ranks) =
        (ranks(&(0..values.len()).map(|i| i as f64).collect::<Vec<_>>()), ranks(values));
    let (center, middle) = (mean(&places), mean(&ranks));
    let (mut product, mut left, mut right) = (0.0, 0.0, 0.0);
    for (place, rank) in places.iter().zip(&ranks) {
        let (a, b) = (place - center, rank - middle);
        product += a * b;
        left += a * a;
        right += b * b;
    }
    if right == 0.0 { 0.0 } else { product / (left * right).sqrt() }
}

/// The correlation with the order, where it is a warning: at least six values, and a correlation
/// that chance gives less than once in twenty (|rho| sqrt(n - 1) above 1.96).
pub fn drift(values: &[f64]) -> Option<f64> {
    let rho = order_correlation(values);
    let distance = rho.abs() * (values.len().saturating_sub(1) as f64).sqrt();
    (values.len() >= 6 && distance > 1.96).then_some(rho)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_alternate_and_a_drift_is_seen() {
        let order = abba(2, 3);
        assert_eq!(order, [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]);
        assert_eq!(drift(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Some(1.0));
        assert_eq!(drift(&[1.0, 2.0, 3.0]), None);
        assert_eq!(drift(&[3.0, 1.0, 2.0, 3.0, 1.0, 2.0]), None);
        // scipy.stats.spearmanr(range(5), [1, 3, 2, 5, 4]).statistic == 0.8
        assert!((order_correlation(&[1.0, 3.0, 2.0, 5.0, 4.0]) - 0.8).abs() < 1e-12);
        assert_eq!(order_correlation(&[2.0; 9]), 0.0);
    }
}
