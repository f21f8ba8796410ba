//! The requests about names and attributes, each answered from [`vfs::FileSystem`]; those about
//! content are in `data`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base::{Errno, Timespec};
use fuser::*;
use rt::Cx;
use vfs::{Attr, FileType as Kind, NewNode, SetAttr, XattrFlags};

use crate::adapter::Adapter;
use crate::convert::{self, errno, generation, timespec};
use crate::listing::{self, Entry};
use crate::seek::Seek;

/// Entries that are collected at once while a listing is answered.
const LISTED_AT_ONCE: usize = 24;
/// Bytes of one read or write.
const MAX_WRITE: u32 = 1 << 20;
/// `FS_IOC_GETFLAGS`: what lsattr(1) asks.
const GETFLAGS: u32 = 0x8008_6601;

macro_rules! answer {
    ($reply:ident, $result:expr, $ok:expr) => {
        match $result {
            Ok(value) => $ok(value),
            Err(error) => $reply.error(error),
        }
    };
}

fn moment(cx: &Cx, time: TimeOrNow) -> Timespec {
    match time {
        TimeOrNow::Now => cx.realtime(),
        TimeOrNow::SpecificTime(time) => timespec(time),
    }
}

impl Adapter {
    fn entry(&self, reply: ReplyEntry, result: Result<Attr, fuser::Errno>) {
        answer!(reply, result, |attr: Attr| {
            reply.entry(&self.keep, &self.tell(&attr), generation(&attr));
        });
    }

    /// Lists a directory until `add` says that the answer is full.
    fn list(
        &self,
        cx: &mut Cx,
        dir: INodeNo,
        mut cookie: u64,
        mut add: impl FnMut(&mut Cx, &Entry) -> bool,
    ) -> Result<(), Errno> {
        loop {
            let entries = listing::collect(cx, &*self.fs, self.ino(dir), cookie, LISTED_AT_ONCE)?;
            for entry in &entries {
                if add(cx, entry) {
                    return Ok(());
                }
            }
            match entries.last() {
                Some(last) if entries.len() == LISTED_AT_ONCE => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    /// What is to be set, with the set-id bits that go: chown and truncate drop them, as the kernel
    /// leaves to us.
    fn to_set(&self, cx: &mut Cx, node: INodeNo, mut set: SetAttr) -> Result<SetAttr, Errno> {
        let truncates = set.size.is_some() && cx.cred().uid != 0;
        // chown(2) that leaves both ids as they are comes as a change of ctime alone.
        let nothing = SetAttr { ctime: set.ctime, ..SetAttr::default() } == set;
        let owns = set.uid.is_some() || set.gid.is_some() || nothing;
        if (owns || truncates) && set.mode.is_none() {
            let attr = self.fs.getattr(cx, self.ino(node))?;
            let mode = vfs::permission::without_set_id(attr.mode);
            if !attr.is_dir() && mode != attr.mode {
                set.mode = Some(mode);
            }
        }
        Ok(set)
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        wanted |= match self.shared {
            true => InitFlags::FUSE_AUTO_INVAL_DATA,
            false => InitFlags::FUSE_NO_OPEN_SUPPORT,
        };
        if self.checked && !self.shared {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        let offered = config.capabilities();
        let needed = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if !offered.contains(needed) {
            return Err(io::Error::other("the kernel's FUSE is older than 5.1"));
        }
        let _all_offered = config.add_capabilities(wanted & offered);
        let _granted = config.set_max_write(MAX_WRITE);
        let _granted = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result =
            self.serve(req, |cx| match self.fs.lookup(cx, self.ino(parent), name.as_bytes()) {
                Ok(attr) => Ok(Some(attr)),
                Err(Errno::ENOENT) => Ok(None),
                Err(error) => Err(error),
            });
        match result {
            Ok(Some(attr)) => self.entry(reply, Ok(attr)),
            Ok(None) if self.shared => reply.error(errno(Errno::ENOENT)),
            // Node 0: there is no such name, and that may be kept too.
            Ok(None) => {
                let none = FileAttr { ino: INodeNo(0), ..convert::file_attr(&listing::nothing()) };
                reply.entry(&self.keep, &none, Generation(0));
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, req: &Request, ino: INodeNo, nlookup: u64) {
        Adapter::forget(self, req, ino, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let result = self.serve(req, |cx| self.fs.getattr(cx, self.ino(ino)));
        answer!(reply, result, |attr| reply.attr(&self.keep, &convert::file_attr(&attr)));
    }

    #[allow(clippy::too_many_arguments)]
    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let result = self.serve_growing(req, |cx| {
            let set = SetAttr {
                mode: mode.map(|mode| mode as u16 & 0o7777),
                uid,
                gid,
                size,
                atime: atime.map(|time| moment(cx, time)),
                mtime: mtime.map(|time| moment(cx, time)),
                ctime: ctime.map(timespec),
            };
            let set = self.to_set(cx, ino, set)?;
            // The kernel tells the ctime of a file that it has just removed.
            let times = SetAttr { ctime: set.ctime, ..SetAttr::default() } == set;
            if times && self.nodes.is_pinned(self.ino(ino)) {
                return self.fs.getattr(cx, self.ino(ino));
            }
            self.fs.setattr(cx, self.ino(ino), &set)
        });
        answer!(reply, result, |attr| reply.attr(&self.keep, &convert::file_attr(&attr)));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let result = self.serve(req, |cx| self.fs.readlink(cx, self.ino(ino)));
        answer!(reply, result, |target: Vec<u8>| reply.data(&target));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let result = self.serve_growing(req, |cx| {
            let kind = Kind::from_mode(mode).ok_or(Errno::EINVAL)?;
            let new = NewNode::new(kind, mode as u16 & 0o7777);
            let rdev = if kind.is_device() { rdev.into() } else { 0 };
            self.create(cx, parent, name.as_bytes(), NewNode { rdev, ..new }, umask)
        });
        self.entry(reply, result);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = NewNode::new(Kind::Directory, mode as u16 & 0o7777);
        let result = self
            .serve_growing(req, |cx| self.create(cx, parent, name.as_bytes(), new.clone(), umask));
        self.entry(reply, result);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = NewNode::symlink(target.as_os_str().as_bytes());
        let result = self
            .serve_growing(req, |cx| self.create(cx, parent, link_name.as_bytes(), new.clone(), 0));
        self.entry(reply, result);
    }

    /// The kernel makes a node and opens it by itself from now on, but on a shared file system: a
    /// file that was created so has no RELEASE.
    #[allow(clippy::too_many_arguments)]
    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if !self.shared {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let new = NewNode::new(Kind::Regular, mode as u16 & 0o7777);
        let result = self.serve_growing(req, |cx| {
            let attr = self.create(cx, parent, name.as_bytes(), new.clone(), umask)?;
            self.fs.open(cx, attr.ino)?;
            Ok(attr)
        });
        answer!(reply, result, |attr: Attr| {
            let told = self.tell(&attr);
            let flags = FopenFlags::FOPEN_KEEP_CACHE;
            reply.created(&self.keep, &told, generation(&attr), FileHandle(0), flags);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (self.ino(parent), name.as_bytes());
        let result = self.serve(req, |cx| {
            let victim = self.fs.lookup(cx, dir, name)?.ino;
            self.remove(cx, Some(victim), |cx| self.fs.unlink(cx, dir, name))
        });
        answer!(reply, result, |()| reply.ok());
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (self.ino(parent), name.as_bytes());
        let result = self.serve(req, |cx| {
            let victim = self.fs.lookup(cx, dir, name)?.ino;
            self.remove(cx, Some(victim), |cx| self.fs.rmdir(cx, dir, name))
        });
        answer!(reply, result, |()| reply.ok());
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (self.ino(parent), self.ino(newparent));
        let (name, newname) = (name.as_bytes(), newname.as_bytes());
        let result = self.serve_growing(req, |cx| {
            let flags = vfs::RenameFlags::from_bits(flags.bits()).ok_or(Errno::EINVAL)?;
            let victim = match self.fs.lookup(cx, to, newname) {
                Ok(attr) => Some(attr.ino).filter(|_| flags.is_empty()),
                Err(Errno::ENOENT) => None,
                Err(error) => return Err(error),
            };
            self.remove(cx, victim, |cx| self.fs.rename(cx, from, name, to, newname, flags))
        });
        answer!(reply, result, |()| reply.ok());
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, dir) = (self.ino(ino), self.ino(newparent));
        let result = self.serve_growing(req, |cx| self.fs.link(cx, ino, dir, newname.as_bytes()));
        self.entry(reply, result);
    }

    /// The kernel opens by itself from now on, but on a shared file system.
    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if !self.shared {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let result = self.serve(req, |cx| self.fs.open(cx, self.ino(ino)));
        // Without FOPEN_KEEP_CACHE: what another has written meanwhile is read.
        answer!(reply, result, |()| reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let result = self.serve(req, |cx| self.fs.release(cx, self.ino(ino)));
        answer!(reply, result, |()| reply.ok());
    }

    /// The kernel opens directories by itself from now on.
    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.serve(req, |cx| {
            self.list(cx, ino, offset, |cx, entry| {
                let known = entry.kind.or_else(|| Some(self.fs.getattr(cx, entry.ino).ok()?.kind));
                let kind = convert::kind(known.unwrap_or(Kind::Regular));
                reply.add(INodeNo(entry.ino.0), entry.cookie, kind, OsStr::from_bytes(&entry.name))
            })
        });
        answer!(reply, result, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let result = self.serve(req, |cx| {
            self.list(cx, ino, offset, |cx, entry| {
                let (attr, ttl) = match self.fs.getattr(cx, entry.ino) {
                    Ok(attr) => (attr, self.keep),
                    Err(_) => (entry.bare(), Duration::ZERO), // Whoever looks closer is told.
                };
                let name = OsStr::from_bytes(&entry.name);
                let (shown, told) = match entry.is_dot() {
                    true => (convert::file_attr(&attr), false),
                    false => (self.tell(&attr), true),
                };
                let full =
                    reply.add(shown.ino, entry.cookie, name, &ttl, &shown, generation(&attr));
                if full && told {
                    self.nodes.forgotten(attr.ino, 1);
                }
                full
            })
        });
        answer!(reply, result, |()| reply.ok());
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let result = self.serve(req, |cx| self.fs.statfs(cx));
        answer!(reply, result, |s: vfs::StatFs| {
            let (size, available) = (s.block_size, s.blocks_available);
            let (files, free) = (s.inodes, s.inodes_free);
            reply.statfs(s.blocks, s.blocks_free, available, files, free, size, s.name_max, size);
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let result = self.serve_growing(req, |cx| {
            let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::EINVAL)?;
            self.fs.setxattr(cx, self.ino(ino), name.as_bytes(), value, flags)
        });
        self.acl_changed(ino, name);
        answer!(reply, result, |()| reply.ok());
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let result = self.serve(req, |cx| self.fs.getxattr(cx, self.ino(ino), name.as_bytes()));
        answer!(reply, result, |value: Vec<u8>| give(reply, &value, size));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let result = self.serve(req, |cx| {
            let names = self.fs.listxattr(cx, self.ino(ino))?;
            let root = cx.cred().is_root() || self.fakeroot;
            let shown = names.iter().filter(|name| root || !name.starts_with(b"trusted."));
            Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect::<Vec<u8>>())
        });
        answer!(reply, result, |names: Vec<u8>| give(reply, &names, size));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.serve(req, |cx| self.fs.removexattr(cx, self.ino(ino), name.as_bytes()));
        self.acl_changed(ino, name);
        answer!(reply, result, |()| reply.ok());
    }

    /// Asked only where the kernel does not check permissions: then everything is allowed, and it
    /// does not ask again.
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        _in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        if cmd != GETFLAGS {
            return reply.error(fuser::Errno::ENOTTY);
        }
        let result = self.serve(req, |cx| self.fs.getattr(cx, self.ino(ino)));
        answer!(reply, result, |attr: Attr| {
            let flags = u64::from(attr.flags).to_le_bytes();
            reply.ioctl(0, &flags[..(out_size as usize).min(flags.len())]);
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read_file(req, ino, offset, size as usize, flags, reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = self
            .serve_growing(req, |cx| self.write_file(cx, ino, offset, data, write_flags, flags));
        answer!(reply, result, |count: usize| reply.written(count as u32));
    }

    /// close(2): on a shared file system others see from here on what was written.
    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        match self.shared {
            true => Filesystem::fsync(self, req, ino, fh, true, reply),
            // Nothing is to be done; do not ask again.
            false => reply.error(fuser::Errno::ENOSYS),
        }
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let result = self.serve(req, |cx| self.fs.fsync(cx, self.ino(ino), datasync));
        answer!(reply, result, |()| reply.ok());
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // A directory's names are its data.
        Filesystem::fsync(self, req, ino, fh, false, reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let result = self.serve_growing(req, |cx| self.allocate(cx, ino, offset, length, mode));
        answer!(reply, result, |()| reply.ok());
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = Seek { node: ino, offset, whence, reply };
        let _mount_has_ended = self.serve(req, |cx| {
            self.seeks.push(cx, seek);
            Ok(())
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let result = self.serve_growing(req, |cx| {
            self.copy(cx, (ino_in, offset_in), (ino_out, offset_out), len)
        });
        answer!(reply, result, |count: usize| reply.written(count as u32));
    }
}

/// Answers a value of `size` bytes at most; 0 asks for its length.
fn give(reply: ReplyXattr, value: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        size if size < value.len() => reply.error(errno(Errno::ERANGE)),
        _ => reply.data(value),
    }
}
