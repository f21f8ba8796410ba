//! Changing the state of mapped blocks: unwritten to written when their data arrive, and back when
//! a range is zeroed.

use base::Errno;
use rt::Cx;

use super::insert::cut;
use crate::bmap::Bmap;
use crate::format::extent::{self, Extent, UNWRITTEN_LEN_MAX};
use crate::trans::ext4_jbd2::Handle;

impl Bmap<'_> {
    /// Gives the mapped blocks of the one extent at `from`, as far as it reaches below `to`, the
    /// wanted state. Returns the block at which to go on. Needs the map lock for writing and
    /// `credits::map`; the inode must be marked dirty afterwards.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`. The tree is as before.
    pub(crate) fn extent_set_state(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        from: u32,
        to: u32,
        unwritten: bool,
    ) -> Result<u32, Errno> {
        let path = self.find_path(cx, from)?;
        let at = path.leaf().at;
        let Some(old) = at.and_then(|at| self.leaf_extent(cx, &path, at)) else {
            return Ok(to.min(self.next_key(cx, &path, 0)));
        };
        if u64::from(from) >= old.end() {
            let next = self.next_key(cx, &path, at.map_or(0, |at| at + 1));
            return Ok(to.min(next));
        }
        let end = u64::from(to).min(old.end()) as u32;
        if old.unwritten == unwritten {
            return Ok(end);
        }
        let parts = parts(&old, from, end, unwritten);
        let path =
            if parts.len() > 1 { self.make_room(cx, handle, from, parts.len() - 1)? } else { path };
        let at = path.leaf().at.expect("the extent is still there");
        self.change_node(cx, handle, path.leaf().buffer.as_ref(), |data| {
            extent::set_extent(data, at, &parts[0]);
        })?;
        for part in &parts[1..] {
            // There is room: this cannot split, so the way stays what it was.
            let path = self.find_path(cx, part.block)?;
            self.insert_at(cx, handle, &path, part)?;
        }
        self.merge_around(cx, handle, from)?;
        Ok(end)
    }

    /// Joins the extent at `lblk` with its neighbours in the leaf.
    fn merge_around(self, cx: &mut Cx, handle: &mut Handle, lblk: u32) -> Result<(), Errno> {
        let path = self.find_path(cx, lblk)?;
        let Some(at) = path.leaf().at else { return Ok(()) };
        self.merge_with_next(cx, handle, &path, at)?;
        if at > 0 {
            self.merge_with_next(cx, handle, &path, at - 1)?;
        }
        Ok(())
    }
}

/// The extents that take the place of `old` when `from..to` of it changes its state.
fn parts(old: &Extent, from: u32, to: u32, unwritten: bool) -> Vec<Extent> {
    let mut parts = Vec::with_capacity(4);
    let mut rest = *old;
    if from > rest.block {
        let (head, tail) = cut(&rest, from);
        parts.push(head);
        rest = tail;
    }
    let mut tail = None;
    if u64::from(to) < rest.end() {
        let (middle, behind) = cut(&rest, to);
        rest = middle;
        tail = Some(behind);
    }
    rest.unwritten = unwritten;
    if unwritten && rest.len > UNWRITTEN_LEN_MAX {
        // A written extent may be one block longer than an unwritten one.
        let (most, last) = cut(&rest, rest.block + UNWRITTEN_LEN_MAX);
        parts.push(most);
        rest = last;
    }
    parts.push(rest);
    parts.extend(tail);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_cover_the_old_extent_and_only_the_middle_changes() {
        let old = Extent { block: 100, len: 32768, start: 5000, unwritten: false };
        for (from, to) in [(100, 32868), (100, 200), (200, 300), (300, 32868)] {
            let parts = parts(&old, from, to, true);
            let mut at = old.block;
            for part in &parts {
                assert_eq!(part.block, at);
                assert_eq!(part.start - old.start, u64::from(part.block - old.block));
                let inside = part.block >= from && part.end() <= u64::from(to);
                assert_eq!(part.unwritten, inside, "{part:?} for {from}..{to}");
                at = part.end() as u32;
            }
            assert_eq!(u64::from(at), old.end());
        }
    }
}
