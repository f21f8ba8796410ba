//! What the recovery of a file system did.

use std::fmt;

use super::{Damaged, Recovered};

/// What recovery did.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// True if there was nothing to do.
    pub was_clean: bool,
    /// Transactions of the log.
    pub transactions: u64,
    /// Items in them.
    pub items: u64,
    /// Items that were on the device already, in this or a newer form.
    pub skipped: u64,
    /// Buffers that were written.
    pub buffers: u64,
    /// Intents that were carried out.
    pub intents: u64,
    /// Blocks of CoW forks that were freed.
    pub cow_blocks: u64,
    /// Inodes without a name that were freed.
    pub unlinked: u64,
    /// A damaged record, before which recovery ended.
    pub damaged: Option<Damaged>,
}

impl RecoveryReport {
    /// What recovery did, before anything that the log only announced was carried out.
    pub(crate) fn of(recovered: &Recovered) -> RecoveryReport {
        RecoveryReport {
            was_clean: recovered.clean,
            transactions: recovered.transactions,
            items: recovered.items,
            skipped: recovered.skipped,
            buffers: recovered.buffers,
            intents: recovered.unfinished.len() as u64,
            cow_blocks: 0,
            unlinked: 0,
            damaged: recovered.damaged,
        }
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} transactions replayed ({} items, {} buffers written, {} intents carried out, {} \
             unlinked inodes freed)",
            self.transactions, self.items, self.buffers, self.intents, self.unlinked
        )?;
        self.damaged.iter().try_for_each(|damaged| write!(f, "; {damaged}"))
    }
}
