//! Extents that were freed by checkpoints that are not on the device yet.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::format::AgExtent;

/// Freed extents by group and block, with the checkpoint that frees them. They do not overlap, and
/// neighbours of one checkpoint are joined: a search of free space passes them in few steps.
#[derive(Default)]
pub(crate) struct Busy {
    extents: BTreeMap<(u32, u32), (u32, u64)>,
}

impl Busy {
    /// Extents were freed in checkpoint `seq`.
    pub fn add(&mut self, freed: &[AgExtent], seq: u64) {
        freed.iter().for_each(|extent| self.add_one(extent, seq));
    }

    fn add_one(&mut self, extent: &AgExtent, seq: u64) {
        let (ag, Range { mut start, mut end }) = (extent.start.ag, extent.blocks());
        let below = self.extents.range((ag, 0)..=(ag, end)).rev();
        let near = below.map(|(&(_, at), &(len, seq))| (at, at + len, seq));
        let near: SmallVec<[_; 4]> = near.take_while(|&(_, behind, _)| behind >= start).collect();
        for (at, behind, other) in near {
            if other == seq {
                self.extents.remove(&(ag, at));
                (start, end) = (start.min(at), end.max(behind));
            } else if at < end && behind > start {
                // Metadata took it, and it was freed again.
                self.extents.remove(&(ag, at));
                for (from, to) in [(at, start.min(behind)), (end.max(at), behind)] {
                    if from < to {
                        self.extents.insert((ag, from), (to - from, other));
                    }
                }
            }
        }
        self.extents.insert((ag, start), (end - start, seq));
    }

    /// Forgets what is on the device up to checkpoint `done`.
    pub fn clear(&mut self, done: u64) {
        self.extents.retain(|_, &mut (_, seq)| seq > done);
    }

    /// The first busy blocks in a range of a group.
    pub fn first(&self, ag: u32, range: &Range<u32>) -> Option<Range<u32>> {
        let Range { start, end } = *range;
        let run = |(&(_, block), &(len, _)): (&(u32, u32), &(u32, u64))| block..block + len;
        let below = self.extents.range((ag, 0)..=(ag, start)).next_back().map(run);
        let hit = below.filter(|blocks| blocks.end > start);
        hit.or_else(|| self.extents.range((ag, start)..(ag, end)).next().map(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::AgBlock;

    /// Goal: what is busy, and for how long, is what a list of blocks says, and neighbours are one
    /// extent. Method: random extents of growing checkpoints beside an array of blocks.
    #[test]
    fn extents_behave_like_single_blocks() {
        const BLOCKS: u32 = 400;
        let mut rng = base::Rng::new(5, 5);
        let (mut busy, mut blocks) = (Busy::default(), [0u64; BLOCKS as usize]);
        for step in 0..4000u64 {
            let seq = step / 20 + 1;
            let block = rng.below(u64::from(BLOCKS) - 10) as u32;
            let len = 1 + rng.below(10) as u32;
            busy.add(&[AgExtent { start: AgBlock { ag: 1, block }, len }], seq);
            blocks[block as usize..(block + len) as usize].fill(seq);
            if step % 50 == 0 {
                let done = seq - rng.below(4).min(seq);
                busy.clear(done);
                blocks.iter_mut().filter(|at| **at <= done).for_each(|at| *at = 0);
            }
            for (&(ag, start), &(len, seq)) in &busy.extents {
                let own = &blocks[start as usize..(start + len) as usize];
                assert!(ag == 1 && own.iter().all(|&at| at == seq));
                let next = blocks.get((start + len) as usize);
                assert!(next.is_none_or(|&next| next != seq), "neighbours are joined");
            }
            let (start, end) = (block.saturating_sub(20), block + 10);
            let want = (start..end).find(|&at| blocks[at as usize] > 0);
            let found = busy.first(1, &(start..end));
            assert_eq!(found.map(|found| found.start.max(start)), want);
            assert_eq!((busy.first(0, &(0..BLOCKS)), busy.first(2, &(0..BLOCKS))), (None, None));
        }
    }
}
