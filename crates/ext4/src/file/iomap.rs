//! A file's map and data as the drivers of `vfs` see them ([`vfs::iomap`]).

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Intent, Iomap, IomapIter, IomapKind, IomapOps, Mapping};
use rt::{Cx, ReadGuard, WriteGuard};
use vfs::FileType;
use vfs::direct::DirectOptions;
use vfs::iomap::IomapFile;

use crate::bmap::map::{Mapped, State};
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

    /// Where `offset..offset + len` lies on the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn fiemap_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Iomap>, Errno> {
        let (kind, size, fast, limit) = inode.with(cx, |core| {
            let kind = FileType::from_mode(u32::from(core.mode));
            (kind, core.size, core.is_fast_symlink(), core.size_limit(&self.sb.geometry))
        });
        match kind {
            Some(FileType::Regular | FileType::Directory) => {}
            Some(FileType::Symlink) if !fast => {}
            Some(FileType::Symlink) if offset < size => {
                return Ok(vec![Iomap { offset: 0, len: size, kind: IomapKind::Inline }]);
            }
            _ => return Ok(Vec::new()),
        }
        let bits = self.sb.geometry.block_bits;
        let end = offset.saturating_add(len).div_ceil(1 << bits).min(limit >> bits) << bits;
        vfs::iomap::fiemap(cx, &self.data_file(inode), offset >> bits << bits..end)
    }
}

impl Inodes {
    /// The first part of a range of a file: see [`cache::IomapOps::begin`].
    pub(crate) fn map_part(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno> {
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
    fn ops(&self) -> &dyn IomapOps {
        &**self.inode
    }

    #[inline]
    fn kind(&self, cx: &Cx) -> FileType {
        self.inode.kind(cx)
    }

    #[inline]
    fn size(&self, cx: &Cx) -> u64 {
        self.inode.size(cx)
    }

    #[inline]
    fn block_size(&self) -> u32 {
        self.fs.sb.geometry.block_size
    }

    #[inline]
    fn mapping(&self, _: &Cx) -> &Arc<Mapping> {
        self.inode.mapping()
    }

    #[inline]
    fn lock_shared(&self, cx: &mut Cx) -> Result<ReadGuard<'_, ()>, Errno> {
        let guard = self.inode.rwsem.read(cx);
        if self.inode.with(cx, |core| core.dead) { Err(Errno::ESTALE) } else { Ok(guard) }
    }

    #[inline]
    fn lock_alone(&self, cx: &mut Cx) -> Result<WriteGuard<'_, ()>, Errno> {
        let guard = self.inode.rwsem.write(cx);
        if self.inode.with(cx, |core| core.dead) { Err(Errno::ESTALE) } else { Ok(guard) }
    }

    #[inline]
    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.sb.check_writable()
    }

    #[inline]
    fn size_max(&self, cx: &Cx) -> u64 {
        self.inode.with(cx, |core| core.growth_limit(&self.fs.sb.geometry))
    }

    fn size_on_disk(&self, cx: &Cx) -> u64 {
        self.inode.with(cx, |core| core.values.size)
    }

    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        self.inode.mapping().flush(cx, range)
    }

    fn settle_map(&self, cx: &mut Cx) -> Result<(), Errno> {
        match self.inode.mapping_if_any() {
            Some(mapping) if mapping.is_dirty() => mapping.flush(cx, 0..u64::MAX),
            _ => Ok(()),
        }
    }

    fn try_lock_shared(&self) -> Option<ReadGuard<'_, ()>> {
        self.inode.rwsem.try_read()
    }

    fn only_on_device(&self, cx: &Cx) -> bool {
        let (fs, inode) = (self.fs, self.inode);
        let regular = inode.kind(cx) == FileType::Regular && !inode.with(cx, |core| core.dead);
        let quiet = inode.mapping_if_any().is_none_or(|mapping| mapping.memory_bytes() == 0);
        regular && quiet && inode.delayed.lock(cx).is_empty() && !inode.data_in_buffers(cx, &fs.sb)
    }

    #[inline]
    fn prepare_write(&self, cx: &mut Cx, _: u64) -> Result<(), Errno> {
        // Before the pages are dirty, so that whoever writes them out sees it.
        self.fs.stamp_times(cx, self.inode);
        Ok(())
    }

    #[inline]
    fn writes_blocks_singly(&self, _: &mut Cx, _: Errno, len: usize) -> bool {
        len > self.fs.sb.geometry.block_size as usize
    }

    #[inline]
    fn end_write(&self, cx: &mut Cx) {
        let size = self.inode.mapping().size();
        self.inode.with(cx, |core| core.size = size);
    }

    fn check_allocate(&self, cx: &Cx) -> Result<(), Errno> {
        // Indirect blocks have no unwritten state.
        if self.inode.has_extents(cx) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
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
        self.fs.touch(cx, self.inode)
    }

    fn direct_options(&self) -> DirectOptions {
        self.fs.sb.options.direct
    }

    fn only_cached(&self, cx: &Cx) -> bool {
        self.inode.data_in_buffers(cx, &self.fs.sb)
    }

    fn shares_overwrites(&self, cx: &Cx) -> bool {
        self.fs.sb.options.direct.boundary.is_modern() && !self.only_cached(cx)
    }

    fn note_direct_write(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.fs.stamp_times(cx, self.inode);
        self.end_write(cx);
        self.fs.write_inode(cx, self.inode)
    }
}
