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
use jbd2::JournalMode;
use rt::Cx;

use crate::Ext4;
use crate::bmap::map::Mapped;
use crate::format::InodeFlags;
use crate::inode::Inode;
use crate::trans::ext4_jbd2::Handle;

/// Blocks of data that one handle takes: a quarter of what the smallest journal lets a transaction
/// have.
pub(crate) const BLOCKS_MAX: u32 = 64;

impl Ext4 {
    /// Whether the data of this file goes through the journal. Never changes for an inode.
    pub(crate) fn journals_data(&self, cx: &Cx, inode: &Inode) -> bool {
        if self.sb.journal().is_none() || !inode.is_regular(cx) {
            return false;
        }
        self.sb.options.data_mode == JournalMode::Data
            || inode.with(cx, |core| core.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// Whether blocks of this inode may stand in the log, so that freeing them revokes them:
    /// everything but the data of most regular files.
    pub(crate) fn logs_content(&self, cx: &Cx, inode: &Inode) -> bool {
        !inode.is_regular(cx)
            || inode.with(cx, |core| core.is_value())
            || self.journals_data(cx, inode)
    }

    /// Whether the buffers may have newer data of this file than the device: a transaction has, or
    /// a log that a read-only mount replayed in memory.
    pub(crate) fn data_in_buffers(&self, cx: &Cx, inode: &Inode) -> bool {
        self.journals_data(cx, inode) || self.sb.recovery().is_some_and(|report| report.in_memory)
    }

    /// The blocks of `part` that the buffers have.
    pub(crate) fn newer_blocks(&self, cx: &Cx, inode: &Inode, part: &Iomap) -> InMemory {
        let mut found = InMemory::new();
        let Some(sector) = part.content().filter(|_| self.data_in_buffers(cx, inode)) else {
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
