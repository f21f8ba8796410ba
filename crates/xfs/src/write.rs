//! Writing files: through the page cache, and past it.
//!
//! ```text
//! buffered        promise -> pages
//! direct          blocks in the unwritten state -> the device -> a transaction marks them
//! direct, growing through the pages, written out at once
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use cache::Piece;
use rt::{Cx, WriteGuard};

use crate::Xfs;
use crate::bmap::Which;
use crate::inode::Inode;

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

impl Xfs {
    /// Locks a file for a change of its content.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` not a regular file, `ESTALE` freed meanwhile; `EROFS`, `EIO` the mount
    /// takes no changes.
    pub(crate) fn begin_write<'i>(
        &self,
        cx: &mut Cx,
        inode: &'i Inode,
    ) -> Result<WriteGuard<'i, ()>, Errno> {
        inode.kind(cx).check_regular()?;
        self.writer()?;
        inode.lock_alone(cx)
    }

    /// Writes file data into the page cache.
    ///
    /// # Errors
    /// As [`Xfs::begin_write`]; `EFBIG`, `ENOSPC`, `EUCLEAN`.
    pub(crate) fn write_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let guard = self.begin_write(cx, inode)?;
        let result = self.write_locked(cx, inode, offset, data);
        drop(guard);
        result
    }

    /// Writes at the end of a file; answers where that was.
    ///
    /// # Errors
    /// As [`Xfs::write_file`].
    pub(crate) fn append_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        data: &[u8],
    ) -> Result<(u64, usize), Errno> {
        let guard = self.begin_write(cx, inode)?;
        let start = inode.size(cx);
        let result = self.write_locked(cx, inode, start, data);
        drop(guard);
        result.map(|count| (start, count))
    }

    /// As [`Xfs::write_file`], under the lock.
    fn write_locked(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let room = SIZE_MAX.saturating_sub(offset).min(usize::MAX as u64) as usize;
        if room == 0 && !data.is_empty() || offset > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let data = &data[..data.len().min(room)];
        if data.is_empty() {
            return Ok(0);
        }
        self.clear_gap(cx, inode, offset)?;
        // Before the pages are dirty, so that whoever writes them out sees it.
        self.stamp_times(cx, inode);
        let mapping = inode.mapping(cx).clone();
        let (mut done, mut result) = (0, Ok(()));
        for chunk in data.chunks(1 << 20) {
            result = mapping.write(cx, offset + done as u64, chunk);
            if result == Err(Errno::ENOSPC) {
                self.make_room(cx);
                // The last blocks of a full disk are filled one by one.
                for piece in chunk.chunks(self.geometry().block_size as usize) {
                    result = mapping.write(cx, offset + done as u64, piece);
                    if result.is_err() {
                        break;
                    }
                    done += piece.len();
                }
            } else if result.is_ok() {
                done += chunk.len();
            }
            if result.is_err() {
                break;
            }
        }
        if done > 0 { Ok(done) } else { result.map(|()| 0) }
    }

    /// The content changes now; the times go to the disk with the data.
    pub(crate) fn stamp_times(&self, cx: &Cx, inode: &Inode) {
        let now = cx.realtime();
        inode.with(cx, |state| (state.core.mtime, state.core.ctime) = (now, now));
        inode.io.lock(cx).times_dirty = true;
    }

    /// Takes away what lies between the end of the file and `offset` and is marked as written: a
    /// crash in the middle of a truncation, or another implementation, may have left old content
    /// there.
    pub(crate) fn clear_gap(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
    ) -> Result<(), Errno> {
        let bits = self.geometry().block_bits;
        let (from, to) = (inode.size(cx).div_ceil(1 << bits), offset >> bits);
        if from >= to {
            return Ok(());
        }
        let old = inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= from);
            list[first..].iter().take_while(|extent| extent.offset < to).any(|e| !e.unwritten)
        });
        match old.map_err(|fault| self.fault(fault))? {
            true => self.unmap_range(cx, inode, from..to),
            false => Ok(()),
        }
    }

    /// At the end of the mount: writes everything out, and gives back what files hold ahead of
    /// need.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn close_content(&self, cx: &mut Cx) -> Result<(), Errno> {
        let result = self.sync_content(cx);
        self.backing.shutdown(cx);
        self.trim_all(cx);
        result
    }

    /// Gives back what files hold ahead of need, and what promises hold for the worst case.
    fn make_room(&self, cx: &mut Cx) {
        self.trim_all(cx);
        // Errors stay with the files that have them.
        let _ = self.backing.sync(cx);
    }

    fn trim_all(&self, cx: &mut Cx) {
        let ahead = std::mem::take(&mut *self.ahead.lock(cx));
        for ino in ahead {
            if let Some(inode) = self.inodes.find(ino)
                && let Some(guard) = inode.rwsem.try_write()
            {
                // Whoever wants the space is told if it is not enough.
                let _ = self.trim_ahead(cx, &inode);
                drop(guard);
            } else {
                self.ahead.lock(cx).insert(ino);
            }
        }
    }

    /// Writes past the page cache, as far as the module's table says.
    ///
    /// # Errors
    /// As [`Xfs::write_file`]; `EINVAL` not aligned.
    pub(crate) fn write_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let guard = self.begin_write(cx, inode)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        self.finisher.learn(cx);
        self.clear_gap(cx, inode, offset)?;
        let mapping = inode.mapping(cx).clone();
        let result = vfs::direct::write(cx, &mapping, offset, data);
        self.stamp_times(cx, inode);
        inode.io.lock(cx).unflushed = true;
        self.finisher.unflushed.store(true, Ordering::Release);
        let logged = self.log_times(cx, inode);
        drop(guard);
        result.and_then(|done| logged.map(|()| done))
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
        inode: &Arc<Inode>,
        off: u64,
        len: u64,
    ) -> Result<Option<Piece>, Errno> {
        let bits = self.geometry().block_bits;
        let (block, end) = (off >> bits, (off + len) >> bits);
        match self.stage(cx, inode, block..end) {
            Err(Errno::ENOSPC) => return Ok(None),
            staged => staged?,
        }
        let mut mapped = self.map_file(cx, inode, block, end - block)?;
        let staged = inode.staged.lock(cx).lookup(block, mapped.count);
        mapped.count = staged.count;
        mapped.start = staged.start.or(mapped.start);
        if mapped.start.is_none() {
            match self.preallocate_step(cx, inode, block, block + mapped.count) {
                Ok(upto) => mapped = self.map_file(cx, inode, block, upto - block)?,
                // The page cache knows how to make room.
                Err(Errno::ENOSPC) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        let sector = mapped.start.map(|start| self.geometry().sector(start));
        Ok(sector.map(|sector| Piece { off, len: mapped.count << bits, sector: Some(sector) }))
    }

    /// Marks a range of whole blocks as written.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn direct_written(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        off: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let bits = self.geometry().block_bits;
        let blocks = off >> bits..(off + len) >> bits;
        let unwritten = inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= blocks.start);
            list[first..].iter().take_while(|e| e.offset < blocks.end).any(|e| e.unwritten)
        });
        let staged = inode.staged.lock(cx).touches(blocks.clone());
        if unwritten.map_err(|fault| self.fault(fault))? || staged {
            inode.io.lock(cx).direct_done(blocks);
            self.finish_io(cx, inode, false)?;
        }
        Ok(())
    }
}
