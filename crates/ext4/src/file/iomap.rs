//! A file's map and data as the drivers of `vfs` see them ([`vfs::iomap`]).

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Intent, Iomap, IomapIter, IomapKind, Mapping};
use rt::Cx;
use vfs::iomap::{DirectWrites, FileParts, FileState, IomapFile};

use crate::bmap::map::{Mapped, State};
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, Inodes};

/// A file and its mount.
pub(crate) struct DataFile<'a> {
    pub fs: &'a Inodes,
    pub inode: &'a Arc<Inode>,
}

impl Inodes {
    /// A file for the drivers.
    #[inline]
    pub(crate) fn data_file<'a>(&'a self, inode: &'a Arc<Inode>) -> DataFile<'a> {
        DataFile { fs: self, inode }
    }

    /// The first part of a range of a file: see [`cache::IomapOps::begin`].
    pub(crate) fn map_part(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        iter: &mut IomapIter<'_>,
        mut range: Range<u64>,
    ) -> Result<Iomap, Errno> {
        if iter.intent == Intent::Report {
            let limit = inode.with(cx, |core| core.size_limit(&self.sb.geometry));
            if range.start >= limit {
                let len = range.end - range.start;
                return Ok(Iomap { offset: range.start, len, kind: IomapKind::Hole });
            }
            range.end = range.end.min(limit);
        }
        let bits = self.sb.geometry.block_bits;
        let lblk = u32::try_from(range.start >> bits).map_err(|_| Errno::EFBIG)?;
        let count = (range.end - range.start) >> bits;
        let want = count.min(u64::from(u32::MAX - lblk)).max(1) as u32;
        let mapped = self.bmap(inode).map_lookup(cx, lblk, want)?;
        match (iter.intent, mapped.state) {
            (Intent::Write, State::Hole) => self.claim(cx, inode, iter, &mapped, want),
            (Intent::Report, State::Hole) => Ok(self.delayed_part(cx, inode, mapped)),
            (intent, state) => {
                iter.given |= intent == Intent::Write && state == State::Unwritten;
                Ok(mapped.iomap(&self.sb.geometry))
            }
        }
    }

    /// The first part of a hole that has blocks reserved for dirty pages, or has none.
    fn delayed_part(&self, cx: &Cx, inode: &Inode, mut hole: Mapped) -> Iomap {
        let delayed = inode.delayed.lock(cx);
        let next = delayed.holes().within(hole.lblk..hole.lblk + hole.len).next();
        let reserved = next.as_ref().is_some_and(|part| part.start == hole.lblk);
        let end = next.map(|part| if reserved { part.end } else { part.start });
        hole.len = end.map_or(hole.len, |end| end - hole.lblk);
        let part = hole.iomap(&self.sb.geometry);
        if reserved { Iomap { kind: IomapKind::Delalloc, ..part } } else { part }
    }
}

impl IomapFile for DataFile<'_> {
    #[inline]
    fn parts(&self) -> FileParts<'_> {
        let sb = &self.fs.sb;
        FileParts {
            ops: &**self.inode,
            rwsem: &self.inode.rwsem,
            writeback: &self.inode.writeback,
            pages: self.inode.mapping_if_any(),
            block_size: sb.geometry.block_size,
            direct: sb.options.direct,
        }
    }

    #[inline]
    fn state(&self, cx: &Cx) -> FileState {
        self.inode.with(cx, |core| FileState {
            kind: core.file_type(),
            size: core.size,
            size_on_disk: core.values.size,
            size_max: core.growth_limit(&self.fs.sb.geometry),
            freed: core.dead,
            // Indirect blocks have no unwritten state.
            has_unwritten: core.flags.intersects(InodeFlags::EXTENTS),
            inline: core.may_inline || core.is_inline(),
        })
    }

    #[inline]
    fn mapping(&self, _: &Cx) -> &Arc<Mapping> {
        self.inode.mapping()
    }

    fn is_inline(&self, cx: &mut Cx) -> bool {
        self.inode.with(cx, |core| core.is_fast_symlink() || core.is_inline())
    }

    fn read_inline(
        &self,
        cx: &mut Cx,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        self.fs.read_inline(cx, self.inode, offset, buf)
    }

    fn write_inline(&self, cx: &mut Cx, offset: u64, data: &[u8]) -> Result<bool, Errno> {
        self.fs.write_inline(cx, self.inode, offset, data)
    }

    fn resize_inline(&self, cx: &mut Cx, size: u64) -> Result<bool, Errno> {
        self.fs.resize_inline(cx, self.inode, size)
    }

    fn leave_inline(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.fs.leave_inline(cx, self.inode)
    }

    fn has_delalloc(&self, cx: &Cx) -> bool {
        !self.inode.delayed.lock(cx).is_empty()
    }

    fn direct_writes(&self, cx: &Cx) -> DirectWrites {
        match self.fs.sb.options.direct.boundary.is_modern() {
            _ if self.inode.crypt().is_some() => DirectWrites::Cached,
            _ if self.inode.verity().is_some() => DirectWrites::Cached,
            _ if self.inode.data_in_buffers(cx, &self.fs.sb) => DirectWrites::Cached,
            true => DirectWrites::Shared,
            false => DirectWrites::Alone,
        }
    }

    #[inline]
    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.sb.check_writable()?;
        if self.inode.verity().is_some() { Err(Errno::EPERM) } else { Ok(()) }
    }

    #[inline]
    fn stamp_times(&self, cx: &Cx) {
        self.fs.stamp_times(cx, self.inode);
    }

    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.inode.mapping().flush(cx, range)
    }

    #[inline]
    fn end_write(&self, cx: &mut Cx) {
        let size = self.inode.mapping().size();
        self.inode.with(cx, |core| core.size = size);
    }

    fn allocate(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<u64, Errno> {
        let blocks = Self::lblks(blocks);
        let mut retries = 0;
        loop {
            let writeback = self.inode.writeback.lock(cx);
            let step = self.fs.preallocate_step(cx, self.inode, blocks.clone());
            drop(writeback);
            match step {
                Err(Errno::ENOSPC) if self.fs.should_retry_alloc(cx, &mut retries) => {}
                step => return step.map(u64::from),
            }
        }
    }

    fn drop_delalloc(&self, cx: &mut Cx, blocks: Range<u64>) {
        let blocks = Self::lblks(blocks);
        self.inode.release_delayed(cx, &self.fs.alloc, blocks.start, blocks.end);
    }

    fn prepare_unmap(&self, cx: &mut Cx, bytes: Range<u64>) -> Result<(), Errno> {
        let geometry = &*self.fs.sb.geometry;
        if !geometry.has_clusters() || !self.has_delalloc(cx) {
            return Ok(());
        }
        let (block, cluster) = (u64::from(geometry.block_size), geometry.cluster_sectors() * 512);
        let front = bytes.start / cluster * cluster..bytes.start.next_multiple_of(block);
        let mut edges = vec![front];
        if bytes.end < self.inode.mapping().size() {
            edges.push(bytes.end / block * block..bytes.end.next_multiple_of(cluster));
        }
        let waits = |edge: &Range<u64>| {
            let blocks = Self::lblks(edge.start / block..edge.end / block);
            self.inode.delayed.lock(cx).holes().intersects(blocks)
        };
        match edges.iter().rfind(|edge| waits(edge)) {
            // In the order of the file: the size on the disk covers nothing that has no place.
            Some(edge) => self.flush(cx, 0..edge.end),
            None => Ok(()),
        }
    }

    fn unmap(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<(), Errno> {
        let blocks = Self::lblks(blocks);
        self.fs.punch_blocks(cx, self.inode, blocks.start, blocks.end)
    }

    fn extend(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        self.inode.with(cx, |core| (core.size, core.values.size) = (size, size));
        Ok(())
    }

    fn truncate(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        if size == 0 {
            self.inode.with(cx, |core| core.place_on_close |= core.size > 0);
        }
        self.fs.truncate_blocks(cx, self.inode, size)
    }

    fn note_fallocate(&self, cx: &mut Cx, _: bool) -> Result<(), Errno> {
        self.fs.touch(cx, self.inode)
    }

    fn note_direct_write(&self, cx: &mut Cx, _: Intent, _: bool) -> Result<(), Errno> {
        self.fs.stamp_times(cx, self.inode);
        self.end_write(cx);
        self.fs.write_inode(cx, self.inode)
    }
}

impl DataFile<'_> {
    /// The logical blocks of a range, which ends with the largest number at most.
    fn lblks(blocks: Range<u64>) -> Range<u32> {
        let lblk = |block: u64| block.min(u64::from(u32::MAX)) as u32;
        lblk(blocks.start)..lblk(blocks.end)
    }
}
