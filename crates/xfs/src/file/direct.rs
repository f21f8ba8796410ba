//! Direct I/O on regular files.
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
use block::HostRange;
use cache::Mapping;
use rt::Cx;
use vfs::direct::{Engine, GetBlock, Memory, Run, Stop, Transfer};

use crate::Xfs;
use crate::file::write::SIZE_MAX;
use crate::inode::Inode;

/// Blocks that are written through the page cache at once where there is little space.
const BUFFERED_STEP: u64 = 16;

/// What a call may do about blocks that there are not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// A read: they are zeros.
    Zeros,
    /// A write beside others: it ends there.
    Stop,
    /// A write that has the file to itself: they are given.
    Give,
}

/// The map of a file, as the engine asks for it.
struct Blocks<'a> {
    fs: &'a Xfs,
    inode: &'a Arc<Inode>,
    missing: Missing,
    /// Bytes that the call is about.
    bytes: Range<u64>,
    /// The first block behind the end of the file: what lies there holds nothing yet.
    end: u64,
    /// Blocks were given that a transaction must make part of the file.
    given: bool,
}

impl<'a> Blocks<'a> {
    fn new(
        fs: &'a Xfs,
        inode: &'a Arc<Inode>,
        mapping: &Mapping,
        missing: Missing,
        bytes: Range<u64>,
    ) -> Blocks<'a> {
        let end = fs.blocks_of(mapping.size());
        Blocks { fs, inode, missing, bytes, end, given: false }
    }

    fn run(&self, start: base::FsBlock, count: u64, new: bool) -> Run {
        let sector = Some(self.fs.geometry().sector(start));
        Run { count, sector, new, boundary: false }
    }

    /// Blocks for a write that has the file to itself. None if the page cache knows better how
    /// to make room, or to copy the rest of a shared block.
    fn give(&mut self, cx: &mut Cx, range: Range<u64>) -> Result<Option<Run>, Errno> {
        let (fs, inode, block) = (self.fs, self.inode, range.start);
        match fs.allocate_cow(cx, inode, range.clone()) {
            Err(Errno::ENOSPC) => return Ok(None),
            done => done?,
        }
        let mut mapped = fs.map_file(cx, inode, range)?;
        let cow = inode.cow_fork.lock(cx).lookup(block..block + mapped.count);
        mapped.count = cow.count;
        if let Some(start) = cow.start {
            let bits = fs.geometry().block_bits;
            let whole = (self.bytes.end >> bits).min(block + mapped.count);
            if block << bits < self.bytes.start || whole <= block {
                return Ok(None);
            }
            self.given = true;
            return Ok(Some(self.run(start, whole - block, false)));
        }
        if mapped.start.is_none() {
            match fs.preallocate_step(cx, inode, block..block + mapped.count) {
                Ok(upto) => mapped = fs.map_file(cx, inode, block..upto)?,
                Err(Errno::ENOSPC) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        let Some(start) = mapped.start else { return Err(Errno::EIO) };
        let new = mapped.unwritten || block >= self.end;
        if !new {
            mapped.count = mapped.count.min(self.end - block);
        }
        self.given |= mapped.unwritten;
        Ok(Some(self.run(start, mapped.count, new)))
    }
}

impl GetBlock for Blocks<'_> {
    fn get_block(
        &mut self,
        cx: &mut Cx,
        block: u64,
        count: u64,
        _create: bool,
    ) -> Result<Run, Errno> {
        let nothing = |count| Run { count, sector: None, new: false, boundary: false };
        let mapped = match self.missing {
            Missing::Zeros => self.fs.map_readable(cx, self.inode, block..block + count)?,
            Missing::Stop => self.fs.map_file(cx, self.inode, block..block + count)?,
            Missing::Give => {
                let given = self.give(cx, block..block + count)?;
                return Ok(given.unwrap_or_else(|| nothing(count.min(BUFFERED_STEP))));
            }
        };
        match mapped.start {
            Some(start) if !mapped.unwritten => Ok(self.run(start, mapped.count, false)),
            _ => Ok(nothing(mapped.count)),
        }
    }
}

impl Xfs {
    fn engine<'a>(&self, mapping: &'a Mapping) -> Engine<'a> {
        let block_bits = self.geometry().block_bits;
        Engine { queue: mapping.backing().queue(), block_bits, options: self.direct }
    }

    /// Reads past the page cache.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` not aligned; `EIO`, `EUCLEAN`.
    pub(crate) fn read_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        inode.kind(cx).check_regular()?;
        let guard = inode.lock_shared(cx)?;
        let mapping = inode.mapping(cx).clone();
        let bytes = offset..offset.saturating_add(buf.len() as u64);
        let mut blocks = Blocks::new(self, inode, &mapping, Missing::Zeros, bytes);
        let engine = self.engine(&mapping);
        let result = vfs::direct::read_with(cx, &mapping, &engine, &mut blocks, offset, buf);
        drop(guard);
        result
    }

    /// Gives the places in files of the host with the file's bytes
    /// ([`vfs::FileSystem::read_at_host`]).
    ///
    /// # Errors
    /// As [`Xfs::read_file_direct`].
    pub(crate) fn read_file_at_host(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
    ) -> Result<bool, Errno> {
        inode.kind(cx).check_regular()?;
        let guard = inode.lock_shared(cx)?;
        let mapping = inode.mapping(cx).clone();
        let bytes = offset..offset.saturating_add(len);
        let mut blocks = Blocks::new(self, inode, &mapping, Missing::Zeros, bytes);
        let engine = self.engine(&mapping);
        let given = vfs::direct::at_host(cx, &mapping, &engine, &mut blocks, offset, len, give);
        drop(guard);
        given
    }

    /// Writes past the page cache, as far as the module's table says; returns how many bytes from
    /// the start are there.
    ///
    /// # Errors
    /// As [`Xfs::write_file`]; `EINVAL` not aligned. All before anything was written.
    pub(crate) fn write_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let overwritten = self.overwrite_direct(cx, inode, offset, memory)?;
        if overwritten == memory.len() && overwritten > 0 {
            return Ok(overwritten);
        }
        let guard = self.begin_write(cx, inode)?;
        let rest = memory.skip(overwritten);
        let result = self.write_exclusive(cx, inode, offset + overwritten, rest.as_memory());
        drop(guard);
        match result {
            Err(errno) if overwritten == 0 => Err(errno),
            result => Ok(overwritten + result.unwrap_or(0)),
        }
    }

    /// Writes to blocks that there are, as far as they go: beside readers and other such writers.
    fn overwrite_direct(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        inode.kind(cx).check_regular()?;
        self.writer()?;
        let guard = inode.lock_shared(cx)?;
        let end = offset.checked_add(memory.len()).ok_or(Errno::EFBIG)?;
        let mapping = inode.mapping(cx).clone();
        if end > mapping.size() || memory.is_empty() || inode.is_reflink(cx) {
            return Ok(0);
        }
        memory.check(&mapping, offset)?;
        let mut blocks = Blocks::new(self, inode, &mapping, Missing::Stop, offset..end);
        let first = offset >> self.geometry().block_bits;
        if blocks.get_block(cx, first, 1, true)?.sector.is_none() {
            return Ok(0);
        }
        mapping.invalidate(cx, offset..end)?;
        let transfer = self.engine(&mapping).write(cx, &mut blocks, offset, memory);
        mapping.invalidate(cx, offset..end)?;
        if transfer.bytes > 0 {
            self.note_direct_write(cx, inode);
        }
        drop(guard);
        match transfer.stop {
            Stop::Failed(errno) if transfer.bytes == 0 => Err(errno),
            _ => Ok(transfer.bytes),
        }
    }

    /// Content has changed past the page cache: the device may have it in its cache only, and the
    /// times wait for the next sync.
    fn note_direct_write(&self, cx: &mut Cx, inode: &Arc<Inode>) {
        inode.io.lock(cx).unflushed = true;
        self.finisher.unflushed.store(true, Ordering::Release);
        self.stamp_times(cx, inode);
        self.hold(cx, inode);
    }

    /// The caller has the file to itself.
    fn write_exclusive(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let mapping = inode.mapping(cx).clone();
        let end = offset.checked_add(memory.len()).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        memory.check(&mapping, offset)?;
        if memory.is_empty() {
            return Ok(0);
        }
        self.finisher.learn(cx);
        self.prepare_growth(cx, inode, &mapping, offset..end)?;
        mapping.invalidate(cx, offset..end)?;
        let result = self.write_steps(cx, inode, &mapping, offset, memory);
        // A reader, or readahead beside us, may have brought old content in.
        let result = mapping.invalidate(cx, offset..end).and(result);
        self.note_direct_write(cx, inode);
        result
    }

    /// Before a write that makes the file longer: what the new size would show and is not on the
    /// disk yet goes there, and what lies between the old end and the write is zeros.
    fn prepare_growth(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        mapping: &Arc<Mapping>,
        bytes: Range<u64>,
    ) -> Result<(), Errno> {
        let Range { start: offset, end } = bytes;
        let (size, block) = (mapping.size(), u64::from(self.geometry().block_size));
        let on_disk = inode.disk_size(cx);
        if end > size && on_disk < size {
            let range = on_disk / block * block..size.next_multiple_of(block);
            self.flush_file(cx, inode, range, true)?;
        }
        if offset > size {
            self.allocate_cow_edge(cx, inode, size)?;
            self.clear_gap(cx, inode, offset)?;
            mapping.truncate(cx, size)?;
            let range = size / block * block..size.next_multiple_of(block);
            self.flush_file(cx, inode, range, true)?;
        }
        Ok(())
    }

    /// Direct and, where the map says so, buffered parts in turn.
    fn write_steps(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        mapping: &Arc<Mapping>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let (mut bytes, len) = (0, memory.len());
        while bytes < len {
            let (at, rest) = (offset + bytes, memory.skip(bytes));
            // What went through the pages is part of the file before the map is asked.
            self.finish_io(cx, inode, offset + len > mapping.size())?;
            let mut blocks = Blocks::new(self, inode, mapping, Missing::Give, at..offset + len);
            let transfer = self.engine(mapping).write(cx, &mut blocks, at, rest.as_memory());
            let (given, old_end) = (blocks.given, blocks.end);
            let whole = self.whole_bytes(at, transfer, given, old_end);
            let mut result = self.end_direct_write(cx, inode, mapping, at..at + whole, given);
            bytes += if result.is_ok() { whole } else { 0 };
            if whole == transfer.bytes && result.is_ok() {
                match transfer.stop {
                    Stop::Failed(errno) => result = Err(errno),
                    Stop::Buffered(count) => {
                        let part = memory.skip(bytes);
                        let (at, part) = (offset + bytes, part.as_memory());
                        result = vfs::direct::write_buffered(cx, mapping, at, part, count);
                        bytes += if result.is_ok() { count } else { 0 };
                    }
                    Stop::Done => {}
                }
            } else if let (Stop::Failed(errno), Ok(())) = (transfer.stop, result) {
                result = Err(errno);
            }
            if let Err(errno) = result {
                // What was given and not used goes when the file is closed.
                inode.io.lock(cx).ahead = true;
                self.ahead.lock(cx).insert(inode.ino);
                return if bytes > 0 { Ok(bytes) } else { Err(errno) };
            }
        }
        self.finish_io(cx, inode, false)?;
        Ok(bytes)
    }

    /// How many bytes of a transfer from `at` on count: of a block that held nothing only the
    /// whole, unless the call ends in it.
    fn whole_bytes(&self, at: u64, transfer: Transfer, given: bool, old_end: u64) -> u64 {
        let bits = self.geometry().block_bits;
        let end = at + transfer.bytes;
        let cut = !matches!(transfer.stop, Stop::Done) && (given || end >> bits >= old_end);
        if cut { (end >> bits << bits).max(at) - at } else { transfer.bytes }
    }

    /// The content is there: makes what it lies in part of the file, and lets the file grow.
    fn end_direct_write(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        mapping: &Mapping,
        bytes: Range<u64>,
        given: bool,
    ) -> Result<(), Errno> {
        let bits = self.geometry().block_bits;
        let grows = bytes.end > mapping.size();
        if bytes.is_empty() || !(given || grows) {
            return Ok(());
        }
        let blocks = bytes.start >> bits..self.blocks_of(bytes.end);
        inode.io.lock(cx).direct_done(given.then_some(blocks), bytes.end);
        if grows {
            mapping.set_size(bytes.end);
        }
        self.finish_io(cx, inode, grows)
    }
}
