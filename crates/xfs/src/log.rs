//! The log: delayed logging, records, reservations, write-back, recovery.
//!
//! A transaction's items are formatted at commit into vectors in memory and gathered in the CIL
//! ([`cil`]); an item that is changed again before the CIL is pushed replaces its vector, so that
//! hot blocks go to the log once for many transactions. A *push* writes everything that was
//! gathered as one checkpoint: records of 32 to 256 KiB ([`record`]), the last of which makes it
//! valid. Then its items enter the AIL ([`ail`]) at the checkpoint's sequence number and may be
//! written to their places; the oldest item there is the *tail*, up to which the log can be used
//! again. Who starts a transaction reserves space for it first ([`grant`]).
//!
//! Locks, in this order: a buffer's or an inode's; the CIL's context lock (shared by commits, taken
//! alone by a push for the moment in which the vectors are detached); the spin locks of CIL, AIL,
//! and grant; an item's own; a buffer's bitmap and its memory, innermost. A push takes the writer's
//! lock before the context lock and holds it until the checkpoint is on the device, so checkpoints
//! follow one another strictly.
//!
//! Compared with Linux: one checkpoint is written at a time; the tail that counts for reservations
//! is the one that a record on the device names, never a newer one, so that no record overwrites
//! what recovery from the record before it would need.
//!
//! Source: kernel `Documentation/filesystems/xfs/xfs-delayed-logging-design.rst`.

mod ail;
pub mod buf_item;
pub(crate) mod busy;
pub(crate) mod cil;
#[cfg(test)]
mod crash_tests;
pub(crate) mod dquot_item;
mod grant;
pub mod inode_item;
pub(crate) mod iop_stats;
pub mod item;
mod item_ref;
mod push;
mod record;
pub mod recovery;
#[cfg(test)]
mod tail_tests;
mod task;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::Sector;
use block::Queue;
use rt::{Cx, JoinHandle, Mutex, RwLock, SpinLock, WaitQueue};

use crate::buf::BufCache;
use crate::error::{Result, XfsError};
use crate::format::Geometry;
use crate::format::log::Lsn;
use crate::log::buf_item::walk::Variant;
use crate::log::dquot_item::DquotTable;
use crate::trans::intent::IntentItem;
use crate::trans::{IntentFinisher, LogReservation, Trans};

pub use crate::error::LogError;
pub use iop_stats::IopStats;
pub use item::OP_HEADER;
pub(crate) use item_ref::Item;
pub use push::LogStats;

/// A device beside the one with the file system, behind its queue.
#[derive(Clone)]
pub struct BesideDevice(pub Arc<Queue>);

impl std::fmt::Debug for BesideDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BesideDevice({} sectors)", self.0.info().sectors)
    }
}

/// Where the log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    /// Its first sector on the device.
    pub start: Sector,
    /// Length in blocks of 512 bytes.
    pub blocks: u32,
    /// Records begin and end at multiples of so many bytes; at least 512.
    pub stripe: u32,
    /// The UUID in its records: the file system's.
    pub uuid: [u8; 16],
    /// Records of file systems of version 4 may be without a checksum.
    pub v4: bool,
    /// A record that was in the log when the superblock was written; of cycle 0 where none is
    /// known.
    pub newest: Lsn,
}

impl LogGeometry {
    /// The log of a file system; an external one has its device for itself.
    pub fn of(geometry: &Geometry) -> LogGeometry {
        LogGeometry {
            start: geometry.sector(geometry.log_start),
            blocks: geometry.log_blocks * geometry.block_sectors() as u32,
            stripe: geometry.log_sunit.max(geometry.log_sector_size).max(512),
            uuid: geometry.uuid,
            v4: geometry.v4(),
            newest: Lsn::from_bits(if geometry.v4() { 0 } else { geometry.lsn }),
        }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * 512
    }

    /// The device's sector of a block of the log.
    pub fn sector(&self, block: u32) -> Sector {
        self.start + u64::from(block)
    }

    /// The place of a sequence number on a line that never wraps, in bytes.
    fn position(&self, lsn: Lsn) -> u64 {
        (u64::from(lsn.cycle) * u64::from(self.blocks) + u64::from(lsn.block)) * 512
    }
}

/// How a log is run.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// How buffers are formatted.
    pub variant: Variant,
    /// Bytes of a record at the most: 32 to 256 KiB, a power of two; at least the stripe unit.
    pub record_bytes: u32,
    /// How long a change may wait in memory.
    pub interval: rt::Nanos,
    /// Bytes in the log above which the oldest changes go to their places, whatever the log holds:
    /// until then their inodes and buffers stay in memory.
    pub dirty_max: u64,
    /// Sleep-free tests turn the task off and push by hand.
    pub background: bool,
    /// Check leaves of directories whole before and after each change.
    pub debug_checks: bool,
    /// Keep [`IopStats`] figures.
    pub iop_stats: bool,
    /// Who waits for another task's write of the log yields his place in the elevator to it.
    pub yields: bool,
    /// The device of an external log.
    pub device: Option<BesideDevice>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            variant: Variant::default(),
            record_bytes: 32 << 10,
            interval: rt::Nanos::from_secs(30),
            dirty_max: u64::MAX,
            background: true,
            debug_checks: false,
            iop_stats: false,
            yields: false,
            device: None,
        }
    }
}

impl LogOptions {
    /// Bytes of a record that are used: whole stripe units.
    fn filled(&self, geometry: &LogGeometry) -> u32 {
        let stripe = geometry.stripe.max(512);
        (self.record_bytes / stripe).max(1) * stripe
    }
}

/// Where the next record goes, as recovery found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The next record's place.
    pub head: Lsn,
    /// The oldest record that is still needed; the head where none is.
    pub tail: Lsn,
    /// The block of the last record's header.
    pub previous: u32,
}

/// A mounted log, with the buffers that it protects.
pub struct Log {
    pub(crate) bufs: Arc<BufCache>,
    /// Where records go: the device of the buffers, or another.
    device: Arc<Queue>,
    pub(crate) geometry: LogGeometry,
    pub(crate) options: LogOptions,
    /// Held shared while a transaction formats its items.
    pub(crate) context: RwLock<()>,
    pub(crate) cil: SpinLock<cil::Cil>,
    pub(crate) writer: Mutex<record::Writer>,
    /// The I/O context of the task that writes the log, or did last.
    writing: AtomicU64,
    pub(crate) ail: ail::Ail,
    pub(crate) grant: grant::Grant,
    stop: SpinLock<Option<&'static str>>,
    down: AtomicBool,
    pub(crate) task: task::TaskState,
    handle: SpinLock<Option<JoinHandle<()>>>,
    pub(crate) committed: WaitQueue,
    pub(crate) stats: push::Counters,
    iop_stats: Option<iop_stats::Keeper>,
    next_transaction: AtomicU64,
    next_intent: AtomicU64,
    pub(crate) finisher: SpinLock<Option<Arc<dyn IntentFinisher>>>,
    /// Extents whose freeing is not on the device yet.
    pub(crate) busy: SpinLock<busy::Busy>,
    /// Accounts of quota, where any are kept.
    dquots: OnceLock<Arc<DquotTable>>,
    /// Another device with content of files that checkpoints make valid.
    content: OnceLock<Arc<Queue>>,
}

impl Log {
    /// Runs a log from `head` on. Everything before it has been recovered.
    pub fn start(
        cx: &mut Cx,
        bufs: Arc<BufCache>,
        geometry: LogGeometry,
        mut options: LogOptions,
        head: LogHead,
    ) -> Arc<Log> {
        // A record fills whole stripe units, and its headers must have room for all their words.
        let least = geometry.stripe.next_power_of_two().max(16 << 10);
        options.record_bytes = options.record_bytes.max(least).min(256 << 10);
        let writer = record::Writer::new(geometry, &options, head);
        bufs.lsns().set_end(head.head);
        let grant = grant::Grant::new(geometry, head);
        let beside = options.device.as_ref().map(|device| device.0.clone());
        let log = Arc::new(Log {
            device: beside.unwrap_or_else(|| bufs.queue().clone()),
            bufs,
            geometry,
            context: RwLock::named("CIL context", ()),
            cil: SpinLock::named("CIL", cil::Cil::new()),
            writer: Mutex::named("log writer", writer),
            writing: AtomicU64::new(0),
            ail: ail::Ail::new(),
            grant,
            stop: SpinLock::named("log shutdown", None),
            down: AtomicBool::new(false),
            task: task::TaskState::new(),
            handle: SpinLock::new(None),
            committed: WaitQueue::named("log force"),
            stats: push::Counters::default(),
            iop_stats: options.iop_stats.then(|| iop_stats::Keeper::new(cx)),
            next_transaction: AtomicU64::new(1),
            // Never a number that an older part of the ring may hold.
            next_intent: AtomicU64::new(geometry.position(head.head) << 7 | 1),
            finisher: SpinLock::named("intent finisher", None),
            busy: SpinLock::named("busy extents", busy::Busy::default()),
            dquots: OnceLock::new(),
            content: OnceLock::new(),
            options,
        });
        if log.options.background {
            let theirs = log.clone();
            let handle = cx.spawn("xfsaild", move |cx| task::run(cx, &theirs));
            *log.handle.lock_irq() = Some(handle);
        }
        log
    }

    /// Makes durable what a checkpoint counts on and a flush of the log's device does not cover:
    /// content on another device, and what was written home where the log lies elsewhere.
    fn flush_beside(&self, cx: &mut Cx) -> Result<()> {
        let home = self.bufs.queue();
        let home = (!Arc::ptr_eq(home, &self.device)).then_some(home);
        for queue in self.content.get().into_iter().chain(home) {
            queue.flush(cx).map_err(LogError::Device)?;
        }
        Ok(())
    }

    /// The buffers that it protects.
    pub fn bufs(&self) -> &Arc<BufCache> {
        &self.bufs
    }

    /// From now on what was written to this device is durable before a checkpoint that counts on
    /// it.
    pub(crate) fn set_content_device(&self, queue: Arc<Queue>) {
        let _ = self.content.set(queue);
    }

    /// Accounts of quota that follow the inodes; none where nothing is counted.
    pub(crate) fn dquots(&self) -> Option<&Arc<DquotTable>> {
        self.dquots.get()
    }

    /// From now on accounts follow the inodes.
    pub(crate) fn set_dquots(&self, table: Arc<DquotTable>) {
        let _ = self.dquots.set(table);
    }

    /// Where it lies.
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// Names who carries out deferred work. Once, before the first transaction that defers.
    pub fn set_finisher(&self, finisher: Arc<dyn IntentFinisher>) {
        *self.finisher.lock_irq() = Some(finisher);
    }

    /// Forgets who carries out deferred work; it may hold this log.
    pub(crate) fn clear_finisher(&self) {
        self.finisher.lock_irq().take();
    }

    /// Carries out intents that recovery found in the log. May park.
    ///
    /// # Errors
    /// The finisher's; the log is shut down then, and what is left will be found again.
    pub fn finish_recovered(
        self: &Arc<Self>,
        cx: &mut Cx,
        unfinished: Vec<recovery::Unfinished>,
        bytes: u32,
    ) -> Result<()> {
        let finisher = self.finisher.lock(cx).clone();
        let intents: Vec<_> = unfinished
            .into_iter()
            .map(|found| (IntentItem::intent(found.id, found.work), found.lsn))
            .collect();
        for (intent, lsn) in &intents {
            self.ail.insert(&Item::Intent(intent.clone()), lsn.bits());
        }
        for (intent, _) in intents {
            let reservation = LogReservation::new(bytes);
            let mut trans = Trans::alloc(cx, self, reservation)?;
            trans.finish_with(cx, finisher.clone(), VecDeque::from([intent]))?;
            trans.commit(cx)?;
        }
        Ok(())
    }

    pub(crate) fn next_transaction(&self) -> u64 {
        self.next_transaction.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_intent(&self) -> u64 {
        self.next_intent.fetch_add(1, Ordering::Relaxed)
    }

    /// Why the file system was shut down, if it was.
    pub fn shut_down(&self) -> Option<&'static str> {
        if !self.down.load(Ordering::Acquire) {
            return None;
        }
        *self.stop.lock_irq()
    }

    /// An error where the file system was shut down.
    ///
    /// # Errors
    /// [`XfsError::Shutdown`] with the reason.
    pub fn check(&self) -> Result<()> {
        self.shut_down().map_or(Ok(()), |why| Err(XfsError::Shutdown(why)))
    }

    /// Stops everything: nothing is written any more, all who wait go away with an error. What the
    /// log holds on the device is what recovery will find. Any context.
    pub fn force_shutdown(&self, why: &'static str) {
        self.stop.lock_irq().get_or_insert(why);
        self.down.store(true, Ordering::Release);
        self.grant.wake();
        self.committed.wake_all();
        self.task.kick();
    }

    /// Ends the log: writes everything to its place and an unmount record behind it. After a
    /// shutdown nothing is written. May park.
    ///
    /// # Errors
    /// The first error of a write, which also shuts the log down.
    pub fn unmount(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        let emptied = self.empty(cx);
        let written = emptied.and_then(|()| self.write_unmount_record(cx));
        if written.is_err() {
            self.force_shutdown("unmount could not write everything");
        }
        self.end_task(cx);
        written
    }

    /// Lets everything go without writing, as a crash does. May park: waits for writes under way.
    pub fn abandon(self: &Arc<Self>, cx: &mut Cx) {
        self.force_shutdown("abandoned");
        self.end_task(cx);
        self.device.drain(cx);
        self.bufs.queue().drain(cx);
    }

    /// Stops everything at once, without waiting: a power cut. Any context.
    pub(crate) fn die(&self) {
        self.force_shutdown("shut down hard");
        self.clear_finisher();
        self.task.end();
    }

    fn end_task(&self, cx: &mut Cx) {
        self.task.end();
        let handle = self.handle.lock_irq().take();
        if let Some(handle) = handle {
            handle.join(cx);
        }
    }
}
