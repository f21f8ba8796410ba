//! The inodes of a mount: the cache that finds them by number, and their slots on the disk.

use std::sync::{Arc, OnceLock, Weak};

use base::{Errno, Ino};
use cache::{Backing, BufferRef};
use rt::{Cx, Mutex};
use vfs::InodeCache;

use crate::alloc::BlockAllocator;
use crate::dquot::InodeQuota;
use crate::format::features::Incompat;
use crate::format::inode::InodeValues;
use crate::format::{At, CorruptKind, InodeFlags, extent};
use crate::ialloc::InodeAllocator;
use crate::inode::arrivals::Arrivals;
use crate::inode::fast_commit::FastTracker;
use crate::inode::orphan::Orphans;
use crate::inode::{Inode, InodeCore};
use crate::mbcache::SharedBlocks;
use crate::sb::SuperBlock;
use crate::trans::ext4_jbd2::Handle;

/// Blocks of the inode table that are read together (the kernel's `inode_readahead_blks`).
const INODE_READAHEAD_BLOCKS: u64 = 32;

/// The inodes of a mount, and what they are made of.
pub(crate) struct Inodes {
    pub(super) weak: Weak<Inodes>,
    pub sb: Arc<SuperBlock>,
    pub alloc: Arc<BlockAllocator>,
    pub ialloc: InodeAllocator,
    /// Where the pages of files lie.
    pub backing: Arc<Backing>,
    pub cache: InodeCache<Inode>,
    pub orphans: Mutex<Orphans>,
    /// Attribute blocks that may be shared.
    pub xattr_blocks: Mutex<SharedBlocks>,
    /// Files whose content has arrived before their blocks are written ones.
    pub arrivals: Arrivals,
    /// What the next fast commit reports, on mounts that write them.
    fast_tracker: OnceLock<FastTracker>,
}

impl Inodes {
    /// Those of a mount with this allocator. Nothing waits.
    pub(crate) fn from_parts(alloc: Arc<BlockAllocator>, backing: Arc<Backing>) -> Arc<Inodes> {
        Arc::new_cyclic(|weak| Inodes {
            weak: weak.clone(),
            sb: alloc.sb.clone(),
            ialloc: InodeAllocator::new(alloc.clone()),
            backing,
            cache: InodeCache::new(alloc.sb.options.inode_cache),
            orphans: Mutex::named("ext4 orphans", Orphans::default()),
            xattr_blocks: Mutex::named("ext4 attribute blocks", SharedBlocks::default()),
            arrivals: Arrivals::none(),
            fast_tracker: OnceLock::new(),
            alloc,
        })
    }

    /// Begins to track for fast commits, where the journal writes them: not with clusters or data
    /// behind names, which their records do not speak of.
    pub(crate) fn begin_tracking(&self) {
        if self.sb.geometry.has_clusters() || self.sb.geometry.dirdata() {
            return;
        }
        if let Some(bytes) = self.sb.journal().and_then(|journal| journal.fast_commit_bytes()) {
            self.fast_tracker.get_or_init(|| FastTracker::new(bytes, &self.sb.geometry));
        }
    }

    /// What fast commits report; `None` where none are written.
    #[inline]
    pub(crate) fn fast_tracker(&self) -> Option<&FastTracker> {
        self.fast_tracker.get()
    }

    /// The inode that holds an attribute's value: see [`crate::attr::xattr`].
    ///
    /// # Errors
    /// `ESTALE` where it is not in use or holds no value, `EUCLEAN` where it is damaged, `EIO`.
    pub(crate) fn iget_value(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        let inode = match self.cache.find(ino) {
            Some(inode) => inode,
            None => self.cache.read_in(ino, || {
                let inode = self.read_inode(cx, ino)?;
                // Only what is an orphan in memory has no links.
                match inode.with(cx, |core| core.is_value() && core.links > 0) {
                    true => Ok(inode),
                    false => Err(Errno::ESTALE),
                }
            })?,
        };
        let usable = inode.with(cx, |core| core.is_value() && !core.dead);
        if usable { Ok(inode) } else { Err(Errno::ESTALE) }
    }

    /// The inode with this number, from the cache or from the disk; `attach` ties one that was read
    /// to its owners' accounts. May wait for the device.
    ///
    /// # Errors
    /// `ESTALE` where the inode is not in use or the number is out of range, `EUCLEAN` where it is
    /// damaged, `EIO`; those of `attach`.
    #[inline]
    pub(crate) fn find_or_read(
        &self,
        cx: &mut Cx,
        ino: Ino,
        attach: impl Fn(&mut Cx, &Inode) -> Result<(), Errno>,
    ) -> Result<Arc<Inode>, Errno> {
        self.sb.check_alive()?;
        let inode = match self.cache.find(ino) {
            Some(inode) => inode,
            None => self.cache.read_in(ino, || {
                let inode = self.read_inode(cx, ino)?;
                if inode.with(cx, |core| core.links == 0 || core.is_value()) {
                    return Err(Errno::ESTALE);
                }
                attach(cx, &inode)?;
                Ok(inode)
            })?,
        };
        let hidden = inode.with(cx, |core| core.dead || core.is_value());
        if hidden { Err(Errno::ESTALE) } else { Ok(inode) }
    }

    /// As [`Inodes::find_or_read`], also for an inode without names: one of the orphan list.
    ///
    /// # Errors
    /// As [`Inodes::find_or_read`].
    pub(crate) fn find_or_read_orphan(
        &self,
        cx: &mut Cx,
        ino: Ino,
        attach: impl Fn(&mut Cx, &Inode) -> Result<(), Errno>,
    ) -> Result<Arc<Inode>, Errno> {
        match self.cache.find(ino) {
            Some(inode) => Ok(inode),
            None => {
                let inode = self.read_inode(cx, ino)?;
                attach(cx, &inode)?;
                Ok(self.cache.insert(inode))
            }
        }
    }

    fn read_inode(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        let Ok((group, index)) = self.sb.geometry.inode_group(ino) else {
            return Err(Errno::ESTALE);
        };
        if self.ialloc.inode_never_used(cx, group, index) {
            return Err(Errno::ESTALE);
        }
        let (buffer, offset) = self.inode_slot(cx, ino)?;
        let size = self.sb.geometry.inode_size as usize;
        let parsed = buffer
            .with(|data| InodeValues::parse(&data[offset..offset + size], ino, &self.sb.geometry));
        let values = parsed.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
        if values.mode == 0 {
            return Err(Errno::ESTALE);
        }
        let at = At::Inode(ino);
        if values.flags.contains(InodeFlags::INLINE_DATA) {
            self.check_inline(&values).map_err(|kind| self.sb.corrupt_kind(cx, kind, at))?;
        }
        if values.flags.contains(InodeFlags::EXTENTS) {
            let root = extent::Node::parse(&values.block, None, at)
                .and_then(|node| node.check_entries(&self.sb.geometry, at).map(|()| node.max()));
            match root {
                Ok(max) if max <= usize::from(extent::ROOT_MAX) => {}
                Ok(max) => {
                    let kind =
                        CorruptKind::ExtentMax { found: max as u16, limit: extent::ROOT_MAX };
                    return Err(self.sb.corrupt_kind(cx, kind, at));
                }
                Err(corrupt) => return Err(self.sb.corrupt(cx, &corrupt)),
            }
        }
        Ok(Inode::new(ino, self.weak.clone(), InodeCore::new(values)))
    }

    /// Content in an inode needs the feature, a type that has content, and no map.
    #[cold]
    fn check_inline(&self, values: &InodeValues) -> Result<(), CorruptKind> {
        let allowed = self.sb.geometry.features.incompat.contains(Incompat::INLINE_DATA);
        match allowed && values.may_be_inline() {
            true => Ok(()),
            false => Err(CorruptKind::InlineFlags { flags: values.flags.bits() }),
        }
    }

    /// Makes the inode that [`Inodes::new_inode`] has found a number for.
    pub(crate) fn fresh_inode(
        &self,
        ino: Ino,
        values: InodeValues,
        quota: Option<Box<InodeQuota>>,
    ) -> Arc<Inode> {
        let inline = self.sb.geometry.features.incompat.contains(Incompat::INLINE_DATA);
        let may_inline = inline && values.mode & 0xf000 == 0x8000;
        let core = InodeCore { fresh: true, quota, may_inline, ..InodeCore::new(values) };
        self.cache.insert(Inode::new(ino, self.weak.clone(), core))
    }

    /// Where inode `ino` lies: its block of the inode table, up to date, and the offset in it.
    ///
    /// # Errors
    /// `ESTALE` for a number out of range, `EIO`.
    pub(crate) fn inode_slot(&self, cx: &mut Cx, ino: Ino) -> Result<(BufferRef, usize), Errno> {
        self.inode_slot_of(cx, ino, false)
    }

    /// As [`Inodes::inode_slot`]. For a `fresh` inode, whose slot holds nothing yet, a block whose
    /// other inodes are all free is not read but taken as zeroes.
    fn inode_slot_of(
        &self,
        cx: &mut Cx,
        ino: Ino,
        fresh: bool,
    ) -> Result<(BufferRef, usize), Errno> {
        let g = &*self.sb.geometry;
        let (group, index) = g.inode_group(ino).map_err(|_| Errno::ESTALE)?;
        let (block, offset) = g.inode_offset(index);
        let block = self.ialloc.inode_table(cx, group) + block;
        let buffer = self.sb.buffers.get(cx, block);
        if buffer.uptodate() {
            return Ok((buffer, offset));
        }
        if fresh && self.ialloc.inode_block_unused(cx, group, index) {
            buffer.with_mut(|data| data.fill(0));
            buffer.set_uptodate();
            return Ok((buffer, offset));
        }
        self.readahead_inodes(cx, group, block);
        Ok((self.sb.read_block(cx, block)?, offset))
    }

    /// Begins to read the neighbourhood of a block of the inode table, as far as inodes were ever
    /// used: who looks at one inode of a directory looks at the others.
    fn readahead_inodes(&self, cx: &mut Cx, group: u32, block: u64) {
        let table = self.ialloc.inode_table(cx, group);
        let unused = if self.sb.geometry.features.group_csum() {
            self.alloc.groups[group as usize].state.lock(cx).desc.itable_unused
        } else {
            0
        };
        let used = self.sb.geometry.inodes_per_group.saturating_sub(unused);
        let end = table + u64::from(used.div_ceil(self.sb.geometry.inodes_per_block));
        let first = (block & !(INODE_READAHEAD_BLOCKS - 1)).max(table);
        let last = (block | (INODE_READAHEAD_BLOCKS - 1)).min(end.saturating_sub(1));
        if last > first {
            self.sb.buffers.readahead(cx, first, last - first + 1);
        }
    }

    /// Writes the inode's values into its block of the inode table, as part of `handle`: 1 credit.
    /// Its owners are charged for what the slot now says (the handle has credits for that).
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn mark_dirty(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let g = &*self.sb.geometry;
        self.legacy_charge(cx, handle, inode)?;
        let fresh = inode.with(cx, |core| core.fresh);
        let (buffer, offset) = self.inode_slot_of(cx, inode.ino, fresh)?;
        handle.write_access(cx, &buffer)?;
        let size = g.inode_size as usize;
        let tid = handle.tid();
        let delayed = if self.sb.counts_quota() { inode.delayed_bytes(cx, &self.sb) } else { 0 };
        let (large, changes) = {
            let mut core = inode.core.lock(cx);
            if core.mode & 0xf000 != 0x8000 {
                core.values.size = core.size;
            }
            core.times_dirty = false;
            if core.freed {
                // Somebody who looked before the inode was freed: its number may be another's.
                return Ok(());
            }
            core.tid = tid;
            let fresh = std::mem::take(&mut core.fresh);
            if fresh || core.logged_size != core.values.size {
                core.logged_size = core.values.size;
                core.datasync_tid = tid;
            }
            buffer.with_mut(|data| {
                let slot = &mut data[offset..offset + size];
                if fresh {
                    slot.fill(0);
                }
                core.values.emit(slot, inode.ino, g);
            });
            let changes = core.quota_changes(delayed);
            (core.values.size > 0x7fff_ffff && core.mode & 0xf000 == 0x8000, changes)
        };
        handle.dirty(cx, &buffer)?;
        if let Some(tracker) = self.fast_tracker() {
            tracker.track_inode(cx, handle, inode);
        }
        #[cfg(debug_assertions)]
        self.check_size_at_commit(cx, handle, inode);
        for change in &changes {
            change.charge(cx, handle, &self.sb)?;
        }
        if large && !self.sb.has_large_file() {
            self.sb.set_large_file(cx, handle)?;
        }
        Ok(())
    }

    /// Runs `act`, again where it finds no space and some may have come back. No handle is open.
    ///
    /// # Errors
    /// Those of `act`.
    pub(crate) fn retry_alloc<T>(
        &self,
        cx: &mut Cx,
        mut act: impl FnMut(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut retries = 0;
        loop {
            match act(cx) {
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                result => return result,
            }
        }
    }

    /// After `ENOSPC`, and with no handle open: brings back blocks that wait for a commit or for
    /// files that may never use them. True where it is worth trying again; counts the tries.
    pub(crate) fn should_retry_alloc(&self, cx: &mut Cx, retries: &mut u32) -> bool {
        *retries += 1;
        *retries <= 3 && self.sb.check_writable().is_ok() && self.bring_blocks_back(cx)
    }

    /// True where some may have come back.
    fn bring_blocks_back(&self, cx: &mut Cx) -> bool {
        let released = self.release_preallocations();
        let waiting = self.alloc.frees_at_commit();
        match self.sb.journal() {
            Some(journal) if waiting => journal.clone().force_commit(cx).is_ok(),
            _ => released,
        }
    }

    /// Gives back what inodes that nobody is working on keep for themselves. True where there was
    /// anything.
    fn release_preallocations(&self) -> bool {
        let mut any = false;
        for inode in self.cache.all() {
            if let Some(mut prealloc) = inode.map_lock.try_write() {
                any |= prealloc.len > 0 || prealloc.pool.1 > 0;
                self.alloc.release_prealloc(&mut prealloc);
            }
        }
        any
    }
}
