//! `touch`: times, and empty files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use base::{Errno, Timespec};
use clap::Args;
use vfs::{FileType, SetAttr};

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;

/// Set the times of files inside an image, and make missing ones
#[derive(Args)]
#[command(after_help = "Examples:
  iopath touch disk.img:/forcefsck
  iopath touch -d 1700000000.5 disk.img:/etc/motd")]
pub struct Options {
    /// What to touch: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Seconds since 1970 with an optional fraction, instead of now
    #[arg(short, long, value_name = "SECONDS", allow_hyphen_values = true)]
    date: Option<String>,
    /// Do not make missing files
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// Runs `touch`.
///
/// # Errors
/// A bad time, or a place that cannot be changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let time = match &options.date {
        Some(text) => parse(text).with_context(|| format!("`{text}` is not a time in seconds"))?,
        None => app.cx.realtime(),
    };
    for place in &options.places {
        let place = TargetPath::parse(place)?;
        session::with_place(app, &place, true, |app, session| {
            let found = match session.names.stat(app.cx, &place.path) {
                Err(Errno::ENOENT) if options.no_create => return Ok(()),
                Err(Errno::ENOENT) => {
                    session.names.mknod(app.cx, &place.path, FileType::Regular, 0o644, 0)
                }
                other => other,
            };
            let attr = found.map_err(at(&place))?;
            let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
            session.set(app, &attr, &set).map_err(at(&place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let sec = whole.parse().ok()?;
    let digits = fraction.bytes().all(|b| b.is_ascii_digit()) && fraction.len() <= 9;
    let nsec = format!("{fraction:0<9}").parse().ok().filter(|_| digits)?;
    Some(Timespec { sec, nsec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_a_fraction() {
        assert_eq!(parse("5"), Some(Timespec { sec: 5, nsec: 0 }));
        assert_eq!(parse("-5.25"), Some(Timespec { sec: -5, nsec: 250_000_000 }));
        assert_eq!(parse("1.0000000001"), None);
        assert_eq!(parse("now"), None);
    }
}
