//! Copying into an image.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use base::{Errno, Ino};
use ext4::Ext4;
use rt::Cx;
use vfs::path::Walk;
use vfs::{Attr, FileSystem, FileType, NewNode, SetAttr, XattrFlags, acl, create_in, permission};

use super::image_meta::{id_of, standing, take_away};
use super::{Batch, DIRECT_UNIT, Event, Existing, Keep, Made, Meta, Problems, Sink, Step, split};
use crate::text;

/// Bytes of paths of directories that are remembered.
const DIRS_BYTES_MAX: usize = 32 << 20;

/// A directory of a mounted image that receives a tree.
pub struct ImageSink {
    fs: Arc<dyn FileSystem>,
    /// Directory that relative paths start at.
    top: Ino,
    shown_top: String,
    keep: Keep,
    /// The directory used last, with its path: most names follow in the same one.
    last_dir: (Vec<u8>, Ino),
    /// Its flags, once they are known.
    last_flags: Option<u32>,
    /// Directories made or met, by path.
    dirs: BTreeMap<Vec<u8>, Ino>,
    /// Bytes of these paths.
    dirs_bytes: usize,
    /// Nodes whose further names may come.
    linked: BTreeMap<Vec<u8>, Ino>,
    /// Times of directories, set when all names are in them.
    late: Vec<(Ino, SetAttr)>,
    file: Option<OpenFile>,
    made: Made,
    /// Paths below the destination by which sources go by their names.
    name: Vec<u8>,
    /// That must be a directory.
    slash: bool,
    /// What stands in the way is to be removed.
    replacing: bool,
    /// After the last error nothing can be written any more.
    over: Cell<bool>,
    /// Gives files verity.
    verity: Option<Arc<Ext4>>,
}

/// The regular file that is being filled.
struct OpenFile {
    ino: Ino,
    meta: Meta,
    /// End of the data written so far.
    end: u64,
    path: Vec<u8>,
    /// Attributes to be set when the content is complete.
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    how: Stand,
}

/// How a node came to be where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// Made with mode, owner and times as they are to be.
    Exact,
    /// Made with what its directory and the umask give it.
    Made,
    /// It was there before.
    Old,
}

impl ImageSink {
    /// A sink whose paths are relative to the directory `top`.
    pub fn new(fs: Arc<dyn FileSystem>, top: Ino, shown_top: String, keep: Keep) -> ImageSink {
        ImageSink {
            fs,
            top,
            shown_top,
            keep,
            last_dir: (Vec::new(), top),
            last_flags: None,
            dirs: BTreeMap::new(),
            dirs_bytes: 0,
            linked: BTreeMap::new(),
            late: Vec::new(),
            file: None,
            made: Made::default(),
            name: Vec::new(),
            slash: false,
            replacing: false,
            over: Cell::new(false),
            verity: None,
        }
    }

    /// A sink whose files get verity from their file system, once they are complete.
    pub fn with_verity(self, verity: Option<Arc<Ext4>>) -> ImageSink {
        ImageSink { verity, ..self }
    }

    /// A sink that goes on after others of the same command, which have `made` this. The root of
    /// what comes is called `name`; with a `slash` behind it, it must be a directory.
    pub fn after(self, made: Made, name: &[u8], slash: bool) -> ImageSink {
        ImageSink { made, name: name.to_vec(), slash, ..self }
    }

    /// What has been made.
    pub fn into_made(self) -> Made {
        self.made
    }

    fn shown(&self, path: &[u8]) -> String {
        format!("{}/{}", self.shown_top.trim_end_matches('/'), text::escape(path))
    }

    fn error(&self, path: &[u8], errno: Errno) -> anyhow::Error {
        let last = [Errno::ENOSPC, Errno::EROFS, Errno::EIO, Errno::EFSCORRUPTED];
        self.over.set(last.contains(&errno));
        let free = if errno == Errno::ENOSPC { "; `iopath df` shows what is free" } else { "" };
        anyhow!("{}: {errno}{free}", self.shown(path))
    }

    /// The directory of a relative path; missing ones (an archive may leave them out) are made.
    fn dir(&mut self, cx: &mut Cx, path: &[u8]) -> Result<Ino> {
        if self.last_dir.0 == path {
            return Ok(self.last_dir.1);
        }
        // The longest part of the path that is known, then one name after the other.
        let mut known = path.len();
        let mut ino = loop {
            match self.dirs.get(&path[..known]) {
                _ if known == 0 => break self.top,
                Some(&ino) => break ino,
                None => known = split(&path[..known]).0.len(),
            }
        };
        while known < path.len() {
            let start = if known == 0 { 0 } else { known + 1 };
            let len = path[start..].iter().position(|&b| b == b'/');
            known = len.map_or(path.len(), |len| start + len);
            ino = self.below(cx, ino, &path[..known], &path[start..known])?;
        }
        (self.last_dir, self.last_flags) = ((path.to_vec(), ino), None);
        Ok(ino)
    }

    /// Whether the directory used last has one of these flags.
    fn is_flagged(&mut self, cx: &mut Cx, flags: u32) -> Result<bool, Errno> {
        let known = match self.last_flags {
            Some(known) => known,
            None => *self.last_flags.insert(self.fs.getattr(cx, self.last_dir.1)?.flags),
        };
        Ok(known & flags != 0)
    }

    /// The directory `name` in `above`, at this path; it is made if there is none.
    fn below(&mut self, cx: &mut Cx, above: Ino, path: &[u8], name: &[u8]) -> Result<Ino> {
        let node = NewNode::new(FileType::Directory, 0o755);
        let found = match self.fs.lookup(cx, above, name) {
            Err(Errno::ENOENT) => self.fs.create(cx, above, name, &node),
            other => other,
        };
        let attr = found.map_err(|errno| self.error(path, errno))?;
        if !attr.is_dir() {
            return Err(self.error(path, Errno::ENOTDIR));
        }
        self.know(path, attr.ino);
        Ok(attr.ino)
    }

    /// Remembers a directory. Those that came before are forgotten where their paths have become
    /// many or long; they are found again by their names.
    fn know(&mut self, path: &[u8], ino: Ino) {
        self.dirs_bytes += path.len();
        if self.dirs_bytes > DIRS_BYTES_MAX {
            self.dirs.clear();
            self.dirs_bytes = path.len();
        }
        self.dirs.insert(path.to_vec(), ino);
    }

    fn node(&mut self, cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        let Event::Node { path, meta, target, xattrs } = &batch.events[at] else { return Ok(()) };
        let path = batch.at(path);
        let meta = self.keep.adjust(path, meta)?;
        self.abandon();
        if let Some(first) = meta.id.and_then(|id| self.made.copied.get(&id)) {
            let first = first.clone();
            return self.link(cx, path, &first);
        }
        let found = match meta.kept {
            true => Some((self.standing_file(cx, path)?, Stand::Old)),
            false => self.make(cx, path, &meta, batch.at(target))?,
        };
        let Some((ino, how)) = found else { return Ok(()) };
        if let Some(id) = meta.id {
            self.made.copied.insert(id, path.to_vec());
        }
        if meta.linked {
            self.linked.insert(path.to_vec(), ino);
        }
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let exact = self.keep.exact.clone();
        let added = exact.as_deref().map_or(&[][..], |exact| exact.attributes(path));
        let added = added.iter().map(|(name, value)| (&name[..], &value[..]));
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => Some((batch.at(name), batch.at(value))),
            _ => None,
        });
        let pairs = pairs.chain(added);
        if how == Stand::Old && self.keep.only.is_some() {
            let names = pairs.clone().map(|(name, _)| name).collect();
            let done = take_away(cx, &*self.fs, &self.keep, ino, &names);
            done.map_err(|errno| self.error(path, errno))?;
        }
        if self.keep.as_regular(meta.kind) {
            let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let path = path.to_vec();
            let end = if meta.kept { meta.size } else { 0 };
            self.file = Some(OpenFile { ino, meta, end, path, xattrs, how });
            return Ok(());
        }
        if how == Stand::Old && (self.keep.times || self.keep.mode || self.keep.owner) {
            let attr = self.fs.getattr(cx, ino).map_err(|errno| self.error(path, errno))?;
            let may = permission::may_set(cx.cred(), &attr, &self.finishing(&meta, how));
            may.map_err(|errno| self.error(path, errno))?;
        }
        let mut set = self.finishing(&meta, how);
        let (atime, mtime) = (set.atime.take(), set.mtime.take());
        self.set(cx, ino, path, &set)?;
        for (name, value) in pairs {
            self.set_xattr(cx, ino, path, name, value)?;
        }
        if !self.keep.times {
            return Ok(());
        }
        let times = SetAttr { atime, mtime, ..SetAttr::default() };
        match meta.kind {
            FileType::Directory => self.late.push((ino, times)),
            _ if how == Stand::Exact => {}
            _ => self.set(cx, ino, path, &times)?,
        }
        Ok(())
    }

    /// A file whose content stays.
    fn standing_file(&mut self, cx: &mut Cx, path: &[u8]) -> Result<Ino> {
        let (above, name) = split(path);
        let dir = self.dir(cx, above)?;
        let found = self.fs.lookup(cx, dir, name).and_then(|attr| match attr.kind {
            FileType::Regular if permission::is_fixed(&attr) => Err(Errno::EPERM),
            FileType::Regular => Ok(attr.ino),
            _ => Err(Errno::EEXIST),
        });
        found.map_err(|errno| self.error(path, errno))
    }

    /// What is left to be set of a node that stands.
    fn finishing(&self, meta: &Meta, how: Stand) -> SetAttr {
        let mut set = SetAttr::default();
        if how != Stand::Exact && self.keep.owner {
            (set.uid, set.gid) = (Some(meta.uid), Some(meta.gid));
        }
        let exact = self.keep.mode || self.keep.chmod.is_some();
        if how != Stand::Exact && exact && meta.kind != FileType::Symlink {
            set.mode = Some(meta.mode);
        }
        if self.keep.times {
            (set.atime, set.mtime) = (Some(meta.atime), Some(meta.mtime));
        }
        set
    }

    /// An owner that changes takes set-id bits along: the mode is set afterwards.
    fn set(&self, cx: &mut Cx, ino: Ino, path: &[u8], set: &SetAttr) -> Result<()> {
        let mut set = set.clone();
        let mode = if set.uid.is_some() { set.mode.take() } else { None };
        let mode = SetAttr { mode, ..SetAttr::default() };
        for set in [&set, &mode] {
            if *set != SetAttr::default() {
                self.fs.setattr(cx, ino, set).map_err(|errno| self.error(path, errno))?;
            }
        }
        Ok(())
    }

    /// Makes the node, or takes the one that is there; none where that is to stay as it is.
    fn make(
        &mut self,
        cx: &mut Cx,
        path: &[u8],
        meta: &Meta,
        target: &[u8],
    ) -> Result<Option<(Ino, Stand)>> {
        let directory = meta.kind == FileType::Directory;
        if path.is_empty() {
            if !directory {
                return Err(self.error(path, Errno::EISDIR));
            }
            return Ok(Some((self.top, Stand::Old)));
        }
        if self.slash && !directory && path == self.name {
            return Err(self.error(path, Errno::ENOTDIR));
        }
        let (above, name) = split(path);
        let dir = self.dir(cx, above)?;
        let closed = self.is_flagged(cx, permission::IMMUTABLE);
        let made = match closed.map_err(|errno| self.error(path, errno))? {
            // What is there may be written into.
            true => self
                .fs
                .lookup(cx, dir, name)
                .and(Err(Errno::EEXIST))
                .map_err(|errno| if errno == Errno::ENOENT { Errno::EPERM } else { errno }),
            false => self.create(cx, dir, name, meta, target),
        };
        let made = match made {
            Err(Errno::EEXIST) => {
                let old = self.fs.lookup(cx, dir, name).map_err(|e| self.error(path, e))?;
                match self.settle(cx, dir, path, meta, &old)? {
                    Some(ino) => Ok((ino, Stand::Old)),
                    None if self.file_gone(cx, dir, path, &old)? => {
                        self.create(cx, dir, name, meta, target)
                    }
                    None => return Ok(None),
                }
            }
            other => other,
        };
        let (ino, how) = made.map_err(|errno| self.error(path, errno))?;
        self.made.note(meta.kind, path == self.name, id_of(ino));
        if directory {
            self.know(path, ino);
        }
        Ok(Some((ino, how)))
    }

    /// Creates a node: as it is to be, or as its directory and the umask have it.
    fn create(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        meta: &Meta,
        target: &[u8],
    ) -> Result<(Ino, Stand), Errno> {
        let keep = &self.keep;
        let kind = if keep.as_regular(meta.kind) { FileType::Regular } else { meta.kind };
        let node = NewNode {
            kind,
            mode: keep.mode_at_creation(meta),
            uid: meta.uid,
            gid: meta.gid,
            rdev: if kind.is_device() { meta.rdev } else { 0 },
            target: (kind == FileType::Symlink).then_some(target),
            times: keep.times.then_some((meta.atime, meta.mtime)),
        };
        if keep.owner && (keep.mode || kind == FileType::Symlink) {
            return Ok((self.fs.create(cx, dir, name, &node)?.ino, Stand::Exact));
        }
        let dir = self.fs.getattr(cx, dir)?;
        Ok((create_in(cx, &*self.fs, &dir, name, node)?.ino, Stand::Made))
    }

    /// Decides on what stands at the path: the inode to go on with; none where it is in the way or
    /// to be left.
    fn settle(
        &mut self,
        cx: &mut Cx,
        dir: Ino,
        path: &[u8],
        meta: &Meta,
        old: &Attr,
    ) -> Result<Option<Ino>> {
        let (fs, name) = (self.fs.clone(), split(path).1);
        let mut ino = old.ino;
        let led = || {
            let mut walk = Walk::new(cx, &*fs, fs.root(), dir).ok()?;
            let found = walk.find(cx, name, true).ok()?.attr?;
            ino = found.ino;
            Some(standing(&found))
        };
        let step = self.keep.step(meta, path == self.name, &standing(old), led, &self.made);
        self.replacing = step == Step::Replace;
        match step {
            Step::Skip | Step::Replace => Ok(None),
            Step::Merge => {
                self.know(path, ino);
                Ok(Some(ino))
            }
            Step::Write => {
                let attr = fs.getattr(cx, ino).map_err(|errno| self.error(path, errno))?;
                if permission::is_fixed(&attr) {
                    return Err(self.error(path, Errno::EPERM));
                }
                if attr.kind != FileType::Regular {
                    let word = attr.kind.word();
                    let shown = self.shown(path);
                    return Err(anyhow!("{shown}: is a {word}: an image has nobody to write to"));
                }
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                self.set(cx, ino, path, &empty)?;
                if self.keep.mode {
                    match fs.removexattr(cx, ino, acl::ACCESS) {
                        Ok(()) | Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
                        Err(errno) => return Err(self.error(path, errno)),
                    }
                }
                Ok(Some(ino))
            }
            Step::Refuse(why) => Err(anyhow!("{}: {why}", self.shown(path))),
        }
    }

    /// Removes what is in the way of a node, if it is to be replaced.
    fn file_gone(&mut self, cx: &mut Cx, dir: Ino, path: &[u8], old: &Attr) -> Result<bool> {
        if !std::mem::take(&mut self.replacing) {
            return Ok(false);
        }
        debug_assert!(!old.is_dir(), "directories are never replaced");
        self.unlink(cx, dir, split(path).1, old).map_err(|errno| self.error(path, errno))?;
        Ok(true)
    }

    /// Removes a name of the directory used last.
    fn unlink(&mut self, cx: &mut Cx, dir: Ino, name: &[u8], old: &Attr) -> Result<(), Errno> {
        let fixed = permission::IMMUTABLE | permission::APPEND_ONLY;
        if permission::is_fixed(old) || self.is_flagged(cx, fixed)? {
            return Err(Errno::EPERM);
        }
        self.fs.unlink(cx, dir, name)
    }

    fn set_xattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        path: &[u8],
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        match self.fs.setxattr(cx, ino, name, value, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            // The host's label of its own security module means nothing to the image's.
            Err(Errno::EOPNOTSUPP) if !name.starts_with(b"user.") && name != acl::ACCESS => Ok(()),
            Err(errno) => {
                Err(self.error(path, errno).context(format!("attribute {}", text::escape(name))))
            }
        }
    }

    /// Content comes: all of it is written, but for blocks of zeros where those are to be holes.
    fn data(&mut self, cx: &mut Cx, offset: u64, data: &[u8]) -> Result<()> {
        let holes = self.file.as_ref().is_some_and(|file| file.how != Stand::Old);
        let Some(exact) = self.keep.exact.clone().filter(|_| holes) else {
            return self.write(cx, offset, data);
        };
        for run in exact.runs(offset, data) {
            self.write(cx, offset + run.start as u64, &data[run])?;
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut Cx, offset: u64, mut data: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut at = offset;
        while !data.is_empty() {
            let whole = data.len() - data.len() % DIRECT_UNIT;
            let aligned = at.is_multiple_of(DIRECT_UNIT as u64) && whole > 0;
            let direct = self.keep.direct && aligned;
            let written = match direct {
                true => self.fs.write_direct(cx, file.ino, at, &data[..whole]),
                false => self.fs.write(cx, file.ino, at, data),
            };
            match written {
                Ok(0) => {
                    let path = file.path.clone();
                    return Err(self.error(&path, Errno::EIO));
                }
                Ok(count) => {
                    at += count as u64;
                    data = &data[count..];
                }
                Err(errno) => {
                    let path = file.path.clone();
                    return Err(self.error(&path, errno));
                }
            }
        }
        file.end = at;
        Ok(())
    }

    /// The file takes over the content of another one by sharing its blocks.
    fn share(&mut self, cx: &mut Cx, from: Ino) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.end = file.meta.size;
        let ino = file.ino;
        if file.meta.size == 0 {
            return Ok(());
        }
        self.fs.clone_range(cx, (from, 0), (ino, 0), 0).map_err(|errno| {
            let path = self.file.as_ref().map_or(Vec::new(), |file| file.path.clone());
            self.error(&path, errno).context("sharing blocks (--reflink)")
        })
    }

    fn end(&mut self, cx: &mut Cx) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut set = self.finishing(&file.meta, file.how);
        if file.end < file.meta.size && file.meta.kind == FileType::Regular {
            set.size = Some(file.meta.size);
        }
        // Writing moved the times that the node was made with.
        if file.how == Stand::Exact && file.end == 0 && set.size.is_none() {
            (set.atime, set.mtime) = (None, None);
        }
        for (name, value) in &file.xattrs {
            self.set_xattr(cx, file.ino, &file.path, name, value)?;
        }
        self.set(cx, file.ino, &file.path, &set)?;
        if let Some(fs) = &self.verity {
            fs.make_verity(cx, file.ino)
                .map_err(|errno| self.error(&file.path, errno).context("verity (--verity)"))?;
        }
        Ok(())
    }

    fn link(&mut self, cx: &mut Cx, path: &[u8], to: &[u8]) -> Result<()> {
        let ino = match self.linked.get(to) {
            Some(&ino) => ino,
            // An archive may name a file that was there before.
            None => {
                let (above, name) = split(to);
                let dir = self.dir(cx, above)?;
                self.fs.lookup(cx, dir, name).map_err(|errno| self.error(to, errno))?.ino
            }
        };
        let (above, name) = split(path);
        let dir = self.dir(cx, above)?;
        let made = match self.fs.link(cx, ino, dir, name) {
            Err(Errno::EEXIST) => {
                let old = self.fs.lookup(cx, dir, name).map_err(|e| self.error(path, e))?;
                if old.ino == ino || self.keep.existing == Existing::Leave {
                    return Ok(());
                }
                self.unlink(cx, dir, name, &old).map_err(|e| self.error(path, e))?;
                self.fs.link(cx, ino, dir, name)
            }
            other => other,
        };
        made.map(drop).map_err(|errno| self.error(path, errno))
    }
}

impl Sink for ImageSink {
    fn event(&mut self, cx: &mut Cx, batch: &Batch, at: usize) -> Result<()> {
        match &batch.events[at] {
            Event::Node { .. } => self.node(cx, batch, at),
            Event::Link { path, to } => self.link(cx, batch.at(path), batch.at(to)),
            Event::Data { offset, data } => self.data(cx, *offset, batch.at(data)),
            Event::Shared(from) => self.share(cx, *from),
            Event::End => self.end(cx),
            Event::Problem(_) => {
                self.abandon();
                Ok(())
            }
            Event::Xattr { .. } | Event::Stretches(_) => Ok(()),
        }
    }

    fn abandon(&mut self) {
        self.file = None;
    }

    fn is_over(&self, _error: &anyhow::Error) -> bool {
        self.over.get()
    }

    fn finish(&mut self, cx: &mut Cx, _problems: &mut Problems) -> Result<()> {
        let late = std::mem::take(&mut self.late);
        for (ino, set) in &late {
            self.fs.setattr(cx, *ino, set).map_err(|errno| {
                anyhow!("{}: setting the times of inode {ino}: {errno}", self.shown_top)
            })?;
        }
        // A source that follows may bring names for these directories.
        if self.keep.exact.is_some() {
            self.late = late;
        }
        Ok(())
    }
}
