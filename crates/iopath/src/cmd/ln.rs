//! `ln`: hard links and symlinks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::Result;
use base::Errno;
use clap::Args;

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;

/// Make a hard link, or with -s a symlink, inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath ln disk.img:/bin/busybox :/bin/ls
  iopath ln -s ../usr/share/zoneinfo/UTC disk.img:/etc/localtime")]
pub struct Options {
    /// TARGET:/path of the file, or with -s the text of the link
    #[arg(value_name = "FROM")]
    from: OsString,
    /// The new name: TARGET:/path, without -s also :/path
    #[arg(value_name = "PLACE")]
    to: OsString,
    /// Make a symlink
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file, but not a directory
    #[arg(short, long)]
    force: bool,
}

/// Runs `ln`.
///
/// # Errors
/// The name cannot be made.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (from, to) = match options.symbolic {
        true => (None, TargetPath::parse(&options.to)?),
        false => {
            let from = TargetPath::parse(&options.from)?;
            let to = TargetPath::parse_next(&options.to, &from.target)?;
            (Some(from), to)
        }
    };
    session::with_place(app, &to, true, |app, session| {
        if options.force {
            match session.names.unlink(app.cx, &to.path) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(at(&to)(errno)),
            }
        }
        let made = match &from {
            Some(from) => session.names.link(app.cx, &from.path, &to.path),
            None => session.names.symlink(app.cx, options.from.as_bytes(), &to.path),
        };
        made.map_err(at(&to))?;
        Ok(ExitCode::SUCCESS)
    })
}
