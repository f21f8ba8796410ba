//! `chmod`: permission bits.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use vfs::{Attr, FileType, SetAttr};

use crate::app::{App, at};
use crate::places;
use crate::session::Session;
use crate::text;
use crate::trees;

/// Change permission bits inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath chmod 600 disk.img:/etc/shadow
  iopath chmod u+x,go-w disk.img:/usr/local/bin/run
  iopath chmod -R a+rX disk.img:/srv")]
pub struct Options {
    /// Octal, or clauses like u+rwX,go-w,g=u
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: String,
    /// What to change: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Change directories and everything below them; symlinks are not changed
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Runs `chmod`.
///
/// # Errors
/// A bad mode. A place that cannot be changed is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    new_mode(app, &options.mode, 0, false)?;
    places::each(app, &options.places, true, |app, session, place| {
        let attr = session.find(app, &place.path, true)?;
        let work = &mut |app: &mut App, path: &[u8], attr: &Attr| {
            change(app, session, options, path, attr)
        };
        trees::each_if(app, session, &place.path, &attr, options.recursive, work)
    })
}

fn new_mode(app: &App, text: &str, mode: u16, directory: bool) -> Result<u16> {
    let umask = app.cx.cred().umask as u16;
    text::parse_mode(text, mode, directory, umask).map_err(|text| anyhow!(text))
}

fn change(
    app: &mut App,
    session: &Session,
    options: &Options,
    path: &[u8],
    attr: &Attr,
) -> Result<()> {
    if attr.kind == FileType::Symlink {
        return Ok(());
    }
    let mode = new_mode(app, &options.mode, attr.mode, attr.is_dir())?;
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    let done = session.set(app, attr, &set);
    done.map_err(|errno| at(session.place(path))(errno))
}
