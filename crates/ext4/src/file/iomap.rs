//! A file's map and data as the drivers of `vfs` see them ([`vfs::iomap`]).

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Iomap, IomapKind, IomapOps, Mapping};
use rt::{Cx, ReadGuard, WriteGuard};
use vfs::FileType;
use vfs::direct::DirectOptions;
use vfs::iomap::{Intent, IomapFile};

use crate::Ext4;
use crate::bmap::map::{Mapped, State};
use crate::file::direct::Given;
use crate::inode::Inode;

/// A file and its mount.
pub(crate) struct DataFile<'a> {
    pub fs: &'a Ext4,
    pub inode: &'a Arc<Inode>,
}

impl Ext4 {
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
        let (maps, limit) = inode.with(cx, |core| {
            let maps = match FileType::from_mode(u32::from(core.mode)) {
                Some(FileType::Regular | FileType::Directory) => true,
                Some(FileType::Symlink) => !core.is_fast_symlink(),
                _ => false,
            };
            (maps, core.size_limit(&self.sb.geometry))
        });
        if !maps {
            return Ok(Vec::new());
        }
        let bits = self.sb.geometry.block_bits;
        let end = offset.saturating_add(len).div_ceil(1 << bits).min(limit >> bits) << bits;
        vfs::iomap::fiemap(cx, &self.data_file(inode), offset >> bits << bits..end)
    }
}

/// A walk over the map of a file.
pub(crate) struct MapWalk<'a> {
    pub fs: &'a Ext4,
    pub inode: &'a Arc<Inode>,
    intent: Intent,
    pub given: Given,
}

impl MapWalk<'_> {
    /// The first part of a hole that is promised to dirty pages, or is not.
    fn promised(&self, cx: &Cx, mut hole: Mapped) -> Iomap {
        let delayed = self.inode.delayed.lock(cx);
        let next = delayed.holes().within(hole.lblk..hole.lblk + hole.len).next();
        let promised = next.as_ref().is_some_and(|part| part.start == hole.lblk);
        let end = next.map(|part| if promised { part.end } else { part.start });
        hole.len = end.map_or(hole.len, |end| end - hole.lblk);
        let part = self.fs.iomap(&hole);
        if promised { Iomap { kind: IomapKind::Delalloc, ..part } } else { part }
    }
}

impl IomapOps for MapWalk<'_> {
    fn begin(&mut self, cx: &mut Cx, range: Range<u64>) -> Result<Iomap, Errno> {
        let bits = self.fs.sb.geometry.block_bits;
        let lblk = u32::try_from(range.start >> bits).map_err(|_| Errno::EFBIG)?;
        let count = (range.end - range.start) >> bits;
        let want = count.min(u64::from(u32::MAX - lblk)).max(1) as u32;
        let mapped = self.fs.map_lookup(cx, self.inode, lblk, want)?;
        if self.intent == Intent::Write {
            match mapped.state {
                State::Written => {}
                State::Hole => return self.given.claim(cx, self.fs, self.inode, &mapped, want),
                State::Unwritten => self.given.unwritten = true,
            }
        }
        if self.intent == Intent::Report && mapped.state == State::Hole {
            return Ok(self.promised(cx, mapped));
        }
        Ok(self.fs.iomap(&mapped))
    }

    fn boundary(&mut self, cx: &mut Cx, part: &Iomap) -> bool {
        let bits = self.fs.sb.geometry.block_bits;
        let (lblk, len) = ((part.offset >> bits) as u32, (part.len >> bits) as u32);
        !self.inode.has_extents(cx) && self.fs.indirect_boundary(lblk, len)
    }

    fn prefetch(&mut self, cx: &mut Cx, at: u64) -> bool {
        let lblk = u32::try_from(at >> self.fs.sb.geometry.block_bits);
        !self.inode.has_extents(cx)
            && lblk.is_ok_and(|lblk| self.fs.indirect_prefetch(cx, self.inode, lblk))
    }

    fn end(&mut self, cx: &mut Cx, range: Range<u64>, complete: bool) -> (u64, Result<(), Errno>) {
        let given = std::mem::take(&mut self.given);
        self.fs.end_direct_write(cx, self.inode, given, range, complete)
    }
}

impl<'a> IomapFile for DataFile<'a> {
    type Ops = MapWalk<'a>;

    fn ops(&self, _: &mut Cx, intent: Intent, _: Range<u64>) -> Result<MapWalk<'a>, Errno> {
        Ok(MapWalk { fs: self.fs, inode: self.inode, intent, given: Given::default() })
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
        regular && quiet && inode.delayed.lock(cx).is_empty() && !fs.data_in_buffers(cx, inode)
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
        self.fs.data_in_buffers(cx, self.inode)
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
