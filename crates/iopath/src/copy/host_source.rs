//! Copying from the host: a walk over open directories, without looking paths up again.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use base::Timespec;
use rt::Cx;
use rustix::fs::{
    self as sys, AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, Stat, fgetxattr, flistxattr,
    lgetxattr, llistxattr,
};
use rustix::io::Errno;
use vfs::FileType;

use super::content::{self, Content};
use super::exact;
use super::open_dirs::OpenDirs;
use super::{Event, FileId, Follow, Keep, Links, Meta, Outbox, Source, descend};
use crate::text;

/// A file or tree of the host.
pub struct HostSource {
    root: PathBuf,
    /// The path of the root in the copy; empty: the root's content goes into the destination
    /// itself.
    name: Vec<u8>,
    keep: Keep,
    links: Links,
    /// Path in the copy of what is read now.
    path: Vec<u8>,
    scratch: Vec<u8>,
    dents: Vec<MaybeUninit<u8>>,
    /// The directories of the levels.
    dirs: Option<OpenDirs>,
    levels: Vec<Level>,
    /// The device of the root.
    device: Option<u64>,
    /// Device and inode number of the directory that [`HostSource::node`] answered last.
    found: FileId,
}

/// A directory that is being read.
struct Level {
    /// Device and inode number.
    id: FileId,
    /// Length of its path.
    path: usize,
    /// Its names, a zero byte behind each.
    names: Vec<u8>,
    /// Where the next one begins.
    next: usize,
}

impl HostSource {
    /// Copies `root` to `name` in the destination.
    pub fn new(root: PathBuf, name: Vec<u8>, keep: Keep) -> HostSource {
        let path = name.clone();
        HostSource {
            root,
            name,
            keep,
            links: Links::default(),
            path,
            scratch: vec![0; 64 << 10],
            dents: vec![MaybeUninit::uninit(); 32 << 10],
            dirs: None,
            levels: Vec::new(),
            device: None,
            found: FileId { device: 0, ino: 0 },
        }
    }

    /// The path that messages show.
    fn shown(&self) -> String {
        let below = self.path.strip_prefix(&self.name[..]).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match below.is_empty() {
            true => self.root.display().to_string(),
            false => self.root.join(text::escape(below)).display().to_string(),
        }
    }

    /// Goes into a directory that was opened. Names are collected first, so that one buffer of
    /// entries serves all depths.
    fn enter(&mut self, name: &CStr, dir: OwnedFd) -> Result<()> {
        let mut names: Vec<u8> = Vec::new();
        let mut entries = RawDir::new(dir.as_fd(), &mut self.dents);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        names.extend_from_slice(name.to_bytes_with_nul());
                    }
                }
                Err(error) => {
                    let shown = self.shown();
                    return Err(error).with_context(|| format!("{shown}: listing the directory"));
                }
            }
        }
        if self.keep.exact.is_some() || self.keep.sorted {
            names = sorted(&names);
        }
        match &mut self.dirs {
            Some(dirs) => dirs.push(name.to_bytes(), dir),
            None => {
                let dirs = OpenDirs::new(dir);
                self.dirs = Some(match self.keep.follow {
                    Follow::Always => dirs.following(),
                    Follow::Never | Follow::Named => dirs,
                });
            }
        }
        self.levels.push(Level { id: self.found, path: self.path.len(), names, next: 0 });
        Ok(())
    }

    /// Reads everything below the directories that were entered, as deep as they are.
    fn walk(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        while let (Some(level), Some(mut dirs)) = (self.levels.last_mut(), self.dirs.take()) {
            self.path.truncate(level.path);
            let (names, at) = (std::mem::take(&mut level.names), level.next);
            let Ok(name) = CStr::from_bytes_until_nul(&names[at..]) else {
                self.levels.pop();
                dirs.pop();
                self.dirs = Some(dirs);
                continue;
            };
            level.next += name.to_bytes_with_nul().len();
            let depth = self.levels.len() - 1;
            descend(&mut self.path, name.to_bytes());
            if self.keep.is_excluded(&self.path, self.name.len()) {
                self.dirs = Some(dirs);
                self.levels[depth].names = names;
                continue;
            }
            let follow = self.keep.follow == Follow::Always;
            let done = match dirs.deepest().with_context(|| self.shown()) {
                Ok(dir) => self.node(cx, dir, name, follow, out),
                Err(error) => Err(error),
            };
            self.dirs = Some(dirs);
            let done = done.and_then(|below| below.map_or(Ok(()), |dir| self.enter(name, dir)));
            self.levels[depth].names = names;
            out.go_on(done)?;
        }
        Ok(())
    }

    /// Reads one name of a directory. If it is a directory itself, answers that, to be entered.
    fn node(
        &mut self,
        cx: &mut Cx,
        dir: BorrowedFd,
        name: &CStr,
        follow: bool,
        out: &mut Outbox,
    ) -> Result<Option<OwnedFd>> {
        let at = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let mut stat = sys::statat(dir, name, at).with_context(|| self.shown())?;
        if let Some(exact) = &self.keep.exact {
            exact.owners.fake(&mut stat);
        }
        let Some(kind) = FileType::from_mode(stat.st_mode) else {
            bail!("{}: unknown file type {:#o}", self.shown(), stat.st_mode);
        };
        if kind == FileType::Directory {
            self.may_enter(&stat)?;
        }
        let named = follow && self.keep.follow != Follow::Never;
        let several = self.keep.links && (stat.st_nlink > 1 || named);
        let linked = several && kind != FileType::Directory;
        let late = self.keep.links_late();
        if linked
            && !late
            && let Some(first) = self.links.seen(stat.st_dev, stat.st_ino, &self.path)
        {
            let (path, to) = (out.store(&self.path), out.store(first));
            out.push(Event::Link { path, to });
            return out.breathe(cx).map(|()| None);
        }
        let content = self.keep.as_regular(kind);
        let kind = if content { FileType::Regular } else { kind };
        let id = (linked && late).then_some(id_of(&stat));
        let kept = kind == FileType::Regular && self.keep.is_kept(&self.path, self.name.len());
        let meta = Meta { id, kept, ..meta_of(&stat, kind, linked) };
        let whole = kind == FileType::Regular && !is_sparse(&stat);
        let fd = match self.keep.names_only && whole || kept {
            true => None,
            false => self.open(dir, name, kind, follow)?,
        };
        let target = match kind {
            FileType::Symlink => {
                let target = sys::readlinkat(dir, name, Vec::new());
                out.store(target.with_context(|| self.shown())?.as_bytes())
            }
            _ => 0..0,
        };
        self.emit(dir, name, fd.as_ref(), meta, target, out)?;
        match (kind, fd) {
            (FileType::Directory, fd) => {
                out.breathe(cx)?;
                let elsewhere = *self.device.get_or_insert(stat.st_dev) != stat.st_dev;
                return Ok(fd.filter(|_| !(elsewhere && self.keep.one_file_system)));
            }
            (_, Some(fd)) => self.content(cx, &fd, &stat, out)?,
            _ if kind == FileType::Regular => out.push(Event::End),
            _ => {}
        }
        out.breathe(cx).map(|()| None)
    }

    /// Puts the content of an open file into the outbox.
    fn content(&self, cx: &mut Cx, fd: &OwnedFd, stat: &Stat, out: &mut Outbox) -> Result<()> {
        let (size, sparse) = (stat.st_size as u64, is_sparse(stat));
        let mut content = HostContent { source: self, fd, in_sequence: !sparse };
        match size {
            _ if self.keep.names_only => drop(content::outline(cx, &mut content, size, out)?),
            // Pipes and files of /proc do not say how long they are.
            0 => content::stream(cx, &mut content, out)?,
            _ => content::carry(cx, &mut content, size, sparse, out)?,
        }
        if self.keep.exact.is_some() {
            self.refuse_changed(fd, stat)?;
        }
        out.push(Event::End);
        Ok(())
    }

    /// Opens what has content or names.
    fn open(
        &self,
        dir: BorrowedFd,
        name: &CStr,
        kind: FileType,
        follow: bool,
    ) -> Result<Option<OwnedFd>> {
        if !matches!(kind, FileType::Regular | FileType::Directory) {
            return Ok(None);
        }
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        flags.set(OFlags::DIRECTORY, kind == FileType::Directory);
        sys::openat(dir, name, flags, Mode::empty()).with_context(|| self.shown()).map(Some)
    }

    /// Refuses a file that somebody changed while it was read.
    fn refuse_changed(&self, fd: &OwnedFd, before: &Stat) -> Result<()> {
        let after = sys::fstat(fd).with_context(|| self.shown())?;
        let state = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        match state(&after) == state(before) {
            true => Ok(()),
            false => bail!("{}: the file changed while it was read", self.shown()),
        }
    }

    /// Refuses a directory without `-r`, and one that was reached through itself by a symlink.
    fn may_enter(&mut self, stat: &Stat) -> Result<()> {
        self.keep.check_directory(|| self.shown())?;
        self.found = id_of(stat);
        let circle = self.keep.follow == Follow::Always
            && self.levels.iter().any(|level| level.id == self.found);
        match circle {
            true => bail!("{}: a symlink to a directory above it is not followed", self.shown()),
            false => Ok(()),
        }
    }

    /// Puts a node with its attributes into the outbox.
    fn emit(
        &mut self,
        dir: BorrowedFd,
        name: &CStr,
        fd: Option<&OwnedFd>,
        meta: Meta,
        target: Range<usize>,
        out: &mut Outbox,
    ) -> Result<()> {
        let path = out.store(&self.path);
        let mut attributes = Vec::new();
        if self.keep.has_attributes() {
            self.attributes(dir, name, fd, out, &mut attributes)
                .with_context(|| format!("{}: extended attributes", self.shown()))?;
        }
        out.push(Event::Node { path, meta, target, xattrs: attributes.len() as u32 });
        attributes.into_iter().for_each(|event| out.push(event));
        Ok(())
    }

    fn attributes(
        &mut self,
        dir: BorrowedFd,
        name: &CStr,
        fd: Option<&OwnedFd>,
        out: &mut Outbox,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        // Without a descriptor (symlinks, devices) the way leads through /proc to the directory's.
        let through = match fd {
            Some(_) => PathBuf::new(),
            None => {
                use std::os::fd::AsRawFd;
                use std::os::unix::ffi::OsStrExt;
                let dir = match dir.as_raw_fd() {
                    cwd if cwd == CWD.as_raw_fd() => PathBuf::new(),
                    number => PathBuf::from(format!("/proc/self/fd/{number}")),
                };
                dir.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
            }
        };
        let listed = loop {
            let listed = match fd {
                Some(fd) => flistxattr(fd, &mut self.scratch[..]),
                None => llistxattr(&through, &mut self.scratch[..]),
            };
            match listed {
                Err(Errno::RANGE) => self.scratch.resize(self.scratch.len() * 2, 0),
                Err(Errno::NOTSUP) => return Ok(()),
                other => break other?,
            }
        };
        if listed == 0 {
            return Ok(());
        }
        let names = self.scratch[..listed].to_vec();
        let exact = self.keep.exact.is_some();
        let wanted = |name: &&[u8]| {
            let own = exact && exact::is_of_the_host(name);
            !name.is_empty() && self.keep.has_attribute(name) && !own
        };
        for name in names.split(|&b| b == 0).filter(wanted) {
            let stored = out.store(name);
            let value = out.store_with(vfs::XATTR_SIZE_MAX, |buf| {
                Ok(match fd {
                    Some(fd) => fgetxattr(fd, name, buf)?,
                    None => lgetxattr(&through, name, buf)?,
                })
            });
            match value {
                Ok(value) => events.push(Event::Xattr { name: stored, value }),
                // Gone meanwhile.
                Err(error) if error.downcast_ref() == Some(&Errno::NODATA) => {}
                Err(error) => {
                    return Err(error).with_context(|| text::escape(name));
                }
            }
        }
        Ok(())
    }
}

/// An open file of the host.
struct HostContent<'a> {
    source: &'a HostSource,
    fd: &'a OwnedFd,
    /// Read from where the last read ended.
    in_sequence: bool,
}

impl HostContent<'_> {
    fn fail<T>(&self, result: rustix::io::Result<T>) -> Result<T> {
        result.with_context(|| self.source.shown())
    }
}

impl Content for HostContent<'_> {
    fn next_data(&mut self, _cx: &mut Cx, offset: u64) -> Result<Option<Range<u64>>> {
        let start = match sys::seek(self.fd, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => return Ok(None),
            start => self.fail(start)?,
        };
        let end = self.fail(sys::seek(self.fd, SeekFrom::Hole(start)))?;
        Ok(Some(start..end))
    }

    fn read(&mut self, _cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fail(match self.in_sequence {
            true => rustix::io::read(self.fd, buf),
            false => rustix::io::pread(self.fd, buf, offset),
        })
    }
}

impl Source for HostSource {
    fn links(&mut self) -> Option<&mut Links> {
        Some(&mut self.links)
    }

    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let root = std::ffi::CString::new(self.root.as_os_str().as_bytes())?;
        // A root given with a slash behind it is followed, like cp(1) does.
        let slash = root.to_bytes().ends_with(b"/") || root.to_bytes().ends_with(b"/.");
        let follow = slash || self.keep.follow != Follow::Never;
        if self.keep.is_root_excluded(&self.name) {
            return Ok(());
        }
        let done = self.node(cx, CWD, &root, follow, out);
        let done = done.and_then(|dir| dir.map_or(Ok(()), |dir| self.enter(&root, dir)));
        out.go_on(done)?;
        self.walk(cx, out)
    }
}

/// Whether a file has holes.
fn is_sparse(stat: &Stat) -> bool {
    (stat.st_blocks as u64) * 512 < stat.st_size as u64
}

/// Names with a zero byte behind each, in the order of their bytes.
fn sorted(names: &[u8]) -> Vec<u8> {
    let mut all: Vec<&[u8]> = names.split_inclusive(|&b| b == 0).collect();
    all.sort_unstable();
    all.concat()
}

fn id_of(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, ino: stat.st_ino }
}

fn meta_of(stat: &Stat, kind: FileType, linked: bool) -> Meta {
    let time = |sec: i64, nsec| Timespec { sec, nsec: nsec as u32 };
    Meta {
        kind,
        mode: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: if kind.is_device() { stat.st_rdev } else { 0 },
        size: stat.st_size as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        linked,
        id: None,
        kept: false,
    }
}
