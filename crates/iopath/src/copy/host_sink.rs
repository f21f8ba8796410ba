//! Copying to the host: names are made in open directories, nothing is resolved twice, and no name
//! of an image can lead out of the destination.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rt::Cx;
use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use vfs::FileType;

use super::host_meta::{self, Xattrs, owner, safe_name, standing, times};
use super::late_dirs::LateDirs;
use super::open_dirs::{FLAGS, OpenDirs};
use super::{Batch, Event, Existing, Keep, Made, Meta, Problems, Sink, Step, split};
use crate::text;

/// A directory of the host that receives a tree.
pub struct HostSink {
    top: PathBuf,
    keep: Keep,
    /// Open directories from the destination down to the one used last.
    dirs: OpenDirs,
    /// Directories, which get mode, attributes and times when all names are in them: a default ACL
    /// would be inherited, a mode might forbid, and times would change.
    late: LateDirs<(Meta, Xattrs, bool)>,
    file: Option<OpenFile>,
    made: Made,
    /// The path below the destination by which the source goes.
    name: Vec<u8>,
    /// That must be a directory.
    slash: bool,
    umask: u16,
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
}

struct OpenFile {
    fd: OwnedFd,
    meta: Meta,
    end: u64,
    path: Vec<u8>,
    xattrs: Xattrs,
    /// It was there before.
    old: bool,
    /// A regular file: others are written from their start to their end.
    regular: bool,
}

impl HostSink {
    /// A sink whose paths are relative to the directory `top`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(top: &Path, keep: Keep) -> Result<HostSink> {
        let shown = || top.display().to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = sys::openat(CWD, top, flags, Mode::empty()).with_context(shown)?;
        let set_gid = sys::fstat(&fd).with_context(shown)?.st_mode & 0o2000 != 0;
        // Modes that are kept are exact at creation.
        let umask = rustix::process::umask(Mode::empty());
        if !keep.mode {
            rustix::process::umask(umask);
        }
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(HostSink {
            top: top.to_path_buf(),
            keep,
            dirs: OpenDirs::new(fd),
            late: LateDirs::new(),
            file: None,
            made: Made::default(),
            name: Vec::new(),
            slash: false,
            umask: umask.bits() as u16,
            me,
            set_gid,
            refused: Refused::default(),
        })
    }

    /// A sink that goes on after others of the same command, which have `made` this. The root of
    /// what comes is called `name`; with a `slash` behind it, it must be a directory.
    pub fn after(self, made: Made, name: &[u8], slash: bool) -> HostSink {
        HostSink { made, name: name.to_vec(), slash, ..self }
    }

    /// What has been made.
    pub fn into_made(self) -> Made {
        self.made
    }

    /// What the host did not accept, with how often: its file system has no attributes, or changing
    /// owners is for root.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Refused { attributes, owners } = self.refused;
        let all = [("extended attributes", attributes), ("owners (needs root)", owners)];
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
        let meta = &self.keep.adjust(path, meta)?;
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => Some((batch.at(name), batch.at(value))),
            _ => None,
        });
        if path.is_empty() {
            if meta.kind != FileType::Directory {
                bail!("{}: is a directory", self.top.display());
            }
            return self.made_directory(path, meta, pairs, true);
        }
        let (above, name) = split(path);
        self.enter(above)?;
        safe_name(name)?;
        if meta.kind == FileType::Directory {
            let old = self.directory(path, name, meta).with_context(|| self.shown(path))?;
            self.enter(path)?;
            return self.made_directory(path, meta, pairs, old);
        }
        if self.slash && path == self.name {
            return Err(Errno::NOTDIR).with_context(|| self.shown(path));
        }
        self.abandon();
        if let Some(first) = meta.id.and_then(|id| self.made.copied.get(&id)) {
            let first = first.clone();
            return self.link(path, &first);
        }
        if meta.kept {
            let fd =
                host_meta::standing_file(self.dir(), name).with_context(|| self.shown(path))?;
            let xattrs: Xattrs =
                pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            host_meta::take_away(&self.keep, &fd, &xattrs).with_context(|| self.shown(path))?;
            let (meta, path, end) = (*meta, path.to_vec(), meta.size);
            self.file = Some(OpenFile { fd, meta, end, path, xattrs, old: true, regular: true });
            return Ok(());
        }
        if self.keep.as_regular(meta.kind) {
            let file = self.create_file(path, name, meta).with_context(|| self.shown(path))?;
            let Some((fd, old)) = file else { return Ok(()) };
            self.made.copied.extend(meta.id.map(|id| (id, path.to_vec())));
            let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let regular = match old || path == self.name {
                true => self.note(path, name, &fd, meta)?,
                false => true,
            };
            let (meta, path) = (*meta, path.to_vec());
            self.file = Some(OpenFile { fd, meta, end: 0, path, xattrs, old, regular });
            return Ok(());
        }
        let make = |sink: &HostSink| sink.create_other(name, meta, target);
        if self.unless_settled(path, name, meta, make).with_context(|| self.shown(path))? {
            self.made.copied.extend(meta.id.map(|id| (id, path.to_vec())));
            if meta.kind == FileType::Symlink || path == self.name {
                let stat = sys::statat(self.dir(), name, AtFlags::SYMLINK_NOFOLLOW)?;
                self.made.note(meta.kind, path == self.name, standing(&stat)?.id);
            }
            self.finish_other(name, meta, pairs).with_context(|| self.shown(path))?;
        }
        Ok(())
    }

    /// Notes a file by its name or one that was there; true where it is a regular one.
    fn note(&mut self, path: &[u8], name: &[u8], fd: &OwnedFd, meta: &Meta) -> Result<bool> {
        let shown = || self.shown(path);
        if path == self.name {
            let stat = sys::statat(self.dir(), name, AtFlags::SYMLINK_NOFOLLOW);
            let id = standing(&stat.with_context(shown)?)?.id;
            self.made.note(meta.kind, true, id);
        }
        let stat = sys::fstat(fd).with_context(|| self.shown(path))?;
        Ok(standing(&stat)?.kind == FileType::Regular)
    }

    /// Makes a directory; true where it was there.
    fn directory(&mut self, path: &[u8], name: &[u8], meta: &Meta) -> Result<bool> {
        let mode = Mode::from_raw_mode(u32::from(self.keep.mode_at_creation(meta)) | 0o700);
        let make = |sink: &HostSink| sys::mkdirat(sink.dir(), name, mode);
        Ok(!self.unless_settled(path, name, meta, make)?)
    }

    fn made_directory<'b>(
        &mut self,
        path: &[u8],
        meta: &Meta,
        pairs: impl Iterator<Item = (&'b [u8], &'b [u8])>,
        old: bool,
    ) -> Result<()> {
        let closed = !old && meta.mode & 0o700 != 0o700;
        let Keep { mode, owner, times, xattrs, .. } = self.keep;
        if !(mode || owner || times || xattrs || closed || self.keep.chmod.is_some()) {
            return Ok(());
        }
        self.enter(path)?;
        self.set_gid |= meta.mode & 0o2000 != 0;
        let fd = self.dir().try_clone_to_owned()?;
        self.chown_fd(fd.as_fd(), meta).with_context(|| self.shown(path))?;
        let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        self.late.push(path, (*meta, xattrs, old));
        Ok(())
    }

    /// Runs `make`; if the name is taken, what is there is removed or left, as the rules have it.
    /// False where it is left.
    fn unless_settled(
        &self,
        path: &[u8],
        name: &[u8],
        meta: &Meta,
        make: impl Fn(&HostSink) -> rustix::io::Result<()>,
    ) -> Result<bool> {
        match make(self) {
            Err(Errno::EXIST) => {}
            other => return Ok(other.map(|()| true)?),
        }
        match self.step(path, name, meta)?.0 {
            Step::Refuse(why) => bail!("{why}"),
            Step::Replace => {
                sys::unlinkat(self.dir(), name, AtFlags::empty())?;
                make(self)?;
                Ok(true)
            }
            Step::Merge | Step::Write | Step::Skip => Ok(false),
        }
    }

    /// What to do about the name that is taken, and whether it is a symlink.
    fn step(&self, path: &[u8], name: &[u8], meta: &Meta) -> Result<(Step, bool)> {
        let old = standing(&sys::statat(self.dir(), name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let led = || {
            let stat = sys::statat(self.dir(), name, AtFlags::empty()).ok()?;
            standing(&stat).ok()
        };
        let step = self.keep.step(meta, path == self.name, &old, led, &self.made);
        Ok((step, old.kind == FileType::Symlink))
    }

    /// A file to write to, and whether it was there; none where what is there stays.
    fn create_file(
        &self,
        path: &[u8],
        name: &[u8],
        meta: &Meta,
    ) -> Result<Option<(OwnedFd, bool)>> {
        let create = || {
            let flags = OFlags::CREATE | OFlags::EXCL;
            let flags = flags | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = self.keep.mode_at_creation(meta) & 0o777;
            sys::openat(self.dir(), name, flags, Mode::from_raw_mode(mode.into()))
        };
        match create() {
            Err(Errno::EXIST) => {}
            other => return Ok(Some((other?, false))),
        }
        let (step, symlink) = self.step(path, name, meta)?;
        let replace = || {
            sys::unlinkat(self.dir(), name, AtFlags::empty())?;
            create().map(|fd| Some((fd, false)))
        };
        match step {
            Step::Refuse(why) => bail!("{why}"),
            Step::Replace => Ok(replace()?),
            Step::Merge | Step::Skip => Ok(None),
            Step::Write => {
                let mut flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
                flags.set(OFlags::NOFOLLOW, !symlink);
                match sys::openat(self.dir(), name, flags, Mode::empty()) {
                    Err(_) if self.keep.force => Ok(replace()?),
                    other => Ok(Some((other?, true))),
                }
            }
        }
    }

    fn create_other(&self, name: &[u8], meta: &Meta, target: &[u8]) -> rustix::io::Result<()> {
        if meta.kind == FileType::Symlink {
            return sys::symlinkat(target, self.dir(), name);
        }
        let mode = Mode::from_raw_mode((self.keep.mode_at_creation(meta) & 0o777).into());
        let kind = sys::FileType::from_raw_mode(u32::from(meta.kind.mode_bits()));
        sys::mknodat(self.dir(), name, kind, mode, meta.rdev)
    }

    /// Owner, mode, attributes and times of a node that cannot be opened.
    fn finish_other<'b>(
        &mut self,
        name: &[u8],
        meta: &Meta,
        pairs: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if self.keep.owner && (self.set_gid || (meta.uid, meta.gid) != self.me) {
            let (uid, gid) = owner(meta);
            let done = sys::chownat(self.dir(), name, Some(uid), Some(gid), nofollow);
            self.owner_set(done)?;
        }
        let exact = self.keep.mode && meta.mode & 0o7000 != 0 || self.keep.chmod.is_some();
        if meta.kind != FileType::Symlink && exact {
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
        if self.keep.times {
            sys::utimensat(self.dir(), name, &times(meta), nofollow)?;
        }
        Ok(())
    }

    fn set_xattr(&mut self, fd: &OwnedFd, path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
        let set = sys::fsetxattr(fd, name, value, XattrFlags::empty());
        self.refused_or(set)
            .with_context(|| format!("{}: attribute {}", self.shown(path), text::escape(name)))
    }

    /// An attribute that the host does not take is counted, not fatal.
    fn refused_or(&mut self, set: rustix::io::Result<()>) -> Result<()> {
        match set {
            // Too large a value is `ENOSPC` on ext4.
            Err(Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => {
                self.refused.attributes += 1;
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Gives a node its owner; false where the host refuses that.
    fn chown_fd(&mut self, fd: BorrowedFd, meta: &Meta) -> Result<bool> {
        if !self.keep.owner || !self.set_gid && (meta.uid, meta.gid) == self.me {
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
        if !file.regular {
            return self.stream(offset, data);
        }
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

    /// Writes to a pipe or device: holes become zeros.
    fn stream(&mut self, offset: u64, mut data: &[u8]) -> Result<()> {
        const ZEROS: &[u8] = &[0; 4096];
        let Some(file) = &mut self.file else { return Ok(()) };
        while file.end < offset || !data.is_empty() {
            let gap = offset.saturating_sub(file.end).min(ZEROS.len() as u64) as usize;
            let part = if gap > 0 { &ZEROS[..gap] } else { data };
            let written = match rustix::io::write(&file.fd, part) {
                Err(Errno::INTR) => 0,
                Err(error) => {
                    let path = std::mem::take(&mut file.path);
                    return Err(error).with_context(|| self.shown(&path));
                }
                Ok(count) => count,
            };
            file.end += written as u64;
            if gap == 0 {
                data = &data[written..];
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let size = self.file.as_ref().filter(|file| !file.regular).map(|file| file.meta.size);
        if let Some(size) = size {
            self.stream(size, &[])?;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        self.finish_file(&file).with_context(|| self.shown(&file.path))
    }

    fn finish_file(&mut self, file: &OpenFile) -> Result<()> {
        if !file.regular {
            return Ok(());
        }
        if file.end < file.meta.size && file.meta.kind == FileType::Regular {
            sys::ftruncate(&file.fd, file.meta.size)?;
        }
        let owned = self.chown_fd(file.fd.as_fd(), &file.meta)?;
        // Set-id bits are not for another owner.
        let mode = if owned { file.meta.mode } else { file.meta.mode & 0o1777 };
        let exact = self.keep.mode && (mode & 0o7000 != 0 || file.old);
        if exact || self.keep.chmod.is_some() {
            sys::fchmod(&file.fd, Mode::from_raw_mode(mode.into()))?;
        }
        if self.keep.mode && file.old {
            match sys::fremovexattr(&file.fd, vfs::acl::ACCESS) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (name, value) in &file.xattrs {
            self.set_xattr(&file.fd, &file.path, name, value)?;
        }
        if self.keep.times {
            sys::futimens(&file.fd, &times(&file.meta))?;
        }
        Ok(())
    }

    /// Mode, attributes and times of a directory that is complete.
    fn finish_directory(
        &mut self,
        path: &[u8],
        meta: &Meta,
        xattrs: &Xattrs,
        old: bool,
    ) -> Result<()> {
        self.enter(path)?;
        let fd = self.dir().try_clone_to_owned()?;
        let mode = match self.keep.mode || self.keep.chmod.is_some() {
            true => Some(meta.mode),
            false if old => None,
            false => Some(self.keep.mode_at_creation(meta) & !self.umask),
        };
        if old && self.keep.only.is_some() {
            host_meta::take_away(&self.keep, &fd, xattrs).with_context(|| self.shown(path))?;
        }
        if let Some(mode) = mode {
            let mode = Mode::from_raw_mode(mode.into());
            sys::fchmod(&fd, mode).with_context(|| self.shown(path))?;
        }
        for (name, value) in xattrs {
            self.set_xattr(&fd, path, name, value)?;
        }
        match self.keep.times {
            true => sys::futimens(&fd, &times(meta)).with_context(|| self.shown(path)),
            false => Ok(()),
        }
    }

    fn link(&mut self, path: &[u8], to: &[u8]) -> Result<()> {
        let (to_dir, to_name) = split(to);
        self.enter(to_dir)?;
        let from = self.dir().try_clone_to_owned()?;
        let (above, name) = split(path);
        self.enter(above)?;
        safe_name(name)?;
        safe_name(to_name)?;
        self.link_from(&from, to_name, name)
            .with_context(|| format!("{}: link to {}", self.shown(path), self.shown(to)))
    }

    fn link_from(&self, from: &OwnedFd, to_name: &[u8], name: &[u8]) -> Result<()> {
        let link = || sys::linkat(from, to_name, self.dir(), name, AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
        let id = |dir: BorrowedFd, name: &[u8]| {
            let stat = sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok::<_, anyhow::Error>(standing(&stat)?.id)
        };
        let same = id(from.as_fd(), to_name)? == id(self.dir(), name)?;
        if same || self.keep.existing == Existing::Leave {
            return Ok(());
        }
        sys::unlinkat(self.dir(), name, AtFlags::empty())?;
        Ok(link()?)
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
        while let Some((path, (meta, xattrs, old))) = self.late.pop() {
            match self.finish_directory(&path, &meta, &xattrs, old) {
                Err(error) if self.is_over(&error) => return Err(error),
                Err(error) => problems.report(format!("{error:#}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}
