//! What a mount for writing has: the log, the free space, the inodes; and the one way to run a
//! transaction.

use std::sync::Arc;

use rt::Cx;

use crate::alloc::Space;
use crate::buf::BufOps;
use crate::error::Result;
use crate::format::{AgHeader, Kind, RawSuper};
use crate::ialloc::Inodes;
use crate::log::Log;
use crate::quota::Quota;
use crate::trans::{Trans, reservations};

static SUPER: BufOps =
    BufOps { name: "superblock", kinds: &[Kind::Super], check: None, unmapped: false };

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

/// Blocks that were set aside for a change; what it did not take goes back when it is dropped.
pub(crate) struct BlockReservation {
    space: Arc<Space>,
    left: u64,
}

impl BlockReservation {
    /// Sets blocks aside.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace).
    pub fn new(space: &Arc<Space>, blocks: u64) -> Result<BlockReservation> {
        if blocks > 0 {
            space.reserve(blocks)?;
        }
        Ok(BlockReservation { space: space.clone(), left: blocks })
    }

    /// Blocks that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// So many of them were allocated.
    pub fn take(&mut self, blocks: u64) {
        self.left = self.left.checked_sub(blocks).expect("no more than was set aside");
    }
}

/// What a change of names takes inodes and blocks from.
pub(crate) struct Resources<'a> {
    pub writer: &'a WriteSide,
    pub reserved: BlockReservation,
}

impl Drop for BlockReservation {
    fn drop(&mut self) {
        self.space.give_back(self.left);
    }
}

/// Writes the counters of the superblock: in a running file system that is done at unmount only.
///
/// # Errors
/// A group's header that fails a check; the device failed.
pub(crate) fn write_super(cx: &mut Cx, writer: &WriteSide) -> Result<()> {
    let WriteSide { space, inodes, .. } = writer;
    let [count, free] = inodes.count_all(cx)?;
    let blocks = space.count_free(cx)?;
    edit_super(cx, space, |raw| {
        raw.sb_icount.set(count);
        raw.sb_ifree.set(free);
        raw.sb_fdblocks.set(blocks);
    })
}

/// The superblock as it is now. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn read_super(cx: &mut Cx, space: &Space) -> Result<RawSuper> {
    let map = space.header_map(0, AgHeader::Super);
    let buf = space.log.bufs().read(cx, &[map], &SUPER)?;
    Ok(buf.with(|bytes| *RawSuper::view(bytes).expect("a sector holds a superblock")))
}

/// Changes the superblock in a transaction of its own. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn edit_super(
    cx: &mut Cx,
    space: &Space,
    change: impl FnOnce(&mut RawSuper),
) -> Result<()> {
    let mut trans = Trans::alloc(cx, &space.log, reservations::superblock(&space.geometry))?;
    log_super(cx, &mut trans, space, change)?;
    trans.commit(cx)?;
    Ok(())
}

/// Changes the superblock as part of a transaction. May park.
///
/// # Errors
/// A check of it; the device failed.
pub(crate) fn log_super(
    cx: &mut Cx,
    trans: &mut Trans,
    space: &Space,
    change: impl FnOnce(&mut RawSuper),
) -> Result<()> {
    let buf = trans.read_buf(cx, &[space.header_map(0, AgHeader::Super)], &SUPER)?;
    buf.with_mut(|bytes| {
        change(RawSuper::view_mut(bytes).expect("a sector holds a superblock"));
    });
    trans.log_buf(&buf, 0, size_of::<RawSuper>() - 1);
    Ok(())
}
