//! Copying from an image.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileSystem, FileType, SeekWhence};

use super::{Event, Keep, Links, Meta, Outbox, PIECE, Source, descend};
use crate::text;

/// A file or tree of a mounted image.
pub struct ImageSource {
    fs: Arc<dyn FileSystem>,
    root: Attr,
    /// For messages: the image and the path of the root in it.
    shown_root: String,
    keep: Keep,
    links: Links,
    name_len: usize,
    /// Path in the copy of what is read now.
    path: Vec<u8>,
}

impl ImageSource {
    /// Copies the tree at `root` to `name` in the destination.
    pub fn new(
        fs: Arc<dyn FileSystem>,
        root: Attr,
        shown_root: String,
        name: Vec<u8>,
        keep: Keep,
    ) -> ImageSource {
        let links = Links::default();
        ImageSource { fs, root, shown_root, keep, links, name_len: name.len(), path: name }
    }

    fn shown(&self) -> String {
        let below = &self.path[self.name_len..];
        format!("{}{}", self.shown_root.trim_end_matches('/'), text::escape(below))
    }

    fn fail<T>(&self, result: Result<T, Errno>) -> Result<T> {
        result.map_err(|errno| anyhow!("{}: {errno}", self.shown()))
    }

    fn node(&mut self, cx: &mut Cx, attr: &Attr, out: &mut Outbox) -> Result<()> {
        let linked = self.keep.all && attr.nlink > 1 && !attr.is_dir();
        if linked && let Some(first) = self.links.seen(0, attr.ino.0, &self.path) {
            let (path, to) = (out.store(&self.path), out.store(first));
            out.push(Event::Link { path, to });
            return out.breathe(cx);
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
                if !self.keep.recursive {
                    bail!("{}: is a directory; give -r or -a to copy it", self.shown());
                }
                self.walk(cx, attr.ino, out)?;
            }
            FileType::Regular => {
                self.content(cx, attr, out)?;
                out.push(Event::End);
            }
            _ => {}
        }
        out.breathe(cx)
    }

    fn emit(
        &mut self,
        cx: &mut Cx,
        attr: &Attr,
        linked: bool,
        target: std::ops::Range<usize>,
        out: &mut Outbox,
    ) -> Result<()> {
        let mut names = Vec::new();
        if self.keep.all {
            let listed = self.fs.listxattr(cx, attr.ino);
            names = self.fail(listed)?;
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

    fn walk(&mut self, cx: &mut Cx, dir: Ino, out: &mut Outbox) -> Result<()> {
        let mut children: Vec<(Vec<u8>, Ino)> = Vec::new();
        let listed = self.fs.readdir(cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push((entry.name.to_vec(), entry.ino));
            }
            true
        });
        self.fail(listed)?;
        // Inodes lie on the device in the order of their numbers.
        children.sort_by_key(|(_, ino)| *ino);
        for (name, ino) in children {
            let len = descend(&mut self.path, &name);
            let attr = self.fs.getattr(cx, ino);
            let attr = self.fail(attr)?;
            self.node(cx, &attr, out)?;
            self.path.truncate(len);
        }
        Ok(())
    }

    fn content(&mut self, cx: &mut Cx, attr: &Attr, out: &mut Outbox) -> Result<()> {
        let sparse = attr.blocks.saturating_mul(512) < attr.size;
        let mut offset = 0;
        while offset < attr.size {
            let mut end = attr.size;
            if sparse {
                match self.fs.seek(cx, attr.ino, offset, SeekWhence::Data) {
                    Ok(data) => offset = data,
                    Err(Errno::ENXIO) => break,
                    Err(errno) => return self.fail(Err(errno)),
                }
                let hole = self.fs.seek(cx, attr.ino, offset, SeekWhence::Hole);
                end = self.fail(hole)?.min(attr.size);
            }
            while offset < end {
                let want = (end - offset).min(PIECE as u64) as usize;
                let (fs, ino) = (&self.fs, attr.ino);
                let data = out.store_with(want, |buf| Ok(fs.read(cx, ino, offset, buf)?));
                let data = data.with_context(|| format!("{} at {offset}", self.shown()))?;
                if data.is_empty() {
                    return Ok(());
                }
                let len = data.len() as u64;
                out.push(Event::Data { offset, data });
                offset += len;
                out.breathe(cx)?;
            }
        }
        Ok(())
    }
}

impl Source for ImageSource {
    fn run(&mut self, cx: &mut Cx, out: &mut Outbox) -> Result<()> {
        let root = self.root.clone();
        self.node(cx, &root, out)
    }
}
