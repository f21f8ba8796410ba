//! Dirty pages to the device: places for those that have one reserved, then bios.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Mapping, WritebackControl};
use rt::Cx;

use super::DataFile;
use crate::alloc::BlockReservation;
use crate::bmap::Mapped;
use crate::format::extent::{COUNT_MAX, Extent};
use crate::format::inode::Flags;
use crate::log::inode_item::InodeFields;
use crate::quota::QuotaHold;
use crate::trans::reservations;

/// Files get blocks ahead of their content from this size on, in bytes (Linux: `allocsize`).
const AHEAD_FROM: u64 = 64 << 10;
/// Bytes that a file gets ahead at the most.
const AHEAD_MAX: u64 = 256 << 20;
/// The part of the free space that one file gets ahead at the most.
const AHEAD_SHARE: u64 = 64;

impl DataFile<'_> {
    /// The body of `writepages`, under the inode's write-back lock.
    pub(crate) fn write_dirty_pages(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno> {
        let bits = self.fs.geometry().block_bits;
        self.fs.finisher.learn(cx);
        while let Some(range) = mapping.next_dirty(cx, wb)? {
            self.fs.writer()?;
            let (from, end) = (range.start >> bits, range.end.div_ceil(1 << bits));
            let mut run = self.map_file(cx, from..end)?;
            // What others share is not overwritten.
            let cow = self.inode.cow_fork.lock(cx).lookup(from..from + run.count);
            run.count = cow.count;
            if cow.start.is_some() {
                (run.start, run.unwritten) = (cow.start, true);
            }
            if run.start.is_none() {
                run = self.allocate_run(cx, mapping, from..from + run.count)?;
            }
            self.submit_run(cx, mapping, wb, from, run);
        }
        Ok(())
    }

    /// Sends the dirty pages of a run with a place off.
    fn submit_run(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
        from: u64,
        run: Mapped,
    ) {
        let bits = self.fs.geometry().block_bits;
        let start = run.start.expect("the run was given a place");
        let (off, len) = (from << bits, run.count << bits);
        // The size before the pages are taken: what is written later comes with a later write.
        let size = mapping.size();
        let tail = (size < off + len).then_some(size);
        {
            let mut io = self.inode.io.lock(cx);
            io.end_at(from + run.count - 1, tail);
            if run.unwritten {
                io.submit(from..from + run.count);
            }
        }
        let sector = self.content_sector(cx, start);
        mapping.write_extent(cx, wb, off, len, sector);
    }

    /// Gives a place to the first blocks of a range, which have none, as many as lie together.
    fn allocate_run(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        range: Range<u64>,
    ) -> Result<Mapped, Errno> {
        let (from, count) = (range.start, range.end - range.start);
        let (reserved_before, count) =
            self.inode.delalloc_run(cx, from..from + count.min(COUNT_MAX));
        let space = &self.fs.writer()?.space;
        let ahead = self.blocks_ahead(cx, mapping, from + count);
        // No more than the owners may have.
        let (ahead, hold) = match self.fs.reserve_quota_blocks(cx, self.inode, ahead) {
            Ok(hold) => (ahead, hold),
            Err(_) => (0, QuotaHold::default()),
        };
        let mut ended = Vec::new();
        let set_aside = if reserved_before { 0 } else { count };
        let reserve = |blocks| BlockReservation::new(space, blocks);
        let (mut reserved, ahead) = match reserve(set_aside + ahead) {
            Ok(reserved) => (reserved, ahead),
            Err(_) => (reserve(set_aside).map_err(|error| self.fs.fail(error))?, 0),
        };
        let most = (count + ahead).min(COUNT_MAX);
        for _ in 0..3 {
            let found =
                self.fs.transact(cx, reservations::write(self.fs.geometry()), |cx, trans| {
                    trans.join_inode(cx, &self.inode.item);
                    let found = self.inode.edit_blocks(cx, space, |cx, file| {
                        let hole = hole_at(file.edit.fork.extents.as_deref(), from..from + most);
                        let found = file.allocate(cx, trans, hole)?;
                        let Some(extent) = found else { return Ok(None) };
                        let blocks = from..extent.end();
                        let delalloc = self.inode.end_delalloc(cx, space, file.edit.fork, blocks);
                        let kept = delalloc.blocks;
                        ended.push(delalloc.quota);
                        // What was reserved for the pages first, then what was set aside here.
                        let rest = u64::from(extent.count).saturating_sub(kept);
                        space.give_back(kept.saturating_sub(u64::from(extent.count)));
                        reserved.take(rest.min(reserved.left()));
                        Ok(Some(extent))
                    })?;
                    if found.is_some() {
                        let fields = InodeFields::CORE | InodeFields::DATA;
                        self.inode.log(cx, trans, self.fs.geometry(), fields);
                    }
                    Ok(found)
                })?;
            drop(std::mem::take(&mut ended));
            if let Some(Extent { start, count: got, .. }) = found {
                if u64::from(got) > count {
                    self.inode.io.lock(cx).ahead = true;
                    self.fs.ahead.lock(cx).insert(self.inode.ino);
                }
                self.fs.small.lock(cx).remove(&self.inode.ino);
                let count = u64::from(got).min(count);
                return Ok(Mapped { start: Some(start), unwritten: true, count });
            }
        }
        drop(hold);
        Err(Errno::ENOSPC)
    }

    /// How many blocks to take behind a run that ends at block `end`: some where a file that is
    /// open grows, so that files which grow side by side do not cut each other in pieces.
    fn blocks_ahead(&self, cx: &Cx, mapping: &Mapping, end: u64) -> u64 {
        let bits = self.fs.geometry().block_bits;
        let size = mapping.size();
        let (open, flags) = self.inode.with(cx, |state| (state.opens > 0, state.core.flags));
        let grows = end == size.div_ceil(1 << bits) && size >= AHEAD_FROM;
        if !open || !grows || flags.contains(Flags::PREALLOC) {
            return 0;
        }
        let Ok(writer) = self.fs.writer() else { return 0 };
        let free = writer.space.available().saturating_sub(writer.space.kept_back());
        (size.min(AHEAD_MAX) >> bits).min(free / AHEAD_SHARE)
    }
}

/// The first blocks of a range, of which the file has none.
fn hole_at(extents: Option<&[Extent]>, range: Range<u64>) -> Range<u64> {
    let from = range.start;
    from..from + crate::bmap::lookup(extents.expect("the extents were read"), range).count
}
