//! Procedures on names.

use base::{Errno, Timespec};
use rt::Cx;
use vfs::permission::{self, Access};
use vfs::{Attr, FileType, NewNode, RenameFlags, SetAttr, check_name};

use super::Server;
use crate::proto::{Body, Call, CreateHow, Handle, Reply, Sattr, Status};

type Done = Result<(), Status>;

impl Server {
    /// The directory that a handle names.
    fn directory(&self, cx: &mut Cx, handle: &Handle) -> Result<Attr, Status> {
        let dir = self.object(cx, handle)?;
        if dir.is_dir() { Ok(dir) } else { Err(Status::of(Errno::ENOTDIR)) }
    }

    pub(super) fn lookup(
        &self,
        cx: &mut Cx,
        dir: &Handle,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Done {
        let dir = self.object(cx, dir)?;
        reply.attr = Some(self.fattr(&dir));
        if !dir.is_dir() {
            return Err(Status::of(Errno::ENOTDIR));
        }
        permission::access(cx, &*self.fs, &dir, Access::EXEC).map_err(Status::of)?;
        check_name(name).map_err(Status::of)?;
        let attr = self.fs.lookup(cx, dir.ino, name).map_err(Status::of)?;
        self.found(&attr, reply);
        Ok(())
    }

    fn found(&self, attr: &Attr, reply: &mut Reply<'_>) {
        let (handle, attr) = (Some(self.handle(attr)), Some(self.fattr(attr)));
        reply.body = Body::Object { handle, attr };
    }

    /// CREATE, MKDIR, SYMLINK, MKNOD.
    pub(super) fn make(&self, cx: &mut Cx, call: &Call<'_>, reply: &mut Reply<'_>) -> Done {
        let (Call::Create { dir, name, .. }
        | Call::Mkdir { dir, name, .. }
        | Call::Symlink { dir, name, .. }
        | Call::Mknod { dir, name, .. }) = call
        else {
            return Err(Status::SERVERFAULT);
        };
        let dir = self.directory(cx, dir)?;
        let made = self.make_in(cx, call, &dir, name);
        reply.wcc = self.wcc(cx, &dir);
        self.found(&made?, reply);
        Ok(())
    }

    fn make_in(
        &self,
        cx: &mut Cx,
        call: &Call<'_>,
        dir: &Attr,
        name: &[u8],
    ) -> Result<Attr, Status> {
        self.must_write()?;
        check_name(name).map_err(Status::of)?;
        match call {
            Call::Create { how: CreateHow::Unchecked(set), .. } => {
                self.create_file(cx, dir, name, set, false)
            }
            Call::Create { how: CreateHow::Guarded(set), .. } => {
                self.create_file(cx, dir, name, set, true)
            }
            Call::Create { how: CreateHow::Exclusive(verf), .. } => {
                self.create_exclusive(cx, dir, name, *verf)
            }
            Call::Mkdir { set, .. } => {
                let node = NewNode::new(FileType::Directory, mode_of(set, 0o755));
                self.create_node(cx, dir, name, node, set)
            }
            Call::Symlink { set, target, .. } => {
                self.create_node(cx, dir, name, NewNode::symlink(target), set)
            }
            Call::Mknod { kind, set, rdev, .. } => {
                let special = kind.is_device() || matches!(kind, FileType::Fifo | FileType::Socket);
                if !special {
                    return Err(Status::BADTYPE);
                }
                if kind.is_device() && !cx.cred().is_root() {
                    return Err(Status::of(Errno::EPERM));
                }
                let node = NewNode { rdev: *rdev, ..NewNode::new(*kind, mode_of(set, 0o644)) };
                self.create_node(cx, dir, name, node, set)
            }
            _ => Err(Status::SERVERFAULT),
        }
    }

    fn create_file(
        &self,
        cx: &mut Cx,
        dir: &Attr,
        name: &[u8],
        set: &Sattr,
        guarded: bool,
    ) -> Result<Attr, Status> {
        permission::access(cx, &*self.fs, dir, Access::EXEC).map_err(Status::of)?;
        match self.fs.lookup(cx, dir.ino, name) {
            Err(Errno::ENOENT) => {
                let node = NewNode::new(FileType::Regular, mode_of(set, 0o644));
                self.create_node(cx, dir, name, node, set)
            }
            Err(errno) => Err(Status::of(errno)),
            Ok(_) if guarded => Err(Status::of(Errno::EEXIST)),
            Ok(attr) if attr.is_dir() => Err(Status::of(Errno::EISDIR)),
            Ok(attr) if attr.kind != FileType::Regular => Err(Status::of(Errno::EEXIST)),
            // Of an existing file, only the size is set: that is how O_TRUNC comes.
            Ok(attr) => match set.size {
                None => Ok(attr),
                size => {
                    self.may_change(cx, &attr, Access::WRITE)?;
                    let set = SetAttr { size, ..SetAttr::default() };
                    self.fs.setattr(cx, attr.ino, &set).map_err(Status::of)
                }
            },
        }
    }

    /// The verifier is kept in the times until the client sets them, as RFC 1813 proposes.
    fn create_exclusive(
        &self,
        cx: &mut Cx,
        dir: &Attr,
        name: &[u8],
        verf: [u8; 8],
    ) -> Result<Attr, Status> {
        let word = |part: &[u8]| {
            let bytes: [u8; 4] = part.try_into().expect("half of eight bytes");
            // 31 bits: what every format's times can hold.
            Timespec::from_secs(i64::from(u32::from_be_bytes(bytes) >> 1))
        };
        let times = (word(&verf[..4]), word(&verf[4..]));
        match self.fs.lookup(cx, dir.ino, name) {
            Err(Errno::ENOENT) => {
                let times = Some(times);
                let node = NewNode { times, ..NewNode::new(FileType::Regular, 0o600) };
                self.create_node(cx, dir, name, node, &Sattr::default())
            }
            Err(errno) => Err(Status::of(errno)),
            Ok(attr) => {
                let secs = (attr.atime.sec, attr.mtime.sec) == (times.0.sec, times.1.sec);
                let same = attr.kind == FileType::Regular && attr.size == 0 && secs;
                if same { Ok(attr) } else { Err(Status::of(Errno::EEXIST)) }
            }
        }
    }

    fn create_node(
        &self,
        cx: &mut Cx,
        dir: &Attr,
        name: &[u8],
        node: NewNode<'_>,
        set: &Sattr,
    ) -> Result<Attr, Status> {
        permission::access(cx, &*self.fs, dir, Access::WRITE | Access::EXEC).map_err(Status::of)?;
        let attr = vfs::create_in(cx, &*self.fs, dir, name, node).map_err(Status::of)?;
        let wanted = Sattr { mode: None, ..set.clone() }.resolve(cx.realtime());
        if wanted == SetAttr::default() {
            return Ok(attr);
        }
        let wanted = permission::may_set(cx.cred(), &attr, &wanted).map_err(Status::of)?;
        self.fs.setattr(cx, attr.ino, &wanted).map_err(Status::of)
    }

    pub(super) fn remove(
        &self,
        cx: &mut Cx,
        dir: &Handle,
        name: &[u8],
        directory: bool,
        reply: &mut Reply<'_>,
    ) -> Done {
        let dir = self.directory(cx, dir)?;
        let done = self.remove_in(cx, &dir, name, directory);
        reply.wcc = self.wcc(cx, &dir);
        done
    }

    fn remove_in(&self, cx: &mut Cx, dir: &Attr, name: &[u8], directory: bool) -> Done {
        self.must_write()?;
        check_name(name).map_err(Status::of)?;
        permission::access(cx, &*self.fs, dir, Access::EXEC).map_err(Status::of)?;
        let victim = self.fs.lookup(cx, dir.ino, name).map_err(Status::of)?;
        permission::may_delete(cx, &*self.fs, dir, &victim).map_err(Status::of)?;
        match directory {
            true => self.fs.rmdir(cx, dir.ino, name),
            false => self.fs.unlink(cx, dir.ino, name),
        }
        .map_err(Status::of)
    }

    pub(super) fn rename(
        &self,
        cx: &mut Cx,
        (from, old): (&Handle, &[u8]),
        (to, new): (&Handle, &[u8]),
        reply: &mut Reply<'_>,
    ) -> Done {
        let from = self.directory(cx, from)?;
        let to = self.directory(cx, to)?;
        let done = self.rename_in(cx, (&from, old), (&to, new));
        reply.wcc = self.wcc(cx, &from);
        reply.wcc_to = self.wcc(cx, &to);
        done
    }

    fn rename_in(
        &self,
        cx: &mut Cx,
        (from, old): (&Attr, &[u8]),
        (to, new): (&Attr, &[u8]),
    ) -> Done {
        self.must_write()?;
        check_name(old).and(check_name(new)).map_err(Status::of)?;
        let fs = &*self.fs;
        permission::access(cx, fs, from, Access::EXEC).map_err(Status::of)?;
        let source = fs.lookup(cx, from.ino, old).map_err(Status::of)?;
        permission::may_delete(cx, fs, from, &source).map_err(Status::of)?;
        match fs.lookup(cx, to.ino, new) {
            Ok(target) => permission::may_delete(cx, fs, to, &target),
            Err(_) => permission::access(cx, fs, to, Access::WRITE | Access::EXEC),
        }
        .map_err(Status::of)?;
        if source.is_dir() && from.ino != to.ino {
            permission::access(cx, fs, &source, Access::WRITE).map_err(Status::of)?;
        }
        fs.rename(cx, from.ino, old, to.ino, new, RenameFlags::empty()).map_err(Status::of)
    }

    pub(super) fn link(
        &self,
        cx: &mut Cx,
        handle: &Handle,
        dir: &Handle,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Done {
        let (attr, dir) = (self.object(cx, handle)?, self.directory(cx, dir)?);
        let done = self.link_in(cx, &attr, &dir, name);
        reply.attr = self.fs.getattr(cx, attr.ino).ok().map(|attr| self.fattr(&attr));
        reply.wcc = self.wcc(cx, &dir);
        done
    }

    fn link_in(&self, cx: &mut Cx, attr: &Attr, dir: &Attr, name: &[u8]) -> Done {
        self.must_write()?;
        check_name(name).map_err(Status::of)?;
        permission::access(cx, &*self.fs, dir, Access::WRITE | Access::EXEC).map_err(Status::of)?;
        if attr.flags & (permission::IMMUTABLE | permission::APPEND_ONLY) != 0 {
            return Err(Status::of(Errno::EPERM));
        }
        self.fs.link(cx, attr.ino, dir.ino, name).map(drop).map_err(Status::of)
    }
}

fn mode_of(set: &Sattr, otherwise: u16) -> u16 {
    set.mode.map_or(otherwise, |mode| (mode & 0o7777) as u16)
}
