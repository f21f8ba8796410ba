//! `ls`: what a directory holds.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::{Errno, Ino};
use clap::Args;
use serde_json::{Value, json};
use vfs::{Attr, FileType};

use crate::app::{App, at};
use crate::session::{self, Session};
use crate::target::Place;
use crate::text;
use crate::walk::Reached;

/// List a directory, or show a file, inside an image
#[derive(Args)]
#[command(after_help = "Examples:
  iopath ls disk.img
  iopath ls -l disk.img@2:/etc
  iopath ls --json disk.img:/etc | jq -r .name")]
pub struct Options {
    /// Directory or file: TARGET or TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Mode, links, owner, group, size, time (UTC)
    #[arg(short)]
    long: bool,
    /// Also names that begin with a dot
    #[arg(short)]
    all: bool,
    /// The directory itself, not what it holds
    #[arg(short)]
    directory: bool,
    /// Inode numbers
    #[arg(short)]
    inode: bool,
    /// Sizes in KiB, MiB, ..
    #[arg(short = 'H', long = "human")]
    human: bool,
    /// Below each directory too
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Runs `ls`.
///
/// # Errors
/// A place that cannot be opened or read. A directory that was listed before is told, and the
/// answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut problems = 0;
    for (index, place) in options.places.iter().enumerate() {
        let place = Place::parse(place)?;
        session::with_place(app, &place, false, |app, session| {
            if options.places.len() > 1 && !app.out.json {
                if index > 0 {
                    app.out.line("")?;
                }
                app.out.line(format!("{place}:"))?;
            }
            problems += list(app, session, &place.path, options)?;
            Ok(())
        })?;
    }
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lists a path of a mounted file system; answers how many directories were left out because they
/// had been listed before.
///
/// # Errors
/// Names the place that cannot be read.
pub fn list(app: &mut App, session: &Session, path: &[u8], options: &Options) -> Result<u64> {
    let attr = session.find(app, path, !options.directory)?;
    if !attr.is_dir() || options.directory {
        show(app, session, vec![(path.to_vec(), attr)], path, options)?;
        return Ok(0);
    }
    let mut problems = 0;
    let mut reached = Reached::above(app.cx, &*session.fs, attr.ino);
    let mut dirs = vec![(path.to_vec(), attr.ino)];
    let mut first = true;
    while let Some((path, ino)) = dirs.pop() {
        if let Err(message) = reached.enter(ino, || session.place(&path)) {
            app.out.problem(message);
            problems += 1;
            continue;
        }
        if options.recursive && !app.out.json {
            let blank = if first { "" } else { "\n" };
            app.out.line(format!("{blank}{}:", text::printable(&path)))?;
        }
        first = false;
        let entries = entries(app, session, ino, &path, options.all)?;
        if options.recursive {
            for (name, attr) in entries.iter().rev().filter(|(_, attr)| attr.is_dir()) {
                dirs.push((join(&path, name), attr.ino));
            }
        }
        show(app, session, entries, &path, options)?;
    }
    Ok(problems)
}

/// The names of a directory with their attributes, sorted by bytes, without `.` and `..`.
///
/// # Errors
/// Names the place that cannot be read.
pub fn entries(
    app: &mut App,
    session: &Session,
    dir: Ino,
    path: &[u8],
    all: bool,
) -> Result<Vec<(Vec<u8>, Attr)>> {
    let mut names = Vec::new();
    let read = session.fs.readdir(app.cx, dir, 0, &mut |entry| {
        let hidden = entry.name.starts_with(b".") && !all;
        if entry.name != b"." && entry.name != b".." && !hidden {
            names.push((entry.name.to_vec(), entry.ino));
        }
        true
    });
    read.map_err(at(session.place(path)))?;
    names.sort();
    let mut entries = Vec::with_capacity(names.len());
    for (name, ino) in names {
        let attr = session.fs.getattr(app.cx, ino);
        let attr = attr.map_err(|e: Errno| at(session.place(&join(path, &name)))(e))?;
        entries.push((name, attr));
    }
    Ok(entries)
}

fn show(
    app: &mut App,
    session: &Session,
    entries: Vec<(Vec<u8>, Attr)>,
    path: &[u8],
    options: &Options,
) -> Result<()> {
    let mut rows = Vec::new();
    for (name, attr) in entries {
        let target = match attr.kind {
            FileType::Symlink => {
                let target = session.fs.readlink(app.cx, attr.ino);
                Some(target.map_err(at(session.place(&join(path, &name))))?)
            }
            _ => None,
        };
        if app.out.json {
            let mut value = attr_json(&attr);
            value["name"] = json!(text::escape(&name));
            value["directory"] = json!(text::escape(path));
            if let Some(target) = &target {
                value["target"] = json!(text::escape(target));
            }
            app.out.document(&value)?;
            continue;
        }
        rows.push((name, attr, target));
    }
    // Columns are as wide as their widest cell.
    let cells: Vec<[String; 5]> =
        rows.iter().map(|(_, attr, _)| columns(attr, options.human)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    for ((name, attr, target), cell) in rows.iter().zip(&cells) {
        let mut line = String::new();
        if options.inode {
            line.push_str(&format!("{:>w$} ", cell[0], w = widths[0]));
        }
        if options.long {
            line.push_str(&text::mode_letters(attr.kind, attr.mode));
            for column in 1..5 {
                line.push_str(&format!(" {:>w$}", cell[column], w = widths[column]));
            }
            line.push_str(&format!(" {} ", text::minute(attr.mtime)));
        }
        line.push_str(&text::printable(name));
        if let (Some(target), true) = (target, options.long) {
            line.push_str(&format!(" -> {}", text::printable(target)));
        }
        app.out.line(line)?;
    }
    Ok(())
}

fn columns(attr: &Attr, human: bool) -> [String; 5] {
    let size = match attr.kind.is_device() {
        true => format!("{}, {}", vfs::major(attr.rdev), vfs::minor(attr.rdev)),
        false if human => text::size(attr.size),
        false => attr.size.to_string(),
    };
    let [ino, nlink] = [attr.ino.to_string(), attr.nlink.to_string()];
    [ino, nlink, attr.uid.to_string(), attr.gid.to_string(), size]
}

/// Attributes as JSON.
pub fn attr_json(attr: &Attr) -> Value {
    let time = |time: base::Timespec| {
        i64::try_from(time.as_nanos()).map_or_else(
            |_| json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            |nanos| json!(nanos),
        )
    };
    json!({
        "ino": attr.ino.0,
        "type": attr.kind.word(),
        "mode": format!("{:04o}", attr.mode),
        "nlink": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "rdev": attr.rdev,
        "size": attr.size,
        "blocks": attr.blocks,
        "atime_ns": time(attr.atime),
        "mtime_ns": time(attr.mtime),
        "ctime_ns": time(attr.ctime),
        "btime_ns": attr.btime.map(time),
        "generation": attr.generation,
    })
}

/// A path and a name below it.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path.ends_with(b"/") {
        true => [path, name].concat(),
        false => [path, b"/", name].concat(),
    }
}
