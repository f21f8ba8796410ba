//! `rm`: removes files and trees.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use base::{Errno, Ino};
use clap::Args;
use vfs::{Attr, permission};

use crate::app::{App, at};
use crate::out::Progress;
use crate::places;
use crate::session::Session;
use crate::trees;
use crate::walk::{Reached, descend};

/// Remove files, and with -r trees, inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath rm disk.img:/core
  iopath rm -r disk.img:/var/cache/apt
  iopath rm -f disk.img:/may/be/missing")]
pub struct Options {
    /// What to remove: TARGET:/path
    #[arg(required_unless_present = "force", value_name = "PLACE")]
    places: Vec<OsString>,
    /// Remove directories with everything below them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Ignore missing files
    #[arg(short, long)]
    force: bool,
    /// Remove empty directories, too
    #[arg(short, long)]
    dir: bool,
}

/// Runs `rm`.
///
/// # Errors
/// An argument that is no place. What cannot be removed is reported and stays; the rest goes, and
/// the answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut progress = app.out.progress("removing");
    let done = places::each(app, &options.places, true, |app, session, place| {
        remove(app, session, &place.path, options, &mut progress)
    });
    progress.finish();
    done
}

/// Removes what a path names, with all below; returns whether all of it is gone.
///
/// # Errors
/// Names the place. What stays of a tree is reported.
pub(super) fn tree(
    app: &mut App,
    session: &Session,
    path: &[u8],
    progress: &mut Progress,
) -> Result<bool> {
    let options = Options { places: Vec::new(), recursive: true, force: true, dir: false };
    remove(app, session, path, &options, progress)
}

/// Returns whether all of it is gone.
fn remove(
    app: &mut App,
    session: &Session,
    path: &[u8],
    options: &Options,
    progress: &mut Progress,
) -> Result<bool> {
    let place = session.place(path);
    let attr = match session.names.lstat(app.cx, path) {
        Ok(attr) => attr,
        Err(Errno::ENOENT | Errno::ENOTDIR) if options.force => return Ok(true),
        Err(errno) => return Err(at(place)(errno)),
    };
    if !attr.is_dir() {
        session.names.unlink(app.cx, path).map_err(at(place))?;
        return Ok(true);
    }
    if !options.recursive && !options.dir {
        bail!("{place}: is a directory; give -r to remove it with all below");
    }
    if attr.ino == session.fs.root() {
        bail!("{place}: the root is not removed; use `iopath mkfs` to start anew");
    }
    if options.recursive {
        let mut reached = Reached::above(app.cx, &*session.fs, attr.ino);
        reached.enter(attr.ino, || place.clone()).map_err(|message| anyhow!(message))?;
        let (path, levels) = (path.to_vec(), Vec::new());
        let mut emptying = Emptying { session, reached, path, levels, progress };
        if !emptying.run(app, attr)? {
            return Ok(false);
        }
    }
    session.names.rmdir(app.cx, path).map_err(at(place))?;
    Ok(true)
}

/// A directory that is being emptied.
struct Level {
    dir: Attr,
    /// Length of the path outside of it.
    outside: usize,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    /// Something stays in it.
    kept: bool,
}

/// Removes everything below a directory, as deep as it is.
struct Emptying<'a> {
    session: &'a Session,
    reached: Reached,
    path: Vec<u8>,
    levels: Vec<Level>,
    progress: &'a mut Progress,
}

impl Emptying<'_> {
    /// Returns whether the directory is empty now.
    fn run(&mut self, app: &mut App, top: Attr) -> Result<bool> {
        self.enter(app, top, self.path.len())?;
        let mut kept = false;
        while let Some(level) = self.levels.last_mut() {
            if let Some((name, ino)) = level.names.next() {
                self.name(app, &name, ino)?;
                continue;
            }
            let done = self.levels.pop().expect("the last level");
            match self.levels.last_mut() {
                None => kept = done.kept,
                Some(above) if done.kept => above.kept = true,
                Some(above) => {
                    let name = self.path[done.outside..].strip_prefix(b"/");
                    let name = name.unwrap_or(&self.path[done.outside..]);
                    let fs = &*self.session.fs;
                    let may = permission::may_delete(app.cx, fs, &above.dir, &done.dir);
                    match may.and_then(|()| fs.rmdir(app.cx, above.dir.ino, name)) {
                        Ok(()) => self.progress.add(1, 0),
                        Err(errno) => {
                            above.kept = true;
                            let place = self.session.place(&self.path);
                            app.out.problem(at(place)(errno).to_string());
                        }
                    }
                }
            }
            self.path.truncate(done.outside);
        }
        Ok(!kept)
    }

    /// Removes a file, or goes into a directory. What cannot be removed is reported, and stays.
    fn name(&mut self, app: &mut App, name: &[u8], ino: Ino) -> Result<()> {
        let outside = descend(&mut self.path, name);
        let fs = &*self.session.fs;
        let dir = &self.levels.last().expect("its directory").dir;
        let gone = fs.getattr(app.cx, ino).and_then(|attr| {
            if attr.is_dir() {
                return Ok(Some(attr));
            }
            permission::may_delete(app.cx, fs, dir, &attr)?;
            fs.unlink(app.cx, dir.ino, name).map(|()| None)
        });
        let dir = dir.ino;
        let stays = match gone {
            Ok(None) => {
                self.progress.add(1, 0);
                None
            }
            Ok(Some(child)) => match self.check(app, dir, child.ino) {
                Ok(()) => match self.enter(app, child, outside) {
                    Ok(()) => return Ok(()),
                    Err(error) => Some(error.to_string()),
                },
                Err(message) => Some(message),
            },
            Err(errno) => Some(at(self.session.place(&self.path))(errno).to_string()),
        };
        if let Some(message) = stays {
            app.out.problem(message);
            self.levels.last_mut().expect("its directory").kept = true;
        }
        self.path.truncate(outside);
        Ok(())
    }

    /// Refuses a directory that belongs elsewhere: what is in it would be lost under its other
    /// name.
    fn check(&mut self, app: &mut App, dir: Ino, child: Ino) -> Result<(), String> {
        let place = || self.session.place(&self.path);
        self.reached.enter(child, place)?;
        match self.session.fs.lookup(app.cx, child, b"..") {
            Ok(above) if above.ino == dir => Ok(()),
            Ok(above) => Err(format!(
                "{}: directory inode {} lies in inode {} by its own entry ..; it is not removed \
                 here; `iopath check` shows what is damaged",
                place(),
                child.0,
                above.ino.0
            )),
            Err(errno) => Err(format!("{}/..: {errno}", place())),
        }
    }

    fn enter(&mut self, app: &mut App, dir: Attr, outside: usize) -> Result<()> {
        let names = trees::names(app, self.session, dir.ino, &self.path)?;
        self.levels.push(Level { dir, outside, names: names.into_iter(), kept: false });
        Ok(())
    }
}
