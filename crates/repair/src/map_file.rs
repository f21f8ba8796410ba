//! The map file of GNU ddrescue: which parts of a copy were read from the damaged medium.

use std::fmt;

use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;

/// Why a map file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapError {
    /// The line, from 1 on; 0 for the whole file.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for MapError {}

/// A position or a size as C writes it: decimal, hexadecimal behind `0x`, octal behind `0`.
fn number(word: Option<&str>, line: usize, what: &str) -> Result<u64, MapError> {
    let word = word.unwrap_or_default();
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let octal = word.strip_prefix('0').filter(|digits| !digits.is_empty());
    let parsed = match (hexadecimal, octal) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) => u64::from_str_radix(digits, 8),
        (None, None) => word.parse(),
    };
    parsed.map_err(|_| MapError { line, what: format!("the {what} is no number: `{word}`") })
}

/// The parts of a disk of `bytes` bytes that were not rescued, in sectors: everything but the parts
/// with the status `+`. A sector that was rescued in part counts as lost. `text` is the whole file.
///
/// # Errors
/// A line that is none of a map, or no line at all.
pub fn lost(text: &str, bytes: u64) -> Result<RangeSet64, MapError> {
    let lines = text.lines().enumerate().map(|(index, text)| (index + 1, text.trim()));
    let mut lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    let none = || MapError { line: 0, what: "no line of a map file of ddrescue in it".into() };
    // Where ddrescue was when it wrote the map.
    let (line, status) = lines.next().ok_or_else(none)?;
    number(status.split_whitespace().next(), line, "current position")?;
    let (mut runs, mut at, mut parts) = (RangeSet64::new(), 0, 0);
    for (line, text) in lines {
        let mut words = text.split_whitespace();
        let start = number(words.next(), line, "position")?;
        let size = number(words.next(), line, "size")?;
        let status = words.next().unwrap_or_default();
        if !["+", "-", "*", "/", "?"].contains(&status) {
            let what = format!("the status is none of + - * / ?: `{status}`");
            return Err(MapError { line, what });
        }
        let end = start.checked_add(size).filter(|_| start >= at);
        let Some(end) = end else {
            let what = format!("{size} bytes at {start} do not follow what ends at {at}");
            return Err(MapError { line, what });
        };
        runs.insert(outward(at..start));
        if status != "+" {
            runs.insert(outward(start..end));
        }
        (at, parts) = (end, parts + 1);
    }
    if parts == 0 {
        return Err(MapError { line: 0, what: "the map names no part of the disk".into() });
    }
    if at < bytes {
        runs.insert(outward(at..bytes));
    }
    Ok(runs)
}

/// The sectors that bytes touch.
fn outward(bytes: std::ops::Range<u64>) -> std::ops::Range<u64> {
    match bytes.is_empty() {
        true => 0..0,
        false => bytes.start / SECTOR_SIZE..bytes.end.div_ceil(SECTOR_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n\
        # current_pos  current_status  current_pass\n0x00000000     ?               1\n\
        #      pos        size  status\n\
        0x00000000  0x00001000  +\n0x00001000  0x00000200  -\n0x00001200  0x00000e00  +\n\
        0x00003000  0x00001000  ?\n";

    fn runs(text: &str, bytes: u64) -> Result<Vec<std::ops::Range<u64>>, MapError> {
        lost(text, bytes).map(|runs| runs.iter().collect())
    }

    #[test]
    fn what_was_not_rescued_is_lost_and_so_are_gaps() {
        assert_eq!(runs(MAP, 0x4000).unwrap(), [8..9, 16..32]);
        assert_eq!(runs(MAP, 0x5000).unwrap(), [8..9, 16..40]);
        let part = "0 ?\n0 100 +\n100 412 -\n512 512 +\n";
        assert_eq!(lost(part, 1024).unwrap().len(), 1);
        let octal = "0 ?\n0 02000 +\n02000 01000 -\n0X600 010000 +\n";
        assert_eq!(runs(octal, 0x1800).unwrap(), [2..3, 11..12]);
    }

    #[test]
    fn what_is_no_map_is_named_with_its_line() {
        for (text, line, word) in [
            ("", 0, "no line"),
            ("hello world\n", 1, "`hello`"),
            ("0 ?\n", 0, "names no part"),
            ("0 ?\n0 zz +\n", 2, "`zz`"),
            ("0 ?\n0 0189 +\n", 2, "`0189`"),
            ("0 ?\n0 512 x\n", 2, "`x`"),
            ("0 ?\n0 512 +\n# more\n0 512 -\n", 4, "do not follow"),
            ("0 ?\n8 0xffffffffffffffff +\n", 2, "do not follow"),
        ] {
            let error = runs(text, 4096).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
    }
}
