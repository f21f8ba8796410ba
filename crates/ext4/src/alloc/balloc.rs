//! Block bitmaps: loading them, and taking and giving back blocks on the disk.
//!
//! Each group has two views of its blocks. The *bitmap* in the buffer is what the disk will say
//! when the transaction has committed. The *map* in memory is what the allocator may take: a block
//! is busy in the map from the moment it is claimed (before the bitmap says so) until the
//! transaction that freed it has committed (after the bitmap says free). So a block never gets new
//! content while a crash could still bring its old owner back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

use base::{Errno, bitmap};
use cache::BufferRef;
use rt::{Cx, SpinLock};

use crate::alloc::BlockAllocator;
use crate::format::{At, Corrupt, CorruptKind, GroupDesc, GroupFlags};
use crate::trans::ext4_jbd2::Handle;

/// A block group in memory.
#[derive(Debug)]
pub(crate) struct Group {
    pub state: SpinLock<GroupState>,
}

/// What is known of a group, under its spin lock.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    /// The descriptor's values, as in its buffer.
    pub desc: GroupDesc,
    /// Blocks that the allocator may not take; `None` until the bitmap is loaded.
    pub map: Option<Box<[u8]>>,
    pub block_bitmap: Option<BufferRef>,
    pub inode_bitmap: Option<BufferRef>,
    /// Clear bits of `map`.
    pub available: u32,
    /// No run of clear bits in `map` is longer.
    pub run_limit: u32,
    /// No inode before this index is free.
    pub next_inode: u32,
}

/// A run of clusters (blocks without bigalloc) in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub group: u32,
    /// Its first bit in the group's bitmap.
    pub start: u32,
    pub len: u32,
}

impl Run {
    /// Its bits.
    fn bits(self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// Blocks freed by transactions that have not committed.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    by_tid: SpinLock<VecDeque<(jbd2::Tid, Vec<Run>)>>,
}

impl Group {
    pub(crate) fn new(desc: GroupDesc) -> Group {
        let state = GroupState { desc, run_limit: u32::MAX, ..GroupState::default() };
        Group { state: SpinLock::named("group", state) }
    }
}

impl BlockAllocator {
    /// Writes a group's descriptor into its buffer, which the caller has access to.
    pub(crate) fn emit_desc(&self, group: u32, desc: &GroupDesc) {
        let g = &*self.sb.geometry;
        let index = group / g.descs_per_block;
        let offset = ((group % g.descs_per_block) * g.desc_size) as usize;
        let size = g.desc_size as usize;
        self.gdt[index as usize]
            .with_mut(|data| desc.emit(&mut data[offset..offset + size], group, g));
    }

    /// The buffer with a group's descriptor.
    pub(crate) fn desc_buffer(&self, group: u32) -> &BufferRef {
        &self.gdt[(group / self.sb.geometry.descs_per_block) as usize]
    }

    /// The run of `len` clusters that begins with the one that block `start` lies in; `None` where
    /// that is outside the file system.
    pub(crate) fn run_at(&self, start: u64, len: u32) -> Option<Run> {
        let (group, block) = self.sb.geometry.group_of_block(start)?;
        Some(Run { group, start: block >> self.sb.geometry.cluster_bits(), len })
    }

    /// The first block of a run.
    pub(crate) fn first_block(&self, run: Run) -> u64 {
        let before = u64::from(run.start) << self.sb.geometry.cluster_bits();
        self.sb.geometry.group_first_block(run.group) + before
    }

    /// Loads a group's block bitmap. May wait for the device.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(crate) fn load_group(&self, cx: &mut Cx, group: u32) -> Result<(), Errno> {
        let desc = {
            let state = self.groups[group as usize].state.lock(cx);
            if state.map.is_some() {
                return Ok(());
            }
            state.desc
        };
        let uninit = desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let fresh = uninit && self.sb.geometry.features.group_csum();
        let buffer = match fresh {
            true => self.sb.buffers.get(cx, desc.block_bitmap),
            false => self.sb.read_block(cx, desc.block_bitmap)?,
        };
        // Another task may have loaded the bitmap while this one read, and changed it since: only
        // the first one may fill or judge it, with the descriptor as it is now.
        let checked = {
            let mut state = self.groups[group as usize].state.lock(cx);
            if state.map.is_some() {
                return Ok(());
            }
            let checked = self.check_block_bitmap(group, &state.desc, &buffer, fresh);
            checked.map(|map| {
                let valid = self.sb.geometry.clusters_in_group(group) as usize;
                state.available = bitmap::count_zeros(&map, valid) as u32;
                state.run_limit = state.available;
                // A damaged bitmap has other blocks than its descriptor counts.
                let more = i64::from(state.available) - i64::from(state.desc.free_blocks);
                self.counters.at_hand.fetch_add(more, Ordering::Relaxed);
                state.map = Some(map);
                state.block_bitmap = Some(buffer);
            })
        };
        checked.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))
    }

    /// A copy of a group's bitmap in which the group's own metadata and everything behind its end
    /// is busy, whatever a damaged bitmap says. A `fresh` one is not on the disk yet: it is made.
    fn check_block_bitmap(
        &self,
        group: u32,
        desc: &GroupDesc,
        buffer: &BufferRef,
        fresh: bool,
    ) -> Result<Box<[u8]>, Corrupt> {
        let mut map = vec![0u8; self.sb.geometry.block_size as usize].into_boxed_slice();
        self.sb.geometry.init_block_bitmap(group, desc, &mut map);
        if fresh {
            buffer.with_mut(|data| data.copy_from_slice(&map));
            buffer.set_uptodate();
        }
        if !self.sb.geometry.blocks_in_group(group).is_multiple_of(self.sb.geometry.cluster_ratio) {
            // The last cluster reaches beyond the end of the file system: nobody gets it.
            bitmap::set(&mut map, self.sb.geometry.clusters_in_group(group) as usize - 1);
        }
        if fresh {
            return Ok(map);
        }
        buffer.with(|data| {
            for (byte, on_disk) in map.iter_mut().zip(data) {
                *byte |= on_disk;
            }
            desc.check_block_bitmap(data, group, &self.sb.geometry)
        })?;
        Ok(map)
    }

    /// Marks blocks that were claimed in the map as in use on the disk: `credits::GROUP`.
    ///
    /// # Errors
    /// `EUCLEAN` where the bitmap or the count disagree, `EIO`.
    pub(crate) fn use_blocks(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        run: Run,
    ) -> Result<(), Errno> {
        let Run { group, len, .. } = run;
        let bitmap_buffer = self.bitmap_access(cx, handle, group)?;
        let ok = {
            let mut state = self.groups[group as usize].state.lock(cx);
            let ok = state.desc.free_blocks >= len;
            if ok {
                let csum = bitmap_buffer.with_mut(|data| {
                    bitmap::set_range(data, run.bits().start, run.bits().end);
                    self.block_csum(data)
                });
                state.desc.free_blocks -= len;
                state.desc.flags.remove(GroupFlags::BLOCK_UNINIT);
                state.desc.block_bitmap_csum = csum;
                self.emit_desc(group, &state.desc);
            }
            ok
        };
        if !ok {
            let kind = CorruptKind::GroupFreeBlocks { found: len, limit: 0 };
            return Err(self.sb.corrupt_kind(cx, kind, At::Group(group)));
        }
        self.counters.free_blocks.fetch_sub(i64::from(len), Ordering::Relaxed);
        self.bitmap_dirty(cx, handle, group, &bitmap_buffer)
    }

    /// Marks those of these blocks that are free as in use, and answers which they were. They lie
    /// in the file system. `credits::GROUP` for every group.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn take_free(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        blocks: Range<u64>,
    ) -> Result<Vec<Range<u64>>, Errno> {
        let mut taken = Vec::new();
        let mut start = blocks.start;
        while start < blocks.end {
            let place = self.sb.geometry.group_of_block(start);
            let (group, bit) = place.ok_or(Errno::EFSCORRUPTED)?;
            let in_group = u64::from(self.sb.geometry.blocks_in_group(group) - bit);
            let end = bit + in_group.min(blocks.end - start) as u32;
            self.load_group(cx, group)?;
            let mut runs = Vec::new();
            {
                let mut state = self.groups[group as usize].state.lock(cx);
                let map = state.map.as_mut().expect("loaded above");
                let mut at = bit as usize;
                while let Some(from) = bitmap::find_next_zero(map, at, end as usize) {
                    let to = bitmap::find_next_set(map, from, end as usize).unwrap_or(end as usize);
                    bitmap::set_range(map, from, to);
                    runs.push(Run { group, start: from as u32, len: (to - from) as u32 });
                    at = to;
                }
                state.available -= runs.iter().map(|run| run.len).sum::<u32>();
            }
            for run in runs {
                self.counters.at_hand.fetch_sub(i64::from(run.len), Ordering::Relaxed);
                self.use_blocks(cx, handle, run)?;
                let first = self.sb.geometry.group_first_block(group) + u64::from(run.start);
                taken.push(first..first + u64::from(run.len));
            }
            start += u64::from(end - bit);
        }
        Ok(taken)
    }

    /// The bitmap of a group that is loaded, with access to it and to its descriptor.
    pub(super) fn bitmap_access(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        group: u32,
    ) -> Result<BufferRef, Errno> {
        let bitmap = self.groups[group as usize].state.lock(cx).block_bitmap.clone();
        let bitmap = bitmap.expect("the caller has loaded the group");
        self.sb.legacy_lookup(cx, bitmap.block())?;
        handle.write_access(cx, &bitmap)?;
        handle.write_access(cx, self.desc_buffer(group))?;
        Ok(bitmap)
    }

    /// Both were changed.
    pub(super) fn bitmap_dirty(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        group: u32,
        bitmap: &BufferRef,
    ) -> Result<(), Errno> {
        handle.dirty(cx, bitmap)?;
        handle.dirty(cx, self.desc_buffer(group))
    }

    pub(super) fn block_csum(&self, data: &[u8]) -> u32 {
        if self.sb.geometry.checksums.metadata {
            self.sb.geometry.block_bitmap_csum(data)
        } else {
            0
        }
    }

    /// Gives blocks back, as part of `handle`: `credits::GROUP` for every group that they lie in.
    /// The allocator may take them when the transaction has committed. With clusters, every one
    /// that a block of these lies in goes: nobody has another block in it.
    ///
    /// The caller has forgotten the buffers of metadata blocks.
    ///
    /// # Errors
    /// `EUCLEAN` where one of them is outside the file system or already free, `EIO`.
    pub(crate) fn free_blocks(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        start: u64,
        len: u32,
    ) -> Result<(), Errno> {
        if let Handle::Direct(_) = handle
            && let Some(held) = &mut *self.held_back.lock(cx)
        {
            held.insert(start..start + u64::from(len));
            return Ok(());
        }
        let ratio = self.sb.geometry.cluster_ratio;
        let before = (start % u64::from(ratio)) as u32;
        let (mut start, mut left) = (start - u64::from(before), (len + before).div_ceil(ratio));
        while left > 0 {
            let Some(rest) = self.run_at(start, left) else {
                let (first, end) =
                    (u64::from(self.sb.geometry.first_data_block), self.sb.geometry.blocks_count);
                let kind = CorruptKind::MappedBlock { logical: 0, block: start, first, end };
                return Err(self.sb.corrupt_kind(cx, kind, At::Device(start)));
            };
            let count = left.min(self.sb.geometry.clusters_in_group(rest.group) - rest.start);
            if count == 0 {
                return Err(Errno::EFSCORRUPTED);
            }
            self.free_in_group(cx, handle, Run { len: count, ..rest })?;
            start += u64::from(count) * u64::from(ratio);
            left -= count;
        }
        Ok(())
    }

    fn free_in_group(&self, cx: &mut Cx, handle: &mut Handle, run: Run) -> Result<(), Errno> {
        let Run { group, len, .. } = run;
        self.load_group(cx, group)?;
        let bitmap_buffer = self.bitmap_access(cx, handle, group)?;
        let Range { start: from, end: to } = run.bits();
        let limit = self.sb.geometry.clusters_in_group(group);
        let ok = {
            let mut state = self.groups[group as usize].state.lock(cx);
            let csum = bitmap_buffer.with_mut(|data| {
                // A damaged tree may name a block twice, or one that nobody owns.
                if bitmap::run_of_ones(data, from, to) != len as usize {
                    return None;
                }
                bitmap::clear_range(data, from, to);
                Some(self.block_csum(data))
            });
            let ok = csum.filter(|_| state.desc.free_blocks + len <= limit);
            if let Some(csum) = ok {
                state.desc.free_blocks += len;
                state.desc.block_bitmap_csum = csum;
                self.emit_desc(group, &state.desc);
            }
            ok.is_some()
        };
        if !ok {
            let kind = CorruptKind::GroupFreeBlocks { found: len, limit };
            return Err(self.sb.corrupt_kind(cx, kind, At::Group(group)));
        }
        self.counters.free_blocks.fetch_add(i64::from(len), Ordering::Relaxed);
        self.bitmap_dirty(cx, handle, group, &bitmap_buffer)?;
        match handle {
            Handle::Direct(_) => self.make_available(run),
            Handle::Journal(journal, _) => self.free_after_commit(cx, journal, run),
        }
        Ok(())
    }

    /// Lets the allocator take blocks again.
    pub(crate) fn make_available(&self, run: Run) {
        let Run { group, len, .. } = run;
        let mut state = self.groups[group as usize].state.lock_irq();
        if let Some(map) = &mut state.map {
            bitmap::clear_range(map, run.bits().start, run.bits().end);
            state.available += len;
            state.run_limit = state.available;
        }
        drop(state);
        self.counters.at_hand.fetch_add(i64::from(len), Ordering::Relaxed);
        self.counters.returned.fetch_add(1, Ordering::Relaxed);
    }

    fn free_after_commit(&self, cx: &mut Cx, handle: &mut jbd2::Handle, run: Run) {
        let tid = handle.tid();
        let mut by_tid = self.freed.by_tid.lock_irq();
        if let Some((last, runs)) = by_tid.back_mut()
            && *last == tid
        {
            match runs.last_mut() {
                Some(last) if last.group == run.group && last.start + last.len == run.start => {
                    last.len += run.len;
                }
                Some(last) if last.group == run.group && run.start + run.len == last.start => {
                    *last = Run { len: last.len + run.len, ..run };
                }
                _ => runs.push(run),
            }
            return;
        }
        by_tid.push_back((tid, vec![run]));
        drop(by_tid);
        let weak = self.weak.clone();
        let release = move |_cx: &mut Cx| {
            if let Some(alloc) = weak.upgrade() {
                alloc.release_freed(tid);
            }
        };
        handle.on_commit(cx, Box::new(release));
    }

    /// Whether blocks wait for a commit.
    pub(crate) fn frees_at_commit(&self) -> bool {
        !self.freed.by_tid.lock_irq().is_empty()
    }

    /// The transaction `tid` has committed: what it freed may be used.
    fn release_freed(&self, tid: jbd2::Tid) {
        let runs = {
            let mut by_tid = self.freed.by_tid.lock_irq();
            let place = by_tid.iter().position(|(freed, _)| *freed == tid);
            place.and_then(|place| by_tid.remove(place))
        };
        for run in runs.map(|(_, runs)| runs).unwrap_or_default() {
            self.make_available(run);
        }
    }
}
