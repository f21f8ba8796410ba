//! Taking dirty data out of a mapping: finding it, completing its blocks, bios, completion, errors.
//!
//! A write that fails clears the dirty mark all the same (as in Linux): the bytes stay readable
//! until they are reclaimed, and the error is latched for the mapping's and the backing's `fsync`
//! and `sync`. An owner that knows that another attempt helps calls [`Mapping::redirty`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::range::RangeSet;
use base::unit::SECTOR_SIZE;
use base::{Errno, Page, Sector};
use block::{Bio, BioFlags, BioResult, Op, Segment};
use rt::{Charge, Cx};
use smallvec::SmallVec;

use super::{ErrorMark, IomapOps, Mapping, State};
use crate::page_cache::count;
use crate::writeback::{Held, WritePlug, WritebackControl};

/// Bytes of a run that [`Mapping::next_dirty`] answers at the most. A file of many extents takes a
/// piece of the run at a time, and the rest is looked for again: without a bound, the time to write
/// a large dirty file would grow with the square of its size.
pub(crate) const RUN_MAX: u64 = 32 << 20;
/// Behind a run of which only a piece was taken, one of so many times the piece is looked for.
const RUN_PIECES: u64 = 4;
/// But not less than this.
const RUN_MIN: u64 = 64 << 10;

/// A write that was taken out of the mapping and is not complete.
struct Write {
    range: Range<u64>,
    ticket: u64,
    /// The plug that may still hold it.
    held: Arc<Held>,
}

/// The writes of a mapping that are not complete: sorted, without overlaps, since a block is not
/// written again before its last write is done (the device may reorder them).
#[derive(Default)]
pub(crate) struct Writes {
    writes: Vec<Write>,
    tickets: u64,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn first_ending_after(&self, off: u64) -> usize {
        self.writes.partition_point(|write| write.range.end <= off)
    }

    /// True where a byte of `range` is being written.
    pub(crate) fn overlaps(&self, range: Range<u64>) -> bool {
        let first = self.writes.get(self.first_ending_after(range.start));
        first.is_some_and(|write| write.range.start < range.end)
    }

    fn add(&mut self, range: Range<u64>, held: &Arc<Held>) {
        self.tickets += 1;
        let at = self.first_ending_after(range.start);
        let write = Write { range, ticket: self.tickets, held: held.clone() };
        self.writes.insert(at, write);
    }

    fn remove(&mut self, range: &Range<u64>) {
        let at = self.first_ending_after(range.start);
        assert!(
            self.writes.get(at).is_some_and(|write| write.range == *range),
            "a write of {range:?} completed that is not in flight"
        );
        self.writes.remove(at);
    }

    /// True where a write of a byte of `range`, not newer than `ticket`, is not complete.
    fn pending(&self, range: &Range<u64>, ticket: u64) -> bool {
        let from = self.first_ending_after(range.start);
        let near = self.writes[from..].iter().take_while(|write| write.range.start < range.end);
        near.into_iter().any(|write| write.ticket <= ticket)
    }

    /// The plugs that may hold writes of `range`.
    fn plugs(&self, range: &Range<u64>) -> SmallVec<[Arc<Held>; 4]> {
        let mut plugs: SmallVec<[Arc<Held>; 4]> = SmallVec::new();
        for write in &self.writes[self.first_ending_after(range.start)..] {
            if write.range.start >= range.end {
                break;
            }
            if !plugs.iter().any(|plug| Arc::ptr_eq(plug, &write.held)) {
                plugs.push(write.held.clone());
            }
        }
        plugs
    }
}

/// What [`Mapping::find_dirty`] came upon.
enum FoundDirty {
    Nothing,
    /// Whole blocks, dirty and valid.
    Run(Range<u64>),
    /// Dirty blocks of which a part is not valid.
    Partial(Range<u64>),
    /// Dirty blocks that are still being written from before.
    Busy(Range<u64>),
}

impl Mapping {
    /// The next run of dirty blocks from the cursor `wb.range.start` on, in whole blocks and not
    /// longer than the budget left; `None` at the end. Blocks that are dirty in part have been
    /// completed: the rest was read (so this comes before allocation), or is beyond the end of the
    /// file and zero. Blocks still in flight from an earlier write are waited for where `wb.sync`,
    /// else passed over.
    ///
    /// # Errors
    /// `EIO` and what [`IomapOps::begin`](crate::IomapOps::begin) says, where a block could not be
    /// completed.
    pub fn next_dirty(
        self: &Arc<Self>,
        cx: &mut Cx,
        wb: &mut WritebackControl<'_>,
    ) -> Result<Option<Range<u64>>, Errno> {
        loop {
            if wb.budget == 0 {
                return Ok(None);
            }
            match self.find_dirty(cx, wb) {
                FoundDirty::Nothing => return Ok(None),
                FoundDirty::Run(range) => {
                    wb.run_end = range.end;
                    return Ok(Some(range));
                }
                FoundDirty::Partial(range) => {
                    count(&self.cache().counters.completions, 1);
                    self.make_valid(cx, range)?;
                }
                FoundDirty::Busy(range) => {
                    wb.plug.submit(cx);
                    self.wait_range(cx, range);
                }
            }
        }
    }

    fn find_dirty(&self, cx: &Cx, wb: &WritebackControl<'_>) -> FoundDirty {
        let shift = self.shift();
        let guard = self.state.lock(cx);
        let limit = self.block_ceil(wb.range.end.min(self.size()));
        let mut from = self.block_floor(wb.range.start) >> shift;
        let mut run: Option<Range<u64>> = None;
        let most = wb.budget.min(wb.run_max);
        while let Some(index) = guard.index.next_dirty(from, limit.div_ceil(1 << shift)) {
            let start = index << shift;
            if run.as_ref().is_some_and(|run| run.end != start) {
                break;
            }
            for part in self.dirty_blocks(&guard, index).iter() {
                let blocks = start + u64::from(part.start)..start + u64::from(part.end);
                let blocks =
                    blocks.start.max(self.block_floor(wb.range.start))..blocks.end.min(limit);
                if blocks.is_empty() {
                    continue;
                }
                let joins = run.as_ref().is_none_or(|run| run.end == blocks.start);
                let busy = guard.writes.overlaps(blocks.clone());
                let folio = guard.index.get(index).expect("the folio was just found");
                let inner = (blocks.start - start) as u32..(blocks.end - start) as u32;
                let whole = folio.valid.covers(inner);
                if run.is_none() && busy && !wb.sync {
                    continue;
                }
                match &mut run {
                    None if busy => return FoundDirty::Busy(blocks),
                    None if !whole => return FoundDirty::Partial(blocks),
                    None => run = Some(blocks),
                    Some(run) if joins && whole && !busy => run.end = blocks.end,
                    Some(_) => return run.map_or(FoundDirty::Nothing, FoundDirty::Run),
                }
                if let Some(run) = &mut run
                    && run.end - run.start >= most
                {
                    run.end = run.start + self.block_ceil(most);
                    return FoundDirty::Run(run.clone());
                }
            }
            from = index + 1;
        }
        run.map_or(FoundDirty::Nothing, FoundDirty::Run)
    }

    /// The blocks of the folio at `index` that have a dirty byte, relative to the folio.
    pub(super) fn dirty_blocks(&self, state: &State, index: u64) -> RangeSet {
        let block = self.backing().block_size();
        let mut blocks = RangeSet::new();
        if let Some(folio) = state.index.get(index) {
            for part in folio.dirty.iter() {
                blocks.insert(part.start / block * block..part.end.next_multiple_of(block));
            }
        }
        blocks
    }

    /// Takes the dirty blocks of `off..off + len` out and puts them as bios, for the device's
    /// sectors from `sector` on, into `wb`'s plug; then moves the cursor behind them. Blocks that
    /// are clean by now, not complete, or in flight are left out. Returns the number of bytes
    /// taken. `off` and `len` are multiples of the block size. May park: a full plug is submitted.
    ///
    /// The memory is not copied: the bios hold references, and who writes to a folio in flight gets
    /// a copy; so the blocks become clean now, and dirty again with the next write.
    pub fn write_extent(
        self: &Arc<Self>,
        cx: &mut Cx,
        wb: &mut WritebackControl<'_>,
        off: u64,
        len: u64,
        sector: Sector,
    ) -> u64 {
        let end = off + len;
        debug_assert!(self.block_floor(off) == off && self.block_floor(end) == end);
        cx.charge_for(Charge::MapBlocks, 1);
        cx.charge_for(Charge::PageLookup, len.div_ceil(u64::from(self.folio_size())));
        let sync = || self.backing().queue().sync_write_flags();
        let flags = if wb.sync { sync() } else { BioFlags::empty() };
        let (mut at, mut taken) = (off, 0);
        while at < end {
            let from = Sector(sector.0 + (at - off) / SECTOR_SIZE);
            let Some(range) = self.take_bio(cx, wb.plug, at..end, from, flags) else { break };
            taken += range.end - range.start;
            at = range.end;
            if wb.plug.is_full() {
                wb.plug.submit(cx);
            }
        }
        let whole = end >= wb.run_end;
        wb.run_max = if whole { RUN_MAX } else { (RUN_PIECES * len).clamp(RUN_MIN, RUN_MAX) };
        wb.range.start = wb.range.start.max(end);
        wb.budget = wb.budget.saturating_sub(taken);
        wb.written += taken;
        taken
    }

    /// One bio of [`write_extent`](Mapping::write_extent): the first contiguous run of dirty blocks
    /// within `extent`, up to the device's limits, where `sector` is that of `extent.start`.
    fn take_bio(
        self: &Arc<Self>,
        cx: &Cx,
        plug: &WritePlug,
        extent: Range<u64>,
        sector: Sector,
        flags: BioFlags,
    ) -> Option<Range<u64>> {
        let first = extent.start;
        let coder = match self.encoded.load(Ordering::Acquire) {
            true => Some(self.ops().ok()?),
            false => None,
        };
        self.take_run(cx, extent, |state, range, mut segs| {
            let sector = Sector(sector.0 + (range.start - first) / SECTOR_SIZE);
            if let Some(coder) = coder {
                encode(&*coder, range.start, &mut segs);
            }
            self.hold_bio(cx, state, plug, range.clone(), sector, segs, flags);
            range
        })
    }

    /// Makes the first contiguous run of dirty blocks within `extent`, up to the device's limits,
    /// clean, and has `put` note it as in flight while the lock is held.
    pub(super) fn take_run<R>(
        &self,
        cx: &Cx,
        extent: Range<u64>,
        put: impl FnOnce(&mut State, Range<u64>, SmallVec<[Segment; 4]>) -> R,
    ) -> Option<R> {
        let (shift, device) = (self.shift(), self.device());
        let block = u64::from(self.backing().block_size());
        let bytes_max = (u64::from(device.max_bytes) / block * block).max(block);
        let segments_max = usize::from(device.max_segments).max(1);
        let mut segs: SmallVec<[Segment; 4]> = SmallVec::new();
        let mut taken: Option<Range<u64>> = None;
        let mut guard = self.state.lock(cx);
        let state = &mut *guard;
        let mut from = extent.start >> shift;
        'folios: while let Some(index) =
            state.index.next_dirty(from, extent.end.div_ceil(1 << shift))
        {
            let start = index << shift;
            for part in self.dirty_blocks(state, index).iter() {
                let first = (start + u64::from(part.start)).max(extent.start);
                let mut last = (start + u64::from(part.end)).min(extent.end);
                if first >= last {
                    continue;
                }
                let room = taken.as_ref().map_or(bytes_max, |r| bytes_max - (r.end - r.start));
                let joins = taken.as_ref().is_none_or(|range| range.end == first);
                if !joins || room == 0 || segs.len() == segments_max {
                    break 'folios;
                }
                last = last.min(first + room);
                let inner = (first - start) as u32..(last - start) as u32;
                let busy = state.writes.overlaps(first..last);
                let folio = state.index.get_mut(index).expect("the folio was just found");
                if busy || !folio.valid.covers(inner.clone()) {
                    if taken.is_some() {
                        break 'folios;
                    }
                    continue;
                }
                let page = folio.page.clone().expect("what is dirty has memory");
                folio.dirty.remove(inner.clone());
                let (offset, len) = (inner.start, inner.end - inner.start);
                segs.push(Segment { page, offset, len });
                taken = Some(taken.map_or(first, |range| range.start)..last);
            }
            let change = state.index.note_dirty(index);
            self.cache().note_dirty(change);
            from = index + 1;
        }
        let range = taken?;
        if let Some(index) = Some((range.end - 1) >> shift) {
            let change = state.index.note_dirty(index);
            self.cache().note_dirty(change);
        }
        Some(put(state, range, segs))
    }

    /// Makes the bio of a write, notes it as in flight and puts it into the plug, under the
    /// mapping's lock: whoever sees it in flight finds it in the plug or at the device.
    #[allow(clippy::too_many_arguments)]
    fn hold_bio(
        self: &Arc<Self>,
        cx: &Cx,
        state: &mut State,
        plug: &WritePlug,
        range: Range<u64>,
        sector: Sector,
        segs: SmallVec<[Segment; 4]>,
        flags: BioFlags,
    ) {
        let (mapping, done) = (self.clone(), range.clone());
        let end = Box::new(move |result: BioResult| mapping.end_write(done, result));
        let bytes = range.end - range.start;
        let mut bio = Bio::new(Op::Write, sector, segs, flags, end);
        bio.ioc = cx.ioc();
        count(&self.cache().counters.write_bios, 1);
        count(&self.cache().counters.write_bytes, bytes);
        self.note_write(state, plug, range);
        plug.held().push(bio);
    }

    /// Notes `range` as in flight.
    pub(super) fn note_write(&self, state: &mut State, plug: &WritePlug, range: Range<u64>) {
        count(&self.cache().writeback, range.end - range.start);
        state.writes.add(range, plug.held());
    }

    /// Event context: a bio that wrote `range` is complete.
    fn end_write(self: Arc<Self>, range: Range<u64>, result: BioResult) {
        let result = result.result.map_err(|error| error.to_errno());
        self.finish_write(range, result);
    }

    /// The write of `range` is complete.
    pub(super) fn finish_write(self: Arc<Self>, range: Range<u64>, result: Result<(), Errno>) {
        let (cache, serial) = (self.cache().clone(), self.serial());
        let ops = self.ops();
        if let Ok(ops) = &ops {
            ops.ioend(range.clone(), result);
        }
        {
            let mut state = self.state.lock_irq();
            state.writes.remove(&range);
            if let Err(errno) = result {
                count(&cache.counters.write_errors, 1);
                state.error.set(errno);
                self.backing().note_error(errno);
            }
        }
        cache.writeback.fetch_sub(range.end - range.start, Ordering::Relaxed);
        // Before those who wait may tear everything down.
        drop((ops, self));
        cache.folio_wait(serial, u64::MAX).wake_all();
        cache.note_progress();
    }

    /// Marks what is valid in `range` dirty again: for an owner who knows that writing it again
    /// helps.
    pub fn redirty(self: &Arc<Self>, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let (ops, shift) = (self.ops()?, self.shift());
        let mut from = range.start >> shift;
        loop {
            let mut guard = self.state.lock(cx);
            let next = guard.index.next(from, range.end.div_ceil(1 << shift));
            let Some(index) = next else { return Ok(()) };
            let start = index << shift;
            let inner = range.start.saturating_sub(start).min(1 << shift) as u32
                ..(range.end - start).min(1 << shift) as u32;
            let folio = guard.index.get_mut(index).expect("the folio was just found");
            let valid: SmallVec<[Range<u32>; 2]> = folio.valid.within(inner).collect();
            valid.into_iter().for_each(|part| folio.dirty.insert(part));
            let newly = !folio.dirty.is_empty() && self.note_dirty(&mut guard, &ops, index);
            drop(guard);
            self.start_flusher(cx, newly);
            from = index + 1;
        }
    }

    /// Latches an error that was found while writing out.
    pub(crate) fn set_error(&self, errno: Errno) {
        self.state.lock_irq().error.set(errno);
        self.backing().note_error(errno);
    }

    /// Waits for the writes of any byte of the file that are in flight now, and submits those that
    /// sit in somebody's plug. Allocates nothing and takes no lock of the file system, so a journal
    /// commit may call it.
    ///
    /// # Errors
    /// An error of a write that ended meanwhile; it stays latched.
    pub fn wait(&self, cx: &mut Cx) -> Result<(), Errno> {
        let before = self.state.lock(cx).error.now();
        self.wait_range(cx, 0..u64::MAX);
        self.state.lock(cx).error.peek(before)
    }

    /// As [`wait`](Mapping::wait), for writes that overlap `range`.
    pub(crate) fn wait_range(&self, cx: &mut Cx, range: Range<u64>) {
        let (ticket, plugs) = {
            let state = self.state.lock(cx);
            if !state.writes.pending(&range, u64::MAX) {
                return;
            }
            (state.writes.tickets, state.writes.plugs(&range))
        };
        for held in plugs {
            held.submit(cx, self.backing().queue());
        }
        let done = || !self.state.lock_irq().writes.pending(&range, ticket);
        self.cache().folio_wait(self.serial(), u64::MAX).wait_until(cx, "folio write-back", done);
        cx.charge_for(Charge::Interrupt, 1);
        cx.charge_for(Charge::BioComplete, 1);
    }

    /// Writes the dirty bytes of `range` out and waits for them; then, if nothing is dirty, the
    /// backing lets go of the file-system object. May park: allocates blocks, waits for the device.
    ///
    /// # Errors
    /// Those of `writepages`, and of writes that ended meanwhile; they stay latched.
    pub fn flush(self: &Arc<Self>, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let before = self.state.lock(cx).error.now();
        let mut plug = WritePlug::new(self.backing());
        let (_, written) = self.write_dirty(cx, &mut plug, range.clone(), true, u64::MAX);
        plug.submit(cx);
        self.wait_range(cx, range);
        self.retire(cx);
        let latched = self.state.lock(cx).error.peek(before);
        written.and(latched)
    }

    /// Sends all dirty bytes to the device and does not wait for them (Linux: `filemap_flush`). May
    /// park: allocates blocks.
    ///
    /// # Errors
    /// Those of `writepages`; they stay latched.
    pub fn start_flush(self: &Arc<Self>, cx: &mut Cx) -> Result<(), Errno> {
        let mut plug = WritePlug::new(self.backing());
        let (_, written) = self.write_dirty(cx, &mut plug, 0..u64::MAX, false, u64::MAX);
        plug.submit(cx);
        written
    }

    /// [`flush`](Mapping::flush) of the whole file, and the report of errors since `mark`.
    ///
    /// # Errors
    /// A write error since `mark`, once; `mark` moves on.
    pub fn fsync(self: &Arc<Self>, cx: &mut Cx, mark: &mut ErrorMark) -> Result<(), Errno> {
        let flushed = self.flush(cx, 0..u64::MAX);
        self.check_error(mark).and(flushed)
    }

    /// Calls `writepages` for dirty data of `range`. Returns the bytes taken out, and the error,
    /// which is latched.
    pub(crate) fn write_dirty(
        self: &Arc<Self>,
        cx: &mut Cx,
        plug: &mut WritePlug,
        range: Range<u64>,
        sync: bool,
        budget: u64,
    ) -> (u64, Result<(), Errno>) {
        if !self.is_dirty() {
            return (0, Ok(()));
        }
        let mut wb = WritebackControl::new(range, sync, budget, plug);
        let result = self.ops().and_then(|ops| ops.writepages(cx, self, &mut wb));
        (wb.written, result.inspect_err(|&errno| self.set_error(errno)))
    }
}

/// Replaces content from byte `at` on by a copy that is what the device is to have.
fn encode(ops: &dyn IomapOps, mut at: u64, segs: &mut SmallVec<[Segment; 4]>) {
    for seg in segs {
        let mut page = Page::from_slice(seg.bytes());
        ops.encode(at, page.make_mut());
        (seg.page, seg.offset) = (page, 0);
        at += u64::from(seg.len);
    }
}
