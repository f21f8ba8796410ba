//! Path walk: from bytes with slashes to an inode, as path_resolution(7) describes it.
//!
//! Every directory that is passed needs search permission of the task's credentials. Symlinks on
//! the way are followed, 40 of them at the most. `..` of the root is the root.

use std::borrow::Cow;

use base::{Errno, Ino};
use rt::{Charge, Cx};

use crate::attr::{Attr, FileType};
use crate::fs::{FileSystem, NAME_MAX, PATH_MAX};
use crate::permission::{self, Access};

/// Symlinks that one walk follows before it returns `ELOOP`.
pub const LINKS_MAX: u32 = 40;

/// The last component of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Last {
    /// A name that can be created, removed or renamed.
    Name(Vec<u8>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path consists of slashes only.
    Root,
}

/// Where a walk ended: the directory and what the last component says.
#[derive(Clone, Debug)]
pub struct Parent {
    /// The directory that holds, or would hold, the last component.
    pub dir: Attr,
    /// The last component.
    pub last: Last,
    /// The path ended with a slash: only a directory will do.
    pub trailing_slash: bool,
}

/// The result of a walk to the end.
#[derive(Clone, Debug)]
pub struct FoundPath {
    /// Directory and last component, after following final symlinks.
    pub parent: Parent,
    /// What bears that name, if anything does.
    pub attr: Option<Attr>,
}

/// One walk: a file system, its root, the directory reached and the symlinks followed so far.
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    root: Ino,
    dir: Attr,
    links: u32,
    /// Directories looked up so far.
    steps: u64,
}

impl<'a> Walk<'a> {
    /// Starts a walk at directory `cwd`; absolute paths and symlinks start at `root`.
    ///
    /// # Errors
    /// Those of reading the attributes of `cwd`.
    pub fn new(
        cx: &mut Cx,
        fs: &'a dyn FileSystem,
        root: Ino,
        cwd: Ino,
    ) -> Result<Walk<'a>, Errno> {
        let dir = fs.getattr(cx, cwd)?;
        Ok(Walk { fs, root, dir, links: 0, steps: 0 })
    }

    /// A walk that has come to `dir`, over directories alone.
    pub(crate) fn resume(fs: &'a dyn FileSystem, root: Ino, dir: Attr) -> Walk<'a> {
        Walk { fs, root, dir, links: 0, steps: 0 }
    }

    /// The directories looked up; `None` once a symlink was followed.
    pub(crate) fn steps(&self) -> Option<u64> {
        (self.links == 0).then_some(self.steps)
    }

    /// Walks to the directory of the last component, which itself is not looked at.
    ///
    /// # Errors
    /// `ENOENT` empty path or missing directory; `ENOTDIR`; `EACCES` no search permission;
    /// `ENAMETOOLONG`; `ELOOP`; `EINVAL` a NUL byte.
    pub fn parent(&mut self, cx: &mut Cx, path: &[u8]) -> Result<Parent, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if path.contains(&0) {
            return Err(Errno::EINVAL);
        }
        let mut rest = Cow::Borrowed(path);
        let mut at = 0;
        if rest[0] == b'/' && self.dir.ino != self.root {
            self.dir = self.fs.getattr(cx, self.root)?;
        }
        loop {
            at += slashes(&rest[at..]);
            let len = rest[at..].iter().position(|&b| b == b'/').unwrap_or(rest.len() - at);
            let name = &rest[at..at + len];
            at += len;
            let gap = slashes(&rest[at..]);
            at += gap;
            self.may_search(cx)?;
            if at == rest.len() {
                return self.stop(name, gap > 0);
            }
            let next = self.step(cx, name)?;
            self.steps += 1;
            if next.kind == FileType::Symlink {
                let mut target = self.follow(cx, &next)?;
                target.push(b'/');
                target.extend_from_slice(&rest[at..]);
                (rest, at) = (Cow::Owned(target), 0);
            } else if next.is_dir() {
                self.dir = next;
            } else {
                return Err(Errno::ENOTDIR);
            }
        }
    }

    /// Walks to the end. A final symlink is followed with `follow`, and if a slash comes after it.
    ///
    /// # Errors
    /// Those of [`parent`](Self::parent); `ENOTDIR` the path ends with a slash and something else
    /// than a directory is there. A missing last component is no error: `attr` is `None`.
    pub fn find(&mut self, cx: &mut Cx, path: &[u8], follow: bool) -> Result<FoundPath, Errno> {
        let parent = self.parent(cx, path)?;
        self.find_last(cx, parent, follow)
    }

    /// The rest of [`find`](Self::find), from the directory of the last component on.
    ///
    /// # Errors
    /// Those of [`find`](Self::find).
    pub(crate) fn find_last(
        &mut self,
        cx: &mut Cx,
        mut parent: Parent,
        follow: bool,
    ) -> Result<FoundPath, Errno> {
        loop {
            let attr = match &parent.last {
                Last::Root | Last::Dot => Some(parent.dir.clone()),
                Last::DotDot => Some(self.step(cx, b"..")?),
                Last::Name(name) => match self.step(cx, name) {
                    Ok(attr) => Some(attr),
                    Err(Errno::ENOENT) => None,
                    Err(other) => return Err(other),
                },
            };
            match attr {
                Some(link)
                    if link.kind == FileType::Symlink && (follow || parent.trailing_slash) =>
                {
                    let mut target = self.follow(cx, &link)?;
                    if parent.trailing_slash {
                        target.push(b'/');
                    }
                    parent = self.parent(cx, &target)?;
                }
                Some(attr) if parent.trailing_slash && !attr.is_dir() => {
                    return Err(Errno::ENOTDIR);
                }
                attr => return Ok(FoundPath { parent, attr }),
            }
        }
    }

    fn stop(&self, name: &[u8], trailing_slash: bool) -> Result<Parent, Errno> {
        let last = match name {
            b"" => Last::Root,
            b"." => Last::Dot,
            b".." => Last::DotDot,
            long if long.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
            _ => Last::Name(name.to_vec()),
        };
        Ok(Parent { dir: self.dir.clone(), last, trailing_slash })
    }

    fn may_search(&self, cx: &mut Cx) -> Result<(), Errno> {
        permission::access(cx, self.fs, &self.dir, Access::EXEC)
    }

    fn step(&self, cx: &mut Cx, name: &[u8]) -> Result<Attr, Errno> {
        cx.charge_for(Charge::PathComponent, 1);
        match name {
            b"." => Ok(self.dir.clone()),
            b".." if self.dir.ino == self.root => Ok(self.dir.clone()),
            long if long.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            name => self.fs.lookup(cx, self.dir.ino, name),
        }
    }

    /// Counts a symlink and returns its target; an absolute one moves the walk to the root.
    fn follow(&mut self, cx: &mut Cx, link: &Attr) -> Result<Vec<u8>, Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::ELOOP);
        }
        let target = self.fs.readlink(cx, link.ino)?;
        match target.first() {
            None => return Err(Errno::ENOENT),
            Some(b'/') => self.dir = self.fs.getattr(cx, self.root)?,
            Some(_) => {}
        }
        Ok(target)
    }
}

fn slashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&b| b == b'/').count()
}
