//! `chmod`: permission bits.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use vfs::SetAttr;

use crate::app::{App, at};
use crate::session;
use crate::target::Place;
use crate::text;

/// Change permission bits inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath chmod 600 disk.img:/etc/shadow
  iopath chmod u+x,go-w disk.img:/usr/local/bin/run")]
pub struct Options {
    /// Octal, or clauses like u+rwX,go-w
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: String,
    /// What to change: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

/// Runs `chmod`.
///
/// # Errors
/// A bad mode, or a place that cannot be changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for place in &options.places {
        let place = Place::parse(place)?;
        session::with_place(app, &place, true, |app, session| {
            let attr = session.find(app, &place.path, true)?;
            let mode = text::parse_mode(&options.mode, &attr).map_err(|text| anyhow!(text))?;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            session.fs.setattr(app.cx, attr.ino, &set).map(drop).map_err(at(&place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
