//! Exchanges ranges of two files, whole or not at all, also over a crash.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::iomap::IomapFile;

use super::{DataFile, FilePosition};
use crate::Xfs;
use crate::alloc::{BlockReservation, Space};
use crate::bmap::blocks::{FileBlocks, worst_case};
use crate::bmap::exchange::{ExchangedFile, exchange_step, mapped};
use crate::bmap::{Mapped, Which};
use crate::error::{Result as XfsResult, XfsError};
use crate::format::inode::InodeCore;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::trans::intent::{Exchange, ExchangeSide, Work, exchange_flags};
use crate::trans::{Finished, IntentFinisher, Trans, reservations};

/// Blocks by which the realtime section's btrees may grow.
const SECTION_BLOCKS: u64 = 24;

/// An exchange between two ranges, in blocks.
struct Ranges {
    starts: [u64; 2],
    count: u64,
    /// The sizes of both afterwards, where they change.
    sizes: Option<[u64; 2]>,
}

impl Ranges {
    /// The range of one of the files.
    fn of(&self, side: usize) -> Range<u64> {
        self.starts[side]..self.starts[side] + self.count
    }
}

impl ExchangedFile for Arc<Inode> {
    fn lookup(&mut self, cx: &mut Cx, range: Range<u64>) -> XfsResult<Mapped> {
        Ok(self.extents(cx, Which::Data, |list| mapped(Some(list), range))?)
    }

    fn edit<R>(
        &mut self,
        cx: &mut Cx,
        space: &Space,
        change: impl FnOnce(&mut Cx, &mut FileBlocks<'_, '_>) -> XfsResult<R>,
    ) -> XfsResult<R> {
        self.edit_blocks(cx, space, change)
    }

    fn set(&mut self, cx: &Cx, change: impl FnOnce(&mut InodeCore)) {
        self.with(cx, |state| change(&mut state.core));
    }
}

/// Carries out the steps of one exchange, whose files are locked.
struct Exchanger {
    space: Arc<Space>,
    /// Both, or one that exchanges with itself.
    files: Vec<Arc<Inode>>,
}

impl IntentFinisher for Exchanger {
    fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> XfsResult<Finished> {
        let Work::Exchange(exchange) = work else { return self.space.finish(cx, trans, work) };
        let mut left = **exchange;
        exchange_step(cx, &self.space, trans, &mut self.files.clone(), &mut left)?;
        for file in &self.files {
            file.log(cx, trans, &self.space.geometry, InodeFields::CORE | InodeFields::DATA);
        }
        Ok(match left.blocks {
            0 => Finished::Done,
            _ => Finished::Again(Work::Exchange(Arc::new(left))),
        })
    }
}

/// Exchanges ranges of two files: see [`vfs::FileSystem::exchange_range`].
///
/// # Errors
/// Those of [`vfs::FileSystem::exchange_range`].
pub(crate) fn exchange_file_ranges(
    fs: &Xfs,
    cx: &mut Cx,
    sides: [FilePosition<'_>; 2],
    len: Option<u64>,
) -> Result<(), Errno> {
    if !fs.geometry().features.exchange() {
        return Err(Errno::EOPNOTSUPP);
    }
    let [one, two] = sides.map(|side| DataFile::new(fs, side.inode));
    let mut order = [one, two];
    order.sort_by_key(|file| file.inode.ino);
    let same = one.inode.ino == two.inode.ino;
    let first = order[0].begin_write(cx)?;
    let second = (!same).then(|| order[1].begin_write(cx)).transpose()?;
    let result = exchange_locked(fs, cx, sides, len);
    drop((second, first));
    result
}

fn exchange_locked(
    fs: &Xfs,
    cx: &mut Cx,
    sides: [FilePosition<'_>; 2],
    len: Option<u64>,
) -> Result<(), Errno> {
    let files = sides.map(|side| DataFile::new(fs, side.inode));
    let [one, two] = files;
    let Some(ranges) = ranges(cx, files, sides.map(|side| side.offset), len)? else {
        return Ok(());
    };
    let block = 1u64 << fs.geometry().block_bits;
    for file in files {
        file.flush_file(cx, 0..file.inode.size(cx).next_multiple_of(block), true)?;
    }
    // Blocks that are shared stay so in the other file.
    if one.inode.is_reflink(cx) || two.inode.is_reflink(cx) {
        one.set_reflink(cx)?;
        two.set_reflink(cx)?;
    }
    let mut order = files;
    order.sort_by_key(|file| file.inode.ino);
    let same = one.inode.ino == two.inode.ino;
    let first = order[0].inode.writeback.lock(cx);
    let second = (!same).then(|| order[1].inode.writeback.lock(cx));
    let result = exchange_blocks(fs, cx, files, &ranges);
    for (side, file) in files.into_iter().enumerate() {
        let Range { start, end } = ranges.of(side);
        let mapping = file.inode.mapping(cx).clone();
        mapping.discard(cx, start * block..end.saturating_mul(block));
        if let (Some(sizes), Ok(())) = (&ranges.sizes, &result) {
            mapping.set_size(sizes[side]);
        }
    }
    drop((second, first));
    result
}

/// What is exchanged; None where that is nothing.
fn ranges(
    cx: &Cx,
    files: [DataFile<'_>; 2],
    offsets: [u64; 2],
    len: Option<u64>,
) -> Result<Option<Ranges>, Errno> {
    let [one, two] = files;
    let geometry = one.fs.geometry();
    let section = one.section(cx);
    let unit = match one.in_realtime(cx) {
        true => u64::from(geometry.realtime.extent_blocks) << geometry.block_bits,
        false => 1 << geometry.block_bits,
    };
    let sizes = files.map(|file| file.inode.size(cx));
    let rest = |side: usize| sizes[side].checked_sub(offsets[side]).ok_or(Errno::EINVAL);
    let rests = [rest(0)?, rest(1)?];
    let same = one.inode.ino == two.inode.ino;
    let len_max = rests[0].max(rests[1]);
    let (len, whole) = match len {
        // A kernel that recovers the log gives each file the size of the other.
        None => (len_max, !same && offsets[0] == offsets[1]),
        // A part of a block only where both files end in it.
        Some(len) => {
            let blocks = len.is_multiple_of(unit) && len <= rests[0].min(rests[1]);
            (len, blocks || [len; 2] == rests)
        }
    };
    let apart = !same || offsets[0].abs_diff(offsets[1]) >= len;
    let aligned = offsets.iter().all(|offset| offset.is_multiple_of(unit));
    if section != two.section(cx) || !whole || !apart || !aligned {
        return Err(Errno::EINVAL);
    }
    let sizes = (len > rests[0].min(rests[1])).then_some([sizes[1], sizes[0]]);
    let starts = offsets.map(|offset| offset >> geometry.block_bits);
    let count = len.div_ceil(unit) * (unit >> geometry.block_bits);
    Ok((count > 0).then_some(Ranges { starts, count, sizes }))
}

fn exchange_blocks(
    fs: &Xfs,
    cx: &mut Cx,
    files: [DataFile<'_>; 2],
    ranges: &Ranges,
) -> Result<(), Errno> {
    let (space, geometry) = (fs.writer()?.space.clone(), fs.geometry());
    for (side, file) in files.into_iter().enumerate() {
        file.drop_delalloc(cx, ranges.of(side));
        file.inode.io.lock(cx).forget(ranges.of(side));
        file.cancel_cow(cx, ranges.of(side))?;
    }
    let mut counts = [(0, 0); 2];
    for (side, file) in files.into_iter().enumerate() {
        counts[side] = file.pieces(cx, ranges.of(side))?;
    }
    // What comes is at most as many pieces as the other one has, cut where its own are.
    let pieces = counts[0].0 + counts[1].0 + 2;
    let mut blocks = 2 * SECTION_BLOCKS * u64::from(geometry.section_trees());
    let mut holds = Vec::new();
    for (side, file) in files.into_iter().enumerate() {
        let forks = file.inode.forks.read(cx);
        blocks += worst_case(geometry, file.inode.ino, &forks.data, pieces);
        drop(forks);
        let more = counts[1 - side].1.saturating_sub(counts[side].1);
        if fs.owners_of(cx, files[0].inode) != fs.owners_of(cx, files[1].inode) {
            holds.push(fs.reserve_quota_blocks(cx, file.inode, more)?);
        }
    }
    let reserved = BlockReservation::new(&space, blocks).map_err(|error| fs.fail(error))?;
    let mut inodes: Vec<_> = files.iter().map(|file| file.inode.arc()).collect();
    inodes.dedup_by_key(|inode| inode.ino);
    let finisher = Arc::new(Exchanger { space, files: inodes });
    let done = fs.transact(cx, reservations::exchange(geometry), |cx, trans| {
        let mut order: Vec<_> = finisher.files.iter().collect();
        order.sort_by_key(|inode| inode.ino);
        order.iter().for_each(|inode| trans.join_inode(cx, &inode.item));
        for file in &files {
            file.stamp_times(cx);
            file.inode.io.lock(cx).times_dirty = false;
        }
        if let Some(sizes) = ranges.sizes {
            for (file, size) in files.iter().zip(sizes) {
                file.inode.io.lock(cx).cut(size);
            }
        }
        let exchange = exchange_of(cx, files, ranges);
        trans.defer(Work::Exchange(Arc::new(exchange)));
        trans.finish_with(cx, Some(finisher.clone()), VecDeque::new())
    });
    drop((reserved, holds));
    done
}

fn exchange_of(cx: &Cx, files: [DataFile<'_>; 2], ranges: &Ranges) -> Exchange {
    let side = |side: usize| {
        let inode = files[side].inode;
        let (generation, size) = inode.with(cx, |state| (state.core.generation, state.core.size));
        let size = ranges.sizes.map_or(size, |sizes| sizes[side]);
        ExchangeSide { ino: inode.ino.0, generation, start: ranges.starts[side], size }
    };
    let flags = if ranges.sizes.is_some() { exchange_flags::SET_SIZES } else { 0 };
    Exchange { sides: [side(0), side(1)], blocks: ranges.count, flags }
}

impl DataFile<'_> {
    /// How many extents and blocks a file has in a range.
    fn pieces(&self, cx: &mut Cx, range: Range<u64>) -> Result<(u64, u64), Errno> {
        let found = self.inode.extents(cx, Which::Data, |list| {
            let first = list.partition_point(|extent| extent.end() <= range.start);
            let inside = list[first..].iter().take_while(|extent| extent.offset < range.end);
            inside.fold((0, 0), |(pieces, blocks), extent| {
                let here = extent.end().min(range.end) - extent.offset.max(range.start);
                (pieces + 1, blocks + here)
            })
        });
        found.map_err(|fault| self.fs.fail(XfsError::from(fault)))
    }
}
