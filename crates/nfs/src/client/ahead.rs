//! Runs of fsyncs: while the server makes one file durable, the next ones are on their way to it.
//!
//! Who has many files made durable does so one after the other (`sync`, a copy, a benchmark's end).
//! During a COMMIT, or a WRITE that is to be durable, the server's disk is busy and the network is
//! not. So where files are synced in a row, with no write in between, the WRITEs of the files that
//! follow by number are sent meanwhile. As with readahead, the window begins small and doubles.

use std::sync::atomic::{AtomicU32, Ordering};

use base::Nanos;
use rt::Cx;

use super::inode::Inode;
use super::{Mode, NfsClient};

/// Most files that are sent ahead.
const FILES_MAX: u32 = 32;
/// Bytes of folios after which no further file is.
const BYTES_MAX: u64 = 8 << 20;

/// How many files were synced since the last write.
#[derive(Default)]
pub(super) struct SyncRun(AtomicU32);

impl SyncRun {
    /// Somebody writes.
    pub fn end(&self) {
        if self.0.load(Ordering::Relaxed) > 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// A file is synced.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many of the next files are to be sent ahead.
    fn window(&self) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            0 | 1 => 0,
            run => 1 << (run - 2).min(FILES_MAX.ilog2()),
        }
    }
}

impl NfsClient {
    /// The server makes `inode` durable: has WRITEs of the files sent that will be synced next, and
    /// does not wait for them.
    pub(super) fn send_ahead(&self, cx: &mut Cx, inode: &Inode) {
        if self.options.mode != Mode::Ranges {
            return;
        }
        let (mut after, mut bytes) = (inode.place(), 0);
        for _ in 0..self.cache.syncs.window() {
            let Some(next) = self.next_file(cx, after, Nanos::MAX) else { return };
            after = next.place();
            bytes += next.state.lock(cx).ours * self.folio_size();
            if bytes > BYTES_MAX {
                return;
            }
            let stable = self.stable_for(cx, &next);
            self.send_dirty(cx, &next, 0..u64::MAX, stable);
        }
    }
}
