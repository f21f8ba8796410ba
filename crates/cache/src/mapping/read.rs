//! Reading through a mapping: valid bytes are copied, the rest is read from the device.
//!
//! A read of the device marks its bytes as "being read" first and asks the file system where they
//! are afterwards; a truncate or punch in between cancels the marks, and an answer that comes back
//! to cancelled marks is dropped. Answers fill only what is not valid by then, so neither a writer
//! nor dirty data waits for a read or is disturbed by one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use base::unit::SECTOR_SIZE;
use base::{Errno, Page, Sector};
use block::{Bio, BioFlags, BioResult, Op, Plug, Segment, Segments};
use rt::{Charge, Cx};
use smallvec::SmallVec;

use super::{IomapIter, IomapOps, Mapping, State};
use crate::folio::Folio;
use crate::iomap::{Intent, Iomap, Iomaps};
use crate::page_cache::count;

/// Folios that are gathered in one hold of the lock.
const COPY_BATCH: usize = 32;
/// Up to this many bytes of one folio are copied under the lock: cheaper than a reference.
const COPY_LOCKED_MAX: u64 = 4096;

/// One round of device reads: what its bios share.
pub(super) struct ReadOp {
    /// Epoch of the mapping when it began.
    epoch: u64,
    /// The first error, 0 for none.
    errno: AtomicI32,
}

impl ReadOp {
    /// False where the folio was dropped or changed since the operation began.
    pub(super) fn is_current(&self, folio: &Folio) -> bool {
        folio.epoch <= self.epoch
    }

    fn fail(&self, errno: Errno) {
        let _ = self.errno.compare_exchange(0, errno.0, Ordering::AcqRel, Ordering::Acquire);
    }

    fn error(&self) -> Result<(), Errno> {
        match self.errno.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }
}

/// Memory that was gathered under the lock to be copied from without it.
type Gathered = SmallVec<[(Page, u32, u32); COPY_BATCH]>;

impl Mapping {
    /// Copies the bytes from `off` on to `buf`, up to the end of the file, and returns how many
    /// they are. Reads ahead where the reader goes on in sequence. May park: reads the device and
    /// metadata, waits for memory.
    ///
    /// # Errors
    /// `EIO` where the device fails at the first byte not copied, and those of
    /// [`IomapOps::begin`]; what comes before it is answered first.
    pub fn read(self: &Arc<Self>, cx: &mut Cx, off: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let end = off.saturating_add(buf.len() as u64).min(self.size());
        if off >= end {
            return Ok(0);
        }
        let (mut at, mut missed) = (off, false);
        while at < end {
            let room = &mut buf[(at - off) as usize..(end - off) as usize];
            let (copied, window) = self.copy_out(cx, off, at, room);
            cx.charge_for(Charge::PageLookup, copied.div_ceil(u64::from(self.folio_size())));
            cx.charge_bytes(Charge::CopyPage, copied);
            if let Some(window) = window {
                self.read_ahead(cx, window);
            }
            at += copied;
            if at >= end || end > self.size() {
                break;
            }
            missed = true;
            match self.fetch(cx, off, at, end) {
                Ok(()) => {}
                Err(_) if at > off => break,
                Err(errno) => return Err(errno),
            }
        }
        let counters = &self.cache().counters;
        count(if missed { &counters.misses } else { &counters.hits }, 1);
        Ok((at - off) as usize)
    }

    /// Copies what is valid from `at` on, until the first byte that is not, to `buf`. The second
    /// answer is a window to be read ahead. `first` is where the call's read began.
    fn copy_out(&self, cx: &Cx, first: u64, at: u64, buf: &mut [u8]) -> (u64, Option<Range<u64>>) {
        let (size, end) = (u64::from(self.folio_size()), at + buf.len() as u64);
        let mut gathered = Gathered::new();
        let mut pos = at;
        let window;
        {
            let mut guard = self.state.lock(cx);
            let state = &mut *guard;
            let folios = at >> self.shift()..end.div_ceil(size);
            state.index.walk(folios, |index, folio| {
                let start = index << self.shift();
                let Some(folio) = folio else { return false };
                let from = (pos - start) as u32;
                let to = (end - start).min(size) as u32;
                let valid = folio.valid.within(from..to).next().filter(|part| part.start == from);
                let (Some(part), Some(page)) = (valid, &folio.page) else { return false };
                let len = u64::from(part.end - from);
                if gathered.is_empty() && pos + len == end && len <= COPY_LOCKED_MAX {
                    let bytes = &page[from as usize..part.end as usize];
                    buf[(pos - at) as usize..].copy_from_slice(bytes);
                } else {
                    gathered.push((page.clone(), from, part.end));
                }
                folio.referenced = !folio.fresh;
                folio.fresh = false;
                pos += len;
                part.end == to && gathered.len() < COPY_BATCH
            });
            let max = self.readahead_max(end - first);
            window = state.streams.as_mut().and_then(|streams| {
                let stream = streams.select(first);
                let window = stream.on_hit(at..pos, max);
                if pos >= end {
                    stream.note(end);
                }
                window
            });
        }
        let mut to = 0;
        for (page, from, until) in &gathered {
            let bytes = &page[*from as usize..*until as usize];
            buf[to..to + bytes.len()].copy_from_slice(bytes);
            to += bytes.len();
        }
        (pos - at, window)
    }

    /// Bound of a window for a request of `request` bytes: the setting, or up to the device's
    /// largest request where so much is asked for at once; but never much of the cache.
    fn readahead_max(&self, request: u64) -> u64 {
        let config = self.cache().config();
        let bound = self.backing().readahead_bytes();
        if bound == 0 {
            return 0;
        }
        let asked = request.min(u64::from(self.device().max_bytes));
        let max = u64::from(bound).max(asked);
        max.min(config.limit_bytes / 4).max(u64::from(config.folio_size)) / 4096 * 4096
    }

    /// Brings the byte at `at` into memory, of a read of `first..end` that has got there: waits for
    /// a read that is on its way, or reads the window that readahead proposes.
    fn fetch(self: &Arc<Self>, cx: &mut Cx, first: u64, at: u64, end: u64) -> Result<(), Errno> {
        let mut early = None;
        let window = {
            let mut guard = self.state.lock(cx);
            let state = &mut *guard;
            if is_reading(state, at, self.shift()) {
                early = self.marker_reached(state, first, at, end);
                None
            } else if self.size() <= u64::from(self.folio_size()) {
                Some(0..self.size())
            } else {
                let max = self.readahead_max(end - first);
                let stream = state.streams.get_or_insert_default().select(first);
                let window = stream.on_miss(at, end, max);
                let share = (self.cache().config().limit_bytes / 4).max(1 << self.shift());
                Some(window.start..window.end.min(window.start + share))
            }
        };
        let op = match window {
            Some(window) => {
                count(&self.cache().counters.windows_sync, 1);
                Some(self.start_read(cx, window, BioFlags::SYNC)?)
            }
            None => None,
        };
        if let Some(window) = early {
            self.read_ahead(cx, window);
        }
        self.wait_read(cx, at);
        let valid = {
            let state = self.state.lock(cx);
            let folio = state.index.get(at >> self.shift());
            folio.is_some_and(|f| f.valid.contains((at % u64::from(self.folio_size())) as u32))
        };
        match op {
            Some(op) if !valid => op.error(),
            _ => Ok(()),
        }
    }

    /// The next window, where a reader of `first..end` is about to wait for the marker at `at`.
    fn marker_reached(
        &self,
        state: &mut State,
        first: u64,
        at: u64,
        end: u64,
    ) -> Option<Range<u64>> {
        if !self.cache().config().readahead_early {
            return None;
        }
        let max = self.readahead_max(end - first);
        let folio = at / u64::from(self.folio_size()) * u64::from(self.folio_size());
        let stream = state.streams.as_mut()?.select(first);
        stream.on_hit(folio..folio + u64::from(self.folio_size()), max)
    }

    /// Waits while the byte at `at` is being read.
    fn wait_read(&self, cx: &mut Cx, at: u64) {
        let index = at >> self.shift();
        let done = || !is_reading(&self.state.lock_irq(), at, self.shift());
        if done() {
            return;
        }
        self.cache().folio_wait(self.serial(), index).wait_until(cx, "folio read", done);
        cx.charge_for(Charge::Interrupt, 1);
        cx.charge_for(Charge::BioComplete, 1);
    }

    /// Sends for `window` without waiting for it. Its errors are found by whoever needs the bytes.
    fn read_ahead(self: &Arc<Self>, cx: &mut Cx, window: Range<u64>) {
        if window.start < self.size() {
            count(&self.cache().counters.windows_ahead, 1);
            // A reader who comes to the failed part asks again and gets the error.
            let _ = self.start_read(cx, window, BioFlags::RAHEAD);
        }
    }

    /// Reads what is not valid of `range` (whole blocks), and waits for it.
    ///
    /// # Errors
    /// `EIO` of the device, and those of `map`.
    pub(crate) fn make_valid(
        self: &Arc<Self>,
        cx: &mut Cx,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        let op = self.start_read(cx, range.clone(), BioFlags::SYNC)?;
        let mut index = range.start >> self.shift();
        while index << self.shift() < range.end {
            let start = index << self.shift();
            let inner = range.start.saturating_sub(start) as u32
                ..(range.end - start).min(1 << self.shift()) as u32;
            let done = || {
                let state = self.state.lock_irq();
                !state.index.get(index).is_some_and(|f| f.reading.intersects(inner.clone()))
            };
            self.cache().folio_wait(self.serial(), index).wait_until(cx, "folio read", done);
            index += 1;
        }
        op.error()
    }

    /// Marks what is neither valid nor being read of `window` as being read, finds out where it is,
    /// and sends the bios. Waits for memory and metadata, not for the data.
    fn start_read(
        self: &Arc<Self>,
        cx: &mut Cx,
        window: Range<u64>,
        flags: BioFlags,
    ) -> Result<Arc<ReadOp>, Errno> {
        let ops = self.ops()?;
        let (op, runs) = self.mark_reading(cx, window);
        // All the metadata first: while the file system may wait for others, others must not wait
        // for bios in our plug.
        let mut pieces = Iomaps::new();
        let mut answer = Ok(());
        for run in runs {
            let mut at = run.start;
            let mut iter = self.walk(&*ops, run.clone());
            while at < run.end && answer.is_ok() {
                answer = map_next(cx, &mut iter, at, run.end).map(|piece| {
                    at = piece.end();
                    pieces.push(piece);
                });
            }
            if at < run.end {
                self.end_range(at..run.end, &op);
            }
        }
        let mut plug = Plug::new();
        for piece in pieces {
            let memory = ops.in_memory(cx, &piece);
            if memory.is_empty() {
                self.read_piece(cx, &mut plug, &op, piece, flags);
            } else {
                self.read_around(cx, &mut plug, &op, piece, memory, flags);
            }
        }
        plug.finish(cx);
        answer.map(|()| op)
    }

    /// A walk over the map of `bytes`, to read them.
    pub(super) fn walk<'a>(&self, ops: &'a dyn IomapOps, bytes: Range<u64>) -> IomapIter<'a> {
        let mut iter = IomapIter::new(ops, Intent::Read, bytes);
        iter.file = self.id();
        iter
    }

    /// Puts folios where there are none in `window`, up to the end of the file, and marks what must
    /// be read. Returns the marked runs in whole blocks.
    fn mark_reading(
        self: &Arc<Self>,
        cx: &mut Cx,
        window: Range<u64>,
    ) -> (Arc<ReadOp>, SmallVec<[Range<u64>; 4]>) {
        let shift = self.shift();
        let mut charged = 0;
        loop {
            let mut guard = self.state.lock(cx);
            let state = &mut *guard;
            let end = self.block_ceil(window.end).min(self.block_ceil(self.size()));
            let window = self.block_floor(window.start)..end;
            let folios = window.start >> shift..window.end.div_ceil(1 << shift);
            let absent = state.index.absent(folios.clone());
            if absent > charged {
                drop(guard);
                self.cache().charge(cx, absent - charged);
                cx.charge_for(Charge::PageAdd, absent - charged);
                charged = absent;
                continue;
            }
            let op = Arc::new(ReadOp { epoch: state.epoch, errno: AtomicI32::new(0) });
            let mut runs: SmallVec<[Range<u64>; 4]> = SmallVec::new();
            let (epoch, block) = (state.epoch, self.backing().block_size());
            let folio = || Folio { epoch, ..Folio::default() };
            state.index.fill_and_walk(folios, folio, |index, folio| {
                let start = index << shift;
                let inner = window.start.saturating_sub(start) as u32
                    ..(window.end - start).min(1 << shift) as u32;
                mark_folio(folio, inner, start, block, &mut runs);
            });
            self.enter_ring(state);
            self.cache().uncharge(charged - absent);
            return (op, runs);
        }
    }

    /// Reads one piece, or fills it with zeros where it is a hole.
    pub(super) fn read_piece(
        self: &Arc<Self>,
        cx: &mut Cx,
        plug: &mut Plug,
        op: &Arc<ReadOp>,
        piece: Iomap,
        flags: BioFlags,
    ) {
        let range = piece.offset..piece.end();
        let Some(sector) = piece.content() else { return self.fill_hole(range, op) };
        let size = u64::from(self.folio_size());
        let segments_max = usize::from(self.device().max_segments).max(1);
        let bytes_max = u64::from(self.device().max_bytes).max(size);
        let mut at = range.start;
        while at < range.end {
            let (first, mut segs) = (at, Segments::new());
            while at < range.end && segs.len() < segments_max {
                let offset = (at % size) as u32;
                let len = (size - u64::from(offset)).min(range.end - at);
                if at - first + len > bytes_max {
                    break;
                }
                // The device writes all that is read.
                let whole = len == size;
                let page = if whole { Page::stale } else { Page::zeroed }(size as usize);
                segs.push(Segment { page, offset, len: len as u32 });
                at += len;
            }
            let sector = Sector(sector.0 + (first - range.start) / SECTOR_SIZE);
            self.submit_read(cx, plug, op.clone(), first..at, sector, segs, flags);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn submit_read(
        self: &Arc<Self>,
        cx: &mut Cx,
        plug: &mut Plug,
        op: Arc<ReadOp>,
        range: Range<u64>,
        sector: Sector,
        segs: Segments,
        flags: BioFlags,
    ) {
        count(&self.cache().counters.read_bios, 1);
        count(&self.cache().counters.read_bytes, range.end - range.start);
        let mapping = self.clone();
        let end = Box::new(move |result: BioResult| mapping.end_read(range, result, &op));
        let bio = Bio::new(Op::Read, sector, segs, flags, end);
        self.backing().queue().submit_plugged(cx, plug, bio);
    }

    /// Event context: the bio that read `range` is done.
    fn end_read(&self, range: Range<u64>, mut result: BioResult, op: &ReadOp) {
        let read = result.result.map_err(|error| error.to_errno());
        if let Err(errno) = read.and_then(|()| self.decode(range.start, &mut result.segs)) {
            op.fail(errno);
            return self.end_range(range, op);
        }
        let shift = self.shift();
        let mut at = range.start;
        {
            let mut guard = self.state.lock_irq();
            let size = self.size();
            let mut segs = result.segs.into_iter();
            // One segment for each folio, as they were made.
            guard.index.walk(at >> shift..range.end.div_ceil(1 << shift), |_, folio| {
                let Some(seg) = segs.next() else { return false };
                let inner = seg.offset..seg.offset + seg.len;
                at += u64::from(seg.len);
                let Some(folio) = folio.filter(|folio| folio.epoch <= op.epoch) else {
                    return true;
                };
                folio.reading.remove(inner.clone());
                let mut page = seg.page;
                if at > size {
                    // What the device has behind the end of the file is not part of it.
                    let beyond = (at - size).min(u64::from(seg.len)) as u32;
                    page.make_mut()[(inner.end - beyond) as usize..inner.end as usize].fill(0);
                }
                folio.fresh |= folio.valid.is_empty();
                folio.fill(inner, page, seg.offset, 1 << shift);
                true
            });
        }
        self.wake_readers(range);
    }

    /// Makes what the device had from byte `at` on content. Event context.
    fn decode(&self, mut at: u64, segs: &mut Segments) -> Result<(), Errno> {
        if !self.encoded.load(Ordering::Acquire) {
            return Ok(());
        }
        let ops = self.ops()?;
        for seg in segs {
            let bytes = seg.offset as usize..(seg.offset + seg.len) as usize;
            if seg.page.is_unique() || bytes.len() < seg.page.len() {
                ops.decode(at, &mut seg.page.make_mut()[bytes])?;
            } else {
                // The device's own page stays as it is.
                let mut page = Page::stale(bytes.len());
                ops.decode_to(at, &seg.page, page.make_mut())?;
                seg.page = page;
            }
            at += u64::from(seg.len);
        }
        Ok(())
    }

    /// Fills a hole with zeros.
    fn fill_hole(&self, range: Range<u64>, op: &ReadOp) {
        let shift = self.shift();
        let mut at = range.start;
        while at < range.end {
            let (index, start) = (at >> shift, at >> shift << shift);
            let next = (start + (1 << shift)).min(range.end);
            let inner = (at - start) as u32..(next - start) as u32;
            if let Some(folio) = self.state.lock_irq().index.get_mut(index)
                && folio.epoch <= op.epoch
            {
                folio.reading.remove(inner.clone());
                folio.fresh |= folio.valid.is_empty();
                folio.fill_zero(inner, 1 << shift);
            }
            at = next;
        }
        self.wake_readers(range);
    }

    /// Takes the marks of a read that failed or was not sent off `range`, and the folios that held
    /// nothing else.
    fn end_range(&self, range: Range<u64>, op: &ReadOp) {
        let shift = self.shift();
        let mut dropped = 0;
        {
            let mut state = self.state.lock_irq();
            let mut at = range.start;
            while at < range.end {
                let (index, start) = (at >> shift, at >> shift << shift);
                let next = (start + (1 << shift)).min(range.end);
                if let Some(folio) = state.index.get_mut(index)
                    && folio.epoch <= op.epoch
                {
                    folio.reading.remove((at - start) as u32..(next - start) as u32);
                    if folio.reading.is_empty() && folio.valid.is_empty() {
                        state.index.remove(index);
                        dropped += 1;
                    }
                }
                at = next;
            }
        }
        self.cache().uncharge(dropped);
        self.wake_readers(range);
    }

    /// Wakes those who wait for folios of `range`. Event context.
    pub(super) fn wake_readers(&self, range: Range<u64>) {
        for index in range.start >> self.shift()..range.end.div_ceil(1 << self.shift()) {
            self.cache().folio_wait(self.serial(), index).wake_all();
        }
    }
}

/// The piece of the map that begins at `at` and ends at `end` at the latest.
fn map_next(cx: &mut Cx, iter: &mut IomapIter<'_>, at: u64, end: u64) -> Result<Iomap, Errno> {
    cx.charge_for(Charge::MapBlocks, 1);
    let piece = iter.begin(cx, at..end)?;
    debug_assert_eq!(piece.offset, at, "pieces have no gaps between them");
    // A map that gives nothing would never end.
    if piece.len == 0 {
        return Err(Errno::EIO);
    }
    Ok(Iomap { len: piece.len.min(end - at), ..piece })
}

fn is_reading(state: &State, at: u64, shift: u32) -> bool {
    let inner = (at & ((1 << shift) - 1)) as u32;
    state.index.get(at >> shift).is_some_and(|folio| folio.reading.contains(inner))
}

/// Marks the blocks of `inner` that are not valid and not being read; adds them to `runs`.
fn mark_folio(
    folio: &mut Folio,
    inner: Range<u32>,
    start: u64,
    block: u32,
    runs: &mut SmallVec<[Range<u64>; 4]>,
) {
    if folio.valid.covers(inner.clone()) {
        return;
    }
    for gap in folio.valid.gaps(inner.clone()) {
        let blocks = gap.start / block * block..gap.end.next_multiple_of(block);
        for part in folio.reading.gaps(blocks) {
            folio.reading.insert(part.clone());
            let (first, last) = (start + u64::from(part.start), start + u64::from(part.end));
            match runs.last_mut() {
                Some(run) if run.end == first => run.end = last,
                _ => runs.push(first..last),
            }
        }
    }
}
