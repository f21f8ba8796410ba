//! Open directories of the host, from one down to another, however deep that is: the first and the
//! last ones are open, and the others are opened again from below when their turn comes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self as sys, Mode, OFlags};
use rustix::io::Result;

/// Levels from the deepest up that stay open.
const WINDOW: usize = 64;

/// How a directory below another one is opened: never through a symlink.
pub const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory of the chain.
struct Level {
    /// Where its name ends in the path.
    end: usize,
    /// None while it is closed.
    fd: Option<OwnedFd>,
    /// Its device and inode number, known where it was closed.
    id: Option<(u64, u64)>,
}

/// A directory that stays open, and a chain of directories below it.
pub struct OpenDirs {
    /// The path from the first one to the deepest.
    path: Vec<u8>,
    /// The first one is always open.
    levels: Vec<Level>,
    flags: OFlags,
}

fn id_of(fd: &OwnedFd) -> Option<(u64, u64)> {
    sys::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

impl OpenDirs {
    /// The chain that is `first` alone.
    pub fn new(first: OwnedFd) -> OpenDirs {
        let first = Level { end: 0, fd: Some(first), id: None };
        OpenDirs { path: Vec::new(), levels: vec![first], flags: FLAGS }
    }

    /// The same where symlinks between them were followed.
    pub fn following(self) -> OpenDirs {
        OpenDirs { flags: FLAGS.difference(OFlags::NOFOLLOW), ..self }
    }

    /// The path of the deepest directory, from the first one.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Adds a directory that is called `name` in the deepest.
    pub fn push(&mut self, name: &[u8], fd: OwnedFd) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(Level { end: self.path.len(), fd: Some(fd), id: None });
        let above = self.levels.len().saturating_sub(WINDOW + 1);
        if above > 0 {
            let level = &mut self.levels[above];
            level.id = level.fd.as_ref().and_then(id_of);
            level.fd = None;
        }
    }

    /// Leaves the deepest directory, unless it is the first.
    pub fn pop(&mut self) {
        if self.levels.len() == 1 {
            return;
        }
        let left = self.levels.pop().and_then(|level| level.fd);
        let above = self.levels.last_mut().expect("the first stays");
        self.path.truncate(above.end);
        if above.fd.is_none()
            && let Some(fd) = left
            && let Ok(up) = sys::openat(&fd, "..", FLAGS, Mode::empty())
        {
            // A directory that was moved meanwhile, or that a symlink led to, lies elsewhere.
            above.fd = (above.id.is_some() && id_of(&up) == above.id).then_some(up);
        }
    }

    /// The deepest directory.
    ///
    /// # Errors
    /// It was closed meanwhile, and cannot be opened again.
    pub fn deepest(&mut self) -> Result<BorrowedFd<'_>> {
        let last = self.levels.len() - 1;
        let open = self.levels.iter().rposition(|level| level.fd.is_some());
        let open = open.expect("the first is open");
        let mut down: Option<OwnedFd> = None;
        for level in open..last {
            let end = self.levels[level].end;
            let start = if level == 0 { 0 } else { end + 1 };
            let name = &self.path[start..self.levels[level + 1].end];
            let above = match &down {
                Some(fd) => fd.as_fd(),
                None => self.levels[open].fd.as_ref().expect("it is open").as_fd(),
            };
            down = Some(sys::openat(above, name, self.flags, Mode::empty())?);
        }
        if down.is_some() {
            self.levels[last].fd = down;
        }
        Ok(self.current())
    }

    /// As [`OpenDirs::deepest`], which the caller has asked since the last change.
    pub fn current(&self) -> BorrowedFd<'_> {
        self.levels.last().and_then(|level| level.fd.as_ref()).expect("it is open").as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than there are descriptors: few are open, and on the way up each is there again.
    #[test]
    fn few_are_open_at_any_depth() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = sys::open(dir.path(), FLAGS, Mode::empty()).expect("opened");
        let mut dirs = OpenDirs::new(first);
        for _ in 0..2000 {
            let above = dirs.deepest().expect("open");
            sys::mkdirat(above, "d", Mode::from_raw_mode(0o755)).expect("made");
            let fd = sys::openat(above, "d", FLAGS, Mode::empty()).expect("opened");
            dirs.push(b"d", fd);
        }
        let open = |dirs: &OpenDirs| dirs.levels.iter().filter(|level| level.fd.is_some()).count();
        assert!(open(&dirs) <= WINDOW + 1, "{}", open(&dirs));
        for left in (0..2000).rev() {
            dirs.pop();
            let above = dirs.deepest().expect("opened again");
            sys::unlinkat(above, "d", sys::AtFlags::REMOVEDIR).expect("removed");
            assert_eq!(dirs.path().len(), (left * 2usize).saturating_sub(1));
            assert!(open(&dirs) <= WINDOW + 1, "{}", open(&dirs));
        }
    }
}
