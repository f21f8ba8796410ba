//! Checkpoints: blocks that are committed and not yet written home, and the freeing of log space.
//!
//! A block waits here with the content of the last transaction that logged it; older transactions
//! have nothing left to do for it. So a transaction may become free without a single write, when
//! all of its blocks were logged again later. The content is a snapshot: newer changes by running
//! transactions neither disturb it nor have to be waited for.

use std::collections::{BTreeMap, VecDeque};

use base::{Nanos, Page};
use block::DeviceError;
use cache::BufferRef;
use rt::Cx;

use super::Task;
use crate::log::Log;
use crate::state::Stop;
use crate::stats::Counters;
use crate::transaction::Tid;

/// A block's committed content.
struct Waiting {
    tid: Tid,
    buffer: BufferRef,
    page: Page,
}

/// Blocks, each with the transaction whose content is meant.
pub(crate) type Contents = Vec<(u64, Tid)>;

/// A transaction in the log.
struct Logged {
    tid: Tid,
    /// Its first block, and its sequence number.
    start: u32,
    sequence: u32,
    /// Blocks that no later transaction has taken over.
    left: u32,
}

/// Everything that waits for its checkpoint.
#[derive(Default)]
pub(crate) struct Checkpoint {
    blocks: BTreeMap<u64, Waiting>,
    logged: VecDeque<Logged>,
    /// Since when a block has waited that was not handed out; no later than the oldest.
    dirty_since: Option<Nanos>,
}

impl Checkpoint {
    /// Takes over a transaction that has just committed: the place of its first block, what it
    /// logged, and what it revoked.
    pub fn add(
        &mut self,
        now: Nanos,
        tid: Tid,
        (start, sequence): (u32, u32),
        frozen: Vec<(BufferRef, Page)>,
        revoked: impl Iterator<Item = u64>,
    ) {
        for block in revoked {
            if let Some(old) = self.blocks.remove(&block) {
                self.release(old.tid);
            }
        }
        if !frozen.is_empty() {
            self.dirty_since.get_or_insert(now);
        }
        self.logged.push_back(Logged { tid, start, sequence, left: frozen.len() as u32 });
        for (buffer, page) in frozen {
            let waiting = Waiting { tid, page, buffer };
            if let Some(old) = self.blocks.insert(waiting.buffer.block(), waiting) {
                self.release(old.tid);
            }
        }
        self.trim();
    }

    /// Blocks that wait.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    fn release(&mut self, tid: Tid) {
        if let Ok(index) = self.logged.binary_search_by_key(&tid, |logged| logged.tid) {
            self.logged[index].left -= 1;
        }
    }

    fn trim(&mut self) {
        while self.logged.front().is_some_and(|logged| logged.left == 0) {
            self.logged.pop_front();
        }
    }

    /// Since when something has waited that nobody writes.
    pub fn dirty_since(&self) -> Option<Nanos> {
        self.dirty_since
    }

    /// Everything that waits, in the order of the places, and the names of its content.
    pub fn hand_out(&mut self) -> (Vec<(BufferRef, Page)>, Contents) {
        self.dirty_since = None;
        let all = self.blocks.iter();
        all.map(|(&block, waiting)| {
            ((waiting.buffer.clone(), waiting.page.clone()), (block, waiting.tid))
        })
        .unzip()
    }

    /// This content is at its places: what was not logged again meanwhile waits no more.
    pub fn written(&mut self, contents: &Contents, now: Nanos) {
        for (block, tid) in contents {
            if self.blocks.get(block).is_some_and(|waiting| waiting.tid == *tid) {
                self.blocks.remove(block);
                self.release(*tid);
            }
        }
        if !self.blocks.is_empty() {
            self.dirty_since.get_or_insert(now);
        }
        self.trim();
    }

    /// Where the log must begin for the sake of the oldest transaction that is still needed.
    pub fn tail(&self, log: &Log) -> (u32, u32) {
        match self.logged.front() {
            Some(logged) => (logged.start, logged.sequence),
            None => (log.head, log.sequence),
        }
    }

    /// The oldest transactions that must go so that at most `used` blocks stay in use: all up to
    /// the answer.
    fn victims(&self, log: &Log, used: u32) -> Option<Tid> {
        let mut last = None;
        for logged in &self.logged {
            if log.distance(logged.start, log.head) <= used {
                break;
            }
            last = Some(logged.tid);
        }
        last
    }

    /// Blocks of transactions up to `tid`, in the order of their places.
    fn up_to(&self, tid: Tid) -> Vec<(BufferRef, Page)> {
        self.blocks
            .values()
            .filter(|waiting| waiting.tid <= tid)
            .map(|waiting| (waiting.buffer.clone(), waiting.page.clone()))
            .collect()
    }

    fn drop_up_to(&mut self, tid: Tid) {
        self.blocks.retain(|_, waiting| waiting.tid > tid);
        self.logged.retain(|logged| logged.tid > tid);
        if self.blocks.is_empty() {
            self.dirty_since = None;
        }
        self.trim();
    }
}

impl Task {
    /// Makes room for `needed` blocks at the head. Where older transactions must be written to
    /// their places, half of the log is freed at once, so that the flush is seldom paid. May park.
    pub fn ensure_space(&mut self, cx: &mut Cx, needed: u32) -> Result<(), DeviceError> {
        if self.log.free() >= needed {
            return Ok(());
        }
        self.finish_home(cx)?;
        if self.log.free() >= needed {
            return Ok(());
        }
        let capacity = self.log.capacity();
        let tail = self.pending.tail(&self.log);
        // A log whose tail has caught up with its head is empty here, not full.
        if self.pending.logged.is_empty()
            || capacity - 1 - self.log.distance(tail.0, self.log.head) < needed
        {
            let keep = (capacity / 2).min((capacity - 1).saturating_sub(needed));
            self.write_home(cx, keep)?;
        }
        let tail = self.pending.tail(&self.log);
        self.move_tail(cx, tail)
    }

    /// Writes everything to its place and marks the log empty on disk. May park.
    pub fn checkpoint_all(&mut self, cx: &mut Cx) -> Result<(), DeviceError> {
        self.finish_home(cx)?;
        self.write_home(cx, 0)?;
        // Fast commits mean nothing behind an empty log.
        let start = if self.forbid_fast_commits(cx) { 0 } else { self.log.head };
        let ends = start == 0 && self.shared.state.lock(cx).stop == Stop::Clean;
        let leaves = ends && self.log.drop_fast_commits();
        let clean = self.log.sb.start == 0 && self.log.sb.errno == 0;
        if clean && !self.log.sb_stale && !leaves {
            return Ok(());
        }
        self.log.sb.errno = 0;
        self.move_tail(cx, (start, self.log.sequence))
    }

    pub fn move_tail(&mut self, cx: &mut Cx, tail: (u32, u32)) -> Result<(), DeviceError> {
        let shared = self.shared.clone();
        Counters::add(&shared.counters.superblock_writes, 1);
        self.log.move_tail(cx, shared.cache.queue(), tail, &shared.options)
    }

    /// Writes blocks to their places until at most `used` log blocks are needed.
    fn write_home(&mut self, cx: &mut Cx, used: u32) -> Result<(), DeviceError> {
        let Some(tid) = self.pending.victims(&self.log, used) else { return Ok(()) };
        let writes = self.pending.up_to(tid);
        let counters = &self.shared.counters;
        Counters::add(&counters.checkpoints, 1);
        Counters::add(&counters.checkpoint_blocks, writes.len() as u64);
        self.shared.cache.write_snapshots(cx, writes.into_iter())?;
        self.pending.drop_up_to(tid);
        Ok(())
    }
}
