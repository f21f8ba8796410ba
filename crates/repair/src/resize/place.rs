//! Where things lie after the change: fixed metadata, bitmaps, tables, blocks of files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ext4::format::features::Compat;
use ext4::format::{Geometry, GroupDesc, GroupFlags, RawSuper};

use super::Move;
use super::numbers::Numbers;
use crate::volume::maps::Maps;
use crate::volume::{EditError, Volume};

/// Runs of blocks of files that move.
#[derive(Default)]
pub struct Moves(BTreeMap<u64, (u64, u64)>);

impl Moves {
    /// Where a block goes; None where it stays.
    pub fn of(&self, block: u64) -> Option<u64> {
        let (&start, &(to, len)) = self.0.range(..=block).next_back()?;
        (block - start < len).then(|| to + (block - start))
    }

    /// Up to which block what is true of `block` is true: that it stays, or moves in one piece.
    pub fn until(&self, block: u64) -> u64 {
        if let Some((&start, &(_, len))) = self.0.range(..=block).next_back()
            && block - start < len
        {
            return start + len;
        }
        self.0.range(block..).next().map_or(u64::MAX, |(&start, _)| start)
    }

    /// How many blocks move.
    pub fn blocks(&self) -> u64 {
        self.0.values().map(|(_, len)| len).sum()
    }

    /// True where none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A file system on its way to another geometry.
pub struct Relayout<'a> {
    /// As it is.
    pub v: Volume<'a>,
    /// The new superblock.
    pub raw: RawSuper,
    /// The new geometry.
    pub g: Geometry,
    /// The new descriptors.
    pub descs: Vec<GroupDesc>,
    /// Block bitmaps.
    pub maps: Maps,
    /// Blocks of files that move.
    pub moved: Moves,
    /// Inodes that move.
    pub numbers: Numbers,
    /// Contents that are copied into free blocks.
    pub copies: Vec<Move>,
    /// Every checksum changes.
    pub resummed: bool,
    /// The blocks of the quota files where they will be: of users, groups, projects.
    pub quota_blocks: [Vec<u64>; 3],
    /// What must read as zeros.
    pub zeroes: Vec<(u64, u64)>,
    /// Bitmaps and tables as they lie now: start to end.
    meta: BTreeMap<u64, u64>,
}

/// Bitmaps and table of a group, as runs.
fn pieces(g: &Geometry, desc: &GroupDesc) -> [(u64, u64); 3] {
    let table = (desc.inode_table, u64::from(g.itable_blocks));
    [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), table]
}

impl<'a> Relayout<'a> {
    /// Nothing was decided yet.
    pub fn new(v: Volume<'a>, raw: RawSuper, g: Geometry) -> Relayout<'a> {
        let mut descs = v.descs.clone();
        descs.resize(g.groups_count as usize, GroupDesc::default());
        Relayout {
            maps: Maps::new(g.clone()),
            v,
            raw,
            g,
            descs,
            moved: Moves::default(),
            numbers: Numbers::default(),
            copies: Vec::new(),
            resummed: false,
            quota_blocks: Default::default(),
            zeroes: Vec::new(),
            meta: BTreeMap::new(),
        }
    }

    /// Groups that are there before and after.
    pub fn kept(&self) -> u32 {
        self.g.groups_count.min(self.v.g.groups_count)
    }

    /// Decides all places.
    ///
    /// # Errors
    /// No room; a damaged bitmap.
    pub fn place(&mut self) -> Result<(), EditError> {
        for desc in &self.v.descs {
            for (start, len) in pieces(&self.v.g, desc) {
                self.meta.insert(start, start + len);
            }
        }
        let displaced = self.clear_old()?;
        let mut moving = self.colliding()?;
        for (group, piece) in displaced {
            self.place_piece(group, piece, &mut moving)?;
        }
        self.new_groups()?;
        for (start, mut len) in moving {
            let mut from = start;
            while len > 0 {
                let Some((to, got)) = self.maps.take_some(&mut self.v, len)? else {
                    let text = format!("{len} blocks of files find no place in the new size");
                    return Err(EditError::NoRoom(text));
                };
                self.moved.0.insert(from, (to, got));
                from += got;
                len -= got;
            }
        }
        Ok(())
    }

    /// Takes away what goes, and marks what is fixed in the new geometry. Answers the bitmaps and
    /// tables that must move: group and which of the three.
    fn clear_old(&mut self) -> Result<BTreeSet<(u32, usize)>, EditError> {
        let kept = self.kept();
        let changes = |old: &Geometry, new: &Geometry, group: u32| {
            group < old.groups_count && old.base_meta_blocks(group) != new.base_meta_blocks(group)
        };
        // Where the end was, and where it will be.
        self.maps.load(&mut self.v, kept - 1)?;
        if !self.g.features.group_csum() {
            for group in self.v.g.groups_count..self.g.groups_count {
                self.maps.load(&mut self.v, group)?;
            }
        }
        for group in 0..kept {
            if changes(&self.v.g, &self.g, group) {
                self.maps.load(&mut self.v, group)?;
                let first = self.g.group_first_block(group);
                self.maps.clear(first..first + u64::from(self.v.g.base_meta_blocks(group)));
            }
        }
        for group in kept..self.v.g.groups_count {
            for (start, len) in pieces(&self.v.g, &self.v.descs[group as usize]) {
                self.maps.load_run(&mut self.v, start..start + len)?;
                self.maps.clear(start..start + len);
            }
        }
        let mut displaced = BTreeSet::new();
        for group in 0..kept {
            let desc = self.v.descs[group as usize];
            for (index, (start, len)) in pieces(&self.v.g, &desc).into_iter().enumerate() {
                let longer = index == 2 && self.g.itable_blocks != self.v.g.itable_blocks;
                let behind = start + len > self.g.blocks_count;
                if longer || behind || self.is_fixed(start..start + len) {
                    self.maps.load_run(&mut self.v, start..start + len)?;
                    self.maps.clear(start..start + len);
                    displaced.insert((group, index));
                }
            }
        }
        // A cluster may hold pieces that stay beside such as go.
        for group in 0..kept {
            let desc = self.v.descs[group as usize];
            for (index, (start, len)) in pieces(&self.v.g, &desc).into_iter().enumerate() {
                if !displaced.contains(&(group, index)) {
                    self.maps.set(start..start + len);
                }
            }
        }
        for group in 0..self.g.groups_count {
            if self.maps.knows(group) {
                let first = self.g.group_first_block(group);
                self.maps.set(first..first + u64::from(self.g.base_meta_blocks(group)));
            }
        }
        Ok(displaced)
    }

    /// True where one of these blocks will hold a superblock or descriptors.
    fn is_fixed(&self, run: Range<u64>) -> bool {
        let mut at = run.start;
        while at < run.end {
            let Some((group, place)) = self.g.group_of_block(at) else { return true };
            if place < self.g.base_meta_blocks(group) {
                return true;
            }
            at = self.g.group_first_block(group) + u64::from(self.g.blocks_in_group(group));
        }
        false
    }

    /// The runs of blocks of files that lie behind the new end, or where descriptors will be.
    fn colliding(&mut self) -> Result<Vec<(u64, u64)>, EditError> {
        let mut runs = Vec::new();
        let (old_groups, groups) = (self.v.g.groups_count, self.g.groups_count);
        for group in 0..old_groups {
            let all = self.v.g.blocks_in_group(group);
            if group >= groups {
                self.files_in(group, 0..all, &mut runs)?;
                continue;
            }
            let fixed = self.g.base_meta_blocks(group);
            if fixed > self.v.g.base_meta_blocks(group) {
                self.files_in(group, 0..fixed, &mut runs)?;
            }
            let left = self.g.blocks_in_group(group);
            if left < all {
                self.files_in(group, left..all, &mut runs)?;
            }
        }
        Ok(runs)
    }

    /// Adds the runs of blocks of files among these of a group.
    fn files_in(
        &mut self,
        group: u32,
        range: Range<u32>,
        runs: &mut Vec<(u64, u64)>,
    ) -> Result<(), EditError> {
        let desc = self.v.descs[group as usize];
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) && self.v.g.features.group_csum() {
            return Ok(());
        }
        let mut map = self.v.block_bitmap(group)?;
        let (first, ratio) = (self.v.g.group_first_block(group), self.v.g.cluster_ratio);
        let blocks = self.v.g.blocks_in_group(group);
        let mut forget = |from: u64, to: u64| {
            let (from, to) = (from.max(first), to.min(first + u64::from(blocks)));
            if from < to {
                let bits = (from - first) / u64::from(ratio)..(to - first).div_ceil(ratio.into());
                base::bitmap::clear_range(&mut map, bits.start as usize, bits.end as usize);
            }
        };
        forget(first, first + u64::from(self.v.g.base_meta_blocks(group)));
        let before = self.meta.range(..=first).next_back().map_or(first, |(&start, _)| start);
        for (&from, &to) in self.meta.range(before..first + u64::from(blocks)) {
            forget(from, to);
        }
        let end = range.end.div_ceil(ratio) as usize;
        let mut bit = (range.start / ratio) as usize;
        while let Some(from) = base::bitmap::find_next_set(&map, bit, end) {
            let to = base::bitmap::find_next_zero(&map, from, end).unwrap_or(end);
            let block = |bit: usize| first + bit as u64 * u64::from(ratio);
            runs.push((block(from), block(to) - block(from)));
            bit = to;
        }
        Ok(())
    }

    /// Finds a place for a bitmap or a table of a group that stays. Where there is no room blocks
    /// of files give way.
    fn place_piece(
        &mut self,
        group: u32,
        piece: usize,
        moving: &mut Vec<(u64, u64)>,
    ) -> Result<(), EditError> {
        let len = pieces(&self.g, &self.descs[group as usize])[piece].1;
        let goal = self.g.group_first_block(group);
        let start = match self.take_near(goal, group, len)? {
            Some(start) => start,
            None => self.evict(group, len, moving)?,
        };
        let desc = &mut self.descs[group as usize];
        match piece {
            0 => desc.block_bitmap = start,
            1 => desc.inode_bitmap = start,
            _ => desc.inode_table = start,
        }
        Ok(())
    }

    /// Makes room for metadata of a group: the first run in it without other metadata.
    fn evict(
        &mut self,
        group: u32,
        len: u64,
        moving: &mut Vec<(u64, u64)>,
    ) -> Result<u64, EditError> {
        let (from, end) = self.g.metadata_bounds(group);
        let taken = |layout: &Relayout<'_>, start: u64| {
            // Pieces that were placed by now, and those that stay.
            let overlap = |(at, size): (u64, u64)| at < start + len && start < at + size;
            let others = layout.descs.iter().flat_map(|desc| pieces(&layout.g, desc));
            others.filter(|&piece| overlap(piece)).map(|(at, size)| at + size).max()
        };
        let ratio = u64::from(self.g.cluster_ratio);
        let mut start = from;
        while start + len <= end {
            if let Some(behind) = taken(self, start) {
                start = behind.next_multiple_of(ratio);
            } else if self.is_fixed(start..start + len) {
                start += ratio;
            } else {
                break;
            }
        }
        if start + len > end {
            let text = format!("group {group} has no {len} blocks in one piece for its metadata");
            return Err(EditError::NoRoom(text));
        }
        let mut at = start;
        while at < start + len {
            let (group, place) = self.g.group_of_block(at).expect("it is inside");
            let left = u64::from(self.g.blocks_in_group(group) - place).min(start + len - at);
            if group < self.v.g.groups_count {
                let known = moving.len();
                self.files_in(group, place..place + left as u32, moving)?;
                // What gives way already because of the descriptors.
                let before: Vec<(u64, u64)> = moving[..known].to_vec();
                let fresh = moving.split_off(known);
                moving.extend(fresh.into_iter().filter(|run| {
                    !before.iter().any(|(from, len)| (*from..from + len).contains(&run.0))
                }));
            }
            at += left;
        }
        self.maps.load_run(&mut self.v, start..start + len)?;
        self.maps.set(start..start + len);
        Ok(start)
    }

    /// Bitmaps and tables of new groups: with `flex_bg` those of a flexible group together.
    fn new_groups(&mut self) -> Result<(), EditError> {
        let mut first = self.v.g.groups_count;
        let per = u64::from(self.g.itable_blocks);
        while first < self.g.groups_count {
            let flex = self.g.flex_size;
            let end = (u64::from(first / flex) + 1) * u64::from(flex);
            let end = end.min(self.g.groups_count.into()) as u32;
            let count = u64::from(end - first);
            let mut goal = self.g.group_first_block(first);
            for piece in 0..3 {
                let each = if piece == 2 { per } else { 1 };
                let together = self.take_near(goal, first, count * each)?;
                for (index, group) in (first..end).enumerate() {
                    let start = match together {
                        Some(start) => start + index as u64 * each,
                        None => self.take_near(goal, group, each)?.ok_or_else(|| {
                            let text = format!("no {each} blocks in one piece for group {group}");
                            EditError::NoRoom(text)
                        })?,
                    };
                    goal = start + each;
                    let desc = &mut self.descs[group as usize];
                    match piece {
                        0 => desc.block_bitmap = start,
                        1 => desc.inode_bitmap = start,
                        _ => {
                            desc.inode_table = start;
                            self.zeroes.push((start, per));
                        }
                    }
                }
            }
            first = end;
        }
        for group in self.v.g.groups_count..self.g.groups_count {
            let desc = &mut self.descs[group as usize];
            desc.free_inodes = self.g.inodes_per_group;
            desc.flags = GroupFlags::INODE_ZEROED;
            if self.g.features.group_csum() {
                desc.flags |= GroupFlags::INODE_UNINIT;
                desc.itable_unused = self.g.inodes_per_group;
            }
        }
        Ok(())
    }

    /// Takes a run for metadata of a group.
    fn take_near(&mut self, goal: u64, group: u32, len: u64) -> Result<Option<u64>, EditError> {
        let (from, end) = self.g.metadata_bounds(group);
        self.maps.take_run(&mut self.v, len, from..end, goal)
    }

    /// True with reserved descriptor blocks.
    pub fn has_reserve(&self) -> bool {
        self.g.features.compat.contains(Compat::RESIZE_INODE)
    }
}
