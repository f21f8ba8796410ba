//! `diff`: how two trees differ.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use vfs::FileType;

use super::cp::Mounts;
use crate::app::App;
use crate::copy::host_source::HostSource;
use crate::copy::image_source::ImageSource;
use crate::copy::nodes::{Entry, Nodes, together};
use crate::copy::selection::is_below;
use crate::copy::tar_source::TarSource;
use crate::copy::{Keep, Problems, decompress};
use crate::out::Progress;
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
    /// The other tree
    #[arg(value_name = "PLACE")]
    second: OsString,
    /// Compare modification times, too
    #[arg(long)]
    times: bool,
    /// Do not compare owners
    #[arg(long)]
    no_owner: bool,
    /// Do not compare modes
    #[arg(long)]
    no_mode: bool,
    /// Do not compare extended attributes and ACLs
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
        Ok(status) => Ok(status),
        Err(error) if crate::out::is_closed_pipe(&error) => Err(error),
        Err(error) => {
            app.out.problem(format!("{error:#}"));
            Ok(ExitCode::from(TROUBLE))
        }
    }
}

/// Prints the differences, and what could not be compared; returns the status.
fn compare(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut keep = Keep { xattrs: !options.no_xattrs, mode: !options.no_xattrs, ..Keep::ALL };
    keep.exclude = glob::set(&options.exclude).context("--exclude")?;
    keep.sorted = true;
    let mut mounts = Mounts::default();
    let compared = trees(app, options, &keep, &mut mounts);
    mounts.close(app)?;
    let (same, problems) = compared?;
    problems.show(&app.out);
    Ok(match (problems.count(), same) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::FAILURE,
        _ => ExitCode::from(TROUBLE),
    })
}

fn trees(
    app: &mut App,
    options: &Options,
    keep: &Keep,
    mounts: &mut Mounts,
) -> Result<(bool, Problems)> {
    let mut progress = app.out.progress("reading");
    let first = nodes(app, &options.first, keep, mounts, &mut progress)?;
    let second = nodes(app, &options.second, keep, mounts, &mut progress)?;
    let (mut same, mut gone) = (true, None::<Vec<u8>>);
    let problems = together(app, first, Some(second), &mut progress, &mut |app, first, second| {
        let (path, found) = match (first, second) {
            (Some(first), Some(second)) => {
                (&first.path, differences(&first.entry, &second.entry, options))
            }
            (Some(only), None) | (None, Some(only)) => {
                // A directory that one side lacks stands for what is in it.
                if gone.as_ref().is_some_and(|gone| is_below(&only.path, gone)) {
                    return Ok(());
                }
                gone = Some(only.path.clone());
                let place = if first.is_some() { &options.first } else { &options.second };
                (&only.path, missing(&only.path, &only.entry, place))
            }
            (None, None) => return Ok(()),
        };
        for difference in found {
            same = false;
            show(app, path, &difference)?;
        }
        Ok(())
    });
    progress.finish();
    Ok((same, problems?))
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

/// Begins to read a tree.
fn nodes(
    app: &mut App,
    place: &OsString,
    keep: &Keep,
    mounts: &mut Mounts,
    progress: &mut Progress,
) -> Result<Nodes> {
    let (name, keep) = (Vec::new(), keep.clone());
    let side = match Side::parse(place, false, true)? {
        // An image without a path is all of it.
        Side::Host(path) if !path.is_dir() => Side::Image(TargetPath::parse(place)?),
        side => side,
    };
    let archive: Box<dyn Read + Send> = match side {
        Side::Host(path) => {
            let source = HostSource::new(path.join(""), name, keep);
            return Ok(Nodes::start(app.cx, Box::new(source)));
        }
        Side::Image(place) => {
            let index = mounts.open(app, &place.target, false)?;
            let opened = &mounts.sessions[index];
            let root = opened.find(app, &place.path, true)?;
            let source = ImageSource::new(opened, &place.path, root, name, keep);
            return Ok(Nodes::start(app.cx, Box::new(source)));
        }
        Side::Archive(Some(path)) => {
            let shown = || path.display().to_string();
            let input = Box::new(File::open(&path).with_context(shown)?);
            decompress::unpacked(input).with_context(shown)?
        }
        Side::Archive(None) | Side::Standard => decompress::unpacked(Box::new(std::io::stdin()))?,
    };
    let source = Box::new(TarSource::new(archive, name, keep));
    Ok(Nodes::collect(app.cx, source, progress))
}
