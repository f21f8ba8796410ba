//! Making files shorter, and giving inodes back.
//!
//! A huge file may have more blocks than one transaction can free. So the inode is made an orphan
//! with its new size, blocks go from the end in as many handles as it takes, and at last the inode
//! leaves the orphans: a crash in between is finished by the next mount.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::FileType;

use crate::Ext4;
use crate::bmap::extents::Removed;
use crate::inode::Inode;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// What [`Ext4::unlinked`] has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deferred {
    /// Nothing: the inode is free, or somebody has it open.
    Nothing,
    /// [`Ext4::finish_unlink`] frees it when the handle has ended.
    Delete,
}

impl Ext4 {
    /// Sets the size of a regular file: frees what is behind the end, or leaves a hole. The caller
    /// holds the inode's `rwsem` for writing and has no handle.
    ///
    /// # Errors
    /// `EFBIG`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn set_size(&self, cx: &mut Cx, inode: &Arc<Inode>, size: u64) -> Result<(), Errno> {
        self.sb.check_writable()?;
        if size > inode.with(cx, |core| core.growth_limit(&self.sb.geometry)) {
            return Err(Errno::EFBIG);
        }
        let mapping = inode.mapping().clone();
        let old = mapping.size();
        let block_size = u64::from(self.sb.geometry.block_size);
        let round = |at: u64| at / block_size * block_size;
        // The size on the disk is about to include what was not written yet: that goes first, so
        // that no crash shows zeroes in its place.
        let on_disk = inode.with(cx, |core| core.values.size);
        if on_disk < old.min(size) {
            mapping.flush(cx, round(on_disk)..old.min(size).next_multiple_of(block_size))?;
        }
        if size > old {
            // The zeroes behind the old end reach the disk before the new size does.
            mapping.truncate(cx, size)?;
            mapping.flush(cx, round(old)..old.next_multiple_of(block_size))?;
            inode.with(cx, |core| {
                core.size = size;
                core.values.size = size;
            });
            return Ok(());
        }
        if size == 0 && old > 0 {
            inode.with(cx, |core| core.place_on_close = true);
        }
        let guard = inode.writeback.lock(cx);
        let result = mapping.truncate(cx, size);
        let from = self.blocks_of(size);
        self.drop_promises(cx, inode, from, u32::MAX);
        let result = result.and_then(|()| self.truncate_blocks(cx, inode, size));
        drop(guard);
        result
    }

    /// Blocks that `size` bytes need.
    pub(crate) fn blocks_of(&self, size: u64) -> u32 {
        u32::try_from(size.div_ceil(u64::from(self.sb.geometry.block_size))).unwrap_or(u32::MAX)
    }

    /// Frees the blocks behind `size` in as many handles as it takes, and sets the size.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn truncate_blocks(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        size: u64,
    ) -> Result<(), Errno> {
        let mut handle = self.sb.journal_start(cx, credits::TRUNCATE)?;
        let tid = handle.tid();
        inode.with(cx, |core| {
            core.size = size;
            // Also where it grows: what was not written yet is a hole then, never old content.
            core.values.size = size;
            core.datasync_tid = tid;
        });
        let from = self.blocks_of(size);
        self.remove_blocks(cx, &mut handle, inode, from)?;
        self.orphan_del_named(cx, &mut handle, inode)?;
        self.mark_inode_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)
    }

    /// Unmaps everything from block `from` on; makes the inode an orphan where one handle is not
    /// enough. Afterwards the handle has credits for `ORPHAN` and `INODE` left.
    fn remove_blocks(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
        from: u32,
    ) -> Result<(), Errno> {
        while self.map_remove(cx, handle, inode, from, u32::MAX)? == Removed::Restart {
            self.orphan_add(cx, handle, inode)?;
            self.mark_inode_dirty(cx, handle, inode)?;
            handle.restart(cx, credits::TRUNCATE)?;
        }
        Ok(())
    }

    /// Unmaps `from..to` in as many handles as it takes: a hole in the middle of a file.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn punch_blocks(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        from: u32,
        to: u32,
    ) -> Result<(), Errno> {
        let mut handle = self.sb.journal_start(cx, credits::TRUNCATE)?;
        loop {
            let removed = self.map_remove(cx, &mut handle, inode, from, to);
            let tid = handle.tid();
            inode.with(cx, |core| core.datasync_tid = tid);
            self.mark_inode_dirty(cx, &mut handle, inode)?;
            match removed? {
                Removed::All => return handle.stop(cx),
                Removed::Restart => handle.restart(cx, credits::TRUNCATE)?,
            }
        }
    }

    /// The last name of `inode` is gone: the caller has set `links` to 0 (a directory's too) and
    /// holds a handle with `credits::UNLINK`. Frees a small file that nobody has open at once;
    /// makes any other an orphan. The inode is written.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn unlinked(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
    ) -> Result<Deferred, Errno> {
        let (open, simple) = inode.with(cx, |core| {
            let fast = match FileType::from_mode(u32::from(core.mode)) {
                Some(FileType::Regular) => core.blocks <= 128,
                Some(FileType::Directory) => false,
                _ => core.blocks == 0,
            };
            (core.opens > 0, fast && core.file_acl == 0 && !core.orphan.linked())
        });
        let small = simple && (!inode.has_extents(cx) || self.extent_depth(cx, inode) == 0);
        let extents = inode.with(cx, |core| {
            if core.blocks == 0 {
                0
            } else {
                u32::from(u16::from_le_bytes([core.block[2], core.block[3]]))
            }
        });
        let direct = inode.has_extents(cx) || inode.with(cx, |core| core.blocks == 0);
        if !open && small && direct {
            let blocks = extents.min(4) * credits::REMOVE_SMALL;
            let removal = if extents > 0 { credits::REMOVE + blocks } else { 0 };
            let need = removal + credits::NEW_INODE + credits::INODE;
            // Nobody may be in the middle of giving it blocks or attributes. Inside a handle these
            // locks cannot be waited for: whoever holds one makes the inode an orphan.
            if let Some(rwsem) = inode.rwsem.try_write()
                && let Some(writeback) = inode.writeback.try_lock()
                && let Some(xattr) = inode.xattr_lock.try_lock()
                && !crate::attr::xattr::names_values(self, cx, inode)?
                && handle.ensure(cx, need)?
            {
                let done = self.delete_in_handle(cx, handle, inode)?;
                drop((xattr, writeback, rwsem));
                if done {
                    return Ok(Deferred::Nothing);
                }
            }
        }
        self.orphan_add(cx, handle, inode)?;
        self.mark_inode_dirty(cx, handle, inode)?;
        Ok(if open { Deferred::Nothing } else { Deferred::Delete })
    }

    /// Frees a small inode within the caller's handle, under its locks. False where somebody opened
    /// it or gave it attributes meanwhile.
    fn delete_in_handle(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
    ) -> Result<bool, Errno> {
        let mine = inode.with(cx, |core| {
            let mine = core.opens == 0 && !core.dead && core.file_acl == 0;
            core.dead |= mine;
            mine
        });
        if !mine {
            return Ok(false);
        }
        self.drop_pages(cx, inode);
        if inode.with(cx, |core| core.blocks > 0) {
            self.remove_blocks(cx, handle, inode, 0)?;
        }
        self.orphan_del(cx, handle, inode)?;
        self.free_slot(cx, handle, inode)?;
        Ok(true)
    }

    /// Forgets an inode's pages and promises.
    fn drop_pages(&self, cx: &mut Cx, inode: &Inode) {
        if let Some(mapping) = inode.mapping_if_any() {
            let mapping = mapping.clone();
            mapping.set_size(0);
            mapping.discard(cx, 0..u64::MAX);
        }
        self.drop_promises(cx, inode, 0, u32::MAX);
    }

    /// The inode has no blocks any more: writes its slot, and frees its number.
    fn free_slot(&self, cx: &mut Cx, handle: &mut Handle, inode: &Inode) -> Result<(), Errno> {
        let now = self.sb.now(cx).sec as u32;
        let is_dir = inode.with(cx, |core| {
            core.gone = true;
            core.values.dtime = now.max(1);
            core.values.size = 0;
            core.size = 0;
            core.values.links = 0;
            core.mode & 0xf000 == 0x4000
        });
        self.mark_inode_dirty(cx, handle, inode)?;
        let quota = inode.with(cx, |core| {
            core.freed = true;
            core.quota.take()
        });
        drop(quota);
        self.inodes.remove(inode.ino);
        self.free_inode(cx, handle, inode.ino, is_dir)
    }

    /// Second half of [`Ext4::unlinked`], with no handle open.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`. The inode stays an orphan then.
    pub(crate) fn finish_unlink(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        deferred: Deferred,
    ) -> Result<(), Errno> {
        match deferred {
            Deferred::Nothing => Ok(()),
            Deferred::Delete => self.delete_if_unused(cx, inode),
        }
    }

    /// Frees an inode without names that nobody has open. The first who asks does it.
    ///
    /// # Errors
    /// As [`Ext4::finish_unlink`].
    pub(crate) fn delete_if_unused(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        let mine = inode.with(cx, |core| {
            let mine = core.opens == 0 && core.links == 0 && !core.dead;
            core.dead |= mine;
            mine
        });
        if mine { self.delete_inode(cx, inode) } else { Ok(()) }
    }

    /// Frees an inode and all that it has, in as many handles as it takes.
    pub(crate) fn delete_inode(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        inode.with(cx, |core| core.dead = true);
        let rwsem = inode.rwsem.write(cx);
        let writeback = inode.writeback.lock(cx);
        let result = self.delete_locked(cx, inode);
        drop(writeback);
        drop(rwsem);
        result
    }

    fn delete_locked(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        self.drop_pages(cx, inode);
        crate::attr::xattr::release_values(self, cx, inode)?;
        let mut handle = self.sb.journal_start(cx, credits::TRUNCATE)?;
        let has_blocks = inode.with(cx, |core| {
            let kind = FileType::from_mode(u32::from(core.mode));
            let maps = match kind {
                Some(FileType::Regular | FileType::Directory) => true,
                Some(FileType::Symlink) => !core.is_fast_symlink(),
                _ => false,
            };
            maps && core.blocks > 0
        });
        if has_blocks {
            self.remove_blocks(cx, &mut handle, inode, 0)?;
        }
        let need = credits::ORPHAN + credits::INODE + credits::NEW_INODE + credits::GROUP + 2;
        if !handle.ensure(cx, need)? {
            self.mark_inode_dirty(cx, &mut handle, inode)?;
            handle.restart(cx, need)?;
        }
        let mut dropped = crate::attr::xattr::Dropped::default();
        crate::attr::xattr::delete_inode(self, cx, &mut handle, inode, &mut dropped)?;
        self.orphan_del(cx, &mut handle, inode)?;
        self.free_slot(cx, &mut handle, inode)?;
        handle.stop(cx)?;
        dropped.free(self, cx)
    }
}
