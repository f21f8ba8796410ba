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
use cache::{Intent, Iomap, IomapIter, IomapKind, IomapOps, Mapping};
use rt::{Cx, ReadGuard, WriteGuard};
use vfs::FileType;
use vfs::direct::DirectOptions;
use vfs::iomap::IomapFile;

use crate::Xfs;
use crate::bmap::Mapped;
use crate::file::write::SIZE_MAX;
use crate::format::inode::ForkFormat;
use crate::inode::Inode;

/// Blocks that are written through the page cache at once where there is little space.
const BUFFERED_STEP: u64 = 16;

/// A file and its mount.
pub(crate) struct DataFile<'a> {
    fs: &'a Xfs,
    inode: &'a Arc<Inode>,
}

impl Xfs {
    /// The first part of a range of a file: see [`cache::IomapOps::begin`].
    pub(super) fn map_part(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        let bits = self.geometry().block_bits;
        let blocks = range.start >> bits..range.end >> bits;
        let block = blocks.start;
        let mapped = match iter.intent {
            Intent::Read => self.map_readable(cx, inode, blocks)?,
            Intent::Report => return self.report(cx, inode, blocks),
            Intent::Overwrite => self.map_file(cx, inode, blocks)?,
            Intent::Write => {
                let count = (blocks.end - block).min(BUFFERED_STEP);
                let given = self.give(cx, &inode.arc(), iter, blocks)?;
                given.unwrap_or(Mapped { start: None, unwritten: false, count })
            }
        };
        Ok(self.iomap(block, &mapped))
    }

    /// Blocks for a write that has the file to itself. None if the page cache knows better how
    /// to make room, or to copy the rest of a shared block.
    fn give(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Option<Mapped>, Errno> {
        let block = range.start;
        match self.allocate_cow(cx, inode, range.clone()) {
            Err(Errno::ENOSPC) => return Ok(None),
            done => done?,
        }
        let mut mapped = self.map_file(cx, inode, range)?;
        let cow = inode.cow_fork.lock(cx).lookup(block..block + mapped.count);
        mapped.count = cow.count;
        if let Some(start) = cow.start {
            let bits = self.geometry().block_bits;
            let whole = (iter.bytes.end >> bits).min(block + mapped.count);
            if block << bits < iter.bytes.start || whole <= block {
                return Ok(None);
            }
            iter.given = true;
            let count = whole - block;
            return Ok(Some(Mapped { start: Some(start), unwritten: false, count }));
        }
        if mapped.start.is_none() {
            match self.preallocate_step(cx, inode, block..block + mapped.count) {
                Ok(upto) => mapped = self.map_file(cx, inode, block..upto)?,
                Err(Errno::ENOSPC) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        if mapped.start.is_none() {
            return Err(Errno::EIO);
        }
        iter.given |= mapped.unwritten;
        // What lies behind the end of the file holds nothing.
        let end = self.blocks_of(inode.size(cx));
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
    fn report(&self, cx: &mut Cx, inode: &Inode, blocks: Range<u64>) -> Result<Iomap, Errno> {
        let block = blocks.start;
        let mut mapped = self.map_file(cx, inode, blocks)?;
        let shared = self.cut_at_sharing(cx, inode, &mut mapped)?;
        let mut part = self.iomap(block, &mapped);
        if let (IomapKind::Mapped(sector), true) = (part.kind, shared) {
            part.kind = IomapKind::Shared(sector);
        }
        if part.kind == IomapKind::Hole {
            let bits = self.geometry().block_bits;
            let delayed = &inode.io.lock(cx).delayed;
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
    fn ops(&self) -> &dyn IomapOps {
        &**self.inode
    }

    fn kind(&self, cx: &Cx) -> FileType {
        self.inode.kind(cx)
    }

    fn size(&self, cx: &Cx) -> u64 {
        self.inode.size(cx)
    }

    fn block_size(&self) -> u32 {
        self.fs.geometry().block_size
    }

    fn mapping(&self, cx: &Cx) -> &Arc<Mapping> {
        self.inode.mapping(cx)
    }

    fn lock_shared(&self, cx: &mut Cx) -> Result<ReadGuard<'_, ()>, Errno> {
        self.inode.lock_shared(cx)
    }

    fn lock_alone(&self, cx: &mut Cx) -> Result<WriteGuard<'_, ()>, Errno> {
        self.inode.lock_alone(cx)
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.writer().map(drop)
    }

    fn size_max(&self, _: &Cx) -> u64 {
        SIZE_MAX
    }

    fn size_on_disk(&self, cx: &Cx) -> u64 {
        self.inode.disk_size(cx)
    }

    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.fs.flush_file(cx, self.inode, range, true)
    }

    fn settle_map(&self, cx: &mut Cx) -> Result<(), Errno> {
        // What is on its way to the device is not marked before it is there.
        let idle = self.inode.mapping_if_any().is_none_or(|mapping| mapping.is_idle());
        match idle {
            false => self.flush(cx, 0..u64::MAX),
            true if self.fs.write.is_some() => self.fs.finish_io(cx, self.inode, false),
            true => Ok(()),
        }
    }

    fn try_lock_shared(&self) -> Option<ReadGuard<'_, ()>> {
        self.inode.rwsem.try_read()
    }

    fn only_on_device(&self, cx: &Cx) -> bool {
        let inode = self.inode;
        let regular = inode.kind(cx) == FileType::Regular && inode.check_there(cx).is_ok();
        let quiet = inode.mapping_if_any().is_none_or(|mapping| mapping.memory_bytes() == 0);
        regular && quiet && inode.io.lock(cx).delayed.is_empty()
    }

    fn prepare_write(&self, cx: &mut Cx, offset: u64) -> Result<(), Errno> {
        self.fs.clear_gap(cx, self.inode, offset)?;
        // Before the pages are dirty, so that whoever writes them out sees it.
        self.fs.stamp_times(cx, self.inode);
        Ok(())
    }

    fn writes_blocks_singly(&self, cx: &mut Cx, errno: Errno, _: usize) -> bool {
        if errno == Errno::ENOSPC {
            self.fs.make_room(cx);
        }
        errno == Errno::ENOSPC
    }

    fn allocate(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.fs.preallocate(cx, self.inode, range)
    }

    fn punch_hole(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.fs.punch_hole(cx, self.inode, range)
    }

    fn set_size(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        self.fs.set_size(cx, self.inode, size)
    }

    fn note_fallocate(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.fs.stamp_times(cx, self.inode);
        self.fs.log_times(cx, self.inode)
    }

    fn direct_options(&self) -> DirectOptions {
        self.fs.direct
    }

    fn shares_overwrites(&self, cx: &Cx) -> bool {
        !self.inode.is_reflink(cx)
    }

    fn prepare_gap(&self, cx: &mut Cx, offset: u64) -> Result<(), Errno> {
        self.fs.allocate_cow_edge(cx, self.inode, self.inode.size(cx))?;
        self.fs.clear_gap(cx, self.inode, offset)
    }

    fn prepare_direct(&self, cx: &mut Cx, bytes: Range<u64>) -> Result<(), Errno> {
        self.fs.finisher.learn(cx);
        self.fs.finish_io(cx, self.inode, bytes.end > self.inode.size(cx))
    }

    fn settle_direct(&self, cx: &mut Cx, failed: bool) -> Result<(), Errno> {
        if failed {
            // What was given and not used goes when the file is closed.
            self.inode.io.lock(cx).ahead = true;
            self.fs.ahead.lock(cx).insert(self.inode.ino);
            return Ok(());
        }
        self.fs.finish_io(cx, self.inode, false)
    }

    fn note_direct_write(&self, cx: &mut Cx) -> Result<(), Errno> {
        // The device may have it in its cache only, and the times wait for the next sync.
        self.inode.io.lock(cx).unflushed = true;
        self.fs.finisher.unflushed.store(true, Ordering::Release);
        self.fs.stamp_times(cx, self.inode);
        self.fs.hold(cx, self.inode);
        Ok(())
    }
}

impl Xfs {
    /// A file for the drivers.
    pub(crate) fn data_file<'a>(&'a self, inode: &'a Arc<Inode>) -> DataFile<'a> {
        DataFile { fs: self, inode }
    }

    /// Where `offset..offset + len` lies on the device.
    pub(crate) fn fiemap_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Iomap>, Errno> {
        if inode.kind(cx) == FileType::Regular && self.write.is_some() {
            self.finish_io(cx, inode, false)?;
        }
        let size = inode.size(cx);
        if inode.forks.read(cx).data.format == ForkFormat::Local {
            let inline = Iomap { offset: 0, len: size, kind: IomapKind::Inline };
            return Ok(if offset < size { vec![inline] } else { Vec::new() });
        }
        let bits = self.geometry().block_bits;
        let end =
            offset.saturating_add(len).min(u64::MAX >> bits << bits).next_multiple_of(1 << bits);
        vfs::iomap::fiemap(cx, &self.data_file(inode), offset >> bits << bits..end)
    }

    /// The content is there: makes what it lies in part of the file, and lets the file grow.
    /// See [`cache::IomapOps::end`].
    pub(super) fn end_direct_write(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        iter: &IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        let (bits, Range { start, mut end }) = (self.geometry().block_bits, range);
        // Of a block that held nothing only the whole counts, unless the call ends in it.
        if !complete && (iter.given || end >> bits >= self.blocks_of(inode.size(cx))) {
            end = (end >> bits << bits).max(start);
        }
        match self.add_direct_write(cx, inode, start..end, iter.given) {
            Ok(()) => (end, Ok(())),
            failed => (start, failed),
        }
    }

    fn add_direct_write(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
        given: bool,
    ) -> Result<(), Errno> {
        let bits = self.geometry().block_bits;
        let mapping = inode.mapping(cx);
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
