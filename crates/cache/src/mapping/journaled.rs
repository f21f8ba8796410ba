//! Dirty data that goes into a journal instead of to its place, and reads that find it there.
//!
//! A file system that sends data through its journal takes blocks out of the mapping with
//! [`Mapping::take_blocks`], puts them into buffers of a transaction and ends the write. From then
//! on the folios are clean and may be reclaimed, while the device still has the old content: a read
//! asks [`IomapOps::in_memory`](crate::IomapOps::in_memory) first.

use std::ops::Range;
use std::sync::Arc;

use base::{Errno, Page};
use block::{BioFlags, Plug, Segment};
use rt::Cx;
use smallvec::SmallVec;

use super::Mapping;
use super::read::ReadOp;
use crate::iomap::Iomap;
use crate::writeback::WritebackControl;

/// The newest content of some blocks: offset in the file, and memory that begins there. Ascending.
pub type InMemory = SmallVec<[(u64, Page); 1]>;

/// Blocks that were taken out of a mapping. They count as in flight, so that nobody drops or reads
/// their folios' blocks anew, until [`end`](TakenBlocks::end).
#[must_use = "whoever flushes the file waits for the end"]
pub struct TakenBlocks {
    mapping: Arc<Mapping>,
    range: Range<u64>,
    segs: SmallVec<[Segment; 4]>,
}

impl TakenBlocks {
    /// Bytes of the file: whole blocks.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The memory of the range, in order. Who writes to the file now gets a copy.
    pub fn segments(&self) -> &[Segment] {
        &self.segs
    }

    /// The blocks are in the journal's hands, or have failed: the error is latched then.
    pub fn end(self, result: Result<(), Errno>) {
        self.mapping.finish_write(self.range, result);
    }
}

impl Mapping {
    /// As [`write_extent`](Mapping::write_extent), but makes no bios: the first run of dirty blocks
    /// of `off..off + len` becomes clean, and the caller sees to it. `None` where there is none.
    pub fn take_blocks(
        self: &Arc<Self>,
        cx: &mut Cx,
        wb: &mut WritebackControl<'_>,
        off: u64,
        len: u64,
    ) -> Option<TakenBlocks> {
        let plug = &*wb.plug;
        let taken = self.take_run(cx, off..off + len, |state, range, segs| {
            self.note_write(state, plug, range.clone());
            TakenBlocks { mapping: self.clone(), range, segs }
        });
        let (end, bytes) = match &taken {
            Some(taken) => (taken.range.end, taken.range.end - taken.range.start),
            None => (off + len, 0),
        };
        wb.range.start = wb.range.start.max(end);
        wb.budget = wb.budget.saturating_sub(bytes);
        wb.written += bytes;
        taken
    }

    /// Reads a piece of which some blocks are newer in memory than on the device.
    pub(super) fn read_around(
        self: &Arc<Self>,
        cx: &mut Cx,
        plug: &mut Plug,
        op: &Arc<ReadOp>,
        piece: Iomap,
        memory: InMemory,
        flags: BioFlags,
    ) {
        let (mut at, end) = (piece.offset, piece.end());
        for (off, page) in memory {
            if at < off {
                self.read_piece(cx, plug, op, piece.part(at, off), flags);
            }
            at = (off + page.len() as u64).min(end);
            self.fill_from(off..at, page, op);
        }
        if at < end {
            self.read_piece(cx, plug, op, piece.part(at, end), flags);
        }
    }

    /// Fills `range`, which lies in one folio, from `page`.
    fn fill_from(&self, range: Range<u64>, mut page: Page, op: &ReadOp) {
        let shift = self.shift();
        let (index, start) = (range.start >> shift, range.start >> shift << shift);
        let inner = (range.start - start) as u32..(range.end - start) as u32;
        {
            let mut state = self.state.lock_irq();
            let size = self.size();
            if range.end > size {
                // What lies behind the end of the file is not part of it.
                let known = size.saturating_sub(range.start) as usize;
                page.make_mut()[known..].fill(0);
            }
            if let Some(folio) = state.index.get_mut(index)
                && op.is_current(folio)
            {
                folio.reading.remove(inner.clone());
                folio.fresh |= folio.valid.is_empty();
                folio.fill(inner, page, 0, 1 << shift);
            }
        }
        self.wake_readers(range);
    }
}
