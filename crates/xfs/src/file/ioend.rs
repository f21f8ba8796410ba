//! The work after a file's content has been written to the device: see [`crate::inode::io`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;
use smallvec::SmallVec;

use super::DataFile;
use super::cow_surplus::trim_old;
use super::realtime::sync_pages;
use super::small_files::{AT_ONCE as SMALL_AT_ONCE, finish_small_files, place_small_files};
use crate::Xfs;
use crate::error::Result;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::trans::{Trans, reservations};

/// Who finishes files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FinishedBy {
    /// The task, which ends when no file waits.
    Task,
    /// A caller of sync, who has waited for everything before the end of each file.
    Sync,
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
            to_be_finished(fs, self.arc());
        }
    }
}

impl DataFile<'_> {
    /// Finishes a file that was taken from the list, under the lock.
    fn finish_taken(&self, cx: &mut Cx, all: bool) -> std::result::Result<(), Errno> {
        let mut finished = self.finish_locked(cx, all);
        if all && self.inode.io.lock(cx).times_dirty {
            finished = finished.and(self.log_times(cx));
        }
        if finished.is_ok() && self.has_work(cx, true) {
            self.hold(cx);
        }
        finished
    }

    /// Leaves a file to the next sync.
    pub(crate) fn hold(&self, cx: &Cx) {
        self.fs.finisher.waiting.lock(cx).held.insert(self.inode.ino.0, self.inode.arc());
    }

    /// Marks what has reached the device as written, and lets the size on the disk grow; `all` as
    /// for a caller who has waited for everything before the end of the file. May park.
    ///
    /// # Errors
    /// `EIO` after a shutdown, `EUCLEAN`.
    pub(crate) fn finish_io(&self, cx: &mut Cx, all: bool) -> std::result::Result<(), Errno> {
        let busy = self.fs.finisher.busy.read(cx);
        {
            let mut waiting = self.fs.finisher.waiting.lock(cx);
            waiting.files.remove(&self.inode.ino.0);
            waiting.held.remove(&self.inode.ino.0);
        }
        let result = self.finish_locked(cx, all);
        drop(busy);
        result
    }

    /// As [`DataFile::finish_io`], for a file that was taken from the list, under the lock.
    fn finish_locked(&self, cx: &mut Cx, all: bool) -> std::result::Result<(), Errno> {
        let mut result = Ok(());
        let reservation = match self.inode.is_reflink(cx) {
            true => reservations::remap(self.fs.geometry()),
            false => reservations::convert(self.fs.geometry()),
        };
        while result.is_ok() && self.has_work_left(cx, all) {
            result =
                self.fs.transact(cx, reservation, |cx, trans| self.finish_some(cx, trans, all));
        }
        result
    }

    /// As [`DataFile::has_work`], after who is just finishing a part of the file: what its
    /// transaction did not reach is work again.
    fn has_work_left(&self, cx: &mut Cx, all: bool) -> bool {
        if self.has_work(cx, all) {
            return true;
        }
        self.inode.item.lock(cx, u64::MAX);
        let work = self.has_work(cx, all);
        self.inode.item.unlock();
        work
    }

    pub(crate) fn has_work(&self, cx: &Cx, all: bool) -> bool {
        let on_disk = self.inode.disk_size(cx);
        let size = self.inode.size(cx);
        let io = self.inode.io.lock(cx);
        !io.done.is_empty()
            || io.publishable(self.fs.geometry().block_bits, all).min(size) > on_disk
    }

    pub(crate) fn finish_some(&self, cx: &mut Cx, trans: &mut Trans, all: bool) -> Result<()> {
        trans.join_inode(cx, &self.inode.item);
        let space = &self.fs.writer()?.space;
        let mut changed = self.inode.edit_blocks(cx, space, |cx, file| {
            let runs = self.inode.io.lock(cx).take_done();
            let mut changed = false;
            for run in runs {
                let (mut end, moved) = self.inode.remap_cow(cx, trans, file, run.clone())?;
                changed |= moved;
                if !moved {
                    end = file.unwritten_until(run.start..end);
                    changed |= file.convert(cx, trans, run.start..end)?;
                }
                self.inode.io.lock(cx).done.insert(end..run.end);
            }
            Ok(changed)
        })?;
        let size = self.inode.size(cx);
        let target =
            self.inode.io.lock(cx).publishable(self.fs.geometry().block_bits, all).min(size);
        self.inode.with(cx, |state| {
            changed |= target > state.core.size;
            state.core.size = state.core.size.max(target);
        });
        if changed {
            self.inode.io.lock(cx).times_dirty = false;
            self.inode.log(cx, trans, self.fs.geometry(), InodeFields::CORE | InodeFields::DATA);
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
        range: Range<u64>,
        all: bool,
    ) -> std::result::Result<(), Errno> {
        let mapping = self.inode.mapping(cx).clone();
        self.inode.waited.fetch_add(1, Ordering::Relaxed);
        let written = mapping.flush(cx, range);
        self.inode.waited.fetch_sub(1, Ordering::Relaxed);
        let finished = self.finish_io(cx, all);
        if self.inode.io.lock(cx).times_dirty {
            self.hold(cx);
        }
        written.and(finished)
    }

    /// Logs an inode whose times changed without a transaction. May park.
    ///
    /// # Errors
    /// `EIO` after a shutdown.
    pub(crate) fn log_times(&self, cx: &mut Cx) -> std::result::Result<(), Errno> {
        self.fs.transact(cx, reservations::set_attr(self.fs.geometry()), |cx, trans| {
            trans.join_inode(cx, &self.inode.item);
            let freed = self.inode.with(cx, |state| state.freed);
            if std::mem::take(&mut self.inode.io.lock(cx).times_dirty) && !freed {
                self.inode.log(cx, trans, self.fs.geometry(), InodeFields::CORE);
            }
            Ok(())
        })
    }
}

/// Any context: a file waits to be finished.
fn to_be_finished(fs: &Arc<Xfs>, inode: Arc<Inode>) {
    let finisher = &fs.finisher;
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
        let fs = fs.clone();
        drop(runtime.spawn("xfs-ioend", move |cx| finish_waiting(&fs, cx)));
    }
}

fn next_waiting(fs: &Xfs, cx: &Cx, stop: bool) -> Option<Arc<Inode>> {
    let mut waiting = fs.finisher.waiting.lock(cx);
    let mut next = waiting.files.pop_first();
    if next.is_none() && !stop {
        next = waiting.held.pop_first();
    }
    let next = next.map(|(_, inode)| inode);
    waiting.running &= next.is_some() || !stop;
    next
}

/// Finishes the next file that waits; None if none does. Whoever waits for all of them
/// cannot come between the moment when it is taken from the list and the end.
fn finish_next(fs: &Xfs, cx: &mut Cx, who: FinishedBy) -> Option<std::result::Result<(), Errno>> {
    let busy = fs.finisher.busy.read(cx);
    let next = next_waiting(fs, cx, who == FinishedBy::Task);
    let result =
        next.map(|inode| DataFile::new(fs, &inode).finish_taken(cx, who == FinishedBy::Sync));
    drop(busy);
    result
}

/// As [`finish_next`] for a few files that wait, together where they are small; None if
/// there is at most one.
fn finish_few(fs: &Xfs, cx: &mut Cx) -> Option<std::result::Result<(), Errno>> {
    let busy = fs.finisher.busy.read(cx);
    let mut few = SmallVec::<[Arc<Inode>; SMALL_AT_ONCE]>::new();
    {
        let files = &mut fs.finisher.waiting.lock(cx).files;
        if files.len() > 1 {
            few.extend((0..SMALL_AT_ONCE).map_while(|_| files.pop_first()).map(|file| file.1));
        }
    }
    let mut result = (!few.is_empty()).then(|| finish_small_files(fs, cx, &few))?;
    for inode in &few {
        result = result.and(DataFile::new(fs, inode).finish_taken(cx, true));
    }
    drop(busy);
    Some(result)
}

/// The task: finishes files until none is left.
fn finish_waiting(fs: &Xfs, cx: &mut Cx) {
    // What goes wrong has shut the file system down, and every call returns the error.
    while finish_next(fs, cx, FinishedBy::Task).is_some() {}
    trim_old(fs, cx);
}

/// Writes out what is dirty of all files, and finishes them. May park.
///
/// # Errors
/// The first write error; those of transactions.
pub(crate) fn sync_content(fs: &Xfs, cx: &mut Cx) -> std::result::Result<(), Errno> {
    fs.finisher.syncing.fetch_add(1, Ordering::Relaxed);
    place_small_files(fs, cx);
    let mut result = sync_pages(fs, cx);
    while let Some(finished) = finish_few(fs, cx) {
        result = result.and(finished);
    }
    while let Some(finished) = finish_next(fs, cx, FinishedBy::Sync) {
        result = result.and(finished);
    }
    fs.finisher.syncing.fetch_sub(1, Ordering::Relaxed);
    // Those that others are finishing.
    drop(fs.finisher.busy.write(cx));
    trim_old(fs, cx);
    result
}
