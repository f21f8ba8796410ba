//! A file system that notes in the log of a recording what it was asked to do.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Errno, Ino};
use block::Segment;
use rt::Cx;
use vfs::{
    Attr, FallocMode, FilePlace, FileSystem, FileType, NewNode, RenameFlags, SetAttr, XattrFlags,
};

use crate::calls::{Call, Name, Node, Place, Rights};
use crate::record::Recorder;

/// Passes everything on, and notes each change and each promise when it has returned. A change that
/// failed midway is noted as one of unknown content.
pub struct Watched {
    fs: Arc<dyn FileSystem>,
    recorder: Arc<Recorder>,
    /// Write calls so far, and which of them find no space.
    writes: AtomicU64,
    full: Vec<Range<u64>>,
}

impl Watched {
    /// Watches `fs`, whose device `recorder` records.
    pub fn new(fs: Arc<dyn FileSystem>, recorder: Arc<Recorder>) -> Watched {
        Watched { fs, recorder, writes: AtomicU64::new(0), full: Vec::new() }
    }

    /// Lets write calls of these numbers, from 0, fail with `ENOSPC`, as if the disk were full.
    #[must_use]
    pub fn full_at(mut self, writes: Range<u64>) -> Watched {
        self.full.push(writes);
        self
    }

    /// A write call is about to begin; returns when.
    fn begin_write(&self) -> Result<u64, Errno> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.full.iter().any(|full| full.contains(&number)) {
            true => Err(Errno::ENOSPC),
            false => Ok(self.came()),
        }
    }

    /// Notes `call` where the file system has done it; `came` is when it began.
    fn note<T>(
        &self,
        came: u64,
        done: Result<T, Errno>,
        call: impl FnOnce(&T) -> Call,
    ) -> Result<T, Errno> {
        if let Ok(done) = &done {
            self.recorder.call(came, &call(done), std::iter::empty());
        }
        done
    }

    /// Notes what a write of `parts` at `offset` did.
    fn wrote<'a>(
        &self,
        came: u64,
        ino: Ino,
        offset: u64,
        done: Result<u64, Errno>,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        match done {
            Ok(0) => {}
            Ok(len) => {
                let mut left = len as usize;
                let parts = parts.map(|part| {
                    let part = &part[..part.len().min(left)];
                    left -= part.len();
                    part
                });
                self.recorder.call(came, &Call::Write { ino: ino.0, offset, len }, parts);
            }
            Err(errno) if refused(errno) => {}
            Err(_) => {
                let len = parts.map(|part| part.len() as u64).sum();
                let unknown = Call::Unknown { ino: ino.0, offset, len };
                self.recorder.call(came, &unknown, std::iter::empty());
            }
        }
    }

    fn came(&self) -> u64 {
        self.recorder.len()
    }
}

/// Errors of calls that did nothing.
fn refused(errno: Errno) -> bool {
    [Errno::EINVAL, Errno::EOPNOTSUPP, Errno::EISDIR, Errno::ENODEV, Errno::EROFS].contains(&errno)
}

fn place(dir: Ino, name: &[u8]) -> Place {
    Place { dir: dir.0, name: Name(name.to_vec()) }
}

fn rights(attr: &Attr) -> Rights {
    Rights { mode: attr.mode, uid: attr.uid, gid: attr.gid }
}

fn created(attr: &Attr, at: Option<Place>, node: &NewNode) -> Call {
    let node = match (node.kind, node.target) {
        (FileType::Regular, _) => Node::File,
        (FileType::Directory, _) => Node::Directory,
        (FileType::Symlink, Some(target)) => Node::Symlink(Name(target.to_vec())),
        _ => Node::Special,
    };
    Call::Create { at, ino: attr.ino.0, node, rights: rights(attr) }
}

impl FileSystem for Watched {
    vfs::forward!(fs:
        name root walk_version ignores_case lookup getattr names_of readlink readdir open release
        read read_many read_direct read_at_host grow xfs_geometry set_flags extent_hints
        set_extent_hints unshare_range seek fiemap getxattr listxattr statfs lost note_lost commit
        shutdown_hard
    );

    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        let came = self.came();
        let attr = self.fs.setattr(cx, ino, set)?;
        if let Some(size) = set.size {
            let call = Call::Truncate { ino: ino.0, size };
            self.recorder.call(came, &call, std::iter::empty());
        }
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            let call = Call::Rights { ino: ino.0, rights: Some(rights(&attr)) };
            self.recorder.call(came, &call, std::iter::empty());
        }
        Ok(attr)
    }

    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno> {
        let came = self.came();
        let done = self.fs.create(cx, dir, name, node);
        self.note(came, done, |attr| created(attr, Some(place(dir, name)), node))
    }

    fn create_with(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let came = self.came();
        let done = self.fs.create_with(cx, dir, name, node, attributes);
        self.note(came, done, |attr| created(attr, Some(place(dir, name)), node))
    }

    fn create_unnamed(
        &self,
        cx: &mut Cx,
        dir: Ino,
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let came = self.came();
        let done = self.fs.create_unnamed(cx, dir, node, attributes);
        self.note(came, done, |attr| created(attr, None, node))
    }

    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let came = self.came();
        let done = self.fs.link(cx, ino, dir, name);
        self.note(came, done, |_| Call::Link { ino: ino.0, at: place(dir, name) })
    }

    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.unlink(cx, dir, name);
        self.note(came, done, |()| Call::Remove { at: place(dir, name), directory: false })
    }

    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.rmdir(cx, dir, name);
        self.note(came, done, |()| Call::Remove { at: place(dir, name), directory: true })
    }

    fn rename(
        &self,
        cx: &mut Cx,
        old_dir: Ino,
        old_name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.rename(cx, old_dir, old_name, new_dir, new_name, flags);
        self.note(came, done, |()| Call::Rename {
            from: place(old_dir, old_name),
            to: place(new_dir, new_name),
            exchange: flags.contains(RenameFlags::EXCHANGE),
            whiteout: flags.contains(RenameFlags::WHITEOUT),
        })
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let came = self.begin_write()?;
        let done = self.fs.write(cx, ino, offset, data);
        self.wrote(came, ino, offset, done.map(|len| len as u64), std::iter::once(data));
        done
    }

    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let came = self.begin_write()?;
        let done = self.fs.append(cx, ino, data);
        match done {
            Ok((at, len)) => self.wrote(came, ino, at, Ok(len as u64), std::iter::once(data)),
            Err(errno) if refused(errno) => {}
            // Where it began is not known: at the end, whatever that was.
            Err(_) => {
                let unknown = Call::Unknown { ino: ino.0, offset: 0, len: u64::MAX };
                self.recorder.call(came, &unknown, std::iter::empty());
            }
        }
        done
    }

    fn write_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let came = self.begin_write()?;
        let done = self.fs.write_direct(cx, ino, offset, data);
        self.wrote(came, ino, offset, done.map(|len| len as u64), std::iter::once(data));
        done
    }

    fn write_direct_pages(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        let came = self.begin_write()?;
        let done = self.fs.write_direct_pages(cx, ino, offset, pages);
        self.wrote(came, ino, offset, done, pages.iter().map(Segment::bytes));
        done
    }

    fn fsync(&self, cx: &mut Cx, ino: Ino, datasync: bool) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.fsync(cx, ino, datasync);
        if done.is_err_and(|errno| !refused(errno)) {
            self.recorder.call(came, &Call::Failed { ino: ino.0 }, std::iter::empty());
        }
        self.note(came, done, |()| Call::Fsync { ino: ino.0, data: datasync })
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.sync(cx);
        self.note(came, done, |()| Call::Sync)
    }

    fn fallocate(
        &self,
        cx: &mut Cx,
        ino: Ino,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.fallocate(cx, ino, mode, offset, len);
        let zeroed = match mode {
            FallocMode::Allocate { keep_size } => Some((false, !keep_size)),
            FallocMode::PunchHole => Some((true, false)),
            FallocMode::ZeroRange { keep_size } => Some((true, !keep_size)),
            FallocMode::CollapseRange | FallocMode::InsertRange => None,
        };
        let call = match (done, zeroed) {
            (Err(errno), _) if refused(errno) => return done,
            (Ok(()), Some((zeroed, grows))) => {
                Call::Allocate { ino: ino.0, offset, len, zeroed, grows }
            }
            (Err(_), Some(_)) => Call::Unknown { ino: ino.0, offset, len },
            // Everything behind the range moves.
            (_, None) => Call::Unknown { ino: ino.0, offset, len: u64::MAX },
        };
        self.recorder.call(came, &call, std::iter::empty());
        done
    }

    fn clone_range(
        &self,
        cx: &mut Cx,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.clone_range(cx, from, to, len);
        if !done.is_err_and(refused) {
            let len = if len == 0 { u64::MAX } else { len };
            let unknown = Call::Unknown { ino: to.0.0, offset: to.1, len };
            self.recorder.call(came, &unknown, std::iter::empty());
        }
        done
    }

    /// What is equal before is equal afterwards.
    fn dedupe_range(
        &self,
        cx: &mut Cx,
        from: FilePlace,
        to: FilePlace,
        len: u64,
    ) -> Result<bool, Errno> {
        self.fs.dedupe_range(cx, from, to, len)
    }

    fn exchange_range(
        &self,
        cx: &mut Cx,
        sides: [FilePlace; 2],
        len: Option<u64>,
    ) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.exchange_range(cx, sides, len);
        if !done.is_err_and(refused) {
            for FilePlace { ino, offset } in sides {
                let unknown = Call::Unknown { ino: ino.0, offset, len: len.unwrap_or(u64::MAX) };
                self.recorder.call(came, &unknown, std::iter::empty());
            }
        }
        done
    }

    fn setxattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.setxattr(cx, ino, name, value, flags);
        // An ACL changes the mode.
        self.note(came, done, |()| Call::Rights { ino: ino.0, rights: None })
    }

    fn removexattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.removexattr(cx, ino, name);
        self.note(came, done, |()| Call::Rights { ino: ino.0, rights: None })
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        let came = self.came();
        let done = self.fs.unmount(cx);
        self.note(came, done, |()| Call::Sync)
    }
}
