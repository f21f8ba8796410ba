//! What a mount for writing has: the log, the free space, the inodes; and the one way to run a
//! transaction.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::alloc::Space;
use crate::error::{Result, XfsError};
use crate::fault::Fault;
use crate::ialloc::Inodes;
use crate::log::Log;
use crate::trans::{Reservation, Trans};
use crate::{Xfs, replay};

/// The parts that change a file system.
pub(crate) struct WriteSide {
    pub log: Arc<Log>,
    pub space: Arc<Space>,
    pub inodes: Arc<Inodes>,
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
        let tidied = self.log.check().and_then(|()| self.space.free_staged(cx));
        let written = tidied.and_then(|_| replay::write_super(cx, self));
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
pub(crate) struct Reserved {
    space: Arc<Space>,
    left: u64,
}

impl Reserved {
    /// Sets blocks aside.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`].
    pub fn new(space: &Arc<Space>, blocks: u64) -> Result<Reserved> {
        if blocks > 0 {
            space.reserve(blocks)?;
        }
        Ok(Reserved { space: space.clone(), left: blocks })
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

impl Drop for Reserved {
    fn drop(&mut self) {
        self.space.give_back(self.left);
    }
}

impl Xfs {
    /// The parts that change the file system.
    ///
    /// # Errors
    /// `EROFS` on a read-only mount; `EIO` after unmount or shutdown.
    pub(crate) fn writer(&self) -> std::result::Result<&WriteSide, Errno> {
        self.check_alive()?;
        let writer = self.write.as_ref().ok_or(Errno::EROFS)?;
        match writer.log.shut_down() {
            Some(_) => Err(Errno::EIO),
            None => Ok(writer),
        }
    }

    /// Runs a transaction: space in the log, `body`, commit. Where `body` fails and has changed
    /// something the file system is shut down, because the change is in the buffers; so a body
    /// finds out first what can go wrong. May park. The caller holds the locks of the inodes that
    /// `body` logs, over the end of this call.
    ///
    /// # Errors
    /// The answer of `body`; `EROFS`, `EIO`.
    pub(crate) fn transact<R>(
        &self,
        cx: &mut Cx,
        reservation: Reservation,
        body: impl FnOnce(&mut Cx, &mut Trans) -> Result<R>,
    ) -> std::result::Result<R, Errno> {
        let writer = self.writer()?;
        let run = |cx: &mut Cx| {
            let mut trans = Trans::alloc(cx, &writer.log, reservation)?;
            match body(cx, &mut trans) {
                Ok(value) => {
                    let seq = trans.commit(cx)?;
                    if self.synchronous {
                        writer.log.force_seq(cx, seq)?;
                    }
                    Ok(value)
                }
                Err(error) => {
                    // What allocation put in order on the way stands for itself.
                    match trans.is_dirty() && !trans.has_substance() {
                        true => drop(trans.commit(cx)?),
                        false => trans.cancel(),
                    }
                    Err(error)
                }
            }
        };
        run(cx).map_err(|error| self.fail(error))
    }

    /// Takes note of an error and gives the errno for the caller.
    pub(crate) fn fail(&self, error: XfsError) -> Errno {
        match error {
            XfsError::Device(error) => self.fault(Fault::Device(error)),
            XfsError::Corrupt(corrupt) => self.fault(Fault::Corrupt(corrupt)),
            XfsError::NoSpace | XfsError::Answer(_) => error.to_errno(),
            other => {
                self.note_error(other.to_string());
                other.to_errno()
            }
        }
    }

    /// Makes durable everything that was done to an inode. May park.
    ///
    /// # Errors
    /// The log could not be written.
    pub(crate) fn force_inode(
        &self,
        cx: &mut Cx,
        inode: &crate::inode::Inode,
    ) -> std::result::Result<(), Errno> {
        let Some(writer) = &self.write else { return Ok(()) };
        let seq = inode.item.last_seq();
        writer.log.check().map_err(|error| self.fail(error))?;
        writer.log.force_seq(cx, seq).map_err(|error| self.fail(error))
    }

    /// Makes durable everything that was done. May park.
    ///
    /// # Errors
    /// As [`Xfs::force_inode`].
    pub(crate) fn force_all(&self, cx: &mut Cx) -> std::result::Result<(), Errno> {
        let Some(writer) = &self.write else { return Ok(()) };
        writer.log.check().map_err(|error| self.fail(error))?;
        writer.log.force(cx).map_err(|error| self.fail(error))
    }
}
