//! The implementation of [`vfs::FileSystem`] for a mount.

use base::{Errno, Ino};
use block::{HostRange, Segment};
use cache::{Iomap, Lost};
use rt::Cx;
use vfs::ParentName;
use vfs::direct::Memory;
use vfs::{
    Attr, DirEntry, ExtentHints, FallocMode, FilePlace, FileRead, FileSystem, FileType, NewNode,
    RenameFlags, SeekWhence, SetAttr, StatFs, XattrFlags,
};

use crate::attr::parent::{self, ParentPointer};
use crate::dir::Dir;
use crate::file::{self, DataFile, FilePosition};
use crate::format::hash::Case;
use crate::inactive::inactivate_if_unused;
use crate::namei::{self, DirName, NewInode};
use crate::{Xfs, attr, set_attr, symlink};

impl FileSystem for Xfs {
    fn name(&self) -> &'static str {
        "xfs"
    }

    fn root(&self) -> Ino {
        self.geometry().root_ino
    }

    fn ignores_case(&self) -> bool {
        self.geometry().features.case() == Case::Ignored
    }

    fn walk_version(&self) -> Option<u64> {
        self.names.walk_version()
    }

    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        namei::look_up(self, cx, dir, name)
    }

    fn getattr(&self, cx: &mut Cx, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.iget(cx, ino)?;
        Ok(inode.attr(cx, self.geometry()))
    }

    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        let inode = self.iget(cx, ino)?;
        let done = set_attr::set_attr(self, cx, &inode, set);
        self.names.outdate_walks_if(inode.kind(cx) == FileType::Directory);
        done
    }

    fn set_flags(&self, cx: &mut Cx, ino: Ino, flags: u32) -> Result<Attr, Errno> {
        let inode = self.iget(cx, ino)?;
        let done = set_attr::set_inode_flags(self, cx, &inode, flags);
        self.names.outdate_walks_if(inode.kind(cx) == FileType::Directory);
        done
    }

    fn extent_hints(&self, cx: &mut Cx, ino: Ino) -> Result<ExtentHints, Errno> {
        let inode = self.iget(cx, ino)?;
        Ok(set_attr::extent_hints(self, cx, &inode))
    }

    fn set_extent_hints(&self, cx: &mut Cx, ino: Ino, hints: ExtentHints) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        set_attr::set_inode_hints(self, cx, &inode, hints)
    }

    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno> {
        namei::create_node(self, cx, dir, name, NewInode { node, attributes: &[] })
    }

    fn create_with(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let (list, mode) = attr::of_new(node, attributes)?;
        let node = &NewNode { mode, ..*node };
        if node.kind != FileType::Directory || attr::fit_inside(self, name, &list) {
            return namei::create_node(self, cx, dir, name, NewInode { node, attributes: &list });
        }
        // Blocks for them would come from another group than the name's: one after the other.
        let attr = namei::create_node(self, cx, dir, name, NewInode { node, attributes: &[] })?;
        for (name, value) in attributes {
            self.setxattr(cx, attr.ino, name, value, XattrFlags::empty())?;
        }
        self.getattr(cx, attr.ino)
    }

    fn names_of(&self, cx: &mut Cx, ino: Ino) -> Result<Option<Vec<ParentName>>, Errno> {
        let pointers = parent::parents_of(self, cx, ino)?;
        let pair = |ParentPointer { dir, name, .. }| ParentName { dir, name };
        Ok(pointers.map(|list| list.into_iter().map(pair).collect()))
    }

    fn create_unnamed(
        &self,
        cx: &mut Cx,
        dir: Ino,
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let (list, mode) = attr::of_new(node, attributes)?;
        let node = &NewNode { mode, ..*node };
        namei::create_unnamed_node(self, cx, dir, NewInode { node, attributes: &list })
    }

    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        namei::link_node(self, cx, ino, dir, name)
    }

    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        namei::remove_node(self, cx, dir, name, false)
    }

    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        namei::remove_node(self, cx, dir, name, true)
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
        let old = DirName { dir: old_dir, name: old_name };
        namei::rename_node(self, cx, old, DirName { dir: new_dir, name: new_name }, flags)
    }

    fn readlink(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno> {
        let inode = self.iget(cx, ino)?;
        symlink::read_symlink(self, cx, &inode)
    }

    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let inode = self.iget(cx, dir)?;
        let guard = inode.lock_shared(cx)?;
        let listed = Dir::open(self, cx, &inode)
            .and_then(|dir| dir.list(cx, cookie, emit).map_err(|fault| self.fault(fault)));
        drop(guard);
        listed
    }

    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        inode.with(cx, |state| match state.core.links == 0 && state.opens == 0 {
            true => Err(Errno::ESTALE),
            false => {
                state.opens += 1;
                Ok(())
            }
        })
    }

    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let inode = self.inodes.find(ino).ok_or(Errno::ESTALE)?;
        let left = inode.with(cx, |state| {
            state.opens = state.opens.saturating_sub(1);
            state.opens
        });
        DataFile::new(self, &inode).write_what_was_cut(cx);
        match self.write {
            Some(_) if left == 0 => {
                let closed = DataFile::new(self, &inode).closed(cx);
                closed.and(inactivate_if_unused(self, cx, &inode))
            }
            _ => Ok(()),
        }
    }

    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::read(cx, &DataFile::new(self, &inode), offset, buf)
    }

    fn read_many(&self, cx: &mut Cx, reads: &mut [FileRead<'_>]) {
        let inodes: Vec<_> = reads.iter().map(|read| self.iget(cx, read.ino)).collect();
        let file = |inode| DataFile::new(self, inode);
        let files = inodes.iter().map(|inode| inode.as_deref().map(file).map_err(|errno| *errno));
        let files: Vec<_> = files.collect();
        if self.realtime.is_some() {
            // They may lie on two devices.
            for (file, read) in files.iter().zip(reads) {
                let file = file.as_ref().map_err(|errno| *errno);
                read.done = file.and_then(|it| vfs::iomap::read(cx, it, read.offset, read.buf));
            }
            return;
        }
        vfs::iomap::read_many(cx, &self.queue, &files, reads);
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::write(cx, &DataFile::new(self, &inode), offset, data)
    }

    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::append(cx, &DataFile::new(self, &inode), data)
    }

    fn read_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::read_direct(cx, &DataFile::new(self, &inode), offset, buf)
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
        vfs::iomap::read_at_host(cx, &DataFile::new(self, &inode), offset, len, give)
    }

    fn write_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let inode = self.iget(cx, ino)?;
        let file = DataFile::new(self, &inode);
        let done = vfs::iomap::write_direct(cx, &file, offset, Memory::Bytes(data))?;
        Ok(done as usize)
    }

    fn write_direct_pages(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::write_direct(cx, &DataFile::new(self, &inode), offset, Memory::Pages(pages))
    }

    fn fsync(&self, cx: &mut Cx, ino: Ino, datasync: bool) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        DataFile::new(self, &inode).fsync_inode(cx, datasync)
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        file::sync_all(self, cx)
    }

    fn grow(&self, cx: &mut Cx, blocks: u64) -> Result<(), Errno> {
        self.grow_mounted(cx, blocks)
    }

    fn xfs_geometry(&self, cx: &mut Cx) -> Result<Vec<u8>, Errno> {
        self.fsop_geometry(cx)
    }

    fn commit(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.force_all(cx)
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
        vfs::iomap::fallocate(cx, &DataFile::new(self, &inode), mode, offset, len)
    }

    fn clone_range(
        &self,
        cx: &mut Cx,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<(), Errno> {
        let (source, target) = (self.iget(cx, from.0)?, self.iget(cx, to.0)?);
        let source = FilePosition { inode: &source, offset: from.1 };
        file::clone_file_range(self, cx, source, FilePosition { inode: &target, offset: to.1 }, len)
    }

    fn dedupe_range(
        &self,
        cx: &mut Cx,
        from: FilePlace,
        to: FilePlace,
        len: u64,
    ) -> Result<bool, Errno> {
        let (source, target) = (self.iget(cx, from.ino)?, self.iget(cx, to.ino)?);
        let source = FilePosition { inode: &source, offset: from.offset };
        let target = FilePosition { inode: &target, offset: to.offset };
        file::dedupe_file_range(self, cx, source, target, len)
    }

    fn exchange_range(
        &self,
        cx: &mut Cx,
        sides: [FilePlace; 2],
        len: Option<u64>,
    ) -> Result<(), Errno> {
        let [one, two] = &[self.iget(cx, sides[0].ino)?, self.iget(cx, sides[1].ino)?];
        let [first, second] = sides.map(|side| side.offset);
        let one = FilePosition { inode: one, offset: first };
        let two = FilePosition { inode: two, offset: second };
        file::exchange_file_ranges(self, cx, [one, two], len)
    }

    fn unshare_range(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        let inode = self.iget(cx, ino)?;
        DataFile::new(self, &inode).unshare(cx, offset..offset.saturating_add(len))
    }

    fn seek(&self, cx: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
        let inode = self.iget(cx, ino)?;
        vfs::iomap::seek(cx, &DataFile::new(self, &inode), offset, whence)
    }

    fn fiemap(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Result<Vec<Iomap>, Errno> {
        let inode = self.iget(cx, ino)?;
        let bytes = offset..offset.saturating_add(len);
        vfs::iomap::fiemap(cx, &DataFile::new(self, &inode), bytes)
    }

    fn getxattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        attr::get(self, cx, ino, name)
    }

    fn setxattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let done = attr::set(self, cx, ino, name, value, flags);
        self.names.outdate_walks_if_acl(name);
        done
    }

    fn listxattr(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        attr::list(self, cx, ino)
    }

    fn removexattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let done = attr::remove(self, cx, ino, name);
        self.names.outdate_walks_if_acl(name);
        done
    }

    fn lost(&self) -> Lost {
        self.lost_content()
    }

    fn note_lost(&self, ino: Ino, bytes: u64, errno: Errno) {
        self.backing.note_lost(ino.0, bytes, errno);
    }

    fn statfs(&self, _cx: &mut Cx) -> Result<StatFs, Errno> {
        self.check_alive()?;
        Ok(self.stat_fs())
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.unmount_clean(cx)
    }

    fn shutdown_hard(&self) {
        self.stop();
        if let Some(writer) = &self.write {
            writer.log.die();
        }
    }
}
