//! `sync`: makes a tree the same as another, and touches only what differs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Errno;
use base::map::{HashMap, HashSet};
use clap::Args;
use serde_json::json;
use vfs::FileType;

use super::cp::destination::own_name;
use super::cp::{self, Mounts};
use super::rm;
use crate::app::{App, at};
use crate::confine;
use crate::copy::digest::{Entry, Tree};
use crate::copy::host_source::HostSource;
use crate::copy::image_source::ImageSource;
use crate::copy::{self, Existing, Keep, Source};
use crate::target::{Side, TargetPath};
use crate::{glob, text};

/// Make a tree in an image, or out of one, the same as another
#[derive(Args)]
#[command(after_help = "\
As rsync -aHAX: a source that ends with / gives its content, another one its name. A file is the
same where its size and time of modification are (with --checksum: its content), and all that
stat(2) and its attributes say. What differs is removed and made anew. The file system's own
lost+found stays.

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
    /// Compare contents, whatever sizes and times say
    #[arg(short, long)]
    checksum: bool,
    /// Say what would be done, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Say what is done
    #[arg(short, long)]
    verbose: bool,
    /// What rsync(1) is given; it is always so here
    #[arg(short, long, hide = true)]
    archive: bool,
    /// Leave out names, or paths below the source, that match; they are not removed either
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

/// What is to be done.
#[derive(Default)]
struct Plan {
    /// Paths below the destination that go, with all below.
    remove: Vec<Vec<u8>>,
    /// Paths that are copied, and all directories.
    carry: HashSet<Vec<u8>>,
    /// Paths that differ, in order.
    differ: Vec<Vec<u8>>,
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
        report(app, &plan, options)?;
        if !options.dry_run {
            remove(app, &mut mounts, &destination, &top, &plan)?;
        }
        Ok(plan)
    });
    match ready {
        Ok(plan) if !options.dry_run && (!plan.differ.is_empty() || !plan.remove.is_empty()) => {
            keep.only = Some(Arc::new(plan.carry));
            let into = own_name(&source).is_some().then(|| options.destination.clone());
            cp::carry(app, mounts, keep, vec![source], &destination, &cp::Options::into(into))
        }
        other => {
            let closed = mounts.close(app);
            other?;
            closed.map(|()| ExitCode::SUCCESS)
        }
    }
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

/// Compares the trees; answers the path of the destination's tree too. The directory of the
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
    let keep = Keep { names_only: !options.checksum, only: None, ..keep.clone() };
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
    let source = tree(app, mounts, source, &keep)?;
    let there = match there {
        Some(side) => tree(app, mounts, &side, &keep)?,
        None => Tree::default(),
    };
    Ok((compare(&source.entries, &there.entries, options), top))
}

/// Reads a tree: names and attributes, and contents unless they are left out.
fn tree(app: &mut App, mounts: &mut Mounts, side: &Side, keep: &Keep) -> Result<Tree> {
    let source: Box<dyn Source> = match side {
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, false)?;
            let session = &mounts.sessions[index];
            let root = session.find(app, &place.path, place.path.ends_with(b"/."))?;
            Box::new(ImageSource::new(session, &place.path, root, Vec::new(), keep.clone()))
        }
        Side::Host(path) => Box::new(HostSource::new(path.clone(), Vec::new(), keep.clone())),
        Side::Archive(_) | Side::Standard => bail!("{side}: is no tree"),
    };
    let progress = app.out.progress("comparing");
    let (tree, problems) = Tree::read(app.cx, source, progress)?;
    match problems.messages() {
        ([], _) => Ok(tree),
        ([first, ..], _) => bail!("{first}; nothing was changed"),
    }
}

type Entries = BTreeMap<Vec<u8>, Arc<Entry>>;

fn compare(source: &Entries, there: &Entries, options: &Options) -> Plan {
    let mut plan = Plan::default();
    // The names of one file here, by file there, and the reverse.
    let (mut ours, mut theirs) = (HashMap::default(), HashMap::default());
    let mut again: HashSet<*const Entry> = HashSet::default();
    for (path, entry) in source {
        let Some(old) = there.get(path) else {
            again.insert(Arc::as_ptr(entry));
            continue;
        };
        let (here, was) = (Arc::as_ptr(entry), Arc::as_ptr(old));
        let pair = *ours.entry(here).or_insert(was) == was;
        let back = *theirs.entry(was).or_insert(here) == here;
        if !pair || !back || !same(entry, old, options) {
            again.insert(here);
        }
    }
    let directory = |entry: &Entry| entry.meta.kind == FileType::Directory;
    for (path, entry) in source {
        if again.contains(&Arc::as_ptr(entry)) {
            plan.differ.push(path.clone());
            plan.carry.insert(path.clone());
            // A directory makes way for a file, and the reverse.
            if there.get(path).is_some_and(|old| directory(old) != directory(entry)) {
                plan.remove.push(path.clone());
            }
        } else if directory(entry) {
            plan.carry.insert(path.clone());
        }
    }
    if options.delete {
        for path in there.keys().filter(|path| !source.contains_key(*path)) {
            // Below what goes already, or makes way for a file.
            let above = source.get(copy::split(path).0);
            if above.is_some_and(|above| directory(above)) && path != b"lost+found" {
                plan.remove.push(path.clone());
            }
        }
    }
    plan
}

/// Whether nothing has to be done about a node.
fn same(entry: &Entry, old: &Entry, options: &Options) -> bool {
    let (a, b) = (&entry.meta, &old.meta);
    let directory = a.kind == FileType::Directory;
    let content = match a.kind {
        FileType::Regular if options.checksum => entry.content == old.content,
        FileType::Regular => a.mtime == b.mtime,
        _ => true,
    };
    a.kind == b.kind
        && (a.mode == b.mode || a.kind == FileType::Symlink)
        && (a.uid, a.gid) == (b.uid, b.gid)
        && (a.rdev == b.rdev || !a.kind.is_device())
        && (a.size == b.size || a.kind != FileType::Regular)
        && (a.mtime == b.mtime || (options.checksum && !directory))
        && entry.target == old.target
        && entry.attributes == old.attributes
        && content
}

/// Says what is done.
fn report(app: &mut App, plan: &Plan, options: &Options) -> Result<()> {
    let removed = plan.remove.iter().map(|path| ("remove", path));
    for (what, path) in removed.chain(plan.differ.iter().map(|path| ("copy", path))) {
        let path = if path.is_empty() { ".".to_owned() } else { text::escape(path) };
        if app.out.json {
            app.out.document(&json!({ "what": what, "path": path }))?;
        } else if options.verbose || options.dry_run {
            app.out.line(format!("{what} {path}"))?;
        }
    }
    Ok(())
}

/// Removes what goes.
fn remove(
    app: &mut App,
    mounts: &mut Mounts,
    destination: &Side,
    top: &[u8],
    plan: &Plan,
) -> Result<()> {
    let mut progress = app.out.progress("removing");
    for path in &plan.remove {
        let path = if path.is_empty() { top.to_vec() } else { [top, b"/", path].concat() };
        match destination {
            Side::Image(place) => {
                let index = mounts.open(app, &place.target, true)?;
                rm::tree(app, &mounts.sessions[index], &path, &mut progress)?;
            }
            Side::Host(_) | Side::Archive(_) | Side::Standard => {
                let path = Path::new(OsStr::from_bytes(&path));
                let directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
                let gone = match directory {
                    true => std::fs::remove_dir_all(path),
                    false => std::fs::remove_file(path),
                };
                gone.with_context(|| path.display().to_string())?;
            }
        }
    }
    progress.finish();
    Ok(())
}
