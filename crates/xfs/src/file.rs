//! Data of regular files, as the page cache sees them: where blocks lie, who is asked for room, how
//! dirty pages are written.

mod cow;
mod cow_surplus;
mod delalloc;
mod exchange;
mod fallocate;
mod fsync;
mod ioend;
mod iomap;
mod realtime;
mod reflink;
mod sharing;
mod shift;
mod small_files;
mod truncate;
mod write;
mod writeback;

pub(crate) use exchange::exchange_file_ranges;
pub(crate) use fsync::sync_all;
pub(crate) use reflink::{FilePosition, clone_file_range, dedupe_file_range};
pub(crate) use write::close_content;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::Errno;
use cache::{Iomap, IomapIter, IomapKind, IomapOps, Mapping, WritebackControl};
use rt::Cx;

use crate::Xfs;
use crate::bmap::{self, Mapped, Which};
use crate::format::extent::Extent;
use crate::inode::Inode;

/// The data of a file, and its mount.
#[derive(Clone, Copy)]
pub(crate) struct DataFile<'a> {
    fs: &'a Xfs,
    inode: &'a Inode,
}

impl<'a> DataFile<'a> {
    /// The data of this inode.
    pub fn new(fs: &'a Xfs, inode: &'a Inode) -> DataFile<'a> {
        DataFile { fs, inode }
    }
}

impl Inode {
    /// The file's pages; made at first use.
    pub(crate) fn mapping(&self, cx: &Cx) -> &Arc<Mapping> {
        let size = self.size(cx);
        self.mapping.get_or_init(|| {
            let fs = self.fs.upgrade().expect("an inode is used only while its mount lives");
            let ops: Arc<dyn IomapOps> = self.arc();
            let ops: Weak<dyn IomapOps> = Arc::downgrade(&ops);
            Mapping::new(fs.backing_of(self.is_realtime(cx)), self.ino.0, size, ops)
        })
    }

    fn mount(&self) -> Result<Arc<Xfs>, Errno> {
        self.fs.upgrade().ok_or(Errno::EIO)
    }

    /// Where the content of the first blocks of a range lies: content that is on the device counts
    /// as written, and in its CoW block, before the map says so.
    fn readable(&self, list: &[Extent], range: Range<u64>) -> Mapped {
        let at = range.start;
        let mut mapped = bmap::lookup(list, range);
        let cow = self.cow_fork.lock_irq().lookup(at..at + mapped.count);
        mapped.count = cow.count;
        if let Some(start) = cow.start {
            let io = self.io.lock_irq();
            mapped.count = io.done_until(at..at + mapped.count) - at;
            if io.is_done(at) {
                (mapped.start, mapped.unwritten) = (Some(start), false);
            }
        } else if mapped.unwritten {
            let io = self.io.lock_irq();
            mapped.count = io.done_until(at..at + mapped.count) - at;
            mapped.unwritten = !io.is_done(at);
        }
        mapped
    }
}

impl DataFile<'_> {
    /// Blocks from `block` on in bytes, as the cache and reports have them.
    fn iomap(&self, cx: &Cx, block: u64, mapped: &Mapped) -> Iomap {
        let bits = self.fs.geometry().block_bits;
        let kind = match mapped.start.map(|start| self.content_sector(cx, start)) {
            None => IomapKind::Hole,
            Some(sector) if mapped.unwritten => IomapKind::Unwritten(sector),
            Some(sector) => IomapKind::Mapped(sector),
        };
        Iomap { offset: block << bits, len: mapped.count << bits, kind }
    }
}

impl IomapOps for Inode {
    fn begin(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        DataFile::new(&*self.mount()?, self).map_part(cx, iter, range)
    }

    fn end(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        match self.mount() {
            Ok(fs) => DataFile::new(&fs, self).end_direct_write(cx, iter, range, complete),
            Err(errno) => (range.start, Err(errno)),
        }
    }

    fn reserve(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let fs = self.mount()?;
        let bits = fs.geometry().block_bits;
        let blocks = range.start >> bits..range.end.div_ceil(1 << bits);
        let file = DataFile::new(&fs, self);
        file.allocate_cow(cx, blocks.clone())?;
        if file.in_realtime(cx) {
            return file.reserve_realtime(cx, blocks);
        }
        file.reserve_delalloc(cx, blocks)
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let fs = self.mount()?;
        let file = DataFile::new(&fs, self);
        let guard = self.writeback.lock(cx);
        let mut result = file.write_dirty_pages(cx, mapping, wb);
        // Where blocks are to be marked as written the times go along with that, and who waits for
        // this file alone sees to them.
        let waited = self.waited.load(Ordering::Relaxed) > 0;
        if result.is_ok() && !waited && self.io.lock(cx).only_times() {
            result = file.log_times(cx);
        }
        drop(guard);
        result
    }

    fn ioend(&self, range: Range<u64>, result: Result<(), Errno>) {
        if let Some(fs) = self.fs.upgrade() {
            self.content_written(&fs, range, result.is_ok());
        }
    }
}

impl DataFile<'_> {
    /// Where the first blocks of a range of a file lie.
    pub(crate) fn map_file(&self, cx: &mut Cx, range: Range<u64>) -> Result<Mapped, Errno> {
        let mapped = self.inode.extents(cx, Which::Data, |list| bmap::lookup(list, range));
        mapped.map_err(|fault| self.fs.fault(fault))
    }

    /// As [`DataFile::map_file`], for a reader.
    pub(crate) fn map_readable(&self, cx: &mut Cx, range: Range<u64>) -> Result<Mapped, Errno> {
        let mapped = self.inode.extents(cx, Which::Data, |list| self.inode.readable(list, range));
        mapped.map_err(|fault| self.fs.fault(fault))
    }
}
