//! Copying into an image.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use base::{Errno, Ino};
use rt::Cx;
use vfs::{FileSystem, FileType, NewNode, SetAttr, XattrFlags, acl};

use super::{Batch, DIRECT_UNIT, Event, Keep, Meta, Problems, Sink, split};
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
    /// Directories made or met, by path.
    dirs: BTreeMap<Vec<u8>, Ino>,
    /// Bytes of these paths.
    dirs_bytes: usize,
    /// Nodes whose further names may come.
    linked: BTreeMap<Vec<u8>, Ino>,
    /// Times of directories, set when all names are in them.
    late: Vec<(Ino, SetAttr)>,
    file: Option<OpenFile>,
    /// The last error was one after which nothing can be written any more.
    over: Cell<bool>,
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
            dirs: BTreeMap::new(),
            dirs_bytes: 0,
            linked: BTreeMap::new(),
            late: Vec::new(),
            file: None,
            over: Cell::new(false),
        }
    }

    fn error(&self, path: &[u8], errno: Errno) -> anyhow::Error {
        let over = [Errno::ENOSPC, Errno::EROFS, Errno::EIO, Errno::EFSCORRUPTED].contains(&errno);
        self.over.set(over);
        let shown = format!("{}/{}", self.shown_top.trim_end_matches('/'), text::escape(path));
        match errno {
            Errno::ENOSPC => anyhow!("{shown}: {errno}; `iopath df` shows what is free"),
            _ => anyhow!("{shown}: {errno}"),
        }
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
        self.last_dir = (path.to_vec(), ino);
        Ok(ino)
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
        let ino = self.make(cx, path, meta, batch.at(target))?;
        if meta.linked {
            self.linked.insert(path.to_vec(), ino);
        }
        let events = &batch.events[at + 1..at + 1 + *xattrs as usize];
        let pairs = events.iter().filter_map(|event| match event {
            Event::Xattr { name, value } => Some((batch.at(name), batch.at(value))),
            _ => None,
        });
        if meta.kind == FileType::Regular {
            let xattrs = pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            self.file = Some(OpenFile { ino, meta: *meta, end: 0, path: path.to_vec(), xattrs });
            return Ok(());
        }
        for (name, value) in pairs {
            self.set_xattr(cx, ino, path, name, value)?;
        }
        if !self.keep.all {
            return Ok(());
        }
        let times =
            SetAttr { atime: Some(meta.atime), mtime: Some(meta.mtime), ..SetAttr::default() };
        if meta.kind == FileType::Directory {
            self.late.push((ino, times));
        }
        Ok(())
    }

    /// Creates the node; a directory may exist already, and a file is replaced.
    fn make(&mut self, cx: &mut Cx, path: &[u8], meta: &Meta, target: &[u8]) -> Result<Ino> {
        let directory = meta.kind == FileType::Directory;
        if path.is_empty() {
            if !directory {
                return Err(self.error(path, Errno::EISDIR));
            }
            self.adopt(cx, path, self.top, meta)?;
            return Ok(self.top);
        }
        let (above, name) = split(path);
        let dir = self.dir(cx, above)?;
        let node = NewNode {
            kind: meta.kind,
            mode: match meta.kind {
                FileType::Symlink => 0o777,
                _ if self.keep.all => meta.mode,
                _ => meta.mode & 0o777,
            },
            uid: if self.keep.all { meta.uid } else { 0 },
            gid: if self.keep.all { meta.gid } else { 0 },
            rdev: meta.rdev,
            target: (meta.kind == FileType::Symlink).then_some(target),
            times: self.keep.all.then_some((meta.atime, meta.mtime)),
        };
        let made = match self.fs.create(cx, dir, name, &node) {
            Err(Errno::EEXIST) => {
                let old = self.fs.lookup(cx, dir, name).map_err(|e| self.error(path, e))?;
                if old.is_dir() && directory {
                    self.adopt(cx, path, old.ino, meta)?;
                    self.know(path, old.ino);
                    return Ok(old.ino);
                }
                if old.is_dir() {
                    bail!("{}; a directory is not replaced", self.error(path, Errno::EISDIR));
                }
                self.fs.unlink(cx, dir, name).map_err(|e| self.error(path, e))?;
                self.fs.create(cx, dir, name, &node)
            }
            other => other,
        };
        let ino = made.map_err(|errno| self.error(path, errno))?.ino;
        if directory {
            self.know(path, ino);
        }
        Ok(ino)
    }

    /// A directory that exists takes owner and mode with `-a`, as cp(1) does.
    fn adopt(&mut self, cx: &mut Cx, path: &[u8], ino: Ino, meta: &Meta) -> Result<()> {
        if !self.keep.all {
            return Ok(());
        }
        let (mode, uid, gid) = (Some(meta.mode), Some(meta.uid), Some(meta.gid));
        let set = SetAttr { mode, uid, gid, ..SetAttr::default() };
        self.fs.setattr(cx, ino, &set).map(drop).map_err(|errno| self.error(path, errno))
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

    fn data(&mut self, cx: &mut Cx, offset: u64, mut data: &[u8]) -> Result<()> {
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
        for (name, value) in &file.xattrs {
            self.set_xattr(cx, file.ino, &file.path, name, value)?;
        }
        let mut set = SetAttr::default();
        if file.end < file.meta.size {
            set.size = Some(file.meta.size);
        }
        // Writing moved the times that the node was made with.
        if self.keep.all && (file.end > 0 || set.size.is_some()) {
            (set.atime, set.mtime) = (Some(file.meta.atime), Some(file.meta.mtime));
        }
        if set != SetAttr::default() {
            let done = self.fs.setattr(cx, file.ino, &set);
            done.map_err(|errno| self.error(&file.path, errno))?;
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
                if old.ino == ino {
                    return Ok(());
                }
                self.fs.unlink(cx, dir, name).map_err(|e| self.error(path, e))?;
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
        for (ino, set) in std::mem::take(&mut self.late) {
            self.fs.setattr(cx, ino, &set).map_err(|errno| {
                anyhow!("{}: setting the times of inode {ino}: {errno}", self.shown_top)
            })?;
        }
        Ok(())
    }
}
