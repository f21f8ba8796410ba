//! A directory of one block: names from the front, their index at the end.

use std::sync::Arc;

use rt::Cx;

use super::data::{Frame, Range, Ranges};
use super::local::{Kept, NameBytes, Small};
use super::{DirEdit, Name, entries};
use crate::buf::Buf;
use crate::error::Result;
use crate::format::dir::{
    BLOCK_TAIL, BestFree, DATA_HEADER, DataBlock, Item, LEAF_ENTRY, LeafEntry, best_free,
    block_tail, set_block_tail,
};
use crate::format::dir_index::emit_leaf;
use crate::format::inode::ForkFormat;
use crate::format::{Corrupt, CorruptKind, Kind};

/// The unused range that a name of `size` bytes goes into, while the index grows by `index` bytes
/// at the cost of the `last` one.
fn choose(
    best: [BestFree; 3],
    last: Option<BestFree>,
    size: usize,
    index: usize,
) -> Option<BestFree> {
    let fits = |range: BestFree, size: usize| usize::from(range.len) >= size && range.len > 0;
    if index == 0 {
        return Some(best[0]).filter(|&range| fits(range, size));
    }
    let last = last.filter(|&last| fits(last, index))?;
    match best[0].offset == last.offset {
        true if fits(best[0], size + index) => Some(best[0]),
        true => Some(best[1]).filter(|&range| fits(range, size)),
        false => Some(best[0]).filter(|&range| fits(range, size)),
    }
}

/// Bytes of entries `range` of the index of a single block whose names end at `end`.
fn index_bytes(end: usize, range: &Range) -> Range {
    end + range.start * LEAF_ENTRY..end + range.end * LEAF_ENTRY
}

impl DirEdit<'_> {
    fn block(&mut self, cx: &mut Cx) -> Result<(Arc<Buf>, Frame)> {
        let buf = self.read_block(cx, 0, &[Kind::DirBlock])?;
        Ok((buf, self.frame(Kind::DirBlock, 0)))
    }

    /// The place of a name in the index, and its address.
    pub(super) fn block_find(&mut self, cx: &mut Cx, name: &[u8]) -> Result<(usize, u32)> {
        let (buf, frame) = self.block(cx)?;
        let case = self.case();
        let hash = case.hash(name);
        let found = buf.with(|data| -> Result<_, Corrupt> {
            let index = DataBlock::new(frame.kind, data, frame.ftype, frame.at)?.index();
            for place in index.lower_bound(hash)..index.len() {
                let entry = index.get(place);
                let offset = (entry.address as usize) << 3;
                if entry.hash != hash {
                    break;
                }
                if entry.address != 0 && case.same(frame.entry(data, offset)?.1, name) {
                    return Ok(Some((place, entry.address)));
                }
            }
            Ok(None)
        })?;
        found.ok_or_else(|| self.corrupt(0, CorruptKind::DirAddress { hash, address: 0 }))
    }

    /// Adds a name; false if it does not fit into the block.
    pub(super) fn block_add(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<bool> {
        let (buf, frame) = self.block(cx)?;
        let size = self.entry_size(name.name);
        let mut ranges = Ranges::new();
        let place = buf.with_mut(|data| -> Result<_, Corrupt> {
            let end = frame.end(data)?;
            let (count, stale) = block_tail(data);
            let (best, last) = (best_free(data), frame.last_unused(data)?);
            let grows = if stale == 0 { LEAF_ENTRY } else { 0 };
            let Some(place) = choose(best, last, size, grows) else { return Ok(None) };
            if let (Some(last), true) = (last, stale == 0) {
                // One stale entry in front of all others, and the space before the index shrinks.
                let first = LeafEntry { hash: 0, address: 0 };
                first.write(&mut data[end - LEAF_ENTRY..], 0);
                set_block_tail(data, count + 1, 1);
                let (offset, len) = (usize::from(last.offset), usize::from(last.len));
                frame.cut(data, offset, len - LEAF_ENTRY, &mut ranges)?;
            }
            Ok(Some(usize::from(place.offset)))
        })?;
        self.log(&buf, &ranges);
        let Some(place) = place else { return Ok(false) };
        self.put_name(&buf, frame, place, name)?;
        let entry = LeafEntry { hash: self.case().hash(name.name), address: (place >> 3) as u32 };
        let ranges = buf.with_mut(|data| -> Result<_, Corrupt> {
            let end = frame.end(data)?;
            let (count, stale) = block_tail(data);
            let tail = data.len() - BLOCK_TAIL;
            let range = entries::insert(&mut data[end..tail], count as usize, entry, true);
            set_block_tail(data, count, stale - 1);
            Ok([index_bytes(end, &range), tail..data.len()])
        })?;
        self.log(&buf, &ranges);
        Ok(true)
    }

    pub(super) fn block_remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        let (index, address) = self.block_find(cx, name)?;
        let (buf, frame) = self.block(cx)?;
        self.take_name(&buf, frame, (address as usize) << 3)?;
        let ranges = buf.with_mut(|data| -> Result<_, Corrupt> {
            let end = frame.end(data)?;
            let (count, stale) = block_tail(data);
            let stale_entry = LeafEntry { hash: self.case().hash(name), address: 0 };
            stale_entry.write(&mut data[end..], index);
            set_block_tail(data, count, stale + 1);
            let tail = data.len() - BLOCK_TAIL;
            Ok([index_bytes(end, &(index..index + 1)), tail..data.len()])
        })?;
        self.log(&buf, &ranges);
        self.block_to_local(cx)
    }

    /// A single block whose names fit into the inode moves there.
    pub(super) fn block_to_local(&mut self, cx: &mut Cx) -> Result<()> {
        let (buf, frame) = self.block(cx)?;
        let room = self.room(cx);
        let small = buf.with(|data| -> Result<_, Corrupt> {
            let (count, stale) = block_tail(data);
            // A name takes nine bytes at the least.
            if (count.saturating_sub(stale + 2)) as usize * 9 > room {
                return Ok(None);
            }
            take_apart(&DataBlock::new(frame.kind, data, frame.ftype, frame.at)?, frame).map(Some)
        })?;
        let Some(small) = small.filter(|small| small.size(frame.ftype) <= room) else {
            return Ok(());
        };
        self.shrink(cx, 0, &buf)?;
        let mut forks = self.inode.forks.write(cx);
        let fork = &mut forks.data;
        (fork.format, fork.bytes) = (ForkFormat::Local, small.emit(frame.ftype));
        Ok(())
    }

    /// A single block becomes a data block, its index a leaf.
    pub(super) fn block_to_leaf(&mut self, cx: &mut Cx) -> Result<()> {
        let (buf, frame) = self.block(cx)?;
        let start = self.leaf_start();
        let leaf = self.grow(cx, start, Kind::DirLeaf1)?;
        let (end, live) = buf.with(|data| -> Result<_, Corrupt> {
            let block = DataBlock::new(frame.kind, data, frame.ftype, frame.at)?;
            Ok((block.end(), entries::live(block.index())))
        })?;
        self.stamp_block(&buf, Kind::DirData);
        let frame = Frame { kind: Kind::DirData, ..frame };
        let mut ranges = Ranges::new();
        ranges.push(0..DATA_HEADER);
        let best = buf.with_mut(|data| -> Result<_, Corrupt> {
            let len = data.len() - end;
            frame.give(data, end, len, &mut ranges)?;
            Ok(best_free(data)[0].len)
        })?;
        self.log(&buf, &ranges);
        leaf.with_mut(|data| emit_leaf(data, &live, Some(&[best])));
        self.log_all(&leaf);
        Ok(())
    }
}

/// The names of a block, as a small directory has them.
fn take_apart(block: &DataBlock<'_>, frame: Frame) -> Result<Small, Corrupt> {
    let mut small = Small { parent: base::Ino(0), names: Vec::new() };
    for item in block.items(DATA_HEADER, frame.at) {
        let Item::Entry { offset, ino, name, file_type } = item? else { continue };
        match name {
            b"." => {}
            b".." => small.parent = ino,
            _ => small.names.push(Kept {
                name: NameBytes::from_slice(name),
                offset: offset as u16,
                file_type,
                ino,
            }),
        }
    }
    Ok(small)
}
