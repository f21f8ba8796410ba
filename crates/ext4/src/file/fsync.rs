//! Making things durable: fsync and sync; and what statfs reports.

use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;
use vfs::{FileType, StatFs};

use crate::Ext4;
use crate::inode::Inode;

impl Ext4 {
    /// Returns when the inode survives a power cut: its data are written, then its transaction
    /// commits, shared with all who wait for the same. Where that has happened already only the
    /// device's cache is flushed.
    ///
    /// # Errors
    /// An earlier or present write error, the journal's errno once it has aborted.
    pub(crate) fn fsync_inode(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        datasync: bool,
    ) -> Result<(), Errno> {
        self.sb.check_alive()?;
        if self.sb.options.read_only {
            return Ok(());
        }
        let mut result = Ok(());
        if let Some(mapping) = inode.mapping_if_any() {
            let mapping = mapping.clone();
            let mut mark = *inode.error_mark.lock(cx);
            result = mapping.fsync(cx, &mut mark);
            *inode.error_mark.lock(cx) = mark;
        }
        if !datasync && inode.with(cx, |core| core.times_dirty && !core.dead) {
            self.write_inode(cx, inode)?;
        }
        // The names of a directory are its data.
        let datasync = datasync && inode.kind(cx) != FileType::Directory;
        let tid = inode.with(cx, |core| if datasync { core.datasync_tid } else { core.tid });
        result.and(self.sb.make_durable(cx, tid))
    }

    /// Returns when everything done before survives a power cut.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn sync_all(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.sb.check_alive()?;
        if self.sb.options.read_only {
            return Ok(());
        }
        let mut result = self.backing.sync(cx);
        if !self.sb.has_error() {
            result = result.and(self.release_unused_ids(cx));
        }
        let tid = self.sb.journal().and_then(|journal| journal.running_tid());
        let durable = match (tid, self.sb.journal()) {
            (None, Some(journal)) => {
                // A commit may be under way; nothing is behind it.
                let journal = journal.clone();
                journal.force_commit(cx).and_then(|()| self.sb.flush_device(cx))
            }
            _ => self.sb.make_durable(cx, tid),
        };
        result.and(durable)
    }

    /// Sizes and free space.
    pub(crate) fn stat_fs(&self, _cx: &Cx) -> Result<StatFs, Errno> {
        self.sb.check_alive()?;
        let promised = self.alloc.counters.reserved.load(Ordering::Relaxed);
        let free =
            (self.alloc.counters.free_blocks.load(Ordering::Relaxed) - promised).max(0) as u64;
        let reserved = self.alloc.counters.root_blocks.load(Ordering::Relaxed).max(0) as u64;
        let uuid = &self.sb.geometry.uuid;
        let half = |from: usize| {
            u64::from_le_bytes(uuid[from..from + 8].try_into().expect("eight of sixteen bytes"))
        };
        Ok(StatFs {
            block_size: self.sb.geometry.block_size,
            blocks: self.sb.geometry.blocks_count.saturating_sub(self.overhead_blocks()),
            blocks_free: free,
            blocks_available: free.saturating_sub(reserved),
            inodes: u64::from(self.sb.geometry.inodes_count),
            inodes_free: self.alloc.counters.free_inodes.load(Ordering::Relaxed).max(0) as u64,
            name_max: 255,
            fsid: half(0) ^ half(8),
        })
    }
}
