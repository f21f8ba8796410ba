//! The share of a device that a control group gets.

use base::Nanos;
use std::str::FromStr;

/// What a control group is given of a device; each controller and elevator looks at its own part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupShare {
    /// Its weight among the groups: `blkio.weight`, `io.bfq.weight` and `io.weight`; 1 to 10,000.
    pub weight: Option<u32>,
    /// The most that it may use: `io.max`.
    pub max: IoMax,
    /// What its requests should take at the most: `io.latency`.
    pub latency: Option<Nanos>,
}

/// Limits of `io.max`: bytes and requests a second, by direction; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoMax {
    /// Bytes read.
    pub rbps: Option<u64>,
    /// Bytes written.
    pub wbps: Option<u64>,
    /// Reads.
    pub riops: Option<u64>,
    /// Writes.
    pub wiops: Option<u64>,
}

impl FromStr for IoMax {
    type Err = String;

    /// The text of `io.max` after the device: `rbps=1048576 wiops=120`, each a number above 0 or
    /// `max`.
    fn from_str(text: &str) -> Result<IoMax, String> {
        let mut limits = IoMax::default();
        for word in text.split_whitespace() {
            let expected = "`io.max` takes rbps=, wbps=, riops= and wiops=, above 0 or `max`";
            let wrong = || format!("`{word}`: {expected}");
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            let number = match value {
                "max" => None,
                value => Some(value.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?),
            };
            match name {
                "rbps" => limits.rbps = number,
                "wbps" => limits.wbps = number,
                "riops" => limits.riops = number,
                "wiops" => limits.wiops = number,
                _ => return Err(wrong()),
            }
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_io_max_writes_them() {
        let limits: IoMax = "rbps=1048576 wiops=120 riops=max".parse().unwrap();
        let expected = IoMax { rbps: Some(1 << 20), wiops: Some(120), ..IoMax::default() };
        assert_eq!(limits, expected);
        for wrong in ["rbps", "rbps=0", "rbps=-1", "bps=1", "wiops=many"] {
            assert!(wrong.parse::<IoMax>().is_err(), "{wrong}");
        }
    }
}
