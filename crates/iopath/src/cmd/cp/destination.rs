//! Where the copy of a source goes: a directory that exists, and the name below it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::{Errno, Ino};

use crate::app::{App, at};
use crate::copy;
use crate::session::Session;
use crate::target::{Side, TargetPath};
use crate::walk::Reached;

/// A place for a copy.
pub struct Spot {
    /// Path of the directory, which exists.
    pub top: Vec<u8>,
    /// The directory, in an image.
    pub dir: Ino,
    /// The name below it; empty: the content goes into the directory itself.
    pub name: Vec<u8>,
    /// The name was given with a slash behind it: only a directory will do.
    pub slash: bool,
}

impl Spot {
    /// A name in an archive.
    pub fn named(name: Vec<u8>) -> Spot {
        Spot { top: Vec::new(), dir: Ino(0), name, slash: false }
    }

    /// The directory on the host.
    pub fn top_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.top))
    }
}

/// The name that a source brings along; none for `dir/.`, `dir/..`, a root, and archives.
pub fn own_name(side: &Side) -> Option<Vec<u8>> {
    let path = match side {
        Side::Host(path) => path.as_os_str().as_bytes(),
        Side::Image(place) => &place.path,
        Side::Archive(_) | Side::Standard => return None,
    };
    match last(path).1 {
        b"" | b"." | b".." => None,
        name => Some(name.to_vec()),
    }
}

/// The directory and the last name of a path, whatever slashes stand behind it.
fn last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let (above, name) = copy::split(&path[..end]);
    match (above.is_empty(), path.first()) {
        (true, Some(b'/')) => (b"/", name),
        _ => (above, name),
    }
}

/// Where in an image a source goes: into a directory if `into`, by the given name if not, and by
/// what is there where that is not said.
///
/// # Errors
/// There is no such directory.
pub fn in_image(
    app: &mut App,
    session: &Session,
    place: &TargetPath,
    side: &Side,
    into: Option<bool>,
) -> Result<Spot> {
    let found = match session.names.stat(app.cx, &place.path) {
        Ok(attr) if attr.is_dir() => Some(attr),
        Ok(_) | Err(Errno::ENOENT) if into == Some(true) => {
            bail!("{place}: is not a directory, and names are to go into it")
        }
        Ok(_) | Err(Errno::ENOENT) => None,
        Err(errno) => return Err(at(place)(errno)),
    };
    let (above, name) = last(&place.path);
    let nameless = matches!(name, b"" | b"." | b"..");
    if let Some(attr) = found
        && (into != Some(false) || nameless)
    {
        let name = if into == Some(false) { None } else { own_name(side) };
        let (top, name) = (place.path.clone(), name.unwrap_or_default());
        return Ok(Spot { top, dir: attr.ino, name, slash: false });
    }
    if nameless {
        return Err(at(place)(Errno::ENOENT));
    }
    let above = if above.is_empty() { b"/" } else { above };
    let dir = session
        .find(app, above, true)
        .with_context(|| format!("the directory of {place}; make it with `iopath mkdir -p`"))?;
    if !dir.is_dir() {
        return Err(at(session.place(above))(Errno::ENOTDIR));
    }
    let slash = place.path.ends_with(b"/");
    Ok(Spot { top: above.to_vec(), dir: dir.ino, name: name.to_vec(), slash })
}

/// The same on the host.
///
/// # Errors
/// There is no such directory.
pub fn on_host(path: &Path, side: &Side, into: Option<bool>) -> Result<Spot> {
    let shown = || path.display().to_string();
    let directory = match path.metadata() {
        Ok(meta) => meta.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(shown),
    };
    if into == Some(true) && !directory {
        bail!("{}: is not a directory, and names are to go into it", path.display());
    }
    let bytes = path.as_os_str().as_bytes();
    let (above, name) = last(bytes);
    let nameless = matches!(name, b"" | b"." | b"..");
    let (dir, slash) = (Ino(0), bytes.ends_with(b"/"));
    if directory && (into != Some(false) || nameless) {
        let name = if into == Some(false) { None } else { own_name(side) };
        let (top, name) = (bytes.to_vec(), name.unwrap_or_default());
        return Ok(Spot { top, dir, name, slash: false });
    }
    if nameless {
        bail!("{}: no such directory", path.display());
    }
    let above = if above.is_empty() { b"." } else { above };
    Ok(Spot { top: above.to_vec(), dir, name: name.to_vec(), slash })
}

/// Refuses a copy within one image that would replace its own source, or never end.
///
/// # Errors
/// It would.
pub fn refuse_itself(app: &mut App, session: &Session, side: &Side, spot: &Spot) -> Result<()> {
    let Side::Image(place) = side else { return Ok(()) };
    if place.target != session.target {
        return Ok(());
    }
    let Ok(source) = session.find(app, &place.path, place.path.ends_with(b"/")) else {
        return Ok(());
    };
    let name: &[u8] = if spot.name.is_empty() { b"." } else { &spot.name };
    let found = session.fs.lookup(app.cx, spot.dir, name);
    if found.is_ok_and(|attr| attr.ino == source.ino) {
        bail!("{place}: source and destination are the same");
    }
    let above = Reached::above(app.cx, &*session.fs, spot.dir);
    if source.is_dir() && (spot.dir == source.ino || above.contains(source.ino)) {
        bail!("{place}: a directory is not copied into itself");
    }
    Ok(())
}
