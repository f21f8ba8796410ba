//! `cp`: files and trees between the host, images and archives.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::Errno;
use clap::Args;
use serde_json::json;

use crate::app::{App, at};
use crate::copy::host_sink::HostSink;
use crate::copy::host_source::HostSource;
use crate::copy::image_sink::ImageSink;
use crate::copy::image_source::ImageSource;
use crate::copy::tar_sink::TarSink;
use crate::copy::tar_source::TarSource;
use crate::copy::{self, Keep, Problems, Source};
use crate::session::{self, Session};
use crate::target::{Place, Side, Target};
use crate::walk::Reached;

/// Copy files and trees between the host, images and tar archives
#[derive(Args)]
#[command(after_help = "\
With several sources, or a directory as destination, names go into it. A source that ends
with /. and the root of an image give their content, not a name of their own.
A host path that contains :/ is written ./a:/b. Holes stay holes.
With --direct the content of large files in images goes past our page cache, too.

Examples:
  iopath cp motd disk.img:/etc/motd
  iopath cp -a ./tree disk.img:/          makes /tree
  iopath cp -a ./tree/. disk.img:/        puts what is in it into /
  iopath cp -a disk.img:/ ./out
  iopath cp -a old.img:/home new.img:/
  iopath cp -a tree.tar: disk.img:/
  zcat tree.tgz | iopath cp -a - disk.img:/
  iopath cp -a disk.img:/etc - | tar -t")]
pub struct Options {
    /// Sources, then the destination: host path, TARGET:/path, FILE.tar: or - (a tar stream)
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Directories with all below
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Everything: -r, owners, modes, times, attributes, ACLs, hard links
    #[arg(short, long)]
    archive: bool,
    /// Host paths are tar archives, whatever their names
    #[arg(long)]
    tar: bool,
    /// Share the blocks of files instead of copying them: both sides in one XFS image
    #[arg(long)]
    reflink: bool,
}

/// Runs `cp`.
///
/// # Errors
/// What ended the copy, with its place. One name that cannot be read or written does not: it is
/// told, the rest goes on, and the answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let recursive = options.recursive || options.archive;
    let keep = Keep { recursive, all: options.archive, direct: app.options.direct };
    let (destination, sources) = options.paths.split_last().context("no destination")?;
    let destination = Side::parse(destination, options.tar)?;
    let sources: Result<Vec<Side>> =
        sources.iter().map(|source| Side::parse(source, options.tar)).collect();
    let sources = sources?;
    let only_hosts = sources.iter().all(|side| !matches!(side, Side::Image(_)));
    if only_hosts && !matches!(destination, Side::Image(_)) {
        bail!("{destination}: neither side is an image; use cp(1) or tar(1) for that");
    }
    if options.reflink {
        check_reflink(&sources, &destination)?;
    }
    let mut progress = app.out.progress("copying");
    let mut mounts = Mounts { sessions: Vec::new(), reflink: options.reflink };
    let result = copy_all(app, &mut mounts, &sources, &destination, keep, &mut progress);
    let closed = mounts.close(app);
    let (names, bytes) = progress.finish();
    let problems = result?;
    closed?;
    let (messages, more) = problems.messages();
    messages.iter().for_each(|message| eprintln!("iopath: {message}"));
    if more > 0 {
        eprintln!("iopath: {more} further errors");
    }
    if app.out.json {
        let count = problems.count();
        app.out.document(&json!({ "names": names, "bytes": bytes, "errors": count }))?;
    }
    Ok(if problems.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The images of this command, each mounted once.
struct Mounts {
    sessions: Vec<Session>,
    /// Files share their blocks with their sources.
    reflink: bool,
}

/// Blocks are shared within one file system.
fn check_reflink(sources: &[Side], destination: &Side) -> Result<()> {
    let Side::Image(to) = destination else {
        bail!("{destination}: --reflink shares blocks within one image, and this is none");
    };
    for side in sources {
        match side {
            Side::Image(from) if from.target == to.target => {}
            other => bail!("{other}: --reflink shares blocks within one image: {}", to.target),
        }
    }
    Ok(())
}

impl Mounts {
    fn open(&mut self, app: &mut App, target: &Target, write: bool) -> Result<usize> {
        if let Some(index) = self.sessions.iter().position(|session| session.target == *target) {
            return Ok(index);
        }
        self.sessions.push(session::open(app, target, write)?);
        Ok(self.sessions.len() - 1)
    }

    fn close(self, app: &mut App) -> Result<()> {
        let mut result = Ok(());
        for session in self.sessions {
            let closed = session::close(app, session);
            result = result.and(closed);
        }
        result
    }
}

fn copy_all(
    app: &mut App,
    mounts: &mut Mounts,
    sources: &[Side],
    destination: &Side,
    keep: Keep,
    progress: &mut crate::out::Progress,
) -> Result<Problems> {
    let mut problems = Problems::new();
    // The destination first: an image that is also a source must be mounted for writing.
    match destination {
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, true)?;
            for side in sources {
                let session = &mounts.sessions[index];
                let (top, name) = into_image(app, session, place, side, sources.len())?;
                refuse_itself(app, session, side, &top, &name)?;
                let (fs, shown) = (session.fs.clone(), session.place(&top.0));
                let source = self_source(app, mounts, side, name, keep)?;
                let mut sink = ImageSink::new(fs, top.1, shown, keep);
                problems.append(copy::run(app.cx, source, &mut sink, progress)?);
            }
        }
        Side::Host(path) => {
            for side in sources {
                let (top, name) = into_host(path, side, sources.len());
                let source = self_source(app, mounts, side, name, keep)?;
                let mut sink = HostSink::new(&top, keep)?;
                problems.append(copy::run(app.cx, source, &mut sink, progress)?);
                for (what, count) in sink.refused() {
                    let top = top.display();
                    app.out.note(format!("iopath: {top}: the host did not accept {count} {what}"));
                }
            }
        }
        Side::Archive(path) => {
            let out: Box<dyn Write> = match path {
                Some(path) => {
                    Box::new(File::create(path).with_context(|| path.display().to_string())?)
                }
                None => Box::new(io::stdout()),
            };
            let mut sink = TarSink::new(BufWriter::with_capacity(1 << 20, out), keep);
            let [side] = sources else { bail!("an archive takes one source") };
            let name = own_name(side).unwrap_or_default();
            let source = self_source(app, mounts, side, name, keep)?;
            problems.append(copy::run(app.cx, source, &mut sink, progress)?);
            if sink.skipped() > 0 {
                let count = sink.skipped();
                app.out
                    .note(format!("iopath: {count} sockets left out: archives cannot hold them"));
            }
        }
    }
    Ok(problems)
}

/// The source of a side, whose tree becomes `name` in the destination.
fn self_source(
    app: &mut App,
    mounts: &mut Mounts,
    side: &Side,
    name: Vec<u8>,
    keep: Keep,
) -> Result<Box<dyn Source>> {
    Ok(match side {
        Side::Host(path) => {
            if path.is_dir() && !path.is_symlink() {
                keep.check_directory(|| path.display().to_string())?;
            }
            Box::new(HostSource::new(path.clone(), name, keep))
        }
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, false)?;
            let session = &mounts.sessions[index];
            let follow = place.path.ends_with(b"/");
            let root = session.find(app, &place.path, follow)?;
            let shown = session.place(&place.path);
            if root.is_dir() {
                keep.check_directory(|| shown.clone())?;
            }
            let source = ImageSource::new(session.fs.clone(), root, shown, name, keep);
            Box::new(if mounts.reflink { source.sharing() } else { source })
        }
        Side::Archive(path) => {
            let input: Box<dyn Read + Send> = match path {
                Some(path) => {
                    Box::new(File::open(path).with_context(|| path.display().to_string())?)
                }
                None => Box::new(io::stdin()),
            };
            Box::new(TarSource::new(BufReader::with_capacity(1 << 20, input), name, keep))
        }
    })
}

/// The name that a source brings along; none for `dir/.`, the root of an image, and archives.
fn own_name(side: &Side) -> Option<Vec<u8>> {
    let path = match side {
        Side::Host(path) => path.as_os_str().as_bytes(),
        Side::Image(place) => &place.path,
        Side::Archive(_) => return None,
    };
    let trimmed = &path[..path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1)];
    let name = copy::split(trimmed).1;
    match name {
        b"" | b"." => None,
        b".." => std::fs::canonicalize(Path::new(OsStr::from_bytes(path)))
            .ok()
            .and_then(|full| full.file_name().map(|name| name.as_bytes().to_vec())),
        name => Some(name.to_vec()),
    }
}

type Top = (Vec<u8>, base::Ino);

/// Refuses a copy within one image that would replace its own source, or never end.
fn refuse_itself(
    app: &mut App,
    session: &Session,
    side: &Side,
    top: &Top,
    name: &[u8],
) -> Result<()> {
    let Side::Image(place) = side else { return Ok(()) };
    if place.target != session.target {
        return Ok(());
    }
    let source = session.find(app, &place.path, place.path.ends_with(b"/"))?;
    let found = session.fs.lookup(app.cx, top.1, if name.is_empty() { b"." } else { name });
    if found.is_ok_and(|attr| attr.ino == source.ino) {
        bail!("{place}: source and destination are the same");
    }
    if top.1 == source.ino || Reached::above(app.cx, &*session.fs, top.1).contains(source.ino) {
        bail!("{place}: a directory is not copied into itself");
    }
    Ok(())
}

/// Where in an image a source goes: an existing directory (path and number) and the name below it.
fn into_image(
    app: &mut App,
    session: &Session,
    place: &Place,
    side: &Side,
    sources: usize,
) -> Result<(Top, Vec<u8>)> {
    match session.names.stat(app.cx, &place.path) {
        Ok(attr) if attr.is_dir() => {
            return Ok(((place.path.clone(), attr.ino), own_name(side).unwrap_or_default()));
        }
        Ok(_) | Err(Errno::ENOENT) if sources > 1 => {
            bail!("{place}: with several sources the destination must be a directory")
        }
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(at(place)(errno)),
    }
    let end = place.path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let (above, name) = copy::split(&place.path[..end]);
    let above = if above.is_empty() { b"/" } else { above };
    let dir = session
        .find(app, above, true)
        .with_context(|| format!("the directory of {place}; make it with `iopath mkdir -p`"))?;
    if !dir.is_dir() {
        return Err(at(session.place(above))(Errno::ENOTDIR));
    }
    Ok(((above.to_vec(), dir.ino), name.to_vec()))
}

/// The same on the host.
fn into_host(path: &Path, side: &Side, sources: usize) -> (PathBuf, Vec<u8>) {
    if path.is_dir() || sources > 1 {
        return (path.to_path_buf(), own_name(side).unwrap_or_default());
    }
    // The content of a root or an archive goes into a directory that is made for it.
    if own_name(side).is_none() {
        return (path.to_path_buf(), Vec::new());
    }
    let name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_path_buf(),
        _ => PathBuf::from("."),
    };
    (above, name)
}
