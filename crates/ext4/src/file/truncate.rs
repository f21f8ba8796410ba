//! Making files shorter.
//!
//! A huge file may have more blocks than one transaction can free. So the inode is made an orphan
//! with its new size, blocks go from the end in as many handles as it takes, and at last the inode
//! leaves the orphans: a crash in between is finished by the next mount.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::bmap::extents::Removed;
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

impl Inodes {
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
        let mut handle = self.sb.journal_start_tracked(cx, credits::TRUNCATE)?;
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
        self.mark_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)
    }

    /// Unmaps everything from block `from` on; makes the inode an orphan where one handle is not
    /// enough. Afterwards the handle has credits for `ORPHAN` and `INODE` left.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn remove_blocks(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
        from: u32,
    ) -> Result<(), Errno> {
        while self.bmap(inode).map_remove(cx, handle, from..u32::MAX)? == Removed::Restart {
            self.orphan_add(cx, handle, inode)?;
            self.mark_dirty(cx, handle, inode)?;
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
        let mut handle = self.sb.journal_start_tracked(cx, credits::TRUNCATE)?;
        loop {
            let removed = self.bmap(inode).map_remove(cx, &mut handle, from..to);
            let tid = handle.tid();
            inode.with(cx, |core| core.datasync_tid = tid);
            self.mark_dirty(cx, &mut handle, inode)?;
            match removed? {
                Removed::All => return handle.stop(cx),
                Removed::Restart => handle.restart(cx, credits::TRUNCATE)?,
            }
        }
    }
}
