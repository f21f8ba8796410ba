//! Block bitmaps before and after a change, and what is free in both.

use std::collections::BTreeMap;
use std::ops::Range;

use base::bitmap;
use ext4::format::Geometry;

use super::{EditError, Volume};

/// The bitmaps of one group.
struct GroupMap {
    /// What is in use now; all zeros behind the old end.
    old: Vec<u8>,
    /// What will be in use.
    new: Vec<u8>,
}

/// The bitmaps of the groups that were looked at, one bit per cluster.
pub struct Maps {
    g: Geometry,
    groups: BTreeMap<u32, GroupMap>,
    /// Where the next search begins.
    cursor: u64,
}

impl Maps {
    /// None were looked at; `g` is the geometry after the change.
    pub fn new(g: Geometry) -> Maps {
        let cursor = u64::from(g.first_data_block);
        Maps { g, groups: BTreeMap::new(), cursor }
    }

    /// The new bitmap of a group that was looked at.
    pub fn of(&self, group: u32) -> Option<&[u8]> {
        self.groups.get(&group).map(|map| &map.new[..])
    }

    /// True where the group was looked at.
    pub fn knows(&self, group: u32) -> bool {
        self.groups.contains_key(&group)
    }

    /// Reads the bitmaps of a group of the new geometry. Parks.
    ///
    /// # Errors
    /// The device's, or a wrong checksum.
    pub fn load(&mut self, volume: &mut Volume<'_>, group: u32) -> Result<(), EditError> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let there = group < volume.g.groups_count;
        let mut old = vec![0; volume.size()];
        let mut bits = 0;
        if there {
            old = volume.block_bitmap(group)?;
            bits = volume.g.clusters_in_group(group) as usize;
        }
        let valid = self.g.clusters_in_group(group) as usize;
        let mut new = old.clone();
        if bits < valid {
            bitmap::clear_range(&mut new, bits, valid);
            bitmap::clear_range(&mut old, bits, valid);
        }
        let end = new.len() * 8;
        bitmap::set_range(&mut new, valid, end);
        if !there {
            let fixed = self.g.base_meta_blocks(group).div_ceil(self.g.cluster_ratio);
            bitmap::set_range(&mut new, 0, fixed as usize);
        }
        self.groups.insert(group, GroupMap { old, new });
        Ok(())
    }

    /// The parts of a run by group: group and the bits in it.
    fn parts(&self, run: Range<u64>) -> Vec<(u32, Range<usize>)> {
        let mut parts = Vec::new();
        let (mut at, end) = (run.start, run.end.min(self.g.blocks_count));
        let ratio = self.g.cluster_ratio;
        while at < end {
            let Some((group, place)) = self.g.group_of_block(at) else {
                at += 1;
                continue;
            };
            let left = u64::from(self.g.blocks_in_group(group) - place).min(end - at);
            let last = (place + left as u32).div_ceil(ratio);
            parts.push((group, (place / ratio) as usize..last as usize));
            at += left;
        }
        parts
    }

    /// Marks a run as in use. Groups that nobody looked at are left alone.
    pub fn set(&mut self, run: Range<u64>) {
        for (group, bits) in self.parts(run) {
            if let Some(map) = self.groups.get_mut(&group) {
                bitmap::set_range(&mut map.new, bits.start, bits.end);
            }
        }
    }

    /// Marks a run as free. Groups that nobody looked at are left alone.
    pub fn clear(&mut self, run: Range<u64>) {
        for (group, bits) in self.parts(run) {
            if let Some(map) = self.groups.get_mut(&group) {
                bitmap::clear_range(&mut map.new, bits.start, bits.end);
            }
        }
    }

    /// Looks at all groups of a run. Parks.
    ///
    /// # Errors
    /// As [`Maps::load`].
    pub fn load_run(&mut self, v: &mut Volume<'_>, run: Range<u64>) -> Result<(), EditError> {
        for (group, _) in self.parts(run) {
            self.load(v, group)?;
        }
        Ok(())
    }

    /// Was this block in use before? Of a group that was looked at.
    pub fn was_used(&self, block: u64) -> bool {
        let Some((group, place)) = self.g.group_of_block(block) else { return true };
        let bit = (place / self.g.cluster_ratio) as usize;
        self.groups.get(&group).is_some_and(|map| bitmap::test(&map.old, bit))
    }

    /// Takes the first run of `len` blocks from `goal` on, else from the start on: at first of what
    /// was free before as well, so that a cut leaves what is there now. It begins with a cluster,
    /// and lies within `within`. None where there is none. Parks.
    ///
    /// # Errors
    /// As [`Maps::load`].
    pub fn take_run(
        &mut self,
        volume: &mut Volume<'_>,
        len: u64,
        within: Range<u64>,
        goal: u64,
    ) -> Result<Option<u64>, EditError> {
        for polite in [true, false] {
            for from in [goal.max(within.start), within.start] {
                if let Some(start) = self.find_run(volume, from..within.end, len, polite)? {
                    self.set(start..start + len);
                    return Ok(Some(start));
                }
            }
        }
        Ok(None)
    }

    /// A run of `len` free blocks.
    fn find_run(
        &mut self,
        volume: &mut Volume<'_>,
        within: Range<u64>,
        len: u64,
        polite: bool,
    ) -> Result<Option<u64>, EditError> {
        let (mut at, to) = (within.start, within.end);
        let mut run: Option<u64> = None;
        while at < to {
            let Some((start, end)) = self.free_in_group(volume, at, polite)? else {
                // Nothing more in this group.
                run = None;
                at = self.group_end(at);
                continue;
            };
            let begins = match run {
                Some(begin) if start == at => begin,
                _ => start,
            };
            let end = end.min(to);
            if end >= begins + len && begins + len <= to {
                return Ok(Some(begins));
            }
            run = (end == self.group_end(start)).then_some(begins);
            at = end.max(at + 1);
        }
        Ok(None)
    }

    fn group_end(&self, block: u64) -> u64 {
        match self.g.group_of_block(block) {
            Some((group, _)) => {
                self.g.group_first_block(group) + u64::from(self.g.blocks_in_group(group))
            }
            None => u64::from(self.g.first_data_block).max(block + 1),
        }
    }

    /// The first free run at or behind a block, within its group.
    fn free_in_group(
        &mut self,
        volume: &mut Volume<'_>,
        at: u64,
        polite: bool,
    ) -> Result<Option<(u64, u64)>, EditError> {
        let Some((group, place)) = self.g.group_of_block(at) else { return Ok(None) };
        self.load(volume, group)?;
        let map = &self.groups[&group];
        let ratio = self.g.cluster_ratio;
        let bits = self.g.clusters_in_group(group) as usize;
        let taken =
            |bit: usize| bitmap::test(&map.new, bit) || polite && bitmap::test(&map.old, bit);
        let mut bit = place.div_ceil(ratio) as usize;
        while bit < bits {
            let Some(free) = bitmap::find_next_zero(&map.new, bit, bits) else { return Ok(None) };
            if !taken(free) {
                let end = (free..bits).find(|&bit| taken(bit)).unwrap_or(bits);
                let first = self.g.group_first_block(group);
                let block = |bit: usize| first + bit as u64 * u64::from(ratio);
                return Ok(Some((block(free), block(end).min(self.group_end(first)))));
            }
            bit = free + 1;
        }
        Ok(None)
    }

    /// Takes up to `len` blocks that follow each other, wherever they are: start and length. None
    /// where nothing is free. Parks.
    ///
    /// # Errors
    /// As [`Maps::load`].
    pub fn take_some(
        &mut self,
        volume: &mut Volume<'_>,
        len: u64,
    ) -> Result<Option<(u64, u64)>, EditError> {
        for (polite, from) in [(true, self.cursor), (true, 0), (false, 0)] {
            let mut at = from.max(self.g.first_data_block.into());
            while at < self.g.blocks_count {
                if let Some((start, end)) = self.free_in_group(volume, at, polite)? {
                    let len = len.min(end - start);
                    self.set(start..start + len);
                    self.cursor = start + len;
                    return Ok(Some((start, len)));
                }
                at = self.group_end(at);
            }
        }
        Ok(None)
    }
}
