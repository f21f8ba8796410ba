//! Data of regular files, as the page cache sees them: where blocks lie, who is asked for room, how
//! dirty pages are written.

pub(crate) mod cow;
mod delalloc;
mod fallocate;
mod fsync;
mod ioend;
mod iomap;
pub(crate) mod reflink;
mod sharing;
pub(crate) mod small_files;
mod truncate;
pub(crate) mod write;
mod writeback;

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

impl Inode {
    /// The file's pages; made at first use.
    pub(crate) fn mapping(&self, cx: &Cx) -> &Arc<Mapping> {
        let size = self.size(cx);
        self.mapping.get_or_init(|| {
            let fs = self.fs.upgrade().expect("an inode is used only while its mount lives");
            let ops: Arc<dyn IomapOps> = self.arc();
            let ops: Weak<dyn IomapOps> = Arc::downgrade(&ops);
            Mapping::new(&fs.backing, self.ino.0, size, ops)
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

impl Xfs {
    /// Blocks from `block` on in bytes, as the cache and reports have them.
    fn iomap(&self, block: u64, mapped: &Mapped) -> Iomap {
        let bits = self.geometry().block_bits;
        let kind = match mapped.start.map(|start| self.geometry().sector(start)) {
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
        self.mount()?.map_part(cx, self, iter, range)
    }

    fn end(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        match self.mount() {
            Ok(fs) => fs.end_direct_write(cx, &self.arc(), iter, range, complete),
            Err(errno) => (range.start, Err(errno)),
        }
    }

    fn reserve(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let fs = self.mount()?;
        let bits = fs.geometry().block_bits;
        let blocks = range.start >> bits..range.end.div_ceil(1 << bits);
        fs.allocate_cow(cx, &self.arc(), blocks.clone())?;
        self.reserve_delalloc(cx, &fs, blocks)
    }

    fn writepages(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let (fs, inode) = (self.mount()?, self.arc());
        let guard = self.writeback.lock(cx);
        let mut result = fs.write_dirty_pages(cx, &inode, mapping, wb);
        // Where blocks are to be marked as written the times go along with that, and who waits for
        // this file alone sees to them.
        let waited = self.waited.load(Ordering::Relaxed) > 0;
        if result.is_ok() && !waited && self.io.lock(cx).only_times() {
            result = fs.log_times(cx, &inode);
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

impl Xfs {
    /// Where the first blocks of a range of a file lie.
    pub(crate) fn map_file(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<Mapped, Errno> {
        let mapped = inode.extents(cx, Which::Data, |list| bmap::lookup(list, range));
        mapped.map_err(|fault| self.fault(fault))
    }

    /// As [`Xfs::map_file`], for a reader.
    pub(crate) fn map_readable(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<Mapped, Errno> {
        let mapped = inode.extents(cx, Which::Data, |list| inode.readable(list, range));
        mapped.map_err(|fault| self.fault(fault))
    }
}
