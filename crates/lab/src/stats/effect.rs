//! The size of a difference, apart from its significance.

use super::center::median;

/// Cliff's delta: how much more often a value of `after` exceeds one of `before` than the other way
/// round, from -1 to 1 (Cliff, "Dominance statistics: Ordinal analyses to answer ordinal
/// questions", 1993). NaN where one is empty.
pub fn cliffs_delta(before: &[f64], after: &[f64]) -> f64 {
    let pairs = after.iter().flat_map(|a| before.iter().map(move |b| a.total_cmp(b) as i8 as f64));
    pairs.sum::<f64>() / (before.len() * after.len()) as f64
}

/// The word for a delta: negligible below 0.147, small below 0.33, medium below 0.474, else large
/// (Romano and others, "Appropriate statistics for ordinal level data", 2006).
pub fn size_word(delta: f64) -> &'static str {
    match delta.abs() {
        d if d < 0.147 => "negligible",
        d if d < 0.33 => "small",
        d if d < 0.474 => "medium",
        _ => "large",
    }
}

/// Hodges-Lehmann: the median of all differences `after - before`, the shift in units of the
/// metric. NaN where one is empty.
pub fn hodges_lehmann(before: &[f64], after: &[f64]) -> f64 {
    let pairs = after.iter().flat_map(|a| before.iter().map(move |b| a - b));
    median(&pairs.collect::<Vec<_>>())
}

/// The one-sample Hodges-Lehmann estimate: the median of the means of all pairs (each value with
/// itself too), for differences of pairs. NaN of nothing.
pub fn pseudo_median(differences: &[f64]) -> f64 {
    let each = |(i, &a): (usize, &f64)| {
        differences[i..].iter().map(move |&b| (a + b) / 2.0).collect::<Vec<_>>()
    };
    median(&differences.iter().enumerate().flat_map(each).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_those_of_counting_by_hand() {
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[4.0, 5.0]), 1.0);
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        // Nine pairs: four above, two equal, three below.
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[2.0, 3.0, 1.5]), 1.0 / 9.0);
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]), 10.0);
        // Walsh averages of 1, 2, 6: 1, 1.5, 3.5, 2, 4, 6; their median is 2.75.
        assert_eq!(pseudo_median(&[1.0, 2.0, 6.0]), 2.75);
        assert_eq!(size_word(-0.4), "medium");
    }
}
