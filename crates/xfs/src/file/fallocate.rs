//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::Xfs;
use crate::alloc::BlockReservation;
use crate::format::extent::COUNT_MAX;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl Xfs {
    /// Gives unwritten blocks to the first hole of a range. Returns the block to go on with. The
    /// inode is locked for writing. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn preallocate_step(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> Result<u64, Errno> {
        let at = range.start;
        let mapped = self.map_file(cx, inode, range)?;
        if mapped.start.is_some() {
            return Ok(at + mapped.count);
        }
        let space = &self.writer()?.space;
        let free = space.available().saturating_sub(space.kept_back());
        let want = mapped.count.min(COUNT_MAX).min(free.max(1));
        let hold = self.reserve_quota_blocks(cx, inode, want)?;
        let mut reserved = BlockReservation::new(space, want).map_err(|error| self.fail(error))?;
        let guard = inode.writeback.lock(cx);
        let mut result = Err(Errno::ENOSPC);
        for _ in 0..3 {
            let found = self.transact(cx, reservations::write(self.geometry()), |cx, trans| {
                trans.join_inode(cx, &inode.item);
                let found = inode
                    .edit_blocks(cx, space, |cx, file| file.allocate(cx, trans, at..at + want))?;
                let Some(found) = found else { return Ok(None) };
                reserved.take(u64::from(found.count));
                let fields = InodeFields::CORE | InodeFields::DATA;
                inode.log(cx, trans, self.geometry(), fields);
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
