//! Paths without symbolic links.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use base::Errno;

use crate::error::{Error, Result};
use crate::mounted::Fs;

/// Symbolic links that one path may lead through, as in Linux.
const LINKS_MAX: u32 = 40;

/// What is left of a path.
enum Step {
    Root,
    Up,
    Into(OsString),
}

fn steps(path: &Path) -> impl DoubleEndedIterator<Item = Step> {
    path.components().filter_map(|component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Into(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

impl Fs {
    /// The path from the root of the image to what a path leads to: without symbolic links, `.`
    /// and `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `ELOOP` more than 40 symbolic links.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let mut ahead: VecDeque<Step> = steps(path).collect();
        let mut reached = PathBuf::from("/");
        let mut links = 0;
        while let Some(step) = ahead.pop_front() {
            let name = match step {
                Step::Root => {
                    reached = PathBuf::from("/");
                    continue;
                }
                Step::Up => {
                    reached.pop();
                    continue;
                }
                Step::Into(name) => name,
            };
            let next = reached.join(&name);
            let found = self.symlink_metadata(&next)?;
            if !found.is_symlink() {
                if !ahead.is_empty() && !found.is_dir() {
                    return Err(Error::new(self.mounted().place(path), Errno::ENOTDIR));
                }
                reached = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::new(self.mounted().place(path), Errno::ELOOP));
            }
            let target = self.read_link(&next)?;
            steps(&target).rev().for_each(|step| ahead.push_front(step));
        }
        Ok(reached)
    }
}
