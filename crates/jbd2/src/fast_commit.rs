//! Writing fast commits: a few records behind the log instead of a transaction in it.
//!
//! What a transaction has changed since it began, or since its last fast commit, is reported in
//! records that the file system collects ([`FastChanges`]) while no handle is open. Whoever asks
//! writes them himself: the journal's task sleeps, and one request with a flush before it and
//! through the cache replaces the log's write and the commit record's. The transaction runs on, and
//! its commit makes its fast commits invalid, for they carry its number.
//!
//! A transaction that records cannot report is *ineligible*: it commits whole. So does the first
//! one of a mount, which makes the superblock announce fast commits; a full area; and one for whose
//! commit somebody has asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use block::{IoGroup, Plug};
use rt::{Charge, Cx};

use crate::fast_area::FastArea;
use crate::format::fast_commit::FastCommitWriter;
use crate::state::{Running, Shared};
use crate::stats::Counters;
use crate::transaction::{Tid, Transaction};

/// The file system's part in fast commits.
pub trait FastChanges: Send + Sync {
    /// Reports what transaction `tid` has changed since it was asked last. No handle is open and
    /// none can be started: it may read, and wait for no lock under which somebody starts a handle.
    /// False: records cannot report it.
    ///
    /// # Errors
    /// What it needs cannot be read: the transaction commits whole.
    fn collect(&self, cx: &mut Cx, tid: Tid, out: &mut FastCommitWriter) -> Result<bool, Errno>;
}

/// How it goes on for one who asks.
enum Turn {
    /// The whole transaction commits.
    Whole,
    /// Another's fast commit did it.
    Done,
    Mine(Mine),
}

/// A fast commit that the asker writes.
struct Mine {
    transaction: Arc<Transaction>,
    sequence: u32,
    next: u32,
    round: u64,
}

impl Shared {
    #[inline]
    pub fn mark_ineligible(&self, tid: Tid) {
        if self.fast_area.is_some() {
            self.make_ineligible(tid);
        }
    }

    #[cold]
    fn make_ineligible(&self, tid: Tid) {
        let mut state = self.state.lock_irq();
        state.fast.ineligible = state.fast.ineligible.max(tid);
    }

    pub fn fast_commit(
        &self,
        cx: &mut Cx,
        tid: Tid,
        changes: &dyn FastChanges,
    ) -> Result<bool, Errno> {
        let Some(area) = &self.fast_area else { return Ok(false) };
        self.check_aborted()?;
        if self.committed.load(Ordering::Acquire) >= tid.0 {
            return Ok(false);
        }
        let done = match self.fast_turn(cx, tid) {
            Turn::Whole => false,
            Turn::Done => true,
            Turn::Mine(mine) => {
                let written = self.write_fast(cx, area, &mine, changes);
                self.end_fast(cx, &mine, written)?
            }
        };
        if !done {
            Counters::add(&self.counters.fast_fallbacks, 1);
        }
        Ok(done)
    }

    /// Waits until all that went before is on the medium and nobody else writes a fast commit.
    fn fast_turn(&self, cx: &mut Cx, tid: Tid) -> Turn {
        let mut wanted = None;
        self.wait_commit.wait_for(cx, "a fast commit", || {
            let mut guard = self.state.lock_irq();
            let state = &mut *guard;
            let committed = self.committed.load(Ordering::Acquire);
            let fast = &mut state.fast;
            let wanted = *wanted.get_or_insert(fast.taken + 1);
            let running = state.running.as_mut().filter(|running| running.transaction.tid == tid);
            if self.aborted().is_some() {
                return Some(Turn::Whole);
            }
            if fast.done >= wanted {
                return Some(Turn::Done);
            }
            let running = match running {
                Some(running) if fast.ineligible < tid && state.commit_request < tid => running,
                _ => return Some(Turn::Whole),
            };
            if running.locked & Running::BY_COMMIT != 0 {
                return Some(Turn::Whole);
            }
            if fast.busy || committed + 1 < tid.0 {
                return None;
            }
            let Some(sequence) = fast.sequence else { return Some(Turn::Whole) };
            fast.busy = true;
            fast.taken += 1;
            running.locked |= Running::BY_FAST_COMMIT;
            let transaction = running.transaction.clone();
            Some(Turn::Mine(Mine { transaction, sequence, next: fast.next, round: fast.taken }))
        })
    }

    /// Looks at the transaction and writes what has changed: how many blocks; `None` where it has
    /// to commit whole.
    fn write_fast(
        &self,
        cx: &mut Cx,
        area: &FastArea,
        mine: &Mine,
        changes: &dyn FastChanges,
    ) -> Result<Option<u32>, Errno> {
        let tid = mine.transaction.tid;
        let mut eligible = false;
        self.wait_task.wait_until(cx, "open handles", || {
            let state = self.state.lock_irq();
            eligible = state.fast.ineligible < tid && self.aborted().is_none();
            let open = state.running.as_ref().is_some_and(|running| running.updates > 0);
            self.aborted().is_some() || !open
        });
        let head = (mine.next == 0).then_some(mine.sequence);
        let room = (area.len - mine.next) as usize;
        let mut out = FastCommitWriter::new(area.device.block_size as usize, room, head);
        let reported = eligible && matches!(changes.collect(cx, tid, &mut out), Ok(true));
        let ordered = if reported { mine.transaction.take_ordered(cx) } else { Vec::new() };
        self.open_again(cx);
        if !reported {
            return Ok(None);
        }
        self.write_ordered(cx, &ordered);
        if out.is_empty() {
            if self.options.commit_record.is_safe() {
                self.cache.queue().flush(cx)?;
            }
            return Ok(Some(0));
        }
        match out.seal(mine.sequence) {
            Some(pages) => self.write_area(cx, area, mine.next, &pages).map(Some),
            None => Ok(None),
        }
    }

    /// Lets handles join the transaction again.
    fn open_again(&self, cx: &Cx) {
        if let Some(running) = &mut self.state.lock(cx).running {
            running.locked &= !Running::BY_FAST_COMMIT;
        }
        self.wait_start.wake_all();
    }

    /// The last block goes out behind a flush, and through the cache: the others, and the data, are
    /// on the medium before it.
    fn write_area(
        &self,
        cx: &mut Cx,
        area: &FastArea,
        next: u32,
        pages: &[base::Page],
    ) -> Result<u32, Errno> {
        let (queue, count) = (&area.device.queue, pages.len() as u32);
        cx.charge_for(Charge::JournalBlock, u64::from(count));
        if area.device.area.is_external() && self.options.commit_record.is_safe() {
            self.cache.queue().flush(cx)?;
        }
        let (last, before) = pages.split_last().expect("a fast commit has a tail");
        if !before.is_empty() {
            let flags = self.options.journal_io.log_flags(queue, true, true);
            let (mut plug, group) = (Plug::new(), IoGroup::new());
            area.device.write_run(cx, area.first + next, before, flags, (&mut plug, &group));
            plug.finish(cx);
            group.wait(cx)?;
        }
        let flags = self.options.record_flags(queue);
        area.device.write(cx, area.first + next + count - 1, last.clone(), flags)?;
        Ok(count)
    }

    /// True where the changes are on the medium.
    fn end_fast(
        &self,
        cx: &Cx,
        mine: &Mine,
        written: Result<Option<u32>, Errno>,
    ) -> Result<bool, Errno> {
        let mut state = self.state.lock(cx);
        let fast = &mut state.fast;
        fast.busy = false;
        match written {
            Ok(Some(blocks)) => {
                fast.next += blocks;
                fast.done = mine.round;
                Counters::add(&self.counters.fast_commits, u64::from(blocks > 0));
                Counters::add(&self.counters.fast_blocks, blocks.into());
            }
            // What was collected is in no fast commit.
            _ => fast.ineligible = fast.ineligible.max(mine.transaction.tid),
        }
        drop(state);
        if let Err(errno) = written {
            self.abort(errno);
        }
        self.wait_commit.wake_all();
        self.wait_task.wake_all();
        Ok(written?.is_some())
    }
}
