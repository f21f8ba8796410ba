//! `ls`: what a directory holds.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Ino;
use clap::Args;
use serde_json::{Value, json};
use vfs::{Attr, FileType};

use crate::app::{App, at};
use crate::copy::split;
use crate::owner::Names;
use crate::places;
use crate::session::Session;
use crate::text;
use crate::trees;
use crate::walk::Reached;

/// List a directory, or show a file, inside an image
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Owners are shown by the names of the image's own /etc/passwd and /etc/group.

Examples:
  iopath ls disk.img
  iopath ls -lh disk.img@2:/etc
  iopath ls -lt 'disk.img:/var/log/*.gz'
  iopath ls --json disk.img:/etc | jq -r .name"
)]
pub struct Options {
    /// Directory or file: TARGET or TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// Long format: mode, links, owner, group, size, time (UTC); symlinks themselves
    #[arg(short)]
    long: bool,
    /// As -l, with owners and groups as numbers
    #[arg(short)]
    numeric: bool,
    /// Print names that begin with a dot, too
    #[arg(short, short_alias = 'A')]
    all: bool,
    /// List the directory itself, not its content
    #[arg(short)]
    directory: bool,
    /// Print inode numbers
    #[arg(short)]
    inode: bool,
    /// Print sizes in KiB, MiB, ..
    #[arg(short = 'h', long = "human-readable", alias = "human", short_alias = 'H')]
    human: bool,
    /// List subdirectories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Sort by time, newest first
    #[arg(short = 't')]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', conflicts_with = "by_time")]
    by_size: bool,
    /// Reverse the order
    #[arg(short = 'r', long)]
    reverse: bool,
    /// One name in a line (always on)
    #[arg(short = '1')]
    one: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs `ls`.
///
/// # Errors
/// The output is closed. What cannot be read is reported, and the rest follows; the answer is
/// failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let mut first = true;
    places::each(app, &options.places, false, |app, session, place| {
        if options.places.len() > 1 && !app.out.json {
            if !std::mem::take(&mut first) {
                app.out.line("")?;
            }
            app.out.line(format!("{place}:"))?;
        }
        list(app, session, &place.path, options)
    })
}

/// A name with what is known of it: none for an inode that cannot be read.
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode's number.
    pub ino: Ino,
    /// Its attributes.
    pub attr: Option<Attr>,
}

/// Lists a path of a mounted file system; false where something could not be read.
///
/// # Errors
/// Names the place that cannot be read.
fn list(app: &mut App, session: &Session, path: &[u8], options: &Options) -> Result<bool> {
    let itself = options.directory || options.long || options.numeric;
    let follow = !itself || path.ends_with(b"/");
    let attr = match session.names.stat(app.cx, path) {
        // A symlink that leads nowhere is there itself.
        Ok(attr) if follow => attr,
        _ => session.find(app, path, false)?,
    };
    let names = match options.long && !app.out.json {
        true => Names::of(app, session),
        false => Names::default(),
    };
    let show = Show { session, options, names };
    if !attr.is_dir() || options.directory {
        let entry = Entry { name: path.to_vec(), ino: attr.ino, attr: Some(attr) };
        return show.file(app, entry);
    }
    let mut good = true;
    let mut reached = Reached::above(app.cx, &*session.fs, attr.ino);
    let mut dirs = vec![(path.to_vec(), attr.ino)];
    let mut first = true;
    while let Some((path, ino)) = dirs.pop() {
        let entered = reached.enter(ino, || session.place(&path));
        let read = entered.map_err(|message| anyhow::anyhow!(message));
        let read = read.and_then(|()| entries(app, session, ino, &path, options.all));
        let (mut entries, complete) = match read {
            Ok(read) => read,
            Err(error) => {
                app.out.problem(format!("{error:#}"));
                good = false;
                continue;
            }
        };
        good &= complete;
        if options.recursive && !app.out.json {
            let blank = if first { "" } else { "\n" };
            app.out.line(format!("{blank}{}:", text::printable(&path)))?;
        }
        first = false;
        show.sort(&mut entries);
        if options.recursive {
            let is_dir = |entry: &&Entry| entry.attr.as_ref().is_some_and(|attr| attr.is_dir());
            for entry in entries.iter().rev().filter(is_dir) {
                dirs.push((join(&path, &entry.name), entry.ino));
            }
        }
        good &= show.all(app, entries, &path)?;
    }
    Ok(good)
}

/// The names of a directory with their attributes, sorted by bytes, without `.` and `..`; and
/// whether all of them could be read. Those that could not are reported.
///
/// # Errors
/// Names the place that cannot be read.
pub fn entries(
    app: &mut App,
    session: &Session,
    dir: Ino,
    path: &[u8],
    all: bool,
) -> Result<(Vec<Entry>, bool)> {
    let names = trees::names(app, session, dir, path)?;
    let (mut entries, mut complete) = (Vec::with_capacity(names.len()), true);
    for (name, ino) in names.into_iter().filter(|(name, _)| all || !name.starts_with(b".")) {
        let attr = match session.fs.getattr(app.cx, ino) {
            Ok(attr) => Some(attr),
            Err(errno) => {
                app.out.problem(at(session.place(&join(path, &name)))(errno).to_string());
                complete = false;
                None
            }
        };
        entries.push(Entry { name, ino, attr });
    }
    Ok((entries, complete))
}

/// What prints names.
struct Show<'a> {
    session: &'a Session,
    options: &'a Options,
    names: Names,
}

impl Show<'_> {
    fn sort(&self, entries: &mut [Entry]) {
        let Options { by_time, by_size, reverse, .. } = *self.options;
        if by_time {
            let time = |entry: &Entry| entry.attr.as_ref().map(|attr| attr.mtime);
            entries.sort_by_key(|entry| std::cmp::Reverse(time(entry)));
        }
        if by_size {
            let size = |entry: &Entry| entry.attr.as_ref().map(|attr| attr.size);
            entries.sort_by_key(|entry| std::cmp::Reverse(size(entry)));
        }
        if reverse {
            entries.reverse();
        }
    }

    /// A file by its path: in JSON by its directory and its name.
    fn file(&self, app: &mut App, mut entry: Entry) -> Result<bool> {
        let path = entry.name.clone();
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let (above, name) = split(&path[..end]);
        if app.out.json && !name.is_empty() {
            entry.name = name.to_vec();
        }
        let above = if above.is_empty() { b"/" } else { above };
        self.all(app, vec![entry], above)
    }

    /// False where a symlink could not be read.
    fn all(&self, app: &mut App, entries: Vec<Entry>, path: &[u8]) -> Result<bool> {
        let (mut rows, mut good) = (Vec::new(), true);
        for entry in entries {
            let mut target = None;
            if entry.attr.as_ref().is_some_and(|attr| attr.kind == FileType::Symlink) {
                match self.session.fs.readlink(app.cx, entry.ino) {
                    Ok(text) => target = Some(text),
                    Err(errno) => {
                        let place = self.session.place(&join(path, &entry.name));
                        app.out.problem(at(place)(errno).to_string());
                        good = false;
                    }
                }
            }
            match app.out.json {
                true => self.document(app, &entry, target, path)?,
                false => rows.push((entry, target)),
            }
        }
        // Columns are as wide as their widest cell.
        let cells: Vec<[String; 5]> = rows.iter().map(|(entry, _)| self.columns(entry)).collect();
        let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3), width(4)];
        for ((entry, target), cell) in rows.iter().zip(&cells) {
            let mut line = String::new();
            if self.options.inode {
                line.push_str(&format!("{:>w$} ", cell[0], w = widths[0]));
            }
            let long = self.options.long || self.options.numeric;
            if long {
                let mode = entry.attr.as_ref().map(|attr| text::mode_letters(attr.kind, attr.mode));
                line.push_str(&mode.unwrap_or("??????????".into()));
                for column in 1..5 {
                    line.push_str(&format!(" {:>w$}", cell[column], w = widths[column]));
                }
                let time = entry.attr.as_ref().map(|attr| text::minute(attr.mtime));
                line.push_str(&format!(" {:>16} ", time.unwrap_or("?".into())));
            }
            line.push_str(&text::printable(&entry.name));
            if let (Some(target), true) = (target, long) {
                line.push_str(&format!(" -> {}", text::printable(target)));
            }
            app.out.line(line)?;
        }
        Ok(good)
    }

    fn document(
        &self,
        app: &mut App,
        entry: &Entry,
        target: Option<Vec<u8>>,
        path: &[u8],
    ) -> Result<()> {
        let mut value = match &entry.attr {
            Some(attr) => attr_json(attr),
            None => json!({ "ino": entry.ino.0, "error": "the inode cannot be read" }),
        };
        value["name"] = json!(text::escape(&entry.name));
        value["directory"] = json!(text::escape(path));
        if let Some(target) = &target {
            value["target"] = json!(text::escape(target));
        }
        Ok(app.out.document(&value)?)
    }

    fn columns(&self, entry: &Entry) -> [String; 5] {
        let ino = entry.ino.to_string();
        let Some(attr) = &entry.attr else {
            return [ino, "?".into(), "?".into(), "?".into(), "?".into()];
        };
        let size = match attr.kind.is_device() {
            true => format!("{}, {}", vfs::major(attr.rdev), vfs::minor(attr.rdev)),
            false if self.options.human => text::size(attr.size),
            false => attr.size.to_string(),
        };
        let (user, group) = match self.options.numeric {
            true => (attr.uid.to_string(), attr.gid.to_string()),
            false => (self.names.user(attr.uid), self.names.group(attr.gid)),
        };
        [ino, attr.nlink.to_string(), user, group, size]
    }
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
