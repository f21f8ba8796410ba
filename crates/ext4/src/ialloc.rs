//! Inode bitmaps: finding a number for a new inode, and giving one back.
//!
//! A directory of the root goes where there is room, away from the others; every other directory
//! near its parent unless the neighbourhood is crowded; every other inode into its directory's
//! group, or as near as possible. (Source: the Orlov allocator as described in the kernel's ext4
//! documentation.)

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Errno, Ino, bitmap};
use cache::BufferRef;
use rt::Cx;

use crate::alloc::BlockAllocator;
use crate::alloc::balloc::Run;
use crate::format::{At, CorruptKind, GroupFlags};
use crate::trans::ext4_jbd2::Handle;

/// The inode allocator of a mount.
pub(crate) struct InodeAllocator {
    alloc: Arc<BlockAllocator>,
    /// Rotates the groups in which directories of the root are put.
    next_dir_group: AtomicU32,
}

impl InodeAllocator {
    /// That of the groups of `alloc`.
    pub(crate) fn new(alloc: Arc<BlockAllocator>) -> InodeAllocator {
        InodeAllocator { alloc, next_dir_group: AtomicU32::new(0) }
    }

    /// Takes the number of a free inode for something in directory `dir`, which stands at the
    /// `top` of a hierarchy or not: `credits::NEW_INODE`.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn take_number(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        dir: Ino,
        top: bool,
        is_dir: bool,
    ) -> Result<Ino, Errno> {
        let geometry = &*self.alloc.sb.geometry;
        let parent = geometry.group_of_inode(dir);
        let first = if is_dir { self.dir_group(cx, top, parent) } else { parent };
        let groups = geometry.groups_count;
        for step in 0..groups {
            let group = (first + step) % groups;
            if self.alloc.groups[group as usize].state.lock(cx).desc.free_inodes == 0 {
                continue;
            }
            if let Some(index) = self.take_inode(cx, handle, group, is_dir)? {
                let before = u64::from(group) * u64::from(geometry.inodes_per_group);
                return Ok(Ino(before + u64::from(index) + 1));
            }
        }
        Err(Errno::ENOSPC)
    }

    /// The group in which the search for a directory's inode begins.
    fn dir_group(&self, cx: &Cx, top: bool, parent: u32) -> u32 {
        let g = &*self.alloc.sb.geometry;
        let groups = g.groups_count;
        let count = |value: &std::sync::atomic::AtomicI64| value.load(Ordering::Relaxed).max(0);
        let free_inodes = count(&self.alloc.counters.free_inodes) as u64 / u64::from(groups);
        let free_blocks = count(&self.alloc.counters.free_blocks) as u64 / u64::from(groups);
        let dirs = count(&self.alloc.counters.dirs) as u64 / u64::from(groups);
        let per_group = u64::from(g.inodes_per_group);
        let per_group_blocks = u64::from(g.clusters_per_group);
        let (first, min_inodes, min_blocks, max_dirs) = if top {
            let turn = self.next_dir_group.fetch_add(1, Ordering::Relaxed);
            let flex = g.flex_size;
            ((turn * flex) % groups, free_inodes.max(1), free_blocks, u64::MAX)
        } else {
            let min_inodes = free_inodes.saturating_sub(per_group / 4).max(1);
            let min_blocks = free_blocks.saturating_sub(per_group_blocks / 4);
            (parent, min_inodes, min_blocks, dirs + per_group / 16)
        };
        let good = (0..groups.min(512)).map(|step| (first + step) % groups).find(|&group| {
            let desc = self.alloc.groups[group as usize].state.lock(cx).desc;
            u64::from(desc.free_inodes) >= min_inodes
                && u64::from(desc.free_blocks) >= min_blocks
                && u64::from(desc.used_dirs) <= max_dirs
        });
        good.unwrap_or(parent)
    }

    /// Takes the first free inode of a group: its index. None where another task was faster.
    fn take_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        group: u32,
        is_dir: bool,
    ) -> Result<Option<u32>, Errno> {
        let g = &*self.alloc.sb.geometry;
        let first = if group == 0 { g.first_ino - 1 } else { 0 };
        let end = g.inodes_per_group;
        self.take_in(cx, handle, group, is_dir, first..end)
    }

    /// Takes the first free inode among those of a group; of more than one, none is searched twice.
    fn take_in(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        group: u32,
        is_dir: bool,
        among: Range<u32>,
    ) -> Result<Option<u32>, Errno> {
        let buffer = self.inode_bitmap(cx, group)?;
        self.alloc.sb.legacy_lookup(cx, buffer.block())?;
        if self.alloc.block_uninit(cx, group) {
            // A group with inodes has a block bitmap on the disk.
            self.alloc.load_group(cx, group)?;
            self.alloc.use_blocks(cx, handle, Run { group, start: 0, len: 0 })?;
        }
        let desc_buffer = self.alloc.desc_buffer(group);
        handle.write_access(cx, &buffer)?;
        handle.write_access(cx, desc_buffer)?;
        let per_group = self.alloc.sb.geometry.inodes_per_group;
        let search = among.len() > 1;
        let taken = {
            let mut state = self.alloc.groups[group as usize].state.lock(cx);
            let from = if search { state.next_inode.max(among.start) } else { among.start };
            let found = buffer.with_mut(|data| {
                let index = bitmap::find_next_zero(data, from as usize, among.end as usize)?;
                bitmap::set(data, index);
                Some((index as u32, self.inode_csum(data)))
            });
            if let Some((index, csum)) = found {
                let desc = &mut state.desc;
                desc.free_inodes = desc.free_inodes.saturating_sub(1);
                desc.used_dirs += u32::from(is_dir);
                desc.itable_unused = desc.itable_unused.min(per_group - index - 1);
                desc.flags.remove(GroupFlags::INODE_UNINIT);
                desc.inode_bitmap_csum = csum;
                self.alloc.emit_desc(group, &state.desc);
                state.next_inode = if search { index + 1 } else { state.next_inode };
            } else if search {
                state.next_inode = per_group;
            }
            found.map(|(index, _)| index)
        };
        if taken.is_some() {
            self.alloc.counters.free_inodes.fetch_sub(1, Ordering::Relaxed);
            self.alloc.counters.dirs.fetch_add(i64::from(is_dir), Ordering::Relaxed);
        }
        handle.dirty(cx, &buffer)?;
        handle.dirty(cx, desc_buffer)?;
        Ok(taken)
    }

    /// Whether the bitmap says that this inode is in use. May wait for the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn inode_in_use(&self, cx: &mut Cx, ino: Ino) -> Result<bool, Errno> {
        let place = self.alloc.sb.geometry.inode_group(ino);
        let (group, index) = place.map_err(|corrupt| self.alloc.sb.corrupt(cx, &corrupt))?;
        let buffer = self.inode_bitmap(cx, group)?;
        Ok(buffer.with(|data| bitmap::test(data, index as usize)))
    }

    /// Takes this free inode: as [`InodeAllocator::take_number`], where a log says which one.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn take_this(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        ino: Ino,
        is_dir: bool,
    ) -> Result<(), Errno> {
        let place = self.alloc.sb.geometry.inode_group(ino);
        let (group, index) = place.map_err(|corrupt| self.alloc.sb.corrupt(cx, &corrupt))?;
        let end = index + 1;
        match self.take_in(cx, handle, group, is_dir, index..end)? {
            Some(_) => Ok(()),
            None => Err(Errno::EFSCORRUPTED),
        }
    }

    #[inline]
    fn inode_csum(&self, data: &[u8]) -> u32 {
        let g = &*self.alloc.sb.geometry;
        if g.checksums.metadata { g.inode_bitmap_csum(data) } else { 0 }
    }

    /// A group's inode bitmap, loaded and checked. May wait for the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    fn inode_bitmap(&self, cx: &mut Cx, group: u32) -> Result<BufferRef, Errno> {
        let desc = {
            let state = self.alloc.groups[group as usize].state.lock(cx);
            if let Some(buffer) = &state.inode_bitmap {
                return Ok(buffer.clone());
            }
            state.desc
        };
        let uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
        let fresh = uninit && self.alloc.sb.geometry.features.group_csum();
        let buffer = match fresh {
            true => self.alloc.sb.buffers.get(cx, desc.inode_bitmap),
            false => self.alloc.sb.read_block(cx, desc.inode_bitmap)?,
        };
        // Another task may have loaded the bitmap while this one read, and changed it since: only
        // the first one may fill or judge it, with the descriptor as it is now.
        let checked = {
            let mut state = self.alloc.groups[group as usize].state.lock(cx);
            if let Some(buffer) = &state.inode_bitmap {
                return Ok(buffer.clone());
            }
            let checked = if fresh {
                buffer.with_mut(|data| self.alloc.sb.geometry.init_inode_bitmap(data));
                buffer.set_uptodate();
                Ok(())
            } else {
                buffer.with(|data| {
                    state.desc.check_inode_bitmap(data, group, &self.alloc.sb.geometry)
                })
            };
            if checked.is_ok() {
                state.inode_bitmap = Some(buffer.clone());
            }
            checked
        };
        checked.map_err(|corrupt| self.alloc.sb.corrupt(cx, &corrupt))?;
        Ok(buffer)
    }

    /// Gives an inode's number back: its bitmap and descriptor. The caller has written its slot
    /// with a time of deletion and taken it out of the cache.
    ///
    /// # Errors
    /// `EUCLEAN` where it was free already, `EIO`.
    pub(crate) fn free_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        ino: Ino,
        is_dir: bool,
    ) -> Result<(), Errno> {
        let place = self.alloc.sb.geometry.inode_group(ino);
        let (group, index) = place.map_err(|corrupt| self.alloc.sb.corrupt(cx, &corrupt))?;
        let buffer = self.inode_bitmap(cx, group)?;
        self.alloc.sb.legacy_lookup(cx, buffer.block())?;
        let desc_buffer = self.alloc.desc_buffer(group);
        handle.write_access(cx, &buffer)?;
        handle.write_access(cx, desc_buffer)?;
        let ok = {
            let mut state = self.alloc.groups[group as usize].state.lock(cx);
            let csum = buffer.with_mut(|data| {
                bitmap::clear(data, index as usize).then(|| self.inode_csum(data))
            });
            if let Some(csum) = csum {
                state.desc.free_inodes += 1;
                state.desc.used_dirs = state.desc.used_dirs.saturating_sub(u32::from(is_dir));
                state.desc.inode_bitmap_csum = csum;
                self.alloc.emit_desc(group, &state.desc);
                state.next_inode = state.next_inode.min(index);
            }
            csum.is_some()
        };
        if !ok {
            let limit = self.alloc.sb.geometry.inodes_per_group;
            let kind = CorruptKind::GroupFreeInodes { found: index, limit };
            return Err(self.alloc.sb.corrupt_kind(cx, kind, At::Group(group)));
        }
        self.alloc.counters.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.alloc.counters.dirs.fetch_sub(i64::from(is_dir), Ordering::Relaxed);
        handle.dirty(cx, &buffer)?;
        handle.dirty(cx, desc_buffer)
    }

    /// First block of a group's inode table.
    pub(crate) fn inode_table(&self, cx: &Cx, group: u32) -> u64 {
        self.alloc.groups[group as usize].state.lock(cx).desc.inode_table
    }

    /// True for an inode whose slot was never written since mkfs.
    pub(crate) fn inode_never_used(&self, cx: &Cx, group: u32, index: u32) -> bool {
        if !self.alloc.sb.geometry.features.group_csum() {
            return false;
        }
        let desc = self.alloc.groups[group as usize].state.lock(cx).desc;
        desc.flags.contains(GroupFlags::INODE_UNINIT)
            || index >= self.alloc.sb.geometry.inodes_per_group.saturating_sub(desc.itable_unused)
    }

    /// True where no inode of the block of the table with `index` is in use, `index` itself left
    /// out, as far as the loaded bitmap shows.
    pub(crate) fn inode_block_unused(&self, cx: &Cx, group: u32, index: u32) -> bool {
        let state = self.alloc.groups[group as usize].state.lock(cx);
        let Some(buffer) = &state.inode_bitmap else { return false };
        let per_block = self.alloc.sb.geometry.inodes_per_block;
        let first = index - index % per_block;
        buffer.with(|data| {
            (first..first + per_block)
                .all(|other| other == index || !bitmap::test(data, other as usize))
        })
    }
}
