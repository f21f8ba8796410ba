//! Reference counts: how many places in files refer to each block of a group.
//!
//! Blocks that two or more places share have a record with their number; blocks of one owner, and
//! free ones, have none. Extents that are in the *CoW fork* for copy on write, not yet in any
//! file's map, have records of a kind of their own, which come behind all others. Neighbours that
//! say the same are one record.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the reference count btree.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::{Agf, AllocRequest, Change, Space};
use crate::btree::{Store, Tree};
use crate::buf::BufMap;
use crate::error::{Result, XfsError};
use crate::format::log_item::RefcountOp;
use crate::format::record::{REFCOUNT_COW, Refcount, owner};
use crate::format::{AgBlock, At, Expect, FsExtent, Kind, Owner, Section};
use crate::trans::intent::Work;
use crate::trans::{Finished, Trans};

/// Records that one step changes at the most: a transaction has log space for that many.
const RECORDS_MAX: usize = 8;

/// The tree of a group. Its root is in the AGF, its blocks come from free space.
pub(super) struct RefcountTree<'a> {
    space: &'a Space,
    agf: &'a Agf,
}

impl RefcountTree<'_> {
    fn place(&self, block: u64) -> AgBlock {
        AgBlock { ag: self.agf.ag, block: block as u32 }
    }

    fn count(&self, trans: &mut Trans, change: i32) {
        self.agf.edit(trans, |raw| {
            let count = &mut raw.agf_refcount_blocks;
            count.set(count.get().wrapping_add_signed(change));
        });
    }
}

impl Store for RefcountTree<'_> {
    fn kind(&self) -> Kind {
        Kind::Refcount
    }

    fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    fn root(&self) -> (u64, u32) {
        let root = self.agf.with(|raw| raw.refcount());
        (u64::from(root.block), root.levels)
    }

    fn set_root(&mut self, trans: &mut Trans, block: u64, levels: u32) {
        self.agf.edit(trans, |raw| {
            raw.agf_refcount_root.set(block as u32);
            raw.agf_refcount_level.set(levels);
        });
    }

    fn map(&self, block: u64) -> BufMap {
        self.space.block_map(self.place(block))
    }

    fn expect(&self, block: u64) -> Expect {
        self.space.geometry.expect_ag(self.place(block))
    }

    fn at(&self, block: u64) -> At {
        At::AgBlock(self.agf.ag, block as u32)
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64) -> Result<u64> {
        let want = AllocRequest::block(self.place(near), Owner::special(owner::REFC));
        let found = self.space.allocate_metadata(cx, trans, &want)?;
        self.count(trans, 1);
        Ok(u64::from(found.start.block))
    }

    fn free(&mut self, _cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()> {
        self.count(trans, -1);
        let start = self.space.geometry.join(self.place(block)).0;
        trans.defer(Work::free(start, 1, Some(Owner::special(owner::REFC))));
        Ok(())
    }
}

fn bytes(record: &Refcount) -> [u8; 12] {
    let mut data = [0; 12];
    record.write(&mut data);
    data
}

fn order(record: &Refcount) -> [u64; 3] {
    [u64::from(record.key()), 0, 0]
}

/// What a change of a range of blocks leaves: the records that stand in the place of the old ones,
/// and the blocks that nobody refers to any more.
#[derive(Default, PartialEq, Eq, Debug)]
struct ChangedCounts {
    records: Vec<Refcount>,
    free: Vec<Range<u32>>,
}

impl ChangedCounts {
    fn keep(&mut self, start: u32, len: u32, like: &Refcount) {
        Refcount { start, len, ..*like }.append_to(&mut self.records);
    }

    /// Blocks that had so many references have one more or one less.
    fn shift(&mut self, start: u32, len: u32, refs: u32, up: bool) {
        let refs = match (refs, up) {
            // As many as a record can hold: nobody knows how many there are.
            (u32::MAX, _) => u32::MAX,
            (refs, true) => refs + 1,
            (refs, false) => refs - 1,
        };
        match refs {
            0 => match self.free.last_mut() {
                Some(last) if last.end == start => last.end += len,
                _ => self.free.push(start..start + len),
            },
            1 => {}
            _ => Refcount { start, cow: false, len, refs }.append_to(&mut self.records),
        }
    }

    /// Adds or takes one reference in a range. `old` holds the records in the range and those that
    /// touch it, in order.
    fn of_shift(old: &[Refcount], blocks: &Range<u32>, up: bool) -> ChangedCounts {
        let Range { start, end } = *blocks;
        let (mut changed, mut at) = (ChangedCounts::default(), start);
        for record in old {
            let behind = record.start + record.len;
            if record.start < start {
                changed.keep(record.start, behind.min(start) - record.start, record);
            }
            let (from, to) = (record.start.max(start), behind.min(end));
            if from < to {
                changed.gap(&mut at, from, up);
                changed.shift(from, to - from, record.refs, up);
                at = to;
            }
            if behind > end {
                changed.gap(&mut at, end, up);
                let from = record.start.max(end);
                changed.keep(from, behind - from, record);
            }
        }
        changed.gap(&mut at, end, up);
        changed
    }

    /// Blocks without a record have one reference.
    fn gap(&mut self, at: &mut u32, upto: u32, up: bool) {
        if *at < upto {
            self.shift(*at, upto - *at, 1, up);
            *at = upto;
        }
    }
}

/// What one step has done.
pub(super) struct StepDone {
    /// Blocks, at least one.
    pub len: u32,
    /// Those to which nobody refers any more.
    pub free: Vec<Range<u32>>,
}

/// Reference counts of a group, or of a group of the realtime section.
impl<S: Store> Tree<'_, S> {
    /// The records of a kind that have a block in a range or touch it, in order, `most` at the
    /// most.
    pub(super) fn counts(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        cow: bool,
        blocks: &Range<u32>,
        most: usize,
    ) -> Result<Vec<Refcount>> {
        let Range { start, end } = *blocks;
        let flag = if cow { REFCOUNT_COW } else { 0 };
        // From the one before: it may end where the range begins.
        let first = [u64::from(start | flag).saturating_sub(1), 0, 0];
        let mut cursor = match self.find_le(cx, trans, first)? {
            Some(cursor) => Some(cursor),
            None => self.find_ge(cx, trans, first)?,
        };
        let mut found = Vec::new();
        while let Some(at) = &mut cursor {
            let record = Refcount::read(&self.record(at));
            if record.key() > end | flag || found.len() == most {
                break;
            }
            let behind = record.start.saturating_add(record.len);
            if record.cow == cow && behind >= start {
                found.push(record);
            }
            if !self.next(cx, trans, at)? {
                break;
            }
        }
        Ok(found)
    }

    /// Puts records in the place of others, of the same blocks and their neighbours.
    fn replace_counts(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        Change { old, new }: Change<&[Refcount]>,
    ) -> Result<()> {
        for record in old.iter().filter(|old| new.iter().all(|new| new.key() != old.key())) {
            match self.find(cx, trans, order(record))? {
                Some(cursor) => self.delete(cx, trans, cursor)?,
                None => return Err(self.broken("a record vanished")),
            }
        }
        for record in new {
            match old.iter().find(|old| old.key() == record.key()) {
                Some(same) if same == record => {}
                Some(_) => match self.find(cx, trans, order(record))? {
                    Some(cursor) => self.update(trans, &cursor, &bytes(record)),
                    None => return Err(self.broken("a record vanished")),
                },
                None => self.insert(cx, trans, &bytes(record))?,
            }
        }
        Ok(())
    }

    /// One reference more (`up`) or less for blocks in use.
    fn shift_counts(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        mut blocks: Range<u32>,
        up: bool,
    ) -> Result<StepDone> {
        let mut old = self.counts(cx, trans, false, &blocks, RECORDS_MAX + 1)?;
        if old.len() > RECORDS_MAX {
            // The last is a neighbour only: a change is joined with what lies behind it.
            old.truncate(RECORDS_MAX);
            blocks.end = old[RECORDS_MAX - 1].start;
        }
        let new = ChangedCounts::of_shift(&old, &blocks, up);
        self.replace_counts(cx, trans, Change { old: &old, new: &new.records })?;
        Ok(StepDone { len: blocks.end - blocks.start, free: new.free })
    }

    /// Notes that blocks are in a CoW fork, or no longer.
    fn change_cow_counts(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        blocks: Range<u32>,
        allocate: bool,
    ) -> Result<StepDone> {
        let old = self.counts(cx, trans, true, &blocks, usize::MAX)?;
        let Range { start, end } = blocks;
        let blocks = |record: &Refcount| {
            let behind = record.start + record.len;
            behind.min(end).saturating_sub(record.start.max(start))
        };
        let known: u32 = old.iter().map(blocks).sum();
        if known != if allocate { 0 } else { end - start } {
            return Err(self.broken("CoW blocks differ"));
        }
        let mut new = Vec::new();
        let mut add = |start: u32, end: u32| {
            if start < end {
                Refcount { start, cow: true, len: end - start, refs: 1 }.append_to(&mut new);
            }
        };
        for record in old.iter().filter(|record| record.start < start) {
            add(record.start, (record.start + record.len).min(start));
        }
        if allocate {
            add(start, end);
        }
        for record in old.iter().filter(|record| record.start + record.len > end) {
            add(record.start.max(end), record.start + record.len);
        }
        self.replace_counts(cx, trans, Change { old: &old, new: &new })?;
        Ok(StepDone { len: end - start, free: Vec::new() })
    }

    /// Carries out deferred work, as the log holds it: an operation. Blocks without a reference
    /// are the caller's to free.
    pub(super) fn change_counts(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        flags: u32,
        blocks: Range<u32>,
    ) -> Result<StepDone> {
        match RefcountOp::from_flags(flags) {
            Some(RefcountOp::Increase) => self.shift_counts(cx, trans, blocks, true),
            Some(RefcountOp::Decrease) => self.shift_counts(cx, trans, blocks, false),
            Some(RefcountOp::AllocCow) => self.change_cow_counts(cx, trans, blocks, true),
            Some(RefcountOp::FreeCow) => self.change_cow_counts(cx, trans, blocks, false),
            None => Err(self.broken("an operation is not known")),
        }
    }

    /// The runs of some blocks that others share, counted from the first one, in order.
    pub(super) fn shared_runs(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        blocks: Range<u32>,
    ) -> Result<Vec<Range<u32>>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for record in self.counts(cx, trans, false, &blocks, usize::MAX)? {
            let from = record.start.max(blocks.start);
            let to = (record.start + record.len).min(blocks.end);
            let run = from.wrapping_sub(blocks.start)..to.wrapping_sub(blocks.start);
            match runs.last_mut() {
                _ if from >= to => {}
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// The first extents below a block that are in a CoW fork, eight at the most.
    pub(super) fn cow_extents(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        end: u32,
    ) -> Result<Vec<Refcount>> {
        self.counts(cx, trans, true, &(0..end), RECORDS_MAX)
    }
}

impl Space {
    pub(super) fn refcounts<'a>(&'a self, agf: &'a Agf) -> RefcountTree<'a> {
        RefcountTree { space: self, agf }
    }

    /// Carries out deferred work on reference counts, as the log holds it: an operation.
    pub(super) fn finish_refcount(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        flags: u32,
        extent: FsExtent,
    ) -> Result<Finished> {
        if !self.geometry.features.reflink() {
            return Err(XfsError::Answer(Errno::EOPNOTSUPP));
        }
        let checked = self.checked(extent)?;
        let agf = self.lock(cx, trans, checked.start.ag)?;
        self.fill_list(cx, trans, &agf)?;
        let mut store = self.refcounts(&agf);
        let done = Tree::new(&mut store).change_counts(cx, trans, flags, checked.blocks())?;
        for free in &done.free {
            let start = self.geometry.join(AgBlock { ag: agf.ag, block: free.start }).0;
            trans.defer(Work::free(start, free.end - free.start, None));
        }
        self.note(&agf);
        Ok(done.finished(Section::Data, flags, extent))
    }

    /// The runs of an extent's blocks that others share, counted from the start of the extent, in
    /// order. Locks the group's AGF, or the realtime section, for the transaction. May park.
    ///
    /// # Errors
    /// A tree that is wrong; the device failed.
    pub(crate) fn shared_runs(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        section: Section,
        extent: FsExtent,
    ) -> Result<Vec<Range<u32>>> {
        if !self.geometry.features.reflink() {
            return Ok(Vec::new());
        }
        if section == Section::Realtime {
            return self.shared_realtime_runs(cx, trans, extent);
        }
        let extent = self.checked(extent)?;
        let agf = self.lock(cx, trans, extent.start.ag)?;
        Tree::new(&mut self.refcounts(&agf)).shared_runs(cx, trans, extent.blocks())
    }

    /// The first extents of a group that are in a CoW fork, eight at the most. Locks
    /// the group's AGF for the transaction. May park.
    pub(super) fn cow_extents(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        ag: u32,
    ) -> Result<Vec<Refcount>> {
        let agf = self.lock(cx, trans, ag)?;
        let end = self.geometry.ag_length(ag);
        Tree::new(&mut self.refcounts(&agf)).cow_extents(cx, trans, end)
    }
}

impl StepDone {
    /// How far the work on an extent came.
    pub fn finished(&self, section: Section, flags: u32, extent: FsExtent) -> Finished {
        if self.len == extent.len {
            return Finished::Done;
        }
        let (start, len) = (extent.start.0 + u64::from(self.len), extent.len - self.len);
        Finished::Again(Work::Refcount { section, flags, start, len })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(start: u32, len: u32, refs: u32) -> Refcount {
        Refcount { start, cow: false, len, refs }
    }

    /// The records of an array of counts.
    fn records_of(counts: &[u32]) -> Vec<Refcount> {
        let mut list = Vec::new();
        for (block, &refs) in counts.iter().enumerate().filter(|(_, refs)| **refs > 1) {
            record(block as u32, 1, refs).append_to(&mut list);
        }
        list
    }

    proptest! {
        /// Records beside an array of counts: every block in the range is shifted, none else is,
        /// and neighbours that are equal are joined.
        #[test]
        fn ranges_are_shifted_like_an_array(
            counts in prop::collection::vec(1u32..4, 40),
            start in 1u32..39,
            len in 1u32..30,
            up in any::<bool>(),
        ) {
            let end = (start + len).min(39);
            let touches = |r: &Refcount| r.start <= end && r.start + r.len >= start;
            let all = records_of(&counts);
            let old: Vec<_> = all.iter().copied().filter(touches).collect();
            let changed = ChangedCounts::of_shift(&old, &(start..end), up);
            let mut after = counts.clone();
            for count in &mut after[start as usize..end as usize] {
                *count = if up { *count + 1 } else { *count - 1 };
            }
            let mut free = Vec::new();
            for (block, _) in after.iter().enumerate().filter(|(_, refs)| **refs == 0) {
                free.push(block as u32);
            }
            let found: Vec<u32> = changed.free.iter().cloned().flatten().collect();
            prop_assert_eq!(found, free);
            let rest = all.into_iter().filter(|r| !touches(r));
            let mut joined: Vec<_> = rest.chain(changed.records).collect();
            joined.sort_by_key(|r| r.start);
            prop_assert_eq!(joined, records_of(&after));
        }
    }

    #[test]
    fn a_full_count_stays_full() {
        let old = [record(10, 5, u32::MAX)];
        for up in [false, true] {
            let changed = ChangedCounts::of_shift(&old, &(10..15), up);
            assert_eq!(changed, ChangedCounts { records: old.to_vec(), free: Vec::new() });
        }
    }
}
