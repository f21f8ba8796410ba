//! Sequence numbers of metadata against the end of the log.
//!
//! A change is in the log before it goes to its place, so no block names a record that is still to
//! come. One that does has lost its log: recovery would take it for newer than its next changes,
//! and leave them out. Linux refuses such blocks, too.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Sector;
use rt::SpinLock;

use super::Buf;
use crate::error::Result;
use crate::format::log::Lsn;
use crate::format::{At, CorruptKind};

/// What is known of the sequence numbers of one device's blocks.
pub(crate) struct Lsns {
    /// The newest one that was read, and where.
    newest: SpinLock<(u64, Sector)>,
    /// Where the next record goes; `u64::MAX` where there is no log.
    end: AtomicU64,
}

impl Default for Lsns {
    fn default() -> Lsns {
        Lsns {
            newest: SpinLock::named("xfs newest block", (0, Sector(0))),
            end: AtomicU64::new(u64::MAX),
        }
    }
}

impl Lsns {
    /// The newest one that was read, and where.
    pub fn newest(&self) -> (u64, Sector) {
        *self.newest.lock_irq()
    }

    /// The log goes on here.
    pub fn set_end(&self, end: Lsn) {
        self.end.store(end.bits(), Ordering::Release);
    }

    /// A block was read.
    ///
    /// # Errors
    /// [`CorruptKind::Ahead`].
    pub(super) fn note(&self, buf: &Buf, lsn: Option<u64>) -> Result<()> {
        let Some(lsn) = lsn else { return Ok(()) };
        let mut newest = self.newest.lock_irq();
        if lsn > newest.0 {
            *newest = (lsn, buf.daddr());
        }
        drop(newest);
        let end = self.end.load(Ordering::Acquire);
        if lsn < end {
            return Ok(());
        }
        let [lsn, end] = [lsn, end].map(Lsn::from_bits);
        Err(CorruptKind::Ahead { lsn, end }.at(At::Block(buf.daddr().0)).into())
    }
}
