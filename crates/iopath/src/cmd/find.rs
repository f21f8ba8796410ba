//! `find`: names below a place that match conditions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use globset::GlobMatcher;
use serde_json::json;
use vfs::{Attr, FileType};

use super::ls::attr_json;
use crate::app::App;
use crate::copy::split;
use crate::{glob, places, text, trees};

/// Find names inside an image
#[derive(Args)]
#[command(after_help = "\
Tests as those of find(1), all of which must hold; also with one dash. Places are printed.

Examples:
  iopath find disk.img -name '*.conf' -type f
  iopath find disk.img:/var -size +10M -mtime -7
  iopath find disk.img:/srv -type l -print0 | xargs -0 iopath rm")]
pub struct Options {
    /// Where to begin: TARGET or TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// The name matches
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// The name matches, ignoring case
    #[arg(long, value_name = "PATTERN")]
    iname: Option<String>,
    /// Type: one of f, d, l, p, s, c, b
    #[arg(long = "type", value_name = "LETTER", value_parser = ["f", "d", "l", "p", "s", "c", "b"])]
    kind: Option<String>,
    /// Size in bytes (c), KiB (k), MiB (M), GiB (G), rounded up; +N for more, -N for less
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    size: Option<String>,
    /// Days since the last change; +N for more, -N for less
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mtime: Option<String>,
    /// Descend at most this many levels
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<usize>,
    /// End each place with a zero byte
    #[arg(long)]
    print0: bool,
}

/// The command line with two dashes, where find(1) has one.
pub fn with_two_dashes(args: Vec<OsString>) -> Vec<OsString> {
    const WORDS: &[&str] = &["-name", "-iname", "-type", "-size", "-mtime", "-maxdepth", "-print0"];
    let known = |arg: &OsString| WORDS.iter().any(|word| arg == word);
    let longer = |arg: OsString| match known(&arg) {
        true => [OsStr::new("-"), &arg].into_iter().collect(),
        false => arg,
    };
    args.into_iter().map(longer).collect()
}

/// A number to compare with: more, less, or equal.
struct Compare {
    than: std::cmp::Ordering,
    number: u64,
}

impl Compare {
    fn parse(text: &str) -> Option<Compare> {
        let (than, digits) = match text.split_at_checked(1)? {
            ("+", digits) => (std::cmp::Ordering::Greater, digits),
            ("-", digits) => (std::cmp::Ordering::Less, digits),
            _ => (std::cmp::Ordering::Equal, text),
        };
        Some(Compare { than, number: digits.parse().ok()? })
    }

    fn holds(&self, value: u64) -> bool {
        value.cmp(&self.number) == self.than
    }
}

/// What must hold.
struct Tests {
    names: Vec<GlobMatcher>,
    kind: Option<FileType>,
    size: Option<(Compare, u64)>,
    days: Option<Compare>,
    now: i64,
}

impl Tests {
    fn of(app: &mut App, options: &Options) -> Result<Tests> {
        let mut names = Vec::new();
        if let Some(pattern) = &options.name {
            names.push(glob::name(pattern, false)?);
        }
        if let Some(pattern) = &options.iname {
            names.push(glob::name(pattern, true)?);
        }
        let kind = options.kind.as_deref().map(|letter| match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            "c" => FileType::CharDevice,
            _ => FileType::BlockDevice,
        });
        let size = options.size.as_deref().map(size).transpose()?;
        let days = match options.mtime.as_deref().map(|text| (text, Compare::parse(text))) {
            Some((text, None)) => bail!("`{text}` is not a number of days"),
            Some((_, days)) => days,
            None => None,
        };
        Ok(Tests { names, kind, size, days, now: app.cx.realtime().sec })
    }

    fn hold(&self, path: &[u8], attr: &Attr) -> bool {
        let name = match split(path.strip_suffix(b"/").unwrap_or(path)).1 {
            b"" => b"/",
            name => name,
        };
        let age = u64::try_from((self.now - attr.mtime.sec).div_euclid(86_400)).unwrap_or(0);
        self.names.iter().all(|matcher| matcher.is_match(OsStr::from_bytes(name)))
            && self.kind.is_none_or(|kind| kind == attr.kind)
            && self.size.as_ref().is_none_or(|(n, unit)| n.holds(attr.size.div_ceil(*unit)))
            && self.days.as_ref().is_none_or(|days| days.holds(age))
    }
}

/// A size to compare with, and its unit in bytes: of 512 without a letter, as find(1) has it.
fn size(text: &str) -> Result<(Compare, u64)> {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[end.len()..] {
        "" | "b" => 512,
        "c" => 1,
        "w" => 2,
        "k" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => bail!("`{text}` is not a size such as +10M"),
    };
    match Compare::parse(end) {
        Some(number) => Ok((number, unit)),
        None => bail!("`{text}` is not a size such as +10M"),
    }
}

/// Runs `find`.
///
/// # Errors
/// A bad test. What cannot be read is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let tests = Tests::of(app, options)?;
    places::each(app, &options.places, false, |app, session, place| {
        let attr = session.find(app, &place.path, false)?;
        let levels = |path: &[u8]| path.iter().filter(|&&b| b == b'/').count();
        let root = place.path.ends_with(b"/");
        let top = levels(&place.path) - usize::from(root);
        trees::each(app, session, &place.path, &attr, &mut |app, path, attr| {
            let depth = if path == place.path { 0 } else { levels(path) - top };
            if options.maxdepth.is_some_and(|most| depth > most) || !tests.hold(path, attr) {
                return Ok(());
            }
            if app.out.json {
                let mut value = attr_json(attr);
                value["path"] = json!(text::escape(path));
                return Ok(app.out.document(&value)?);
            }
            let target = format!("{}:", session.target);
            if options.print0 {
                app.out.bytes(&[target.as_bytes(), path, b"\0"].concat())?;
                return Ok(());
            }
            Ok(app.out.line(format!("{target}{}", text::printable(path)))?)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared() {
        let holds = |text: &str, value| Compare::parse(text).is_some_and(|c| c.holds(value));
        assert!(holds("+3", 4) && !holds("+3", 3) && holds("-3", 2) && holds("3", 3));
        assert!(Compare::parse("x").is_none() && Compare::parse("").is_none());
        assert!(size("+10M").is_ok_and(|(_, unit)| unit == 1 << 20) && size("5x").is_err());
    }
}
