//! The extents of a file's copy-on-write fork.

use std::ops::Range;

use crate::bmap::edit::part;
use crate::bmap::{self, Mapped};
use crate::format::RealtimeShape;
use crate::format::extent::Extent;

/// The blocks that wait to take the place of shared ones, by their place in the file.
#[derive(Default)]
pub(crate) struct CowFork {
    extents: Vec<Extent>,
}

impl CowFork {
    /// True if it has no blocks.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.count)).sum()
    }

    /// What it has for the first blocks of a range, as far as that is alike.
    pub fn lookup(&self, range: Range<u64>) -> Mapped {
        bmap::lookup(&self.extents, range)
    }

    /// The blocks around one that it has not.
    pub fn gap_around(&self, block: u64) -> Range<u64> {
        let next = self.extents.partition_point(|extent| extent.end() <= block);
        let before = next.checked_sub(1).map_or(0, |index| self.extents[index].end());
        before..self.extents.get(next).map_or(u64::MAX, |extent| extent.offset)
    }

    /// Whether it has one of some blocks.
    pub fn touches(&self, blocks: Range<u64>) -> bool {
        let first = self.extents.partition_point(|extent| extent.end() <= blocks.start);
        self.extents.get(first).is_some_and(|extent| extent.offset < blocks.end)
    }

    /// Adds blocks, joined with those before them unless a group of their section ends there.
    pub(crate) fn insert(&mut self, extent: Extent, section: Option<&RealtimeShape>) {
        let at = self.extents.partition_point(|known| known.end() <= extent.offset);
        let whole = |before: &Extent| {
            let count = u64::from(before.count) + u64::from(extent.count);
            section.is_none_or(|section| section.holds(before.start, count))
        };
        match at.checked_sub(1).map(|before| &mut self.extents[before]) {
            Some(before) if before.joins(&extent) && whole(before) => before.count += extent.count,
            _ => self.extents.insert(at, extent),
        }
    }

    /// Takes out what it has for `range`, `most` extents at the most.
    pub(crate) fn take(&mut self, range: Range<u64>, most: usize) -> Vec<Extent> {
        let (mut taken, mut rest) = (Vec::new(), Vec::new());
        for extent in self.extents.drain(..) {
            let inside = extent.offset < range.end && extent.end() > range.start;
            if !inside || taken.len() == most {
                rest.push(extent);
                continue;
            }
            if extent.offset < range.start {
                rest.push(part(&extent, extent.offset..range.start));
            }
            taken.push(part(&extent, range.clone()));
            if extent.end() > range.end {
                rest.push(part(&extent, range.end..extent.end()));
            }
        }
        self.extents = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use base::FsBlock;

    use super::*;

    #[test]
    fn staged_extents_are_joined_and_cut() {
        let extent = |offset, start, count| Extent {
            offset,
            start: FsBlock(start),
            count,
            unwritten: false,
        };
        let mut cow = CowFork::default();
        cow.insert(extent(10, 100, 5), None);
        cow.insert(extent(2, 50, 3), None);
        cow.insert(extent(15, 105, 5), None);
        assert_eq!(cow.extents, [extent(2, 50, 3), extent(10, 100, 10)]);
        let gaps = [0, 7, 20].map(|block| cow.gap_around(block));
        assert_eq!(gaps, [0..2, 5..10, 20..u64::MAX]);
        assert_eq!(cow.lookup(12..32).start, Some(FsBlock(102)));
        assert_eq!(cow.take(4..13, 9), [extent(4, 52, 1), extent(10, 100, 3)]);
        assert_eq!(cow.extents, [extent(2, 50, 2), extent(13, 103, 7)]);
        assert_eq!(cow.take(0..100, 1).len(), 1);
        assert!(!cow.is_empty());
    }
}
