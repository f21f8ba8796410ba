//! `chown`: owner and group.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use vfs::SetAttr;

use crate::app::{App, at};
use crate::session;
use crate::target::Place;

/// Change owner and group inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath chown 1000:1000 disk.img:/home/me
  iopath chown :100 disk.img:/srv")]
pub struct Options {
    /// UID, UID:GID or :GID, in numbers (the names of the image's users are not those of the host)
    #[arg(value_name = "OWNER")]
    owner: String,
    /// What to change: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// The symlink itself, not what it leads to
    #[arg(short = 'P', long)]
    no_dereference: bool,
}

/// Runs `chown`.
///
/// # Errors
/// A bad owner, or a place that cannot be changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (uid, gid) = parse(&options.owner)?;
    for place in &options.places {
        let place = Place::parse(place)?;
        session::with_place(app, &place, true, |app, session| {
            let attr = session.find(app, &place.path, !options.no_dereference)?;
            let set = SetAttr { uid, gid, ..SetAttr::default() };
            session.fs.setattr(app.cx, attr.ino, &set).map(drop).map_err(at(&place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(owner: &str) -> Result<(Option<u32>, Option<u32>)> {
    let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
    let number = |text: &str| match text {
        "" => Ok(None),
        text => match text.parse() {
            Ok(id) => Ok(Some(id)),
            Err(_) => bail!("`{text}` is not a number; owners are given as UID:GID"),
        },
    };
    match (number(user)?, number(group)?) {
        (None, None) => bail!("`{owner}` names neither owner nor group"),
        ids => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        assert_eq!(parse("1:2").unwrap(), (Some(1), Some(2)));
        assert_eq!(parse(":2").unwrap(), (None, Some(2)));
        assert_eq!(parse("1").unwrap(), (Some(1), None));
        assert!(parse("root").is_err() && parse(":").is_err() && parse("").is_err());
    }
}
