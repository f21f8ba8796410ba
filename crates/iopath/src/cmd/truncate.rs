//! `truncate`: the size of files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Errno;
use clap::Args;
use vfs::{FileType, SetAttr};

use crate::app::{App, at};
use crate::session;
use crate::target::TargetPath;
use crate::text;

/// Set the size of files inside an image: cut, or extend with a hole
#[derive(Args)]
#[command(after_help = "Examples:
  iopath truncate -s 0 disk.img:/var/log/messages
  iopath truncate -s 1G disk.img:/swapfile")]
pub struct Options {
    /// The size, e.g. 64M
    #[arg(short, long, value_name = "SIZE", value_parser = text::parse_size)]
    size: u64,
    /// Files: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

/// Runs `truncate`.
///
/// # Errors
/// A place that cannot be changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for place in &options.places {
        let place = TargetPath::parse(place)?;
        session::with_place(app, &place, true, |app, session| {
            let found = match session.names.stat(app.cx, &place.path) {
                Err(Errno::ENOENT) => {
                    session.names.mknod(app.cx, &place.path, FileType::Regular, 0o644, 0)
                }
                other => other,
            };
            let attr = found.map_err(at(&place))?;
            let set = SetAttr { size: Some(options.size), ..SetAttr::default() };
            session.set(app, &attr, &set).map_err(at(&place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
