//! Copy on write in units: more blocks of the CoW fork than a write needs, so that the blocks of a
//! file which is overwritten here and there still lie together.
//!
//! ```text
//! write        the unit around each shared block gets places, as far as the file has blocks there
//!              and the CoW fork none; later writes into it find theirs
//! give back    what no content came for: when the file is closed, after a while, where space is
//!              short, when files with surplus are many, at unmount; after a crash at the next one
//! ```
//!
//! A block of the surplus has no content, and no part in what the file is: it goes only while no
//! page of the file is dirty or on its way.

use std::ops::Range;

use base::{Errno, Ino, Nanos};
use rt::Cx;

use super::DataFile;
use crate::Xfs;
use crate::bmap::Which;
use crate::format::extent::Extent;
use crate::format::inode::Flags2;

/// Blocks of a unit where a file asks for none (Linux: `XFS_DEFAULT_COWEXTSZ_HINT`).
const UNIT: u64 = 32;
/// How long an idle file keeps its surplus (Linux: `speculative_cow_prealloc_lifetime`).
const LIFETIME: Nanos = Nanos::from_secs(300);
/// Files that keep some at the most.
const FILES_MAX: usize = 64;

impl DataFile<'_> {
    /// Blocks in units of which shared ones are replaced (Linux: `xfs_get_cowextsz_hint`).
    fn cow_unit(&self, cx: &Cx) -> u64 {
        let own = self.inode.with(cx, |state| {
            let asked = state.core.flags2.contains(Flags2::COWEXTSIZE);
            if asked { u64::from(state.core.cowextsize) } else { 0 }
        });
        match own.max(self.extent_hint(cx).unwrap_or(0)) {
            0 => UNIT,
            unit => unit,
        }
    }

    /// A range without blocks in the CoW fork, as wide as units are: as far as the file has blocks
    /// and the fork has none. No wider where there is little space.
    pub(super) fn widened_cow(&self, cx: &mut Cx, gap: Range<u64>) -> Result<Range<u64>, Errno> {
        let unit = self.cow_unit(cx);
        let wide = gap.start / unit * unit..gap.end.next_multiple_of(unit);
        let around =
            self.inode.extents(cx, Which::Data, |list| mapped_around(list, gap.start, &wide));
        let around = around.map_err(|fault| self.fs.fault(fault))?;
        let free = self.inode.cow_fork.lock(cx).gap_around(gap.start);
        let start = wide.start.max(around.start).max(free.start).min(gap.start);
        let end = wide.end.min(around.end).min(free.end).max(gap.end);
        let left = match self.in_realtime(cx) {
            true => self.realtime_blocks()?,
            false => {
                let space = &self.fs.writer()?.space;
                space.available().saturating_sub(space.kept_back())
            }
        };
        Ok(if end - start <= left { start..end } else { gap })
    }

    /// The file has more blocks in its CoW fork than it needs.
    pub(super) fn note_surplus(&self, cx: &Cx) {
        let now = cx.now();
        self.inode.io.lock(cx).ahead = true;
        self.fs.ahead.lock(cx).insert(self.inode.ino);
        let mut files = self.fs.cow_surplus.lock(cx);
        files.insert(self.inode.ino, Nanos(now.0 + LIFETIME.0));
        if files.len() > FILES_MAX
            && let Some(oldest) = files.values_mut().min()
        {
            *oldest = Nanos::ZERO;
        }
    }

    /// Whether the file may have more blocks in its CoW fork than it needs.
    pub(super) fn has_surplus(&self, cx: &Cx) -> bool {
        self.fs.cow_surplus.lock(cx).contains_key(&self.inode.ino)
    }

    /// Gives the surplus back, or leaves it to the next that ends its writing where content is on
    /// its way. The caller holds the inode's `rwsem` for writing, and its `writeback`. May park.
    ///
    /// # Errors
    /// As [`DataFile::cancel_cow`].
    pub(super) fn trim_cow(&self, cx: &mut Cx) -> Result<(), Errno> {
        if self.fs.cow_surplus.lock(cx).remove(&self.inode.ino).is_none() {
            return Ok(());
        }
        let pages = self.inode.mapping_if_any().is_none_or(|mapping| mapping.is_idle());
        if pages && self.inode.io.lock(cx).has_arrived() {
            return self.cancel_cow(cx, 0..u64::MAX);
        }
        self.note_surplus(cx);
        self.fs.cow_surplus.lock(cx).insert(self.inode.ino, Nanos::ZERO);
        Ok(())
    }
}

/// Gives back the surplus whose time is over. For a task that has finished files. May park.
pub(super) fn trim_old(fs: &Xfs, cx: &mut Cx) {
    let now = cx.now();
    let files = fs.cow_surplus.lock(cx);
    if files.is_empty() {
        return;
    }
    let old: Vec<Ino> = files.iter().filter(|file| *file.1 <= now).map(|file| *file.0).collect();
    drop(files);
    for ino in old {
        if let Some(inode) = fs.inodes.find(ino)
            && let Some(guard) = inode.rwsem.try_write()
        {
            // Who gives nothing back still has it, and an error has shut the file system down.
            let _ = DataFile::new(fs, &inode).trim_ahead(cx);
            drop(guard);
        }
    }
}

/// The blocks around one that a file has without a hole, as far as they touch `wide`.
fn mapped_around(list: &[Extent], at: u64, wide: &Range<u64>) -> Range<u64> {
    let here = list.partition_point(|extent| extent.end() <= at);
    let Some(extent) = list.get(here).filter(|extent| extent.offset <= at) else { return at..at };
    let mut around = extent.offset..extent.end();
    for before in list[..here].iter().rev() {
        if around.start <= wide.start || before.end() != around.start {
            break;
        }
        around.start = before.offset;
    }
    for behind in &list[here + 1..] {
        if around.end >= wide.end || behind.offset != around.end {
            break;
        }
        around.end = behind.end();
    }
    around
}

#[cfg(test)]
mod tests {
    use base::FsBlock;

    use super::*;

    #[test]
    fn a_unit_ends_where_the_file_has_no_blocks() {
        let extent = |offset, count| {
            let (start, unwritten) = (FsBlock(1000 + 2 * offset), false);
            Extent { offset, start, count, unwritten }
        };
        let list = [extent(0, 4), extent(4, 8), extent(14, 2), extent(16, 16), extent(32, 9)];
        assert_eq!(mapped_around(&list, 5, &(0..32)), 0..12);
        assert_eq!(mapped_around(&list, 15, &(0..32)), 14..32);
        assert_eq!(mapped_around(&list, 15, &(0..64)), 14..41);
        assert_eq!(mapped_around(&list, 13, &(0..32)), 13..13);
    }
}
