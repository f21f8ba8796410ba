//! Handles: one way to change metadata, with a journal and without.
//!
//! With a journal a handle is a [`jbd2::Handle`]; a changed block reaches its place only after its
//! transaction has committed. Without one (ext2, or ext4 without `has_journal`) a changed block is
//! marked dirty in the buffer cache and written by the next sync.
//!
//! The rule everywhere: `write_access`, change, `dirty`. What a handle needs it asks for in credits
//! (blocks that it may dirty) when it starts. See [`crate::trans::credits`] for the numbers.

use std::sync::Arc;

use base::Errno;
use cache::{BufferCache, BufferRef};
use rt::Cx;

/// The right to change metadata as one atomic step.
///
/// Locks: starting or restarting one may wait for a commit, so it is done while holding no lock
/// that the holder of another handle may want: see [`crate::ext4`] for the order.
pub(crate) enum Handle {
    /// Part of a journal transaction; with the credits that are kept for what quota charges.
    Journal(jbd2::Handle, u32),
    /// No journal: changed blocks are dirty at once.
    Direct(Arc<BufferCache>),
}

/// A transaction's number; `None` without a journal.
pub(crate) type Tid = Option<jbd2::Tid>;

impl Handle {
    /// Declares that `buffer`, which is up to date, is going to be changed. May wait.
    ///
    /// # Errors
    /// The journal's errno once it has aborted.
    pub(crate) fn write_access(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, _) => handle.write_access(cx, buffer),
            Handle::Direct(_) => Ok(()),
        }
    }

    /// Declares that `buffer` is a new block whose old content does not matter.
    ///
    /// # Errors
    /// As [`Handle::write_access`].
    pub(crate) fn create_access(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, _) => handle.create_access(cx, buffer),
            Handle::Direct(_) => Ok(()),
        }
    }

    /// Says that `buffer` was changed.
    ///
    /// # Errors
    /// As [`Handle::write_access`].
    pub(crate) fn dirty(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, _) => handle.dirty(cx, buffer),
            Handle::Direct(_) => {
                buffer.mark_dirty();
                Ok(())
            }
        }
    }

    /// Says that metadata block `block` is being freed: its buffer is never written again, and
    /// recovery does not bring older versions of it back over what takes its place.
    ///
    /// # Errors
    /// As [`Handle::write_access`].
    pub(crate) fn forget_block(&mut self, cx: &mut Cx, block: u64) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, _) => handle.revoke(cx, block),
            Handle::Direct(buffers) => {
                buffers.forget(cx, block, 1);
                Ok(())
            }
        }
    }

    /// Makes sure of `credits`, without waiting. False: the caller reaches a consistent point, lets
    /// go of its locks and restarts the handle.
    ///
    /// # Errors
    /// As [`Handle::write_access`].
    pub(crate) fn ensure(&mut self, cx: &mut Cx, credits: u32) -> Result<bool, Errno> {
        match self {
            Handle::Journal(handle, quota) if handle.credits() < credits + *quota => {
                let more = credits + *quota - handle.credits();
                handle.extend(cx, more)
            }
            _ => Ok(true),
        }
    }

    /// Ends the atomic step here and begins another. May wait for a commit: no lock that another
    /// handle's holder may want is held.
    ///
    /// # Errors
    /// As [`crate::sb::SuperBlock::journal_start`].
    pub(crate) fn restart(&mut self, cx: &mut Cx, credits: u32) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, quota) => handle.restart(cx, credits + *quota),
            Handle::Direct(_) => Ok(()),
        }
    }

    /// Says that fast commits cannot report what this handle changes.
    pub(crate) fn mark_ineligible(&self) {
        if let Handle::Journal(handle, _) = self {
            handle.mark_ineligible();
        }
    }

    /// The transaction that the changes belong to.
    pub(crate) fn tid(&self) -> Tid {
        match self {
            Handle::Journal(handle, _) => Some(handle.tid()),
            Handle::Direct(_) => None,
        }
    }

    /// Ends the atomic step.
    ///
    /// # Errors
    /// As [`Handle::write_access`].
    pub(crate) fn stop(self, cx: &mut Cx) -> Result<(), Errno> {
        match self {
            Handle::Journal(handle, _) => handle.stop(cx),
            Handle::Direct(_) => Ok(()),
        }
    }
}
