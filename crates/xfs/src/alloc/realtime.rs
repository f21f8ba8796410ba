//! Space of the realtime section: extents of a fixed length, given to the content of files.
//!
//! Two files on the data device hold it: a *bitmap* with a bit for each extent, set where it is
//! free, and a *summary* that counts the runs of free extents, by the power of two of their length
//! and by the block of the bitmap in which they begin. Their blocks go through the log like other
//! metadata, together with the map of the file and the superblock's counter of free extents. No
//! intents: an extent is free, or a file's, in one transaction; but where the section has btrees
//! ([`super::realtime_trees`]) these follow by intents, and the bitmap comes last.
//!
//! A section in *groups* has both files for each of them, and no run of extents lies in two groups.
//! Here extents are counted from the start of the section all the same.
//!
//! In memory all runs of free extents are kept in order, so that a search does not read the bitmap:
//! memory grows with the number of runs.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on realtime devices.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, Ino, bitmap};
use rt::{Cx, SpinLock};
use smallvec::{SmallVec, smallvec};

use super::Space;
use super::pick::first_busy;
use super::realtime_runs::{FreeRuns, Picked, Run};
use super::realtime_trees::GroupTrees;
use super::super_block::log_super;
use crate::buf::{Buf, BufMap, BufOps};
use crate::error::{Result, XfsError};
use crate::format::{
    AgBlock, AgExtent, At, CorruptKind, FsExtent, Kind, RealtimeShape, RealtimeWords, Section,
    verifier,
};
use crate::log::buf_item::BufItemFlags;
use crate::log::inode_item::InodeItem;
use crate::trans::intent::Work;
use crate::trans::reservations::BITMAP_BLOCKS_AT_ONCE;
use crate::trans::{Finished, Trans};

static BITMAP: BufOps =
    BufOps { name: "realtime bitmap", kinds: &[], check: None, unmapped: false };
static SUMMARY: BufOps =
    BufOps { name: "realtime summary", kinds: &[], check: None, unmapped: false };
static GROUP_BITMAP: BufOps = BufOps {
    name: "realtime bitmap",
    kinds: &[Kind::RealtimeBitmap],
    check: None,
    unmapped: false,
};
static GROUP_SUMMARY: BufOps = BufOps {
    name: "realtime summary",
    kinds: &[Kind::RealtimeSummary],
    check: None,
    unmapped: false,
};
/// Groups from this number on are not of the device, but stand for extents of the realtime section
/// on the list of busy ones.
const BUSY_GROUPS: u32 = 1 << 31;
/// Bits of an extent's number that are its place in such a group.
const BUSY_BITS: u32 = 31;

/// The files of a realtime section, or of one of its groups.
pub(crate) struct RealtimeFiles {
    /// Their inodes.
    pub inos: [Ino; 2],
    /// Blocks of the bitmap.
    pub bitmap: Vec<FsBlock>,
    /// Blocks of the summary.
    pub summary: Vec<FsBlock>,
    /// Its btrees.
    pub trees: GroupTrees,
}

/// The free space of a realtime section.
pub(crate) struct Realtime {
    shape: RealtimeShape,
    words: RealtimeWords,
    /// Of each group; of one where the section is not divided.
    groups: Vec<RealtimeFiles>,
    /// The item of the first bitmap's inode.
    lock: Arc<InodeItem>,
    free: SpinLock<FreeRuns>,
}

/// What an allocation asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealtimeRequest {
    /// The extent where it should begin.
    pub goal: Option<u64>,
    /// Extents at the most, from 1.
    pub most: u64,
}

/// Busy extents are known by groups and blocks.
fn busy_extents(run: &Run) -> impl Iterator<Item = AgExtent> + use<> {
    let Range { mut start, end } = *run;
    std::iter::from_fn(move || {
        let mask = (1 << BUSY_BITS) - 1;
        let stop = end.min((start | mask) + 1);
        (start < end).then(|| {
            let ag = BUSY_GROUPS + (start >> BUSY_BITS) as u32;
            let extent = AgExtent {
                start: AgBlock { ag, block: (start & mask) as u32 },
                len: (stop - start) as u32,
            };
            start = stop;
            extent
        })
    })
}

/// The first extents of a run that were freed by a checkpoint which is not on the device.
fn busy_in(trans: &Trans, run: &Run) -> Option<Run> {
    busy_extents(run).find_map(|extent| {
        let base = u64::from(extent.start.ag - BUSY_GROUPS) << BUSY_BITS;
        let found = first_busy(trans, extent.start.ag, &extent.blocks())?;
        Some(base + u64::from(found.start)..base + u64::from(found.end))
    })
}

impl Realtime {
    /// Reads the bitmaps, and compares them with the summaries. `lock` is the item of the first
    /// bitmap's inode. May park.
    ///
    /// # Errors
    /// They differ; a block that fails a check; the device failed.
    pub fn open(
        cx: &mut Cx,
        space: &Space,
        groups: Vec<RealtimeFiles>,
        lock: Arc<InodeItem>,
    ) -> Result<Realtime> {
        let shape = space.geometry.realtime;
        let free = SpinLock::named("free realtime extents", FreeRuns::default());
        let words = shape.words(space.geometry.block_size);
        let realtime = Realtime { shape, words, groups, lock, free };
        let size = shape.groups.map_or(0, |groups| u64::from(groups.extents));
        let mut runs = FreeRuns::new(size);
        for group in 0..shape.group_count() {
            realtime.read_bitmap(cx, space, group, &mut runs)?;
            realtime.compare_summary(cx, space, group, &runs)?;
        }
        *realtime.free.lock(cx) = runs;
        Ok(realtime)
    }

    /// Adds the free extents of a group behind those that are known.
    fn read_bitmap(
        &self,
        cx: &mut Cx,
        space: &Space,
        group: u32,
        runs: &mut FreeRuns,
    ) -> Result<()> {
        let (bits, Range { start, end }) = (self.words.bits(), self.shape.extents_of(group));
        let files = &self.groups[group as usize];
        for (index, &block) in files.bitmap.iter().enumerate() {
            let first = start + index as u64 * bits;
            if first >= end {
                break;
            }
            let map = space.block_map(space.split(block));
            let buf = space.log.bufs().read(cx, &[map], self.bitmap_ops())?;
            self.verify_owner(space, &buf, Kind::RealtimeBitmap, files.inos[0])?;
            buf.with(|bytes| {
                runs.append_set(&self.words.bits_of(bytes), first..end.min(first + bits));
            });
        }
        Ok(())
    }

    /// Blocks of groups say where they lie and whose they are.
    fn verify_owner(&self, space: &Space, buf: &Buf, kind: Kind, ino: Ino) -> Result<()> {
        if self.shape.groups.is_some() {
            let expect = space.geometry.expect(buf.maps()[0].daddr, Some(ino.0));
            buf.with(|bytes| verifier::verify_identity(kind, bytes, &expect, At::Inode(ino)))?;
        }
        Ok(())
    }

    fn bitmap_ops(&self) -> &'static BufOps {
        if self.shape.groups.is_some() { &GROUP_BITMAP } else { &BITMAP }
    }

    fn summary_ops(&self) -> &'static BufOps {
        if self.shape.groups.is_some() { &GROUP_SUMMARY } else { &SUMMARY }
    }

    /// The group of an extent, and the extent's number in it.
    fn split(&self, extent: u64) -> (u32, u64) {
        let size = self.shape.group_extents().max(1);
        ((extent / size) as u32, extent % size)
    }

    fn compare_summary(
        &self,
        cx: &mut Cx,
        space: &Space,
        group: u32,
        runs: &FreeRuns,
    ) -> Result<()> {
        let (words, all) = (self.words.per_block(), self.shape.extents_of(group));
        let mut wanted = BTreeMap::new();
        for run in runs.iter_from(all.start) {
            *wanted.entry(self.summary_index(&run)).or_insert(0u32) += 1;
        }
        let files = &self.groups[group as usize];
        let row = u64::from(self.shape.bitmap_blocks);
        let total = u64::from(self.shape.levels()) * row;
        for block in 0..total.div_ceil(words) {
            let map = self.summary_map(space, group, block);
            let buf = space.log.bufs().read(cx, &[map], self.summary_ops())?;
            self.verify_owner(space, &buf, Kind::RealtimeSummary, files.inos[1])?;
            let here = words.min(total - block * words);
            let wrong = buf.with(|bytes| {
                (0..here).find(|&word| {
                    let count = self.words.get(bytes, word as usize);
                    count != wanted.remove(&(block * words + word)).unwrap_or(0)
                })
            });
            if let Some(word) = wrong {
                let index = block * words + word;
                let start = all.start + index % row * self.words.bits();
                let kind = CorruptKind::RealtimeSummary { start, len: 1 << (index / row) };
                return Err(kind.at(At::Inode(files.inos[1])).into());
            }
        }
        Ok(())
    }

    fn summary_map(&self, space: &Space, group: u32, block: u64) -> BufMap {
        space.block_map(space.split(self.groups[group as usize].summary[block as usize]))
    }

    /// The word of its group's summary that counts a run.
    fn summary_index(&self, run: &Run) -> u64 {
        let level = u64::from((run.end - run.start).ilog2());
        level * u64::from(self.shape.bitmap_blocks) + self.split(run.start).1 / self.words.bits()
    }

    /// The btrees of a group.
    pub(super) fn trees(&self, group: u32) -> &GroupTrees {
        &self.groups[group as usize].trees
    }

    /// Blocks that all btrees have.
    pub(super) fn tree_blocks(&self) -> u64 {
        self.groups.iter().map(|group| group.trees.blocks()).sum()
    }

    /// Free extents.
    pub fn available(&self) -> u64 {
        self.free.lock_irq().total()
    }

    /// Extents that a transaction changes in one run at the most.
    pub fn run_max(&self) -> u64 {
        u64::from(BITMAP_BLOCKS_AT_ONCE) * self.words.bits()
    }

    /// Takes the space for the transaction, until it ends: before any buffer is locked, after the
    /// file's inode. May park.
    pub fn join(&self, cx: &mut Cx, trans: &mut Trans) {
        trans.join_inode(cx, &self.lock);
    }

    /// Takes a run of extents, as long as is wanted where there is one, else the longest; none if
    /// no extent is free. The transaction has joined the space. May park.
    ///
    /// # Errors
    /// The bitmap or the summary says something else; the device failed.
    pub fn allocate(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        want: RealtimeRequest,
    ) -> Result<Option<Run>> {
        let most = want.most.min(self.run_max());
        let want = RealtimeRequest { most, ..want };
        let mut found = self.free.lock(cx).pick(&want, |run| busy_in(trans, run));
        if matches!(found, Picked::OnlyBusy) {
            space.log.force(cx)?;
            found = self.free.lock(cx).pick(&want, |run| busy_in(trans, run));
        }
        let Picked::At(run) = found else { return Ok(None) };
        let (whole, rest) = self.free.lock(cx).take(&run);
        let change =
            RunChange { bits: run.clone(), free: false, gone: smallvec![whole], new: rest };
        self.apply(cx, trans, space, &change)?;
        Ok(Some(run))
    }

    /// Gives blocks back, which are whole extents, at most [`Realtime::run_max`]. The transaction
    /// has joined the space. May park.
    ///
    /// # Errors
    /// As [`Realtime::allocate`].
    pub fn release(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        blocks: FsExtent,
    ) -> Result<()> {
        let start = self.shape.extent_of(blocks.start);
        let run = start..start + u64::from(blocks.len) / u64::from(self.shape.extent_blocks);
        let given = self.free.lock(cx).give(&run);
        let Some((gone, joined)) = given else {
            return Err(self.wrong_bits(&run, "free"));
        };
        let new = smallvec![joined];
        self.apply(cx, trans, space, &RunChange { bits: run.clone(), free: true, gone, new })?;
        busy_extents(&run).for_each(|extent| trans.free_busy(extent));
        Ok(())
    }

    /// Brings bitmap, summary and superblock in step with the runs in memory.
    fn apply(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        change: &RunChange,
    ) -> Result<()> {
        let done = self.apply_all(cx, trans, space, change);
        if done.is_err() {
            // What is in memory is not what is on the disk any more.
            space.log.force_shutdown("the realtime bitmap and summary cannot be changed");
        }
        done
    }

    fn apply_all(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        change: &RunChange,
    ) -> Result<()> {
        self.set_bits(cx, trans, space, &change.bits, change.free)?;
        for run in &change.gone {
            self.count(cx, trans, space, run, false)?;
        }
        for run in &change.new {
            self.count(cx, trans, space, run, true)?;
        }
        let total = self.available();
        log_super(cx, trans, space, |raw| raw.sb_frextents.set(total))
    }

    fn wrong_bits(&self, run: &Run, found: &'static str) -> XfsError {
        let Range { start, end } = *run;
        let ino = self.groups[self.split(start).0 as usize].inos[0];
        CorruptKind::RealtimeBits { start, end, found }.at(At::Inode(ino)).into()
    }

    /// Sets or clears the bits of a run, all of which must say the opposite.
    fn set_bits(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        run: &Run,
        free: bool,
    ) -> Result<()> {
        let (bits, (group, mut at)) = (self.words.bits(), self.split(run.start));
        let end = at + (run.end - run.start);
        while at < end {
            let (index, first) = (at / bits, (at % bits) as usize);
            let last = (end - index * bits).min(bits) as usize - 1;
            let block = self.groups[group as usize].bitmap[index as usize];
            let map = space.block_map(space.split(block));
            let buf = trans.read_buf(cx, &[map], self.bitmap_ops())?;
            let place = self.words.place(first / 32..last / 32 + 1);
            let before = first / 32 * 32;
            let fits = buf.with_range_mut(place.start, place.len(), |bytes| {
                self.words.turn(bytes);
                let fits = change_bits(bytes, first - before..last + 1 - before, free);
                self.words.turn(bytes);
                fits
            });
            if !fits {
                let found = if free { "free" } else { "in use" };
                return Err(self.wrong_bits(run, found));
            }
            buf.item.lock_irq().flags.insert(BufItemFlags::REALTIME_BITMAP);
            trans.log_buf(&buf, place.start, place.end - 1);
            at = (index + 1) * bits;
        }
        Ok(())
    }

    /// Counts a run in its group's summary, or no longer.
    fn count(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        run: &Run,
        more: bool,
    ) -> Result<()> {
        let (group, index) = (self.split(run.start).0, self.summary_index(run));
        let words = self.words.per_block();
        let map = self.summary_map(space, group, index / words);
        let buf = trans.read_buf(cx, &[map], self.summary_ops())?;
        let word = (index % words) as usize;
        let count = buf.with(|bytes| self.words.get(bytes, word));
        let new = if more { count.checked_add(1) } else { count.checked_sub(1) };
        let Some(new) = new else {
            let kind = CorruptKind::RealtimeSummary { start: run.start, len: run.end - run.start };
            let ino = self.groups[group as usize].inos[1];
            return Err(kind.at(At::Inode(ino)).into());
        };
        let place = self.words.place(word..word + 1);
        buf.with_range_mut(place.start, 4, |bytes| self.words.set(bytes, new));
        buf.item.lock_irq().flags.insert(BufItemFlags::REALTIME_SUMMARY);
        trans.log_buf(&buf, place.start, place.end - 1);
        Ok(())
    }
}

impl Space {
    /// Frees an extent of the section, as an intent in the log asks for: as much as one
    /// transaction can.
    pub(super) fn finish_free_realtime(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        start: u64,
        len: u32,
    ) -> Result<Finished> {
        let (shape, first, section) = (self.geometry.realtime, FsBlock(start), Section::Realtime);
        let unit = shape.extent_blocks.max(1);
        let whole = shape.place_of(first).1.is_multiple_of(unit) && len.is_multiple_of(unit);
        let place = CorruptKind::ExtentPlace { offset: 0, start, count: len };
        let fits = len > 0 && whole && shape.holds(first, u64::from(len));
        let Some(realtime) = self.realtime().filter(|_| fits) else {
            return Err(place.at(At::Super(0)).into());
        };
        realtime.join(cx, trans);
        let here = u64::from(len).min(realtime.run_max() * u64::from(unit)) as u32;
        realtime.release(cx, trans, self, FsExtent { start: first, len: here })?;
        if here == len {
            return Ok(Finished::Done);
        }
        let start = start + u64::from(here);
        Ok(Finished::Again(Work::Free { section, start, len: len - here, owner: None }))
    }
}

/// A run that was taken or given back, and what that does to the runs of free extents.
struct RunChange {
    bits: Run,
    free: bool,
    /// Runs that are no longer.
    gone: SmallVec<[Run; 2]>,
    /// Runs that came in their place.
    new: SmallVec<[Run; 2]>,
}

/// Sets bits, or clears them. False, and nothing is changed, where one of them was so already.
fn change_bits(bytes: &mut [u8], bits: Range<usize>, set: bool) -> bool {
    let Range { start, end } = bits;
    let fits = match set {
        true => bitmap::run_of_zeros(bytes, start, end),
        false => bitmap::run_of_ones(bytes, start, end),
    } == end - start;
    match (fits, set) {
        (false, _) => {}
        (true, true) => bitmap::set_range(bytes, start, end),
        (true, false) => bitmap::clear_range(bytes, start, end),
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_change_where_all_are_as_expected() {
        let mut bytes = [0u8; 4];
        assert!(change_bits(&mut bytes, 3..21, true));
        assert_eq!(bytes, [0xf8, 0xff, 0x1f, 0]);
        assert!(!change_bits(&mut bytes, 20..22, true));
        assert!(!change_bits(&mut bytes, 2..5, false));
        assert!(change_bits(&mut bytes, 8..9, false));
        assert_eq!(bytes, [0xf8, 0xfe, 0x1f, 0]);
    }

    #[test]
    fn busy_extents_cover_runs_of_any_number() {
        let run = (1 << 31) - 2..(1u64 << 31) + 3;
        let list: Vec<_> = busy_extents(&run).collect();
        assert_eq!(list.iter().map(|extent| extent.len).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(list[1].start, AgBlock { ag: BUSY_GROUPS + 1, block: 0 });
    }
}
