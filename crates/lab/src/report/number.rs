//! How figures are written.

/// A figure with so many decimals; small ones keep three digits.
pub fn number(value: f64, decimals: usize) -> String {
    let decimals = if value != 0.0 && value.abs() < 1.0 { decimals.max(3) } else { decimals };
    format!("{value:.decimals$}")
}

pub fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| number(value, decimals))
}
