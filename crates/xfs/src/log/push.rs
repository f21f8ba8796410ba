//! Pushes: the CIL goes to the log as one checkpoint, and its items into the AIL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::{Cx, MutexGuard};

use super::Log;
use super::cil::{Checkpoint, Entry};
use super::item_ref::Item;
use super::record::Writer;
use crate::error::Result;
use crate::format::log::Lsn;
use crate::trans::intent::IntentRole;

/// Counters of a log since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Checkpoints on the device.
    pub checkpoints: u64,
    /// Items in them.
    pub items: u64,
    /// Records.
    pub records: u64,
    /// Bytes of records.
    pub record_bytes: u64,
    /// Buffers written to their places.
    pub write_backs: u64,
    /// Bytes of them.
    pub write_back_bytes: u64,
    /// Transactions that waited for log space.
    pub space_waits: u64,
    /// Transactions that needed more than they had reserved.
    pub overruns: u64,
    /// Rounds of background write-back that met an error.
    pub failures: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    checkpoints: AtomicU64,
    items: AtomicU64,
    records: AtomicU64,
    record_bytes: AtomicU64,
    write_backs: AtomicU64,
    write_back_bytes: AtomicU64,
    space_waits: AtomicU64,
    overruns: AtomicU64,
    failures: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub fn note_record(&self, bytes: u64) {
        add(&self.records, 1);
        add(&self.record_bytes, bytes);
    }

    pub fn note_write_back(&self, bytes: u64) {
        add(&self.write_backs, 1);
        add(&self.write_back_bytes, bytes);
    }

    pub fn note_space_wait(&self) {
        add(&self.space_waits, 1);
    }

    pub fn note_failure(&self) {
        add(&self.failures, 1);
    }

    pub fn note_overrun(&self) {
        add(&self.overruns, 1);
    }
}

impl Log {
    /// The counters so far.
    pub fn stats(&self) -> LogStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.stats;
        LogStats {
            checkpoints: get(&counters.checkpoints),
            items: get(&counters.items),
            records: get(&counters.records),
            record_bytes: get(&counters.record_bytes),
            write_backs: get(&counters.write_backs),
            write_back_bytes: get(&counters.write_back_bytes),
            space_waits: get(&counters.space_waits),
            overruns: get(&counters.overruns),
            failures: get(&counters.failures),
        }
    }

    /// Makes everything durable that was committed up to checkpoint `seq`, as an fsync does. May
    /// park. Of several callers one writes and the others wait for it.
    ///
    /// # Errors
    /// If the log could not be written, which shuts the file system down.
    pub fn force_seq(self: &Arc<Self>, cx: &mut Cx, seq: u64) -> Result<()> {
        if self.cil.lock(cx).done >= seq {
            return Ok(());
        }
        self.push(cx, Some(seq), false)
    }

    /// Number of the checkpoint that is being gathered.
    pub(crate) fn gathering(&self, cx: &Cx) -> u64 {
        self.cil.lock(cx).seq
    }

    /// True if something is committed that no push has taken.
    pub(crate) fn has_gathered(&self, cx: &Cx) -> bool {
        !self.cil.lock(cx).items.is_empty()
    }

    /// Makes everything durable that was committed. May park.
    ///
    /// # Errors
    /// As [`Log::force_seq`].
    pub fn force(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        let seq = {
            let cil = self.cil.lock(cx);
            // With nothing new in the CIL, the one before may still be on its way.
            if cil.items.is_empty() { cil.seq - 1 } else { cil.seq }
        };
        self.force_seq(cx, seq)
    }

    /// Writes a checkpoint: up to `seq`, or whatever there is. With `even_empty` also one that
    /// changes nothing, which names the newest tail.
    pub(super) fn push(
        self: &Arc<Self>,
        cx: &mut Cx,
        seq: Option<u64>,
        even_empty: bool,
    ) -> Result<()> {
        let mut writer = self.become_writer(cx);
        self.check()?;
        {
            let cil = self.cil.lock(cx);
            if seq.is_some_and(|seq| cil.done >= seq) || (cil.items.is_empty() && !even_empty) {
                return Ok(());
            }
        }
        let mut checkpoint = self.detach(cx);
        if checkpoint.entries.is_empty() {
            checkpoint.entries.push(Entry::meaningless(self.next_intent()));
        }
        let tail = self.ail.tail().map(Lsn::from_bits);
        let vecs = checkpoint.entries.iter().map(|entry| &entry.vec);
        match writer.checkpoint(cx, self, vecs, tail) {
            Ok(start) => {
                let tail = writer.tail();
                self.complete(cx, checkpoint, start, tail);
                Ok(())
            }
            Err(error) => {
                self.force_shutdown("the log could not be written");
                Err(error)
            }
        }
    }

    /// The right to write the log; who has to wait for it yields to the one that writes.
    fn become_writer(&self, cx: &mut Cx) -> MutexGuard<'_, Writer> {
        if self.options.yields && self.writer.is_locked() {
            self.device.yield_to(cx.ioc(), self.writing.load(Ordering::Relaxed));
        }
        let writer = self.writer.lock(cx);
        self.writing.store(cx.ioc(), Ordering::Relaxed);
        writer
    }

    /// The checkpoint is on the device: its items may be written to their places.
    fn complete(&self, cx: &Cx, checkpoint: Checkpoint, start: Lsn, tail: Lsn) {
        add(&self.stats.checkpoints, 1);
        add(&self.stats.items, checkpoint.entries.len() as u64);
        let lsn = start.bits();
        for entry in &checkpoint.entries {
            self.complete_item(entry, lsn);
        }
        // Those of this checkpoint too, which may come behind their cluster in it.
        let stale = checkpoint.entries.iter().filter(|entry| entry.stale);
        for entry in stale {
            if let Item::Buf(buf) = &entry.item {
                self.forget_inodes_of(buf);
            }
        }
        self.cil.lock(cx).done = checkpoint.seq;
        self.busy.lock(cx).clear(checkpoint.seq);
        self.grant.checkpoint_done(self.position(tail.bits()), checkpoint.reserved);
        self.committed.wake_all();
        self.push_when_low();
    }

    fn complete_item(&self, entry: &Entry, lsn: u64) {
        let stale = match &entry.item {
            Item::Buf(_) => entry.stale,
            // Also where its cluster is about to be freed: that is in a later checkpoint.
            Item::Inode(_) | Item::Dquot(_) => false,
            Item::Intent(intent) => match &intent.role {
                IntentRole::Intent => false,
                IntentRole::Once => true,
                IntentRole::Done(intent) => {
                    self.ail.remove(&Item::Intent(intent.clone()), None);
                    true
                }
            },
        };
        if stale {
            self.ail.remove(&entry.item, None);
        } else {
            self.ail.insert(&entry.item, lsn);
        }
        let mut state = entry.item.core().lock();
        state.pins -= 1;
    }

    /// A freed cluster: its inodes are never written.
    fn forget_inodes_of(&self, buf: &crate::buf::Buf) {
        for inode in self.ail.inodes_of(buf.daddr()) {
            if inode.is_stale() {
                self.ail.remove(&Item::Inode(inode), None);
            }
        }
    }

    /// Writes everything: the CIL into the log, the AIL to its places, until both are empty. May
    /// park, also for locks that other tasks hold.
    ///
    /// # Errors
    /// The first that a write meets; after a shutdown.
    pub fn empty(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        let mut patience = 0;
        loop {
            self.force(cx)?;
            if self.is_quiet(cx) {
                return Ok(());
            }
            let left = self.write_back(cx, self.newest())?;
            if left.locked {
                // Somebody has a buffer in hands; nothing reports when it is given back.
                patience += 1;
                cx.sleep(rt::Nanos::from_micros(50 << patience.min(8)));
            }
        }
    }

    pub(super) fn write_unmount_record(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        let mut writer = self.writer.lock(cx);
        self.check()?;
        writer.unmount(cx, self)
    }
}
