//! What of a file's content is on its way to the disk, and what follows when it has got there.
//!
//! ```text
//! write        blocks are promised (`delayed`)
//! write-back   blocks are taken, in the unwritten state; their bios go out (`pending`)
//! completion   the content is there (`done`); in event context, so it only takes note
//! finish       a transaction marks the blocks as written and lets the size on the disk grow
//! ```
//!
//! The last step is done by whoever waited for the content (fsync, sync), else by a task that lives
//! as long as there is work. Until then the blocks read as written here ([`FileIo::is_done`]), and
//! a crash leaves a hole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Errno, RangeSet64};
use cache::ErrorMark;
use rt::{Cx, Runtime, RwLock, SpinLock};
use smallvec::SmallVec;

use crate::Xfs;
use crate::bmap::blocks::EXTENTS_AT_ONCE;
use crate::error::Result;
use crate::inode::Inode;
use crate::inode_item::InodeFields;
use crate::reservations;
use crate::small_files::AT_ONCE as SMALL_AT_ONCE;
use crate::trans::Trans;

/// The state of one file's content. Ranges are of blocks.
#[derive(Default)]
pub(crate) struct FileIo {
    /// Promised to dirty pages, and without a place.
    pub delayed: RangeSet64,
    /// Blocks set aside for the map, should `delayed` get their places one by one.
    pub indirect: u64,
    /// Sent to the device for the first time.
    pending: RangeSet64,
    /// On the device, and not yet marked as written.
    done: RangeSet64,
    /// Of writes under way that end in the middle of a block: that block, and the size in bytes.
    tails: SmallVec<[(u64, u64); 1]>,
    /// Up to where content has reached the device, in bytes.
    done_end: u64,
    /// Blocks behind the end of the file were taken ahead of their content.
    pub ahead: bool,
    /// Times in the core are newer than those in the log.
    pub times_dirty: bool,
    /// Content was written that may be in the device's cache only.
    pub unflushed: bool,
    /// How far the file's users were told of write errors.
    pub error_mark: ErrorMark,
}

impl FileIo {
    /// True where nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.delayed.is_empty()
            && self.pending.is_empty()
            && self.done.is_empty()
            && !self.times_dirty
    }

    /// True where nothing but the times waits for the log.
    pub fn only_times(&self) -> bool {
        self.times_dirty && self.pending.is_empty() && self.done.is_empty()
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
    fn complete(&mut self, blocks: Range<u64>, bits: u32, good: bool) {
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
    /// `all` before it was written, not past what is promised or on its way.
    fn publishable(&self, bits: u32, all: bool) -> u64 {
        let missing = [self.pending.iter().next(), self.delayed.iter().next()];
        let first = missing.into_iter().flatten().map(|range| range.start).min();
        match first.filter(|_| !all) {
            Some(first) => self.done_end.min(first << bits),
            None => self.done_end,
        }
    }

    /// A few of the runs to be marked.
    fn take_done(&mut self) -> SmallVec<[Range<u64>; EXTENTS_AT_ONCE]> {
        let runs: SmallVec<[Range<u64>; EXTENTS_AT_ONCE]> =
            self.done.iter().take(EXTENTS_AT_ONCE).collect();
        runs.iter().for_each(|run| self.done.remove(run.clone()));
        runs
    }
}

/// Files whose content is on the device and whose maps do not say so yet.
pub(crate) struct Finisher {
    waiting: SpinLock<Waiting>,
    runtime: OnceLock<Runtime>,
    /// Held shared by who finishes a file; alone for a moment by who waits for all of them.
    busy: RwLock<()>,
    /// Callers of sync: they finish what comes, nobody need be woken.
    syncing: AtomicU32,
    /// Content of some file was written that may be in the device's cache only.
    pub unflushed: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    files: BTreeMap<u64, Arc<Inode>>,
    /// Finished but for their size, which content before it holds back, or for their times.
    held: BTreeMap<u64, Arc<Inode>>,
    running: bool,
}

impl Finisher {
    pub fn new() -> Finisher {
        Finisher {
            waiting: SpinLock::named("files to finish", Waiting::default()),
            runtime: OnceLock::new(),
            busy: RwLock::named("finishing files", ()),
            syncing: AtomicU32::new(0),
            unflushed: AtomicBool::new(false),
        }
    }

    /// Learns where tasks are started. Before the first bio of a file.
    pub fn learn(&self, cx: &Cx) {
        self.runtime.get_or_init(|| cx.runtime().clone());
    }
}

impl Inode {
    /// Event context: a write of the file's pages is complete.
    pub(crate) fn content_written(&self, fs: &Arc<Xfs>, range: Range<u64>, good: bool) {
        let bits = fs.geometry().block_bits;
        fs.finisher.unflushed.store(true, Ordering::Release);
        let on_disk = self.state.lock_irq().core.size;
        let work = {
            let mut io = self.io.lock_irq();
            io.complete(range.start >> bits..range.end >> bits, bits, good);
            !io.done.is_empty() || io.done_end > on_disk
        };
        if work {
            fs.to_be_finished(self.arc());
        }
    }
}

impl Xfs {
    /// Any context: a file waits to be finished.
    fn to_be_finished(self: &Arc<Xfs>, inode: Arc<Inode>) {
        let finisher = &self.finisher;
        let start = {
            let mut waiting = finisher.waiting.lock_irq();
            waiting.files.insert(inode.ino.0, inode.clone());
            let quiet = finisher.syncing.load(Ordering::Relaxed) > 0
                || inode.waited.load(Ordering::Relaxed) > 0;
            let start = !waiting.running && !quiet;
            waiting.running |= start;
            start
        };
        if start && let Some(runtime) = finisher.runtime.get() {
            let fs = self.clone();
            drop(runtime.spawn("xfs-ioend", move |cx| fs.finish_waiting(cx)));
        }
    }

    fn next_waiting(&self, cx: &Cx, stop: bool) -> Option<Arc<Inode>> {
        let mut waiting = self.finisher.waiting.lock(cx);
        let mut next = waiting.files.pop_first();
        if next.is_none() && !stop {
            next = waiting.held.pop_first();
        }
        let next = next.map(|(_, inode)| inode);
        waiting.running &= next.is_some() || !stop;
        next
    }

    /// Finishes the next file that waits; None where none does. Whoever waits for all of them
    /// cannot come between the moment when it is taken from the list and the end.
    fn finish_next(
        &self,
        cx: &mut Cx,
        (all, stop): (bool, bool),
    ) -> Option<std::result::Result<(), Errno>> {
        let busy = self.finisher.busy.read(cx);
        let next = self.next_waiting(cx, stop);
        let result = next.map(|inode| self.finish_taken(cx, &inode, all));
        drop(busy);
        result
    }

    /// Finishes a file that was taken from the list, under the lock.
    fn finish_taken(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        all: bool,
    ) -> std::result::Result<(), Errno> {
        let mut finished = self.finish_locked(cx, inode, all);
        if all && inode.io.lock(cx).times_dirty {
            finished = finished.and(self.log_times(cx, inode));
        }
        if finished.is_ok() && self.has_work(cx, inode, true) {
            self.hold(cx, inode);
        }
        finished
    }

    /// As [`Xfs::finish_next`] for a few files that wait, together where they are small; None where
    /// there is at most one.
    fn finish_few(&self, cx: &mut Cx) -> Option<std::result::Result<(), Errno>> {
        let busy = self.finisher.busy.read(cx);
        let mut few = SmallVec::<[Arc<Inode>; SMALL_AT_ONCE]>::new();
        {
            let files = &mut self.finisher.waiting.lock(cx).files;
            if files.len() > 1 {
                few.extend((0..SMALL_AT_ONCE).map_while(|_| files.pop_first()).map(|file| file.1));
            }
        }
        let mut result = (!few.is_empty()).then(|| self.finish_small_files(cx, &few))?;
        for inode in &few {
            result = result.and(self.finish_taken(cx, inode, true));
        }
        drop(busy);
        Some(result)
    }

    /// Leaves a file to the next sync.
    pub(crate) fn hold(&self, cx: &Cx, inode: &Arc<Inode>) {
        self.finisher.waiting.lock(cx).held.insert(inode.ino.0, inode.clone());
    }

    /// The task: finishes files until none is left.
    fn finish_waiting(&self, cx: &mut Cx) {
        // What goes wrong has shut the file system down, and everybody is told.
        while self.finish_next(cx, (false, true)).is_some() {}
    }

    /// Writes out what is dirty of all files, and finishes them. May park.
    ///
    /// # Errors
    /// The first write error; those of transactions.
    pub(crate) fn sync_content(&self, cx: &mut Cx) -> std::result::Result<(), Errno> {
        self.finisher.syncing.fetch_add(1, Ordering::Relaxed);
        self.place_small_files(cx);
        let mut result = self.backing.sync(cx);
        while let Some(finished) = self.finish_few(cx) {
            result = result.and(finished);
        }
        while let Some(finished) = self.finish_next(cx, (true, false)) {
            result = result.and(finished);
        }
        self.finisher.syncing.fetch_sub(1, Ordering::Relaxed);
        // Those that others are finishing.
        drop(self.finisher.busy.write(cx));
        result
    }

    /// Marks what has reached the device as written, and lets the size on the disk grow; `all` as
    /// for a caller who has waited for everything before the end of the file. May park.
    ///
    /// # Errors
    /// `EIO` after a shutdown, `EUCLEAN`.
    pub(crate) fn finish_io(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        all: bool,
    ) -> std::result::Result<(), Errno> {
        let busy = self.finisher.busy.read(cx);
        {
            let mut waiting = self.finisher.waiting.lock(cx);
            waiting.files.remove(&inode.ino.0);
            waiting.held.remove(&inode.ino.0);
        }
        let result = self.finish_locked(cx, inode, all);
        drop(busy);
        result
    }

    /// As [`Xfs::finish_io`], for a file that was taken from the list, under the lock.
    fn finish_locked(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        all: bool,
    ) -> std::result::Result<(), Errno> {
        let mut result = Ok(());
        let reservation = match inode.is_reflink(cx) {
            true => reservations::remap(self.geometry()),
            false => reservations::convert(self.geometry()),
        };
        while result.is_ok() && self.has_work_left(cx, inode, all) {
            result =
                self.transact(cx, reservation, |cx, trans| self.finish_some(cx, trans, inode, all));
        }
        result
    }

    /// As [`Xfs::has_work`], after who is just finishing a part of the file: what its transaction
    /// did not reach is work again.
    fn has_work_left(&self, cx: &mut Cx, inode: &Inode, all: bool) -> bool {
        if self.has_work(cx, inode, all) {
            return true;
        }
        inode.item.lock(cx, u64::MAX);
        let work = self.has_work(cx, inode, all);
        inode.item.unlock();
        work
    }

    pub(crate) fn has_work(&self, cx: &Cx, inode: &Inode, all: bool) -> bool {
        let on_disk = inode.disk_size(cx);
        let size = inode.size(cx);
        let io = inode.io.lock(cx);
        !io.done.is_empty() || io.publishable(self.geometry().block_bits, all).min(size) > on_disk
    }

    pub(crate) fn finish_some(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        inode: &Arc<Inode>,
        all: bool,
    ) -> Result<()> {
        trans.join_inode(cx, &inode.item);
        let space = &self.writer()?.space;
        let mut changed = inode.edit_blocks(cx, space, |cx, file| {
            let runs = inode.io.lock(cx).take_done();
            let mut changed = false;
            for run in runs {
                let (mut end, moved) = inode.remap_staged(cx, trans, file, run.clone())?;
                changed |= moved;
                if !moved {
                    end = file.unwritten_until(run.start, end);
                    changed |= file.convert(cx, trans, (run.start, end))?;
                }
                inode.io.lock(cx).done.insert(end..run.end);
            }
            Ok(changed)
        })?;
        let size = inode.size(cx);
        let target = inode.io.lock(cx).publishable(self.geometry().block_bits, all).min(size);
        inode.with(cx, |state| {
            changed |= target > state.core.size;
            state.core.size = state.core.size.max(target);
        });
        if changed {
            inode.io.lock(cx).times_dirty = false;
            inode.log(cx, trans, self.geometry(), InodeFields::CORE | InodeFields::DATA);
        }
        Ok(())
    }

    /// Writes out what is dirty of a file within `range`, waits, and finishes it. `all` where
    /// nothing before the range is dirty, or within the size on the disk. May park.
    ///
    /// # Errors
    /// Those of the writes; of transactions.
    pub(crate) fn flush_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
        all: bool,
    ) -> std::result::Result<(), Errno> {
        let mapping = inode.mapping(cx).clone();
        inode.waited.fetch_add(1, Ordering::Relaxed);
        let written = mapping.flush(cx, range);
        inode.waited.fetch_sub(1, Ordering::Relaxed);
        let finished = self.finish_io(cx, inode, all);
        if inode.io.lock(cx).times_dirty {
            self.hold(cx, inode);
        }
        written.and(finished)
    }

    /// Logs an inode whose times changed without a transaction. May park.
    ///
    /// # Errors
    /// `EIO` after a shutdown.
    pub(crate) fn log_times(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
    ) -> std::result::Result<(), Errno> {
        self.transact(cx, reservations::set_attr(self.geometry()), |cx, trans| {
            trans.join_inode(cx, &inode.item);
            let freed = inode.with(cx, |state| state.freed);
            if std::mem::take(&mut inode.io.lock(cx).times_dirty) && !freed {
                inode.log(cx, trans, self.geometry(), InodeFields::CORE);
            }
            Ok(())
        })
    }
}
