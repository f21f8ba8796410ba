//! The requests about names and attributes, each answered from [`vfs::FileSystem`]; those about
//! content are in `data`.

use base::{Errno, Ino, Timespec};
use fuser::INodeNo;
use rt::Cx;
use vfs::permission::{self, Access};
use vfs::{Attr, FileType, NewNode, SetAttr, XattrFlags};

use super::Adapter;
use crate::abi::*;
use crate::convert;
use crate::listing::{self, Entry};
use crate::wire::{Answer, Request, name};

/// The attribute that answers which names an inode has, as `XFS_IOC_GETPARENTS` does: that one's
/// answer goes where a pointer in its request leads, which FUSE does not reach. It is not listed.
const NAMES: &[u8] = b"iopath.names";
/// Entries that are collected at once while a listing is answered, at least and at most.
const LISTED_AT_ONCE: (usize, usize) = (24, 512);
/// The answer to a request: it is in the buffer, or an error.
pub(crate) type Answered = Result<(), Errno>;

impl Adapter {
    /// Answers a request that changes nothing in the way of answering: one request, one answer.
    pub fn carry_out(&self, cx: &mut Cx, req: &Request, out: &mut Answer) -> Answered {
        let node = INodeNo(req.header.nodeid);
        match req.header.opcode {
            op::LOOKUP => self.lookup(cx, node, req, out),
            op::GETATTR => self.getattr(cx, node, req, out),
            op::STATX => self.statx(cx, node, out),
            op::ACCESS if !self.checked && !self.shared => self.access(cx, node, req),
            op::SETATTR => self.setattr(cx, node, req, out),
            op::READLINK => {
                out.bytes(&self.fs.readlink(cx, self.ino(node))?);
                Ok(())
            }
            op::SYMLINK | op::MKNOD | op::MKDIR | op::LINK => self.add(cx, node, req, out),
            op::CREATE => self.create_open(cx, node, req, out),
            op::TMPFILE => self.create_unnamed(cx, node, req, out),
            op::UNLINK | op::RMDIR => self.take_away(cx, node, req),
            op::RENAME | op::RENAME2 => self.rename(cx, node, req),
            op::OPEN => self.open(cx, node, out),
            op::RELEASE if self.opens => self.fs.release(cx, self.ino(node)),
            // Of a file that was made without a name before anything was opened: FORGET closes it.
            op::RELEASE => Ok(()),
            op::STATFS => self.statfs(cx, out),
            op::SETXATTR | op::REMOVEXATTR => self.change_xattr(cx, node, req),
            op::GETXATTR | op::LISTXATTR => self.read_xattrs(cx, node, req, out),
            op::READDIR | op::READDIRPLUS => self.list(cx, node, req, out),
            op::IOCTL => self.ioctl(cx, node, req, out),
            // A shared file system: close(2) makes what was written seen by others. Else nothing is
            // to be done, and the kernel does not ask again.
            op::FLUSH if self.shared => self.fs.fsync(cx, self.ino(node), true),
            op::READ | op::WRITE | op::FSYNC | op::FSYNCDIR => self.content(cx, node, req, out),
            op::FALLOCATE | op::COPY_FILE_RANGE => self.content(cx, node, req, out),
            // OPENDIR, RELEASEDIR, FLUSH and INTERRUPT, and ACCESS where the kernel checks: it does
            // it alone from now on. Others are not known here.
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Where the kernel checks nothing, everybody may do what root may.
    fn access(&self, cx: &mut Cx, node: INodeNo, req: &Request) -> Answered {
        let (arg, _) = req.take::<AccessIn>()?;
        let attr = self.fs.getattr(cx, self.ino(node))?;
        let want = Access::from_bits_truncate(arg.mask as u16);
        if permission::root_may(&attr, want) { Ok(()) } else { Err(Errno::EACCES) }
    }

    fn getattr(&self, cx: &mut Cx, node: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let (arg, _) = req.take::<GetattrIn>()?;
        if arg.getattr_flags & GETATTR_FH != 0 && !self.writeback_errors.is_empty() {
            let free = self.fs.statfs(cx)?.blocks_free;
            self.writeback_errors.take(node, free).map_or(Ok(()), Err)?;
        }
        let attr = self.fs.getattr(cx, self.ino(node))?;
        self.give_attr(node, &attr, out);
        Ok(())
    }

    fn give_attr(&self, node: INodeNo, attr: &Attr, out: &mut Answer) {
        self.writeback_errors.attributes_sent(node);
        let attr = convert::attributes(attr);
        out.push(AttrOut { attr_valid: self.keep, attr, ..AttrOut::default() });
    }

    fn entry_out(&self, attr: &Attr) -> EntryOut {
        EntryOut {
            nodeid: self.count_lookup(attr).0,
            generation: attr.generation.into(),
            entry_valid: self.keep_names,
            attr_valid: self.keep,
            attr: convert::attributes(attr),
            ..EntryOut::default()
        }
    }

    fn lookup(&self, cx: &mut Cx, dir: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        match self.fs.lookup(cx, self.ino(dir), name(req.body)?.0) {
            Ok(attr) => out.push(self.entry_out(&attr)),
            // Node 0: there is no such name, and that may be kept too.
            Err(Errno::ENOENT) if !self.shared => {
                out.push(EntryOut { entry_valid: self.keep_names, ..EntryOut::default() });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Attributes with the time of birth.
    fn statx(&self, cx: &mut Cx, node: INodeNo, out: &mut Answer) -> Answered {
        let attr = self.fs.getattr(cx, self.ino(node))?;
        self.writeback_errors.attributes_sent(node);
        let stat = convert::statx(&attr);
        out.push(StatxOut { attr_valid: self.keep, stat, ..StatxOut::default() });
        Ok(())
    }

    fn setattr(&self, cx: &mut Cx, node: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let (arg, _) = req.take::<SetattrIn>()?;
        let attr = self.growing(cx, |cx| {
            let has = |bit: u32| arg.valid & bit != 0;
            let time = |now: u32, set: u32, sec: i64, nsec: u32| match (has(now), has(set)) {
                (true, _) => Some(cx.realtime()),
                (false, true) => Some(Timespec { sec, nsec }),
                (false, false) => None,
            };
            let set = SetAttr {
                mode: has(fattr::MODE).then_some(arg.mode as u16 & 0o7777),
                uid: has(fattr::UID).then_some(arg.uid),
                gid: has(fattr::GID).then_some(arg.gid),
                size: has(fattr::SIZE).then_some(arg.size),
                atime: time(fattr::ATIME_NOW, fattr::ATIME, arg.atime, arg.atimensec),
                mtime: time(fattr::MTIME_NOW, fattr::MTIME, arg.mtime, arg.mtimensec),
                ctime: time(0, fattr::CTIME, arg.ctime, arg.ctimensec),
            };
            // The kernel sends the ctime of a file that it has just removed.
            let only_ctime = SetAttr { ctime: set.ctime, ..SetAttr::default() } == set;
            if set.ctime.is_some() && only_ctime && self.nodes.is_pinned(self.ino(node)) {
                let attr = self.fs.getattr(cx, self.ino(node))?;
                if attr.nlink == 0 {
                    return Ok(attr);
                }
            }
            // Set-id bits that go: a server sees to that by itself.
            if self.shared && only_ctime {
                return self.fs.getattr(cx, self.ino(node));
            }
            let set = self.to_set(cx, node, set, only_ctime)?;
            self.fs.setattr(cx, self.ino(node), &set)
        })?;
        self.give_attr(node, &attr, out);
        Ok(())
    }

    /// What is to be set, with the set-id bits that go: chown and truncate drop them, as the kernel
    /// leaves to us.
    fn to_set(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        mut set: SetAttr,
        only_ctime: bool,
    ) -> Result<SetAttr, Errno> {
        let truncates = set.size.is_some() && cx.cred().uid != 0 && !self.shared;
        // chown(2) that leaves both ids as they are comes as a change of ctime alone.
        let owns = set.uid.is_some() || set.gid.is_some() || only_ctime;
        if (owns || truncates) && set.mode.is_none() {
            let attr = self.fs.getattr(cx, self.ino(node))?;
            let mode = permission::without_set_id(attr.mode);
            if !attr.is_dir() && mode != attr.mode {
                set.mode = Some(mode);
            }
        }
        Ok(set)
    }

    /// SYMLINK, MKNOD, MKDIR, LINK: a name is added.
    fn add(&self, cx: &mut Cx, dir: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let attr = match req.header.opcode {
            op::SYMLINK => {
                let (called, rest) = name(req.body)?;
                let node = NewNode::symlink(name(rest)?.0);
                self.growing(cx, |cx| self.create(cx, dir, called, node.clone(), 0))
            }
            op::MKDIR => {
                let (arg, rest) = req.take::<MkdirIn>()?;
                let node = NewNode::new(FileType::Directory, arg.mode as u16 & 0o7777);
                let called = name(rest)?.0;
                self.growing(cx, |cx| self.create(cx, dir, called, node.clone(), arg.umask))
            }
            op::MKNOD => {
                let (arg, rest) = req.take::<MknodIn>()?;
                let kind = FileType::from_mode(arg.mode).ok_or(Errno::EINVAL)?;
                let rdev = if kind.is_device() { arg.rdev.into() } else { 0 };
                let node = NewNode { rdev, ..NewNode::new(kind, arg.mode as u16 & 0o7777) };
                let called = name(rest)?.0;
                self.growing(cx, |cx| self.create(cx, dir, called, node.clone(), arg.umask))
            }
            _ => {
                let (arg, rest) = req.take::<LinkIn>()?;
                let old = self.ino(INodeNo(arg.oldnodeid));
                let called = name(rest)?.0;
                self.growing(cx, |cx| self.fs.link(cx, old, self.ino(dir), called))
            }
        }?;
        out.push(self.entry_out(&attr));
        Ok(())
    }

    /// The kernel makes a node and opens it by itself from now on, but on a shared file system: a
    /// file that was created so has no RELEASE.
    fn create_open(&self, cx: &mut Cx, dir: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        if !self.shared {
            return Err(Errno::ENOSYS);
        }
        let (arg, rest) = req.take::<CreateIn>()?;
        let called = name(rest)?.0;
        let node = NewNode::new(FileType::Regular, arg.mode as u16 & 0o7777);
        let attr = self.growing(cx, |cx| self.create(cx, dir, called, node.clone(), arg.umask))?;
        self.fs.open(cx, attr.ino)?;
        out.push(self.entry_out(&attr));
        out.push(OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() });
        Ok(())
    }

    /// A file without a name. It is open until the kernel forgets it, as it would be if its name
    /// had gone; the kernel knows whether it may get one.
    fn create_unnamed(
        &self,
        cx: &mut Cx,
        dir: INodeNo,
        req: &Request,
        out: &mut Answer,
    ) -> Answered {
        if self.shared {
            return Err(Errno::EOPNOTSUPP);
        }
        let (arg, _) = req.take::<CreateIn>()?;
        let dir = self.fs.getattr(cx, self.ino(dir))?;
        cx.set_cred(rt::Cred { umask: arg.umask, ..cx.cred().clone() });
        let node = NewNode::new(FileType::Regular, arg.mode as u16 & 0o7777);
        let attr =
            self.growing(cx, |cx| vfs::create_unnamed_in(cx, &*self.fs, &dir, node.clone()))?;
        out.push(self.entry_out(&attr));
        let _looked_up_just_now = self.nodes.pin(attr.ino);
        if self.opens {
            self.fs.open(cx, attr.ino)?;
        }
        out.push(OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() });
        Ok(())
    }

    /// UNLINK, RMDIR.
    fn take_away(&self, cx: &mut Cx, dir: INodeNo, req: &Request) -> Answered {
        let (dir, called) = (self.ino(dir), name(req.body)?.0);
        let victim = self.fs.lookup(cx, dir, called)?.ino;
        self.remove(cx, Some(victim), |cx| match req.header.opcode {
            op::UNLINK => self.fs.unlink(cx, dir, called),
            _ => self.fs.rmdir(cx, dir, called),
        })
    }

    fn rename(&self, cx: &mut Cx, dir: INodeNo, req: &Request) -> Answered {
        let (newdir, flags, rest) = match req.header.opcode {
            op::RENAME => req.take::<RenameIn>().map(|(arg, rest)| (arg.newdir, 0, rest))?,
            _ => req.take::<Rename2In>().map(|(arg, rest)| (arg.newdir, arg.flags, rest))?,
        };
        let (old, rest) = name(rest)?;
        let new = name(rest)?.0;
        let (from, to) = (self.ino(dir), self.ino(INodeNo(newdir)));
        let flags = vfs::RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        self.growing(cx, |cx| {
            let victim = match self.fs.lookup(cx, to, new) {
                Ok(attr) => Some(attr.ino).filter(|_| flags.is_empty()),
                Err(Errno::ENOENT) => None,
                Err(error) => return Err(error),
            };
            self.remove(cx, victim, |cx| self.fs.rename(cx, from, old, to, new, flags))
        })
    }

    /// The kernel opens by itself from now on, unless it is to report opens.
    fn open(&self, cx: &mut Cx, node: INodeNo, out: &mut Answer) -> Answered {
        if !self.opens {
            return Err(Errno::ENOSYS);
        }
        self.fs.open(cx, self.ino(node))?;
        // On a shared file system what another has written meanwhile is read.
        let open_flags = if self.shared { 0 } else { FOPEN_KEEP_CACHE };
        out.push(OpenOut { open_flags, ..OpenOut::default() });
        Ok(())
    }

    fn statfs(&self, cx: &mut Cx, out: &mut Answer) -> Answered {
        self.forget_queue.wait_empty(cx);
        let s = self.fs.statfs(cx)?;
        out.push(StatfsOut {
            blocks: s.blocks,
            bfree: s.blocks_free,
            bavail: s.blocks_available,
            files: s.inodes,
            ffree: s.inodes_free,
            bsize: s.block_size,
            namelen: s.name_max,
            frsize: s.block_size,
            ..StatfsOut::default()
        });
        Ok(())
    }

    fn change_xattr(&self, cx: &mut Cx, node: INodeNo, req: &Request) -> Answered {
        let ino = self.ino(node);
        let called = match req.header.opcode {
            op::SETXATTR => {
                let (arg, rest) = req.take::<SetxattrIn>()?;
                let (called, value) = name(rest)?;
                let value = value.get(..arg.size as usize).ok_or(Errno::EIO)?;
                let flags = XattrFlags::from_bits(arg.flags).ok_or(Errno::EINVAL)?;
                self.growing(cx, |cx| self.fs.setxattr(cx, ino, called, value, flags))?;
                called
            }
            _ => {
                let called = name(req.body)?.0;
                self.fs.removexattr(cx, ino, called)?;
                called
            }
        };
        // Where the kernel does not check permissions it does not expect that an ACL changes the
        // mode.
        if !self.checked && called.starts_with(b"system.posix_acl_") {
            self.seeks.drop_attributes(node);
        }
        Ok(())
    }

    fn read_xattrs(&self, cx: &mut Cx, node: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let (arg, rest) = req.take::<GetxattrIn>()?;
        let value = match req.header.opcode {
            op::GETXATTR => match name(rest)?.0 {
                NAMES => self.paths(cx, node)?,
                name => self.fs.getxattr(cx, self.ino(node), name)?,
            },
            _ => {
                let names = self.fs.listxattr(cx, self.ino(node))?;
                let root = cx.cred().is_root() || self.fakeroot;
                let shown = names.iter().filter(|name| root || !name.starts_with(b"trusted."));
                shown.flat_map(|name| name.iter().copied().chain([0])).collect()
            }
        };
        // No size asks for the length.
        match arg.size as usize {
            0 => out.push(GetxattrOut { size: value.len() as u32, padding: 0 }),
            size if size < value.len() => return Err(Errno::ERANGE),
            _ => out.bytes(&value),
        }
        Ok(())
    }

    /// The paths of an inode in the image, each with a zero behind it.
    fn paths(&self, cx: &mut Cx, node: INodeNo) -> Result<Vec<u8>, Errno> {
        // They name directories that others may not search.
        if ![0, rustix::process::getuid().as_raw()].contains(&cx.cred().uid) {
            return Err(Errno::EPERM);
        }
        let paths = vfs::walk::paths_of(cx, &*self.fs, self.ino(node))?.ok_or(Errno::ENODATA)?;
        let paths = paths.join(&0);
        let room = paths.len() < vfs::XATTR_SIZE_MAX;
        if room { Ok([&paths[..], &[0]].concat()) } else { Err(Errno::E2BIG) }
    }

    /// READDIR, READDIRPLUS: entries until the answer is full.
    fn list(&self, cx: &mut Cx, dir: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let (arg, _) = req.take::<ReadIn>()?;
        let plus = req.header.opcode == op::READDIRPLUS;
        let size = arg.size as usize;
        let at_once = (size / 160).clamp(LISTED_AT_ONCE.0, LISTED_AT_ONCE.1);
        let mut cookie = arg.offset;
        loop {
            let entries = listing::collect(cx, &*self.fs, self.ino(dir), cookie, at_once)?;
            for entry in &entries {
                let head = size_of::<Dirent>() + if plus { size_of::<EntryOut>() } else { 0 };
                let need = (head + entry.name.len()).next_multiple_of(8);
                if out.len() + need > size {
                    return Ok(());
                }
                self.give_dirent(cx, entry, plus, out);
                cookie = entry.cookie;
            }
            if entries.len() < at_once {
                return Ok(());
            }
        }
    }

    fn give_dirent(&self, cx: &mut Cx, entry: &Entry, plus: bool, out: &mut Answer) {
        let mut kind = entry.kind;
        if plus || kind.is_none() {
            let attr = self.fs.getattr(cx, entry.ino).ok();
            kind = kind.or(attr.as_ref().map(|attr| attr.kind));
            if plus {
                // Node 0 says nothing about an entry. A program that looks closer asks again, and
                // gets the error.
                let named = attr.filter(|_| !entry.is_dot());
                out.push(named.map_or_else(EntryOut::default, |attr| self.entry_out(&attr)));
            }
        }
        let kind = u32::from(kind.unwrap_or(FileType::Regular).mode_bits()) >> 12;
        let namelen = entry.name.len() as u32;
        out.push(Dirent { ino: entry.ino.0, off: entry.cookie, namelen, kind });
        out.bytes(&entry.name);
        out.bytes(&[0; 8][..entry.name.len().next_multiple_of(8) - entry.name.len()]);
    }

    /// Creates a node in a directory with the caller's ids and the directory's inheritance.
    fn create(
        &self,
        cx: &mut Cx,
        dir: INodeNo,
        name: &[u8],
        node: NewNode,
        umask: u32,
    ) -> Result<Attr, Errno> {
        let dir = self.fs.getattr(cx, self.ino(dir))?;
        cx.set_cred(rt::Cred { umask, ..cx.cred().clone() });
        vfs::create_in(cx, &*self.fs, &dir, name, node)
    }

    /// Removes or replaces a name. An inode that loses its last name stays for those who use it,
    /// until the kernel forgets it; a shared file system learns from OPEN and RELEASE who uses it.
    fn remove(
        &self,
        cx: &mut Cx,
        victim: Option<Ino>,
        work: impl FnOnce(&mut Cx) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(ino) = victim.filter(|_| !self.shared) else { return work(cx) };
        self.fs.open(cx, ino)?;
        let result = work(cx);
        let unnamed = result.is_ok() && self.fs.getattr(cx, ino).is_ok_and(|attr| attr.nlink == 0);
        if !unnamed || !self.nodes.pin(ino) {
            self.fs.release(cx, ino)?;
        }
        result
    }
}
