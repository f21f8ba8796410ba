//! `rm`: removes files and trees.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use base::{Errno, Ino};
use clap::Args;

use crate::app::{App, at};
use crate::out::Progress;
use crate::places;
use crate::session::Session;
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

/// Removes what a path names, with all below; answers whether all of it is gone.
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

/// Answers whether all of it is gone.
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
        if !emptying.run(app, attr.ino)? {
            return Ok(false);
        }
    }
    session.names.rmdir(app.cx, path).map_err(at(place))?;
    Ok(true)
}

/// A directory that is being emptied.
struct Level {
    dir: Ino,
    /// Length of the path outside of it.
    outside: usize,
    names: std::vec::IntoIter<Vec<u8>>,
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
    /// Answers whether the directory is empty now.
    fn run(&mut self, app: &mut App, top: Ino) -> Result<bool> {
        self.enter(app, top, self.path.len())?;
        let mut kept = false;
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.names.next() {
                let dir = level.dir;
                self.name(app, dir, &name)?;
                continue;
            }
            let done = self.levels.pop().expect("the last level");
            match self.levels.last_mut() {
                None => kept = done.kept,
                Some(above) if done.kept => above.kept = true,
                Some(above) => {
                    let name = self.path[done.outside..].strip_prefix(b"/");
                    let name = name.unwrap_or(&self.path[done.outside..]);
                    match self.session.fs.rmdir(app.cx, above.dir, name) {
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
    fn name(&mut self, app: &mut App, dir: Ino, name: &[u8]) -> Result<()> {
        let outside = descend(&mut self.path, name);
        let stays = match self.session.fs.unlink(app.cx, dir, name) {
            Err(Errno::EISDIR) => match self.below(app, dir, name) {
                Ok(child) => match self.enter(app, child, outside) {
                    Ok(()) => return Ok(()),
                    Err(error) => Some(error.to_string()),
                },
                Err(message) => Some(message),
            },
            Err(errno) => Some(at(self.session.place(&self.path))(errno).to_string()),
            Ok(()) => {
                self.progress.add(1, 0);
                None
            }
        };
        if let Some(message) = stays {
            app.out.problem(message);
            self.levels.last_mut().expect("its directory").kept = true;
        }
        self.path.truncate(outside);
        Ok(())
    }

    /// The directory of a name, if it may be removed here.
    fn below(&mut self, app: &mut App, dir: Ino, name: &[u8]) -> Result<Ino, String> {
        let child = self.session.fs.lookup(app.cx, dir, name);
        let place = |errno| at(self.session.place(&self.path))(errno).to_string();
        let child = child.map_err(place)?.ino;
        self.check(app, dir, child).map(|()| child)
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

    fn enter(&mut self, app: &mut App, dir: Ino, outside: usize) -> Result<()> {
        let mut names = Vec::new();
        let listed = self.session.fs.readdir(app.cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        listed.map_err(|errno| at(self.session.place(&self.path))(errno))?;
        self.levels.push(Level { dir, outside, names: names.into_iter(), kept: false });
        Ok(())
    }
}
