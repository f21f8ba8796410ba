//! A file's map and data as the drivers of `vfs` see them ([`vfs::iomap`]), and what a direct write
//! is given.
//!
//! ```text
//! overwrite      the device, and nothing else; many at once
//! hole, growth   unwritten blocks -> the device -> a transaction marks them, and moves the size
//! shared blocks  the CoW fork -> the device -> a transaction puts them in their place
//! no space, a part of a shared block: the page cache, written out at once
//! ```
//!
//! A cut before the transaction leaves a hole, or the file as it was: never what was on the disk
//! before, never a size without data.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use cache::{Intent, Iomap, IomapIter, IomapKind, Mapping};
use rt::Cx;
use vfs::iomap::{DirectWrites, FileParts, FileState, IomapFile};

use super::DataFile;
use super::write::{SIZE_MAX, reclaim_space};
use crate::bmap::{Mapped, Which};
use crate::format::extent::OFFSET_MAX;
use crate::format::inode::{Flags, ForkFormat};
use crate::inode::kind_of;

/// Blocks that are written through the page cache at once where there is little space.
const BUFFERED_STEP: u64 = 16;

impl DataFile<'_> {
    /// The first part of a range of a file: see [`cache::IomapOps::begin`].
    pub(super) fn map_part(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        let bits = self.fs.geometry().block_bits;
        let blocks = range.start >> bits..range.end >> bits;
        let block = blocks.start;
        let mapped = match iter.intent {
            Intent::Read => self.map_readable(cx, blocks)?,
            Intent::Report => {
                if self.begins(iter, block) && self.fs.write.is_some() {
                    self.finish_io(cx, false)?;
                }
                return self.report(cx, blocks);
            }
            Intent::Overwrite => self.map_file(cx, blocks)?,
            Intent::Write => {
                if self.begins(iter, block) {
                    // What went through the pages is part of the file before the map is asked.
                    self.fs.finisher.learn(cx);
                    let grows = iter.bytes.end > self.inode.size(cx);
                    self.finish_io(cx, grows)?;
                }
                let count = (blocks.end - block).min(BUFFERED_STEP);
                let given = self.give(cx, iter, blocks)?;
                given.unwrap_or(Mapped { start: None, unwritten: false, count })
            }
        };
        Ok(self.iomap(cx, block, &mapped))
    }

    /// Whether a block is the first one that a walk asks for.
    fn begins(&self, iter: &IomapIter<'_>, block: u64) -> bool {
        block == iter.bytes.start >> self.fs.geometry().block_bits
    }

    /// Blocks for a write that has the file to itself. None if the page cache knows better how
    /// to make room, or to copy the rest of a shared block.
    fn give(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Option<Mapped>, Errno> {
        let block = range.start;
        match self.allocate_cow(cx, range.clone()) {
            Err(Errno::ENOSPC) => return Ok(None),
            done => done?,
        }
        let mut mapped = self.map_file(cx, range)?;
        let cow = self.inode.cow_fork.lock(cx).lookup(block..block + mapped.count);
        mapped.count = cow.count;
        if let Some(start) = cow.start {
            let bits = self.fs.geometry().block_bits;
            let whole = (iter.bytes.end >> bits).min(block + mapped.count);
            if block << bits < iter.bytes.start || whole <= block {
                return Ok(None);
            }
            iter.given = true;
            let count = whole - block;
            return Ok(Some(Mapped { start: Some(start), unwritten: false, count }));
        }
        if mapped.start.is_none() {
            match self.preallocate_step(cx, block..block + mapped.count) {
                Ok(upto) => mapped = self.map_file(cx, block..upto)?,
                Err(Errno::ENOSPC) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        if mapped.start.is_none() {
            return Err(Errno::EIO);
        }
        iter.given |= mapped.unwritten;
        // What lies behind the end of the file holds nothing.
        let end = self.fs.geometry().blocks_of(self.inode.size(cx));
        if block < end {
            let inside = if mapped.unwritten { mapped.count } else { end - block };
            mapped.count = mapped.count.min(inside);
        } else {
            mapped.unwritten = true;
        }
        Ok(Some(mapped))
    }

    /// The first blocks of a range as the map has them: whether other files share them, and what of
    /// a hole is reserved for dirty pages.
    fn report(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<Iomap, Errno> {
        let block = blocks.start;
        let mut mapped = self.map_file(cx, blocks)?;
        let shared = self.cut_at_sharing(cx, &mut mapped)?;
        let mut part = self.iomap(cx, block, &mapped);
        if let (IomapKind::Mapped(sector), true) = (part.kind, shared) {
            part.kind = IomapKind::Shared(sector);
        }
        if part.kind == IomapKind::Hole {
            let bits = self.fs.geometry().block_bits;
            let delayed = &self.inode.io.lock(cx).delayed;
            match delayed.within(block..part.end() >> bits).next() {
                Some(next) if next.start == block => {
                    (part.kind, part.len) = (IomapKind::Delalloc, (next.end - block) << bits);
                }
                Some(next) => part.len = (next.start - block) << bits,
                None => {}
            }
        }
        Ok(part)
    }
}

impl IomapFile for DataFile<'_> {
    fn parts(&self) -> FileParts<'_> {
        FileParts {
            ops: self.inode,
            rwsem: &self.inode.rwsem,
            writeback: &self.inode.writeback,
            pages: self.inode.mapping_if_any(),
            block_size: self.fs.geometry().block_size,
            direct: self.fs.direct,
        }
    }

    fn state(&self, cx: &Cx) -> FileState {
        let mut state = self.inode.with(cx, |state| FileState {
            kind: kind_of(&state.core),
            size: state.core.size,
            size_on_disk: state.core.size,
            size_max: SIZE_MAX,
            freed: state.freed,
            has_unwritten: true,
            inline: false,
        });
        if let Some(mapping) = self.inode.mapping_if_any() {
            state.size = mapping.size();
        }
        state
    }

    fn mapping(&self, cx: &Cx) -> &Arc<Mapping> {
        self.inode.mapping(cx)
    }

    fn is_inline(&self, cx: &mut Cx) -> bool {
        self.inode.forks.read(cx).data.format == ForkFormat::Local
    }

    fn has_delalloc(&self, cx: &Cx) -> bool {
        !self.inode.io.lock(cx).delayed.is_empty()
    }

    fn direct_writes(&self, cx: &Cx) -> DirectWrites {
        if self.inode.is_reflink(cx) { DirectWrites::Alone } else { DirectWrites::Shared }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.writer().map(drop)
    }

    fn stamp_times(&self, cx: &Cx) {
        let now = cx.realtime();
        self.inode.with(cx, |state| (state.core.mtime, state.core.ctime) = (now, now));
        self.inode.io.lock(cx).times_dirty = true;
    }

    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let all = range.start <= self.inode.disk_size(cx);
        self.flush_file(cx, range, all)
    }

    fn prepare_punch(&self, cx: &mut Cx, end: u64) -> Result<(), Errno> {
        let (on_disk, bits) = (self.inode.disk_size(cx), self.fs.geometry().block_bits);
        if on_disk >= self.inode.mapping(cx).size().min(end) {
            return Ok(());
        }
        self.flush_file(cx, on_disk >> bits << bits..u64::MAX, true)
    }

    // Takes away what lies between the end of the file and `offset` and is marked as written: a
    // crash in the middle of a truncation, or another implementation, may have left old content
    // there.
    fn clear_gap(&self, cx: &mut Cx, offset: u64) -> Result<(), Errno> {
        let bits = self.fs.geometry().block_bits;
        let (from, to) = (self.inode.size(cx).div_ceil(1 << bits), offset >> bits);
        if from >= to {
            return Ok(());
        }
        let old = self.inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= from);
            list[first..].iter().take_while(|extent| extent.offset < to).any(|e| !e.unwritten)
        });
        match old.map_err(|fault| self.fs.fault(fault))? {
            true => self.unmap_range(cx, from..to),
            false => Ok(()),
        }
    }

    fn prepare_edge(&self, cx: &mut Cx, at: u64) -> Result<(), Errno> {
        self.allocate_cow_edge(cx, at)
    }

    fn make_space(&self, cx: &mut Cx, errno: Errno) -> bool {
        let full = matches!(errno, Errno::ENOSPC | Errno::EDQUOT);
        if full {
            reclaim_space(self.fs, cx);
            if self.has_surplus(cx) {
                // The caller holds this file's lock. Who has no space gets that error.
                let _ = self.finish_io(cx, false).and_then(|()| self.trim_ahead(cx));
            }
        }
        full
    }

    fn allocate(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<u64, Errno> {
        self.preallocate_step(cx, blocks)
    }

    fn drop_delalloc(&self, cx: &mut Cx, range: Range<u64>) {
        let Some(writer) = &self.fs.write else { return };
        let forks = self.inode.forks.write(cx);
        let gone = self.inode.end_delalloc(cx, &writer.space, &forks.data, range).blocks;
        drop(forks);
        writer.space.give_back(gone);
        if gone > 0 {
            self.fs.small.lock(cx).remove(&self.inode.ino);
        }
    }

    fn unmap(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<(), Errno> {
        self.unmap_range(cx, blocks)
    }

    fn shift(&self, cx: &mut Cx, blocks: Range<u64>, insert: bool) -> Result<(), Errno> {
        self.shift_blocks(cx, blocks, insert)
    }

    fn shift_unit(&self) -> u64 {
        let realtime = self.inode.state.lock_irq().core.is_realtime();
        if realtime { u64::from(self.fs.geometry().realtime.extent_blocks) } else { 1 }
    }

    fn extend(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        self.log_size(cx, size)
    }

    fn truncate(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        let behind = self.fs.geometry().blocks_of(size);
        let on_disk = self.inode.disk_size(cx);
        {
            let mut io = self.inode.io.lock(cx);
            io.was_cut |= size < on_disk;
            io.forget(behind..u64::MAX);
            io.cut(size);
        }
        self.log_size(cx, size)?;
        self.unmap_range(cx, behind..OFFSET_MAX)
    }

    fn note_fallocate(&self, cx: &mut Cx, allocated: bool) -> Result<(), Errno> {
        if allocated {
            self.inode.with(cx, |state| state.core.flags.insert(Flags::PREALLOC));
        }
        self.stamp_times(cx);
        self.log_times(cx)
    }

    fn note_direct_write(&self, cx: &mut Cx, intent: Intent, failed: bool) -> Result<(), Errno> {
        let mut finished = Ok(());
        if failed {
            // What was given and not used goes when the file is closed.
            self.inode.io.lock(cx).ahead = true;
            self.fs.ahead.lock(cx).insert(self.inode.ino);
        } else if intent == Intent::Write {
            finished = self.finish_io(cx, false);
        }
        // The device may have it in its cache only, and the times wait for the next sync.
        self.inode.io.lock(cx).unflushed = true;
        self.fs.finisher.unflushed.store(true, Ordering::Release);
        self.stamp_times(cx);
        self.hold(cx);
        finished
    }
}

impl DataFile<'_> {
    /// The content is there: makes what it lies in part of the file, and lets the file grow.
    /// See [`cache::IomapOps::end`].
    pub(super) fn end_direct_write(
        &self,
        cx: &mut Cx,
        iter: &IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        let (bits, Range { start, mut end }) = (self.fs.geometry().block_bits, range);
        // Of a block that held nothing only the whole counts, unless the call ends in it.
        if !complete
            && (iter.given || end >> bits >= self.fs.geometry().blocks_of(self.inode.size(cx)))
        {
            end = (end >> bits << bits).max(start);
        }
        match self.add_direct_write(cx, start..end, iter.given) {
            Ok(()) => (end, Ok(())),
            failed => (start, failed),
        }
    }

    fn add_direct_write(&self, cx: &mut Cx, bytes: Range<u64>, given: bool) -> Result<(), Errno> {
        let bits = self.fs.geometry().block_bits;
        let mapping = self.inode.mapping(cx);
        let grows = bytes.end > mapping.size();
        if bytes.is_empty() || !(given || grows) {
            return Ok(());
        }
        let blocks = bytes.start >> bits..self.fs.geometry().blocks_of(bytes.end);
        self.inode.io.lock(cx).direct_done(given.then_some(blocks), bytes.end);
        if grows {
            mapping.set_size(bytes.end);
        }
        self.finish_io(cx, grows)
    }
}
