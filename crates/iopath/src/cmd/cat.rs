//! `cat`: the content of files on standard output.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use vfs::FileType;

use crate::app::{App, at};
use crate::session;
use crate::target::Place;

/// Write the content of files to standard output
#[derive(Args)]
#[command(after_help = "Examples:
  iopath cat disk.img:/etc/os-release
  iopath cat disk.img@1:/boot/vmlinuz > vmlinuz")]
pub struct Options {
    /// Files: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

/// Runs `cat`.
///
/// # Errors
/// A place that cannot be opened or read, or is no regular file.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for place in &options.places {
        let place = Place::parse(place)?;
        session::with_place(app, &place, false, |app, session| {
            let attr = session.find(app, &place.path, true)?;
            if attr.kind != FileType::Regular {
                bail!("{place}: is a {}, not a regular file", attr.kind.word());
            }
            let mut buf = vec![0; 256 << 10];
            let mut offset = 0;
            loop {
                let count = session.fs.read(app.cx, attr.ino, offset, &mut buf);
                let count = count.map_err(at(format!("{place} at byte {offset}")))?;
                if count == 0 {
                    return Ok(());
                }
                app.out.bytes(&buf[..count])?;
                offset += count as u64;
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
