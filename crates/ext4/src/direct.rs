//! Direct I/O on regular files.
//!
//! ```text
//! overwrite      the device, and nothing else; many at once
//! hole, growth   blocks claimed in memory -> the device -> handles put them into the file
//! unwritten      the device -> a handle makes them written
//! data=journal   the page cache, written out at once
//! ```
//!
//! Nothing that the disk holds knows of a claimed block, so a cut before the third step leaves the
//! file as it was, and a cut within it leaves it with a part of what was written: never what was on
//! the disk before, never a size without data. Blocks are claimed ([`claims`]) as the mount's rule
//! for boundaries has it: those of Linux's ext3, table by table, or ours.

mod claims;

use std::sync::Arc;

use base::{Errno, FsBlock};
use block::HostRange;
use cache::Mapping;
use rt::{Charge, Cx};
use vfs::direct::{Engine, GetBlock, Memory, Run, Stop, Transfer};

use crate::Ext4;
use crate::inode::Inode;
use crate::map::{Create, Mapped, State};
use crate::mballoc::Purpose;
use claims::Claims;

/// What a call may do about blocks that there are not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// A read: they are zeros.
    Zeros,
    /// A write beside others: it ends there.
    Stop,
    /// A write that has the file to itself: they are claimed.
    Claim,
}

/// The map of a file, as the engine asks for it.
struct Blocks<'a> {
    fs: &'a Ext4,
    inode: &'a Inode,
    missing: Missing,
    claims: Claims,
    /// Unwritten blocks were written.
    unwritten: bool,
}

impl<'a> Blocks<'a> {
    fn new(fs: &'a Ext4, inode: &'a Inode, missing: Missing) -> Blocks<'a> {
        Blocks { fs, inode, missing, claims: Claims::default(), unwritten: false }
    }

    fn run(&self, cx: &Cx, mapped: &Mapped, new: bool) -> Run {
        let sector = FsBlock(mapped.pblk).sector(self.fs.geometry.block_size);
        let boundary =
            !self.inode.has_extents(cx) && self.fs.indirect_boundary(mapped.lblk, mapped.len);
        Run { count: u64::from(mapped.len), sector: Some(sector), new, boundary }
    }

    fn claim(&mut self, cx: &mut Cx, hole: &Mapped, want: u32) -> Result<Run, Errno> {
        let size = inode_blocks(self.fs, self.inode);
        if !self.fs.options.direct_holes && u64::from(hole.lblk) < size {
            // All of the rest, as Linux falls back.
            let count = u64::from(want).min(size - u64::from(hole.lblk));
            return Ok(Run { count, sector: None, new: false, boundary: false });
        }
        cx.charge_for(Charge::AllocateRun, 1);
        match self.fs.claim_hole(cx, self.inode, &mut self.claims, hole, want) {
            Ok(mapped) => Ok(self.run(cx, &mapped, true)),
            // The page cache knows how to wait for space; little by little it fills the disk.
            Err(Errno::ENOSPC) => {
                let count = u64::from(hole.len.min(16));
                Ok(Run { count, sector: None, new: false, boundary: false })
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Blocks of the file as readers see it.
fn inode_blocks(fs: &Ext4, inode: &Inode) -> u64 {
    inode.mapping().size().div_ceil(u64::from(fs.geometry.block_size))
}

impl GetBlock for Blocks<'_> {
    fn get_block(
        &mut self,
        cx: &mut Cx,
        block: u64,
        count: u64,
        _create: bool,
    ) -> Result<Run, Errno> {
        let lblk = u32::try_from(block).map_err(|_| Errno::EFBIG)?;
        let want = count.min(u64::from(u32::MAX - lblk)).max(1) as u32;
        let mapped = self.fs.map_lookup(cx, self.inode, lblk, want)?;
        match (mapped.state, self.missing) {
            (State::Written, _) => Ok(self.run(cx, &mapped, false)),
            (State::Hole, Missing::Claim) => self.claim(cx, &mapped, want),
            (State::Unwritten, Missing::Claim) => {
                self.unwritten = true;
                Ok(self.run(cx, &mapped, true))
            }
            (State::Hole | State::Unwritten, _) => {
                let count = u64::from(mapped.len);
                Ok(Run { count, sector: None, new: false, boundary: false })
            }
        }
    }

    fn prefetch(&mut self, cx: &mut Cx, block: u64) -> bool {
        let extents = self.inode.has_extents(cx);
        !extents
            && u32::try_from(block)
                .is_ok_and(|lblk| self.fs.indirect_prefetch(cx, self.inode, lblk))
    }
}

impl Ext4 {
    fn engine<'a>(&'a self, mapping: &'a Mapping) -> Engine<'a> {
        Engine {
            queue: mapping.backing().queue(),
            block_bits: self.geometry.block_bits,
            options: self.options.direct,
        }
    }

    /// Reads past the page cache.
    ///
    /// # Errors
    /// As [`Ext4::read_file`]; `EINVAL` not aligned.
    pub(crate) fn read_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        let guard = self.begin_read(cx, inode)?;
        let mapping = inode.mapping();
        let result = if self.data_in_buffers(cx, inode) {
            vfs::direct::check(mapping, offset, buf.len() as u64)
                .and_then(|()| mapping.read(cx, offset, buf))
        } else {
            let mut blocks = Blocks::new(self, inode, Missing::Zeros);
            vfs::direct::read_with(cx, mapping, &self.engine(mapping), &mut blocks, offset, buf)
        };
        drop(guard);
        result
    }

    /// Gives the places in files of the host with the file's bytes
    /// ([`vfs::FileSystem::read_at_host`]).
    ///
    /// # Errors
    /// As [`Ext4::read_file_direct`].
    pub(crate) fn read_file_at_host(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        len: u64,
        give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
    ) -> Result<bool, Errno> {
        let guard = self.begin_read(cx, inode)?;
        let mapping = inode.mapping();
        let given = if self.data_in_buffers(cx, inode) {
            Ok(false)
        } else {
            let mut blocks = Blocks::new(self, inode, Missing::Zeros);
            let engine = self.engine(mapping);
            vfs::direct::at_host(cx, mapping, &engine, &mut blocks, offset, len, give)
        };
        drop(guard);
        given
    }

    /// Writes past the page cache, as far as the module's table says; answers how many bytes from
    /// the start are there.
    ///
    /// # Errors
    /// As [`Ext4::write_file`]; `EINVAL` not aligned. All before anything was written.
    pub(crate) fn write_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let mapping = inode.mapping().clone();
        let overwritten = match self.options.direct.boundary.is_modern() {
            true => self.overwrite_direct(cx, inode, &mapping, offset, memory)?,
            false => 0,
        };
        if overwritten == memory.len() && overwritten > 0 {
            return Ok(overwritten);
        }
        let guard = self.begin_write(cx, inode)?;
        let rest = memory.skip(overwritten);
        let at = offset + overwritten;
        let result = self.write_exclusive(cx, inode, &mapping, at, rest.as_memory());
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
        inode: &Inode,
        mapping: &Arc<Mapping>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let guard = self.begin_read(cx, inode)?;
        self.check_writable()?;
        let end = offset.checked_add(memory.len()).ok_or(Errno::EFBIG)?;
        if end > mapping.size() || self.data_in_buffers(cx, inode) {
            return Ok(0);
        }
        memory.check(mapping, offset)?;
        let mut blocks = Blocks::new(self, inode, Missing::Stop);
        if blocks.get_block(cx, offset >> self.geometry.block_bits, 1, true)?.sector.is_none() {
            return Ok(0);
        }
        mapping.invalidate(cx, offset..end)?;
        let transfer = self.engine(mapping).write(cx, &mut blocks, offset, memory);
        mapping.invalidate(cx, offset..end)?;
        if transfer.bytes > 0 {
            self.stamp_times(cx, inode);
        }
        let written = if transfer.bytes > 0 { self.write_inode(cx, inode) } else { Ok(()) };
        drop(guard);
        match transfer.stop {
            Stop::Failed(errno) if transfer.bytes == 0 => Err(errno),
            _ => written.map(|()| transfer.bytes),
        }
    }

    /// The caller has the file to itself.
    fn write_exclusive(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let limit = inode.with(cx, |core| core.growth_limit(&self.geometry));
        let end = offset.checked_add(memory.len()).filter(|end| *end <= limit);
        let end = end.ok_or(Errno::EFBIG)?;
        memory.check(mapping, offset)?;
        if memory.is_empty() {
            return Ok(0);
        }
        let result = if self.data_in_buffers(cx, inode) {
            self.write_around_journal(cx, mapping, offset, memory)
        } else {
            self.prepare_growth(cx, inode, mapping, offset, end)?;
            mapping.invalidate(cx, offset..end)?;
            let result = self.write_steps(cx, inode, mapping, offset, memory);
            // A reader, or readahead beside us, may have brought old content in.
            mapping.invalidate(cx, offset..end).and(result)
        };
        self.stamp_times(cx, inode);
        inode.with(cx, |core| core.size = mapping.size());
        let written = self.write_inode(cx, inode);
        result.and_then(|done| written.map(|()| done))
    }

    /// Before a write that makes the file longer: what the new size would show and is not on the
    /// disk yet goes there, and the old last block is zero behind the old end.
    fn prepare_growth(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        offset: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let (size, block) = (mapping.size(), u64::from(self.geometry.block_size));
        let on_disk = inode.with(cx, |core| core.values.size);
        if end > size && on_disk < size {
            mapping.flush(cx, on_disk / block * block..size.next_multiple_of(block))?;
        }
        if offset > size && !size.is_multiple_of(block) {
            mapping.truncate(cx, size)?;
            mapping.flush(cx, size / block * block..size.next_multiple_of(block))?;
        }
        Ok(())
    }

    /// Direct and, where the map says so, buffered parts in turn.
    fn write_steps(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mapping: &Arc<Mapping>,
        offset: u64,
        memory: Memory<'_>,
    ) -> Result<u64, Errno> {
        let (mut bytes, len) = (0, memory.len());
        while bytes < len {
            let (at, rest) = (offset + bytes, memory.skip(bytes));
            let mut blocks = Blocks::new(self, inode, Missing::Claim);
            let transfer = self.engine(mapping).write(cx, &mut blocks, at, rest.as_memory());
            let Blocks { claims, unwritten, .. } = blocks;
            let (done, mut result) =
                self.end_direct_write(cx, inode, claims, unwritten, at, transfer);
            bytes += done;
            if done == transfer.bytes && result.is_ok() {
                match transfer.stop {
                    Stop::Failed(errno) => result = Err(errno),
                    Stop::Buffered(count) => {
                        let part = memory.skip(bytes);
                        let part = part.as_memory();
                        let at = offset + bytes;
                        result = vfs::direct::write_buffered(cx, mapping, at, part, count);
                        bytes += if result.is_ok() { count } else { 0 };
                    }
                    Stop::Done => {}
                }
            }
            if let Err(errno) = result {
                return if bytes > 0 { Ok(bytes) } else { Err(errno) };
            }
        }
        Ok(bytes)
    }

    /// The content is there: makes what it lies in part of the file, and lets the file grow.
    /// Answers how many of the transfer's bytes the file has.
    fn end_direct_write(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: Claims,
        unwritten: bool,
        offset: u64,
        transfer: Transfer,
    ) -> (u64, Result<(), Errno>) {
        let bits = self.geometry.block_bits;
        // Of a block that is new only the whole counts, unless the call ends in it.
        let whole = matches!(transfer.stop, Stop::Done);
        let bytes = match whole {
            true => transfer.bytes,
            false => {
                let end = offset + transfer.bytes;
                let floor = (end >> bits << bits).max(offset);
                if claims.covers((end >> bits) as u32) || unwritten {
                    floor - offset
                } else {
                    transfer.bytes
                }
            }
        };
        let end = offset + bytes;
        let (reached, result) = if bytes > 0 && (unwritten || !claims.is_empty()) {
            self.direct_written(cx, inode, claims, offset, end)
        } else {
            self.drop_claims(cx, inode, claims);
            (end, Ok(()))
        };
        let bytes = reached - offset;
        let mapping = inode.mapping();
        if bytes > 0 && offset + bytes > mapping.size() {
            mapping.set_size(offset + bytes);
            inode.with(cx, |core| {
                core.size = offset + bytes;
                core.values.size = core.values.size.max(offset + bytes);
            });
        }
        (bytes, result)
    }

    /// Makes the blocks of `offset..end`, which have their content, part of the file, in the order
    /// of the file: puts claims in, makes written what is unwritten. The size on the disk follows
    /// in the same handles, so wherever it has to end, nothing behind that is the file's. Answers
    /// the byte where it ended.
    fn direct_written(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mut claims: Claims,
        offset: u64,
        end: u64,
    ) -> (u64, Result<(), Errno>) {
        let bits = self.geometry.block_bits;
        let (mut at, to) = ((offset >> bits) as u32, end.div_ceil(1 << bits) as u32);
        let (mut retries, mut result) = (0, Ok(()));
        while at < to {
            match self.direct_written_step(cx, inode, &mut claims, (at, to), end) {
                Ok(next) => at = next,
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                Err(errno) => {
                    result = Err(errno);
                    break;
                }
            }
        }
        self.drop_claims(cx, inode, claims);
        ((u64::from(at) << bits).clamp(offset, end), result)
    }

    /// One run of [`Ext4::direct_written`], in one handle: the block to go on with.
    fn direct_written_step(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        (at, to): (u32, u32),
        size: u64,
    ) -> Result<u32, Errno> {
        let mapped = self.map_lookup(cx, inode, at, to - at)?;
        match mapped.state {
            State::Written => Ok(at + mapped.len),
            State::Hole => self.use_claim(cx, inode, claims, (at, to), size),
            State::Unwritten => {
                let need = self.map_credits(cx, inode);
                let mut handle = self.journal_start(cx, need)?;
                let create = Create::written(Purpose::Data, size);
                let made = self.map_create(cx, &mut handle, inode, at, mapped.len, create);
                self.mark_inode_dirty(cx, &mut handle, inode)?;
                handle.stop(cx)?;
                made.map(|(made, _)| at + made.len)
            }
        }
    }
}
