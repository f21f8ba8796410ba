//! The normal distribution.

use std::f64::consts::SQRT_2;

/// The probability below `z`, to about 1e-15 by a series near 0 and a continued fraction in the
/// tails (Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.5 and 7.1.14).
pub fn below(z: f64) -> f64 {
    if z.is_nan() {
        return f64::NAN;
    }
    let tail = 0.5 * erfc(z.abs() / SQRT_2);
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// The complementary error function of a number that is not negative.
fn erfc(x: f64) -> f64 {
    if x > 27.0 {
        return 0.0;
    }
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.5 {
        // erf x = 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!
        let (mut term, mut sum, mut n) = (x, x, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        return 1.0 - 2.0 * scale * sum;
    }
    let fraction = (1..=60).rev().fold(x, |below, k| x + 0.5 * k as f64 / below);
    scale / fraction
}

/// The z below which the probability is `p` (0 to 1, both excluded; the ends are infinite), by
/// bisection on [`below`].
pub fn quantile(p: f64) -> f64 {
    match p {
        p if p.is_nan() => return f64::NAN,
        p if p <= 0.0 => return f64::NEG_INFINITY,
        p if p >= 1.0 => return f64::INFINITY,
        _ => {}
    }
    let (mut low, mut high) = (-38.0, 38.0);
    for _ in 0..120 {
        let middle = (low + high) / 2.0;
        if below(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_has_its_published_values() {
        // scipy.stats.norm.cdf / ppf.
        let table = [(0.0, 0.5), (1.0, 0.841_344_746_068_542_9), (1.96, 0.975_002_104_851_779_5)];
        for (z, p) in table {
            assert!((below(z) - p).abs() < 1e-13, "{z}");
            assert!((below(-z) - (1.0 - p)).abs() < 1e-13, "-{z}");
        }
        assert!((below(-4.5) / 3.397_673_124_730_053e-6 - 1.0).abs() < 1e-12);
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((quantile(0.01) + 2.326_347_874_040_840_8).abs() < 1e-12);
        assert_eq!(quantile(0.0), f64::NEG_INFINITY);
    }
}
