//! `cat`: the content of files on standard output.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use vfs::FileType;

use crate::app::{App, at};
use crate::places;

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
/// The output is closed. A place that cannot be read is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    places::each(app, &options.places, false, |app, session, place| {
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
                return Ok(true);
            }
            app.out.bytes(&buf[..count])?;
            offset += count as u64;
        }
    })
}
