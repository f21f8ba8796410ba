//! Which free extent an allocation takes.
//!
//! Near the goal if there is one in this group: the extent that holds it, else the next ones on
//! both sides. Otherwise the shortest extent that is long enough, the one with the lowest address
//! of these; where none is, the longest.

use std::ops::Range;

use rt::Cx;

use super::store::AgfTree;
use super::{Agf, AllocRequest, Attempt, Space};
use crate::btree::{Cursor, Tree};
use crate::error::Result;
use crate::format::record::{FreeExtent, owner};
use crate::format::{AgBlock, AgExtent};
use crate::trans::Trans;

/// Extents on each side of the goal that are looked at, and those of a length.
const NEAR_MAX: usize = 16;
const SIZES_MAX: usize = 64;

/// The outcome of a search in one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FoundExtent {
    At(AgExtent),
    /// Nothing but what is busy.
    OnlyBusy,
    Nothing,
}

/// The best piece so far.
struct Search<'a> {
    ag: u32,
    want: &'a AllocRequest,
    min_len: u32,
    /// Blocks that may be taken at the most, so that the group keeps its reserve.
    limit: u32,
    /// Blocks of the group that will do.
    range: Range<u32>,
    best: Option<FreeExtent>,
    takes_busy: bool,
    busy: bool,
}

/// The first blocks in a range of a group that a list of extents has.
fn first_of(list: &[AgExtent], ag: u32, range: &Range<u32>) -> Option<Range<u32>> {
    let own = list.iter().filter(|extent| extent.start.ag == ag).map(AgExtent::blocks);
    let hits = own.filter(|blocks| blocks.start < range.end && blocks.end > range.start);
    hits.min_by_key(|blocks| (blocks.start, blocks.end))
}

/// The first blocks in a range of a group that were freed by this transaction or by a checkpoint
/// that is not on the device.
pub(super) fn first_busy(trans: &Trans, ag: u32, range: &Range<u32>) -> Option<Range<u32>> {
    let own = first_of(trans.freed(), ag, range);
    let others = trans.log().busy.lock_irq().first(ag, range);
    own.into_iter().chain(others).min_by_key(|blocks| (blocks.start, blocks.end))
}

impl Search<'_> {
    fn most(&self) -> u32 {
        self.want.max_len.min(self.limit)
    }

    fn satisfied(&self) -> bool {
        self.best.is_some_and(|best| best.len >= self.most())
    }

    /// Looks at free blocks, from `from` on.
    fn consider(&mut self, trans: &Trans, free: FreeExtent, from: u32) {
        let mut at = free.start.max(from).max(self.range.start);
        let end = (free.start + free.len).min(self.range.end);
        while at < end && !self.satisfied() {
            let busy = match self.takes_busy {
                true => None,
                false => first_busy(trans, self.ag, &(at..end)),
            };
            let stop = busy.as_ref().map_or(end, |busy| busy.start.max(at));
            let first = at.next_multiple_of(self.want.align);
            if first < stop {
                let len = (stop - first).min(self.most());
                if len >= self.min_len && self.best.is_none_or(|best| len > best.len) {
                    self.best = Some(FreeExtent { start: first, len });
                }
            }
            self.busy |= busy.is_some();
            at = busy.map_or(end, |busy| busy.end);
        }
    }

    fn found(&self) -> FoundExtent {
        match self.best {
            Some(FreeExtent { start: block, len }) => {
                FoundExtent::At(AgExtent { start: AgBlock { ag: self.ag, block }, len })
            }
            None if self.busy => FoundExtent::OnlyBusy,
            None => FoundExtent::Nothing,
        }
    }
}

/// Shows up to `most` free extents from the cursor on, forward or backward, while `look` wants
/// more.
fn scan(
    cx: &mut Cx,
    trans: &mut Trans,
    tree: &mut Tree<'_, AgfTree<'_>>,
    cursor: Option<Cursor>,
    forward: bool,
    most: usize,
    look: &mut dyn FnMut(&Trans, FreeExtent) -> bool,
) -> Result<()> {
    let Some(mut cursor) = cursor else { return Ok(()) };
    for _ in 0..most {
        let more = look(trans, FreeExtent::read(&tree.record(&cursor)));
        let moved = more
            && match forward {
                true => tree.next(cx, trans, &mut cursor)?,
                false => tree.prev(cx, trans, &mut cursor)?,
            };
        if !moved {
            break;
        }
    }
    Ok(())
}

impl Space {
    /// An extent that is long enough, as near to what is wanted as this group has it.
    pub(super) fn pick(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        attempt: &Attempt<'_>,
    ) -> Result<FoundExtent> {
        let Attempt { want, min_len, keep_reserve } = *attempt;
        let kept = if want.metadata || !keep_reserve { 0 } else { self.reserve_of(agf) };
        let limit = agf.free().saturating_sub(kept);
        if limit < min_len {
            return Ok(FoundExtent::Nothing);
        }
        let range = self.range_for(agf.ag, want);
        let takes_busy = want.metadata && (want.max_len == 1 || !keep_reserve);
        let ag = agf.ag;
        let mut search =
            Search { ag, want, min_len, limit, range, best: None, takes_busy, busy: false };
        if want.goal.ag == agf.ag && want.goal.block > 0 {
            self.near(cx, trans, agf, &mut search)?;
            if search.best.is_some() {
                return Ok(search.found());
            }
        }
        self.long_enough(cx, trans, agf, &mut search)?;
        if search.best.is_none() {
            self.longest(cx, trans, agf, &mut search)?;
        }
        Ok(search.found())
    }

    /// Where in a group an extent may lie: a part of a chunk of inodes only where the whole chunk,
    /// which its record describes, lies within the group behind the headers.
    fn range_for(&self, ag: u32, want: &AllocRequest) -> Range<u32> {
        let (length, chunk) = (self.geometry.ag_length(ag), self.geometry.chunks.blocks);
        let inodes = want.owner.is_some_and(|owner| owner.owner == owner::INODES);
        match inodes && self.geometry.features.sparse() {
            true => chunk..length - length % chunk,
            false => 0..length,
        }
    }

    /// Looks around the goal.
    fn near(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        search: &mut Search<'_>,
    ) -> Result<()> {
        let goal = search.want.goal.block;
        let mut store = self.by_block(agf);
        let mut tree = Tree::new(&mut store);
        let order = [u64::from(goal), 0, 0];
        let below = tree.find_le(cx, trans, order)?;
        if let Some(cursor) = &below {
            let extent = FreeExtent::read(&tree.record(cursor));
            search.consider(trans, extent, goal);
            if search.satisfied() {
                return Ok(());
            }
        }
        let above = tree.find_ge(cx, trans, [order[0] + 1, 0, 0])?;
        for (cursor, forward) in [(above, true), (below, false)] {
            scan(cx, trans, &mut tree, cursor, forward, NEAR_MAX, &mut |trans, extent| {
                search.consider(trans, extent, 0);
                !search.satisfied()
            })?;
            if search.satisfied() {
                break;
            }
        }
        Ok(())
    }

    /// Looks at the shortest extents that are long enough.
    fn long_enough(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        search: &mut Search<'_>,
    ) -> Result<()> {
        let mut store = self.by_size(agf);
        let mut tree = Tree::new(&mut store);
        let order = [u64::from(search.most()), 0, 0];
        let cursor = tree.find_ge(cx, trans, order)?;
        scan(cx, trans, &mut tree, cursor, true, SIZES_MAX, &mut |trans, extent| {
            search.consider(trans, extent, 0);
            !search.satisfied()
        })
    }

    /// Looks at the longest extents, as long as they are long enough for the least.
    fn longest(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        search: &mut Search<'_>,
    ) -> Result<()> {
        let mut store = self.by_size(agf);
        let mut tree = Tree::new(&mut store);
        let cursor = tree.find_le(cx, trans, [u64::MAX; 3])?;
        scan(cx, trans, &mut tree, cursor, false, SIZES_MAX, &mut |trans, extent| {
            let hopeless = extent.len < search.min_len
                || search.best.is_some_and(|best| extent.len <= best.len);
            if !hopeless {
                search.consider(trans, extent, 0);
            }
            !hopeless && !search.satisfied()
        })
    }
}
