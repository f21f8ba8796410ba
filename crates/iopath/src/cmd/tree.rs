//! `tree`: a directory and all below it, drawn.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Ino;
use clap::Args;
use serde_json::json;
use vfs::FileType;

use super::ls::{attr_json, entries, join};
use crate::app::{App, at};
use crate::session::{self, Session};
use crate::target::Place;
use crate::text;

/// Draw a directory and everything below it
#[derive(Args)]
#[command(after_help = "Examples:
  iopath tree disk.img
  iopath tree -L 2 disk.img:/etc
  iopath tree --json disk.img:/etc | jq -r .path")]
pub struct Options {
    /// Directory: TARGET or TARGET:/path
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// Descend so many levels
    #[arg(short = 'L', value_name = "DEPTH")]
    levels: Option<u32>,
    /// Also names that begin with a dot
    #[arg(short)]
    all: bool,
}

#[derive(Default)]
struct Count {
    directories: u64,
    others: u64,
}

/// Runs `tree`.
///
/// # Errors
/// A place that cannot be opened or read.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let place = Place::parse(&options.place)?;
    session::with_place(app, &place, false, |app, session| {
        let attr = session.find(app, &place.path, true)?;
        let mut count = Count::default();
        if !app.out.json {
            app.out.line(place.to_string())?;
        }
        if attr.is_dir() {
            draw(app, session, (&place.path, attr.ino), "", 1, options, &mut count)?;
        }
        if !app.out.json {
            app.out
                .line(format!("\n{} directories, {} others", count.directories, count.others))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn draw(
    app: &mut App,
    session: &Session,
    dir: (&[u8], Ino),
    indent: &str,
    level: u32,
    options: &Options,
    count: &mut Count,
) -> Result<()> {
    if options.levels.is_some_and(|levels| level > levels) {
        return Ok(());
    }
    let entries = entries(app, session, dir.1, dir.0, options.all)?;
    let last = entries.len().wrapping_sub(1);
    for (index, (name, attr)) in entries.into_iter().enumerate() {
        let path = join(dir.0, &name);
        let mut suffix = String::new();
        let mut target = None;
        if attr.kind == FileType::Symlink {
            let read = session.fs.readlink(app.cx, attr.ino).map_err(at(session.place(&path)))?;
            suffix = format!(" -> {}", text::printable(&read));
            target = Some(text::escape(&read));
        }
        match attr.is_dir() {
            true => count.directories += 1,
            false => count.others += 1,
        }
        if app.out.json {
            let mut value = attr_json(&attr);
            value["path"] = json!(text::escape(&path));
            value["target"] = json!(target);
            app.out.document(&value)?;
        } else {
            let branch = if index == last { "`-- " } else { "|-- " };
            app.out.line(format!("{indent}{branch}{}{suffix}", text::printable(&name)))?;
        }
        if attr.is_dir() {
            let deeper = format!("{indent}{}", if index == last { "    " } else { "|   " });
            draw(app, session, (&path, attr.ino), &deeper, level + 1, options, count)?;
        }
    }
    Ok(())
}
