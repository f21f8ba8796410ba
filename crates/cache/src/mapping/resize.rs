//! Shrinking, punching and dropping: what the cache forgets, and what it must zero.
//!
//! The bytes of a block behind the end of the file are zero, on the device too: whoever makes the
//! file longer later, here or in another implementation, must not find old content there.

use std::ops::Range;
use std::sync::Arc;

use base::{Errno, Page};
use rt::Cx;

use super::{IomapOps, Mapping, State};

/// Folios dropped in one hold of the lock.
const DROP_BATCH: usize = 256;

impl Mapping {
    /// Sets the size to `new_size`. Where the file shrinks: forgets everything behind the end,
    /// dirty or not, waits for writes in flight there (their blocks are about to be freed), and
    /// makes the rest of the last block zero and dirty where it has a place on the device or is
    /// dirty. Where it grows: the same for the rest of the old last block.
    ///
    /// The file system calls it before it frees blocks, with no journal handle open, and keeps
    /// `writepages` and other writers away meanwhile. May park.
    ///
    /// # Errors
    /// Those of [`IomapOps::begin`] for the last block; the size is set all the same.
    pub fn truncate(self: &Arc<Self>, cx: &mut Cx, new_size: u64) -> Result<(), Errno> {
        let ops = self.ops()?;
        let old_size = self.size();
        let tail = new_size.min(old_size);
        if new_size < old_size {
            self.set_size(new_size);
            self.discard(cx, self.block_ceil(new_size)..u64::MAX);
        }
        let zeroed = self.zero_tail(cx, &ops, tail, self.block_ceil(tail));
        self.set_size(new_size);
        self.retire(cx);
        zeroed
    }

    /// Makes `from..to`, which lies in one block at the end of the file, zero: on the device too
    /// where the block has a place there or is going to.
    pub(super) fn zero_tail(
        self: &Arc<Self>,
        cx: &mut Cx,
        ops: &Arc<dyn IomapOps>,
        from: u64,
        to: u64,
    ) -> Result<(), Errno> {
        if from >= to {
            return Ok(());
        }
        let (block, end) = (self.block_floor(from), self.block_ceil(to));
        let index = block >> self.shift();
        let start = index << self.shift();
        let inner = (block - start) as u32..(end - start) as u32;
        // What is dirty, or being written, has a place that the map may show only afterwards.
        let on_its_way = {
            let state = self.state.lock(cx);
            state.writes.overlaps(block..end)
                || state.index.get(index).is_some_and(|folio| folio.dirty.intersects(inner))
        };
        let placed =
            on_its_way || self.walk(&**ops, block..end).begin(cx, block..end)?.content().is_some();
        if placed {
            self.write_zeros(cx, ops, from..to);
        } else {
            self.discard_partial(cx, from..to);
        }
        Ok(())
    }

    /// Forgets the bytes of `range`, which read as zeros afterwards: whole blocks inside are
    /// dropped, dirty or not; of the blocks that are cut at either end, the part inside is made
    /// zero and dirty where the block has a place on the device. Waits for writes in flight there.
    ///
    /// The file system calls it before it frees the blocks, and, where readers may run beside,
    /// calls [`discard`](Mapping::discard) with the whole blocks again after the extents are gone.
    /// May park.
    ///
    /// # Errors
    /// Those of [`IomapOps::begin`] for the cut blocks.
    pub fn punch(self: &Arc<Self>, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let range = range.start..range.end.min(self.block_ceil(self.size()));
        if range.is_empty() {
            return Ok(());
        }
        let ops = self.ops()?;
        let (first, last) = (self.block_ceil(range.start), self.block_floor(range.end));
        if first <= last {
            self.zero_tail(cx, &ops, range.start, first)?;
            self.zero_tail(cx, &ops, last, range.end)?;
            self.discard(cx, first..last);
        } else {
            self.zero_tail(cx, &ops, range.start, range.end)?;
        }
        self.retire(cx);
        Ok(())
    }

    /// Drops everything known of `range`, dirty or not, after waiting for writes in flight there;
    /// reads on their way there are ignored. Folios cut at either end keep the rest. May park.
    pub fn discard(&self, cx: &mut Cx, range: Range<u64>) {
        self.drop_range(cx, range, false);
        self.retire(cx);
    }

    /// Drops the dirty `range`, for which the file system has no place and will have none: the
    /// owner of the file learns of `errno` by what `writepages` answers, and whoever unmounts by
    /// [`Backing::lost`](crate::Backing::lost). May park.
    pub fn give_up(&self, cx: &mut Cx, range: Range<u64>, errno: Errno) {
        let dirty = {
            let state = self.state.lock(cx);
            let shift = self.shift();
            let end = range.end.min(self.size());
            let (mut from, mut dirty) = (range.start >> shift, 0);
            while let Some(index) = state.index.next_dirty(from, end.div_ceil(1 << shift)) {
                let start = index << shift;
                let inner =
                    range.start.saturating_sub(start) as u32..(end - start).min(1 << shift) as u32;
                let parts = state.index.get(index).into_iter();
                let parts = parts.flat_map(|folio| folio.dirty.within(inner.clone()));
                dirty += parts.map(|part| u64::from(part.end - part.start)).sum::<u64>();
                from = index + 1;
            }
            dirty
        };
        self.backing().note_lost(self.id(), dirty, errno);
        self.drop_range(cx, range, false);
    }

    /// Writes `range` out and drops it from memory, for direct I/O. Blocks that were dirtied
    /// meanwhile stay. May park.
    ///
    /// # Errors
    /// As [`flush`](Mapping::flush).
    pub fn invalidate(self: &Arc<Self>, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let range = self.block_floor(range.start)..self.block_ceil(range.end);
        if self.memory_bytes() == 0 {
            return Ok(());
        }
        let flushed = self.flush(cx, range.clone());
        self.drop_range(cx, range, true);
        flushed
    }

    fn drop_range(&self, cx: &mut Cx, range: Range<u64>, keep_dirty: bool) {
        let shift = self.shift();
        let (mut from, end) = (range.start >> shift, range.end.div_ceil(1 << shift));
        let mut pages = Vec::new();
        loop {
            self.wait_range(cx, range.clone());
            let more = {
                let mut guard = self.state.lock(cx);
                if guard.writes.overlaps(range.clone()) {
                    continue; // begun since: not ours to drop yet
                }
                self.drop_batch(&mut guard, &mut from, end, &range, keep_dirty, &mut pages)
            };
            pages.clear();
            if !more {
                break;
            }
        }
        // Readers of cancelled marks look again.
        self.cache().folio_waits.iter().for_each(|queue| queue.wake_all());
    }

    /// Drops up to a batch of folios of `from..end`. True where there may be more.
    fn drop_batch(
        &self,
        state: &mut State,
        from: &mut u64,
        end: u64,
        range: &Range<u64>,
        keep_dirty: bool,
        pages: &mut Vec<Page>,
    ) -> bool {
        let shift = self.shift();
        state.epoch += 1;
        let epoch = state.epoch;
        let (mut dropped, mut change) = (0, 0);
        for _ in 0..DROP_BATCH {
            let Some(index) = state.index.next(*from, end) else { break };
            *from = index + 1;
            let start = index << shift;
            let inner = range.start.saturating_sub(start) as u32
                ..range.end.saturating_sub(start).min(1 << shift) as u32;
            let dirty = self.dirty_blocks(state, index);
            let folio = state.index.get_mut(index).expect("the folio was just found");
            if !folio.reading.is_empty() {
                // Cancel all of them: the parts outside are asked for again.
                folio.reading.clear();
                folio.epoch = epoch;
            }
            if keep_dirty {
                // A dirty block stays whole: write-back may have found it complete already, and
                // may be about to give it a place on the device.
                for clean in dirty.gaps(inner) {
                    folio.valid.remove(clean);
                }
            } else {
                folio.forget(inner);
            }
            if folio.valid.is_empty() {
                let was_dirty = state.index.dirty_count();
                let folio = state.index.remove(index).expect("the folio was just found");
                change -= (was_dirty - state.index.dirty_count()) as i64;
                pages.extend(folio.page);
                dropped += 1;
            } else {
                change += state.index.note_dirty(index);
            }
        }
        self.cache().note_dirty(change);
        self.cache().uncharge(dropped);
        state.index.next(*from, end).is_some()
    }

    /// Makes `range` not valid, so that it is looked up again.
    fn discard_partial(&self, cx: &mut Cx, range: Range<u64>) {
        let shift = self.shift();
        let index = range.start >> shift;
        let start = index << shift;
        let mut state = self.state.lock(cx);
        state.epoch += 1;
        let epoch = state.epoch;
        if let Some(folio) = state.index.get_mut(index) {
            folio.reading.clear();
            folio.epoch = epoch;
            folio.forget((range.start - start) as u32..(range.end - start) as u32);
        }
        drop(state);
        self.wake_readers(range);
    }
}
