//! `stat`: all attributes of an inode, and where its content lies.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::{Errno, Sector};
use cache::{Iomap, IomapKind};
use clap::Args;
use serde_json::{Value, json};
use vfs::{Attr, ExtentHints, FileType};

use super::ls::attr_json;
use crate::app::{App, at};
use crate::places;
use crate::session::Session;
use crate::text;

/// Show all attributes of a file, its names where the format keeps them, and with -e where its
/// content lies
#[derive(Args)]
#[command(after_help = "Examples:
  iopath stat disk.img:/etc/passwd
  iopath stat -e disk.img:/var/log/big.log
  iopath stat --json disk.img:/ | jq .mode")]
pub struct Options {
    /// What to show: TARGET:/path
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// The extents: offset in the file, offset on the device, length, in bytes
    #[arg(short, long)]
    extents: bool,
    /// Follow a final symlink
    #[arg(short = 'L', long)]
    dereference: bool,
}

/// Runs `stat`.
///
/// # Errors
/// The output is closed. A place that cannot be read is reported, and the rest follows.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    places::each(app, &options.places, false, |app, session, place| {
        show(app, session, &place.path, options).map(|()| true)
    })
}

fn show(app: &mut App, session: &Session, path: &[u8], options: &Options) -> Result<()> {
    let attr = session.find(app, path, options.dereference)?;
    let place = session.place(path);
    let target = match attr.kind {
        FileType::Symlink => Some(session.fs.readlink(app.cx, attr.ino).map_err(at(&place))?),
        _ => None,
    };
    let mut extents = Vec::new();
    if options.extents {
        match session.fs.fiemap(app.cx, attr.ino, 0, u64::MAX) {
            Ok(list) => extents = list,
            Err(Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(at(&place)(errno)),
        }
    }
    let mut xattrs = session.fs.listxattr(app.cx, attr.ino).map_err(at(&place))?;
    xattrs.sort();
    let names = vfs::walk::paths_of(app.cx, &*session.fs, attr.ino).map_err(at(&place))?;
    let hints = match session.fs.extent_hints(app.cx, attr.ino) {
        Err(Errno::EOPNOTSUPP) => ExtentHints::default(),
        found => found.map_err(at(&place))?,
    };
    let hints = shown_hints(hints, attr.kind);
    if app.out.json {
        let mut value = attr_json(&attr);
        if let Some(names) = &names {
            value["names"] = names.iter().map(|name| text::escape(name)).collect();
        }
        for (name, number, _) in &hints {
            value[name] = number.clone();
        }
        value["path"] = json!(text::escape(path));
        if let Some(target) = target {
            value["target"] = json!(text::escape(&target));
        }
        value["xattrs"] = json!({});
        for name in &xattrs {
            let content = session.fs.getxattr(app.cx, attr.ino, name).map_err(at(&place))?;
            value["xattrs"][text::escape(name)] = json!(text::hex(&content));
        }
        if options.extents {
            value["extents"] = extents.iter().map(extent_json).collect();
        }
        return Ok(app.out.document(&value)?);
    }
    let arrow = target.map(|t| format!(" -> {}", text::printable(&t))).unwrap_or_default();
    app.out.line(format!("  Place: {}:{}{arrow}", session.target, text::printable(path)))?;
    let mut lines = describe(&attr);
    lines.extend(hints.into_iter().map(|hint| hint.2));
    lines.extend(xattrs.iter().map(|name| format!("  Xattr: {}", text::printable(name))));
    let names = names.unwrap_or_default();
    lines.extend(names.iter().map(|name| format!("   Name: {}", text::printable(name))));
    for extent in &extents {
        let place = extent.place().map_or("-".into(), |at| at.bytes().to_string());
        let (offset, len, state) = (extent.offset, extent.len, state(extent));
        lines.push(format!(" Extent: file {offset} device {place} length {len} {state}"));
    }
    lines.iter().try_for_each(|line| app.out.line(line))?;
    Ok(())
}

/// What an inode says of its space: the name and the value in JSON, and a line of text.
fn shown_hints(hints: ExtentHints, kind: FileType) -> Vec<(&'static str, Value, String)> {
    let mut shown = Vec::new();
    for (name, label, bytes) in [
        ("extent_size", " Extent size", hints.extent),
        ("cow_extent_size", " Extent size of copies", hints.cow),
    ] {
        if bytes > 0 {
            shown.push((name, json!(bytes), format!("{label}: {bytes}")));
        }
    }
    if hints.realtime {
        let whose = if kind == FileType::Directory { "files made here" } else { "content" };
        shown.push(("realtime", json!(true), format!(" Realtime: {whose}")));
    }
    shown
}

/// Attributes as lines of text.
fn describe(attr: &Attr) -> Vec<String> {
    let mut lines = vec![
        format!(
            "   Type: {}   Inode: {}   Links: {}   Generation: {}",
            attr.kind.word(),
            attr.ino,
            attr.nlink,
            attr.generation
        ),
        format!(
            "   Size: {}   Blocks: {} of 512 bytes   I/O size: {}",
            attr.size, attr.blocks, attr.blksize
        ),
        format!(
            "   Mode: {:04o} {}   Owner: {}   Group: {}",
            attr.mode,
            text::mode_letters(attr.kind, attr.mode),
            attr.uid,
            attr.gid
        ),
    ];
    if attr.kind.is_device() {
        let (major, minor) = (vfs::major(attr.rdev), vfs::minor(attr.rdev));
        lines.push(format!(" Device: {major}, {minor}"));
    }
    let times = [(" Access", Some(attr.atime)), (" Modify", Some(attr.mtime))];
    for (label, time) in
        times.into_iter().chain([(" Change", Some(attr.ctime)), ("  Birth", attr.btime)])
    {
        lines.extend(time.map(|time| format!("{label}: {}", text::full_time(time))));
    }
    lines
}

fn state(extent: &Iomap) -> &'static str {
    match extent.kind {
        IomapKind::Mapped(_) => "written",
        IomapKind::Unwritten(_) => "unwritten",
        IomapKind::Shared(_) => "shared",
        IomapKind::Inline => "inline",
        IomapKind::Delalloc => "delayed",
        IomapKind::Hole => "hole",
    }
}

fn extent_json(extent: &Iomap) -> serde_json::Value {
    json!({
        "offset": extent.offset,
        "physical": extent.place().map(Sector::bytes),
        "len": extent.len,
        "state": state(extent),
    })
}
