//! Open directories of the host, from one down to another, however deep that is: the last ones and
//! a few between are open, and the others are opened again when their turn comes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self as sys, Mode, OFlags};
use rustix::io::Result;

/// Levels from the deepest up that stay open ..
const WINDOW: usize = 64;
/// .. and of those above one in so many.
const STRIDE: usize = 64;

/// How a directory below another one is opened: never through a symlink.
pub const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory that stays open, and a chain of directories below it.
pub struct OpenDirs {
    /// The path from the first one to the deepest.
    path: Vec<u8>,
    /// Ends of the names in the path, and the directories that are open. The first one always is.
    levels: Vec<(usize, Option<OwnedFd>)>,
    flags: OFlags,
}

impl OpenDirs {
    /// The chain that is `first` alone.
    pub fn new(first: OwnedFd) -> OpenDirs {
        OpenDirs { path: Vec::new(), levels: vec![(0, Some(first))], flags: FLAGS }
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
        self.levels.push((self.path.len(), Some(fd)));
        let above = self.levels.len().saturating_sub(WINDOW + 1);
        if !above.is_multiple_of(STRIDE) {
            self.levels[above].1 = None;
        }
    }

    /// Leaves the deepest directory, unless it is the first.
    pub fn pop(&mut self) {
        if self.levels.len() > 1 {
            self.levels.pop();
            self.path.truncate(self.levels.last().map_or(0, |level| level.0));
        }
    }

    /// The deepest directory.
    ///
    /// # Errors
    /// It was closed meanwhile, and cannot be opened again.
    pub fn deepest(&mut self) -> Result<BorrowedFd<'_>> {
        let last = self.levels.len() - 1;
        let open = self.levels.iter().rposition(|level| level.1.is_some());
        for level in open.expect("the first is open")..last {
            let (end, above) = &self.levels[level];
            let start = if level == 0 { 0 } else { end + 1 };
            let name = &self.path[start..self.levels[level + 1].0];
            let above = above.as_ref().expect("just opened");
            let fd = sys::openat(above, name, self.flags, Mode::empty())?;
            self.levels[level + 1].1 = Some(fd);
        }
        Ok(self.levels[last].1.as_ref().expect("just opened").as_fd())
    }

    /// As [`OpenDirs::deepest`], which the caller has asked since the last change.
    pub fn current(&self) -> BorrowedFd<'_> {
        self.levels.last().and_then(|level| level.1.as_ref()).expect("it is open").as_fd()
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
        let open = dirs.levels.iter().filter(|level| level.1.is_some()).count();
        assert!(open < 2000 / STRIDE + WINDOW + 3, "{open}");
        for left in (0..2000).rev() {
            dirs.pop();
            let above = dirs.deepest().expect("opened again");
            sys::unlinkat(above, "d", sys::AtFlags::REMOVEDIR).expect("removed");
            assert_eq!(dirs.path().len(), (left * 2usize).saturating_sub(1));
        }
    }
}
