//! Values of a profile with their units: times, sizes, rates, counts.

use base::Nanos;
use toml::de::DeValue;

/// Something that a key of a profile can stand for.
pub(crate) trait Quantity: Sized {
    /// What is accepted, as the end of an error message.
    const ACCEPTED: &'static str;

    /// The value, or `None` where it is none.
    fn read(value: &DeValue<'_>) -> Option<Self>;
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// Time to move `bytes`, rounded down.
    #[inline]
    pub fn time(self, bytes: u64) -> Nanos {
        match bytes.checked_mul(1_000_000_000) {
            Some(product) => Nanos(product / self.0),
            None => Nanos((bytes as u128 * 1_000_000_000 / self.0 as u128) as u64),
        }
    }

    /// Bytes that fit into `span`, rounded down.
    #[inline]
    pub fn bytes(self, span: Nanos) -> u64 {
        (span.0 as u128 * self.0 as u128 / 1_000_000_000) as u64
    }
}

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub u64);

impl Quantity for Nanos {
    const ACCEPTED: &'static str = "give a time with its unit, such as \"8.5 ms\" (ns, us, ms, s)";

    fn read(value: &DeValue<'_>) -> Option<Nanos> {
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        Some(Nanos(with_unit(value, &units)?))
    }
}

impl Quantity for Bytes {
    const ACCEPTED: &'static str = "give a size with its unit, such as \"128 KiB\" \
         (B, KiB, MiB, GiB, TiB, and kB, MB, GB, TB of 1000)";

    fn read(value: &DeValue<'_>) -> Option<Bytes> {
        Some(Bytes(with_unit(value, &SIZES)?))
    }
}

impl Quantity for Rate {
    const ACCEPTED: &'static str = "give a rate above zero with its unit, such as \"150 MB/s\" \
         (B/s, KiB/s, MiB/s, GiB/s, and kB/s, MB/s, GB/s of 1000)";

    fn read(value: &DeValue<'_>) -> Option<Rate> {
        let text = value.as_str()?.strip_suffix("/s")?;
        let rate = parse(text, &SIZES)?;
        (rate > 0).then_some(Rate(rate))
    }
}

impl Quantity for u64 {
    const ACCEPTED: &'static str = "give a whole number, 0 or more";

    fn read(value: &DeValue<'_>) -> Option<u64> {
        let number = value.as_integer()?;
        u64::from_str_radix(number.as_str(), number.radix()).ok()
    }
}

impl Quantity for f64 {
    const ACCEPTED: &'static str = "give a number, 0 or more";

    fn read(value: &DeValue<'_>) -> Option<f64> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok()?,
            _ => u64::read(value)? as f64,
        };
        (number >= 0.0 && f64::is_finite(number)).then_some(number)
    }
}

impl Quantity for bool {
    const ACCEPTED: &'static str = "give true or false";

    fn read(value: &DeValue<'_>) -> Option<bool> {
        value.as_bool()
    }
}

impl Quantity for String {
    const ACCEPTED: &'static str = "give a text in quotes that is not empty";

    fn read(value: &DeValue<'_>) -> Option<String> {
        value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned)
    }
}

const SIZES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];

fn with_unit(value: &DeValue<'_>, units: &[(&str, f64)]) -> Option<u64> {
    parse(value.as_str()?, units)
}

/// "8.5 ms" in the smallest unit, rounded; `None` where it is none, or beyond 2^53.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let product = number * factor;
    (product.is_finite() && product < 9e15).then(|| product.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> DeValue<'_> {
        DeValue::String(text.into())
    }

    #[test]
    fn units_are_understood_and_must_be_there() {
        let time = |text| Nanos::read(&value(text)).map(|time| time.0);
        assert_eq!(time("8.5 ms"), Some(8_500_000));
        assert_eq!(time("120us"), Some(120_000));
        for wrong in ["8.5", "ms", "-1 ms", "8.5 mm", "1 ms ms", "", "1e3 ms", "9999999999 s"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        let size = |text| Bytes::read(&value(text)).map(|size| size.0);
        assert_eq!((size("128 KiB"), size("1 MB")), (Some(131_072), Some(1_000_000)));
        let rate = |text| Rate::read(&value(text)).map(|rate| rate.0);
        assert_eq!(rate("151.4 MB/s"), Some(151_400_000));
        assert_eq!((rate("0 MB/s"), rate("151 MB")), (None, None));
    }

    #[test]
    fn a_rate_turns_bytes_into_time_and_back() {
        let rate = Rate(151_400_000);
        assert_eq!(rate.time(131_072), Nanos(865_733));
        assert_eq!(rate.bytes(Nanos::from_secs(1)), 151_400_000);
        assert_eq!(rate.time(1 << 40), Nanos(7_262_296_088_348));
    }
}
