//! Clones a range of one file into another, so that they share blocks.

use std::ops::Range;

use base::Errno;
use rt::Cx;
use vfs::iomap::IomapFile;

use super::DataFile;
use crate::Xfs;
use crate::alloc::BlockReservation;
use crate::bmap::Which;
use crate::format::extent::Extent;
use crate::format::inode::Flags2;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::quota::QuotaHold;
use crate::trans::reservations;

/// Extents of the target that one transaction takes out at the most.
const EXTENTS_AT_ONCE: usize = 3;
/// Blocks that the target's map may grow by in one transaction.
const MAP_BLOCKS: u64 = 10;
/// The same of the realtime section's btrees.
const SECTION_BLOCKS: u64 = 24;

/// A byte of a file.
#[derive(Clone, Copy)]
pub(crate) struct FilePosition<'a> {
    pub inode: &'a Inode,
    /// In bytes.
    pub offset: u64,
}

/// A clone: blocks of the source, and the first block of the target.
struct Clone<'a> {
    from: DataFile<'a>,
    to: DataFile<'a>,
    blocks: Range<u64>,
    target: u64,
}

impl DataFile<'_> {
    /// The file has grown without a write.
    fn grown(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        self.inode.mapping(cx).clone().set_size(size);
        self.log_size(cx, size)
    }

    /// Says on the disk that the file may share blocks.
    pub(super) fn set_reflink(&self, cx: &mut Cx) -> Result<(), Errno> {
        if self.inode.is_reflink(cx) {
            return Ok(());
        }
        self.fs.transact(cx, reservations::set_attr(self.fs.geometry()), |cx, trans| {
            trans.join_inode(cx, &self.inode.item);
            self.inode.with(cx, |state| state.core.flags2.insert(Flags2::REFLINK));
            self.inode.log(cx, trans, self.fs.geometry(), InodeFields::CORE);
            Ok(())
        })
    }

    /// How many blocks of a range hold so few extents that one transaction can take them out.
    fn few_extents(&self, cx: &mut Cx, range: Range<u64>) -> Result<u64, Errno> {
        let end = self.inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= range.start);
            let behind = list.get(first + EXTENTS_AT_ONCE);
            behind.map_or(range.end, |extent| extent.offset.min(range.end))
        });
        Ok(end.map_err(|fault| self.fs.fault(fault))? - range.start)
    }

    fn share_one(&self, cx: &mut Cx, range: Range<u64>, new: Option<Extent>) -> Result<(), Errno> {
        let space = &self.fs.writer()?.space;
        let hold = match new {
            Some(new) => self.fs.reserve_quota_blocks(cx, self.inode, u64::from(new.count))?,
            None => QuotaHold::default(),
        };
        let trees = if self.in_realtime(cx) { SECTION_BLOCKS } else { 0 };
        let reserved = BlockReservation::new(space, MAP_BLOCKS + trees);
        let reserved = reserved.map_err(|error| self.fs.fail(error))?;
        let done = self.fs.transact(cx, reservations::remap(self.fs.geometry()), |cx, trans| {
            trans.join_inode(cx, &self.inode.item);
            self.inode.edit_blocks(cx, space, |cx, file| match new {
                Some(new) => file.share(cx, trans, new),
                None => file.drop_range(cx, trans, range),
            })?;
            self.inode.log(cx, trans, self.fs.geometry(), InodeFields::CORE | InodeFields::DATA);
            Ok(())
        });
        drop((reserved, hold));
        done
    }

    /// Gives a file blocks of its own where it shares some.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`, `EROFS`.
    pub(crate) fn unshare(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        if !self.fs.geometry().features.reflink() {
            return Err(Errno::EOPNOTSUPP);
        }
        let guard = self.begin_write(cx)?;
        let result = self.unshare_locked(cx, range);
        drop(guard);
        result
    }

    fn unshare_locked(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno> {
        let bits = self.fs.geometry().block_bits;
        let end = range.end.min(self.inode.size(cx));
        if range.start >= end {
            return Ok(());
        }
        let blocks = range.start >> bits..self.fs.geometry().blocks_of(end);
        self.allocate_cow(cx, blocks.clone())?;
        let mapping = self.inode.mapping(cx).clone();
        let mut at = blocks.start << bits;
        while at < end {
            let block = at >> bits;
            let cow = self.inode.cow_fork.lock(cx).lookup(block..blocks.end);
            let stop = ((block + cow.count) << bits).min(end);
            if cow.start.is_none() {
                at = stop;
                continue;
            }
            // What the page cache holds becomes dirty, and goes to the blocks of the CoW fork.
            let mut data = vec![0; (stop - at).min(1 << 20) as usize];
            let read = mapping.read(cx, at, &mut data)?;
            mapping.write(cx, at, &data[..read])?;
            at += read.max(1) as u64;
        }
        self.flush_file(cx, blocks.start << bits..blocks.end << bits, true)
    }
}

/// Lets `to` share a range of `from`'s blocks: see [`vfs::FileSystem::clone_range`].
///
/// # Errors
/// Those of [`vfs::FileSystem::clone_range`].
pub(crate) fn clone_file_range(
    fs: &Xfs,
    cx: &mut Cx,
    from: FilePosition<'_>,
    to: FilePosition<'_>,
    len: u64,
) -> Result<(), Errno> {
    both_locked(fs, cx, [from, to], |cx| {
        let file = DataFile::new(fs, to.inode);
        let old = to.inode.size(cx);
        let Some(stop) = clone_locked(fs, cx, from, to, len)? else { return Ok(()) };
        file.stamp_times(cx);
        match stop > old {
            true => file.grown(cx, stop),
            false => file.log_times(cx),
        }
    })
}

/// Lets `to` share a range of `from`'s blocks that has the same bytes: see
/// [`vfs::FileSystem::dedupe_range`].
///
/// # Errors
/// Those of [`vfs::FileSystem::dedupe_range`].
pub(crate) fn dedupe_file_range(
    fs: &Xfs,
    cx: &mut Cx,
    from: FilePosition<'_>,
    to: FilePosition<'_>,
    len: u64,
) -> Result<bool, Errno> {
    both_locked(fs, cx, [from, to], |cx| {
        let inside = |cx: &Cx, place: FilePosition<'_>| {
            place.offset.checked_add(len).is_some_and(|end| end <= place.inode.size(cx))
        };
        if len == 0 || !inside(cx, from) || !inside(cx, to) {
            return if len == 0 { Ok(true) } else { Err(Errno::EINVAL) };
        }
        ends(fs, cx, [from, to], len)?;
        if !same_bytes(cx, from, to, len)? {
            return Ok(false);
        }
        clone_locked(fs, cx, from, to, len).map(|_| true)
    })
}

/// Bytes that are compared at once.
const COMPARED: u64 = 1 << 17;

/// Whether two files, which are locked, have the same bytes in a range.
fn same_bytes(
    cx: &mut Cx,
    one: FilePosition<'_>,
    two: FilePosition<'_>,
    len: u64,
) -> Result<bool, Errno> {
    let files = [one, two].map(|place| (place.inode.mapping(cx).clone(), place.offset));
    let mut buffers = [vec![0; COMPARED.min(len) as usize], vec![0; COMPARED.min(len) as usize]];
    let mut done = 0;
    while done < len {
        let count = COMPARED.min(len - done) as usize;
        for ((mapping, offset), buffer) in files.iter().zip(&mut buffers) {
            let mut got = 0;
            while got < count {
                let at = offset + done + got as u64;
                match mapping.read(cx, at, &mut buffer[got..count])? {
                    0 => return Ok(false),
                    more => got += more,
                }
            }
        }
        if buffers[0][..count] != buffers[1][..count] {
            return Ok(false);
        }
        done += count as u64;
    }
    Ok(true)
}

/// Works on two files, or one, that nobody else may change meanwhile.
fn both_locked<R>(
    fs: &Xfs,
    cx: &mut Cx,
    [from, to]: [FilePosition<'_>; 2],
    work: impl FnOnce(&mut Cx) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let (from, to) = (from.inode, to.inode);
    if !fs.geometry().features.reflink() {
        return Err(Errno::EOPNOTSUPP);
    }
    from.kind(cx).check_regular()?;
    let same = from.ino == to.ino;
    // The two in the order of their numbers.
    let first = (!same && from.ino < to.ino).then(|| from.lock_alone(cx)).transpose()?;
    let middle = DataFile::new(fs, to).begin_write(cx)?;
    let last = (!same && from.ino > to.ino).then(|| from.lock_alone(cx)).transpose()?;
    let result = work(cx);
    drop((last, middle, first));
    result
}

/// Where the ranges of a clone end, in the source and in the target; None if they have no byte.
///
/// # Errors
/// `EINVAL`, `EFBIG` what cannot be shared.
fn ends(
    fs: &Xfs,
    cx: &Cx,
    [source, target]: [FilePosition<'_>; 2],
    len: u64,
) -> Result<Option<[u64; 2]>, Errno> {
    let (from, to) = (DataFile::new(fs, source.inode), DataFile::new(fs, target.inode));
    let (offset, target) = (source.offset, target.offset);
    let block = 1u64 << fs.geometry().block_bits;
    let size = from.inode.size(cx);
    let len = if len == 0 { size.saturating_sub(offset) } else { len };
    let end = offset.checked_add(len).filter(|&end| end <= size).ok_or(Errno::EINVAL)?;
    let stop = target.checked_add(len).filter(|&end| end <= i64::MAX as u64);
    let stop = stop.ok_or(Errno::EFBIG)?;
    if len == 0 {
        return Ok(None);
    }
    // Half a block can be shared only where both files end in it.
    let whole = end.is_multiple_of(block) || (end == size && stop >= to.inode.size(cx));
    let apart = from.inode.ino != to.inode.ino || end <= target || stop <= offset;
    // Both must lie on one device.
    let apart = apart && from.section(cx) == to.section(cx);
    if !offset.is_multiple_of(block) || !target.is_multiple_of(block) || !whole || !apart {
        return Err(Errno::EINVAL);
    }
    Ok(Some([end, stop]))
}

/// Shares the range, and returns where it ends in the target; None if it has no byte.
fn clone_locked(
    fs: &Xfs,
    cx: &mut Cx,
    source: FilePosition<'_>,
    target: FilePosition<'_>,
    len: u64,
) -> Result<Option<u64>, Errno> {
    let Some([end, stop]) = ends(fs, cx, [source, target], len)? else { return Ok(None) };
    let (from, offset) = (DataFile::new(fs, source.inode), source.offset);
    let (to, target) = (DataFile::new(fs, target.inode), target.offset);
    let bits = fs.geometry().block_bits;
    let (block, size) = (1u64 << bits, from.inode.size(cx));
    let wide = |range: Range<u64>| range.start..range.end.next_multiple_of(block);
    from.flush_file(cx, 0..size.next_multiple_of(block), true)?;
    to.clear_gap(cx, target)?;
    let old = to.inode.size(cx);
    to.flush_file(cx, 0..old.next_multiple_of(block), true)?;
    from.set_reflink(cx)?;
    to.set_reflink(cx)?;
    let guard = to.inode.writeback.lock(cx);
    let blocks = offset >> bits..fs.geometry().blocks_of(end);
    let clone = Clone { from, to, blocks, target: target >> bits };
    let result = share_all(fs, cx, &clone);
    to.inode.mapping(cx).clone().discard(cx, wide(target..stop));
    drop(guard);
    result?;
    Ok(Some(stop))
}

/// Shares all extents of the range, one in each transaction; holes become holes.
fn share_all(fs: &Xfs, cx: &mut Cx, clone: &Clone<'_>) -> Result<(), Errno> {
    let Clone { from, to, blocks, target } = clone;
    let range = *target..*target + (blocks.end - blocks.start);
    to.drop_delalloc(cx, range.clone());
    to.inode.io.lock(cx).forget(range.clone());
    to.cancel_cow(cx, range)?;
    let source = from.inode.extents(cx, Which::Data, |list| list.to_vec());
    let source = source.map_err(|fault| fs.fault(fault))?;
    let mut at = blocks.start;
    while at < blocks.end {
        let mapped = crate::bmap::lookup(&source, at..blocks.end);
        let offset = *target + (at - blocks.start);
        let count = to.few_extents(cx, offset..offset + mapped.count)?;
        let new = mapped.start.filter(|_| !mapped.unwritten).map(|start| Extent {
            offset,
            start,
            count: count as u32,
            unwritten: false,
        });
        to.share_one(cx, offset..offset + count, new)?;
        at += count;
    }
    Ok(())
}
