//! Copying to the host: names are made in open directories, nothing is resolved twice, and no name
//! of an image can lead out of the destination.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::Timespec;
use rt::Cx;
use rustix::fs::{self as sys, AtFlags, CWD, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use vfs::FileType;

use super::open_dirs::{FLAGS, OpenDirs};
use super::{Batch, Event, Keep, Meta, Problems, Sink, split};
use crate::text;

/// A directory of the host that receives a tree.
pub struct HostSink {
    top: PathBuf,
    keep: Keep,
    /// Open directories from the destination down to the one used last.
    dirs: OpenDirs,
    /// Directories, which get mode, attributes and times when all names are in them: a default ACL
    /// would be inherited, a mode might forbid, and times would change.
    late: Vec<(Vec<u8>, Meta, Xattrs)>,
    file: Option<OpenFile>,
    /// Owner of what is created without further ado.
    me: (u32, u32),
    /// A directory hands its group down, so that the group must always be set.
    set_gid: bool,
    refused: Refused,
}

/// What the host did not accept; all but attributes only where we are not root.
#[derive(Default)]
struct Refused {
    attributes: u64,
    owners: u64,
    devices: u64,
}

/// Names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

struct OpenFile {
    fd: OwnedFd,
    meta: Meta,
    end: u64,
    path: Vec<u8>,
    xattrs: Xattrs,
}

impl HostSink {
    /// A sink whose paths are relative to `top`, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn new(top: &Path, keep: Keep) -> Result<HostSink> {
        let shown = || top.display().to_string();
        match sys::mkdirat(CWD, top, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(shown),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = sys::openat(CWD, top, flags, Mode::empty()).with_context(shown)?;
        let set_gid = sys::fstat(&fd).with_context(shown)?.st_mode & 0o2000 != 0;
        if keep.all {
            // Modes given at creation are to be exact.
            rustix::process::umask(Mode::empty());
        }
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(HostSink {
            top: top.to_path_buf(),
            keep,
            dirs: OpenDirs::new(fd),
            late: Vec::new(),
            file: None,
            me,
            set_gid,
            refused: Refused::default(),
        })
    }

    /// What the host did not accept, with how often: its file system has no attributes, or changing
    /// owners and making devices is for root.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Refused { attributes, owners, devices } = self.refused;
        let all = [
            ("extended attributes", attributes),
            ("owners (needs root)", owners),
            ("device nodes (needs root)", devices),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }

    fn shown(&self, path: &[u8]) -> String {
        self.top.join(text::escape(path)).display().to_string()
    }

    /// Makes the directory of a relative path the deepest that is open.
    fn enter(&mut self, path: &[u8]) -> Result<()> {
        loop {
            let open = self.dirs.path();
            let inside = open.is_empty()
                || path == open
                || (path.starts_with(open) && path.get(open.len()) == Some(&b'/'));
            if inside {
                break;
            }
            self.dirs.pop();
        }
        loop {
            let open = self.dirs.path().len();
            let start = if open == 0 { 0 } else { open + 1 };
            let fd = self.dirs.deepest().with_context(|| self.top.display().to_string())?;
            if open == path.len() {
                return Ok(());
            }
            let len = path[start..].iter().position(|&b| b == b'/');
            let end = len.map_or(path.len(), |len| start + len);
            let name = safe_name(&path[start..end])?;
            let next = match sys::openat(fd, name, FLAGS, Mode::empty()) {
                // An archive may leave directories out.
                Err(Errno::NOENT) => sys::mkdirat(fd, name, Mode::from_raw_mode(0o755))
                    .and_then(|()| sys::openat(fd, name, FLAGS, Mode::empty())),
                other => other,
            };
            let next = next.with_context(|| self.shown(&path[..end]))?;
            self.dirs.push(name, next);
        }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dirs.current()
    }

    fn node(&mut self, batch: &Batch, at: usize) -> Result<()> {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return Ok(()) };
        let (path, target) = (batch.at(path), batch.at(target));
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => Some((batch.at(name), batch.at(value))),
            _ => None,
        });
        if path.is_empty() {
            if meta.kind != FileType::Directory {
                bail!("{}: is a directory", self.top.display());
            }
            return self.made_directory(path, meta, pairs);
        }
        let (above, name) = split(path);
        self.enter(above)?;
        safe_name(name)?;
        match meta.kind {
            FileType::Directory => {
                let mode = Mode::from_raw_mode(u32::from(meta.mode & 0o777) | 0o700);
                match sys::mkdirat(self.dir(), name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error).with_context(|| self.shown(path)),
                }
                self.enter(path)?;
                self.made_directory(path, meta, pairs)
            }
            FileType::Regular => {
                let fd = self.create_file(name, meta).with_context(|| self.shown(path))?;
                let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                self.file = Some(OpenFile { fd, meta: *meta, end: 0, path: path.to_vec(), xattrs });
                Ok(())
            }
            _ => {
                let made = self.create_other(name, meta, target);
                if made.as_ref().is_err_and(|error| self.is_for_root(error)) {
                    self.refused.devices += 1;
                    return Ok(());
                }
                made.with_context(|| self.shown(path))?;
                if self.keep.all {
                    self.finish_other(name, meta, pairs).with_context(|| self.shown(path))?;
                }
                Ok(())
            }
        }
    }

    fn made_directory<'b>(
        &mut self,
        path: &[u8],
        meta: &Meta,
        pairs: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Result<()> {
        if !self.keep.all {
            return Ok(());
        }
        self.enter(path)?;
        self.set_gid |= meta.mode & 0o2000 != 0;
        let fd = self.dir().try_clone_to_owned()?;
        self.chown_fd(fd.as_fd(), meta).with_context(|| self.shown(path))?;
        let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        self.late.push((path.to_vec(), *meta, xattrs));
        Ok(())
    }

    /// Runs `make`; if the name is taken by anything but a directory, that is removed first.
    fn replacing<T>(
        &self,
        name: &[u8],
        mut make: impl FnMut() -> rustix::io::Result<T>,
    ) -> Result<T> {
        match make() {
            Err(Errno::EXIST) => {
                sys::unlinkat(self.dir(), name, AtFlags::empty())?;
                Ok(make()?)
            }
            other => Ok(other?),
        }
    }

    fn create_file(&self, name: &[u8], meta: &Meta) -> Result<OwnedFd> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode((meta.mode & 0o777).into());
        self.replacing(name, || sys::openat(self.dir(), name, flags, mode))
    }

    fn create_other(&self, name: &[u8], meta: &Meta, target: &[u8]) -> Result<()> {
        if meta.kind == FileType::Symlink {
            return self.replacing(name, || sys::symlinkat(target, self.dir(), name));
        }
        let mode = Mode::from_raw_mode((meta.mode & 0o777).into());
        let kind = sys::FileType::from_raw_mode(u32::from(meta.kind.mode_bits()));
        self.replacing(name, || sys::mknodat(self.dir(), name, kind, mode, meta.rdev))
    }

    /// Is this the host's answer to somebody who is not root?
    fn is_for_root(&self, error: &anyhow::Error) -> bool {
        self.me.0 != 0 && error.downcast_ref() == Some(&Errno::PERM)
    }

    /// Owner, mode, attributes and times of a node that cannot be opened.
    fn finish_other<'b>(
        &mut self,
        name: &[u8],
        meta: &Meta,
        pairs: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if self.set_gid || (meta.uid, meta.gid) != self.me {
            let (uid, gid) = owner(meta);
            let done = sys::chownat(self.dir(), name, Some(uid), Some(gid), nofollow);
            self.owner_set(done)?;
        }
        if meta.kind != FileType::Symlink && meta.mode & 0o7000 != 0 {
            let mode = Mode::from_raw_mode(meta.mode.into());
            sys::chmodat(self.dir(), name, mode, AtFlags::empty())?;
        }
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.dir().as_raw_fd()));
        for (attribute, value) in pairs {
            use std::os::unix::ffi::OsStrExt;
            let at = through.join(std::ffi::OsStr::from_bytes(name));
            let set = sys::lsetxattr(&at, attribute, value, XattrFlags::empty());
            self.refused_or(set).with_context(|| text::escape(attribute))?;
        }
        Ok(sys::utimensat(self.dir(), name, &times(meta), nofollow)?)
    }

    fn set_xattr(&mut self, fd: &OwnedFd, path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
        let set = sys::fsetxattr(fd, name, value, XattrFlags::empty());
        self.refused_or(set)
            .with_context(|| format!("{}: attribute {}", self.shown(path), text::escape(name)))
    }

    /// An attribute that the host does not take is counted, not fatal.
    fn refused_or(&mut self, set: rustix::io::Result<()>) -> Result<()> {
        match set {
            Err(Errno::NOTSUP | Errno::PERM) => {
                self.refused.attributes += 1;
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Gives a node its owner; false where the host refuses that.
    fn chown_fd(&mut self, fd: BorrowedFd, meta: &Meta) -> Result<bool> {
        if !self.set_gid && (meta.uid, meta.gid) == self.me {
            return Ok(true);
        }
        let (uid, gid) = owner(meta);
        self.owner_set(sys::fchown(fd, Some(uid), Some(gid)))
    }

    /// Without root an owner that cannot be set is counted, as cp(1) lets it pass.
    fn owner_set(&mut self, done: rustix::io::Result<()>) -> Result<bool> {
        match done {
            Err(Errno::PERM) if self.me.0 != 0 => {
                self.refused.owners += 1;
                Ok(false)
            }
            other => other.map(|()| true).context("changing the owner"),
        }
    }

    fn data(&mut self, offset: u64, mut data: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut at = offset;
        while !data.is_empty() {
            let written = match at == file.end {
                true => rustix::io::write(&file.fd, data),
                false => sys::seek(&file.fd, sys::SeekFrom::Start(at))
                    .and_then(|_| rustix::io::write(&file.fd, data)),
            };
            match written {
                Ok(count) => {
                    data = &data[count..];
                    at += count as u64;
                    file.end = at;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    let path = std::mem::take(&mut file.path);
                    return Err(error).with_context(|| self.shown(&path));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        self.finish_file(&file).with_context(|| self.shown(&file.path))
    }

    fn finish_file(&mut self, file: &OpenFile) -> Result<()> {
        if file.end < file.meta.size {
            sys::ftruncate(&file.fd, file.meta.size)?;
        }
        if !self.keep.all {
            return Ok(());
        }
        let owned = self.chown_fd(file.fd.as_fd(), &file.meta)?;
        // Set-id bits are not for another owner.
        let mode = if owned { file.meta.mode } else { file.meta.mode & 0o1777 };
        if mode & 0o7000 != 0 {
            sys::fchmod(&file.fd, Mode::from_raw_mode(mode.into()))?;
        }
        for (name, value) in &file.xattrs {
            self.set_xattr(&file.fd, &file.path, name, value)?;
        }
        Ok(sys::futimens(&file.fd, &times(&file.meta))?)
    }

    /// Mode, attributes and times of a directory that is complete.
    fn finish_directory(&mut self, path: &[u8], meta: &Meta, xattrs: &Xattrs) -> Result<()> {
        self.enter(path)?;
        let fd = self.dir().try_clone_to_owned()?;
        let mode = Mode::from_raw_mode(meta.mode.into());
        sys::fchmod(&fd, mode).with_context(|| self.shown(path))?;
        for (name, value) in xattrs {
            self.set_xattr(&fd, path, name, value)?;
        }
        sys::futimens(&fd, &times(meta)).with_context(|| self.shown(path))
    }

    fn link(&mut self, path: &[u8], to: &[u8]) -> Result<()> {
        let (to_dir, to_name) = split(to);
        self.enter(to_dir)?;
        let from = self.dir().try_clone_to_owned()?;
        let (above, name) = split(path);
        self.enter(above)?;
        safe_name(name)?;
        safe_name(to_name)?;
        let flags = AtFlags::empty();
        self.replacing(name, || sys::linkat(&from, to_name, self.dir(), name, flags))
            .with_context(|| format!("{}: link to {}", self.shown(path), self.shown(to)))
    }
}

impl Sink for HostSink {
    fn event(&mut self, _cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        match &batch.events[at] {
            Event::Node { .. } => self.node(batch, at),
            Event::Link { path, to } => self.link(batch.at(path), batch.at(to)),
            Event::Data { offset, data } => self.data(*offset, batch.at(data)),
            Event::End => self.end(),
            Event::Problem(_) => {
                self.abandon();
                Ok(())
            }
            Event::Xattr { .. } | Event::Stretches(_) | Event::Shared(_) => Ok(()),
        }
    }

    fn abandon(&mut self) {
        self.file = None;
    }

    fn is_over(&self, error: &anyhow::Error) -> bool {
        let last = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO];
        error.downcast_ref::<Errno>().is_some_and(|errno| last.contains(errno))
    }

    fn finish(&mut self, _cx: &mut Cx, problems: &mut Problems) -> Result<()> {
        // The deepest first: a mode may take away the way to what is below.
        for (path, meta, xattrs) in std::mem::take(&mut self.late).into_iter().rev() {
            match self.finish_directory(&path, &meta, &xattrs) {
                Err(error) if self.is_over(&error) => return Err(error),
                Err(error) => problems.tell(format!("{error:#}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// A component that stays below its directory.
fn safe_name(name: &[u8]) -> Result<&[u8]> {
    let bad = matches!(name, b"" | b"." | b"..") || name.iter().any(|&b| b == b'/' || b == 0);
    if bad {
        bail!("the source holds the name `{}`, which is refused", text::printable(name));
    }
    Ok(name)
}

fn owner(meta: &Meta) -> (Uid, Gid) {
    (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid))
}

fn times(meta: &Meta) -> Timestamps {
    let time = |time: Timespec| sys::Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) }
}
