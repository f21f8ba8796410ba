//! The implementation of [`vfs::FileSystem`] for a mount.

use std::sync::Arc;

use base::{Errno, Ino};
use block::{HostRange, Segment};
use cache::{Iomap, Lost};
use rt::Cx;
use vfs::direct::Memory;
use vfs::{
    Attr, DirEntry, FallocMode, FileRead, FileSystem, FileType, NewNode, RenameFlags, SeekWhence,
    SetAttr, StatFs, XattrFlags,
};

use crate::Ext4;
use crate::attr::xattr::Change;
use crate::attr::{acl, xattr};
use crate::dir::namei;
use crate::dquot::{Dquots, Owners};
use crate::evict;
use crate::format::super_block::ROOT_INO;
use crate::inode::Inode;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

impl Ext4 {
    /// Applies the attributes that live in the inode itself.
    fn set_fields(&self, cx: &mut Cx, inode: &Arc<Inode>, set: &SetAttr) -> Result<(), Errno> {
        let payers = if set.uid.is_some() || set.gid.is_some() {
            let owners = inode.with(cx, |core| {
                Owners([set.uid.unwrap_or(core.uid), set.gid.unwrap_or(core.gid), core.projid])
            });
            self.transfer_quota(cx, inode, owners)?
        } else {
            None
        };
        let acl = match set.mode {
            Some(mode) => acl::after_chmod(&self.inodes, cx, inode, mode)?,
            None => None,
        };
        let Some(acl) = acl else {
            let mut handle = self.inodes.fields_handle(cx, inode)?;
            self.write_fields(cx, &mut handle, inode, set, payers)?;
            return handle.stop(cx);
        };
        let (fs, more) = (&*self.inodes, credits::INODE + credits::SUPER);
        xattr::with_value(fs, cx, inode, Some(&acl), more, &mut |cx, edit, value| {
            let flags = XattrFlags::empty();
            xattr::set_in(edit, cx, Change { name: xattr::Name::ACCESS, value, flags })?;
            self.write_fields(cx, edit.handle, inode, set, payers.clone())
        })
    }

    /// Sets or removes (`None`) an attribute.
    fn change_xattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let name = xattr::Name::parse(name)?;
        if value.is_some_and(|value| value.len() > vfs::XATTR_SIZE_MAX) {
            return Err(Errno::E2BIG);
        }
        let inode = self.iget(cx, ino)?;
        xattr::set(&self.inodes, cx, &inode, Change { name, value, flags })
    }

    /// Asks whether an inode may change its owners: see [`crate::quota::Quota::transfer_owners`].
    pub(crate) fn transfer_quota(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        owners: Owners,
    ) -> Result<Option<Dquots>, Errno> {
        let quota = self.quota.get();
        quota.map_or(Ok(None), |quota| quota.transfer_owners(&self.inodes, cx, inode, owners))
    }

    fn write_fields(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
        set: &SetAttr,
        payers: Option<Dquots>,
    ) -> Result<(), Errno> {
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            if let Some(mode) = set.mode {
                core.mode = core.mode & 0xf000 | mode & 0o7777;
            }
            core.pay_to(payers);
            core.uid = set.uid.unwrap_or(core.uid);
            core.gid = set.gid.unwrap_or(core.gid);
            core.atime = set.atime.map_or(core.atime, |time| self.sb.stamp(time));
            let mtime = if set.size.is_some() { now } else { core.mtime };
            core.mtime = set.mtime.map_or(mtime, |time| self.sb.stamp(time));
            core.ctime = set.ctime.map_or(now, |time| self.sb.stamp(time));
        });
        self.inodes.mark_dirty(cx, handle, inode)
    }
}

impl FileSystem for Ext4 {
    fn name(&self) -> &'static str {
        use crate::format::features::{Compat, Incompat};
        let features = &self.sb.geometry.features;
        if features.incompat.intersects(Incompat::EXTENTS | Incompat::SIXTY_FOUR_BIT) {
            "ext4"
        } else if features.compat.contains(Compat::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }

    fn root(&self) -> Ino {
        Ino(u64::from(ROOT_INO))
    }

    fn walk_version(&self) -> Option<u64> {
        self.names.cache.walk_version()
    }

    fn ignores_case(&self) -> bool {
        self.sb.geometry.encoding.is_some()
    }

    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        namei::lookup(self, cx, dir, name)
    }

    fn getattr(&self, cx: &mut Cx, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.iget(cx, ino)?;
        self.attr(cx, &inode)
    }

    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        self.sb.check_writable()?;
        let inode = self.iget(cx, ino)?;
        if set.size.is_some() {
            inode.kind(cx).check_regular()?;
            inode.check_key()?;
        }
        let guard = inode.rwsem.write(cx);
        if inode.with(cx, |core| core.dead) {
            return Err(Errno::ESTALE);
        }
        let sized = set
            .size
            .map_or(Ok(()), |size| vfs::iomap::set_size(cx, &self.inodes.data_file(&inode), size));
        let result = sized.and_then(|()| self.set_fields(cx, &inode, set));
        drop(guard);
        self.names.cache.outdate_walks_if(inode.kind(cx) == FileType::Directory);
        result.and_then(|()| self.attr(cx, &inode))
    }

    fn grow(&self, cx: &mut Cx, blocks: u64) -> Result<(), Errno> {
        self.grow_to(cx, blocks)
    }

    fn set_flags(&self, cx: &mut Cx, ino: Ino, flags: u32) -> Result<Attr, Errno> {
        self.change_flags(cx, ino, flags)?;
        let inode = self.iget(cx, ino)?;
        self.names.cache.outdate_walks_if(inode.kind(cx) == FileType::Directory);
        self.attr(cx, &inode)
    }

    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno> {
        namei::create(self, cx, dir, name, node, &[])
    }

    fn create_with(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let (list, mode) = xattr::of_new(node, attributes)?;
        namei::create(self, cx, dir, name, &NewNode { mode, ..*node }, &list)
    }

    fn create_unnamed(
        &self,
        cx: &mut Cx,
        dir: Ino,
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let (list, mode) = xattr::of_new(node, attributes)?;
        namei::create_unnamed(self, cx, dir, &NewNode { mode, ..*node }, &list)
    }

    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        namei::link(self, cx, ino, dir, name)
    }

    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        namei::unlink(self, cx, dir, name)
    }

    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        namei::rmdir(self, cx, dir, name)
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
        namei::rename(self, cx, old_dir, old_name, new_dir, new_name, flags)
    }

    fn readlink(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno> {
        namei::readlink(self, cx, ino)
    }

    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        namei::readdir(self, cx, dir, cookie, emit)
    }

    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        self.sb.check_alive()?;
        let inode = self.iget(cx, ino)?;
        if inode.is_regular(cx) {
            inode.check_key()?;
        }
        inode.with(cx, |core| {
            if core.dead || (core.links == 0 && core.opens == 0) {
                return Err(Errno::ESTALE);
            }
            core.opens += 1;
            Ok(())
        })
    }

    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.inodes.cache.find(ino).ok_or(Errno::ESTALE)?;
        let (last, place) = inode.with(cx, |core| {
            core.opens = core.opens.saturating_sub(1);
            (core.opens == 0, std::mem::take(&mut core.place_on_close))
        });
        if place {
            self.inodes.place_delayed(cx, &inode);
        }
        if last {
            if let Some(mut prealloc) = inode.map_lock.try_write() {
                self.alloc.release_prealloc(&mut prealloc);
            }
            self.alloc.discard_window(&inode.window);
        }
        if last && inode.with(cx, |core| core.links == 0) && self.sb.check_writable().is_ok() {
            return evict::delete_if_unused(&self.inodes, cx, &inode);
        }
        Ok(())
    }

    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::read(cx, &self.inodes.data_file(&inode), offset, buf)
    }

    fn read_many(&self, cx: &mut Cx, reads: &mut [FileRead<'_>]) {
        let inodes: Vec<_> = reads.iter().map(|read| self.iget(cx, read.ino)).collect();
        let file = |inode| self.inodes.data_file(inode);
        let files: Vec<_> = inodes.iter().map(|it| it.as_ref().map(file).map_err(|e| *e)).collect();
        vfs::iomap::read_many(cx, &self.sb.queue, &files, reads);
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::write(cx, &self.inodes.data_file(&inode), offset, data)
    }

    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::append(cx, &self.inodes.data_file(&inode), data)
    }

    fn read_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::read_direct(cx, &self.inodes.data_file(&inode), offset, buf)
    }

    fn read_at_host(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        len: u64,
        give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
    ) -> Result<bool, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::read_at_host(cx, &self.inodes.data_file(&inode), offset, len, give)
    }

    fn write_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        let (file, memory) = (self.inodes.data_file(&inode), Memory::Bytes(data));
        vfs::iomap::write_direct(cx, &file, offset, memory).map(|bytes| bytes as usize)
    }

    fn write_direct_pages(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::write_direct(cx, &self.inodes.data_file(&inode), offset, Memory::Pages(pages))
    }

    fn fsync(&self, cx: &mut Cx, ino: Ino, datasync: bool) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        self.inodes.fsync_inode(cx, &inode, datasync)
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.sync_all(cx)
    }

    fn commit(&self, cx: &mut Cx) -> Result<(), Errno> {
        match self.sb.journal() {
            Some(journal) => journal.clone().force_commit(cx),
            None => Ok(()),
        }
    }

    fn fallocate(
        &self,
        cx: &mut Cx,
        ino: Ino,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::fallocate(cx, &self.inodes.data_file(&inode), mode, offset, len)
    }

    fn seek(&self, cx: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::seek(cx, &self.inodes.data_file(&inode), offset, whence)
    }

    fn fiemap(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Result<Vec<Iomap>, Errno> {
        let inode = self.iget(cx, ino)?;
        let bytes = offset..offset.saturating_add(len);
        vfs::iomap::fiemap(cx, &self.inodes.data_file(&inode), bytes)
    }

    fn getxattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let name = xattr::Name::parse(name)?;
        let inode = self.iget(cx, ino)?;
        xattr::get(&self.inodes, cx, &inode, name)
    }

    fn setxattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let result = self.change_xattr(cx, ino, name, Some(value), flags);
        self.names.cache.outdate_walks_if_acl(name);
        result
    }

    fn listxattr(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        let inode = self.iget(cx, ino)?;
        xattr::list(&self.inodes, cx, &inode)
    }

    fn removexattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let result = self.change_xattr(cx, ino, name, None, XattrFlags::REPLACE);
        self.names.cache.outdate_walks_if_acl(name);
        result
    }

    fn lost(&self) -> Lost {
        self.inodes.backing.lost()
    }

    fn note_lost(&self, ino: Ino, bytes: u64, errno: Errno) {
        self.inodes.backing.note_lost(ino.0, bytes, errno);
    }

    fn statfs(&self, cx: &mut Cx) -> Result<StatFs, Errno> {
        self.stat_fs(cx)
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.sb.check_alive()?;
        self.unmount_clean(cx)
    }

    fn shutdown_hard(&self) {
        self.sb.stop();
        self.inodes.arrivals.end();
        if let Some(held) = self.mmp.get() {
            held.die();
        }
        if let Some(journal) = self.sb.journal() {
            journal.die();
        }
    }
}
