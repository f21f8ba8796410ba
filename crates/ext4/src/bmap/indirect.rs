//! Indirect blocks: the map of ext2 and ext3. Twelve direct pointers, then tables of one, two and
//! three levels.
//!
//! Every function here needs the inode's map lock, for writing where it changes something.

use std::ops::Range;

use base::Errno;
use cache::BufferRef;
use rt::Cx;
use smallvec::SmallVec;

use crate::alloc::mballoc::Prealloc;
use crate::alloc::mballoc::{Purpose, Request};
use crate::bmap::Bmap;
use crate::bmap::extents::{FoundExtent, Removed};
use crate::format::extent::Extent;
use crate::format::{At, CorruptKind};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// Pointers in the inode that name data blocks.
const DIRECT: u64 = 12;

/// Where a pointer lies: in the inode (no buffer) or in a table, and its index there.
#[derive(Clone, Debug)]
struct Slot {
    table: Option<BufferRef>,
    index: usize,
}

/// Blocks of a file that have none.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// How many.
    pub len: u32,
    /// The tables of pointers that they lack, from the inode down: length of their way, level,
    /// first logical block.
    pub tables: Vec<(usize, usize, u64)>,
    /// The block behind what lies before; 0 where nothing does.
    pub goal: u64,
}

/// The indices from the inode down to the data pointer of a block.
type Indices = SmallVec<[usize; 4]>;

fn pointer(data: &[u8], index: usize) -> u64 {
    u64::from(u32::from_le_bytes(data[index * 4..index * 4 + 4].try_into().expect("four bytes")))
}

fn set_pointer(data: &mut [u8], index: usize, block: u64) {
    data[index * 4..index * 4 + 4].copy_from_slice(&(block as u32).to_le_bytes());
}

/// The indices for `lblk` with `per` pointers in a table. None beyond the last block.
fn indices(lblk: u64, per: u64) -> Option<Indices> {
    let mut rest = lblk;
    if rest < DIRECT {
        return Some(Indices::from_slice(&[rest as usize]));
    }
    rest -= DIRECT;
    let mut span = per;
    for level in 1..=3usize {
        if rest < span {
            let mut indices = Indices::from_slice(&[11 + level]);
            let mut unit = span / per;
            for _ in 0..level {
                indices.push((rest / unit % per) as usize);
                unit = (unit / per).max(1);
            }
            return Some(indices);
        }
        rest -= span;
        span *= per;
    }
    None
}

impl Bmap<'_> {
    fn per_table(self) -> u64 {
        u64::from(self.fs.sb.geometry.block_size / 4)
    }

    fn indices(self, lblk: u32) -> Result<Indices, Errno> {
        indices(u64::from(lblk), self.per_table()).ok_or(Errno::EFBIG)
    }

    fn slot_value(self, cx: &Cx, slot: &Slot) -> u64 {
        match &slot.table {
            Some(buffer) => buffer.with(|data| pointer(data, slot.index)),
            None => self.inode.with(cx, |core| pointer(&core.block, slot.index)),
        }
    }

    fn set_slot(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        slot: &Slot,
        block: u64,
    ) -> Result<(), Errno> {
        match &slot.table {
            None => {
                self.inode.with(cx, |core| set_pointer(&mut core.values.block, slot.index, block))
            }
            Some(buffer) => {
                handle.write_access(cx, buffer)?;
                buffer.with_mut(|data| set_pointer(data, slot.index, block));
                handle.dirty(cx, buffer)?;
            }
        }
        Ok(())
    }

    fn check_pointer(self, cx: &Cx, lblk: u32, block: u64) -> Result<(), Errno> {
        if self.fs.sb.geometry.data_blocks_valid(block, 1) {
            return Ok(());
        }
        let (first, end) =
            (u64::from(self.fs.sb.geometry.first_data_block) + 1, self.fs.sb.geometry.blocks_count);
        let kind = CorruptKind::MappedBlock { logical: u64::from(lblk), block, first, end };
        Err(self.fs.sb.corrupt_kind(cx, kind, At::Inode(self.inode.ino)))
    }

    /// Follows the pointers for `lblk` as far as they go: the slots seen, the last one either the
    /// data pointer or a zero on the way.
    fn walk(self, cx: &mut Cx, lblk: u32, indices: &Indices) -> Result<SmallVec<[Slot; 4]>, Errno> {
        let mut slots = SmallVec::new();
        let mut table = None;
        for (level, &index) in indices.iter().enumerate() {
            let slot = Slot { table: table.take(), index };
            let block = self.slot_value(cx, &slot);
            slots.push(slot);
            if block == 0 {
                break;
            }
            self.check_pointer(cx, lblk, block)?;
            if level + 1 < indices.len() {
                table = Some(self.fs.sb.read_block(cx, block)?);
            }
        }
        Ok(slots)
    }

    /// How many logical blocks one pointer at `level` stands for, in a way of `levels` pointers.
    fn span(self, level: usize, levels: usize) -> u64 {
        self.per_table().pow((levels - 1 - level) as u32)
    }

    /// What lies at `lblk`: a run of blocks from there on, at most `want`, or a hole. A hole may go
    /// on behind its `next`.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`, `EFBIG`.
    pub(crate) fn indirect_lookup(
        self,
        cx: &mut Cx,
        lblk: u32,
        want: u32,
    ) -> Result<FoundExtent, Errno> {
        let indices = self.indices(lblk)?;
        let slots = self.walk(cx, lblk, &indices)?;
        let last = slots.last().expect("the first pointer is always seen");
        let start = self.slot_value(cx, last);
        if start == 0 {
            let span = self.span(slots.len() - 1, indices.len());
            let inside = self.offset_in_span(lblk, span);
            let next = u64::from(lblk) - inside + span;
            return Ok(FoundExtent::Hole { next: next.min(u64::from(u32::MAX)) as u32 });
        }
        let room = if last.table.is_some() { self.per_table() } else { DIRECT };
        let most = (room as usize - last.index).min(want.max(1) as usize);
        let count = |data: &[u8]| {
            (1..most)
                .find(|&more| pointer(data, last.index + more) != start + more as u64)
                .unwrap_or(most)
        };
        let len = match &last.table {
            Some(buffer) => buffer.with(count),
            None => self.inode.with(cx, |core| count(&core.block)),
        };
        if !self.fs.sb.geometry.data_blocks_valid(start, len as u64) {
            self.check_pointer(cx, lblk, start + len as u64 - 1)?;
        }
        Ok(FoundExtent::Extent(Extent { block: lblk, len: len as u32, start, unwritten: false }))
    }

    /// Position of `lblk` in its aligned span of the tree that it lies in.
    fn offset_in_span(self, lblk: u32, span: u64) -> u64 {
        let per = self.per_table();
        let mut rest = u64::from(lblk);
        if rest < DIRECT {
            return 0;
        }
        rest -= DIRECT;
        let mut size = per;
        while rest >= size {
            rest -= size;
            size *= per;
        }
        rest % span
    }

    /// The block that would be best for new data at `lblk`.
    fn indirect_goal(self, cx: &Cx, last: &Slot) -> u64 {
        let before = |data: &[u8]| {
            (0..last.index).rev().map(|index| pointer(data, index)).find(|&block| block != 0)
        };
        let near = match &last.table {
            Some(buffer) => buffer.with(before).or(Some(buffer.block())),
            None => self.inode.with(cx, |core| before(&core.block)),
        };
        near.map_or(0, |block| block + 1)
    }

    /// Whether a run ends with the last pointer of a table: what follows is mapped by another.
    pub(crate) fn indirect_boundary(self, lblk: u32, len: u32) -> bool {
        let end = u64::from(lblk) + u64::from(len);
        end == DIRECT || end > DIRECT && (end - DIRECT).is_multiple_of(self.per_table())
    }

    /// How many blocks from `lblk` on have none, at most `want`, and which tables of pointers they
    /// lack; with `across` not only in the table of `lblk`.
    ///
    /// # Errors
    /// As [`Bmap::indirect_lookup`].
    pub(crate) fn indirect_gap(
        self,
        cx: &mut Cx,
        lblk: u32,
        want: u32,
        across: bool,
    ) -> Result<Gap, Errno> {
        let mut gap = Gap { len: 0, tables: Vec::new(), goal: 0 };
        while gap.len < want {
            let at = lblk + gap.len;
            let indices = self.indices(at)?;
            let slots = self.walk(cx, at, &indices)?;
            let last = slots.last().expect("the first pointer is always seen");
            if gap.len == 0 {
                gap.goal = self.indirect_goal(cx, last);
            }
            for level in slots.len()..indices.len() {
                let covers = self.span(level - 1, indices.len());
                let first = u64::from(at) - self.offset_in_span(at, covers);
                let name = (indices.len(), level, first);
                if !gap.tables.contains(&name) {
                    gap.tables.push(name);
                }
            }
            let room = if indices.len() > 1 { self.per_table() } else { DIRECT } as usize;
            let index = *indices.last().expect("a way has a pointer");
            let most = (room - index).min((want - gap.len) as usize);
            let free = |data: &[u8]| {
                (0..most).find(|&more| pointer(data, index + more) != 0).unwrap_or(most)
            };
            let free = match &last.table {
                _ if slots.len() < indices.len() => most,
                Some(buffer) => buffer.with(free),
                None => self.inode.with(cx, |core| free(&core.block)),
            };
            gap.len += free as u32;
            if free < most || !across {
                break;
            }
        }
        Ok(gap)
    }

    /// Begins to read the table that the map of `lblk` needs next, where its number is known. True
    /// where a table is on its way. May park: for the inode's map lock.
    pub(crate) fn indirect_prefetch(self, cx: &mut Cx, lblk: u32) -> bool {
        let Ok(indices) = self.indices(lblk) else { return false };
        let guard = self.inode.map_lock.read(cx);
        let mut slot = Slot { table: None, index: indices[0] };
        let mut reads = None;
        for &index in &indices[1..] {
            let block = self.slot_value(cx, &slot);
            if block == 0 || !self.fs.sb.geometry.data_blocks_valid(block, 1) {
                break;
            }
            match self.fs.sb.buffers.find(cx, block).filter(|buffer| buffer.uptodate()) {
                Some(buffer) => slot = Slot { table: Some(buffer), index },
                None => {
                    reads = Some(block);
                    break;
                }
            }
        }
        drop(guard);
        if let Some(block) = reads {
            self.fs.sb.buffers.readahead(cx, block, 1);
        }
        reads.is_some()
    }

    /// Gives blocks to a hole, as `request` says but with a goal of its own: needs
    /// `credits::map(3)`. The inode must be marked dirty afterwards.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EIO`, `EUCLEAN`.
    pub(crate) fn indirect_alloc(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: &mut Prealloc,
        request: Request,
    ) -> Result<Extent, Errno> {
        let Request { lblk, want, purpose, .. } = request;
        let indices = self.indices(lblk)?;
        let mut slots = self.walk(cx, lblk, &indices)?;
        while slots.len() < indices.len() {
            let slot = slots.last().expect("the first pointer is always seen").clone();
            let buffer = self.new_table(cx, handle, prealloc, &slot)?;
            self.set_slot(cx, handle, &slot, buffer.block())?;
            slots.push(Slot { table: Some(buffer), index: indices[slots.len()] });
        }
        let last = slots.last().expect("the way is complete").clone();
        let room = if last.table.is_some() { self.per_table() } else { DIRECT };
        let most = (room as usize - last.index).min(want as usize);
        let free = |data: &[u8]| {
            (0..most).find(|&more| pointer(data, last.index + more) != 0).unwrap_or(most)
        };
        let want = match &last.table {
            Some(buffer) => buffer.with(free),
            None => self.inode.with(cx, |core| free(&core.block)),
        };
        let goal = self.indirect_goal(cx, &last);
        let request = Request { goal, want: want as u32, lblk, purpose };
        let (start, len) = self.new_blocks(cx, handle, Some(prealloc), request)?;
        if start + u64::from(len) > u64::from(u32::MAX) {
            self.fs.alloc.free_blocks(cx, handle, start, len)?;
            return Err(Errno::ENOSPC);
        }
        let fill = |data: &mut [u8]| {
            for more in 0..len as usize {
                set_pointer(data, last.index + more, start + more as u64);
            }
        };
        match &last.table {
            None => self.inode.with(cx, |core| fill(&mut core.values.block)),
            Some(buffer) => {
                handle.write_access(cx, buffer)?;
                buffer.with_mut(fill);
                handle.dirty(cx, buffer)?;
            }
        }
        let sectors = u64::from(len) * u64::from(self.fs.sb.geometry.block_size / 512);
        self.inode.with(cx, |core| core.values.blocks += sectors);
        Ok(Extent { block: lblk, len, start, unwritten: false })
    }

    /// Takes a block for a table and zeroes it.
    fn new_table(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: &mut Prealloc,
        slot: &Slot,
    ) -> Result<BufferRef, Errno> {
        let goal = self.indirect_goal(cx, slot);
        let request = Request { goal, want: 1, lblk: 0, purpose: Purpose::Node };
        let (block, _) = self.new_blocks(cx, handle, Some(prealloc), request)?;
        let buffer = self.fs.sb.buffers.get(cx, block);
        handle.create_access(cx, &buffer)?;
        buffer.with_mut(|data| data.fill(0));
        buffer.set_trigger(None);
        buffer.set_uptodate();
        handle.dirty(cx, &buffer)?;
        let sectors = u64::from(self.fs.sb.geometry.block_size / 512);
        self.inode.with(cx, |core| core.values.blocks += sectors);
        Ok(buffer)
    }

    /// Unmaps `blocks` and frees what they have, from the end to the start, as far as the handle's
    /// credits go. The inode must be marked dirty afterwards (the credit for that is kept).
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn indirect_remove(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        blocks: Range<u32>,
    ) -> Result<Removed, Errno> {
        let limit = self.fs.sb.geometry.indirect_limit().min(u64::from(u32::MAX)) as u32;
        let (from, mut to) = (blocks.start, blocks.end.min(limit));
        while from < to {
            let lblk = to - 1;
            let indices = self.indices(lblk)?;
            let slots = self.walk(cx, lblk, &indices)?;
            let last = slots.last().expect("the first pointer is always seen").clone();
            if slots.len() < indices.len() {
                // A hole as large as what the zero pointer stands for.
                let span = self.span(slots.len() - 1, indices.len());
                to = (u64::from(lblk) - self.offset_in_span(lblk, span)) as u32;
                continue;
            }
            let lowest = u64::from(lblk - from).min(last.index as u64) as usize;
            let seen = |data: &[u8]| last_run(data, last.index, last.index - lowest);
            let (index, start, len) = match &last.table {
                Some(buffer) => buffer.with(seen),
                None => self.inode.with(cx, |core| seen(&core.block)),
            };
            let first = lblk - (last.index - index) as u32;
            if len == 0 {
                to = first;
                continue;
            }
            self.check_pointer(cx, first, start)?;
            if !handle.ensure(cx, credits::REMOVE)? {
                return Ok(Removed::Restart);
            }
            self.clear_run(cx, handle, &last, index, len)?;
            self.drop_empty_tables(cx, handle, &slots)?;
            self.free_content(cx, handle, start, len)?;
            to = first;
        }
        Ok(Removed::All)
    }

    fn clear_run(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        slot: &Slot,
        index: usize,
        len: u32,
    ) -> Result<(), Errno> {
        let range = index * 4..(index + len as usize) * 4;
        match &slot.table {
            None => self.inode.with(cx, |core| core.values.block[range].fill(0)),
            Some(buffer) => {
                handle.write_access(cx, buffer)?;
                buffer.with_mut(|data| data[range].fill(0));
                handle.dirty(cx, buffer)?;
            }
        }
        let sectors = u64::from(len) * u64::from(self.fs.sb.geometry.block_size / 512);
        self.inode.with(cx, |core| core.values.blocks = core.blocks.saturating_sub(sectors));
        Ok(())
    }

    /// Frees the tables of the way that hold no pointer any more, from the lowest up.
    fn drop_empty_tables(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        slots: &[Slot],
    ) -> Result<(), Errno> {
        for level in (1..slots.len()).rev() {
            let table = slots[level].table.as_ref().expect("only the first is in the inode");
            if !table.with(|data| data.iter().all(|&byte| byte == 0)) {
                return Ok(());
            }
            self.set_slot(cx, handle, &slots[level - 1], 0)?;
            handle.forget_block(cx, table.block())?;
            let sectors = u64::from(self.fs.sb.geometry.block_size / 512);
            self.inode.with(cx, |core| core.values.blocks = core.blocks.saturating_sub(sectors));
            self.fs.alloc.free_blocks(cx, handle, table.block(), 1)?;
        }
        Ok(())
    }
}

/// The last pointers in `lowest..=highest` that name blocks one behind the other: the first one's
/// index, its block, and how many. Without any the index is `lowest` and the count 0.
fn last_run(data: &[u8], highest: usize, lowest: usize) -> (usize, u64, u32) {
    let Some(last) = (lowest..=highest).rev().find(|&index| pointer(data, index) != 0) else {
        return (lowest, 0, 0);
    };
    let mut first = last;
    while first > lowest
        && pointer(data, first - 1) != 0
        && pointer(data, first - 1) + 1 == pointer(data, first)
    {
        first -= 1;
    }
    (first, pointer(data, first), (last - first + 1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_own_way() {
        let per = 256u64;
        let edges = [0, 11, 12, 267, 268, 65803, 65804, 16_843_019];
        let ways: Vec<Indices> =
            edges.iter().map(|&lblk| indices(lblk, per).expect("in range")).collect();
        assert_eq!(&ways[1][..], [11]);
        assert_eq!(&ways[2][..], [12, 0]);
        assert_eq!(&ways[3][..], [12, 255]);
        assert_eq!(&ways[4][..], [13, 0, 0]);
        assert_eq!(&ways[5][..], [13, 255, 255]);
        assert_eq!(&ways[6][..], [14, 0, 0, 0]);
        assert_eq!(&ways[7][..], [14, 255, 255, 255]);
        assert_eq!(indices(16_843_020, per), None);
    }

    #[test]
    fn runs_are_found_from_the_end() {
        let mut data = [0u8; 64];
        for (index, block) in [(2, 50), (3, 51), (4, 60), (5, 61), (6, 62)] {
            set_pointer(&mut data, index, block);
        }
        assert_eq!(last_run(&data, 15, 0), (4, 60, 3));
        assert_eq!(last_run(&data, 5, 5), (5, 61, 1));
        assert_eq!(last_run(&data, 3, 0), (2, 50, 2));
        assert_eq!(last_run(&data, 1, 0), (0, 0, 0));
    }
}
