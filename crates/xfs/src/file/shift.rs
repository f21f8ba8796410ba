//! Ranges taken out of a file, and put in: what is behind them moves.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::DataFile;
use crate::bmap::Which;
use crate::format::extent::{Extent, OFFSET_MAX};
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;

impl DataFile<'_> {
    /// Moves what a file has behind `blocks` to their front, or with `insert` what it has from
    /// their front on behind them, a few extents in a transaction: as in Linux a crash in the
    /// middle leaves a part moved. The pages are gone, and the caller keeps writers away. May park.
    ///
    /// # Errors
    /// `EINVAL` an extent would lie behind the last block of a file; `EIO`, `EUCLEAN`, `EROFS`.
    pub(super) fn shift_blocks(
        &self,
        cx: &mut Cx,
        blocks: Range<u64>,
        insert: bool,
    ) -> Result<(), Errno> {
        let by = blocks.end - blocks.start;
        self.cancel_cow(cx, blocks.start..OFFSET_MAX)?;
        let last = self.inode.extents(cx, Which::Data, |list| list.last().map_or(0, Extent::end));
        let last = last.map_err(|fault| self.fs.fault(fault))?;
        if insert && last + by > OFFSET_MAX {
            return Err(Errno::EINVAL);
        }
        let (space, geometry) = (&self.fs.writer()?.space, self.fs.geometry());
        let mut at = if insert { OFFSET_MAX } else { blocks.end };
        loop {
            let next = self.fs.transact(cx, reservations::remap(geometry), |cx, trans| {
                trans.join_inode(cx, &self.inode.item);
                let next = self.inode.edit_blocks(cx, space, |cx, file| match insert {
                    true => file.shift_right(cx, trans, blocks.start..at, by),
                    false => file.shift_left(cx, trans, at - by..at),
                })?;
                if next.is_some() {
                    let fields = InodeFields::CORE | InodeFields::DATA;
                    self.inode.log(cx, trans, geometry, fields);
                }
                Ok(next)
            })?;
            match next {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }
}
