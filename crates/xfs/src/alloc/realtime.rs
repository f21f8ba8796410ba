//! Space of the realtime section: extents of a fixed length, given to the content of files.
//!
//! Two files on the data device hold it: a *bitmap* with a bit for each extent, set where it is
//! free, and a *summary* that counts the runs of free extents, by the power of two of their length
//! and by the block of the bitmap in which they begin. Neither has headers or checksums; their
//! blocks go through the log like other metadata, together with the map of the file and the
//! superblock's counter of free extents. No intents: an extent is free, or a file's, in one
//! transaction.
//!
//! In memory all runs of free extents are kept in order, so that a search does not read the bitmap:
//! memory grows with the number of runs.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on realtime devices.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, bitmap};
use rt::{Cx, SpinLock};
use smallvec::{SmallVec, smallvec};

use super::Space;
use super::pick::first_busy;
use super::realtime_runs::{FreeRuns, Picked, Run};
use super::super_block::log_super;
use crate::buf::{BufMap, BufOps};
use crate::error::Result;
use crate::format::{AgBlock, AgExtent, At, CorruptKind, FsExtent, RealtimeShape};
use crate::log::buf_item::BufItemFlags;
use crate::log::inode_item::InodeItem;
use crate::trans::Trans;
use crate::trans::reservations::BITMAP_BLOCKS_AT_ONCE;

static BITMAP: BufOps =
    BufOps { name: "realtime bitmap", kinds: &[], check: None, unmapped: false };
static SUMMARY: BufOps =
    BufOps { name: "realtime summary", kinds: &[], check: None, unmapped: false };

/// Groups from this number on are not of the device, but stand for extents of the realtime section
/// on the list of busy ones.
const BUSY_GROUPS: u32 = 1 << 31;
/// Bits of an extent's number that are its place in such a group.
const BUSY_BITS: u32 = 31;

/// The files of a realtime section.
pub(crate) struct RealtimeFiles {
    /// Blocks of the bitmap.
    pub bitmap: Vec<FsBlock>,
    /// Blocks of the summary.
    pub summary: Vec<FsBlock>,
    /// The item of the bitmap's inode.
    pub lock: Arc<InodeItem>,
}

/// The free space of a realtime section.
pub(crate) struct Realtime {
    shape: RealtimeShape,
    files: RealtimeFiles,
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
    /// Reads the bitmap, and compares it with the summary. May park.
    ///
    /// # Errors
    /// They differ; the device failed.
    pub fn open(cx: &mut Cx, space: &Space, files: RealtimeFiles) -> Result<Realtime> {
        let shape = space.geometry.realtime;
        let free = SpinLock::named("free realtime extents", FreeRuns::default());
        let realtime = Realtime { shape, files, free };
        let mut runs = FreeRuns::default();
        let bits = realtime.bits_per_block(space);
        for index in 0..realtime.shape.bitmap_blocks as usize {
            let map = space.block_map(space.split(realtime.files.bitmap[index]));
            let buf = space.log.bufs().read(cx, &[map], &BITMAP)?;
            let first = index as u64 * bits;
            let here = bits.min(shape.extents - first);
            buf.with(|bytes| runs.append_set(bytes, first..first + here));
        }
        realtime.compare_summary(cx, space, &runs)?;
        *realtime.free.lock(cx) = runs;
        Ok(realtime)
    }

    fn compare_summary(&self, cx: &mut Cx, space: &Space, runs: &FreeRuns) -> Result<()> {
        let words = u64::from(space.geometry.block_size) / 4;
        let mut wanted = BTreeMap::new();
        for run in runs.iter() {
            *wanted.entry(self.summary_index(space, &run)).or_insert(0u32) += 1;
        }
        let total = u64::from(self.shape.levels()) * u64::from(self.shape.bitmap_blocks);
        for block in 0..total.div_ceil(words) {
            let map = self.summary_map(space, block);
            let buf = space.log.bufs().read(cx, &[map], &SUMMARY)?;
            let here = words.min(total - block * words);
            let wrong = buf.with(|bytes| {
                (0..here).find(|word| {
                    let at = *word as usize * 4;
                    let count = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a word"));
                    count != wanted.remove(&(block * words + word)).unwrap_or(0)
                })
            });
            if let Some(word) = wrong {
                let index = block * words + word;
                let level = index / u64::from(self.shape.bitmap_blocks);
                let start =
                    index % u64::from(self.shape.bitmap_blocks) * self.bits_per_block(space);
                let kind = CorruptKind::RealtimeSummary { start, len: 1 << level };
                return Err(kind.at(At::Inode(space.geometry.realtime_inos[1])).into());
            }
        }
        Ok(())
    }

    fn bits_per_block(&self, space: &Space) -> u64 {
        u64::from(space.geometry.block_size) * 8
    }

    fn summary_map(&self, space: &Space, block: u64) -> BufMap {
        space.block_map(space.split(self.files.summary[block as usize]))
    }

    /// The word of the summary that counts a run.
    fn summary_index(&self, space: &Space, run: &Run) -> u64 {
        let level = u64::from((run.end - run.start).ilog2());
        level * u64::from(self.shape.bitmap_blocks) + run.start / self.bits_per_block(space)
    }

    /// Free extents.
    pub fn available(&self) -> u64 {
        self.free.lock_irq().total()
    }

    /// Extents that a transaction changes in one run at the most.
    pub fn run_max(&self, space: &Space) -> u64 {
        u64::from(BITMAP_BLOCKS_AT_ONCE) * self.bits_per_block(space)
    }

    /// Takes the space for the transaction, until it ends: before any buffer is locked, after the
    /// file's inode. May park.
    pub fn join(&self, cx: &mut Cx, trans: &mut Trans) {
        trans.join_inode(cx, &self.files.lock);
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
        let most = want.most.min(self.run_max(space));
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
        let unit = u64::from(self.shape.extent_blocks);
        let run = blocks.start.0 / unit..(blocks.start.0 + u64::from(blocks.len)) / unit;
        let given = self.free.lock(cx).give(&run);
        let Some((gone, joined)) = given else {
            let (start, end, found) = (run.start, run.end, "free");
            let kind = CorruptKind::RealtimeBits { start, end, found };
            return Err(kind.at(At::Inode(space.geometry.realtime_inos[0])).into());
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

    /// Sets or clears the bits of a run, all of which must say the opposite.
    fn set_bits(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        run: &Run,
        free: bool,
    ) -> Result<()> {
        let bits = self.bits_per_block(space);
        let mut at = run.start;
        while at < run.end {
            let (index, first) = (at / bits, (at % bits) as usize);
            let last = (run.end - index * bits).min(bits) as usize - 1;
            let map = space.block_map(space.split(self.files.bitmap[index as usize]));
            let buf = trans.read_buf(cx, &[map], &BITMAP)?;
            let fits = buf.with_mut(|bytes| change_bits(bytes, first..last + 1, free));
            if !fits {
                let found = if free { "free" } else { "in use" };
                let kind = CorruptKind::RealtimeBits { start: run.start, end: run.end, found };
                return Err(kind.at(At::Inode(space.geometry.realtime_inos[0])).into());
            }
            buf.item.lock_irq().flags.insert(BufItemFlags::REALTIME_BITMAP);
            trans.log_buf(&buf, first / 8, last / 8);
            at = (index + 1) * bits;
        }
        Ok(())
    }

    /// Counts a run in the summary, or no longer.
    fn count(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        run: &Run,
        more: bool,
    ) -> Result<()> {
        let words = u64::from(space.geometry.block_size) / 4;
        let index = self.summary_index(space, run);
        let buf = trans.read_buf(cx, &[self.summary_map(space, index / words)], &SUMMARY)?;
        let at = (index % words) as usize * 4;
        let counted = buf.with_range_mut(at, 4, |word| {
            let count = u32::from_le_bytes((&*word).try_into().expect("four bytes"));
            let new = if more { count.checked_add(1) } else { count.checked_sub(1) };
            new.map(|new| word.copy_from_slice(&new.to_le_bytes()))
        });
        if counted.is_none() {
            let kind = CorruptKind::RealtimeSummary { start: run.start, len: run.end - run.start };
            return Err(kind.at(At::Inode(space.geometry.realtime_inos[1])).into());
        }
        buf.item.lock_irq().flags.insert(BufItemFlags::REALTIME_SUMMARY);
        trans.log_buf(&buf, at, at + 3);
        Ok(())
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
