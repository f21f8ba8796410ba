//! Direct I/O on regular files.
//!
//! ```text
//! overwrite             the device, and nothing else
//! hole or unwritten     blocks in the unwritten state -> the device -> a handle makes them written
//! growing, parts of a   the page cache, written out at once
//! block, no extents
//! ```
//!
//! A cut between the second and the third step leaves unwritten blocks, which read as zeros: never
//! what was on the disk before.

use base::{Errno, FsBlock};
use cache::Piece;
use rt::Cx;

use crate::Ext4;
use crate::inode::Inode;
use crate::map::{Create, State};
use crate::mballoc::Purpose;

impl Ext4 {
    /// Reads past the page cache.
    ///
    /// # Errors
    /// As [`Ext4::read_file`]; `EINVAL` not aligned.
    pub(crate) fn read_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        let guard = self.begin_read(cx, inode)?;
        let result = if self.data_in_buffers(cx, inode) {
            vfs::direct::check(inode.mapping(), offset, buf.len() as u64)
                .and_then(|()| inode.mapping().read(cx, offset, buf))
        } else {
            vfs::direct::read(cx, inode.mapping(), offset, buf)
        };
        drop(guard);
        result
    }

    /// Writes past the page cache, as far as the module's table says.
    ///
    /// # Errors
    /// As [`Ext4::write_file`]; `EINVAL` not aligned.
    pub(crate) fn write_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let guard = self.begin_write(cx, inode)?;
        let limit = inode.with(cx, |core| core.size_limit(&self.geometry));
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > limit) {
            return Err(Errno::EFBIG);
        }
        let mapping = inode.mapping().clone();
        let result = if self.data_in_buffers(cx, inode) {
            self.write_around_journal(cx, &mapping, offset, data)
        } else {
            vfs::direct::write(cx, &mapping, offset, data)
        };
        self.stamp_times(cx, inode);
        inode.with(cx, |core| core.size = mapping.size());
        let written = self.write_inode(cx, inode);
        drop(guard);
        result.and_then(|done| written.map(|()| done))
    }

    /// Where whole blocks from `off` on can be written directly: blocks that there are, or that are
    /// given now. `None` where the page cache has to do it. The inode is locked for writing, and
    /// none of its pages in the range is dirty.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn map_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        off: u64,
        len: u64,
    ) -> Result<Option<Piece>, Errno> {
        if !inode.has_extents(cx) {
            return Ok(None);
        }
        let bits = self.geometry.block_bits;
        let lblk = u32::try_from(off >> bits).map_err(|_| Errno::EFBIG)?;
        let to = u32::try_from((off + len) >> bits).map_err(|_| Errno::EFBIG)?;
        let mut mapped = self.map_lookup(cx, inode, lblk, to - lblk)?;
        if mapped.state == State::Hole {
            let writeback = inode.writeback.lock(cx);
            let given = self.preallocate_step(cx, inode, lblk, lblk + mapped.len);
            drop(writeback);
            match given {
                Ok(end) => mapped = self.map_lookup(cx, inode, lblk, end - lblk)?,
                // The page cache knows how to wait for space.
                Err(Errno::ENOSPC) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        let sector = FsBlock(mapped.pblk).sector(self.geometry.block_size);
        let piece = Piece { off, len: u64::from(mapped.len) << bits, sector: Some(sector) };
        Ok(Some(piece).filter(|_| mapped.state != State::Hole))
    }

    /// Makes written what is unwritten of a range of whole blocks.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`, `ENOSPC` (a block of the tree).
    pub(crate) fn direct_written(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        off: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let bits = self.geometry.block_bits;
        let (mut at, to) = ((off >> bits) as u32, ((off + len) >> bits) as u32);
        let mut retries = 0;
        while at < to {
            let mapped = self.map_lookup(cx, inode, at, to - at)?;
            if mapped.state == State::Unwritten {
                let need = self.map_credits(cx, inode);
                let mut handle = self.journal_start(cx, need)?;
                let create = Create { purpose: Purpose::Data, unwritten: false };
                let made = self.map_create(cx, &mut handle, inode, at, mapped.len, create);
                let tid = handle.tid();
                inode.with(cx, |core| core.datasync_tid = tid);
                self.mark_inode_dirty(cx, &mut handle, inode)?;
                handle.stop(cx)?;
                match made {
                    Ok((made, _)) => at += made.len,
                    Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                    Err(errno) => return Err(errno),
                }
            } else {
                at += mapped.len;
            }
        }
        Ok(())
    }
}
