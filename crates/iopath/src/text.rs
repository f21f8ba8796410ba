//! How names, sizes, modes and times are printed and read.

use base::Timespec;
pub use base::unit::parse_size;
use ext4::mkfs::Span;
use vfs::FileType;

/// A length or a place as mke2fs takes it: a number of blocks, or bytes with a unit.
///
/// # Errors
/// A sentence.
pub fn parse_span(word: &str) -> Result<Span, String> {
    let size = parse_size(word)?;
    Ok(match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Span::Blocks(size),
        false => Span::Bytes(size),
    })
}

/// Bytes as text without loss: a backslash becomes `\\`, a byte that is not UTF-8 becomes `\xHH`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// A word as a shell reads it back.
pub fn shell_word(word: &std::ffi::OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A name for a terminal: like [`escape`], and control characters as `\xHH` too.
pub fn printable(bytes: &[u8]) -> String {
    let escaped = escape(bytes);
    if !escaped.chars().any(char::is_control) {
        return escaped;
    }
    let mut out = String::new();
    for c in escaped.chars() {
        match c.is_control() {
            true => c.to_string().bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}"))),
            false => out.push(c),
        }
    }
    out
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// `drwxr-xr-x` of `ls -l`.
pub fn mode_letters(kind: FileType, mode: u16) -> String {
    let mut out = String::from(kind.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Year, month, day, hour, minute, second in UTC (proleptic Gregorian calendar).
pub fn civil(time: Timespec) -> (i64, u32, u32, u32, u32, u32) {
    base::calendar::civil(time.sec)
}

/// `2026-11-21 09:26` in UTC.
pub fn minute(time: Timespec) -> String {
    let (year, month, day, hour, minute, _) = civil(time);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// `2026-11-21 09:26:00.000000001 UTC`.
pub fn full_time(time: Timespec) -> String {
    let (.., second) = civil(time);
    format!("{}:{second:02}.{:09} UTC", minute(time), time.nsec)
}

/// A size with a binary unit and three digits: `4.00 KiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < 6 {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let name = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 => format!("{value:.2} {name}"),
        _ if value < 100.0 => format!("{value:.1} {name}"),
        _ => format!("{value:.0} {name}"),
    }
}

/// Reads a mode as chmod(1) does, for a file that has `mode`: octal, or clauses like
/// `u+rwX,go-w,g=u`. Without one of `ugoa` the umask is left alone; directories keep set-id bits
/// that are not named.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_mode(text: &str, mode: u16, directory: bool, umask: u16) -> Result<u16, String> {
    const SET_ID: u16 = 0o6000;
    let kept = |named: u16| if directory { mode & SET_ID & !named } else { 0 };
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let new = u16::from_str_radix(text, 8).map_err(|_| not_a_mode(text))?;
        return match new {
            0..=0o7777 if text.len() > 4 => Ok(new),
            0..=0o7777 => Ok(new | kept(new)),
            _ => Err(format!("mode {text} is above 7777")),
        };
    }
    let mut mode = mode;
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '=']).ok_or_else(|| not_a_mode(text))?;
        let mut who = 0u16;
        for c in clause[..at].chars() {
            who |= match c {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return Err(not_a_mode(text)),
            };
        }
        let mut rest = &clause[at..];
        while let Some(operation) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let bits = permissions(&rest[1..end], mode, directory);
            let bits = bits.ok_or_else(|| not_a_mode(text))?;
            let named = bits & if who == 0 { 0o7777 } else { who };
            let bits = named & if who == 0 { !umask } else { 0o7777 };
            let whole = if who == 0 { 0o7777 } else { who };
            mode = match operation {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ if directory => mode & !whole | bits | mode & SET_ID & !named,
                _ => mode & !whole | bits,
            };
            rest = &rest[end..];
        }
    }
    Ok(mode)
}

fn not_a_mode(text: &str) -> String {
    format!("`{text}` is not a mode such as 644 or u+rw,go-w")
}

/// The bits, for everybody, that letters stand for: `rwxXst`, or one of `ugo` for what that has.
fn permissions(letters: &str, mode: u16, directory: bool) -> Option<u16> {
    let copied = |bits: u16| (bits & 7) * 0o111;
    match letters {
        "u" => return Some(copied(mode >> 6)),
        "g" => return Some(copied(mode >> 3)),
        "o" => return Some(copied(mode)),
        _ => {}
    }
    letters.chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if directory || mode & 0o111 != 0 => 0o111,
                'X' => 0,
                's' => 0o6000,
                't' => 0o1000,
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_words_back() {
        let word = |text: &str| shell_word(text.as_ref());
        assert_eq!(
            [word("a/b-c=1,x"), word(""), word("it's $1")],
            ["a/b-c=1,x", "''", r"'it'\''s $1'"]
        );
    }

    #[test]
    fn escapes_lose_nothing() {
        assert_eq!(escape(b"plain"), "plain");
        assert_eq!(escape(b"a\\b\xffc"), "a\\\\b\\xffc");
        assert_eq!(escape("grüße".as_bytes()), "grüße");
        assert_eq!(printable(b"a\nb"), "a\\x0ab");
    }

    #[test]
    fn times_are_calendar_dates() {
        for (sec, text) in [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (4_102_444_800, "2100-01-01 00:00"),
            (-2_208_988_800, "1900-01-01 00:00"),
        ] {
            assert_eq!(minute(Timespec { sec, nsec: 0 }), text);
        }
        assert_eq!(full_time(Timespec { sec: 1, nsec: 5 }), "1970-01-01 00:00:01.000000005 UTC");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("4kib"), Ok(4096));
        assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_size("17"), Ok(17));
        assert!(parse_size("x").is_err() && parse_size("1Q").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert_eq!(size(4096), "4.00 KiB");
        assert_eq!(size(1023), "1023 B");
    }

    #[test]
    fn letters_show_special_bits() {
        assert_eq!(mode_letters(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_letters(FileType::Directory, 0o1776), "drwxrwxrwT");
        assert_eq!(mode_letters(FileType::Symlink, 0o2640), "lrw-r-S---");
    }
}
