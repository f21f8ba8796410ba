//! `manifest`: one JSON line per name, for comparing trees.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Ino;
use clap::Args;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use vfs::{Attr, FileType};

use crate::app::{App, at};
use crate::out::Progress;
use crate::session::{self, Session};
use crate::target::TargetPath;
use crate::text;
use crate::walk::{Reached, descend};

/// Print one JSON line per name: everything that a copy should keep
#[derive(Args)]
#[command(after_help = "\
Names of a directory are sorted by bytes, each followed by what is below it. What cannot be
read has a line with the key `error`, and the exit status is 1. In paths and
targets \\\\ is a backslash and \\xHH a byte that is not UTF-8. Values of attributes are
hexadecimal. Directories have size 0: theirs is the format's affair.

Examples:
  iopath manifest disk.img > before.jsonl
  iopath manifest disk.img:/etc | jq -r 'select(.type == \"file\") | .sha256 + \" \" + .path'
  diff <(iopath manifest a.img) <(iopath manifest b.img)")]
pub struct Options {
    /// Directory or file: TARGET or TARGET:/path
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// Do not read contents: no sha256
    #[arg(long)]
    no_hash: bool,
}

/// Runs `manifest`.
///
/// # Errors
/// A place that cannot be opened or read. A directory that was printed before is reported, and the
/// answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let place = TargetPath::parse(&options.place)?;
    let mut progress = Progress::hidden();
    let problems = session::with_place(app, &place, false, |app, session| {
        let attr = session.find(app, &place.path, false)?;
        let names = session.names_below(app, &attr);
        progress = app.out.progress_of_names("reading", names);
        let reached = Reached::above(app.cx, &*session.fs, attr.ino);
        let mut walk = Walk {
            session,
            hash: !options.no_hash,
            progress: &mut progress,
            reached,
            path: place.path.clone(),
            levels: Vec::new(),
            problems: 0,
        };
        walk.run(app, &attr)?;
        Ok(walk.problems)
    });
    progress.finish();
    Ok(if problems? == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Walk<'a> {
    session: &'a Session,
    hash: bool,
    progress: &'a mut Progress,
    reached: Reached,
    path: Vec<u8>,
    levels: Vec<Level>,
    problems: u64,
}

/// A directory whose names are being printed.
struct Level {
    /// Length of the path outside of it.
    outside: usize,
    children: std::vec::IntoIter<(Vec<u8>, Ino)>,
}

impl Walk<'_> {
    /// Prints a name and, if it is a directory, everything below it, as deep as it is.
    fn run(&mut self, app: &mut App, top: &Attr) -> Result<()> {
        self.name(app, top, self.path.len())?;
        while let Some(level) = self.levels.last_mut() {
            let Some((name, ino)) = level.children.next() else {
                self.path.truncate(level.outside);
                self.levels.pop();
                continue;
            };
            let outside = descend(&mut self.path, &name);
            let attr = self.session.fs.getattr(app.cx, ino);
            match attr.map_err(|errno| at(self.session.place(&self.path))(errno)) {
                Ok(attr) => self.name(app, &attr, outside)?,
                Err(error) => {
                    self.unreadable(app, &error)?;
                    self.path.truncate(outside);
                }
            }
        }
        Ok(())
    }

    /// Prints the name at the path. A directory becomes the last level; one that came before is
    /// reported instead.
    fn name(&mut self, app: &mut App, attr: &Attr, outside: usize) -> Result<()> {
        if attr.is_dir()
            && let Err(message) = self.reached.enter(attr.ino, || self.session.place(&self.path))
        {
            app.out.problem(message);
            self.problems += 1;
            self.path.truncate(outside);
            return Ok(());
        }
        match self.line(app, &self.path, attr) {
            Ok(line) => app.out.document(&line)?,
            Err(error) => self.unreadable(app, &error)?,
        }
        self.progress.add(1, if attr.kind == FileType::Regular { attr.size } else { 0 });
        if !attr.is_dir() {
            self.path.truncate(outside);
            return Ok(());
        }
        let mut children: Vec<(Vec<u8>, Ino)> = Vec::new();
        let listed = self.session.fs.readdir(app.cx, attr.ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push((entry.name.to_vec(), entry.ino));
            }
            true
        });
        if let Err(errno) = listed {
            let error = at(self.session.place(&self.path))(errno);
            self.unreadable(app, &error)?;
        }
        children.sort();
        self.levels.push(Level { outside, children: children.into_iter() });
        Ok(())
    }

    /// A line for what cannot be read, which is reported as well.
    fn unreadable(&mut self, app: &mut App, error: &anyhow::Error) -> Result<()> {
        app.out.problem(format!("{error:#}"));
        self.problems += 1;
        let line = json!({ "path": text::escape(&self.path), "error": format!("{error:#}") });
        Ok(app.out.document(&line)?)
    }

    fn line(&self, app: &mut App, path: &[u8], attr: &Attr) -> Result<Value> {
        let (fs, place) = (&self.session.fs, self.session.place(path));
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| line.insert(key.to_string(), value);
        put("path", json!(text::escape(path)));
        put("type", json!(attr.kind.word()));
        put("mode", json!(format!("{:04o}", attr.mode)));
        put("uid", json!(attr.uid));
        put("gid", json!(attr.gid));
        put("size", json!(if attr.is_dir() { 0 } else { attr.size }));
        put("mtime_ns", super::ls::attr_json(attr)["mtime_ns"].clone());
        put("nlink", json!(attr.nlink));
        put("rdev", json!(attr.rdev));
        let mut names = fs.listxattr(app.cx, attr.ino).map_err(at(&place))?;
        names.sort();
        let mut xattrs = Map::new();
        for name in names {
            let value = fs.getxattr(app.cx, attr.ino, &name).map_err(at(&place))?;
            xattrs.insert(text::escape(&name), json!(text::hex(&value)));
        }
        put("xattrs", Value::Object(xattrs));
        match attr.kind {
            FileType::Symlink => {
                let target = fs.readlink(app.cx, attr.ino).map_err(at(&place))?;
                put("target", json!(text::escape(&target)));
            }
            FileType::Regular if self.hash => {
                let mut hash = Sha256::new();
                let mut buf = vec![0; 256 << 10];
                let mut offset = 0;
                loop {
                    let count = fs.read(app.cx, attr.ino, offset, &mut buf);
                    let count = count.map_err(at(format!("{place} at byte {offset}")))?;
                    if count == 0 {
                        break;
                    }
                    hash.update(&buf[..count]);
                    offset += count as u64;
                }
                put("sha256", json!(text::hex(&hash.finalize())));
            }
            _ => {}
        }
        Ok(Value::Object(line))
    }
}
