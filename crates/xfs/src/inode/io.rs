//! What of a file's content is on its way to the disk, and what follows when it has got there.
//!
//! ```text
//! write        blocks are reserved (`delayed`)
//! write-back   blocks are taken, in the unwritten state; their bios go out (`pending`)
//! completion   the content is there (`done`); in event context, so it only takes note
//! finish       a transaction marks the blocks as written and lets the size on the disk grow
//! ```
//!
//! The last step is done by whoever waited for the content (fsync, sync), else by a task that lives
//! as long as there is work. Until then the blocks read as written here ([`FileIo::is_done`]), and
//! a crash leaves a hole.

use std::ops::Range;

use base::RangeSet64;
use cache::ErrorMark;
use smallvec::SmallVec;

use crate::trans::reservations::EXTENTS_AT_ONCE;

/// The state of one file's content. Ranges are of blocks.
#[derive(Default)]
pub(crate) struct FileIo {
    /// Reserved for dirty pages, and without a place.
    pub delayed: RangeSet64,
    /// Blocks set aside for the map, should `delayed` get their places one by one.
    pub indirect: u64,
    /// Sent to the device for the first time.
    pub(crate) pending: RangeSet64,
    /// On the device, and not yet marked as written.
    pub(crate) done: RangeSet64,
    /// Of writes under way that end in the middle of a block: that block, and the size in bytes.
    tails: SmallVec<[(u64, u64); 1]>,
    /// Up to where content has reached the device, in bytes.
    pub(crate) done_end: u64,
    /// Blocks behind the end of the file were taken ahead of their content.
    pub ahead: bool,
    /// It was cut: its content begins to be written when it is closed.
    pub was_cut: bool,
    /// Times in the core are newer than those in the log.
    pub times_dirty: bool,
    /// Content was written that may be in the device's cache only.
    pub unflushed: bool,
    /// How far write errors were reported to the file's users.
    pub error_mark: ErrorMark,
}

impl FileIo {
    /// True if nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.delayed.is_empty() && self.has_arrived() && !self.times_dirty
    }

    /// True if nothing but the times waits for the log.
    pub fn only_times(&self) -> bool {
        self.times_dirty && self.has_arrived()
    }

    /// True if all content that was sent to the device is in the map.
    pub fn has_arrived(&self) -> bool {
        self.pending.is_empty() && self.done.is_empty()
    }

    /// Whether a block's content is on the device although the map calls it unwritten.
    pub fn is_done(&self, block: u64) -> bool {
        self.done.contains(block)
    }

    /// Where the first run of `range` ends that is all done, or all not.
    pub fn done_until(&self, range: Range<u64>) -> u64 {
        let first = self.done.within(range.clone()).next();
        match first {
            Some(part) if part.start > range.start => part.start,
            Some(part) => part.end,
            None => range.end,
        }
    }

    /// Blocks go to the device that are not marked as written.
    pub fn submit(&mut self, blocks: Range<u64>) {
        for part in self.done.gaps(blocks) {
            self.pending.insert(part);
        }
    }

    /// A write goes out whose last block is this one; the size where the file ends inside of it.
    pub fn end_at(&mut self, block: u64, size: Option<u64>) {
        self.take_tail(block);
        self.tails.extend(size.map(|size| (block, size)));
    }

    fn take_tail(&mut self, block: u64) -> Option<u64> {
        let at = self.tails.iter().position(|tail| tail.0 == block)?;
        Some(self.tails.swap_remove(at).1)
    }

    /// A write is complete.
    pub(crate) fn complete(&mut self, blocks: Range<u64>, bits: u32, good: bool) {
        let tail = self.take_tail(blocks.end - 1);
        let first: SmallVec<[_; 2]> = self.pending.within(blocks.clone()).collect();
        self.pending.remove(blocks.clone());
        if good {
            first.into_iter().for_each(|part| self.done.insert(part));
            self.done_end = self.done_end.max(tail.unwrap_or(blocks.end << bits));
            self.unflushed = true;
        }
    }

    /// Content up to byte `end` was written past the page cache, some of it to blocks that the map
    /// does not call written.
    pub fn direct_done(&mut self, blocks: Option<Range<u64>>, end: u64) {
        blocks.into_iter().for_each(|blocks| self.done.insert(blocks));
        self.done_end = self.done_end.max(end);
    }

    /// The blocks of `range` lose their places, or their content.
    pub fn forget(&mut self, range: Range<u64>) {
        self.pending.remove(range.clone());
        self.done.remove(range.clone());
        self.tails.retain(|(block, _)| !range.contains(block));
    }

    /// The file ends here now.
    pub fn cut(&mut self, size: u64) {
        self.done_end = self.done_end.min(size);
        self.tails.iter_mut().for_each(|(_, tail)| *tail = (*tail).min(size));
    }

    /// The size that may go to the disk: up to where content has come. Unless the caller knows that
    /// `all` before it was written, not past what is reserved or on its way.
    pub(crate) fn publishable(&self, bits: u32, all: bool) -> u64 {
        let missing = [self.pending.iter().next(), self.delayed.iter().next()];
        let first = missing.into_iter().flatten().map(|range| range.start).min();
        match first.filter(|_| !all) {
            Some(first) => self.done_end.min(first << bits),
            None => self.done_end,
        }
    }

    /// A few of the runs to be marked.
    pub(crate) fn take_done(&mut self) -> SmallVec<[Range<u64>; EXTENTS_AT_ONCE]> {
        let runs: SmallVec<[Range<u64>; EXTENTS_AT_ONCE]> =
            self.done.iter().take(EXTENTS_AT_ONCE).collect();
        runs.iter().for_each(|run| self.done.remove(run.clone()));
        runs
    }
}
