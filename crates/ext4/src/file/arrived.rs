//! Content that has arrived on the device before its blocks are known to hold any
//! ([`dioread_nolock`](crate::MountOptions::dioread_nolock)).
//!
//! Such a mount places dirty pages in unwritten blocks, and no commit waits for data: what a power
//! cut leaves of them reads as zeros. When their content is on the device, a task makes the blocks
//! written ones; fsync and sync do so themselves. Until then
//! [`map_lookup`](crate::bmap::Bmap::map_lookup) answers what they are going to be.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::inode::{Inode, Inodes};

impl Inodes {
    /// True where dirty pages of the file are placed in unwritten blocks.
    pub(crate) fn places_unwritten(&self, cx: &Cx, inode: &Inode) -> bool {
        self.sb.options.dioread_nolock.is_some()
            && inode.has_extents(cx)
            && !inode.journals_data(cx, &self.sb)
    }

    /// Event context: the content of a range of bytes is on the device.
    pub(crate) fn content_arrived(self: &Arc<Inodes>, inode: &Inode, range: Range<u64>) {
        let bits = self.sb.geometry.block_bits;
        let blocks = (range.start >> bits) as u32..range.end.div_ceil(1 << bits) as u32;
        inode.arrived.lock_irq().insert(blocks);
        let fs = self.clone();
        self.arrivals.enter(inode.arc(), move |cx| {
            fs.arrivals.linger(cx, fs.sb.options.dioread_nolock.unwrap_or_default());
            while let Some(inode) = fs.arrivals.next(cx) {
                // The file keeps the error for its next fsync.
                let _latched = fs.mark_arrived(cx, &inode);
            }
        });
    }

    /// Makes written the blocks of a file whose content has arrived. Where that fails their content
    /// is lost, and the file keeps the error. May park.
    ///
    /// # Errors
    /// The journal's; `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn mark_arrived(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        if self.sb.options.dioread_nolock.is_none() {
            return Ok(());
        }
        let mut result = Ok(());
        while result.is_ok() && !inode.arrived.lock(cx).is_empty() {
            result = self.mark_some_arrived(cx, inode);
        }
        if let Err(errno) = result {
            let lost = std::mem::take(&mut *inode.arrived.lock(cx));
            let bits = self.sb.geometry.block_bits;
            for run in lost.iter() {
                let bytes = u64::from(run.start) << bits..u64::from(run.end) << bits;
                inode.mapping().give_up(cx, bytes, errno);
            }
        }
        self.arrivals.leave(cx, inode);
        result
    }

    fn mark_some_arrived(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let mut handle = self.sb.journal_start_tracked(cx, self.bmap(inode).map_credits(cx))?;
        let marked = self.bmap(inode).map_arrived(cx, &mut handle);
        if marked != Ok(false) {
            self.mark_dirty(cx, &mut handle, inode)?;
        }
        handle.stop(cx)?;
        marked.map(drop)
    }

    /// Writes out what is dirty of all files. May park.
    ///
    /// # Errors
    /// The first one.
    pub(crate) fn write_all_content(&self, cx: &mut Cx) -> Result<(), Errno> {
        let mut result = self.backing.sync(cx);
        for inode in self.arrivals.all(cx) {
            result = result.and(self.mark_arrived(cx, &inode));
        }
        result
    }
}
