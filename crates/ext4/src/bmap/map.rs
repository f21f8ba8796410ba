//! From a file's blocks to the device's: one door for extents and indirect blocks, and what
//! directories and attributes need of it.

use std::ops::Range;

use base::Errno;
use cache::{BufferRef, Iomap, IomapKind};
use rt::Cx;

use crate::alloc::mballoc::Prealloc;
use crate::alloc::mballoc::{Purpose, Request};
use crate::bmap::Bmap;
use crate::bmap::extents::{FoundExtent, Removed};
use crate::format::extent::{Extent, LEN_MAX, UNWRITTEN_LEN_MAX};
use crate::format::{At, CorruptKind, Geometry};
use crate::inode::LastExtent;
use crate::trans::ext4_jbd2::Handle;

/// What lies at a logical block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing: reads as zeroes.
    Hole,
    /// Blocks with content.
    Written,
    /// Blocks that read as zeroes until they are written.
    Unwritten,
}

/// A run of logical blocks of one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    pub lblk: u32,
    /// At least 1.
    pub len: u32,
    /// First device block; 0 in a hole.
    pub pblk: u64,
    pub state: State,
}

impl Mapped {
    /// The same in bytes, as the cache and reports have it.
    pub(crate) fn iomap(&self, geometry: &Geometry) -> Iomap {
        let bits = geometry.block_bits;
        let sector = || base::FsBlock(self.pblk).sector(geometry.block_size);
        let kind = match self.state {
            State::Hole => IomapKind::Hole,
            State::Written => IomapKind::Mapped(sector()),
            State::Unwritten => IomapKind::Unwritten(sector()),
        };
        Iomap { offset: u64::from(self.lblk) << bits, len: u64::from(self.len) << bits, kind }
    }
}

/// How new blocks come to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Create {
    pub purpose: Purpose,
    /// They read as zeroes (extents only).
    pub unwritten: bool,
    /// The file's content reaches to this byte: as far as what is written here covers it, the size
    /// on the disk follows in the same handle.
    pub size: u64,
    /// They were reserved when their pages were written: the reservation ends here.
    pub reserved: bool,
}

impl Create {
    /// Blocks of a regular file with content, which reaches to byte `size`.
    pub fn written(purpose: Purpose, size: u64) -> Create {
        Create { purpose, unwritten: false, size, reserved: false }
    }

    /// Blocks of dirty pages that were reserved as far as they are known to delayed allocation.
    pub fn delayed(purpose: Purpose, size: u64) -> Create {
        Create { reserved: true, ..Create::written(purpose, size) }
    }

    /// Space that reads as zeroes.
    pub fn unwritten() -> Create {
        Create { purpose: Purpose::Data, unwritten: true, size: 0, reserved: false }
    }

    /// A block of metadata: the caller keeps the size.
    pub fn metadata() -> Create {
        Create { purpose: Purpose::Metadata, unwritten: false, size: 0, reserved: false }
    }
}

impl Bmap<'_> {
    /// What lies at `lblk`, looking no further than `len` blocks. May wait for the device and for
    /// the inode's map lock.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`, `EFBIG`.
    #[inline]
    pub(crate) fn map_lookup(self, cx: &mut Cx, lblk: u32, len: u32) -> Result<Mapped, Errno> {
        match self.fs.sb.options.dioread_nolock.is_some() {
            true => self.lookup_arrived(cx, lblk, len),
            false => self.lookup_stored(cx, lblk, len),
        }
    }

    /// What lies there, or is going to: blocks whose content has arrived count as written.
    fn lookup_arrived(self, cx: &mut Cx, lblk: u32, len: u32) -> Result<Mapped, Errno> {
        // First: what has become written since then is found as such.
        let blocks = lblk..lblk.saturating_add(len);
        let arrived = self.inode.arrived.lock(cx).within(blocks).next();
        let mut found = self.lookup_stored(cx, lblk, len)?;
        match arrived.filter(|_| found.state == State::Unwritten) {
            Some(run) if run.start == lblk => {
                found.state = State::Written;
                found.len = found.len.min(run.end - lblk);
            }
            Some(run) => found.len = found.len.min(run.start - lblk),
            None => {}
        }
        Ok(found)
    }

    /// As [`Bmap::map_lookup`], of what the tree has.
    fn lookup_stored(self, cx: &mut Cx, lblk: u32, len: u32) -> Result<Mapped, Errno> {
        let last = *self.inode.last_extent.lock(cx);
        if lblk >= last.lblk && lblk - last.lblk < last.len {
            let skip = lblk - last.lblk;
            let state = if last.unwritten { State::Unwritten } else { State::Written };
            let len = (last.len - skip).min(len);
            return Ok(Mapped { lblk, len, pblk: last.pblk + u64::from(skip), state });
        }
        let guard = self.inode.map_lock.read(cx);
        if let Some(known) = self.known_extent(cx, lblk) {
            return Ok(self.mapped_by(cx, known, lblk, len));
        }
        let found = self.lookup_locked(cx, lblk, len);
        drop(guard);
        found
    }

    /// As [`Bmap::map_lookup`]; the caller holds the inode's map lock.
    fn lookup_locked(self, cx: &mut Cx, lblk: u32, len: u32) -> Result<Mapped, Errno> {
        let found = if self.inode.has_extents(cx) {
            self.extent_lookup(cx, lblk)?
        } else if self.inode.inline_size(cx).is_some() {
            FoundExtent::Hole { next: u32::MAX }
        } else {
            self.indirect_lookup(cx, lblk, len)?
        };
        Ok(match found {
            FoundExtent::Hole { next } => {
                let len = next.saturating_sub(lblk).min(len).max(1);
                Mapped { lblk, len, pblk: 0, state: State::Hole }
            }
            FoundExtent::Extent(extent) => {
                let last = LastExtent {
                    lblk: extent.block,
                    len: extent.len,
                    pblk: extent.start,
                    unwritten: extent.unwritten,
                };
                self.keep_extent(cx, last);
                self.mapped_by(cx, last, lblk, len)
            }
        })
    }

    /// What an extent that holds `lblk` says of it; it is remembered as the last one.
    fn mapped_by(self, cx: &Cx, extent: LastExtent, lblk: u32, len: u32) -> Mapped {
        *self.inode.last_extent.lock(cx) = extent;
        let skip = lblk - extent.lblk;
        let state = if extent.unwritten { State::Unwritten } else { State::Written };
        let len = (extent.len - skip).min(len);
        Mapped { lblk, len, pblk: extent.pblk + u64::from(skip), state }
    }

    /// An extent that was found before, on mounts that keep them.
    fn known_extent(self, cx: &Cx, lblk: u32) -> Option<LastExtent> {
        if !self.fs.sb.keeps_extents() {
            return None;
        }
        let known = self.inode.known_extents.lock(cx);
        let (_, &extent) = known.range(..=lblk).next_back()?;
        (lblk - extent.lblk < extent.len).then_some(extent)
    }

    /// Keeps an extent that was found, on mounts that do.
    fn keep_extent(self, cx: &Cx, extent: LastExtent) {
        if self.fs.sb.keeps_extents() {
            self.inode.known_extents.lock(cx).insert(extent.lblk, extent);
        }
    }

    /// Drops what lookups remember: call before the tree changes.
    pub(crate) fn forget_last_extent(self, cx: &Cx) {
        *self.inode.last_extent.lock(cx) = LastExtent::default();
        if self.fs.sb.keeps_extents() {
            self.inode.known_extents.lock(cx).clear();
        }
    }

    /// What lies at `lblk` after blocks were given to a hole, and (unless `create.unwritten`) an
    /// unwritten run was made a written one: needs `credits::map` of the tree's depth. The inode
    /// must be marked dirty afterwards in the same handle. The size on the disk covers what is
    /// written now, up to `create.size`. The second answer: whether the tree changed.
    ///
    /// # Errors
    /// `ENOSPC` (try again after [`Inodes::should_retry_alloc`]), `EFBIG`, `EIO`, `EUCLEAN`.
    pub(crate) fn map_create(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        lblk: u32,
        len: u32,
        create: Create,
    ) -> Result<(Mapped, bool), Errno> {
        let mut prealloc = self.inode.map_lock.write(cx);
        if create.reserved {
            self.inode.begin_placing(cx, lblk..lblk + len);
        }
        let result = self.create_locked(cx, handle, &mut prealloc, lblk, len, create);
        if create.reserved {
            let placed = result.as_ref().ok().map(|(mapped, _)| mapped);
            self.inode.end_placing(cx, &self.fs.alloc, placed.map(|at| at.lblk..at.lblk + at.len));
        } else {
            self.inode.top_up_nodes(cx, &self.fs.alloc);
        }
        result
    }

    /// The body of [`Bmap::map_create`], under the map lock.
    fn create_locked(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: &mut Prealloc,
        lblk: u32,
        len: u32,
        create: Create,
    ) -> Result<(Mapped, bool), Errno> {
        let found = self.lookup_locked(cx, lblk, len)?;
        let (mapped, changed) = match found.state {
            State::Written => (found, false),
            State::Unwritten if create.unwritten => (found, false),
            State::Unwritten => {
                self.forget_last_extent(cx);
                let to = lblk + found.len;
                let end = self.extent_set_state(cx, handle, lblk, to, false)?;
                (Mapped { len: end - lblk, state: State::Written, ..found }, true)
            }
            State::Hole => {
                // Blocks that are mapped stay so: what is known of them holds.
                *self.inode.last_extent.lock(cx) = LastExtent::default();
                let new = self.fill_hole(cx, handle, prealloc, lblk, found.len, create)?;
                let Mapped { lblk, len, pblk, .. } = new;
                let unwritten = create.unwritten;
                self.keep_extent(cx, LastExtent { lblk, len, pblk, unwritten });
                (new, true)
            }
        };
        self.mapped_in(cx, handle, &mapped, create);
        if changed {
            self.track(cx, handle, mapped.lblk..mapped.lblk + mapped.len);
        }
        Ok((mapped, changed))
    }

    /// What changed of the map belongs to the handle's transaction, and so does the size that makes
    /// it a part of the file: no commit has the one without the other.
    fn mapped_in(self, cx: &Cx, handle: &Handle, mapped: &Mapped, create: Create) {
        let end = u64::from(mapped.lblk + mapped.len) << self.fs.sb.geometry.block_bits;
        let tid = handle.tid();
        self.inode.with(cx, |core| {
            core.values.size = core.values.size.max(end.min(create.size));
            core.datasync_tid = tid;
        });
    }

    /// Fast commits report where these blocks lie.
    fn track(self, cx: &Cx, handle: &Handle, blocks: Range<u32>) {
        if let Some(tracker) = self.fs.fast_tracker() {
            tracker.track_blocks(cx, handle, self.inode, blocks);
        }
    }

    /// Makes written the first blocks whose content has arrived. The inode must be marked dirty
    /// afterwards in the same handle where the answer is true: something changed.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn map_arrived(self, cx: &mut Cx, handle: &mut Handle) -> Result<bool, Errno> {
        let guard = self.inode.map_lock.write(cx);
        let Some(run) = self.inode.arrived.lock(cx).iter().next() else { return Ok(false) };
        let found = self.lookup_locked(cx, run.start, run.end - run.start)?;
        let mut end = found.lblk + found.len;
        let changes = found.state == State::Unwritten;
        if changes {
            self.forget_last_extent(cx);
            end = self.extent_set_state(cx, handle, run.start, end, false)?;
            self.mapped_in(cx, handle, &found, Create::unwritten());
            self.track(cx, handle, run.start..end);
        }
        self.inode.arrived.lock(cx).remove(run.start..end);
        self.inode.top_up_nodes(cx, &self.fs.alloc);
        drop(guard);
        Ok(changes)
    }

    /// As [`Bmap::map_create`], for a hole whose blocks were claimed: `claim` has them, and the
    /// tables that they need; what it has afterwards is left. The file reaches to byte `size`.
    ///
    /// # Errors
    /// As [`Bmap::map_create`].
    pub(crate) fn map_claimed(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        claim: &mut Prealloc,
        size: u64,
    ) -> Result<Mapped, Errno> {
        let create = Create::written(Purpose::Claimed, size);
        let guard = self.inode.map_lock.write(cx);
        self.forget_last_extent(cx);
        let (lblk, len) = (claim.lblk, claim.len);
        let mapped = self.fill_hole(cx, handle, claim, lblk, len, create);
        if let Ok(mapped) = &mapped {
            self.mapped_in(cx, handle, mapped, create);
            self.track(cx, handle, lblk..lblk + mapped.len);
        }
        self.inode.top_up_nodes(cx, &self.fs.alloc);
        drop(guard);
        mapped
    }

    fn fill_hole(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: &mut Prealloc,
        lblk: u32,
        len: u32,
        create: Create,
    ) -> Result<Mapped, Errno> {
        let purpose = create.purpose;
        if self.fs.sb.geometry.has_clusters() {
            return self.fill_clusters(cx, handle, prealloc, lblk, len, create);
        }
        if !self.inode.has_extents(cx) {
            let request = Request { goal: 0, want: len, lblk, purpose };
            let extent = self.indirect_alloc(cx, handle, prealloc, request)?;
            let (len, pblk) = (extent.len, extent.start);
            return Ok(Mapped { lblk, len, pblk, state: State::Written });
        }
        let most = if create.unwritten { UNWRITTEN_LEN_MAX } else { LEN_MAX };
        let goal = self.extent_goal(cx, lblk)?;
        let request = Request { goal, want: len.min(most), lblk, purpose };
        let (start, len) = self.new_blocks(cx, handle, Some(prealloc), request)?;
        let new = Extent { block: lblk, len, start, unwritten: create.unwritten };
        if let Err(errno) = self.extent_insert(cx, handle, new) {
            self.fs.alloc.free_blocks(cx, handle, start, len)?;
            if purpose == Purpose::Delayed {
                // Their reservation has ended, and they are lost.
                self.inode.end_placing(cx, &self.fs.alloc, Some(lblk..lblk + len));
            }
            return Err(errno);
        }
        let sectors = u64::from(len) * u64::from(self.fs.sb.geometry.block_size / 512);
        self.inode.with(cx, |core| core.values.blocks += sectors);
        let state = if create.unwritten { State::Unwritten } else { State::Written };
        Ok(Mapped { lblk, len, pblk: start, state })
    }

    /// Unmaps `blocks` and frees what they have, as far as the handle's credits go: on
    /// [`Removed::Restart`] the caller marks the inode dirty, restarts the handle and calls again.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn map_remove(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        blocks: Range<u32>,
    ) -> Result<Removed, Errno> {
        let mut prealloc = self.inode.map_lock.write(cx);
        self.fs.alloc.release_prealloc(&mut prealloc);
        self.fs.alloc.discard_window(&self.inode.window);
        self.forget_last_extent(cx);
        self.track(cx, handle, blocks.clone());
        if self.fs.sb.options.dioread_nolock.is_some() {
            self.inode.arrived.lock(cx).remove(blocks.clone());
        }
        let removed = if self.inode.has_extents(cx) {
            self.extent_remove(cx, handle, blocks)
        } else if self.inode.inline_size(cx).is_some() {
            Ok(Removed::All)
        } else if self.fs.sb.geometry.has_clusters() {
            Err(self.clusters_need_extents(cx))
        } else {
            self.indirect_remove(cx, handle, blocks)
        };
        self.inode.top_up_nodes(cx, &self.fs.alloc);
        removed
    }

    /// Maps exactly these blocks, which belong to the inode: what else was mapped there is freed.
    /// Only for extents, and without a journal. The inode must be marked dirty afterwards.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn map_exactly(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        wanted: &Extent,
    ) -> Result<(), Errno> {
        let end = wanted.block + wanted.len;
        let mut at = wanted.block;
        while at < end {
            let start = wanted.start + u64::from(at - wanted.block);
            let found = self.map_lookup(cx, at, end - at)?;
            let to = at + found.len;
            let guard = self.inode.map_lock.write(cx);
            self.forget_last_extent(cx);
            let mut step = found.len;
            match found.state {
                State::Hole => {
                    let extent = Extent { block: at, len: found.len, start, ..*wanted };
                    self.extent_insert(cx, handle, extent)?;
                    let bytes = u64::from(found.len) << self.fs.sb.geometry.block_bits;
                    self.inode.with(cx, |core| core.values.blocks += bytes / 512);
                }
                _ if found.pblk == start => {
                    let next = self.extent_set_state(cx, handle, at, to, wanted.unwritten)?;
                    step = next.clamp(at + 1, to) - at;
                }
                _ => {
                    drop(guard);
                    self.map_remove(cx, handle, at..to)?;
                    continue;
                }
            }
            at += step;
        }
        Ok(())
    }

    /// Credits for one call of [`Bmap::map_create`].
    pub(crate) fn map_credits(self, cx: &Cx) -> u32 {
        let depth = if self.inode.has_extents(cx) { self.extent_depth(cx) } else { 3 };
        crate::trans::credits::map(depth)
    }

    /// Reads a block of a directory, of a long symbolic link, or of another inode whose content is
    /// metadata. `None` is a hole.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn bread(self, cx: &mut Cx, lblk: u32) -> Result<Option<BufferRef>, Errno> {
        let mapped = self.map_lookup(cx, lblk, 1)?;
        match mapped.state {
            State::Written => Ok(Some(self.fs.sb.read_block(cx, mapped.pblk)?)),
            State::Hole | State::Unwritten => Ok(None),
        }
    }

    /// Puts a block behind the last one of a directory (or symbolic link): its number and its
    /// buffer, zeroed, with access; the caller fills it and says `dirty`. The size grows and the
    /// inode is marked dirty: `credits::APPEND`.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EIO`, `EUCLEAN`.
    pub(crate) fn append_block(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
    ) -> Result<(u32, BufferRef), Errno> {
        if let Some(tracker) = self.fs.fast_tracker() {
            tracker.track_growth(cx, handle, self.inode);
        }
        let block_size = u64::from(self.fs.sb.geometry.block_size);
        let lblk = self.inode.size(cx).div_ceil(block_size);
        let lblk = u32::try_from(lblk).map_err(|_| Errno::EFBIG)?;
        let (mapped, new) = self.map_create(cx, handle, lblk, 1, Create::metadata())?;
        if !new {
            // A crash cannot leave a block behind a directory's end; a bad image can.
            let kind = CorruptKind::DirectorySize {
                size: self.inode.size(cx),
                block_size: self.fs.sb.geometry.block_size,
            };
            return Err(self.fs.sb.corrupt_kind(cx, kind, At::Inode(self.inode.ino)));
        }
        let buffer = self.fs.sb.new_buffer(cx, handle, mapped.pblk)?;
        self.inode.with(cx, |core| core.size = (u64::from(lblk) + 1) * block_size);
        self.fs.mark_dirty(cx, handle, self.inode)?;
        Ok((lblk, buffer))
    }

    /// Takes a single block that belongs to `inode` but to no place in it (attributes): its buffer,
    /// zeroed, with access. `i_blocks` is counted; the inode must be marked dirty:
    /// `credits::GROUP` + 1.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn alloc_meta_block(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
    ) -> Result<BufferRef, Errno> {
        let request = Request { goal: 0, want: 1, lblk: 0, purpose: Purpose::Metadata };
        let (block, _) = self.new_blocks(cx, handle, None, request)?;
        if !self.inode.has_extents(cx) && block > u64::from(u32::MAX) {
            self.fs.alloc.free_blocks(cx, handle, block, 1)?;
            return Err(Errno::ENOSPC);
        }
        let sectors = self.fs.sb.geometry.cluster_sectors();
        self.inode.with(cx, |core| core.values.blocks += sectors);
        self.fs.sb.new_buffer(cx, handle, block)
    }

    /// Frees a block of [`Bmap::alloc_meta_block`]; the inode must be marked dirty.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn free_meta_block(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        block: u64,
    ) -> Result<(), Errno> {
        let sectors = self.fs.sb.geometry.cluster_sectors();
        self.inode.with(cx, |core| core.values.blocks = core.blocks.saturating_sub(sectors));
        handle.forget_block(cx, block)?;
        self.fs.alloc.free_blocks(cx, handle, block, 1)
    }
}
