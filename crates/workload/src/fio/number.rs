//! Numbers as fio prints them: a few digits and a unit.

/// Letters of the powers of 1000 or 1024.
const POWERS: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// `value` in at most `width` characters, where the last may be a letter for a power of `base`
/// (1000 or 1024) times `scale`, the power that it already has.
///
/// Numbers of up to `width` digits stay whole; larger ones are divided and get as many decimals as
/// there is room for.
fn scaled(value: u64, width: usize, base: u64, scale: usize) -> (String, usize) {
    let (mut whole, mut divisor, mut power) = (value, 1u64, scale);
    while digits(whole) > width && power + 1 < POWERS.len() {
        divisor = divisor.saturating_mul(base);
        whole = value / divisor;
        power += 1;
    }
    let decimals = width.saturating_sub(digits(whole) + 1);
    if divisor == 1 || decimals == 0 {
        let rounded = if divisor == 1 { value } else { (value + divisor / 2) / divisor };
        return (rounded.to_string(), power);
    }
    (format!("{:.decimals$}", value as f64 / divisor as f64), power)
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A count, as `12.1k`.
pub fn count(value: u64) -> String {
    let (text, power) = scaled(value, 4, 1000, 0);
    text + POWERS[power]
}

/// A time in its unit, as `3015.7k`.
pub fn time(value: u64) -> String {
    let (text, power) = scaled(value, 6, 1000, 0);
    text + POWERS[power]
}

/// Bytes in powers of 1024, as `47.3MiB`.
pub fn binary(bytes: u64) -> String {
    let (text, power) = scaled(bytes, 4, 1024, 0);
    match power {
        0 => format!("{text}B"),
        1 => format!("{text}KiB"),
        _ => format!("{text}{}iB", POWERS[power]),
    }
}

/// Bytes in powers of 1000, as `49.6MB`.
pub fn decimal(bytes: u64) -> String {
    let (text, power) = scaled(bytes, 4, 1000, 0);
    format!("{text}{}B", POWERS[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values and texts are pairs that fio 3.33 printed, or follow from them.
    #[test]
    fn numbers_look_like_those_of_fio() {
        for (value, text) in
            [(451_537, "452k"), (64_000, "64.0k"), (102_400, "102k"), (52_800, "52.8k")]
        {
            assert_eq!(count(value), text);
        }
        assert_eq!((count(9999), count(0)), ("9999".into(), "0".into()));
        assert_eq!(time(3_015_701), "3015.7k");
        assert_eq!(time(19_696), "19696");
        for (bytes, text) in [
            (1 << 20, "1024KiB"),
            (256 << 10, "256KiB"),
            (64 << 10, "64.0KiB"),
            (2856 << 10, "2856KiB"),
            (4096, "4096B"),
            (1_849_000_000, "1763MiB"),
        ] {
            assert_eq!(binary(bytes), text);
        }
        assert_eq!(decimal(2_097_152), "2097kB");
        assert_eq!(decimal(65_536), "65.5kB");
        assert_eq!(decimal(1_849_000_000), "1849MB");
    }
}
