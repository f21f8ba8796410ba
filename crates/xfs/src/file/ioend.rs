//! What follows when a file's content has got to the device: see [`super::io`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;
use smallvec::SmallVec;

use super::small_files::AT_ONCE as SMALL_AT_ONCE;
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

    /// Finishes the next file that waits; None if none does. Whoever waits for all of them
    /// cannot come between the moment when it is taken from the list and the end.
    fn finish_next(&self, cx: &mut Cx, who: FinishedBy) -> Option<std::result::Result<(), Errno>> {
        let busy = self.finisher.busy.read(cx);
        let next = self.next_waiting(cx, who == FinishedBy::Task);
        let result = next.map(|inode| self.finish_taken(cx, &inode, who == FinishedBy::Sync));
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

    /// As [`Xfs::finish_next`] for a few files that wait, together where they are small; None if
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
        // What goes wrong has shut the file system down, and every call returns the error.
        while self.finish_next(cx, FinishedBy::Task).is_some() {}
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
        while let Some(finished) = self.finish_next(cx, FinishedBy::Sync) {
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
                let (mut end, moved) = inode.remap_cow(cx, trans, file, run.clone())?;
                changed |= moved;
                if !moved {
                    end = file.unwritten_until(run.start..end);
                    changed |= file.convert(cx, trans, run.start..end)?;
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
