//! `diff`: how two trees differ.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use vfs::FileType;

use crate::app::App;
use crate::copy::digest::{Entry, Tree};
use crate::copy::host_source::HostSource;
use crate::copy::image_source::ImageSource;
use crate::copy::tar_source::TarSource;
use crate::copy::{self, Keep, Source, decompress};
use crate::session::{self, Session};
use crate::target::{Side, TargetPath};
use crate::{glob, text};

/// Status of diff(1) where it could not compare.
const TROUBLE: u8 = 2;

/// Compare two trees: images, directories, archives
#[derive(Args)]
#[command(after_help = "\
Types, contents, modes, owners, devices and extended attributes are compared, and times with
--times. An image without a path is compared as a whole. Holes are zeros. An empty lost+found
that only one side has is no difference.

Exit status: 0 no difference, 1 differences, 2 something could not be compared.

Examples:
  iopath diff old.img new.img
  iopath diff disk.img@2:/etc ./etc
  iopath diff --no-owner tree.tar.gz: disk.img
  iopath diff --json a.img b.img | jq -r .path")]
pub struct Options {
    /// One tree: TARGET, TARGET:/path, a directory, FILE.tar:
    #[arg(value_name = "PLACE")]
    first: OsString,
    /// The other
    #[arg(value_name = "PLACE")]
    second: OsString,
    /// Times of modification too
    #[arg(long)]
    times: bool,
    /// Owners are not compared
    #[arg(long)]
    no_owner: bool,
    /// Modes are not compared
    #[arg(long)]
    no_mode: bool,
    /// Extended attributes and ACLs are not compared
    #[arg(long)]
    no_xattrs: bool,
    /// Leave out names, or paths below the places, that match
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

/// Runs `diff`.
///
/// # Errors
/// The output is closed. What cannot be compared is reported, with status 2.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match compare(app, options) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if crate::out::is_closed_pipe(&error) => Err(error),
        Err(error) => {
            app.out.problem(format!("{error:#}"));
            Ok(ExitCode::from(TROUBLE))
        }
    }
}

/// Prints the differences; answers whether there are none.
fn compare(app: &mut App, options: &Options) -> Result<bool> {
    let mut keep = Keep { xattrs: !options.no_xattrs, mode: !options.no_xattrs, ..Keep::ALL };
    keep.exclude = glob::set(&options.exclude).context("--exclude")?;
    let first = tree(app, &options.first, &keep)?;
    let second = tree(app, &options.second, &keep)?;
    let mut paths: Vec<&Vec<u8>> = first.entries.keys().chain(second.entries.keys()).collect();
    paths.sort();
    paths.dedup();
    let (mut same, mut gone) = (true, BTreeSet::new());
    for path in paths {
        let (first, second) = (first.entries.get(path), second.entries.get(path));
        // A directory that one side lacks stands for what is in it.
        if first.is_some() != second.is_some() && gone.contains(copy::split(path).0) {
            gone.insert(&path[..]);
            continue;
        }
        let found = match (first, second) {
            (Some(first), Some(second)) => differences(first, second, options),
            (Some(only), None) | (None, Some(only)) => {
                gone.insert(&path[..]);
                let place = if first.is_some() { &options.first } else { &options.second };
                missing(path, only, place)
            }
            (None, None) => Vec::new(),
        };
        for difference in found {
            same = false;
            show(app, path, &difference)?;
        }
    }
    Ok(same)
}

/// One thing in which two nodes differ.
struct Difference {
    what: String,
    first: String,
    second: String,
}

fn missing(path: &[u8], only: &Entry, place: &OsString) -> Vec<Difference> {
    let kind = only.meta.kind;
    // Only file systems of Linux's ext family have it, and each has its own.
    if path == b"lost+found" && kind == FileType::Directory {
        return Vec::new();
    }
    let what = format!("only in {}", place.display());
    vec![Difference { what, first: kind.word().to_owned(), second: String::new() }]
}

fn differences(first: &Entry, second: &Entry, options: &Options) -> Vec<Difference> {
    let (a, b) = (&first.meta, &second.meta);
    let mut found = Vec::new();
    let mut add = |what: &str, first: String, second: String| {
        if first != second {
            found.push(Difference { what: what.to_owned(), first, second });
        }
    };
    if a.kind != b.kind {
        add("type", a.kind.word().to_owned(), b.kind.word().to_owned());
        return found;
    }
    if a.kind == FileType::Regular {
        add("size", a.size.to_string(), b.size.to_string());
        if a.size == b.size {
            add("content", text::hex(&first.content[..8]), text::hex(&second.content[..8]));
        }
    }
    add("target", text::escape(&first.target), text::escape(&second.target));
    let device = |rdev: u64| format!("{}:{}", vfs::major(rdev), vfs::minor(rdev));
    if a.kind.is_device() {
        add("device", device(a.rdev), device(b.rdev));
    }
    if !options.no_mode && a.kind != FileType::Symlink {
        add("mode", format!("{:04o}", a.mode), format!("{:04o}", b.mode));
    }
    if !options.no_owner {
        add("owner", format!("{}:{}", a.uid, a.gid), format!("{}:{}", b.uid, b.gid));
    }
    if options.times {
        let time = |time: base::Timespec| format!("{}.{:09}", time.sec, time.nsec);
        add("mtime", time(a.mtime), time(b.mtime));
    }
    let names = first.attributes.keys().chain(second.attributes.keys());
    let names: BTreeSet<_> = names.collect();
    for name in names {
        let value = |entry: &Entry| match entry.attributes.get(name) {
            Some(value) => format!("0x{}", text::hex(value)),
            None => "none".to_owned(),
        };
        add(&format!("attribute {}", text::escape(name)), value(first), value(second));
    }
    found
}

fn show(app: &mut App, path: &[u8], difference: &Difference) -> Result<()> {
    let Difference { what, first, second } = difference;
    let path = format!("/{}", text::escape(path));
    if app.out.json {
        let line = json!({ "path": path, "what": what, "first": first, "second": second });
        return Ok(app.out.document(&line)?);
    }
    Ok(app.out.line(match second.is_empty() {
        true => format!("{path}: {what}: {first}"),
        false => format!("{path}: {what}: {first} / {second}"),
    })?)
}

/// Reads a tree whole.
fn tree(app: &mut App, place: &OsString, keep: &Keep) -> Result<Tree> {
    let mut session = None;
    let source = source(app, place, keep, &mut session)?;
    let progress = app.out.progress("reading");
    let read = Tree::read(app.cx, source, progress);
    if let Some(session) = session {
        session::close(app, session)?;
    }
    let (tree, problems) = read?;
    let (messages, more) = problems.messages();
    if let Some((last, others)) = messages.split_last() {
        others.iter().for_each(|message| app.out.problem(message));
        match more {
            0 => bail!("{last}"),
            more => bail!("{last}; {more} further errors"),
        }
    }
    Ok(tree)
}

fn source(
    app: &mut App,
    place: &OsString,
    keep: &Keep,
    session: &mut Option<Session>,
) -> Result<Box<dyn Source>> {
    let (name, keep) = (Vec::new(), keep.clone());
    let side = match Side::parse(place, false, true)? {
        // An image without a path is all of it.
        Side::Host(path) if !path.is_dir() => Side::Image(TargetPath::parse(place)?),
        side => side,
    };
    Ok(match side {
        Side::Host(path) => Box::new(HostSource::new(path.join(""), name, keep)),
        Side::Image(place) => {
            let opened = session.insert(session::open(app, &place.target, false)?);
            let root = opened.find(app, &place.path, true)?;
            Box::new(ImageSource::new(opened, &place.path, root, name, keep))
        }
        Side::Archive(Some(path)) => {
            let shown = || path.display().to_string();
            let input = Box::new(File::open(&path).with_context(shown)?);
            let input = decompress::unpacked(input).with_context(shown)?;
            Box::new(TarSource::new(input, name, keep))
        }
        Side::Archive(None) | Side::Standard => {
            let input = decompress::unpacked(Box::new(std::io::stdin()))?;
            Box::new(TarSource::new(input, name, keep))
        }
    })
}
