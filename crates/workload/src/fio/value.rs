//! Values of job files: sizes, times, ranges, lists.

use base::Nanos;

/// What a value is refused with: the rest of a sentence that begins with the value.
pub type Refusal = String;

fn split_number(text: &str) -> (&str, &str) {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |(at, c): (usize, char)| match hexadecimal {
        true => at < 2 || c.is_ascii_hexdigit(),
        false => c.is_ascii_digit(),
    };
    let end = text.char_indices().find(|&pair| !is_digit(pair)).map_or(text.len(), |(at, _)| at);
    text.split_at(end)
}

fn digits(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number with a unit of size. With `kb_base` 1024, `k` and `kb` are 1024 and `ki`, `kib` are
/// 1000; with 1000 it is the other way round. Products such as `8*4k` are computed.
///
/// # Errors
/// Not such a number, or above 2^64.
pub fn size(text: &str, kb_base: u64) -> Result<u64, Refusal> {
    let refused = || "is not a size (a number with k, m, g, t or p)".to_string();
    let mut product = 1u64;
    for factor in text.split('*') {
        let value = one_size(factor.trim(), kb_base).ok_or_else(refused)?;
        product = product.checked_mul(value).ok_or("is above 2^64")?;
    }
    Ok(product)
}

fn one_size(text: &str, kb_base: u64) -> Option<u64> {
    let (number, unit) = split_number(text);
    let unit = unit.to_ascii_lowercase();
    let binary = unit.ends_with("ib") || unit.ends_with('i');
    let bare = unit.trim_end_matches("ib").trim_end_matches('i').trim_end_matches('b');
    let power = match bare {
        "" if !binary => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let base: u64 = match (kb_base == 1000, binary) {
        (false, false) | (true, true) => 1024,
        _ => 1000,
    };
    digits(number)?.checked_mul(base.pow(power))
}

impl Default for Amount {
    /// Nothing.
    fn default() -> Self {
        Amount::Bytes(0)
    }
}

/// A size in bytes, or a share of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent of the file or device, 0 to 100.
    Percent(u8),
}

impl Amount {
    /// In bytes, of `whole`.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
        }
    }
}

/// A size, or a percentage.
///
/// # Errors
/// Neither.
pub fn amount(text: &str, kb_base: u64) -> Result<Amount, Refusal> {
    match text.strip_suffix('%') {
        None => size(text, kb_base).map(Amount::Bytes),
        Some(percent) => match percent.parse() {
            Ok(percent @ 0..=100) => Ok(Amount::Percent(percent)),
            _ => Err("is not a percentage from 0% to 100%".into()),
        },
    }
}

/// A span of time: d, h, m, s, ms, us, else `unit`.
///
/// # Errors
/// Not such a number, or above 584 years.
pub fn time(text: &str, unit: Nanos) -> Result<Nanos, Refusal> {
    let refused = || "is not a time (a number with d, h, m, s, ms or us)".to_string();
    let (number, suffix) = split_number(text);
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => unit.0,
        "d" => 86_400 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "s" => 1_000_000_000,
        "ms" | "msec" => 1_000_000,
        "us" | "usec" => 1000,
        "ns" | "nsec" => 1,
        _ => return Err(refused()),
    };
    let number = digits(number).ok_or_else(refused)?;
    number.checked_mul(unit).map(Nanos).ok_or_else(|| "is above 584 years".to_string())
}

/// A whole number; no unit, or one of size (`number_ios=1k`).
///
/// # Errors
/// Not a number, or outside of the range.
pub fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Refusal> {
    match size(text, 1024) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("is not a whole number from {} to {}", range.start(), range.end())),
    }
}

/// `0` or `1`; nothing stands for 1.
///
/// # Errors
/// Anything else.
pub fn boolean(text: &str) -> Result<bool, Refusal> {
    match text {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("is neither 0 nor 1".into()),
    }
}

/// Numbers separated by colons, each above 0 and not above `max`.
///
/// # Errors
/// None at all, more than 20, or one that is out of range.
pub fn floats(text: &str, max: f64) -> Result<Vec<f64>, Refusal> {
    let refused = || format!("is not a list of 1 to 20 numbers up to {max}, as 50:99:99.9");
    let list: Option<Vec<f64>> = text
        .split([':', ','])
        .map(|part| part.trim().parse().ok().filter(|&x: &f64| x > 0.0 && x <= max))
        .collect();
    list.filter(|list| (1..=20).contains(&list.len())).ok_or_else(refused)
}

/// Values for read, write and trim: one for all, or up to three separated by commas; what is left
/// out is the one before it.
///
/// # Errors
/// More than three, or those of `parse`.
pub fn triple<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, Refusal>,
) -> Result<[T; 3], Refusal> {
    let mut values: Vec<T> = Vec::new();
    for part in text.split(',') {
        match (part.trim(), values.last()) {
            ("", Some(last)) => values.push(last.clone()),
            (part, _) => values.push(parse(part)?),
        }
    }
    match values.as_slice() {
        [all] => Ok([all.clone(), all.clone(), all.clone()]),
        [read, write] => Ok([read.clone(), write.clone(), write.clone()]),
        [read, write, trim] => Ok([read.clone(), write.clone(), trim.clone()]),
        _ => Err("has more than three parts (read,write,trim)".into()),
    }
}

/// `a-b` or `a:b`.
///
/// # Errors
/// Not two sizes, or the second below the first.
pub fn range(text: &str, kb_base: u64) -> Result<(u64, u64), Refusal> {
    let refused = || "is not a range of two sizes, as 4k-64k".to_string();
    let (low, high) = text.split_once(['-', ':']).ok_or_else(refused)?;
    let (low, high) = (size(low.trim(), kb_base)?, size(high.trim(), kb_base)?);
    if low <= high { Ok((low, high)) } else { Err(refused()) }
}

/// `size/percent:size/percent..`: sizes and their weights. What has no percentage shares the rest.
///
/// # Errors
/// A bad size or percentage, more than 64 sizes, or more than 100 % in all.
pub fn split(text: &str, kb_base: u64) -> Result<Vec<(u64, u32)>, Refusal> {
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (bytes, percent) = match part.split_once('/') {
            None => (part, None),
            Some((bytes, "")) => (bytes, None),
            Some((bytes, percent)) => {
                let percent = percent.parse::<u32>().ok().filter(|&percent| percent <= 100);
                (bytes, Some(percent.ok_or("has a share that is not a percentage")?))
            }
        };
        parts.push((size(bytes.trim(), kb_base)?, percent));
    }
    let given: u32 = parts.iter().filter_map(|part| part.1).sum();
    let open = parts.iter().filter(|part| part.1.is_none()).count() as u32;
    if parts.len() > 64 || given > 100 || (open == 0 && given != 100) {
        return Err("has shares that are not 100 % in all, or more than 64 sizes".into());
    }
    let rest = (100 - given).checked_div(open).unwrap_or(0);
    Ok(parts.into_iter().map(|(bytes, percent)| (bytes, percent.unwrap_or(rest))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_fio() {
        for (text, bytes) in
            [("4k", 4096), ("4kb", 4096), ("4ki", 4000), ("4KiB", 4000), ("0x10", 16), ("3", 3)]
        {
            assert_eq!(size(text, 1024), Ok(bytes), "{text}");
        }
        assert_eq!(size("4k", 1000), Ok(4000));
        assert_eq!(size("4kib", 1000), Ok(4096));
        assert_eq!(size("8*4k", 1024), Ok(32768));
        assert_eq!(size("1g", 1024), Ok(1 << 30));
        for bad in ["", "k", "4q", "-4", "4kk", "4 k", "99999999999p", "0x", "i", "4ib", "*"] {
            assert!(size(bad, 1024).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_triples_ranges_and_splits() {
        assert_eq!(time("90", Nanos::from_secs(1)), Ok(Nanos::from_secs(90)));
        assert_eq!(time("2m", Nanos(1)), Ok(Nanos::from_secs(120)));
        assert_eq!(time("5ms", Nanos::from_secs(1)), Ok(Nanos::from_millis(5)));
        assert!(time("5x", Nanos(1)).is_err() && time("", Nanos(1)).is_err());
        let one = |text: &str| size(text, 1024);
        assert_eq!(triple("4k,8k", one), Ok([4096, 8192, 8192]));
        assert_eq!(triple("4k,,8k", one), Ok([4096, 4096, 8192]));
        assert!(triple("1,2,3,4", one).is_err() && triple(",1", one).is_err());
        assert_eq!(range("4k-8k", 1024), Ok((4096, 8192)));
        assert!(range("8k-4k", 1024).is_err());
        assert_eq!(split("4k/60:64k/40", 1024), Ok(vec![(4096, 60), (65536, 40)]));
        assert_eq!(split("4k/50:8k:16k", 1024), Ok(vec![(4096, 50), (8192, 25), (16384, 25)]));
        assert!(split("4k/60:64k/50", 1024).is_err() && split("4k/10", 1024).is_err());
        assert_eq!(amount("25%", 1024), Ok(Amount::Percent(25)));
        assert!(amount("101%", 1024).is_err());
        assert_eq!(floats("50:99.9", 100.0), Ok(vec![50.0, 99.9]));
        assert!(floats("", 100.0).is_err() && floats("101", 100.0).is_err());
    }
}
