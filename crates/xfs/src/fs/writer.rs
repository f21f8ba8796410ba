//! What a mount for writing has: the log, the free space, the inodes, the quota.

use std::sync::Arc;

use rt::Cx;

use crate::alloc::{BlockReservation, Space};
use crate::error::Result;
use crate::ialloc::Inodes;
use crate::log::Log;
use crate::quota::Quota;
use crate::sb;

/// The parts that change a file system.
pub(crate) struct WriteSide {
    pub log: Arc<Log>,
    pub space: Arc<Space>,
    pub inodes: Arc<Inodes>,
    /// None where nothing is counted.
    pub quota: Option<Arc<Quota>>,
}

impl WriteSide {
    /// Leaves the file system clean: counters into the superblock, everything to its place, an
    /// unmount record. After a shutdown nothing is written. May park.
    ///
    /// # Errors
    /// The first error of a write.
    pub fn close(self, cx: &mut Cx) -> Result<()> {
        self.finish(cx)
    }

    /// As [`WriteSide::close`], for a mount that others may still hold.
    pub fn finish(&self, cx: &mut Cx) -> Result<()> {
        let tidied = self.log.check().and_then(|()| self.space.recover_cow(cx));
        let written = tidied.and_then(|_| write_super(cx, self));
        let ended = self.log.unmount(cx);
        // The finisher holds the log.
        self.log.clear_finisher();
        written.and(ended)
    }

    /// Lets everything go without writing. May park.
    pub fn abandon(self, cx: &mut Cx) {
        self.log.clear_finisher();
        self.log.abandon(cx);
    }
}

/// What a change of names takes inodes and blocks from.
pub(crate) struct Resources<'a> {
    pub writer: &'a WriteSide,
    pub reserved: BlockReservation,
}

/// Writes the counters of the superblock, for a log that is clean then: in a running file system
/// that is done at unmount only.
///
/// # Errors
/// A group's header that fails a check; the device failed.
pub(crate) fn write_super(cx: &mut Cx, writer: &WriteSide) -> Result<()> {
    let WriteSide { space, inodes, .. } = writer;
    let [count, free] = inodes.count_all(cx)?;
    let blocks = space.count_free(cx)?;
    let realtime = space.realtime().map(|realtime| realtime.available());
    sb::edit(cx, space, |raw| {
        raw.sb_icount.set(count);
        raw.sb_ifree.set(free);
        raw.sb_fdblocks.set(blocks);
        if let Some(extents) = realtime {
            raw.sb_frextents.set(extents);
        }
        // A clean log holds nothing that anybody had to know.
        raw.sb_features_log_incompat.set(0);
    })
}
