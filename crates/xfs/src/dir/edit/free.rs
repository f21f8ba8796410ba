//! The free index: free blocks that say how much room each data block has.

use rt::Cx;

use super::DirEdit;
use crate::bmap::Which;
use crate::buf::Buf;
use crate::dir::space_start;
use crate::error::Result;
use crate::format::dir_index::{FREE_HEADER, Free, NULL_BEST, emit_free, free_max};
use crate::format::{Corrupt, Geometry, Kind, put_u16, put_u32, u16_at};

/// The block of the fork where free block `number` lies.
pub(super) fn place(geometry: &Geometry, number: u64) -> u64 {
    space_start(geometry, 2) + number * u64::from(geometry.dir_blocks())
}

impl DirEdit<'_> {
    /// Data blocks that one free block describes.
    fn per_free(&self) -> u64 {
        free_max(self.block_size()) as u64
    }

    /// The numbers of the free blocks that there are.
    pub(super) fn free_blocks(&self, cx: &mut Cx) -> Result<Vec<u64>> {
        let (base, count) = (space_start(self.geometry(), 2), self.count());
        let numbers = self.inode.extents(cx, Which::Data, |list| {
            let from = list.partition_point(|extent| extent.end() <= base);
            let mut numbers: Vec<u64> = list[from..]
                .iter()
                .flat_map(|extent| {
                    let first = extent.offset.max(base) - base;
                    first / count..(extent.end() - base).div_ceil(count)
                })
                .collect();
            numbers.dedup();
            numbers
        })?;
        Ok(numbers)
    }

    /// A data block with room for `size` bytes. None if a new one is needed.
    pub(super) fn find_room(&mut self, cx: &mut Cx, size: usize) -> Result<Option<u64>> {
        let from = self.inode.room.lock(cx).first(size);
        // Mostly the block that the last name went to has room for one more.
        let number = from / self.per_free();
        let offset = place(self.geometry(), number);
        if let Some(buf) = self.at_hand(cx, offset, Kind::DirFree.alone())
            && let Some(index) = self.room_in(&buf, number, from, size)?
        {
            if index != from {
                self.inode.room.lock(cx).none_before(size, index);
            }
            return Ok(Some(index));
        }
        let mut end = from;
        for number in self.free_blocks(cx)? {
            let first = number * self.per_free();
            if first + self.per_free() <= from {
                continue;
            }
            let offset = place(self.geometry(), number);
            let buf = self.read_block(cx, offset, Kind::DirFree.alone())?;
            if let Some(index) = self.room_in(&buf, number, from, size)? {
                self.inode.room.lock(cx).none_before(size, index);
                return Ok(Some(index));
            }
            end = first + self.per_free();
            self.release(offset, &buf);
        }
        self.inode.room.lock(cx).none_before(size, end);
        Ok(None)
    }

    /// The first data block from `from` on that has room for `size` bytes, of those that free block
    /// `number` describes.
    fn room_in(&self, buf: &Buf, number: u64, from: u64, size: usize) -> Result<Option<u64>> {
        let first = number * self.per_free();
        let skip = from.saturating_sub(first) as usize;
        let at = self.block_at(place(self.geometry(), number));
        let found = buf.with(|data| -> Result<_, Corrupt> {
            Ok(Free::parse(data, number as u32, at)?.first_with(size, skip))
        })?;
        Ok(found.map(|index| first + index as u64))
    }

    /// Notes the room of a data block; [`NULL_BEST`] where it is gone.
    pub(super) fn set_room(&mut self, cx: &mut Cx, index: u64, best: u16) -> Result<()> {
        if best != NULL_BEST {
            self.inode.room.lock(cx).note(index, best.into());
        }
        let (number, slot) = (index / self.per_free(), (index % self.per_free()) as usize);
        let offset = place(self.geometry(), number);
        let buf = match self.at_hand(cx, offset, Kind::DirFree.alone()) {
            Some(buf) => buf,
            None if self.maps(cx, offset)?.is_some() => {
                self.read_block(cx, offset, Kind::DirFree.alone())?
            }
            None => {
                let buf = self.grow(cx, offset, Kind::DirFree)?;
                let first = (number * self.per_free()) as u32;
                buf.with_mut(|data| emit_free(data, first, &[]));
                self.log_range(&buf, 0..FREE_HEADER);
                buf
            }
        };
        let at = self.block_at(offset);
        let (range, used) = buf.with_mut(|data| -> Result<_, Corrupt> {
            let free = Free::parse(data, number as u32, at)?;
            let (mut used, valid) = (free.used, free.bests().len());
            let old = match slot < valid {
                true => u16_at(data, FREE_HEADER + 2 * slot),
                false => NULL_BEST,
            };
            used += u32::from(old == NULL_BEST && best != NULL_BEST);
            used -= u32::from(old != NULL_BEST && best == NULL_BEST).min(used);
            let at_slot = |slot: usize| FREE_HEADER + 2 * slot;
            let mut new_valid = valid.max(slot + 1);
            (valid..new_valid).for_each(|slot| put_u16(data, at_slot(slot), NULL_BEST));
            put_u16(data, at_slot(slot), best);
            while new_valid > 0 && u16_at(data, at_slot(new_valid - 1)) == NULL_BEST {
                new_valid -= 1;
            }
            put_u32(data, 52, new_valid as u32);
            put_u32(data, 56, used);
            Ok((at_slot(valid.min(slot))..at_slot(slot + 1), used))
        })?;
        if used == 0 {
            return self.shrink(cx, offset, &buf);
        }
        self.log(&buf, &[48..60, range]);
        Ok(())
    }
}
