//! Copying from an image.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use base::{Errno, Ino};
use rt::Cx;
use vfs::path::Walk;
use vfs::walk::next_data;
use vfs::{Attr, FileRead, FileSystem, FileType};

use super::content::{self, Content};
use super::{DIRECT_UNIT, Event, FileId, Follow, Keep, Links, Meta, Outbox, Source, descend};
use crate::session::Session;
use crate::text;
use crate::walk::Reached;

/// Files up to this size are read together with their neighbours, bytes.
const SMALL_MAX: u64 = 64 << 10;
/// Most files that are read together.
const TOGETHER_MAX: usize = 64;
/// Bytes that are reason enough to read what there is.
const TOGETHER_BYTES: usize = 128 << 10;

/// A file or tree of a mounted image.
pub struct ImageSource {
    fs: Arc<dyn FileSystem>,
    root: Attr,
    /// For messages: the image and the path of the root in it.
    shown_root: String,
    keep: Keep,
    links: Links,
    /// Files come as inodes whose blocks are to be shared.
    sharing: bool,
    /// Keeps the inodes of several images apart.
    device: u64,
    name_len: usize,
    /// Path in the copy of what is read now.
    path: Vec<u8>,
    reached: Reached,
    levels: Vec<Level>,
}

/// A directory that is being read.
struct Level {
    dir: Ino,
    /// Length of its path.
    path: usize,
    children: std::vec::IntoIter<(Vec<u8>, Ino)>,
    /// Files that are read together, `bytes` of them.
    small: Vec<(Vec<u8>, Attr)>,
    bytes: usize,
}

impl ImageSource {
    /// Copies the tree at `path` of a mounted image, whose attributes are `root`, to `name` in the
    /// destination.
    pub fn new(
        session: &Session,
        path: &[u8],
        root: Attr,
        name: Vec<u8>,
        keep: Keep,
    ) -> ImageSource {
        let (fs, shown_root) = (session.fs.clone(), session.place(path));
        let links = Links::default();
        let (sharing, name_len, device) = (false, name.len(), 0);
        let (reached, levels) = (Reached::default(), Vec::new());
        let path = name;
        ImageSource {
            fs,
            root,
            shown_root,
            keep,
            links,
            sharing,
            device,
            name_len,
            path,
            reached,
            levels,
        }
    }

    /// Hands out inodes in the place of content, for a sink on the same file system.
    pub fn sharing(self) -> ImageSource {
        ImageSource { sharing: true, ..self }
    }

    /// The same, with a number that no other image of the command has.
    pub fn on_device(self, device: u64) -> ImageSource {
        ImageSource { device, ..self }
    }

    fn shown(&self) -> String {
        let below = &self.path[self.name_len..];
        let below = below.strip_prefix(b"/").unwrap_or(below);
        let root = self.shown_root.strip_suffix("/.").unwrap_or(&self.shown_root);
        match below.is_empty() {
            true => self.shown_root.clone(),
            false => format!("{}/{}", root.trim_end_matches('/'), text::escape(below)),
        }
    }

    fn fail<T>(&self, result: Result<T, Errno>) -> Result<T> {
        result.map_err(|errno| anyhow!("{}: {errno}", self.shown()))
    }

    /// Puts a node with its content into the outbox; a directory becomes the last level.
    fn node(&mut self, cx: &mut Cx, attr: &Attr, out: &mut Outbox) -> Result<()> {
        if attr.is_dir() {
            self.keep.check_directory(|| self.shown())?;
            self.may_enter(attr)?;
        }
        let linked = self.is_linked(attr) && !attr.is_dir();
        if linked
            && !self.keep.links_late()
            && let Some(first) = self.links.seen(self.device, attr.ino.0, &self.path)
        {
            let (path, to) = (out.store(&self.path), out.store(first));
            out.push(Event::Link { path, to });
            return out.breathe(cx);
        }
        if attr.kind != FileType::Regular && self.keep.as_regular(attr.kind) {
            let (shown, word) = (self.shown(), attr.kind.word());
            return Err(anyhow!("{shown}: is a {word}; give -r to copy it as one"));
        }
        let target = match attr.kind {
            FileType::Symlink => {
                let target = self.fs.readlink(cx, attr.ino);
                out.store(&self.fail(target)?)
            }
            _ => 0..0,
        };
        self.emit(cx, attr, linked, target, out)?;
        match attr.kind {
            FileType::Directory => {
                out.breathe(cx)?;
                self.enter(cx, attr.ino)?;
            }
            FileType::Regular if self.keep.names_only || self.is_kept(attr) => {
                out.push(Event::End);
            }
            FileType::Regular if self.sharing => {
                out.push(Event::Shared(attr.ino));
                out.push(Event::End);
            }
            FileType::Regular => {
                let sparse = attr.blocks.saturating_mul(512) < attr.size;
                let mut content = ImageContent { source: self, ino: attr.ino };
                content::carry(cx, &mut content, attr.size, sparse, out)?;
                out.push(Event::End);
            }
            _ => {}
        }
        out.breathe(cx)
    }

    /// Goes into each directory once; through symlinks as often as they lead there, but never into
    /// one that it is in.
    fn may_enter(&mut self, attr: &Attr) -> Result<()> {
        if self.keep.follow == Follow::Always {
            let circle = self.levels.iter().any(|level| level.dir == attr.ino);
            return match circle {
                true => Err(anyhow!(
                    "{}: directory inode {} is above it, and is not copied into itself",
                    self.shown(),
                    attr.ino
                )),
                false => Ok(()),
            };
        }
        let mut reached = std::mem::take(&mut self.reached);
        let entered = reached.enter(attr.ino, || self.shown());
        self.reached = reached;
        entered.map_err(|message| anyhow!(message))
    }

    /// Whether further names of a node may come.
    fn is_linked(&self, attr: &Attr) -> bool {
        self.keep.links && (attr.nlink > 1 || self.keep.follow != Follow::Never)
    }

    /// What a name of a directory stands for: with `-L` what a symlink leads to.
    fn look(&self, cx: &mut Cx, dir: Ino, name: &[u8], ino: Ino) -> Result<Attr> {
        let attr = self.fail(self.fs.getattr(cx, ino))?;
        if attr.kind != FileType::Symlink || self.keep.follow != Follow::Always {
            return Ok(attr);
        }
        let walk = Walk::new(cx, &*self.fs, self.fs.root(), dir);
        let found = walk.and_then(|mut walk| walk.find(cx, name, true));
        self.fail(found.and_then(|found| found.attr.ok_or(Errno::ENOENT)))
    }

    fn emit(
        &mut self,
        cx: &mut Cx,
        attr: &Attr,
        linked: bool,
        target: Range<usize>,
        out: &mut Outbox,
    ) -> Result<()> {
        let mut names = Vec::new();
        if self.keep.has_attributes() {
            let listed = self.fs.listxattr(cx, attr.ino);
            names = self.fail(listed)?;
            names.retain(|name| self.keep.has_attribute(name));
        }
        let meta = Meta {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            atime: attr.atime,
            mtime: attr.mtime,
            linked,
            id: (linked && self.keep.links_late())
                .then_some(FileId { device: self.device, ino: attr.ino.0 }),
            kept: self.is_kept(attr),
        };
        let path = out.store(&self.path);
        out.push(Event::Node { path, meta, target, xattrs: names.len() as u32 });
        for name in names {
            let value = self.fs.getxattr(cx, attr.ino, &name);
            let value = self.fail(value).with_context(|| text::escape(&name))?;
            let (name, value) = (out.store(&name), out.store(&value));
            out.push(Event::Xattr { name, value });
        }
        Ok(())
    }

    fn enter(&mut self, cx: &mut Cx, dir: Ino) -> Result<()> {
        let mut children: Vec<(Vec<u8>, Ino)> = Vec::new();
        let listed = self.fs.readdir(cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push((entry.name.to_vec(), entry.ino));
            }
            true
        });
        self.fail(listed)?;
        // Inodes lie on the device in the order of their numbers.
        match self.keep.sorted {
            true => children.sort(),
            false => children.sort_by_key(|(_, ino)| *ino),
        }
        let (children, path) = (children.into_iter(), self.path.len());
        self.levels.push(Level { dir, path, children, small: Vec::new(), bytes: 0 });
        Ok(())
    }

    /// Reads everything below the directories that were entered, as deep as they are.
    fn walk(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path);
            let (dir, next) = (level.dir, level.children.next());
            if next.is_none() || level.small.len() == TOGETHER_MAX || level.bytes > TOGETHER_BYTES {
                self.waiting(cx, out)?;
            }
            let Some((name, ino)) = next else {
                self.levels.pop();
                continue;
            };
            descend(&mut self.path, &name);
            if self.keep.is_excluded(&self.path, self.name_len) {
                continue;
            }
            match self.look(cx, dir, &name, ino) {
                Ok(attr) if self.is_small(&attr) => {
                    let level = self.levels.last_mut().expect("the directory of this name");
                    level.bytes += attr.size as usize;
                    level.small.push((name, attr));
                }
                Ok(attr) => {
                    if self.keep.sorted {
                        self.waiting(cx, out)?;
                        self.path.truncate(self.levels.last().map_or(0, |level| level.path));
                        descend(&mut self.path, &name);
                    }
                    let done = self.node(cx, &attr, out);
                    out.go_on(done)?;
                }
                Err(error) => out.problem(&error),
            }
        }
        Ok(())
    }

    /// Puts the small files of the last level that wait for more into the outbox.
    fn waiting(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let (small, bytes) = (std::mem::take(&mut level.small), std::mem::take(&mut level.bytes));
        self.path.truncate(level.path);
        self.small_files(cx, &small, bytes, out)
    }

    /// Whether the content of the file at the path stays where the copy goes.
    fn is_kept(&self, attr: &Attr) -> bool {
        attr.kind == FileType::Regular && self.keep.is_kept(&self.path, self.name_len)
    }

    /// Whether a file is read together with its neighbours.
    fn is_small(&self, attr: &Attr) -> bool {
        let whole = attr.blocks.saturating_mul(512) >= attr.size;
        let linked = self.is_linked(attr);
        let small = attr.size <= SMALL_MAX && whole && !linked;
        let content = !self.keep.names_only && !self.is_kept(attr);
        attr.kind == FileType::Regular && small && !self.sharing && content
    }

    /// Puts small files of one directory into the outbox, `bytes` all together.
    fn small_files(
        &mut self,
        cx: &mut Cx,
        files: &[(Vec<u8>, Attr)],
        bytes: usize,
        out: &mut Outbox,
    ) -> Result<()> {
        let fs = self.fs.clone();
        let mut answers = Vec::with_capacity(files.len());
        let content = out.store_with(bytes, |mut memory| {
            let mut reads = Vec::with_capacity(files.len());
            for (_, attr) in files {
                let (buf, rest) = memory.split_at_mut(attr.size as usize);
                reads.push(FileRead { ino: attr.ino, offset: 0, buf, done: Ok(0) });
                memory = rest;
            }
            fs.read_many(cx, &mut reads);
            answers.extend(reads.iter().map(|read| read.done));
            Ok(bytes)
        })?;
        let mut start = content.start;
        for ((name, attr), answer) in files.iter().zip(answers) {
            let len = descend(&mut self.path, name);
            let emitted = self.emit(cx, attr, false, 0..0, out).and_then(|()| self.fail(answer));
            match emitted {
                Ok(count) => {
                    if count > 0 {
                        out.push(Event::Data { offset: 0, data: start..start + count });
                    }
                    out.push(Event::End);
                }
                Err(error) => out.problem(&error),
            }
            self.path.truncate(len);
            start += attr.size as usize;
        }
        out.breathe(cx)
    }
}

/// A file of the image that is read by itself.
struct ImageContent<'a> {
    source: &'a ImageSource,
    ino: Ino,
}

impl Content for ImageContent<'_> {
    fn next_data(&mut self, cx: &mut Cx, offset: u64) -> Result<Option<Range<u64>>> {
        let data = next_data(cx, &*self.source.fs, self.ino, offset);
        self.source.fail(data)
    }

    fn read(&mut self, cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let whole = buf.len() - buf.len() % DIRECT_UNIT;
        let aligned = offset.is_multiple_of(DIRECT_UNIT as u64) && whole > 0;
        let fs = &self.source.fs;
        let read = match self.source.keep.direct && aligned {
            true => fs.read_direct(cx, self.ino, offset, &mut buf[..whole]),
            false => fs.read(cx, self.ino, offset, buf),
        };
        read.map_err(|errno| anyhow!("{} at {offset}: {errno}", self.source.shown()))
    }
}

impl Source for ImageSource {
    fn links(&mut self) -> Option<&mut Links> {
        Some(&mut self.links)
    }

    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        let root = self.root.clone();
        if self.keep.is_root_excluded(&self.path) {
            return Ok(());
        }
        if root.is_dir() && self.keep.follow != Follow::Always {
            self.reached = Reached::above(cx, &*self.fs, root.ino);
        }
        let done = self.node(cx, &root, out);
        out.go_on(done)?;
        self.walk(cx, out)
    }
}
