//! Quantities that must not be confused at a call: time, 512-byte sectors, file-system blocks and
//! inode numbers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector, the block layer's unit of address, whatever the device's logical block is.
pub const SECTOR_SIZE: u64 = 512;

/// A span or a point of time in nanoseconds. A point counts from the start of its clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all, and the start of every clock.
    pub const ZERO: Nanos = Nanos(0);
    /// The end of time: an event that never comes.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    /// The time as seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, zero where `earlier` lies ahead.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 10_000 => write!(f, "{ns} ns"),
            ns if ns < 10_000_000 => write!(f, "{:.3} us", ns as f64 / 1e3),
            ns if ns < 10_000_000_000 => write!(f, "{:.3} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.3} s", ns as f64 / 1e9),
        }
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl Add<u64> for $name {
            type Output = $name;
            fn add(self, count: u64) -> $name {
                $name(self.0 + count)
            }
        }
    };
}

number! {
    /// An address on a device in units of 512 bytes, from 0.
    Sector
}
number! {
    /// A block number inside a file system, in units of its block size, from 0.
    FsBlock
}
number! {
    /// An inode number. Zero is never a valid one.
    Ino
}

impl Sector {
    /// The sector that holds byte `offset`.
    pub const fn from_bytes(offset: u64) -> Sector {
        Sector(offset / SECTOR_SIZE)
    }

    /// The sector's address in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_SIZE
    }
}

impl FsBlock {
    /// The first sector of this block, for blocks of `block_size` bytes.
    pub const fn sector(self, block_size: u32) -> Sector {
        Sector(self.0 * (block_size as u64 / SECTOR_SIZE))
    }
}

/// A point of calendar time: seconds since 1970 (may be negative) and nanoseconds below one second.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timespec {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

impl Timespec {
    /// A time of whole seconds.
    pub const fn from_secs(sec: i64) -> Timespec {
        Timespec { sec, nsec: 0 }
    }

    /// Nanoseconds since 1970, as manifests print them.
    pub fn as_nanos(self) -> i128 {
        self.sec as i128 * 1_000_000_000 + self.nsec as i128
    }

    /// This time moved forward by `span`.
    pub fn after(self, span: Nanos) -> Timespec {
        let nsec = self.nsec as u64 + span.0 % 1_000_000_000;
        let carry = nsec / 1_000_000_000;
        Timespec {
            sec: self.sec + (span.0 / 1_000_000_000 + carry) as i64,
            nsec: (nsec % 1_000_000_000) as u32,
        }
    }
}

/// Reads a size: a number with an optional unit `K`, `M`, `G`, `T` (binary, also `KiB`, `k`) or
/// `KB` (decimal).
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size such as 64M"))?;
    let unit = unit.to_ascii_lowercase();
    let power = match unit.chars().next() {
        None => return Ok(number),
        Some('b') if unit == "b" => return Ok(number),
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        _ => return Err(format!("`{text}`: unknown unit; use K, M, G or T")),
    };
    let factor: u64 = match &unit[1..] {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return Err(format!("`{text}`: unknown unit; use K, M, G or T")),
    };
    number.checked_mul(factor.pow(power)).ok_or(format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_time_carries_nanoseconds_into_seconds() {
        let start = Timespec { sec: -1, nsec: 999_999_999 };
        assert_eq!(start.after(Nanos(1)), Timespec { sec: 0, nsec: 0 });
        assert_eq!(start.after(Nanos::from_secs(2)), Timespec { sec: 1, nsec: 999_999_999 });
        assert_eq!(Timespec { sec: -1, nsec: 5 }.as_nanos(), -999_999_995);
    }

    #[test]
    fn addresses_convert_between_their_units() {
        assert_eq!(FsBlock(3).sector(4096), Sector(24));
        assert_eq!(Sector(8).bytes(), 4096);
        assert_eq!(Nanos(5).since(Nanos(9)), Nanos::ZERO);
    }
}
