//! `stat`: all attributes of an inode, and where its content lies.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::{Errno, Ino};
use cache::{Iomap, IomapKind};
use clap::Args;
use serde_json::json;
use vfs::{Attr, ExtentHints, FileType, ParentName};

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
    let names = names(app, session, attr.ino).map_err(at(&place))?;
    let hints = match session.fs.extent_hints(app.cx, attr.ino) {
        Err(Errno::EOPNOTSUPP) => ExtentHints::default(),
        found => found.map_err(at(&place))?,
    };
    let mut hints = vec![
        ("extent_size", " Extent size", hints.extent),
        ("cow_extent_size", " Extent size of copies", hints.cow),
    ];
    hints.retain(|hint| hint.2 > 0);
    if app.out.json {
        let mut value = attr_json(&attr);
        if let Some(names) = &names {
            value["names"] = names.iter().map(|name| text::escape(name)).collect();
        }
        for &(name, _, bytes) in &hints {
            value[name] = json!(bytes);
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
    lines.extend(hints.iter().map(|(_, label, bytes)| format!("{label}: {bytes}")));
    lines.extend(xattrs.iter().map(|name| format!("  Xattr: {}", text::printable(name))));
    let names = names.unwrap_or_default();
    lines.extend(names.iter().map(|name| format!("   Name: {}", text::printable(name))));
    for extent in &extents {
        lines.push(format!(
            " Extent: file {} device {} length {} {}",
            extent.offset,
            extent.physical(),
            extent.len,
            state(extent)
        ));
    }
    lines.iter().try_for_each(|line| app.out.line(line))?;
    Ok(())
}

/// Directories above each other at the most; in a damaged image they may lead in a circle.
const DEPTH_MAX: usize = 4096;

/// All paths of an inode, sorted, if the format keeps names with the inode.
fn names(app: &mut App, session: &Session, ino: Ino) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let Some(own) = session.fs.names_of(app.cx, ino)? else { return Ok(None) };
    let root = session.fs.root();
    let mut paths = Vec::with_capacity(own.len());
    for ParentName { dir, name } in own {
        let (mut path, mut above) = ([b"/", &name[..]].concat(), dir);
        for _ in 0..DEPTH_MAX {
            let up = if above == root { None } else { session.fs.names_of(app.cx, above)? };
            // A directory has one name.
            let Some(ParentName { dir, name }) = up.unwrap_or_default().into_iter().next() else {
                break;
            };
            path = [b"/", &name[..], &path].concat();
            above = dir;
        }
        paths.push(path);
    }
    paths.sort();
    Ok(Some(paths))
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
        "physical": extent.physical(),
        "len": extent.len,
        "state": state(extent),
    })
}
