//! The btrees of a group, as far as they can be followed.

use std::collections::BTreeSet;

use block::DeviceError;
use xfs::format::ag::{LEVELS_MAX, Root};
use xfs::format::btree::{Node, Shape};
use xfs::format::{AgBlock, At, Kind};

use super::Fs;

/// What a walk found.
#[derive(Default)]
pub struct Walked {
    /// All records, one behind the other.
    pub records: Vec<u8>,
    /// Every block could be read.
    pub whole: bool,
}

impl Walked {
    /// The records of a tree.
    pub fn list<T>(&self, kind: Kind, read: impl Fn(&[u8]) -> T) -> Vec<T> {
        self.records.chunks_exact(Shape::of(kind).record).map(read).collect()
    }
}

impl Fs<'_> {
    /// Reads a btree of a group from left to right, without what cannot be read.
    pub fn walk_tree(&mut self, ag: u32, kind: Kind, root: Root) -> Result<Walked, DeviceError> {
        let mut walked = Walked { whole: true, ..Walked::default() };
        if !(1..=LEVELS_MAX).contains(&root.levels) {
            return Ok(Walked::default());
        }
        let mut seen = BTreeSet::new();
        let mut todo = vec![(u64::from(root.block), root.levels as u16 - 1)];
        while let Some((block, level)) = todo.pop() {
            let inside = block >= u64::from(self.g.header_blocks())
                && block < u64::from(self.g.ag_length(ag));
            if !inside || !seen.insert(block) {
                walked.whole = false;
                continue;
            }
            let place = AgBlock { ag, block: block as u32 };
            let data = self.meta_ag(place, kind)?;
            let at = At::AgBlock(ag, place.block);
            let node = data.as_deref().map(|data| Node::parse_trusted(kind, data, Some(level), at));
            let Some(Ok(node)) = node else {
                walked.whole = false;
                continue;
            };
            if level == 0 {
                (0..node.len()).for_each(|index| walked.records.extend(node.record(index)));
            } else {
                todo.extend((0..node.len()).rev().map(|index| (node.pointer(index), level - 1)));
            }
        }
        Ok(walked)
    }
}
