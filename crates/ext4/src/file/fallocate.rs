//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::bmap::map::{Create, State};
use crate::inode::{Inode, Inodes};

impl Inodes {
    /// Makes `bytes` a hole. The inode is locked for writing.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn punch_hole(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        let bits = self.sb.geometry.block_bits;
        let from = self.blocks_of(bytes.start);
        let to = (bytes.end >> bits).min(u64::from(u32::MAX)) as u32;
        let mapping = inode.mapping();
        let writeback = inode.writeback.lock(cx);
        let mut result = mapping.punch(cx, bytes);
        if from < to && result.is_ok() {
            inode.release_delayed(cx, &self.alloc, from, to);
            result = self.punch_blocks(cx, inode, from, to);
            mapping.discard(cx, u64::from(from) << bits..u64::from(to) << bits);
        }
        drop(writeback);
        result
    }

    /// Gives `bytes` blocks that read as zeros. The inode is locked for writing.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn preallocate(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        // Afterwards no delayed block lies in the range.
        inode.mapping().flush(cx, bytes.clone())?;
        let mut at = (bytes.start >> self.sb.geometry.block_bits) as u32;
        let (to, mut retries) = (self.blocks_of(bytes.end), 0);
        while at < to {
            let writeback = inode.writeback.lock(cx);
            let step = self.preallocate_step(cx, inode, at, to);
            drop(writeback);
            match step {
                Ok(next) => at = next,
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Gives unwritten blocks to the first hole at or behind `at`: the block to go on with.
    pub(crate) fn preallocate_step(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        at: u32,
        to: u32,
    ) -> Result<u32, Errno> {
        let mapped = self.bmap(inode).map_lookup(cx, at, to - at)?;
        if mapped.state != State::Hole {
            return Ok(at + mapped.len);
        }
        // What is free is asked for once for each run: blocks reserved for others stay theirs.
        let free = self.alloc.unreserved_blocks().max(0) as u64;
        let len = u64::from(mapped.len).min(free).min(32767) as u32;
        if len == 0 {
            return Err(Errno::ENOSPC);
        }
        let need = self.bmap(inode).map_credits(cx);
        let mut handle = self.sb.journal_start(cx, need)?;
        let created = self.bmap(inode).map_create(cx, &mut handle, at, len, Create::unwritten());
        self.mark_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)?;
        created.map(|(mapped, _)| at + mapped.len)
    }

    /// Content and inode changed now: writes the inode.
    pub(crate) fn touch(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            // Pages that would have carried the size to the disk may be gone.
            core.values.size = core.size;
            core.mtime = now;
            core.ctime = now;
        });
        self.write_inode(cx, inode)
    }
}
