//! Where bitmaps and inode tables of new groups lie: in the new groups alone.

use std::collections::BTreeMap;

use base::bitmap;

use crate::format::{Geometry, GroupDesc, GroupFlags};

/// Groups behind the old end.
pub(super) struct NewGroups {
    /// The first of them.
    pub first: u32,
    pub descs: Vec<GroupDesc>,
    /// The block bitmaps that are written.
    pub maps: BTreeMap<u32, Vec<u8>>,
}

/// Hands out the blocks of groups behind their fixed metadata.
struct Cursor<'a> {
    g: &'a Geometry,
    group: u32,
    end: u32,
    at: u32,
}

impl Cursor<'_> {
    /// So many blocks in one piece, in one group.
    fn next_run(&mut self, len: u32) -> Option<u64> {
        while self.group < self.end {
            if len <= self.g.blocks_in_group(self.group).saturating_sub(self.at) {
                let start = self.g.group_first_block(self.group) + u64::from(self.at);
                self.at += len;
                return Some(start);
            }
            self.group += 1;
            if self.group < self.end {
                self.at = self.g.base_meta_blocks(self.group);
            }
        }
        None
    }
}

impl NewGroups {
    /// Places all groups from `first` on; with `flex_bg` those of a flexible group together. None
    /// where they have no room.
    pub fn behind(g: &Geometry, first: u32) -> Option<NewGroups> {
        let fresh = GroupDesc {
            free_inodes: g.inodes_per_group,
            flags: GroupFlags::INODE_ZEROED,
            ..GroupDesc::default()
        };
        let descs = vec![fresh; (g.groups_count - first) as usize];
        let mut groups = NewGroups { first, descs, maps: BTreeMap::new() };
        let mut from = first;
        while from < g.groups_count {
            let end = (u64::from(from / g.flex_size) + 1) * u64::from(g.flex_size);
            let end = end.min(g.groups_count.into()) as u32;
            groups.place_some(g, from, end)?;
            (from..end).for_each(|group| groups.make_map(g, group, from..end));
            from = end;
        }
        Some(groups)
    }

    fn place_some(&mut self, g: &Geometry, from: u32, end: u32) -> Option<()> {
        let mut cursor = Cursor { g, group: from, end, at: g.base_meta_blocks(from) };
        let here = &mut self.descs[(from - self.first) as usize..(end - self.first) as usize];
        for desc in &mut *here {
            desc.block_bitmap = cursor.next_run(1)?;
        }
        for desc in &mut *here {
            desc.inode_bitmap = cursor.next_run(1)?;
        }
        for desc in here {
            desc.inode_table = cursor.next_run(g.itable_blocks)?;
        }
        Some(())
    }

    /// The bitmap of a group, which may hold metadata of these others.
    fn make_map(&mut self, g: &Geometry, group: u32, others: std::ops::Range<u32>) {
        let size = g.block_size as usize;
        let (mut unused, mut map) = (vec![0; size], vec![0; size]);
        g.init_block_bitmap(group, self.of(group), &mut unused);
        let mut own = vec![0; size];
        for other in others {
            // What of the other's lies in this group, and what is fixed here.
            g.init_block_bitmap(group, self.of(other), &mut own);
            map.iter_mut().zip(&own).for_each(|(byte, more)| *byte |= more);
        }
        let lazy = g.features.group_csum();
        let desc = &mut self.descs[(group - self.first) as usize];
        desc.free_blocks = bitmap::count_zeros(&map, g.clusters_in_group(group) as usize) as u32;
        if lazy {
            desc.flags |= GroupFlags::INODE_UNINIT;
            desc.itable_unused = g.inodes_per_group;
        }
        if lazy && map == unused && group + 1 < g.groups_count {
            desc.flags |= GroupFlags::BLOCK_UNINIT;
            return;
        }
        if g.checksums.metadata {
            desc.block_bitmap_csum = g.block_bitmap_csum(&map);
        }
        self.maps.insert(group, map);
    }

    fn of(&self, group: u32) -> &GroupDesc {
        &self.descs[(group - self.first) as usize]
    }

    /// The groups, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &GroupDesc)> {
        (self.first..).zip(&self.descs)
    }

    /// Clusters for files.
    pub fn free_blocks(&self) -> u64 {
        self.descs.iter().map(|desc| u64::from(desc.free_blocks)).sum()
    }

    /// Clusters that hold metadata.
    pub fn overhead(&self, g: &Geometry) -> u64 {
        let taken =
            |(group, desc): (u32, &GroupDesc)| g.clusters_in_group(group) - desc.free_blocks;
        self.iter().map(|one| u64::from(taken(one))).sum()
    }
}
