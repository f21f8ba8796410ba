//! Data blocks: names are put into unused ranges and taken out, and the three largest unused
//! ranges stay known.

use std::sync::Arc;

use base::Ino;
use rt::Cx;
use smallvec::SmallVec;

use super::{DirEdit, Name, Shape};
use crate::buf::Buf;
use crate::error::Result;
use crate::format::dir::{
    BestFree, DATA_HEADER, DataBlock, FREE_TAG, Item, best_free, entry_size, find_best_free,
    set_best_free, set_entry, set_unused,
};
use crate::format::{At, Corrupt, CorruptKind, Kind, put_u64, u16_at};

/// Bytes of a block that were changed.
pub(super) type Range = std::ops::Range<usize>;
pub(super) type Ranges = SmallVec<[Range; 6]>;

/// A data block of either kind in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub kind: Kind,
    pub ftype: bool,
    pub at: At,
}

impl Frame {
    fn view<'d>(&self, data: &'d [u8]) -> Result<DataBlock<'d>, Corrupt> {
        DataBlock::new(self.kind, data, self.ftype, self.at)
    }

    /// Length of the unused range at `offset`.
    pub fn unused(&self, data: &[u8], offset: usize) -> Result<usize, Corrupt> {
        match self.view(data)?.item(offset, self.at)?.0 {
            Item::Unused { len, .. } => Ok(len),
            Item::Entry { .. } => {
                Err(CorruptKind::DirUnused { offset: offset as u32, len: 0 }.at(self.at))
            }
        }
    }

    /// The entry at `offset`: its inode, name, and length.
    pub fn entry<'d>(
        &self,
        data: &'d [u8],
        offset: usize,
    ) -> Result<(Ino, &'d [u8], usize), Corrupt> {
        match self.view(data)?.item(offset, self.at)? {
            (Item::Entry { ino, name, .. }, next) => Ok((ino, name, next - offset)),
            _ => Err(CorruptKind::DirEntryPlace { offset: offset as u32 }.at(self.at)),
        }
    }

    /// Where the names end.
    pub fn end(&self, data: &[u8]) -> Result<usize, Corrupt> {
        Ok(self.view(data)?.end())
    }

    /// The unused range that ends where the names do, if there is one.
    pub fn last_unused(&self, data: &[u8]) -> Result<Option<BestFree>, Corrupt> {
        let end = self.end(data)?;
        Ok(self.unused_before(data, end))
    }

    /// The unused range that ends at `end`, if there is one.
    fn unused_before(&self, data: &[u8], end: usize) -> Option<BestFree> {
        if end < DATA_HEADER + 8 {
            return None;
        }
        let start = usize::from(u16_at(data, end - 2));
        let inside = start >= DATA_HEADER && start + 8 <= end && start.is_multiple_of(8);
        let unused = inside
            && u16_at(data, start) == FREE_TAG
            && start + usize::from(u16_at(data, start + 2)) == end;
        unused.then(|| BestFree { offset: start as u16, len: (end - start) as u16 })
    }

    /// Takes ranges out of the header's list and puts others in.
    fn update(
        &self,
        data: &mut [u8],
        gone: &[usize],
        new: &[(usize, usize)],
    ) -> Result<(), Corrupt> {
        let old = best_free(data);
        // Unused ranges that are not in a full list are no longer than its last.
        let least = old[2].len;
        let mut list: SmallVec<[BestFree; 5]> = old
            .into_iter()
            .filter(|best| best.len > 0 && !gone.contains(&usize::from(best.offset)))
            .collect();
        let entry =
            |&(offset, len): &(usize, usize)| BestFree { offset: offset as u16, len: len as u16 };
        list.extend(new.iter().map(entry));
        list.sort_by_key(|best| (std::cmp::Reverse(best.len), best.offset));
        let known = least == 0 || list.get(2).is_some_and(|third| third.len >= least);
        let mut best = [BestFree::default(); 3];
        if known {
            best.iter_mut().zip(&list).for_each(|(slot, range)| *slot = *range);
        } else {
            best = find_best_free(&self.view(data)?, self.at)?;
        }
        set_best_free(data, &best);
        Ok(())
    }

    /// Writes a name at the front of the unused range at `offset`.
    pub fn put(
        &self,
        data: &mut [u8],
        offset: usize,
        name: Name<'_>,
        ranges: &mut Ranges,
    ) -> Result<(), Corrupt> {
        let len = self.unused(data, offset)?;
        let size = entry_size(name.name.len(), self.ftype);
        if len < size {
            let kind = CorruptKind::DirUnused { offset: offset as u32, len: len as u32 };
            return Err(kind.at(self.at));
        }
        let rest = (offset + size, len - size);
        if rest.1 > 0 {
            set_unused(data, rest.0, rest.1);
            ranges.push(rest.0..rest.0 + 4);
            ranges.push(offset + len - 2..offset + len);
        }
        set_entry(data, offset, name.ino, name.name, self.ftype.then_some(name.file_type));
        ranges.push(offset..offset + size);
        ranges.push(48..DATA_HEADER);
        let new: &[_] = if rest.1 > 0 { &[rest] } else { &[] };
        self.update(data, &[offset], new)
    }

    /// Shortens the unused range at `offset` to `len` bytes; what is behind it is no longer of the
    /// data.
    pub fn cut(
        &self,
        data: &mut [u8],
        offset: usize,
        len: usize,
        ranges: &mut Ranges,
    ) -> Result<(), Corrupt> {
        if len > 0 {
            set_unused(data, offset, len);
            ranges.push(offset..offset + 4);
            ranges.push(offset + len - 2..offset + len);
        }
        ranges.push(48..DATA_HEADER);
        let new: &[_] = if len > 0 { &[(offset, len)] } else { &[] };
        self.update(data, &[offset], new)
    }

    /// Makes a range unused, and one with its unused neighbours.
    pub fn give(
        &self,
        data: &mut [u8],
        offset: usize,
        len: usize,
        ranges: &mut Ranges,
    ) -> Result<(), Corrupt> {
        let (mut start, mut end) = (offset, offset + len);
        let mut gone: SmallVec<[usize; 2]> = SmallVec::new();
        if end < self.end(data)? && u16_at(data, end) == FREE_TAG {
            gone.push(end);
            end += self.unused(data, end)?;
        }
        if let Some(before) = self.unused_before(data, offset) {
            start = usize::from(before.offset);
            gone.push(start);
        }
        set_unused(data, start, end - start);
        ranges.push(start..start + 4);
        ranges.push(end - 2..end);
        ranges.push(48..DATA_HEADER);
        self.update(data, &gone, &[(start, end - start)])
    }
}

impl DirEdit<'_> {
    pub(super) fn frame(&self, kind: Kind, offset: u64) -> Frame {
        Frame { kind, ftype: self.ftype(), at: self.block_at(offset) }
    }

    /// Puts a name into the unused range at `place` of a data block.
    pub(super) fn put_name(
        &mut self,
        buf: &Arc<Buf>,
        frame: Frame,
        place: usize,
        name: Name<'_>,
    ) -> Result<()> {
        let mut ranges = Ranges::new();
        buf.with_mut(|data| frame.put(data, place, name, &mut ranges))?;
        self.log(buf, &ranges);
        Ok(())
    }

    /// Takes the name at `place` out of a data block.
    pub(super) fn take_name(&mut self, buf: &Arc<Buf>, frame: Frame, place: usize) -> Result<()> {
        let mut ranges = Ranges::new();
        buf.with_mut(|data| -> Result<(), Corrupt> {
            let len = frame.entry(data, place)?.2;
            frame.give(data, place, len, &mut ranges)
        })?;
        self.log(buf, &ranges);
        Ok(())
    }

    /// The data block that holds `address`, its number, and the place in it.
    pub(super) fn data_of(
        &mut self,
        cx: &mut Cx,
        address: u32,
        shape: Shape,
    ) -> Result<(Arc<Buf>, u64, usize)> {
        let bytes = u64::from(address) << 3;
        let size = self.block_size() as u64;
        let index = bytes / size;
        let offset = index * self.count();
        if offset >= self.leaf_start() {
            return Err(self.corrupt(offset, CorruptKind::DirAddress { hash: 0, address }));
        }
        let buf = self.read_block(cx, offset, DirEdit::data_kind(shape))?;
        Ok((buf, index, (bytes % size) as usize))
    }

    /// True if the entry at `address` has this name. May park.
    pub(super) fn has_name(
        &mut self,
        cx: &mut Cx,
        address: u32,
        name: &[u8],
        shape: Shape,
    ) -> Result<bool> {
        let (buf, index, place) = self.data_of(cx, address, shape)?;
        let frame = self.frame(DirEdit::data_kind(shape)[0], index * self.count());
        let case = self.case();
        let same = |data: &[u8]| frame.entry(data, place).map(|entry| case.same(entry.1, name));
        Ok(buf.with(same)?)
    }

    /// Gives the entry at `address` another inode.
    pub(super) fn store_target(&mut self, cx: &mut Cx, address: u32, name: Name<'_>) -> Result<()> {
        let shape = self.shape(cx)?;
        let (buf, index, place) = self.data_of(cx, address, shape)?;
        let frame = self.frame(DirEdit::data_kind(shape)[0], index * self.count());
        let ftype = self.ftype();
        let len = buf.with(|data| frame.entry(data, place).map(|entry| entry.2))?;
        buf.with_mut(|data| {
            put_u64(data, place, name.ino.0);
            if ftype {
                data[place + 9 + name.name.len()] = name.file_type as u8;
            }
        });
        self.trans.log_buf(&buf, place, place + len - 1);
        Ok(())
    }
}
