//! What a journal has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the journal was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct JournalStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            pub fn snapshot(&self) -> JournalStats {
                JournalStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Handles stopped.
    handles,
    /// Starts that had to wait for another transaction.
    start_waits,
    /// Waits for a commit that yielded the waiter's place in the elevator first.
    yields,
    /// Transactions written to the log.
    commits,
    /// Fast commits written.
    fast_commits,
    /// Their blocks.
    fast_blocks,
    /// Fast commits that were asked for and left to a commit of the whole transaction.
    fast_fallbacks,
    /// Transactions that had nothing to log.
    empty_commits,
    /// Blocks logged, without descriptors.
    blocks,
    /// Descriptor, revoke and commit blocks written.
    overhead_blocks,
    /// Blocks revoked.
    revokes,
    /// Buffers dirtied beyond the credits of their handle.
    overdrafts,
    /// Files whose data was written before a commit.
    ordered,
    /// Times that blocks were written to their places.
    checkpoints,
    /// Batches that the flusher wrote to their places.
    home_batches,
    /// Blocks written to their places.
    checkpoint_blocks,
    /// Writes of the journal's superblock.
    superblock_writes,
    /// Times that the log passed its end.
    wraps,
}

impl Counters {
    #[inline]
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}
