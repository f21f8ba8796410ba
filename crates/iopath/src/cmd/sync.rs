//! `sync`: makes a tree the same as another, and touches only what differs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Errno;
use clap::Args;

use self::compare::{Comparing, Plan};
use super::cp::destination::own_name;
use super::cp::{self, Mounts};
use super::rm;
use crate::app::{App, at};
use crate::confine;
use crate::copy::host_source::HostSource;
use crate::copy::image_source::ImageSource;
use crate::copy::nodes::{self, Nodes};
use crate::copy::{Existing, Keep, Problems, Source};
use crate::glob;
use crate::target::{Side, TargetPath};

mod compare;

/// Make a tree equal to another, between the host and images
#[derive(Args)]
#[command(after_help = "\
As rsync -aHAX: a source that ends with / gives its content, another one its name. A file is the
same where its size and time of modification are (with --checksum: its content), and all that
stat(2) and its attributes say. What differs is removed and made anew; a file that differs in
owner, mode, time or attributes alone keeps its content. The file system's own lost+found stays.

Examples:
  iopath sync ./tree/ disk.img:/srv/        what is in it becomes what is in /srv
  iopath sync --delete disk.img:/etc/ ./etc/
  iopath sync -n --delete old.img:/ new.img:/
  iopath sync --json -c ./tree disk.img:/   makes /tree; one line for each name")]
pub struct Options {
    /// Host path or TARGET:/path
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// Directory: host path or TARGET:/path; it is made if its own directory exists
    #[arg(value_name = "DESTINATION")]
    destination: OsString,
    /// Remove what the source does not have
    #[arg(long)]
    delete: bool,
    /// Compare contents, not only sizes and times
    #[arg(short, long)]
    checksum: bool,
    /// Print what would be done, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print what is done
    #[arg(short, long)]
    verbose: bool,
    /// Accepted as for rsync(1); always on
    #[arg(short, long, hide = true)]
    archive: bool,
    /// Leave out names, or paths below the source, that match; they are not removed either
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

/// Runs `sync`.
///
/// # Errors
/// What ended it, with its place. A name that cannot be read or written is reported, the rest goes
/// on, and the answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let (source, destination) = (side(&options.source)?, side(&options.destination)?);
    if !matches!(source, Side::Image(_)) && !matches!(destination, Side::Image(_)) {
        bail!("{destination}: neither side is an image; use rsync(1) for that");
    }
    let source = content_of(source);
    let mut keep = Keep { existing: Existing::Remove, ..Keep::ALL };
    keep.exclude = glob::set(&options.exclude).context("--exclude")?;
    let mut needs = cp::needs(std::slice::from_ref(&source), &destination, &keep);
    if let Side::Host(path) = &destination {
        needs.read(path);
    }
    confine::enter(app, needs)?;
    let mut mounts = Mounts::default();
    let planned = plan(app, &mut mounts, &source, &destination, &keep, options);
    let ready = planned.and_then(|(plan, top)| {
        let gone = options.dry_run || remove(app, &mut mounts, &destination, &top, &plan)?;
        Ok((plan, gone))
    });
    let (status, gone) = match ready {
        Ok((plan, gone)) if !options.dry_run && plan.changes > 0 => {
            keep.only = Some(Arc::new(plan.carry));
            keep.sorted = true;
            let into = own_name(&source).is_some().then(|| options.destination.clone());
            let into = cp::Options::into(into);
            (cp::carry(app, mounts, keep, vec![source], &destination, &into)?, gone)
        }
        other => {
            let closed = mounts.close(app);
            let gone = other?.1;
            closed?;
            (ExitCode::SUCCESS, gone)
        }
    };
    Ok(if gone { status } else { ExitCode::FAILURE })
}

/// A source or destination.
fn side(path: &OsString) -> Result<Side> {
    match Side::parse(path, false, true)? {
        side @ (Side::Host(_) | Side::Image(_)) => Ok(side),
        side => bail!("{side}: an archive is no tree to compare with; use `iopath cp`"),
    }
}

/// As rsync(1): a slash behind a source stands for what is in it.
fn content_of(side: Side) -> Side {
    match side {
        Side::Host(path) if path.as_os_str().as_bytes().ends_with(b"/") => {
            Side::Host(path.join("."))
        }
        Side::Image(mut place) if place.path.ends_with(b"/") => {
            place.path.push(b'.');
            Side::Image(place)
        }
        other => other,
    }
}

/// Compares the trees; returns the path of the destination's tree too. The directory of the
/// destination is made.
fn plan(
    app: &mut App,
    mounts: &mut Mounts,
    source: &Side,
    destination: &Side,
    keep: &Keep,
    options: &Options,
) -> Result<(Plan, Vec<u8>)> {
    let name = own_name(source);
    let below = |path: &[u8]| match &name {
        Some(name) => [path, b"/", name].concat(),
        None => path.to_vec(),
    };
    let keep = Keep { names_only: !options.checksum, sorted: true, ..keep.clone() };
    let (there, top) = match destination {
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, !options.dry_run)?;
            let session = &mounts.sessions[index];
            match session.names.stat(app.cx, &place.path) {
                Err(Errno::ENOENT) if options.dry_run => {}
                Err(Errno::ENOENT) => {
                    let made = session.names.mkdir(app.cx, &place.path, 0o755);
                    made.map(drop).map_err(at(place))?;
                }
                Err(errno) => return Err(at(place)(errno)),
                Ok(attr) if !attr.is_dir() => return Err(at(place)(Errno::ENOTDIR)),
                Ok(_) => {}
            }
            let top = below(&place.path);
            let found = session.names.lstat(app.cx, &top).is_ok();
            let side = TargetPath { target: place.target.clone(), path: top.clone() };
            (found.then_some(Side::Image(side)), top)
        }
        Side::Host(path) => {
            if !path.is_dir() && !options.dry_run {
                std::fs::create_dir(path).with_context(|| path.display().to_string())?;
            }
            let top = below(path.as_os_str().as_bytes());
            let at = PathBuf::from(OsStr::from_bytes(&top));
            (at.symlink_metadata().is_ok().then_some(Side::Host(at)), top)
        }
        Side::Archive(_) | Side::Standard => bail!("{destination}: is no tree"),
    };
    let here = tree(app, mounts, source, &keep)?;
    let there = there.map(|side| tree(app, mounts, &side, &keep)).transpose()?;
    Ok((compare(app, here, there, options)?, top))
}

/// A source of the names of a tree: names and attributes, and contents unless they are left out.
fn tree(app: &mut App, mounts: &mut Mounts, side: &Side, keep: &Keep) -> Result<Box<dyn Source>> {
    Ok(match side {
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, false)?;
            let session = &mounts.sessions[index];
            let root = session.find(app, &place.path, place.path.ends_with(b"/."))?;
            Box::new(ImageSource::new(session, &place.path, root, Vec::new(), keep.clone()))
        }
        Side::Host(path) => Box::new(HostSource::new(path.clone(), Vec::new(), keep.clone())),
        Side::Archive(_) | Side::Standard => bail!("{side}: is no tree"),
    })
}

/// Compares the trees of the source and, if there is one, of the destination.
fn compare(
    app: &mut App,
    here: Box<dyn Source>,
    there: Option<Box<dyn Source>>,
    options: &Options,
) -> Result<Plan> {
    let mut progress = app.out.progress("comparing");
    let mut comparing = Comparing::new(options);
    let here = Nodes::start(app.cx, here);
    let there = there.map(|source| Nodes::start(app.cx, source));
    let read = nodes::together(app, here, there, &mut progress, &mut |app, here, there| {
        comparing.name(app, here, there)
    });
    progress.finish();
    match read?.messages() {
        ([], _) => Ok(comparing.plan),
        ([first, ..], _) => bail!("{first}; nothing was changed"),
    }
}

/// Removes what goes; returns whether all of it did. What stays is reported.
fn remove(
    app: &mut App,
    mounts: &mut Mounts,
    destination: &Side,
    top: &[u8],
    plan: &Plan,
) -> Result<bool> {
    let mut progress = app.out.progress("removing");
    let mut problems = Problems::new();
    let mut gone = true;
    plan.remove.each(|path| {
        let path = if path.is_empty() { top.to_vec() } else { [top, b"/", path].concat() };
        let removed = match destination {
            Side::Image(place) => mounts
                .open(app, &place.target, true)
                .and_then(|index| rm::tree(app, &mounts.sessions[index], &path, &mut progress)),
            Side::Host(_) | Side::Archive(_) | Side::Standard => {
                let path = Path::new(OsStr::from_bytes(&path));
                let directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
                let done = match directory {
                    true => std::fs::remove_dir_all(path),
                    false => std::fs::remove_file(path),
                };
                done.map(|()| true).with_context(|| path.display().to_string())
            }
        };
        match removed {
            Ok(all) => gone &= all,
            Err(error) => problems.report(format!("{error:#}")),
        }
    });
    progress.finish();
    problems.show(&app.out);
    Ok(gone && problems.count() == 0)
}
