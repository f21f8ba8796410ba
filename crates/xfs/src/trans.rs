//! Transactions: changes that reach the log together, or not at all.
//!
//! ```text
//! let mut trans = Trans::alloc(cx, &log, LogReservation::new(20 << 10))?;
//! let buf = trans.read_buf(cx, &maps, &OPS)?;      // locked until the end
//! buf.with_mut(|bytes| bytes[100] = 1);
//! trans.log_buf(&buf, 100, 100);
//! trans.log_inode(&item, &image, InodeFields::CORE);
//! trans.defer(Work::Free { .. });
//! let seq = trans.commit(cx)?;             // in memory; `log.force_seq(cx, seq)` makes it durable
//! ```
//!
//! Buffers that a transaction reads or gets are locked until it ends, and reading one twice gives
//! the same. Inodes are locked by their owner, over the end of the transaction. A transaction that
//! has changed something can only be committed: its changes are in the buffers already, so that
//! cancelling it shuts the file system down.

mod defer;
pub mod intent;
#[cfg(test)]
mod intent_tests;
pub(crate) mod reservations;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Sector;
use rt::Cx;
use smallvec::SmallVec;

use crate::buf::{Buf, BufMap, BufOps, LockedBuf};
use crate::error::Result;
use crate::format::AgExtent;
use crate::log::Log;
use crate::log::buf_item::BufItemFlags;
use crate::log::cil::Commit;
use crate::log::dquot_item::{Charge, DquotChange, DquotItem};
use crate::log::inode_item::{Image, InodeFields, InodeItem};
use intent::{IntentItem, Work};

pub use defer::{Finished, IntentFinisher};

/// What a transaction may need of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReservation {
    /// Bytes of regions with their operation headers, of one transaction.
    pub bytes: u32,
    /// How many transactions of that size are reserved at once: 1 + the rolls that are usual.
    pub count: u32,
}

impl LogReservation {
    /// One transaction of so many bytes.
    pub fn new(bytes: u32) -> LogReservation {
        LogReservation { bytes, count: 1 }
    }

    /// The same with so many bytes more.
    pub fn with(self, bytes: u32) -> LogReservation {
        LogReservation { bytes: self.bytes + bytes, ..self }
    }

    /// As many transactions of that size.
    pub fn times(self, count: u32) -> LogReservation {
        LogReservation { count, ..self }
    }
}

/// Up to so many buffers of a transaction are searched for one by one.
const LIST_MAX: usize = 24;

/// A buffer of a transaction.
struct Joined {
    buf: Arc<Buf>,
    /// Where it begins, so that a search does not look into every buffer.
    daddr: Sector,
    dirty: bool,
    /// Stays locked, and with the transaction, when it rolls.
    hold: bool,
}

/// An inode of a transaction with its new image.
struct ChangedInode {
    item: Arc<InodeItem>,
    image: Image,
    fields: InodeFields,
}

/// A record of quota that a transaction changes.
struct ChangedDquot {
    item: Arc<DquotItem>,
    change: DquotChange,
}

/// A place in the life of a transaction.
#[derive(Clone, Copy)]
pub(crate) struct TransMark {
    bufs: usize,
    highest_group: Option<u32>,
}

/// A running transaction.
#[must_use = "a transaction ends with commit or cancel"]
pub struct Trans {
    log: Arc<Log>,
    id: u64,
    /// Bytes of one unit, with all overhead.
    unit: u64,
    /// Units that are reserved behind this one.
    units: u32,
    /// Bytes of this unit that are not used.
    left: u64,
    bufs: SmallVec<[Joined; 12]>,
    inodes: SmallVec<[ChangedInode; 2]>,
    /// Accounts of the owners of inodes.
    dquots: Vec<ChangedDquot>,
    /// Inodes that it has taken for itself until it ends.
    locked: SmallVec<[Arc<InodeItem>; 2]>,
    /// Intents, done items and the like, in order, with the place among the buffers.
    once: Vec<Arc<IntentItem>>,
    deferred: VecDeque<Work>,
    /// Extents that it has freed since its last commit.
    freed: Vec<AgExtent>,
    /// The highest group whose AGF it has locked since its last commit.
    highest_group: Option<u32>,
    /// It has changed more than what allocation keeps in order by the way: see [`Trans::upkeep`].
    substance: bool,
    ended: bool,
}

impl Trans {
    /// Begins a transaction with space in the log. May park: waits for space.
    ///
    /// # Errors
    /// After a shutdown; where the log could never hold that much.
    pub fn alloc(cx: &mut Cx, log: &Arc<Log>, reservation: LogReservation) -> Result<Trans> {
        let unit = log.wire_bytes(u64::from(reservation.bytes));
        let count = reservation.count.max(1);
        log.reserve(cx, unit * u64::from(count), false)?;
        let mut trans = Trans::empty(log);
        (trans.unit, trans.units, trans.left) = (unit, count - 1, unit);
        Ok(trans)
    }

    /// A transaction that only looks: it has no space in the log. Nothing waits.
    pub(crate) fn empty(log: &Arc<Log>) -> Trans {
        Trans {
            id: log.next_transaction(),
            log: log.clone(),
            unit: 0,
            units: 0,
            left: 0,
            bufs: SmallVec::new(),
            inodes: SmallVec::new(),
            dquots: Vec::new(),
            locked: SmallVec::new(),
            once: Vec::new(),
            deferred: VecDeque::new(),
            freed: Vec::new(),
            highest_group: None,
            substance: false,
            ended: false,
        }
    }

    /// The log it goes to.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True if it has changed something.
    pub fn is_dirty(&self) -> bool {
        let listed = self.inodes.is_empty() && self.once.is_empty() && self.dquots.is_empty();
        !listed || self.bufs.iter().any(|buf| buf.dirty)
    }

    /// True if it has changed something that only makes sense together with what was to follow.
    pub(crate) fn has_substance(&self) -> bool {
        self.substance
    }

    /// Runs a change that stands for itself, such as filling a group's AGFL: a transaction that has
    /// done nothing else can be committed where the rest of it is impossible.
    pub(crate) fn upkeep<R>(&mut self, change: impl FnOnce(&mut Trans) -> Result<R>) -> Result<R> {
        let before = self.substance;
        let result = change(self)?;
        self.substance = before;
        Ok(result)
    }

    fn position(&self, buf: &Arc<Buf>) -> Option<usize> {
        if buf.owner() != self.id {
            return None;
        }
        // The buffer that was joined last is the one that is asked for most.
        self.bufs.iter().rposition(|joined| Arc::ptr_eq(&joined.buf, buf))
    }

    /// The buffer of these extents if this transaction has it already.
    fn joined(&self, maps: &[BufMap]) -> Option<Arc<Buf>> {
        if self.bufs.len() <= LIST_MAX {
            let same =
                |joined: &&Joined| joined.daddr == maps[0].daddr && joined.buf.maps() == maps;
            let known = self.bufs.iter().rev().find(same);
            return known.map(|joined| joined.buf.clone());
        }
        let buf = self.log.bufs().find(maps[0].daddr.0)?;
        (buf.owner() == self.id && buf.maps() == maps).then_some(buf)
    }

    /// True if it has the buffer of these extents.
    pub(crate) fn has_buf(&self, maps: &[BufMap]) -> bool {
        self.joined(maps).is_some()
    }

    /// The buffer of these extents with its content, locked until the transaction ends. May park.
    ///
    /// # Errors
    /// As [`BufCache::read`](crate::buf::BufCache::read).
    pub fn read_buf(&mut self, cx: &mut Cx, maps: &[BufMap], ops: &BufOps) -> Result<Arc<Buf>> {
        if let Some(buf) = self.joined(maps) {
            return Ok(buf);
        }
        let buf = self.log.bufs().read(cx, maps, ops)?;
        Ok(self.join(buf))
    }

    /// A buffer that was read before, locked until the transaction ends; none if its content is
    /// gone. The caller knows that its place holds what it held then. May park.
    pub(crate) fn read_again(&mut self, cx: &mut Cx, buf: Arc<Buf>) -> Option<Arc<Buf>> {
        if buf.owner() == self.id {
            return Some(buf);
        }
        buf.lock_again(cx).map(|buf| self.join(buf))
    }

    /// The buffer of these extents for a new content, locked until the transaction ends. The caller
    /// fills all of it, beginning with [`Buf::zero`]. May park.
    ///
    /// # Errors
    /// As [`BufCache::get`](crate::buf::BufCache::get).
    pub fn get_buf(&mut self, cx: &mut Cx, maps: &[BufMap], ops: &BufOps) -> Result<Arc<Buf>> {
        if let Some(buf) = self.joined(maps) {
            if buf.is_stale() {
                buf.revive(ops);
            }
            return Ok(buf);
        }
        let buf = self.log.bufs().get(cx, maps, ops)?;
        Ok(self.join(buf))
    }

    /// Takes a locked buffer over; it is unlocked when the transaction ends.
    pub fn join(&mut self, buf: LockedBuf) -> Arc<Buf> {
        let buf = buf.keep_locked();
        buf.set_owner(self.id);
        let daddr = buf.daddr();
        self.bufs.push(Joined { buf: buf.clone(), daddr, dirty: false, hold: false });
        buf
    }

    /// Unlocks a buffer before the end, if it was not changed. The buffer must not be in use by
    /// another part of the transaction.
    pub fn release(&mut self, buf: &Arc<Buf>) {
        if let Some(at) = self.position(buf)
            && !self.bufs[at].dirty
        {
            self.bufs.swap_remove(at).buf.unlock();
        }
    }

    /// Which buffers it has locked so far, for [`Trans::release_since`].
    pub(crate) fn mark(&self) -> TransMark {
        TransMark { bufs: self.bufs.len(), highest_group: self.highest_group }
    }

    /// Unlocks the buffers that were locked since the mark, if it has changed none of them: a group
    /// that has nothing to give is left alone by then.
    pub(crate) fn release_since(&mut self, mark: TransMark) {
        if self.bufs.len() > mark.bufs && self.bufs[mark.bufs..].iter().all(|joined| !joined.dirty)
        {
            self.bufs.drain(mark.bufs..).for_each(|joined| joined.buf.unlock());
            self.highest_group = mark.highest_group;
        }
    }

    /// Notes that it has freed an extent: nobody may write there before the checkpoint is on the
    /// device.
    pub(crate) fn free_busy(&mut self, extent: AgExtent) {
        self.freed.push(extent);
    }

    /// What it has freed since its last commit.
    pub(crate) fn freed(&self) -> &[AgExtent] {
        &self.freed
    }

    /// Notes that it has locked the AGF of a group.
    pub(crate) fn note_group(&mut self, ag: u32) {
        self.highest_group = self.highest_group.max(Some(ag));
    }

    /// The highest group whose AGF it has locked; those below are no longer for it.
    pub(crate) fn highest_group(&self) -> Option<u32> {
        self.highest_group
    }

    /// Keeps a buffer locked, and in the transaction, when it rolls.
    pub fn hold(&mut self, buf: &Arc<Buf>) {
        self.joined_mut(buf).hold = true;
    }

    /// No longer keeps it.
    pub fn unhold(&mut self, buf: &Arc<Buf>) {
        self.joined_mut(buf).hold = false;
    }

    fn joined_mut(&mut self, buf: &Arc<Buf>) -> &mut Joined {
        let at = self.position(buf);
        let at = at.unwrap_or_else(|| panic!("{buf:?} was not joined to the transaction"));
        &mut self.bufs[at]
    }

    /// Notes that bytes `first..=last` of a buffer were changed.
    ///
    /// # Panics
    /// If the buffer was not joined, or the range leaves it.
    pub fn log_buf(&mut self, buf: &Arc<Buf>, first: usize, last: usize) {
        self.joined_mut(buf).dirty = true;
        self.substance = true;
        buf.item.lock_irq().log(first, last);
    }

    /// As [`Trans::log_buf`], for several ranges of bytes.
    pub(crate) fn log_ranges(
        &mut self,
        buf: &Arc<Buf>,
        ranges: impl IntoIterator<Item = std::ops::Range<usize>>,
    ) {
        let joined = self.joined_mut(buf);
        let mut item = buf.item.lock_irq();
        let mut any = false;
        for range in ranges {
            any = true;
            item.log(range.start, range.end - 1);
        }
        joined.dirty |= any;
        self.substance |= any;
    }

    /// Says that the buffer holds inodes of which only the unlinked pointers are logged through it:
    /// recovery takes nothing else from it.
    pub fn inode_buf(&mut self, buf: &Arc<Buf>) {
        self.joined_mut(buf);
        buf.item.lock_irq().flags.insert(BufItemFlags::INODE_BUF);
    }

    /// The buffer's blocks are freed by this transaction: it is never written again, and recovery
    /// does not recover older changes of it.
    pub fn invalidate(&mut self, buf: &Arc<Buf>) {
        self.joined_mut(buf).dirty = true;
        self.substance = true;
        buf.item.lock_irq().make_stale();
        buf.make_stale();
    }

    /// The inodes of a cluster that is freed are never written again.
    pub fn invalidate_inode(&mut self, item: &Arc<InodeItem>) {
        item.make_stale();
        self.inodes.retain(|changed| !Arc::ptr_eq(&changed.item, item));
    }

    /// The buffer is written to its place before the log moves past this transaction, but its
    /// content is not logged. For content that can be made again.
    pub fn ordered(&mut self, buf: &Arc<Buf>) {
        self.joined_mut(buf).dirty = true;
        self.substance = true;
        let mut item = buf.item.lock_irq();
        if !item.is_dirty() {
            // Its blocks may have been freed before.
            item.flags.remove(BufItemFlags::STALE);
            item.flags.insert(BufItemFlags::ORDERED);
        }
    }

    /// Takes an inode for this transaction, until it ends: before anything of it is changed and
    /// before any buffer is locked, several of them in the order of their numbers. Write-back of a
    /// file's content runs without the inode's `rwsem`: this keeps it from logging an image with
    /// half of this transaction's changes, and the other way round. May park.
    pub fn join_inode(&mut self, cx: &mut Cx, item: &Arc<InodeItem>) {
        if item.owner() != self.id {
            item.lock(cx, self.id);
            self.locked.push(item.clone());
        }
    }

    /// Makes room for so many inodes.
    pub(crate) fn expect_inodes(&mut self, count: usize) {
        self.inodes.reserve_exact(count);
        self.locked.reserve_exact(count);
    }

    /// Notes a new image of an inode, whole and as it stands on the device, and what of it changed.
    /// The caller holds the inode's lock until the transaction has ended.
    pub fn log_inode(&mut self, item: &Arc<InodeItem>, image: &[u8], fields: InodeFields) {
        self.log_image(item, image.to_vec().into(), fields);
    }

    /// As [`Trans::log_inode`], with an image that the caller has made for it.
    pub(crate) fn log_image(&mut self, item: &Arc<InodeItem>, image: Image, fields: InodeFields) {
        self.substance = true;
        self.charge(item, &image.bytes);
        if let Some(changed) = self.inodes.iter_mut().find(|c| Arc::ptr_eq(&c.item, item)) {
            changed.image = image;
            changed.fields |= fields;
            return;
        }
        self.inodes.push(ChangedInode { item: item.clone(), image, fields });
    }

    /// Charges the owners of an inode for what its new image has.
    fn charge(&mut self, item: &Arc<InodeItem>, image: &[u8]) {
        let Some(table) = self.log.dquots().filter(|table| !table.holds_records(item.place().ino))
        else {
            return;
        };
        let new = Charge::of(image, item.content().load(Ordering::Relaxed));
        let old = item.set_charge(new);
        if old == new {
            return;
        }
        match table.changes(&old, &new) {
            Some(list) => list.into_iter().for_each(|add| {
                let change = DquotChange::Add(add.usage);
                self.dquots.push(ChangedDquot { item: add.item, change });
            }),
            None => self.log.force_shutdown("the quota record of an owner was not in memory"),
        }
    }

    /// Changes a record of quota.
    pub(crate) fn log_dquot(&mut self, item: Arc<DquotItem>, change: DquotChange) {
        self.substance = true;
        self.dquots.push(ChangedDquot { item, change });
    }

    /// Logs a region that means nothing after recovery has passed it, e.g. an icreate item.
    pub fn log_region(&mut self, region: Vec<u8>) {
        self.log_once(IntentItem::once(region));
    }

    fn log_once(&mut self, item: Arc<IntentItem>) {
        self.substance = true;
        self.once.push(item);
    }

    /// Ends the transaction: its changes are in memory for good and will go to the log together.
    /// Carries out deferred work first. Returns the number of the checkpoint that has to be on the
    /// device for an fsync; 0 where nothing was changed. May park.
    ///
    /// # Errors
    /// After a shutdown; the finisher's.
    pub fn commit(mut self, cx: &mut Cx) -> Result<u64> {
        let finished = self.finish_deferred(cx);
        let result = finished.and_then(|()| self.commit_dirty(cx));
        if result.is_err() && self.is_dirty() {
            self.log.force_shutdown("a changed transaction was not committed");
        }
        self.end();
        if result.is_ok() {
            self.log.throttle(cx);
        }
        result
    }

    fn commit_dirty(&mut self, cx: &mut Cx) -> Result<u64> {
        if !self.is_dirty() {
            return Ok(0);
        }
        let (once, bufs, inodes) = (&mut self.once, &mut self.bufs, &mut self.inodes);
        let dquots = &mut self.dquots;
        let (seq, used) = self.log.commit_items(cx, self.left, |commit| {
            once.drain(..).for_each(|item| commit(Commit::Intent(item)));
            for joined in bufs.iter_mut().filter(|joined| joined.dirty) {
                commit(Commit::Buf(&joined.buf));
                joined.dirty = false;
            }
            for ChangedInode { item, image, fields } in inodes.drain(..) {
                commit(Commit::Inode(item, image, fields));
            }
            for ChangedDquot { item, change } in dquots.drain(..) {
                commit(Commit::Dquot(&item, change));
            }
        })?;
        self.left -= used;
        // Before the groups' headers are unlocked, so that nobody takes what is busy.
        if !self.freed.is_empty() {
            self.log.busy.lock_irq().add(&std::mem::take(&mut self.freed), seq);
        }
        Ok(seq)
    }

    /// Commits what there is and goes on with a fresh reservation. Buffers that are not held are
    /// released. May park: waits for log space where the reserved rolls are used up.
    ///
    /// # Errors
    /// After a shutdown.
    pub fn roll(&mut self, cx: &mut Cx) -> Result<()> {
        self.commit_dirty(cx)?;
        self.substance = false;
        self.bufs.retain(|joined| {
            if !joined.hold {
                joined.buf.unlock();
            }
            joined.hold
        });
        self.highest_group = None;
        self.log.grant.give_back(std::mem::take(&mut self.left));
        match self.units.checked_sub(1) {
            Some(units) => self.units = units,
            None => self.log.reserve(cx, self.unit, true)?,
        }
        self.left = self.unit;
        Ok(())
    }

    /// Ends the transaction without its changes. Where it has made any the file system is shut
    /// down, because they are in the buffers.
    pub fn cancel(mut self) {
        if self.is_dirty() {
            self.log.force_shutdown("a changed transaction was cancelled");
        }
        self.end();
    }

    fn end(&mut self) {
        self.ended = true;
        for joined in self.bufs.drain(..) {
            joined.buf.unlock();
        }
        self.inodes.clear();
        self.dquots.clear();
        self.locked.drain(..).for_each(|item| item.unlock());
        let unused = self.left + self.unit * u64::from(self.units);
        self.log.grant.give_back(unused);
        (self.left, self.units) = (0, 0);
    }
}

impl Drop for Trans {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // An error on the way out of the caller; the same as a cancel.
        if self.is_dirty() && !std::thread::panicking() {
            self.log.force_shutdown("a changed transaction was dropped");
        }
        self.end();
    }
}
