//! A bit per block, held for those groups only in which a bit is set.

use std::borrow::Cow;
use std::ops::Range;

use crate::format::Geometry;
use crate::format::features::RoCompat;

/// The bits of a group, where one is set.
type GroupMap = Option<Box<[u8]>>;

/// Which blocks are in use.
pub struct BlockMap {
    groups: Vec<GroupMap>,
    first: u64,
    per_group: u64,
    blocks: u64,
}

impl BlockMap {
    /// No block.
    pub fn new(g: &Geometry) -> BlockMap {
        BlockMap {
            groups: vec![None; g.groups_count as usize],
            first: g.first_data_block.into(),
            per_group: g.blocks_per_group.into(),
            blocks: g.blocks_count,
        }
    }

    /// No block, where files may have some in common.
    pub fn shareable(g: &Geometry) -> Option<BlockMap> {
        let shared = g.features.ro_compat.contains(RoCompat::SHARED_BLOCKS);
        shared.then(|| BlockMap::new(g))
    }

    /// The pieces of a run, group by group: group, first bit, end bit, first block.
    fn pieces(
        &self,
        start: u64,
        len: u64,
    ) -> impl Iterator<Item = (usize, usize, usize, u64)> + use<> {
        let (first, per_group) = (self.first, self.per_group);
        let end = start.saturating_add(len).min(self.blocks);
        let mut at = start.max(first);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = (at - first) / per_group;
            let from = (at - first) % per_group;
            let to = per_group.min(from + (end - at));
            let piece = (group as usize, from as usize, to as usize, at);
            at += to - from;
            Some(piece)
        })
    }

    /// Sets the bits of a run; returns the first block whose bit was set before.
    pub fn set(&mut self, start: u64, len: u64) -> Option<u64> {
        let mut taken = None;
        let bytes = (self.per_group / 8) as usize;
        for (group, from, to, block) in self.pieces(start, len) {
            let map = self.groups[group].get_or_insert_with(|| vec![0; bytes].into_boxed_slice());
            if taken.is_none() {
                let bit = base::bitmap::find_next_set(map, from, to);
                taken = bit.map(|bit| block + (bit - from) as u64);
            }
            base::bitmap::set_range(map, from, to);
        }
        taken
    }

    /// Clears the bits of a run.
    pub fn clear_run(&mut self, run: Range<u64>) {
        for (group, from, to, _) in self.pieces(run.start, run.end - run.start) {
            if let Some(map) = &mut self.groups[group] {
                for bit in from..to {
                    base::bitmap::clear(map, bit);
                }
            }
        }
    }

    /// Sets the bits that are set in another map of the same file system; false, and nothing is
    /// changed, where both have a bit.
    pub fn absorb(&mut self, other: &BlockMap) -> bool {
        let both = |(ours, theirs): (&GroupMap, &GroupMap)| {
            let (Some(ours), Some(theirs)) = (ours, theirs) else { return false };
            ours.iter().zip(theirs).any(|(ours, theirs)| ours & theirs != 0)
        };
        if self.groups.iter().zip(&other.groups).any(both) {
            return false;
        }
        for (ours, theirs) in self.groups.iter_mut().zip(&other.groups) {
            match (ours, theirs) {
                (_, None) => {}
                (ours @ None, Some(_)) => ours.clone_from(theirs),
                (Some(ours), Some(theirs)) => {
                    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours |= theirs);
                }
            }
        }
        true
    }

    /// Whether the block's bit is set; false for blocks outside.
    pub fn get(&self, block: u64) -> bool {
        self.pieces(block, 1).next().is_some_and(|(group, from, _, _)| {
            self.groups[group].as_ref().is_some_and(|map| base::bitmap::test(map, from))
        })
    }

    /// A bit for each cluster of 2^`bits` blocks of a group in which a block's bit is set; it may
    /// be shorter than the group, where no others are set.
    pub fn in_clusters(&self, group: u32, bits: u32) -> Cow<'_, [u8]> {
        let map = self.groups[group as usize].as_deref().unwrap_or(&[]);
        if bits == 0 {
            return Cow::Borrowed(map);
        }
        let mut clusters = vec![0; (map.len() >> bits) + 1];
        let (mut at, end) = (0, map.len() * 8);
        while let Some(block) = base::bitmap::find_next_set(map, at, end) {
            base::bitmap::set(&mut clusters, block >> bits);
            at = ((block >> bits) + 1) << bits;
        }
        Cow::Owned(clusters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_groups_and_tell_the_first_collision() {
        let mut map = BlockMap { groups: vec![None; 4], first: 1, per_group: 64, blocks: 1 + 200 };
        assert_eq!(map.set(60, 10), None);
        assert!(map.get(60) && map.get(69) && !map.get(70) && !map.get(59));
        assert_eq!(map.set(50, 15), Some(60));
        assert_eq!(map.set(66, 100), Some(66));
        assert_eq!(map.set(u64::MAX - 5, 10), None);
        assert_eq!(map.set(0, 1), None);
        assert!(!map.get(0) && !map.get(5000));
        assert_eq!(map.in_clusters(0, 0)[6], 0b1111_1110, "blocks 50 to 56 are bits 49 to 55");
        assert_eq!(map.in_clusters(0, 4)[0], 0b1000, "only the last of four clusters");
        let mut other = BlockMap { groups: vec![None; 4], first: 1, per_group: 64, blocks: 201 };
        other.set(40, 5);
        other.set(60, 1);
        assert!(!map.absorb(&other) && !map.get(40), "both have block 60");
        other.clear_run(60..61);
        assert!(map.absorb(&other) && map.get(40) && map.get(44) && map.get(60));
        assert!(map.in_clusters(3, 4).iter().all(|&byte| byte == 0));
    }
}
