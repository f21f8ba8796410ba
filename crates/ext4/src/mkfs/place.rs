//! Second phase of mkfs: where bitmaps and tables lie, and which blocks are in use.

use std::collections::BTreeMap;

use super::shape::Shape;
use super::{MkfsError, MkfsOptions, Release};
use crate::format::features::Incompat;
use crate::format::{Geometry, GroupDesc, GroupFlags};

/// The blocks in use, as runs, and the descriptors with their places filled in.
pub struct Placed {
    /// One descriptor per group; counts are filled in by [`Placed::count`].
    pub descs: Vec<GroupDesc>,
    /// Runs of blocks in use: start to end. Adjacent runs are joined, no two overlap.
    used: BTreeMap<u64, u64>,
    /// Blocks of the file system.
    blocks: u64,
    /// Blocks that are taken together, from a multiple of them on: 1 for what each group has, then
    /// those of a cluster.
    unit: u64,
}

impl Placed {
    /// Places copies of the superblock, descriptors, bitmaps and inode tables: with `flex_bg` those
    /// of a flexible group together at its start, else each group's own behind its copies.
    ///
    /// # Errors
    /// Where the tables do not fit.
    pub fn new(shape: &Shape, options: &MkfsOptions) -> Result<Placed, MkfsError> {
        let g = &shape.geometry;
        let mut placed = Placed {
            descs: vec![GroupDesc::default(); g.groups_count as usize],
            used: BTreeMap::new(),
            blocks: g.blocks_count,
            unit: 1,
        };
        if g.first_data_block > 0 {
            placed.mark(0, g.first_data_block.into());
        }
        for group in 0..g.groups_count {
            let copies = u64::from(g.base_meta_blocks(group));
            if copies > 0 {
                placed.mark(g.group_first_block(group), copies);
            }
        }
        placed.bad_blocks(g, &shape.bad_blocks)?;
        let together = match options.packed_meta_blocks {
            true if g.features.incompat.contains(Incompat::FLEX_BG) => g.groups_count,
            _ => g.flex_size,
        };
        let strided = options.stride > 0 && !g.features.incompat.contains(Incompat::FLEX_BG);
        let mut first = 0;
        while first < g.groups_count {
            let end = first.saturating_add(together).min(g.groups_count);
            match strided {
                true => placed.place_strided(g, first, options.stride)?,
                false => placed.place_tables(g, first, end, options.packed_meta_blocks)?,
            }
            first = end;
        }
        placed.unit = g.cluster_ratio.into();
        Ok(placed)
    }

    /// Takes the broken blocks of this list, which is in order and names none twice.
    fn bad_blocks(&mut self, g: &Geometry, list: &[u64]) -> Result<(), MkfsError> {
        let start = u64::from(g.first_data_block);
        let needed = 0..start + u64::from(g.base_meta_blocks(0));
        for &block in list {
            if needed.contains(&block) {
                return Err(MkfsError::BadBlock(block));
            }
            if self.free_run(block).is_some_and(|(free, _)| free == block) {
                self.mark(block, 1);
            }
        }
        Ok(())
    }

    /// With the blocks of one disk of an array, and no `flex_bg`: the bitmaps of groups that follow
    /// each other are on different disks.
    fn place_strided(&mut self, g: &Geometry, group: u32, stride: u16) -> Result<(), MkfsError> {
        let full = full(g);
        let start = g.group_first_block(group);
        let end = start + u64::from(g.blocks_in_group(group));
        let (free, _) = self.free_run(start).ok_or(full.clone())?;
        let behind = free + u64::from(g.itable_blocks);
        let room = end.saturating_sub(behind).max(1);
        let mut goal = behind + u64::from(stride) * u64::from(group) % room;
        if goal + 1 >= end {
            goal = start;
        }
        let map = self.take_run(goal, 1).ok_or(full.clone())?;
        let inode_map = self.take_run(map, 1).ok_or(full.clone())?;
        let table = self.take_run(start, g.itable_blocks.into()).ok_or(full)?;
        let desc = &mut self.descs[group as usize];
        (desc.block_bitmap, desc.inode_bitmap, desc.inode_table) = (map, inode_map, table);
        Ok(())
    }

    fn place_tables(
        &mut self,
        g: &Geometry,
        first: u32,
        end: u32,
        packed: bool,
    ) -> Result<(), MkfsError> {
        let full = full(g);
        let goal = g.group_first_block(first);
        let count = u64::from(end - first);
        // mke2fs keeps the places of a whole flexible group free where there is but one in it.
        let space = if count == 1 && !packed { u64::from(g.flex_size) } else { count };
        let maps = self.take_run(goal, count).ok_or(full.clone())?;
        let inode_maps = self.take_run(maps + space, count).ok_or(full.clone())?;
        let mut next = inode_maps + space;
        for (index, group) in (first..end).enumerate() {
            let table = self.take_run(next, g.itable_blocks.into()).ok_or(full.clone())?;
            next = table + u64::from(g.itable_blocks);
            let desc = &mut self.descs[group as usize];
            desc.block_bitmap = maps + index as u64;
            desc.inode_bitmap = inode_maps + index as u64;
            desc.inode_table = table;
        }
        Ok(())
    }

    /// Marks `len` blocks from `start` as used; they are free.
    fn mark(&mut self, mut start: u64, len: u64) {
        let mut end = start + len.next_multiple_of(self.unit);
        if let Some((&before, &before_end)) = self.used.range(..start).next_back()
            && before_end == start
        {
            self.used.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.used.remove(&end) {
            end = after_end;
        }
        self.used.insert(start, end);
    }

    /// The first free block from `goal` on, and how many follow it. None at the end.
    fn free_run(&self, goal: u64) -> Option<(u64, u64)> {
        let mut start = goal;
        loop {
            let end_before = |start| self.used.range(..=start).next_back().map_or(0, |run| *run.1);
            start = start.max(end_before(start)).next_multiple_of(self.unit);
            if start >= self.blocks {
                return None;
            }
            if end_before(start) > start {
                continue;
            }
            let next = self.used.range(start..).next().map_or(self.blocks, |run| *run.0);
            let free = (next - start) / self.unit * self.unit;
            if free > 0 {
                return Some((start, free));
            }
            start = next;
        }
    }

    /// Takes the first run of `len` free blocks from `goal` on.
    pub fn take_run(&mut self, goal: u64, len: u64) -> Option<u64> {
        let mut from = goal;
        loop {
            let (start, free) = self.free_run(from)?;
            if free >= len {
                self.mark(start, len);
                return Some(start);
            }
            from = start + free;
        }
    }

    /// Takes `len` free blocks from `goal` on, in as many runs as it needs. None where there are
    /// not so many; then nothing is taken that matters, since mkfs ends.
    pub fn take_pieces(&mut self, goal: u64, mut len: u64) -> Option<Vec<(u64, u64)>> {
        let mut pieces = Vec::new();
        let mut from = goal;
        while len > 0 {
            let Some((start, free)) = self.free_run(from) else {
                if from == goal || goal == 0 {
                    return None;
                }
                // The end is reached: go on from the start, once.
                let rest = self.take_pieces(0, len)?;
                pieces.extend(rest);
                return Some(pieces);
            };
            let taken = free.min(len);
            self.mark(start, taken);
            pieces.push((start, taken));
            len -= taken;
            from = start + taken;
        }
        Some(pieces)
    }

    /// All clusters in use (blocks without bigalloc), with the block before the first data block.
    pub fn used_clusters(&self) -> u64 {
        self.used_in(0, self.blocks)
    }

    /// How many of the last `most` blocks are free and follow each other to the end.
    pub fn free_tail(&self, most: u64) -> u64 {
        let end = self.used.last_key_value().map_or(0, |(_, &end)| end);
        (self.blocks - end).min(most)
    }

    /// Free clusters (blocks without bigalloc) of the group.
    pub fn free_clusters(&self, g: &Geometry, group: u32) -> u32 {
        let first = g.group_first_block(group);
        let end = first + u64::from(g.blocks_in_group(group));
        g.clusters_in_group(group) - self.used_in(first, end) as u32
    }

    /// Clusters in use among these blocks, which begin with a cluster.
    fn used_in(&self, first: u64, end: u64) -> u64 {
        let mut seen = 0;
        let count = |(from, to): (u64, u64)| {
            let from = (from / self.unit).max(seen);
            seen = to.div_ceil(self.unit).max(from);
            seen - from
        };
        self.runs_in(first, end).map(count).sum()
    }

    /// The used runs that touch `first..end`, cut to it.
    fn runs_in(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.used.range(..first).next_back().map_or(first, |(&start, _)| start);
        self.used
            .range(before..end)
            .map(move |(&from, &to)| (from.max(first), to.min(end)))
            .filter(|(from, to)| from < to)
    }

    /// Fills the group's block bitmap: blocks in use, and the bits beyond the group's end.
    pub fn fill_bitmap(&self, g: &Geometry, group: u32, map: &mut [u8]) {
        let first = g.group_first_block(group);
        let blocks = u64::from(g.blocks_in_group(group));
        for (from, to) in self.runs_in(first, first + blocks) {
            let (from, to) = ((from - first) / self.unit, (to - first).div_ceil(self.unit));
            base::bitmap::set_range(map, from as usize, to as usize);
        }
        base::bitmap::set_range(map, g.clusters_in_group(group) as usize, map.len() * 8);
    }

    /// Fills in free clusters and flags of all descriptors, and answers the sum of free blocks.
    pub fn count(&mut self, g: &Geometry, release: Release) -> u64 {
        let mut sum = 0;
        let mut map = vec![0; g.block_size as usize];
        for group in 0..g.groups_count {
            let free = self.free_clusters(g, group);
            sum += u64::from(free) * self.unit;
            // What a reader of `BLOCK_UNINIT` takes as free.
            g.init_block_bitmap(group, &self.descs[group as usize], &mut map);
            let fresh = base::bitmap::count_zeros(&map, g.clusters_in_group(group) as usize);
            let desc = &mut self.descs[group as usize];
            desc.free_blocks = free;
            desc.flags = GroupFlags::INODE_ZEROED;
            if !g.features.group_csum() {
                continue;
            }
            // The last group's bitmap shows where the file system ends: it is always written.
            let plain = release == Release::V1_47_0 || g.base_meta_blocks(group) == 0;
            if free as usize == fresh && group + 1 < g.groups_count && plain {
                desc.flags |= GroupFlags::BLOCK_UNINIT;
            }
        }
        sum
    }
}

/// There is no room for the tables.
fn full(g: &Geometry) -> MkfsError {
    MkfsError::TooManyInodes { inodes: g.inodes_count.into(), blocks: g.blocks_count }
}
