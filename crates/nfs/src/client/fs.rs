//! The client as a file system.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Errno, Ino, Nanos};
use rt::Cx;
use vfs::{
    Attr, DirEntry, FallocMode, FileSystem, FileType, NewNode, RenameFlags, SeekWhence, SetAttr,
    StatFs, XattrFlags,
};

use super::NfsClient;
use super::inode::Inode;
use crate::proto::{Body, Call, Sattr, Stable};

impl NfsClient {
    fn regular(&self, cx: &Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        let inode = self.inode(cx, ino)?;
        let kind = inode.state.lock(cx).attr.kind;
        kind.check_regular().map(|()| inode)
    }

    fn change_attributes(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        set: &SetAttr,
    ) -> Result<(), Errno> {
        self.must_write()?;
        let kind = inode.state.lock(cx).attr.kind;
        if set.size.is_some() {
            kind.check_regular()?;
        }
        let wanted = Sattr::of(set)?;
        if wanted == Sattr::default() {
            return Ok(());
        }
        let _guard = inode.write_lock.lock(cx);
        if let Some(size) = set.size {
            return self.set_size(cx, inode, wanted, size);
        }
        // Times that are set must not be changed again by what was written before.
        self.flush_and_commit(cx, inode)?;
        self.change_begins(cx, inode);
        let call = Call::Setattr { handle: inode.handle, set: wanted, guard: None };
        let done = self.call(cx, &call, |reply| (reply.status.check(), reply.wcc.clone()));
        let (done, wcc) = match done {
            Ok((done, wcc)) => (done, Some(wcc)),
            Err(errno) => (Err(errno), None),
        };
        let fresh = wcc.as_ref().is_some_and(|wcc| wcc.after.is_some());
        self.change_ends(inode, wcc, cx.now());
        done?;
        if fresh { Ok(()) } else { self.fetch_attr(cx, inode) }
    }

    /// Takes an opener away; true where he was the last.
    pub(super) fn closes(&self, cx: &Cx, inode: &Inode) -> bool {
        let mut state = inode.state.lock(cx);
        state.opens = state.opens.saturating_sub(1);
        state.opens == 0
    }

    /// What the last close does. May park.
    pub(super) fn last_close(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        if inode.state.lock(cx).silly.is_some() {
            // Nobody will read it again.
            self.wait_writing(cx, inode, 0..u64::MAX);
            self.drop_folios(cx, inode);
            self.retire(cx, inode);
            return self.remove_silly(cx, inode);
        }
        let done = self.sync_file(cx, inode);
        if done.is_err() {
            self.give_up(cx, inode);
        }
        done
    }

    /// READs past the cache, after what is dirty was sent; the range is forgotten. May park.
    fn read_past(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        self.flush_and_commit(cx, inode)?;
        // What is ours by now was written during the flush and stays on top.
        self.forget_range(cx, inode, offset..offset.saturating_add(buf.len() as u64));
        let mut at = 0;
        while at < buf.len() {
            let count = (buf.len() - at).min(self.limits.rsize as usize);
            let (handle, offset) = (inode.handle, offset + at as u64);
            let call = Call::Read { handle, offset, count: count as u32 };
            let room = &mut buf[at..at + count];
            let (len, eof) = self.call(cx, &call, |reply| {
                reply.status.check()?;
                let Body::Read { eof, data } = reply.body else { return Err(Errno::EIO) };
                let len = data.len().min(room.len());
                room[..len].copy_from_slice(&data[..len]);
                Ok((len, eof))
            })??;
            at += len;
            if eof {
                break;
            }
            if len == 0 {
                return Err(Errno::EIO);
            }
        }
        Ok(at)
    }
}

impl FileSystem for NfsClient {
    fn name(&self) -> &'static str {
        "nfs"
    }

    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let inode = self.find(cx, dir, name)?;
        Ok(self.attr(cx, &inode))
    }

    fn getattr(&self, cx: &mut Cx, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.inode(cx, ino)?;
        self.revalidate(cx, &inode)?;
        Ok(self.attr(cx, &inode))
    }

    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        let inode = self.inode(cx, ino)?;
        self.change_attributes(cx, &inode, set)?;
        Ok(self.attr(cx, &inode))
    }

    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno> {
        let inode = self.make(cx, dir, name, node)?;
        Ok(self.attr(cx, &inode))
    }

    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        self.make_link(cx, ino, dir, name)
    }

    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.remove(cx, dir, name)
    }

    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.remove_dir(cx, dir, name)
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
        self.rename_name(cx, (old_dir, old_name), (new_dir, new_name), flags)
    }

    fn readlink(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(cx, ino)?;
        if inode.state.lock(cx).attr.kind != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        self.call(cx, &Call::Readlink { handle: inode.handle }, |reply| {
            reply.status.check()?;
            match reply.body {
                Body::Target(target) => Ok(target.to_vec()),
                _ => Err(Errno::EIO),
            }
        })?
    }

    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.list_dir(cx, dir, cookie, emit)
    }

    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.inode(cx, ino)?;
        // Close-to-open: what another has closed before is seen from here on.
        let made = std::mem::take(&mut inode.state.lock(cx).made);
        if !made {
            self.fetch_attr(cx, &inode)?;
        }
        self.note_open(cx, &inode);
        Ok(())
    }

    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.inode(cx, ino)?;
        match self.closes(cx, &inode) {
            true => self.last_close(cx, &inode),
            false => self.sync_file(cx, &inode),
        }
    }

    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.regular(cx, ino)?;
        self.read_file(cx, &inode, offset, buf)
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let inode = self.regular(cx, ino)?;
        self.write_file(cx, &inode, offset, data)
    }

    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let inode = self.regular(cx, ino)?;
        let _guard = inode.write_lock.lock(cx);
        // The protocol cannot append: the size is asked for just before.
        self.fetch_attr(cx, &inode)?;
        let start = inode.state.lock(cx).size;
        Ok((start, self.write_locked(cx, &inode, start, data)?))
    }

    fn read_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        let inode = self.regular(cx, ino)?;
        self.read_past(cx, &inode, offset, buf)
    }

    fn write_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let inode = self.regular(cx, ino)?;
        let _guard = inode.write_lock.lock(cx);
        self.flush_and_commit(cx, &inode)?;
        let done = self.write_locked(cx, &inode, offset, data)?;
        self.flush(cx, &inode, 0..u64::MAX, Stable::FileSync)?;
        self.flush_and_commit(cx, &inode)?;
        // What lies in the cache is what the server has: but who writes past it wants it empty.
        self.drop_folios(cx, &inode);
        self.retire(cx, &inode);
        Ok(done)
    }

    fn fsync(&self, cx: &mut Cx, ino: Ino, _datasync: bool) -> Result<(), Errno> {
        let inode = self.inode(cx, ino)?;
        self.sync_file(cx, &inode)
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        let (mut after, mut done) = ((0, 0), Ok(()));
        while let Some(inode) = self.next_file(cx, after, Nanos::MAX) {
            after = inode.place();
            done = done.and(self.sync_file(cx, &inode));
        }
        done
    }

    fn fallocate(
        &self,
        cx: &mut Cx,
        ino: Ino,
        _mode: FallocMode,
        _offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let kind = self.inode(cx, ino)?.state.lock(cx).attr.kind;
        match kind {
            _ if len == 0 => Err(Errno::EINVAL),
            FileType::Regular => Err(Errno::EOPNOTSUPP),
            FileType::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::ENODEV),
        }
    }

    /// The protocol does not show holes: everything is data.
    fn seek(&self, cx: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
        let inode = self.inode(cx, ino)?;
        self.revalidate(cx, &inode)?;
        let (kind, size) = {
            let state = inode.state.lock(cx);
            (state.attr.kind, state.size)
        };
        if kind != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        match whence {
            _ if offset >= size => Err(Errno::ENXIO),
            SeekWhence::Data => Ok(offset),
            SeekWhence::Hole => Ok(size),
        }
    }

    fn fiemap(&self, _: &mut Cx, _: Ino, _: u64, _: u64) -> Result<Vec<vfs::Iomap>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn getxattr(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn setxattr(&self, _: &mut Cx, _: Ino, _: &[u8], _: &[u8], _: XattrFlags) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn listxattr(&self, _: &mut Cx, _: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn statfs(&self, cx: &mut Cx) -> Result<StatFs, Errno> {
        let root = self.inode(cx, self.root)?;
        let stat = self.call(cx, &Call::Fsstat { handle: root.handle }, |reply| {
            reply.status.check()?;
            match reply.body {
                Body::Fsstat(stat) => Ok(stat),
                _ => Err(Errno::EIO),
            }
        })??;
        let block_size = 4096;
        let blocks = |bytes: u64| bytes / u64::from(block_size);
        Ok(StatFs {
            block_size,
            blocks: blocks(stat.bytes[0]),
            blocks_free: blocks(stat.bytes[1]),
            blocks_available: blocks(stat.bytes[2]),
            inodes: stat.files[0],
            inodes_free: stat.files[1],
            name_max: 255,
            fsid: self.fsid,
        })
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        let done = self.sync(cx);
        self.stop_flusher(cx);
        self.dead.store(true, Ordering::Release);
        self.rpc.stop(cx);
        done
    }

    fn shutdown_hard(&self) {
        self.dead.store(true, Ordering::Release);
        self.stop_flusher_hard();
        self.rpc.stop_hard();
    }
}
