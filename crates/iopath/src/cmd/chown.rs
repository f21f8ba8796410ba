//! `chown`: owner and group.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use vfs::{Attr, SetAttr};

use crate::app::{App, at};
use crate::owner::{self, Owner};
use crate::places;
use crate::session::Session;
use crate::trees;

/// Change owner and group inside an image
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Names are those of the image's own /etc/passwd and /etc/group.

Examples:
  iopath chown 1000:1000 disk.img:/home/me
  iopath chown -R www-data: disk.img:/var/www
  iopath chown :100 disk.img:/srv"
)]
pub struct Options {
    /// USER, USER:GROUP, USER: or :GROUP, in numbers or names of the image
    #[arg(value_name = "OWNER")]
    owner: String,
    /// What to change: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Change the symlink itself, not its target
    #[arg(short = 'h', long, short_alias = 'P')]
    no_dereference: bool,
    /// Change directories and everything below them; symlinks themselves, not their targets
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs `chown`.
///
/// # Errors
/// A place that cannot be parsed. One that cannot be changed is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    places::each(app, &options.places, true, |app, session, place| {
        let ids = owner::parse(app, Some(session), &options.owner)?;
        let follow = !options.no_dereference && !options.recursive;
        let attr = session.find(app, &place.path, follow)?;
        let work =
            &mut |app: &mut App, path: &[u8], attr: &Attr| change(app, session, &ids, path, attr);
        trees::each_if(app, session, &place.path, &attr, options.recursive, work)
    })
}

/// Sets the owner. As with chown(2), set-id bits of files go.
fn change(app: &mut App, session: &Session, ids: &Owner, path: &[u8], attr: &Attr) -> Result<()> {
    let set = SetAttr { uid: ids.uid, gid: ids.gid, ..SetAttr::default() };
    let done = session.set(app, attr, &set);
    done.map_err(|errno| at(session.place(path))(errno))
}
