//! data=journal: file data as part of transactions, like metadata.
//!
//! ```text
//! writepages: dirty folios -> map or allocate -> buffers of the handle -> commit -> checkpoint
//! read:       the folio, else the buffer that the journal holds, else the device
//! free:       blocks are revoked, since the log may hold older content of them
//! ```
//!
//! So the data and the size that makes it visible become durable in one step, and `fsync` is a
//! commit. A file's data goes this way where the mount says so, and where the file's own flag does
//! (`chattr +j`).
//!
//! Direct I/O on such files goes through the page cache, as on Linux: a write past the journal
//! could be overwritten by an older copy when the log is replayed.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Page};
use cache::{InMemory, Iomap, Mapping, TakenBlocks, WritebackControl};
use rt::Cx;

use crate::bmap::map::Mapped;
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

/// Blocks of data that one handle takes: a quarter of what the smallest journal lets a transaction
/// have.
pub(crate) const BLOCKS_MAX: u32 = 64;

impl Inodes {
    /// The blocks of `part` that the buffers have.
    pub(crate) fn newer_blocks(&self, cx: &Cx, inode: &Inode, part: &Iomap) -> InMemory {
        let mut found = InMemory::new();
        let Some(sector) = part.content().filter(|_| inode.data_in_buffers(cx, &self.sb)) else {
            return found;
        };
        let block_size = u64::from(self.sb.geometry.block_size);
        let first = sector.0 / (block_size / SECTOR_SIZE);
        for n in 0..part.len.div_ceil(block_size) {
            if let Some(buffer) = self.sb.buffers.find(cx, first + n)
                && buffer.uptodate()
            {
                found.push((part.offset + n * block_size, buffer.page()));
            }
        }
        found
    }

    /// Puts the dirty blocks of a run into the handle's transaction: a credit for each.
    ///
    /// # Errors
    /// The journal's errno once it has aborted; the data counts as lost then, as after a failed
    /// write.
    pub(crate) fn journal_run(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
        run: &Mapped,
    ) -> Result<(), Errno> {
        let bits = self.sb.geometry.block_bits;
        let mut at = u64::from(run.lblk) << bits;
        let end = u64::from(run.lblk + run.len) << bits;
        while at < end
            && let Some(taken) = mapping.take_blocks(cx, wb, at, end - at)
        {
            at = taken.range().end;
            let result = self.journal_blocks(cx, handle, run, &taken);
            taken.end(result);
            result?;
        }
        Ok(())
    }

    fn journal_blocks(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        run: &Mapped,
        taken: &TakenBlocks,
    ) -> Result<(), Errno> {
        let block_size = self.sb.geometry.block_size as usize;
        let lblk = (taken.range().start >> self.sb.geometry.block_bits) as u32;
        let mut block = run.pblk + u64::from(lblk - run.lblk);
        for seg in taken.segments() {
            for bytes in seg.bytes().chunks(block_size) {
                let buffer = self.sb.buffers.get(cx, block);
                handle.create_access(cx, &buffer)?;
                let whole = seg.offset == 0 && seg.page.len() == block_size;
                // A page of the right size is shared: who writes to the file gets a copy.
                buffer.replace(if whole { seg.page.clone() } else { Page::from_slice(bytes) });
                buffer.set_trigger(None);
                handle.dirty(cx, &buffer)?;
                block += 1;
            }
        }
        Ok(())
    }
}
