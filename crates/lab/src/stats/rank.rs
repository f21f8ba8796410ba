//! Tests by ranks: Mann-Whitney, Wilcoxon; exact where the samples are small, ties included.

use super::normal;

/// Largest number of values for which probabilities are counted out.
const EXACT_MAX: usize = 50;

/// A statistic and how probable one at least as extreme is, on both sides, where nothing differs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Test {
    /// U of the second sample, or W (the smaller rank sum).
    pub statistic: f64,
    /// From 0 to 1.
    pub p: f64,
}

/// Ranks from 1 of the values in their order; equal ones share the mean of their ranks. Doubled, so
/// that they are whole.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let same = |&&index: &&usize| values[index] == values[order[start]];
        let end = start + order[start..].iter().take_while(same).count();
        order[start..end].iter().for_each(|&index| ranks[index] = start + 1 + end);
        start = end;
    }
    ranks
}

/// Ranks from 1; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    doubled_ranks(values).into_iter().map(|rank| rank as f64 / 2.0).collect()
}

/// Sum of t^3 - t over the groups of equal ranks.
fn ties(ranks: &[usize]) -> f64 {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    let cube = |group: &[usize]| (group.len().pow(3) - group.len()) as f64;
    ranks.chunk_by(|a, b| a == b).map(cube).sum()
}

fn both_sides(counts: &[f64], observed: usize) -> f64 {
    let total: f64 = counts.iter().sum();
    let low: f64 = counts[..=observed].iter().sum();
    let high: f64 = counts[observed..].iter().sum();
    (2.0 * low.min(high) / total).min(1.0)
}

/// The Mann-Whitney U test of two independent samples, neither empty. Exact for up to 50 values
/// together (the permutation distribution, ties as they are), else normal with corrections for ties
/// and continuity.
pub fn mann_whitney(before: &[f64], after: &[f64]) -> Test {
    let all: Vec<f64> = before.iter().chain(after).copied().collect();
    let ranks = doubled_ranks(&all);
    let sum: usize = ranks[before.len()..].iter().sum();
    let (n, m) = (before.len() as f64, after.len() as f64);
    let u = sum as f64 / 2.0 - m * (m + 1.0) / 2.0;
    if all.len() <= EXACT_MAX {
        let counts = subset_sums(&ranks, after.len());
        return Test { statistic: u, p: both_sides(&counts, sum) };
    }
    let total = n + m;
    let variance = n * m / 12.0 * ((total + 1.0) - ties(&ranks) / (total * (total - 1.0)));
    Test { statistic: u, p: two_sided(u - n * m / 2.0, variance) }
}

fn two_sided(distance: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (distance.abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal::below(-z)).min(1.0)
}

/// How many subsets of `size` elements have each sum.
fn subset_sums(elements: &[usize], size: usize) -> Vec<f64> {
    let top: usize = elements.iter().sum();
    let mut counts = vec![vec![0.0; top + 1]; size + 1];
    counts[0][0] = 1.0;
    for &element in elements {
        for taken in (1..=size).rev() {
            let (less, more) = counts.split_at_mut(taken);
            for sum in element..=top {
                more[0][sum] += less[taken - 1][sum - element];
            }
        }
    }
    counts.swap_remove(size)
}

/// The Wilcoxon signed-rank test of differences of pairs; zeros are left out. Exact for up to 50
/// differences, ties as they are, else normal. p is 1 where every difference is zero.
pub fn wilcoxon(differences: &[f64]) -> Test {
    let present: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0).collect();
    if present.is_empty() {
        return Test { statistic: 0.0, p: 1.0 };
    }
    let ranks = doubled_ranks(&present.iter().map(|d| d.abs()).collect::<Vec<_>>());
    let positive: usize =
        ranks.iter().zip(&present).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let total: usize = ranks.iter().sum();
    let statistic = positive.min(total - positive) as f64 / 2.0;
    let n = present.len() as f64;
    if present.len() > EXACT_MAX {
        let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties(&ranks) / 48.0;
        return Test { statistic, p: two_sided(statistic - total as f64 / 4.0, variance) };
    }
    let mut counts = vec![0.0; total + 1];
    counts[0] = 1.0;
    for &rank in &ranks {
        for sum in (rank..=total).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    Test { statistic, p: both_sides(&counts, positive) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(test: Test, statistic: f64, p: f64) {
        assert_eq!(test.statistic, statistic);
        assert!((test.p - p).abs() < 1e-9, "{} instead of {p}", test.p);
    }

    #[test]
    fn mann_whitney_agrees_with_scipy() {
        // scipy.stats.mannwhitneyu(after, before, method="exact"); its documentation's example of
        // ages: U = 17 with p = 0.1111111111111111.
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        close(mann_whitney(&females, &males), 17.0, 1.0 / 9.0);
        close(mann_whitney(&males, &females), 3.0, 1.0 / 9.0);
        close(
            mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]),
            25.0,
            2.0 / 252.0,
        );
        // All equal: no evidence of anything.
        close(mann_whitney(&[3.0; 4], &[3.0; 4]), 8.0, 1.0);
    }

    #[test]
    fn ties_are_counted_out() {
        // Ranks 1.5 1.5 | 3 4.5 4.5 with two and three values: 10 ways, of which one is as low.
        close(mann_whitney(&[1.0, 1.0], &[2.0, 3.0, 3.0]), 6.0, 0.2);
    }

    #[test]
    fn large_samples_use_the_normal_distribution() {
        let before: Vec<f64> = (0..40).map(f64::from).collect();
        let after: Vec<f64> = (0..40).map(|i| f64::from(i) + 7.5).collect();
        // scipy.stats.mannwhitneyu(after, before, method="asymptotic").pvalue
        let test = mann_whitney(&before, &after);
        close(test, 1072.0, 0.008_988_007_122_138_847);
    }

    #[test]
    fn wilcoxon_agrees_with_scipy_and_the_textbook() {
        // scipy.stats.wilcoxon's example (Cox's plants, Darwin): W = 24, p = 0.041259765625.
        let plants = [
            6.0, 8.0, 14.0, 16.0, 23.0, 24.0, 28.0, 29.0, 41.0, -48.0, 49.0, 56.0, 60.0, -67.0,
            75.0,
        ];
        close(wilcoxon(&plants), 24.0, 0.041_259_765_625);
        close(wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0]), 0.0, 0.0625);
        close(wilcoxon(&[0.0, 0.0]), 0.0, 1.0);
        // scipy.stats.wilcoxon(.., method="asymptotic", correction=True)
        let many: Vec<f64> = (0..60).map(|i| f64::from(i % 7) - 1.5).collect();
        close(wilcoxon(&many), 333.0, 1.611_391_582_793_413e-5);
    }
}
