//! Inode bitmaps: finding a number for a new inode, and giving one back.
//!
//! A directory of the root goes where there is room, away from the others; every other directory
//! near its parent unless the neighbourhood is crowded; every other inode into its directory's
//! group, or as near as possible. (Source: the Orlov allocator as described in the kernel's ext4
//! documentation.)

pub(crate) mod orphan;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Errno, Ino, Timespec, bitmap};
use cache::BufferRef;
use rt::Cx;

use crate::Ext4;
use crate::format::features::Incompat;
use crate::format::inode::{EXTRA_SIZE, InodeValues};
use crate::format::super_block::ROOT_INO;
use crate::format::{At, CorruptKind, GroupFlags, InodeFlags, extent};
use crate::inode::Inode;
use crate::quota::InodeQuota;
use crate::trans::ext4_jbd2::Handle;

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode {
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Access and modification time; now where `None`.
    pub times: Option<(Timespec, Timespec)>,
}

/// Flags that a new inode takes over from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT);

impl Ext4 {
    /// Takes a free inode for something in `dir`: `credits::NEW_INODE`. It is in the cache but not
    /// yet on the disk: the caller completes its values and calls [`Ext4::mark_inode_dirty`] once.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    pub(crate) fn new_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        dir: &Inode,
        new: &NewInode,
        quota: Option<Box<InodeQuota>>,
    ) -> Result<Arc<Inode>, Errno> {
        let is_dir = new.mode & 0xf000 == 0x4000;
        let parent = self.sb.geometry.group_of_inode(dir.ino);
        let first = if is_dir { self.dir_group(cx, dir, parent) } else { parent };
        let groups = self.sb.geometry.groups_count;
        for step in 0..groups {
            let group = (first + step) % groups;
            if self.alloc.groups[group as usize].state.lock(cx).desc.free_inodes == 0 {
                continue;
            }
            if let Some(index) = self.take_inode(cx, handle, group, is_dir)? {
                let ino = u64::from(group) * u64::from(self.sb.geometry.inodes_per_group)
                    + u64::from(index)
                    + 1;
                let values = self.new_values(cx, dir, new);
                return Ok(self.fresh_inode(Ino(ino), values, quota));
            }
        }
        Err(Errno::ENOSPC)
    }

    /// The values of a new inode.
    fn new_values(&self, cx: &mut Cx, dir: &Inode, new: &NewInode) -> InodeValues {
        let now = self.sb.now(cx);
        let stamp = |(atime, mtime)| (self.sb.stamp(atime), self.sb.stamp(mtime));
        let (atime, mtime) = new.times.map_or((now, now), stamp);
        let kind = new.mode & 0xf000;
        let mut flags = dir.with(cx, |core| core.flags) & INHERITED;
        if kind != 0x4000 {
            flags.remove(InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT);
        }
        let mut block = [0u8; 60];
        let extents = self.sb.geometry.features.incompat.contains(Incompat::EXTENTS);
        if extents && matches!(kind, 0x4000 | 0x8000) {
            flags |= InodeFlags::EXTENTS;
            extent::init_node(&mut block, extent::ROOT_MAX, 0);
        }
        let wide = self.sb.geometry.inode_size > 128;
        InodeValues {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            links: 1,
            flags,
            atime,
            mtime,
            ctime: now,
            crtime: wide.then_some(now),
            generation: cx.random() as u32,
            extra_isize: self.new_extra_isize(),
            block,
            projid: self.project_for_new(cx, dir),
            ..InodeValues::default()
        }
    }

    /// Bytes beyond 128 that the fields of a new inode take.
    pub(crate) fn new_extra_isize(&self) -> u16 {
        let room = (self.sb.geometry.inode_size - 128) as u16;
        self.sb.geometry.want_extra_isize.max(EXTRA_SIZE).min(room)
    }

    /// The project of what is made in `dir`.
    pub(crate) fn project_for_new(&self, cx: &Cx, dir: &Inode) -> u32 {
        dir.with(
            cx,
            |core| {
                if core.flags.contains(InodeFlags::PROJINHERIT) { core.projid } else { 0 }
            },
        )
    }

    /// The group in which the search for a directory's inode begins.
    fn dir_group(&self, cx: &Cx, dir: &Inode, parent: u32) -> u32 {
        let groups = self.sb.geometry.groups_count;
        let count = |value: &std::sync::atomic::AtomicI64| value.load(Ordering::Relaxed).max(0);
        let free_inodes = count(&self.alloc.counters.free_inodes) as u64 / u64::from(groups);
        let free_blocks = count(&self.alloc.counters.free_blocks) as u64 / u64::from(groups);
        let dirs = count(&self.alloc.counters.dirs) as u64 / u64::from(groups);
        let top = dir.ino.0 == u64::from(ROOT_INO)
            || dir.with(cx, |core| core.flags.contains(InodeFlags::TOPDIR));
        let per_group = u64::from(self.sb.geometry.inodes_per_group);
        let per_group_blocks = u64::from(self.sb.geometry.blocks_per_group);
        let (first, min_inodes, min_blocks, max_dirs) = if top {
            let turn = self.next_dir_group.fetch_add(1, Ordering::Relaxed);
            let flex = self.sb.geometry.flex_size;
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
        let buffer = self.inode_bitmap(cx, group)?;
        if self.alloc.block_uninit(cx, group) {
            // A group with inodes has a block bitmap on the disk.
            self.alloc.load_group(cx, group)?;
            self.alloc.use_blocks(cx, handle, group, 0, 0)?;
        }
        let desc_buffer = self.alloc.desc_buffer(group);
        handle.write_access(cx, &buffer)?;
        handle.write_access(cx, desc_buffer)?;
        let per_group = self.sb.geometry.inodes_per_group;
        let first = if group == 0 { self.sb.geometry.first_ino - 1 } else { 0 };
        let taken = {
            let mut state = self.alloc.groups[group as usize].state.lock(cx);
            let from = state.next_inode.max(first) as usize;
            let found = buffer.with_mut(|data| {
                let index = bitmap::find_next_zero(data, from, per_group as usize)?;
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
                state.next_inode = index + 1;
            } else {
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

    fn inode_csum(&self, data: &[u8]) -> u32 {
        if self.sb.geometry.checksums.metadata {
            self.sb.geometry.inode_bitmap_csum(data)
        } else {
            0
        }
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
        let fresh = uninit && self.sb.geometry.features.group_csum();
        let buffer = match fresh {
            true => self.sb.buffers.get(cx, desc.inode_bitmap),
            false => self.sb.read_block(cx, desc.inode_bitmap)?,
        };
        // Another task may have loaded the bitmap while this one read, and changed it since: only
        // the first one may fill or judge it, with the descriptor as it is now.
        let checked = {
            let mut state = self.alloc.groups[group as usize].state.lock(cx);
            if let Some(buffer) = &state.inode_bitmap {
                return Ok(buffer.clone());
            }
            let checked = if fresh {
                buffer.with_mut(|data| self.sb.geometry.init_inode_bitmap(data));
                buffer.set_uptodate();
                Ok(())
            } else {
                buffer.with(|data| state.desc.check_inode_bitmap(data, group, &self.sb.geometry))
            };
            if checked.is_ok() {
                state.inode_bitmap = Some(buffer.clone());
            }
            checked
        };
        checked.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
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
        let place = self.sb.geometry.inode_group(ino);
        let (group, index) = place.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
        let buffer = self.inode_bitmap(cx, group)?;
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
            let limit = self.sb.geometry.inodes_per_group;
            let kind = CorruptKind::GroupFreeInodes { found: index, limit };
            return Err(self.sb.corrupt_kind(cx, kind, At::Group(group)));
        }
        self.alloc.counters.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.alloc.counters.dirs.fetch_sub(i64::from(is_dir), Ordering::Relaxed);
        handle.dirty(cx, &buffer)?;
        handle.dirty(cx, desc_buffer)
    }

    /// Undoes [`Ext4::new_inode`] in the same handle, for an inode without blocks.
    ///
    /// # Errors
    /// As [`Ext4::free_inode`].
    pub(crate) fn drop_new_inode(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        // A small number here would look like the next inode of the orphan list.
        let now = (self.sb.now(cx).sec as u32).max(1);
        let is_dir = inode.with(cx, |core| {
            core.dead = true;
            core.gone = true;
            core.links = 0;
            core.values.dtime = now;
            core.mode & 0xf000 == 0x4000
        });
        self.mark_inode_dirty(cx, handle, inode)?;
        inode.with(cx, |core| core.freed = true);
        self.inodes.remove(inode.ino);
        self.free_inode(cx, handle, inode.ino, is_dir)
    }

    /// First block of a group's inode table.
    pub(crate) fn inode_table(&self, cx: &Cx, group: u32) -> u64 {
        self.alloc.groups[group as usize].state.lock(cx).desc.inode_table
    }

    /// True for an inode whose slot was never written since mkfs.
    pub(crate) fn inode_never_used(&self, cx: &Cx, group: u32, index: u32) -> bool {
        if !self.sb.geometry.features.group_csum() {
            return false;
        }
        let desc = self.alloc.groups[group as usize].state.lock(cx).desc;
        desc.flags.contains(GroupFlags::INODE_UNINIT)
            || index >= self.sb.geometry.inodes_per_group.saturating_sub(desc.itable_unused)
    }

    /// True where no inode of the block of the table with `index` is in use, `index` itself left
    /// out, as far as the loaded bitmap shows.
    pub(crate) fn inode_block_unused(&self, cx: &Cx, group: u32, index: u32) -> bool {
        let state = self.alloc.groups[group as usize].state.lock(cx);
        let Some(buffer) = &state.inode_bitmap else { return false };
        let per_block = self.sb.geometry.inodes_per_block;
        let first = index - index % per_block;
        buffer.with(|data| {
            (first..first + per_block)
                .all(|other| other == index || !bitmap::test(data, other as usize))
        })
    }
}
