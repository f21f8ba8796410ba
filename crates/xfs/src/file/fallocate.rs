//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::DataFile;
use crate::alloc::BlockReservation;
use crate::format::extent::COUNT_MAX;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl DataFile<'_> {
    /// Gives unwritten blocks to the first hole of a range. Returns the block to go on with. The
    /// inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn preallocate_step(&self, cx: &mut Cx, range: Range<u64>) -> Result<u64, Errno> {
        if self.in_realtime(cx) {
            return self.preallocate_realtime(cx, range);
        }
        let at = range.start;
        let mapped = self.map_file(cx, range)?;
        if mapped.start.is_some() {
            return Ok(at + mapped.count);
        }
        let space = &self.fs.writer()?.space;
        let free = space.available().saturating_sub(space.kept_back());
        let want = mapped.count.min(COUNT_MAX).min(free.max(1));
        let hold = self.fs.reserve_quota_blocks(cx, self.inode, want)?;
        let mut reserved =
            BlockReservation::new(space, want).map_err(|error| self.fs.fail(error))?;
        let guard = self.inode.writeback.lock(cx);
        let mut result = Err(Errno::ENOSPC);
        for _ in 0..3 {
            let found =
                self.fs.transact(cx, reservations::write(self.fs.geometry()), |cx, trans| {
                    trans.join_inode(cx, &self.inode.item);
                    let found = self.inode.edit_blocks(cx, space, |cx, file| {
                        file.allocate(cx, trans, at..at + want)
                    })?;
                    let Some(found) = found else { return Ok(None) };
                    reserved.take(u64::from(found.count));
                    let fields = InodeFields::CORE | InodeFields::DATA;
                    self.inode.log(cx, trans, self.fs.geometry(), fields);
                    Ok(Some(found))
                });
            result = found.and_then(|found| found.map(|extent| extent.end()).ok_or(Errno::ENOSPC));
            if result != Err(Errno::ENOSPC) {
                break;
            }
        }
        drop((guard, hold));
        result
    }
}
