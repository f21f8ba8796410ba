//! `tree`: a directory and all below it, drawn.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Ino;
use clap::Args;
use serde_json::json;
use vfs::{Attr, FileType};

use super::ls::{Entry, attr_json, entries};
use crate::app::{App, at};
use crate::session::{self, Session};
use crate::target::TargetPath;
use crate::text;
use crate::walk::{Reached, descend};

/// Print a directory and everything below it as a tree
#[derive(Args)]
#[command(after_help = "Examples:
  iopath tree disk.img
  iopath tree -L 2 disk.img:/etc
  iopath tree --json disk.img:/etc | jq -r .path")]
pub struct Options {
    /// Directory: TARGET or TARGET:/path
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// Descend at most this many levels
    #[arg(short = 'L', value_name = "DEPTH")]
    levels: Option<u32>,
    /// Print names that begin with a dot, too
    #[arg(short)]
    all: bool,
}

#[derive(Default)]
struct Count {
    directories: u64,
    others: u64,
    problems: u64,
}

/// Runs `tree`.
///
/// # Errors
/// A place that cannot be opened or read. A directory that was drawn before is named; the answer
/// is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let place = TargetPath::parse(&options.place)?;
    session::with_place(app, &place, false, |app, session| {
        let attr = session.find(app, &place.path, true)?;
        if !app.out.json {
            app.out.line(place.to_string())?;
        }
        let mut drawing = Drawing {
            session,
            options,
            reached: Reached::above(app.cx, &*session.fs, attr.ino),
            path: place.path.clone(),
            indent: String::new(),
            levels: Vec::new(),
            count: Count::default(),
        };
        if attr.is_dir() && options.levels != Some(0) {
            drawing.run(app, attr.ino)?;
        }
        let Count { directories, others, problems } = drawing.count;
        if !app.out.json {
            app.out.line(format!("\n{directories} directories, {others} others"))?;
        }
        Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// A directory that is being drawn.
struct Level {
    /// Lengths of the path and of the indent outside of it.
    outside: (usize, usize),
    entries: std::vec::IntoIter<Entry>,
}

struct Drawing<'a> {
    session: &'a Session,
    options: &'a Options,
    reached: Reached,
    path: Vec<u8>,
    indent: String,
    levels: Vec<Level>,
    count: Count,
}

impl Drawing<'_> {
    /// Draws what is below the directory `top`, as deep as it is.
    fn run(&mut self, app: &mut App, top: Ino) -> Result<()> {
        self.enter(app, top, (self.path.len(), 0))?;
        while let Some(level) = self.levels.last_mut() {
            let Some(Entry { name, attr, .. }) = level.entries.next() else {
                let (path, indent) = level.outside;
                self.path.truncate(path);
                self.indent.truncate(indent);
                self.levels.pop();
                continue;
            };
            let last = level.entries.as_slice().is_empty();
            let outside = (descend(&mut self.path, &name), self.indent.len());
            let Some(attr) = attr else {
                self.unreadable(app, &name, last)?;
                self.path.truncate(outside.0);
                continue;
            };
            self.name(app, &name, &attr, last)?;
            let deeper = |most| self.levels.len() < most as usize;
            if !attr.is_dir() || !self.options.levels.is_none_or(deeper) {
                self.path.truncate(outside.0);
                continue;
            }
            self.indent.push_str(if last { "    " } else { "|   " });
            self.enter(app, attr.ino, outside)?;
        }
        Ok(())
    }

    /// Goes into the directory at the path. One that was drawn is not drawn again.
    fn enter(&mut self, app: &mut App, dir: Ino, outside: (usize, usize)) -> Result<()> {
        let entered = self.reached.enter(dir, || self.session.place(&self.path));
        let read = entered.map_err(|message| anyhow::anyhow!(message));
        let all = self.options.all;
        let read = read.and_then(|()| entries(app, self.session, dir, &self.path, all));
        let entries = match read {
            Ok((entries, complete)) => {
                self.count.problems += u64::from(!complete);
                entries
            }
            Err(error) => {
                app.out.problem(format!("{error:#}"));
                self.count.problems += 1;
                Vec::new()
            }
        };
        self.levels.push(Level { outside, entries: entries.into_iter() });
        Ok(())
    }

    /// Draws a name whose inode cannot be read, which was reported.
    fn unreadable(&mut self, app: &mut App, name: &[u8], last: bool) -> Result<()> {
        self.count.others += 1;
        if app.out.json {
            let error = "the inode cannot be read";
            let value = json!({ "path": text::escape(&self.path), "error": error });
            return Ok(app.out.document(&value)?);
        }
        let branch = if last { "`-- " } else { "|-- " };
        let name = text::printable(name);
        Ok(app.out.line(format!("{}{branch}{name} [cannot be read]", self.indent))?)
    }

    /// Draws one name.
    fn name(&mut self, app: &mut App, name: &[u8], attr: &Attr, last: bool) -> Result<()> {
        let mut suffix = String::new();
        let mut target = None;
        if attr.kind == FileType::Symlink {
            match self.session.fs.readlink(app.cx, attr.ino) {
                Ok(read) => {
                    suffix = format!(" -> {}", text::printable(&read));
                    target = Some(text::escape(&read));
                }
                Err(errno) => {
                    app.out.problem(at(self.session.place(&self.path))(errno).to_string());
                    self.count.problems += 1;
                }
            }
        }
        match attr.is_dir() {
            true => self.count.directories += 1,
            false => self.count.others += 1,
        }
        if app.out.json {
            let mut value = attr_json(attr);
            value["path"] = json!(text::escape(&self.path));
            if let Some(target) = target {
                value["target"] = json!(target);
            }
            return Ok(app.out.document(&value)?);
        }
        let branch = if last { "`-- " } else { "|-- " };
        Ok(app.out.line(format!("{}{branch}{}{suffix}", self.indent, text::printable(name)))?)
    }
}
