//! Delayed allocation: blocks are reserved for dirty pages, which get their places when they are
//! written.
//!
//! A reservation always suffices: with the blocks themselves those are set aside which the file's
//! map may need in the worst case, each reserved block being an extent of its own.

use std::ops::Range;

use base::Errno;
use rt::Cx;
use smallvec::SmallVec;

use super::DataFile;
use super::small_files::SMALL;
use crate::alloc::Space;
use crate::bmap::blocks::worst_case;
use crate::bmap::{Fork, Which, lookup};
use crate::error::XfsError;
use crate::inode::Inode;
use crate::inode::io::FileIo;
use crate::log::dquot_item::{DquotList, Usage};
use crate::quota::QuotaHold;

/// The blocks of `range` that have neither a place nor a reservation.
fn unreserved(io: &FileIo, fork: &Fork, range: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
    let extents = fork.extents.as_deref().expect("the extents were read");
    let mut holes = SmallVec::new();
    for gap in io.delayed.gaps(range) {
        let mut at = gap.start;
        while at < gap.end {
            let mapped = lookup(extents, at..gap.end);
            if mapped.start.is_none() {
                holes.push(at..at + mapped.count);
            }
            at += mapped.count;
        }
    }
    holes
}

impl FileIo {
    /// Sets aside, or gives back, what the map needs for the reservations that there are.
    fn settle(&mut self, space: &Space, worst: u64) {
        if worst < self.indirect {
            space.give_back(self.indirect - worst);
            self.indirect = worst;
        }
    }
}

impl Inode {
    /// Whether the first of some blocks without a place has one reserved, and how many behind it
    /// share that.
    pub(crate) fn delalloc_run(&self, cx: &Cx, blocks: Range<u64>) -> (bool, u64) {
        let Range { start: from, end } = blocks;
        let io = self.io.lock(cx);
        let first = io.delayed.within(from..end).next();
        match first {
            Some(range) if range.start == from => (true, range.end - from),
            Some(range) => (false, range.start - from),
            None => (false, end - from),
        }
    }

    /// The reservations of `range` end: used, or no longer needed. The blocks remain set aside, and
    /// count for their owners until the answer is dropped. The caller holds the fork for writing.
    pub(crate) fn end_delalloc(
        &self,
        cx: &Cx,
        space: &Space,
        fork: &Fork,
        range: Range<u64>,
    ) -> EndedDelalloc {
        let payers = match self.fs.upgrade() {
            Some(fs) => self.with(cx, |state| fs.known_dquots(&state.core)),
            None => DquotList::new(),
        };
        let mut io = self.io.lock(cx);
        let before = io.delayed.len();
        io.delayed.remove(range);
        let left = io.delayed.len();
        if left < before || left == 0 {
            io.settle(space, worst_case(&space.geometry, self.ino, fork, left));
        }
        let blocks = before - left;
        EndedDelalloc { blocks, quota: QuotaHold::of(payers, Usage::of_blocks(blocks)) }
    }
}

/// Reservations that ended.
pub(crate) struct EndedDelalloc {
    /// How many blocks they were.
    pub blocks: u64,
    /// To be dropped when the owners are charged for what came in their place.
    pub quota: QuotaHold,
}

impl DataFile<'_> {
    /// Reserves blocks for the dirty pages of `range`. May wait for the device.
    ///
    /// # Errors
    /// `ENOSPC`; the extents cannot be read.
    pub(crate) fn reserve_delalloc(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        if self.inode.io.lock(cx).delayed.covers(range.clone()) {
            return Ok(());
        }
        if self.extent_hint(cx).is_some() {
            return self.reserve_hinted(cx, range);
        }
        let space = &self.fs.writer()?.space;
        self.inode.extents(cx, Which::Data, |_| ()).map_err(|fault| self.fs.fault(fault))?;
        let payers = self.inode.with(cx, |state| self.fs.known_dquots(&state.core));
        let forks = self.inode.forks.read(cx);
        let mut io = self.inode.io.lock(cx);
        let holes = unreserved(&io, &forks.data, range);
        let count: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        if count == 0 {
            return Ok(());
        }
        let reserved = io.delayed.len() + count;
        let worst = worst_case(&space.geometry, self.inode.ino, &forks.data, reserved);
        let more = worst.saturating_sub(io.indirect);
        let hold = match self.fs.quota() {
            Some(quota) => quota
                .reserve_from(cx, &payers, Usage::of_blocks(count), false)
                .map_err(|error| error.to_errno())?,
            None => QuotaHold::default(),
        };
        space.reserve(count + more).map_err(|_: XfsError| Errno::ENOSPC)?;
        hold.keep();
        io.indirect += more;
        holes.into_iter().for_each(|hole| io.delayed.insert(hole));
        let small = io.delayed.len() <= SMALL;
        drop(io);
        if small {
            self.fs.small.lock(cx).insert(self.inode.ino);
        }
        Ok(())
    }
}
