//! `mv`: moves names inside one image.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use vfs::{FilePlace, RenameFlags};

use super::ls::join;
use crate::app::{App, at};
use crate::copy::split;
use crate::session;
use crate::target::TargetPath;

/// Move or rename inside one image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mv disk.img:/etc/motd :/etc/motd.old
  iopath mv disk.img:/a :/b :/dir
  iopath mv --exchange disk.img:/current :/next
  iopath mv --exchange --content disk.img:/database :/database.new")]
pub struct Options {
    /// What to move, then where to: TARGET:/path, later ones also :/path
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    places: Vec<OsString>,
    /// Do not replace what exists
    #[arg(short, long)]
    no_clobber: bool,
    /// Exchange the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Exchange what the two files hold, not their names (XFS with the feature exchange)
    #[arg(long, requires = "exchange")]
    content: bool,
}

/// Runs `mv`.
///
/// # Errors
/// A name that cannot be moved.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let first = TargetPath::parse(&options.places[0])?;
    let mut places = vec![first.clone()];
    for place in &options.places[1..] {
        places.push(TargetPath::parse_next(place, &first.target)?);
    }
    let (to, from) = places.split_last().context("no destination")?;
    let flags = match (options.no_clobber, options.exchange) {
        (true, _) => RenameFlags::NOREPLACE,
        (_, true) => RenameFlags::EXCHANGE,
        _ => RenameFlags::empty(),
    };
    session::with_place(app, &first, true, |app, session| {
        let found = session.names.stat(app.cx, &to.path);
        let into = !options.exchange && found.is_ok_and(|attr| attr.is_dir());
        if from.len() > 1 && !into {
            bail!("{to}: is not a directory, and there are several names to move");
        }
        for from in from {
            if options.content {
                let sides = [&from.path, &to.path].map(|path| session.names.stat(app.cx, path));
                let [one, two] = sides.map(|attr| attr.map_err(at(from)));
                let sides = [one?.ino, two?.ino].map(|ino| FilePlace { ino, offset: 0 });
                let done = session.fs.exchange_range(app.cx, sides, None);
                done.map_err(at(format!("{from} and {to}")))?;
                continue;
            }
            let mut new = to.path.clone();
            if into {
                let end = from.path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
                new = join(&to.path, split(&from.path[..end]).1);
            }
            let moved = session.names.rename(app.cx, &from.path, &new, flags);
            moved.map_err(at(format!("{from} to {}", session.place(&new))))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
