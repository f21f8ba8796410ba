//! A mapping: the cached part of one file, and the buffered write into it.
//!
//! # What the file system does and what the mapping does
//!
//! The file system implements [`IomapOps`]: where bytes live on the device, whether there is room
//! for new ones, and the allocation of blocks when dirty data is written out. The mapping does the
//! rest: memory, valid and dirty ranges, reads and readahead, bios, accounting, errors.
//!
//! ```text
//! write:  reserve (ENOSPC here) -> copy in, mark valid + dirty -> wait at the dirty limit
//! flush:  writepages { next_dirty (completes partly written blocks) -> allocate -> write_extent }
//!         -> wait
//! read:   copy what is valid; for the rest: mark "reading" -> begin -> bios -> wait
//! ```
//!
//! # Locks
//!
//! `state` is a spin lock: data is copied under it only in single folios; reads copy from a
//! reference without it. A file system's own inode lock is outside of everything here. While
//! `write` waits at the dirty limit, its caller may hold the inode's read-write lock, so
//! `writepages` must not take that one; and nobody may call `read`, `write`, `truncate` or `flush`
//! with a journal handle open, since they wait for writers of the journal.

mod journaled;
mod ops;
mod read;
mod resize;
#[cfg(test)]
mod tests;
mod writeout;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::page::is_zero;
use base::{Errno, Page};
use block::DeviceInfo;
use rt::{Charge, Cx, SpinLock};

use crate::folio::{Folio, Index};
use crate::page_cache::PageCache;
use crate::readahead::Streams;
use crate::writeback::Backing;
pub use journaled::{InMemory, TakenBlocks};
pub use ops::{IomapIter, IomapOps};
pub(crate) use writeout::{RUN_MAX, Writes};

/// The latest write error of a mapping or a backing, so that everybody learns of it once (Linux:
/// errseq, Jeff Layton, 2017).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorLatch {
    /// Counts errors.
    sequence: u64,
    errno: Option<Errno>,
    /// Whether the latest one was reported to anybody.
    seen: bool,
}

/// How far a reader of errors has got: taken at open, moved by [`Mapping::check_error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorMark(u64);

impl ErrorLatch {
    pub(crate) fn set(&mut self, errno: Errno) {
        self.sequence += 1;
        self.errno = Some(errno);
        self.seen = false;
    }

    /// The mark of a new opener: an error that was not reported yet is still to come for it.
    pub(crate) fn mark(&self) -> ErrorMark {
        ErrorMark(if self.seen { self.sequence } else { self.sequence.saturating_sub(1) })
    }

    /// The mark after all errors so far.
    pub(crate) fn now(&self) -> ErrorMark {
        ErrorMark(self.sequence)
    }

    /// The latest error after `mark`, without taking notice of it.
    pub(crate) fn peek(&self, mark: ErrorMark) -> Result<(), Errno> {
        match self.errno {
            Some(errno) if mark.0 < self.sequence => Err(errno),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&mut self, mark: &mut ErrorMark) -> Result<(), Errno> {
        let answer = self.peek(*mark);
        mark.0 = self.sequence;
        self.seen |= answer.is_err();
        answer
    }
}

/// What the spin lock guards.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) index: Index,
    /// Writes in flight or in somebody's plug.
    pub(crate) writes: Writes,
    /// Grows whenever folios are dropped or their reads are cancelled.
    pub(crate) epoch: u64,
    pub(crate) error: ErrorLatch,
    /// Readers in sequence; made when the first read misses.
    pub(crate) streams: Option<Box<Streams>>,
    /// Where the clock of reclaim goes on.
    pub(crate) hand: u64,
    /// In the ring of reclaim, or being visited.
    pub(crate) in_ring: bool,
    /// On the backing's list of dirty mappings.
    pub(crate) listed: bool,
}

/// The cached part of one file. It takes no memory but itself until the first folio.
pub struct Mapping {
    backing: Arc<Backing>,
    id: u64,
    /// Distinguishes mappings that have had the same id.
    serial: u64,
    ops: Weak<dyn IomapOps>,
    /// See [`IomapOps::is_encoded`].
    encoded: AtomicBool,
    /// File size in bytes. Changed under `state`, read anywhere.
    size: AtomicU64,
    pub(crate) state: SpinLock<State>,
}

/// Bytes copied in between two looks at the dirty limit.
const WRITE_STEP: usize = 64 << 10;

impl Mapping {
    /// The mapping of file `id` (its inode number: write-back goes in this order), which has `size`
    /// bytes. `ops` may be the inode itself, which holds the mapping: hence weak. While the mapping
    /// is dirty or in flight, the backing holds the object.
    pub fn new(
        backing: &Arc<Backing>,
        id: u64,
        size: u64,
        ops: Weak<dyn IomapOps>,
    ) -> Arc<Mapping> {
        Arc::new(Mapping {
            backing: backing.clone(),
            id,
            serial: backing.next_serial(),
            encoded: AtomicBool::new(ops.upgrade().is_some_and(|ops| ops.is_encoded())),
            ops,
            size: AtomicU64::new(size),
            state: SpinLock::named("mapping", State::default()),
        })
    }

    /// From now on the device holds something else than the content: the file is not dirty, and the
    /// caller drops its pages.
    pub fn set_encoded(&self) {
        self.encoded.store(true, Ordering::Release);
    }

    /// The file's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The backing that the mapping belongs to.
    pub fn backing(&self) -> &Arc<Backing> {
        &self.backing
    }

    /// File size in bytes, as far as the cache knows.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Sets the size without touching folios: for an inode just read, or after the file system
    /// itself wrote. To shrink or grow a file, [`truncate`](Mapping::truncate) is the way.
    pub fn set_size(&self, size: u64) {
        let state = self.state.lock_irq();
        self.size.store(size, Ordering::Release);
        drop(state);
    }

    /// True where some bytes are dirty. Writes in flight do not count.
    pub fn is_dirty(&self) -> bool {
        self.state.lock_irq().index.dirty_count() > 0
    }

    /// True where nothing is dirty and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock_irq();
        state.index.dirty_count() == 0 && state.writes.is_empty()
    }

    /// Bytes of folio memory that the mapping holds.
    pub fn memory_bytes(&self) -> u64 {
        self.state.lock_irq().index.count() << self.shift()
    }

    /// A mark for a new opener, for [`check_error`](Mapping::check_error).
    pub fn error_mark(&self) -> ErrorMark {
        self.state.lock_irq().error.mark()
    }

    /// The latest write error since `mark`, once.
    ///
    /// # Errors
    /// That error: mostly `EIO`.
    pub fn check_error(&self, mark: &mut ErrorMark) -> Result<(), Errno> {
        self.state.lock_irq().error.check(mark)
    }

    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        self.backing.cache()
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    fn shift(&self) -> u32 {
        self.cache().folio_shift
    }

    fn folio_size(&self) -> u32 {
        self.cache().folio_size()
    }

    fn device(&self) -> &DeviceInfo {
        self.backing.queue().info()
    }

    /// `off` rounded down to the block size.
    fn block_floor(&self, off: u64) -> u64 {
        off & !(u64::from(self.backing.block_size()) - 1)
    }

    /// `off` rounded up to the block size.
    fn block_ceil(&self, off: u64) -> u64 {
        self.block_floor(off.saturating_add(u64::from(self.backing.block_size()) - 1))
    }

    pub(crate) fn ops(&self) -> Result<Arc<dyn IomapOps>, Errno> {
        self.ops.upgrade().ok_or(Errno::ESTALE)
    }

    /// Copies `data` to `off`, and lets the size grow to its end. The file system has checked
    /// limits and permissions and holds its inode lock. May park: reserves blocks, waits for
    /// memory, waits at the dirty limit.
    ///
    /// # Errors
    /// Those of [`IomapOps::reserve`], before anything is copied; `ESTALE` where the file system
    /// object is gone; those of reading around an unaligned old end of file.
    pub fn write(self: &Arc<Self>, cx: &mut Cx, off: u64, data: &[u8]) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let ops = self.ops()?;
        cx.charge_for(Charge::MapBlocks, 1);
        ops.reserve(cx, off..off + data.len() as u64)?;
        let size = self.size();
        if off > size && self.block_ceil(size) != size {
            self.zero_tail(cx, &ops, size, off.min(self.block_ceil(size)))?;
        }
        let mut off = off;
        for part in data.chunks(WRITE_STEP) {
            self.copy_in(cx, &ops, off, part);
            off += part.len() as u64;
            self.backing.balance(cx);
        }
        Ok(())
    }

    /// Makes `range`, which has room reserved or allocated, zero and dirty.
    fn write_zeros(self: &Arc<Self>, cx: &mut Cx, ops: &Arc<dyn IomapOps>, range: Range<u64>) {
        let zeros = [0; 4096];
        let mut off = range.start;
        while off < range.end {
            let len = (range.end - off).min(zeros.len() as u64);
            self.copy_in_keeping_size(cx, ops, off, &zeros[..len as usize]);
            off += len;
        }
    }

    fn copy_in(self: &Arc<Self>, cx: &mut Cx, ops: &Arc<dyn IomapOps>, off: u64, data: &[u8]) {
        let size = u64::from(self.folio_size());
        let (mut off, mut data) = (off, data);
        while !data.is_empty() {
            let room = (size - off % size) as usize;
            let (now, rest) = data.split_at(room.min(data.len()));
            self.copy_into_folio(cx, ops, off, now, true);
            off += now.len() as u64;
            data = rest;
        }
    }

    fn copy_in_keeping_size(
        self: &Arc<Self>,
        cx: &mut Cx,
        ops: &Arc<dyn IomapOps>,
        off: u64,
        data: &[u8],
    ) {
        let room = (u64::from(self.folio_size()) - off % u64::from(self.folio_size())) as usize;
        let (now, rest) = data.split_at(room.min(data.len()));
        self.copy_into_folio(cx, ops, off, now, false);
        if !rest.is_empty() {
            self.copy_into_folio(cx, ops, off + now.len() as u64, rest, false);
        }
    }

    /// Copies `data`, which lies in one folio, to `off`. A new folio is filled before the lock is
    /// taken.
    fn copy_into_folio(
        self: &Arc<Self>,
        cx: &mut Cx,
        ops: &Arc<dyn IomapOps>,
        off: u64,
        data: &[u8],
        grow: bool,
    ) {
        cx.charge_for(Charge::PageLookup, 1);
        cx.charge_bytes(Charge::CopyPage, data.len() as u64);
        let folio_size = self.folio_size();
        let (index, at) = (off >> self.shift(), (off % u64::from(folio_size)) as u32);
        let end = off + data.len() as u64;
        let mut guard = self.state.lock(cx);
        if let Some(folio) = guard.index.get_mut(index) {
            folio.referenced = !folio.fresh;
            folio.fresh = false;
            folio.write(at, data, folio_size);
            self.written(folio, index, end, grow);
            let newly = self.note_dirty(&mut guard, ops, index);
            drop(guard);
            return self.start_flusher(cx, newly);
        }
        drop(guard);
        cx.charge_for(Charge::PageAdd, 1);
        if grow {
            self.cache().charge(cx, 1);
        } else {
            // Zeros for a tail: the caller may hold what the flusher needs.
            self.cache().charge_nowait(cx, 1);
        }
        let page = if is_zero(data) {
            self.cache().zeros.clone()
        } else if at == 0 {
            Page::padded(data, folio_size as usize)
        } else {
            let mut page = Page::zeroed(folio_size as usize);
            page.make_mut()[at as usize..at as usize + data.len()].copy_from_slice(data);
            page
        };
        let mut guard = self.state.lock(cx);
        let range = at..at + data.len() as u32;
        let newly = if let Some(folio) = guard.index.get_mut(index) {
            folio.write(at, data, folio_size);
            self.cache().uncharge(1);
            self.written(folio, index, end, grow);
            self.note_dirty(&mut guard, ops, index)
        } else {
            let mut folio = Folio {
                page: Some(page),
                valid: base::range::RangeSet::from_range(range.clone()),
                dirty: base::range::RangeSet::from_range(range),
                epoch: guard.epoch,
                ..Folio::default()
            };
            self.written(&mut folio, index, end, grow);
            self.insert(&mut guard, index, folio);
            self.list(&mut guard, ops)
        };
        drop(guard);
        self.start_flusher(cx, newly);
    }

    /// Puts a folio, for which memory was charged, into the index, and the mapping into the ring.
    fn insert(self: &Arc<Self>, state: &mut State, index: u64, folio: Folio) {
        if !folio.dirty.is_empty() {
            self.cache().note_dirty(1);
        }
        state.index.insert(index, folio);
        self.enter_ring(state);
    }

    /// Puts the mapping, which has folios, into the ring.
    fn enter_ring(self: &Arc<Self>, state: &mut State) {
        if !state.in_ring {
            state.in_ring = true;
            self.cache().ring.lock_irq().enter(Arc::downgrade(self));
        }
    }

    /// What a write of the folio at `index` up to the file offset `end` makes of the file's size.
    fn written(&self, folio: &mut Folio, index: u64, end: u64, grow: bool) {
        let size = self.size.load(Ordering::Relaxed);
        if grow && end > size {
            // Nothing is on the device beyond the old end of the file: the rest is known.
            let (start, shift) = (index << self.shift(), self.shift());
            let known = self.block_ceil(size).clamp(start, start + (1 << shift)) - start;
            let folio_size = self.folio_size();
            folio.fill_zero(known as u32..folio_size, folio_size);
            self.size.store(end, Ordering::Release);
        }
    }

    /// Notes that the folio at `index` was written. True where the mapping became dirty.
    fn note_dirty(
        self: &Arc<Self>,
        state: &mut State,
        ops: &Arc<dyn IomapOps>,
        index: u64,
    ) -> bool {
        let change = state.index.note_dirty(index);
        self.cache().note_dirty(change);
        self.list(state, ops)
    }

    /// Puts the mapping on the backing's list of dirty ones; true where it was not there.
    fn list(self: &Arc<Self>, state: &mut State, ops: &Arc<dyn IomapOps>) -> bool {
        let newly = !state.listed;
        if newly {
            state.listed = true;
            self.backing.list(self, ops);
        }
        newly
    }

    fn start_flusher(&self, cx: &mut Cx, newly: bool) {
        if newly {
            self.backing.start(cx);
        }
    }

    /// Takes a mapping that is clean and idle off the backing's list.
    pub(crate) fn retire(&self, cx: &Cx) {
        let entry = {
            let mut state = self.state.lock(cx);
            let idle = state.index.dirty_count() == 0 && state.writes.is_empty();
            if !(state.listed && idle) {
                return;
            }
            state.listed = false;
            self.backing.unlist(self)
        };
        // The last reference to an inode may go here, and with it the file system's own clean-up:
        // not under our lock.
        drop(entry);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let (folios, dirty) = (state.index.count(), state.index.dirty_count());
        self.backing.cache().uncharge(folios);
        self.backing.cache().note_dirty(-(dirty as i64));
    }
}
