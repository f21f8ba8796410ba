//! New inodes.

use std::sync::Arc;

use base::{Errno, Timespec};
use rt::Cx;

use crate::dquot::InodeQuota;
use crate::format::features::Incompat;
use crate::format::inode::InodeValues;
use crate::format::super_block::ROOT_INO;
use crate::format::{InodeFlags, extent};
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode {
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Access and modification time; now where `None`.
    pub times: Option<(Timespec, Timespec)>,
}

/// Flags that a new inode takes over from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

impl Inode {
    /// The project of what is made in this directory.
    pub(crate) fn project_for_new(&self, cx: &Cx) -> u32 {
        self.with(cx, |core| match core.flags.contains(InodeFlags::PROJINHERIT) {
            true => core.projid,
            false => 0,
        })
    }
}

impl Inodes {
    /// Takes a free inode for something in `dir`: `credits::NEW_INODE`. It is in the cache but not
    /// yet on the disk: the caller completes its values and calls [`Inodes::mark_dirty`] once.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn new_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        dir: &Inode,
        new: &NewInode,
        quota: Option<Box<InodeQuota>>,
    ) -> Result<Arc<Inode>, Errno> {
        let is_dir = new.mode & 0xf000 == 0x4000;
        let top = dir.ino.0 == u64::from(ROOT_INO)
            || dir.with(cx, |core| core.flags.contains(InodeFlags::TOPDIR));
        let ino = self.ialloc.take_number(cx, handle, dir.ino, top, is_dir)?;
        if let Some(tracker) = self.fast_tracker() {
            tracker.track_created(cx, handle, ino, new.mode & 0xf000 == 0x8000);
        }
        let values = self.new_values(cx, dir, new);
        Ok(self.fresh_inode(ino, values, quota))
    }

    /// The values of a new inode.
    fn new_values(&self, cx: &mut Cx, dir: &Inode, new: &NewInode) -> InodeValues {
        let now = self.sb.now(cx);
        let stamp = |(atime, mtime)| (self.sb.stamp(atime), self.sb.stamp(mtime));
        let (atime, mtime) = new.times.map_or((now, now), stamp);
        let kind = new.mode & 0xf000;
        let mut flags = dir.with(cx, |core| core.flags) & INHERITED;
        if kind != 0x4000 {
            flags.remove(InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD);
        }
        let mut block = [0u8; 60];
        let extents = self.sb.geometry.features.incompat.contains(Incompat::EXTENTS);
        if extents && matches!(kind, 0x4000 | 0x8000) {
            flags |= InodeFlags::EXTENTS;
            extent::init_node(&mut block, extent::ROOT_MAX, 0);
        }
        let wide = self.sb.geometry.inode_size > 128;
        InodeValues {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            links: 1,
            flags,
            atime,
            mtime,
            ctime: now,
            crtime: wide.then_some(now),
            generation: cx.random() as u32,
            extra_isize: self.sb.geometry.new_extra_isize(),
            block,
            projid: dir.project_for_new(cx),
            ..InodeValues::default()
        }
    }

    /// Undoes [`Inodes::new_inode`] in the same handle, for an inode without blocks.
    ///
    /// # Errors
    /// As [`crate::ialloc::InodeAllocator::free_inode`].
    pub(crate) fn drop_new_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        // A small number here would look like the next inode of the orphan list.
        let now = (self.sb.now(cx).sec as u32).max(1);
        let is_dir = inode.with(cx, |core| {
            core.dead = true;
            core.gone = true;
            core.links = 0;
            core.values.dtime = now;
            core.mode & 0xf000 == 0x4000
        });
        self.mark_dirty(cx, handle, inode)?;
        inode.with(cx, |core| core.freed = true);
        self.cache.remove(inode.ino);
        if let Some(tracker) = self.fast_tracker() {
            tracker.track_freed(cx, handle, inode.ino);
        }
        self.ialloc.free_inode(cx, handle, inode.ino, is_dir)
    }
}
