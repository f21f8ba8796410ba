//! `rm`: removes files and trees.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use base::{Errno, Ino};
use clap::Args;

use super::ls::join;
use crate::app::{App, at};
use crate::out::Progress;
use crate::session::{self, Session};
use crate::target::Place;

/// Remove files, and with -r trees, inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath rm disk.img:/core
  iopath rm -r disk.img:/var/cache/apt
  iopath rm -f disk.img:/may/be/missing")]
pub struct Options {
    /// What to remove: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Directories with all below
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// What is missing is no error
    #[arg(short, long)]
    force: bool,
    /// An empty directory
    #[arg(short, long)]
    dir: bool,
}

/// Runs `rm`.
///
/// # Errors
/// A name that cannot be removed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for place in &options.places {
        let place = Place::parse(place)?;
        let mut progress = app.out.progress("removing");
        session::with_place(app, &place, true, |app, session| {
            remove(app, session, &place.path, options, &mut progress)
        })?;
        progress.finish();
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(
    app: &mut App,
    session: &Session,
    path: &[u8],
    options: &Options,
    progress: &mut Progress,
) -> Result<()> {
    let place = session.place(path);
    let attr = match session.names.lstat(app.cx, path) {
        Ok(attr) => attr,
        Err(Errno::ENOENT) if options.force => return Ok(()),
        Err(errno) => return Err(at(place)(errno)),
    };
    if !attr.is_dir() {
        return session.names.unlink(app.cx, path).map_err(at(place));
    }
    if !options.recursive && !options.dir {
        bail!("{place}: is a directory; give -r to remove it with all below");
    }
    if attr.ino == session.fs.root() {
        bail!("{place}: the root is not removed; use `iopath mkfs` to start anew");
    }
    if options.recursive {
        empty(app, session, attr.ino, path, progress)?;
    }
    session.names.rmdir(app.cx, path).map_err(at(place))
}

/// Removes everything below a directory.
fn empty(
    app: &mut App,
    session: &Session,
    dir: Ino,
    path: &[u8],
    progress: &mut Progress,
) -> Result<()> {
    let mut names = Vec::new();
    let listed = session.fs.readdir(app.cx, dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    });
    listed.map_err(at(session.place(path)))?;
    for name in names {
        let below = join(path, &name);
        let removed = match session.fs.unlink(app.cx, dir, &name) {
            Err(Errno::EISDIR) => {
                let child = session.fs.lookup(app.cx, dir, &name);
                let child = child.map_err(at(session.place(&below)))?.ino;
                empty(app, session, child, &below, progress)?;
                session.fs.rmdir(app.cx, dir, &name)
            }
            other => other,
        };
        removed.map_err(at(session.place(&below)))?;
        progress.add(1, 0);
    }
    Ok(())
}
