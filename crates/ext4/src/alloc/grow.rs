//! More groups, and a last group that has become longer.

use std::sync::atomic::Ordering;

use base::{Errno, bitmap};
use cache::BufferRef;
use rt::Cx;

use crate::alloc::BlockAllocator;
use crate::alloc::balloc::Group;
use crate::format::{Geometry, GroupFlags, RawSuper};
use crate::trans::ext4_jbd2::Handle;

impl BlockAllocator {
    /// The group that was the last one, and is loaded, gets the clusters that it has in `new`; how
    /// many. `credits::GROUP`.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn extend_last(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        old: &Geometry,
        new: &Geometry,
    ) -> Result<u64, Errno> {
        let group = old.groups_count - 1;
        let (from, to) = (old.clusters_in_group(group), new.clusters_in_group(group));
        if from == to {
            return Ok(0);
        }
        let buffer = self.bitmap_access(cx, handle, group)?;
        {
            let mut state = self.groups[group as usize].state.lock(cx);
            let bits = from as usize..to as usize;
            let csum = buffer.with_mut(|data| {
                bitmap::clear_range(data, bits.start, bits.end);
                self.block_csum(data)
            });
            state.desc.free_blocks += to - from;
            state.desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            state.desc.block_bitmap_csum = csum;
            if let Some(map) = &mut state.map {
                bitmap::clear_range(map, bits.start, bits.end);
            }
            state.available += to - from;
            state.run_limit = state.available;
            self.emit_desc(group, &state.desc);
        }
        self.bitmap_dirty(cx, handle, group, &buffer)?;
        Ok((to - from).into())
    }

    /// The cluster that the old end cut, which nobody got, can be had from now on. Its group is
    /// loaded.
    pub(crate) fn complete_cluster(&self, cx: &mut Cx, old: &Geometry) {
        if old.blocks_count.is_multiple_of(old.cluster_ratio.into()) {
            return;
        }
        let group = old.groups_count - 1;
        let bit = old.clusters_in_group(group) as usize - 1;
        let mut state = self.groups[group as usize].state.lock(cx);
        let taken = |buffer: &BufferRef| buffer.with(|data| bitmap::test(data, bit));
        if state.block_bitmap.as_ref().is_none_or(taken) {
            return;
        }
        if let Some(map) = &mut state.map {
            bitmap::clear(map, bit);
        }
        state.available += 1;
        state.run_limit = state.available;
        self.counters.at_hand.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes new groups and their blocks of descriptors into the lists. They are used once the
    /// geometry has them.
    pub(crate) fn add_groups(
        &self,
        groups: impl Iterator<Item = Group>,
        tables: Vec<BufferRef>,
        new: &Geometry,
    ) {
        let before = self.sb.geometry.groups_count.div_ceil(self.sb.geometry.flex_size);
        let flexes = new.groups_count.div_ceil(new.flex_size);
        self.stream_goals.push((before..flexes).map(|_| Default::default()).collect());
        self.gdt.push(tables.into());
        self.groups.push(groups.collect());
    }

    /// Counts what is new: free clusters and inodes.
    pub(crate) fn count_more(&self, raw: &RawSuper, new: &Geometry, blocks: u64, inodes: u32) {
        let counters = &self.counters;
        counters.free_blocks.fetch_add(blocks as i64, Ordering::Relaxed);
        counters.at_hand.fetch_add(blocks as i64, Ordering::Relaxed);
        counters.returned.fetch_add(1, Ordering::Relaxed);
        counters.free_inodes.fetch_add(inodes.into(), Ordering::Relaxed);
        counters.root_blocks.store(raw.reserved_blocks() as i64, Ordering::Relaxed);
        counters.pool.store(super::pool(new), Ordering::Relaxed);
    }
}
