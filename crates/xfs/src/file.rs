//! Data of regular files: reads through the page cache, direct reads, holes and extents.

use std::sync::{Arc, Weak};

use base::Errno;
use cache::{Mapping, MappingOps, Piece, Pieces, WritebackControl};
use rt::Cx;
use vfs::{ExtentState, FileExtent, FileType, SeekWhence};

use crate::Xfs;
use crate::bmap::{self, Mapped, Which};
use crate::inode::Inode;

/// The mapping of a regular file.
pub(crate) fn new_mapping(fs: &Xfs, inode: Arc<Inode>, size: u64) -> Arc<Mapping> {
    let ino = inode.ino.0;
    let ops: Arc<dyn MappingOps> = inode;
    let ops: Weak<dyn MappingOps> = Arc::downgrade(&ops);
    Mapping::new(&fs.backing, ino, size, ops)
}

impl Inode {
    fn mount(&self) -> Result<Arc<Xfs>, Errno> {
        self.fs.upgrade().ok_or(Errno::EIO)
    }
}

impl MappingOps for Inode {
    fn map(
        &self,
        cx: &mut Cx,
        _mapping: &Arc<Mapping>,
        off: u64,
        len: u64,
    ) -> Result<Pieces, Errno> {
        let fs = self.mount()?;
        let bits = fs.geometry().block_bits;
        let (block, end) = (off >> bits, (off + len.max(1)).div_ceil(1 << bits));
        let mut pieces = Pieces::new();
        let fill = self.extents(cx, Which::Data, |list| {
            let mut at = block;
            // A few pieces at once: the reads of a fragmented file go down together.
            while at < end && pieces.len() < 16 {
                let mapped = bmap::lookup(list, at, end - at);
                let start = mapped.start.filter(|_| !mapped.unwritten);
                let sector = start.map(|start| fs.geometry().sector(start));
                pieces.push(Piece { off: at << bits, len: mapped.count << bits, sector });
                at += mapped.count;
            }
        });
        fill.map_err(|fault| fs.fault(fault))?;
        Ok(pieces)
    }

    fn reserve(
        &self,
        _cx: &mut Cx,
        _mapping: &Arc<Mapping>,
        _off: u64,
        _len: u64,
    ) -> Result<(), Errno> {
        Err(Errno::EROFS)
    }

    fn writepages(
        &self,
        _cx: &mut Cx,
        _mapping: &Arc<Mapping>,
        _wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::EROFS)
    }
}

impl Xfs {
    /// Where the blocks of a file from `block` on lie.
    fn map_file(&self, cx: &mut Cx, inode: &Inode, block: u64, want: u64) -> Result<Mapped, Errno> {
        let mapped = inode.extents(cx, Which::Data, |list| bmap::lookup(list, block, want));
        mapped.map_err(|fault| self.fault(fault))
    }

    /// Reads file data through the page cache.
    pub(crate) fn read_file(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        inode.kind(cx).check_regular()?;
        let guard = inode.rwsem.read(cx);
        let result = inode.mapping(cx).clone().read(cx, offset, buf);
        drop(guard);
        result
    }

    /// Reads past the page cache.
    pub(crate) fn read_file_direct(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Errno> {
        inode.kind(cx).check_regular()?;
        let guard = inode.rwsem.read(cx);
        let mapping = inode.mapping(cx).clone();
        let result = vfs::direct::read(cx, &mapping, offset, buf);
        drop(guard);
        result
    }

    /// The next data or hole at or behind `offset`; unwritten extents count as holes.
    pub(crate) fn seek_file(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        whence: SeekWhence,
    ) -> Result<u64, Errno> {
        if inode.kind(cx) != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        let size = inode.size(cx);
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let guard = inode.rwsem.read(cx);
        let bits = self.geometry().block_bits;
        let end = size.div_ceil(1 << bits);
        let (mut block, mut found) = (offset >> bits, None);
        while block < end && found.is_none() {
            let mapped = self.map_file(cx, inode, block, end - block)?;
            let is_data = mapped.start.is_some() && !mapped.unwritten;
            if is_data == (whence == SeekWhence::Data) {
                found = Some((block << bits).max(offset));
            }
            block += mapped.count;
        }
        drop(guard);
        match (found, whence) {
            (Some(at), _) => Ok(at),
            (None, SeekWhence::Hole) => Ok(size),
            (None, SeekWhence::Data) => Err(Errno::ENXIO),
        }
    }

    /// Where `offset..offset + len` lies on the device.
    pub(crate) fn fiemap_file(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        len: u64,
    ) -> Result<Vec<FileExtent>, Errno> {
        let bits = self.geometry().block_bits;
        let (from, to) = (offset >> bits, offset.saturating_add(len).div_ceil(1 << bits));
        let guard = inode.rwsem.read(cx);
        let list = inode.extents(cx, Which::Data, |list| list.to_vec());
        drop(guard);
        let mut out = Vec::new();
        for extent in list.map_err(|fault| self.fault(fault))? {
            let (first, end) = (extent.offset.max(from), extent.end().min(to));
            if first >= end {
                continue;
            }
            let start = extent.start + (first - extent.offset);
            let unwritten = extent.unwritten;
            out.push(FileExtent {
                offset: first << bits,
                physical: self.geometry().sector(start).bytes(),
                len: (end - first) << bits,
                state: if unwritten { ExtentState::Unwritten } else { ExtentState::Written },
            });
        }
        Ok(out)
    }
}
