//! Where a file has data and where holes: `SEEK_DATA`, `SEEK_HOLE`, fiemap.

use std::sync::Arc;

use base::Errno;
use cache::{Iomap, IomapKind};
use rt::Cx;
use vfs::{FileType, SeekWhence};

use crate::Xfs;
use crate::bmap::Which;
use crate::inode::Inode;

impl Xfs {
    /// The next data or hole at or behind `offset`; unwritten extents count as holes. Dirty pages
    /// are written first, so that the map tells the whole truth.
    pub(crate) fn seek_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
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
        self.settle_map(cx, inode)?;
        let _shared = inode.lock_shared(cx)?;
        let bits = self.geometry().block_bits;
        let end = size.div_ceil(1 << bits);
        whence.find(offset, size, |at| {
            let block = at >> bits;
            let mapped = self.map_file(cx, inode, block..end)?;
            let is_data = mapped.start.is_some() && !mapped.unwritten;
            Ok((is_data, (block + mapped.count) << bits))
        })
    }

    /// Where `offset..offset + len` lies on the device.
    pub(crate) fn fiemap_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Iomap>, Errno> {
        let bits = self.geometry().block_bits;
        let (from, to) = (offset >> bits, offset.saturating_add(len).div_ceil(1 << bits));
        if inode.kind(cx) == FileType::Regular && self.write.is_some() {
            self.finish_io(cx, inode, false)?;
        }
        let guard = inode.lock_shared(cx)?;
        let list = inode.extents(cx, Which::Data, |list| {
            (list.to_vec(), inode.io.lock_irq().delayed.within(from..to).collect::<Vec<_>>())
        });
        drop(guard);
        let (list, delayed) = list.map_err(|fault| self.fault(fault))?;
        let mut out = Vec::new();
        for extent in list {
            let (first, end) = (extent.offset.max(from), extent.end().min(to));
            if first >= end {
                continue;
            }
            let sector = self.geometry().sector(extent.start + (first - extent.offset));
            let kind = match extent.unwritten {
                true => IomapKind::Unwritten(sector),
                false => IomapKind::Mapped(sector),
            };
            out.push(Iomap { offset: first << bits, len: (end - first) << bits, kind });
        }
        out.extend(delayed.into_iter().map(|part| Iomap {
            offset: part.start << bits,
            len: (part.end - part.start) << bits,
            kind: IomapKind::Delalloc,
        }));
        out.sort_by_key(|extent| extent.offset);
        Ok(out)
    }

    /// Gives what is dirty of a file its places, and marks them.
    fn settle_map(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        // What is on its way to the device is not marked before it is there.
        let idle = inode.mapping_if_any().is_none_or(|mapping| mapping.is_idle());
        match idle {
            false => self.flush_file(cx, inode, 0..u64::MAX, true),
            true if self.write.is_some() => self.finish_io(cx, inode, false),
            true => Ok(()),
        }
    }
}
