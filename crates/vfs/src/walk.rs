//! Walks of trees that end, whatever a damaged file system holds: a directory may name one of those
//! above it, or have two names.

use std::ops::Range;

use base::map::HashSet;
use base::{Errno, Ino};
use rt::Cx;

use crate::{FileSystem, ParentName, SeekWhence};

/// Directories above each other at the most; in a damaged image they may lead in a circle.
const DEPTH_MAX: usize = 4096;

/// All paths of an inode, sorted, if the format keeps names with the inode. May park.
///
/// # Errors
/// As [`FileSystem::names_of`].
pub fn paths_of(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let Some(own) = fs.names_of(cx, ino)? else { return Ok(None) };
    let root = fs.root();
    let mut paths = Vec::with_capacity(own.len());
    for ParentName { dir, name } in own {
        let (mut path, mut above) = ([b"/", &name[..]].concat(), dir);
        for _ in 0..DEPTH_MAX {
            let up = if above == root { None } else { fs.names_of(cx, above)? };
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

/// The directories that a walk has come to, and those above its start. A walk goes into none of
/// them again. Eight bytes or so for each directory.
#[derive(Default)]
pub struct Reached(HashSet<Ino>);

impl Reached {
    /// What a walk that begins at the directory `start` must not come to: the directories above it,
    /// as far as they can be read. May park.
    pub fn above(cx: &mut Cx, fs: &dyn FileSystem, start: Ino) -> Reached {
        let mut reached = Reached::default();
        let mut at = start;
        // Damaged directories may lie above each other.
        while let Ok(above) = fs.lookup(cx, at, b"..") {
            if above.ino == start || !reached.0.insert(above.ino) {
                break;
            }
            at = above.ino;
        }
        reached
    }

    /// True for a directory above the start, or one that the walk came to.
    pub fn contains(&self, dir: Ino) -> bool {
        self.0.contains(&dir)
    }

    /// Goes into a directory; false where the walk has come to it before.
    pub fn insert(&mut self, dir: Ino) -> bool {
        self.0.insert(dir)
    }

    /// Goes into a directory that is found at `place`.
    ///
    /// # Errors
    /// What to say where the walk has come to it before.
    pub fn enter(&mut self, dir: Ino, place: impl FnOnce() -> String) -> Result<(), String> {
        match self.insert(dir) {
            true => Ok(()),
            false => Err(format!(
                "{}: directory inode {} was reached before: it lies below itself or has two \
                 names; `iopath check` shows what is damaged",
                place(),
                dir.0
            )),
        }
    }
}

/// The next bytes of a file at or behind `offset` that are data; none where no data follows. Whole
/// blocks may count as data. May park.
///
/// # Errors
/// `EINVAL` not a regular file; what reading its layout meets.
pub fn next_data(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
) -> Result<Option<Range<u64>>, Errno> {
    let start = match fs.seek(cx, ino, offset, SeekWhence::Data) {
        Err(Errno::ENXIO) => return Ok(None),
        start => start?,
    };
    Ok(Some(start..fs.seek(cx, ino, start, SeekWhence::Hole)?))
}

/// Appends a name to a path; returns the length to truncate the path to afterwards.
pub fn descend(path: &mut Vec<u8>, name: &[u8]) -> usize {
    let len = path.len();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    len
}
