//! Frees an inode with its blocks and attributes when its last name is gone and nobody has it open.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::FileType;

use crate::attr::xattr;
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// What [`unlinked`] has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deferred {
    /// Nothing: the inode is free, or somebody has it open.
    Nothing,
    /// [`finish_unlink`] frees it when the handle has ended.
    Delete,
}

/// The last name of `inode` is gone: the caller has set `links` to 0 (a directory's too) and
/// holds a handle with `credits::UNLINK`. Frees a small file that nobody has open at once;
/// makes any other an orphan. The inode is written.
///
/// # Errors
/// `EIO`, `EUCLEAN`.
pub(crate) fn unlinked(
    fs: &Inodes,
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
    let small = simple && (!inode.has_extents(cx) || fs.bmap(inode).extent_depth(cx) == 0);
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
            && !xattr::names_values(fs, cx, inode)?
            && handle.ensure(cx, need)?
        {
            let done = delete_in_handle(fs, cx, handle, inode)?;
            drop((xattr, writeback, rwsem));
            if done {
                return Ok(Deferred::Nothing);
            }
        }
    }
    fs.orphan_add(cx, handle, inode)?;
    fs.mark_dirty(cx, handle, inode)?;
    Ok(if open { Deferred::Nothing } else { Deferred::Delete })
}

/// Frees a small inode within the caller's handle, under its locks. False where somebody opened
/// it or gave it attributes meanwhile.
fn delete_in_handle(
    fs: &Inodes,
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
    drop_pages(fs, cx, inode);
    // Into the list of orphans, out of it, and written in between and at its eviction.
    fs.legacy_slot(cx, inode.ino, 4)?;
    if inode.with(cx, |core| core.blocks > 0) {
        fs.remove_blocks(cx, handle, inode, 0)?;
    }
    fs.orphan_del(cx, handle, inode)?;
    free_slot(fs, cx, handle, inode)?;
    Ok(true)
}

/// Forgets an inode's pages and what is reserved for them.
fn drop_pages(fs: &Inodes, cx: &mut Cx, inode: &Inode) {
    if let Some(mapping) = inode.mapping_if_any() {
        let mapping = mapping.clone();
        mapping.set_size(0);
        mapping.discard(cx, 0..u64::MAX);
    }
    inode.release_delayed(cx, &fs.alloc, 0, u32::MAX);
}

/// The inode has no blocks any more: writes its slot, and frees its number.
fn free_slot(fs: &Inodes, cx: &mut Cx, handle: &mut Handle, inode: &Inode) -> Result<(), Errno> {
    let now = fs.sb.now(cx).sec as u32;
    let is_dir = inode.with(cx, |core| {
        core.gone = true;
        core.values.dtime = now.max(1);
        core.values.size = 0;
        core.size = 0;
        core.values.links = 0;
        core.mode & 0xf000 == 0x4000
    });
    fs.mark_dirty(cx, handle, inode)?;
    let quota = inode.with(cx, |core| {
        core.freed = true;
        core.quota.take()
    });
    drop(quota);
    fs.cache.remove(inode.ino);
    if let Some(tracker) = fs.fast_tracker() {
        tracker.track_freed(cx, handle, inode.ino);
    }
    fs.ialloc.free_inode(cx, handle, inode.ino, is_dir)
}

/// Second half of [`unlinked`], with no handle open.
///
/// # Errors
/// `EIO`, `EUCLEAN`. The inode stays an orphan then.
pub(crate) fn finish_unlink(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    deferred: Deferred,
) -> Result<(), Errno> {
    match deferred {
        Deferred::Nothing => Ok(()),
        Deferred::Delete => delete_if_unused(fs, cx, inode),
    }
}

/// Frees an inode without names that nobody has open. The first who asks does it.
///
/// # Errors
/// As [`finish_unlink`].
pub(crate) fn delete_if_unused(fs: &Inodes, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    let mine = inode.with(cx, |core| {
        let mine = core.opens == 0 && core.links == 0 && !core.dead;
        core.dead |= mine;
        mine
    });
    if mine { delete_inode(fs, cx, inode) } else { Ok(()) }
}

/// Frees an inode and all that it has, in as many handles as it takes.
pub(crate) fn delete_inode(fs: &Inodes, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    inode.with(cx, |core| core.dead = true);
    let rwsem = inode.rwsem.write(cx);
    let writeback = inode.writeback.lock(cx);
    let result = delete_locked(fs, cx, inode);
    drop(writeback);
    drop(rwsem);
    result
}

fn delete_locked(fs: &Inodes, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    drop_pages(fs, cx, inode);
    xattr::release_values(fs, cx, inode)?;
    let mut handle = fs.sb.journal_start_tracked(cx, credits::TRUNCATE)?;
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
        fs.remove_blocks(cx, &mut handle, inode, 0)?;
    }
    let need = credits::ORPHAN + credits::INODE + credits::NEW_INODE + credits::GROUP + 2;
    if !handle.ensure(cx, need)? {
        fs.mark_dirty(cx, &mut handle, inode)?;
        handle.restart(cx, need)?;
    }
    let mut dropped = xattr::Dropped::default();
    let mut edit = xattr::Edit { fs, handle: &mut handle, inode, dropped: &mut dropped };
    xattr::delete_inode(&mut edit, cx)?;
    fs.orphan_del(cx, &mut handle, inode)?;
    free_slot(fs, cx, &mut handle, inode)?;
    handle.stop(cx)?;
    dropped.free(fs, cx)
}
