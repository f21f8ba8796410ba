//! The commit of a transaction.
//!
//! 1. *Lock*: no handle joins any more; wait until the open ones have stopped.
//! 2. *Freeze*: take a snapshot of every buffer that was dirtied (a reference, no copy), and let
//!    the next transaction begin. Whoever changes one of the buffers now gets a copy of his own.
//! 3. *Data*: in ordered mode, write the files' data and wait.
//! 4. *Log*: revoke blocks, then descriptors with the snapshots, in large requests; wait.
//! 5. *Commit block*: after a flush of the device's cache, and through it.
//! 6. The snapshots wait for their checkpoint; callbacks run; waiters wake.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::crc::crc32_be;
use base::{Errno, Page};
use block::{BioFlags, DeviceError, IoGroup, Plug};
use cache::BufferRef;
use rt::{Charge, Cx};

use super::Task;
use crate::format::{
    Checksums, CommitBlock, Incompat, Layout, Tag, TagLayout, descriptor, must_escape, revoke,
};
use crate::log::Log;
use crate::state::{Running, Stop};
use crate::stats::Counters;
use crate::transaction::Transaction;

/// Buffers with their content as of the end of the transaction.
type Frozen = Vec<(BufferRef, Page)>;

impl Task {
    /// Commits the running transaction, if there is one. May park.
    pub fn commit(&mut self, cx: &mut Cx) {
        let Some(transaction) = self.lock_running(cx) else { return };
        #[cfg(debug_assertions)]
        {
            let checks = take(&mut transaction.extra.lock(cx).on_freeze);
            checks.into_iter().for_each(|check| check(cx));
        }
        let frozen = freeze(cx, &transaction);
        self.shared.state.lock(cx).running = None;
        self.shared.wait_start.wake_all();
        if self.shared.aborted().is_some() {
            return;
        }
        if let Err(errno) = self.write(cx, &transaction, frozen) {
            self.shared.abort(errno);
            return;
        }
        let callbacks = take(&mut transaction.extra.lock(cx).on_commit);
        for callback in callbacks {
            callback(cx);
        }
        self.allow_fast_commits(cx);
        self.shared.committed.store(transaction.tid.0, Ordering::Release);
        self.shared.wait_commit.wake_all();
        // What waits for its checkpoint stays in memory.
        let waiting = self.pending.len() as u64 * u64::from(self.log.layout.block_size);
        if self.shared.cache.over_limit()
            && waiting > self.shared.cache.limit_bytes() / 4
            && let Err(error) = self.checkpoint_all(cx)
        {
            self.shared.abort(error.to_errno());
        }
    }

    /// Closes the running transaction for new handles and waits for the open ones.
    fn lock_running(&mut self, cx: &mut Cx) -> Option<Arc<Transaction>> {
        let shared = &self.shared;
        let transaction = {
            let mut state = shared.state.lock(cx);
            let running = state.running.as_mut()?;
            running.locked |= Running::BY_COMMIT;
            running.transaction.clone()
        };
        let mut dead = false;
        shared.wait_task.wait_until(cx, "open handles", || {
            let state = shared.state.lock_irq();
            dead = state.stop == Stop::Dead;
            let open = state.running.as_ref().is_some_and(|running| running.updates > 0);
            dead || !(open || state.fast.busy)
        });
        (!dead).then_some(transaction)
    }

    fn write(&mut self, cx: &mut Cx, tx: &Transaction, mut frozen: Frozen) -> Result<(), Errno> {
        self.write_ordered(cx, tx);
        let revoked = take(&mut tx.extra.lock(cx).revoked);
        if frozen.is_empty() && revoked.is_empty() {
            return self.commit_nothing(cx, tx);
        }
        frozen.sort_by_key(|(buffer, _)| buffer.block());
        frozen.dedup_by_key(|(buffer, _)| buffer.block());
        for (buffer, page) in &mut frozen {
            if buffer.has_trigger() {
                let snapshot = std::mem::replace(page, Page::zeroed(1));
                *page = buffer.trigger_snapshot(snapshot);
            }
            buffer.journal_head.logged.store(tx.tid.0, Ordering::Relaxed);
        }
        let needed = self.log_blocks(frozen.len(), revoked.len());
        cx.charge_for(Charge::JournalBlock, u64::from(needed));
        if needed >= self.log.capacity() {
            return Err(Errno::ENOSPC);
        }
        let place = self.write_log(cx, tx, &frozen, &revoked, needed).map_err(Errno::from)?;
        let revokes = !revoked.is_empty();
        self.pending.add(cx.now(), tx.tid, place, frozen, revoked.into_iter());
        if revokes {
            // Old content on its way home must not come after what the blocks are used for next.
            self.finish_home(cx)?;
        }
        Ok(())
    }

    /// Step 3: data first.
    fn write_ordered(&mut self, cx: &mut Cx, tx: &Transaction) {
        let ordered = take(&mut tx.extra.lock(cx).ordered);
        self.shared.write_ordered(cx, &ordered);
    }

    /// A transaction without changes takes no place in the log. But whoever asked for its commit
    /// relies on the flush that `will_send_barrier` has promised.
    fn commit_nothing(&mut self, cx: &mut Cx, tx: &Transaction) -> Result<(), Errno> {
        Counters::add(&self.shared.counters.empty_commits, 1);
        if !self.shared.options.commit_record.is_safe() {
            return Ok(());
        }
        self.shared.barrier_sent.store(tx.tid.0, Ordering::Release);
        Ok(self.shared.cache.queue().flush(cx)?)
    }

    /// Blocks that a transaction takes in the log.
    fn log_blocks(&self, blocks: usize, revokes: usize) -> u32 {
        let layout = &self.log.layout;
        let tags = TagLayout::new(layout).per_block(layout);
        let sum = revokes.div_ceil(revoke::per_block(layout)) + blocks.div_ceil(tags) + blocks + 1;
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// Steps 4 and 5. Returns where the transaction begins, and its sequence number.
    fn write_log(
        &mut self,
        cx: &mut Cx,
        tx: &Transaction,
        frozen: &Frozen,
        revoked: &BTreeSet<u64>,
        needed: u32,
    ) -> Result<(u32, u32), DeviceError> {
        self.ensure_space(cx, needed)?;
        let (start, sequence) = (self.log.head, self.log.sequence);
        let counters = &self.shared.counters;
        Counters::add(&counters.commits, 1);
        Counters::add(&counters.blocks, frozen.len() as u64);
        Counters::add(&counters.overhead_blocks, u64::from(needed) - frozen.len() as u64);
        let flags = self.log_flags(cx, tx);
        let (mut plug, group) = (Plug::new(), IoGroup::new());
        self.begin_log(cx, start, !revoked.is_empty(), flags, (&mut plug, &group));
        let layout = self.log.layout;
        let mut out = Writer { log: &mut self.log, flags, plug, group, crc: !0 };
        out.revokes(cx, &layout, sequence, revoked);
        out.blocks(cx, &layout, sequence, frozen);
        let Writer { plug, group, crc, .. } = out;
        plug.finish(cx);
        if self.chains_record() {
            self.chain_commit_block(cx, tx, crc, &group)?;
        } else {
            group.wait(cx)?;
            self.write_commit_block(cx, tx, crc)?;
        }
        if self.log.head < start {
            Counters::add(&self.shared.counters.wraps, 1);
        }
        self.log.sequence = sequence.wrapping_add(1);
        Ok((start, sequence))
    }

    /// Flags of the log blocks of this transaction.
    fn log_flags(&self, cx: &Cx, tx: &Transaction) -> BioFlags {
        let synchronous = tx.synchronous.load(Ordering::Relaxed);
        let waited = self.shared.state.lock(cx).waited >= tx.tid;
        self.shared.options.journal_io.log_flags(&self.log.device.queue, synchronous, waited)
    }

    /// The superblock must name a tail before a commit block can count, and the features before
    /// anything makes use of them. It travels with the log: both are on the medium before the
    /// commit block is.
    fn begin_log(
        &mut self,
        cx: &mut Cx,
        start: u32,
        revokes: bool,
        flags: BioFlags,
        io: (&mut Plug, &IoGroup),
    ) {
        let log = &mut self.log;
        if revokes && !log.sb.incompat.contains(Incompat::REVOKE) {
            log.sb.version = 2;
            log.sb.incompat |= Incompat::REVOKE;
            log.sb_stale = true;
        }
        if log.sb.start == 0 {
            log.sb.start = start;
            log.sb.sequence = log.sequence;
            log.sb_stale = true;
        }
        if log.sb_stale {
            Counters::add(&self.shared.counters.superblock_writes, 1);
            let page = log.superblock_page();
            log.device.write_run(cx, 0, &[page], flags, io);
        }
    }

    fn write_commit_block(
        &mut self,
        cx: &mut Cx,
        tx: &Transaction,
        crc: u32,
    ) -> Result<(), DeviceError> {
        if self.promises_barrier(tx) && self.log.device.area.is_external() {
            // The journal's own flush does not reach the data.
            self.shared.cache.queue().flush(cx)?;
        }
        let page = self.commit_page(cx, crc);
        let (mut plug, group) = (Plug::new(), IoGroup::new());
        let flags = self.shared.options.record_flags(&self.log.device.queue);
        self.log.append(cx, &[page], flags, (&mut plug, &group));
        plug.finish(cx);
        group.wait(cx)
    }

    /// Whether the commit record is handed over behind the log. Not where a flush of another device
    /// must come between the two.
    fn chains_record(&self) -> bool {
        self.shared.options.chain_record && !self.log.device.area.is_external()
    }

    /// As [`Task::write_commit_block`], behind the bios of `log`: it is sent when all of them have
    /// succeeded, and fails where one of them does.
    fn chain_commit_block(
        &mut self,
        cx: &mut Cx,
        tx: &Transaction,
        crc: u32,
        log: &IoGroup,
    ) -> Result<(), DeviceError> {
        self.promises_barrier(tx);
        let page = self.commit_page(cx, crc);
        let group = IoGroup::new();
        let flags = self.shared.options.record_flags(&self.log.device.queue);
        let bio = self.log.append_later(page, flags, group.end());
        log.then(cx, &self.log.device.queue, bio);
        group.wait(cx)
    }

    /// Reports to those who ask that a flush belongs to this transaction's commit, where it does.
    fn promises_barrier(&self, tx: &Transaction) -> bool {
        let safe = self.shared.options.commit_record.is_safe();
        if safe {
            self.shared.barrier_sent.store(tx.tid.0, Ordering::Release);
        }
        safe
    }

    fn commit_page(&self, cx: &Cx, crc: u32) -> Page {
        let layout = self.log.layout;
        let transaction_crc = (layout.checksums == Checksums::V1).then_some(crc);
        let commit = CommitBlock { time: cx.realtime(), transaction_crc };
        let mut page = Page::zeroed(layout.block_size as usize);
        commit.emit(&layout, self.log.sequence, page.make_mut());
        page
    }
}

/// Step 2. Nobody has a handle now, so nothing changes while we look.
fn freeze(cx: &Cx, transaction: &Transaction) -> Frozen {
    let joined = take(&mut *transaction.joined.lock(cx));
    let tid = transaction.tid.0;
    let dirtied = |buffer: &BufferRef| buffer.journal_head.dirtied.load(Ordering::Relaxed) == tid;
    joined
        .into_iter()
        .filter(dirtied)
        .map(|buffer| {
            let page = buffer.page();
            (buffer, page)
        })
        .collect()
}

/// Step 4: turns blocks into log blocks.
struct Writer<'a> {
    log: &'a mut Log,
    flags: BioFlags,
    plug: Plug,
    group: IoGroup,
    /// Checksum version 1 runs over descriptors and blocks.
    crc: u32,
}

impl Writer<'_> {
    fn append(&mut self, cx: &mut Cx, pages: &[Page]) {
        self.log.append(cx, pages, self.flags, (&mut self.plug, &self.group));
    }

    fn revokes(&mut self, cx: &mut Cx, layout: &Layout, sequence: u32, revoked: &BTreeSet<u64>) {
        let blocks: Vec<u64> = revoked.iter().copied().collect();
        for chunk in blocks.chunks(revoke::per_block(layout)) {
            let mut page = Page::zeroed(layout.block_size as usize);
            revoke::emit(layout, sequence, chunk, page.make_mut());
            self.append(cx, &[page]);
        }
    }

    fn blocks(&mut self, cx: &mut Cx, layout: &Layout, sequence: u32, frozen: &Frozen) {
        for chunk in frozen.chunks(TagLayout::new(layout).per_block(layout)) {
            let mut pages = Vec::with_capacity(chunk.len() + 1);
            pages.push(Page::zeroed(layout.block_size as usize));
            let mut tags = Vec::with_capacity(chunk.len());
            for (buffer, page) in chunk {
                let (tag, logged) = log_block(layout, sequence, buffer.block(), page);
                tags.push(tag);
                pages.push(logged);
            }
            descriptor::emit(layout, sequence, &tags, pages[0].make_mut());
            if layout.checksums == Checksums::V1 {
                self.crc = pages.iter().fold(self.crc, |crc, page| crc32_be(crc, page));
            }
            self.append(cx, &pages);
        }
    }
}

/// A block as it goes into the log: escaped where it could be taken for the journal's own, and
/// summed as it lies there.
fn log_block(layout: &Layout, sequence: u32, block: u64, page: &Page) -> (Tag, Page) {
    let mut logged = page.clone();
    let escaped = must_escape(page);
    if escaped {
        logged.make_mut()[..4].fill(0);
    }
    let checksum = if layout.has_tail() { layout.block_checksum(sequence, &logged) } else { 0 };
    (Tag { block, escaped, checksum }, logged)
}
