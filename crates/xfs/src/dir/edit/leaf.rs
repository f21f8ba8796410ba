//! Data blocks with one leaf, which also knows the room of each.

use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use super::{DirEdit, Name, Shape, entries, free};
use crate::buf::Buf;
use crate::error::Result;
use crate::format::dir::{
    BLOCK_TAIL, BestFree, DATA_HEADER, LEAF_ENTRY, LeafEntry, best_free, set_best_free,
    set_block_tail, set_unused,
};
use crate::format::dir_index::{LEAF_HEADER, Leaf, NULL_BEST, emit_free, emit_leaf, free_max};
use crate::format::{Corrupt, CorruptKind, Kind, put_u16, u16_at, u32_at};

use super::data::{Frame, Range, Ranges};

/// Bytes of entries `range` of a leaf.
pub(super) fn entry_bytes(range: &Range) -> Range {
    LEAF_HEADER + range.start * LEAF_ENTRY..LEAF_HEADER + range.end * LEAF_ENTRY
}

/// Places in a leaf, and the addresses there.
pub(super) type Candidates = SmallVec<[(usize, u32); 2]>;

/// Fewest entries of a leaf that is spread out, and fewest gaps that are worth it.
const SPREAD_MIN: (usize, usize) = (64, 16);

/// Puts an entry into a leaf, which has a stale one or room behind the last. One that has neither
/// stale entries nor more than `limit` is spread out first: half as many gaps as it has entries.
pub(super) fn leaf_insert(data: &mut [u8], entry: LeafEntry, limit: usize) -> [Range; 2] {
    let (mut count, mut stale) = (usize::from(u16_at(data, 56)), usize::from(u16_at(data, 58)));
    let array = &mut data[LEAF_HEADER..];
    let gaps = (count / 2).min(limit.saturating_sub(count));
    let spread = stale == 0 && count >= SPREAD_MIN.0 && gaps >= SPREAD_MIN.1;
    if spread {
        entries::spread(array, count, gaps);
        (count, stale) = (count + gaps, gaps);
    }
    let range = entries::insert(array, count, entry, stale > 0);
    match stale {
        0 => count += 1,
        _ => stale -= 1,
    }
    put_u16(data, 56, count as u16);
    put_u16(data, 58, stale as u16);
    let written = if spread { 0..count } else { range };
    [56..60, entry_bytes(&written)]
}

/// The hash of a leaf's last entry, where `range` of its bytes holds that entry.
pub(super) fn last_hash_in(data: &[u8], range: &Range) -> Option<u32> {
    let end = LEAF_HEADER + LEAF_ENTRY * usize::from(u16_at(data, 56));
    (range.end == end && end > LEAF_HEADER).then(|| u32_at(data, end - LEAF_ENTRY))
}

/// Makes an entry of a leaf stale.
pub(super) fn leaf_stale(data: &mut [u8], index: usize, hash: u32) -> [Range; 2] {
    LeafEntry { hash, address: 0 }.write(&mut data[LEAF_HEADER..], index);
    put_u16(data, 58, u16_at(data, 58) + 1);
    [56..60, entry_bytes(&(index..index + 1))]
}

impl DirEdit<'_> {
    fn leaf(&mut self, cx: &mut Cx) -> Result<Arc<Buf>> {
        self.read_block(cx, self.leaf_start(), &[Kind::DirLeaf1])
    }

    /// Entries with this hash in a leaf, and whether the next one may have more.
    pub(super) fn candidates(
        &self,
        leaf: &Buf,
        kind: Kind,
        offset: u64,
        hash: u32,
    ) -> Result<(Candidates, bool)> {
        let at = self.block_at(offset);
        Ok(leaf.with(|data| -> Result<_, Corrupt> {
            let entries = Leaf::parse_counts(kind, data, at)?.entries();
            let from = entries.lower_bound(hash);
            let (mut live, mut end) = (Candidates::new(), from);
            while end < entries.len() {
                let entry = entries.get(end);
                if entry.hash != hash {
                    break;
                }
                if entry.address != 0 {
                    live.push((end, entry.address));
                }
                end += 1;
            }
            Ok((live, end == entries.len()))
        })?)
    }

    /// The place of a name in the leaf, and its address.
    pub(super) fn leaf_find(&mut self, cx: &mut Cx, name: &[u8]) -> Result<(usize, u32)> {
        let found = self.leaf_look(cx, name)?;
        let kind = CorruptKind::DirAddress { hash: self.case().hash(name), address: 0 };
        found.ok_or_else(|| self.corrupt(self.leaf_start(), kind))
    }

    /// The same, where the leaf has the name.
    pub(super) fn leaf_look(&mut self, cx: &mut Cx, name: &[u8]) -> Result<Option<(usize, u32)>> {
        let leaf = self.leaf(cx)?;
        let (hash, start) = (self.case().hash(name), self.leaf_start());
        for (index, address) in self.candidates(&leaf, Kind::DirLeaf1, start, hash)?.0 {
            if self.has_name(cx, address, name, Shape::Leaf)? {
                return Ok(Some((index, address)));
            }
        }
        Ok(None)
    }

    /// A new data block: all of it unused.
    pub(super) fn new_data(&mut self, cx: &mut Cx, index: u64) -> Result<Arc<Buf>> {
        let buf = self.grow(cx, index * self.count(), Kind::DirData)?;
        buf.with_mut(|data| {
            let len = data.len() - DATA_HEADER;
            set_unused(data, DATA_HEADER, len);
            let all = BestFree { offset: DATA_HEADER as u16, len: len as u16 };
            set_best_free(data, &[all, BestFree::default(), BestFree::default()]);
        });
        let end = buf.len();
        self.log(&buf, &[0..DATA_HEADER + 4, end - 2..end]);
        Ok(buf)
    }

    /// Puts a name into data block `index`, which has room; returns its address and the room that
    /// is left.
    pub(super) fn put_in_data(
        &mut self,
        cx: &mut Cx,
        index: u64,
        new: bool,
        name: Name<'_>,
    ) -> Result<(u32, u16)> {
        let buf = match new {
            true => self.new_data(cx, index)?,
            false => self.read_block(cx, index * self.count(), &[Kind::DirData])?,
        };
        let frame = self.frame(Kind::DirData, index * self.count());
        let mut ranges = Ranges::new();
        let (place, left) = buf.with_mut(|data| -> Result<_, Corrupt> {
            let place = usize::from(best_free(data)[0].offset);
            frame.put(data, place, name, &mut ranges)?;
            Ok((place, best_free(data)[0].len))
        })?;
        self.log(&buf, &ranges);
        let address = (index * self.block_size() as u64 + place as u64) >> 3;
        Ok((address as u32, left))
    }

    /// Takes the name at `address` out of its data block, which goes where it is empty then;
    /// returns the block's number and the room that it has.
    pub(super) fn take_from_data(
        &mut self,
        cx: &mut Cx,
        address: u32,
        shape: Shape,
    ) -> Result<(u64, u16)> {
        let (buf, index, place) = self.data_of(cx, address, shape)?;
        let frame = self.frame(Kind::DirData, index * self.count());
        self.take_name(&buf, frame, place)?;
        let best = buf.with(|data| best_free(data)[0].len);
        if index > 0 && usize::from(best) == buf.len() - DATA_HEADER {
            self.shrink(cx, index * self.count(), &buf)?;
            return Ok((index, NULL_BEST));
        }
        Ok((index, best))
    }

    /// Adds a name; false if the leaf has no room for it.
    pub(super) fn leaf_add(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<bool> {
        let leaf = self.leaf(cx)?;
        let at = self.block_at(self.leaf_start());
        let size = self.entry_size(name.name);
        let (mut bests, mut live, stale) = leaf.with(|data| -> Result<_, Corrupt> {
            let view = Leaf::parse_counts(Kind::DirLeaf1, data, at)?;
            Ok((view.bests().collect::<Vec<_>>(), view.entries().len(), view.stale))
        })?;
        let fits = |best: &u16| *best != NULL_BEST && usize::from(*best) >= size;
        let found = bests.iter().position(fits);
        let free = bests.iter().position(|&best| best == NULL_BEST);
        let index = found.or(free).unwrap_or(bests.len());
        let before = bests.len();
        bests.resize(before.max(index + 1), NULL_BEST);
        let tail = 4 + 2 * bests.len();
        let room = (leaf.len() - LEAF_HEADER - tail) / LEAF_ENTRY;
        let tight = live + usize::from(stale == 0) > room || live > room;
        if tight {
            // Without the stale ones there may be room.
            live -= usize::from(stale);
            if live + 1 > room {
                return Ok(false);
            }
            leaf.with_mut(|data| -> Result<_, Corrupt> {
                let view = Leaf::parse_counts(Kind::DirLeaf1, data, at)?;
                let (kept, old) = (entries::live(view.entries()), view.bests().collect::<Vec<_>>());
                emit_leaf(data, &kept, Some(&old));
                Ok(())
            })?;
            self.log(&leaf, &[56..60, entry_bytes(&(0..live))]);
        }
        let (address, left) = self.put_in_data(cx, index as u64, found.is_none(), name)?;
        bests[index] = left;
        let grown = bests.len() != before;
        self.store_bests(&leaf, &bests, if grown { None } else { Some(index) });
        let entry = LeafEntry { hash: self.case().hash(name.name), address };
        // Some room is left for more data blocks.
        let limit = if self.gaps { room.saturating_sub(16) } else { 0 };
        let ranges = leaf.with_mut(|data| leaf_insert(data, entry, limit));
        self.log(&leaf, &ranges);
        Ok(true)
    }

    /// Writes the room of the data blocks into the leaf: of one, or of all where their number
    /// changed.
    fn store_bests(&mut self, leaf: &Arc<Buf>, bests: &[u16], only: Option<usize>) {
        let len = leaf.len();
        let start = len - 4 - 2 * bests.len();
        leaf.with_mut(|data| {
            crate::format::put_u32(data, len - 4, bests.len() as u32);
            for (index, &best) in bests.iter().enumerate() {
                put_u16(data, start + 2 * index, best);
            }
        });
        let range = only.map_or(start..len, |index| start + 2 * index..start + 2 * index + 2);
        self.log_range(leaf, range);
    }

    pub(super) fn leaf_remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        let (place, address) = self.leaf_find(cx, name)?;
        let leaf = self.leaf(cx)?;
        let at = self.block_at(self.leaf_start());
        let (index, best) = self.take_from_data(cx, address, Shape::Leaf)?;
        let mut bests = leaf.with(|data| -> Result<_, Corrupt> {
            Ok(Leaf::parse_counts(Kind::DirLeaf1, data, at)?.bests().collect::<Vec<_>>())
        })?;
        let (before, index) = (bests.len(), index as usize);
        *bests.get_mut(index).ok_or_else(|| {
            self.corrupt(self.leaf_start(), CorruptKind::DirBests { found: before as u32 })
        })? = best;
        while bests.last() == Some(&NULL_BEST) {
            bests.pop();
        }
        self.store_bests(&leaf, &bests, if bests.len() == before { Some(index) } else { None });
        let ranges = leaf.with_mut(|data| leaf_stale(data, place, self.case().hash(name)));
        self.log(&leaf, &ranges);
        self.leaf_to_block(cx)
    }

    /// One data block whose end has room for the index takes it in.
    pub(super) fn leaf_to_block(&mut self, cx: &mut Cx) -> Result<()> {
        let leaf = self.leaf(cx)?;
        let at = self.block_at(self.leaf_start());
        let (bests, live) = leaf.with(|data| -> Result<_, Corrupt> {
            let view = Leaf::parse_counts(Kind::DirLeaf1, data, at)?;
            Ok((view.bests().len(), view.entries().len() - usize::from(view.stale)))
        })?;
        if bests != 1 {
            return Ok(());
        }
        let buf = self.read_block(cx, 0, &[Kind::DirData])?;
        let frame = self.frame(Kind::DirData, 0);
        let need = BLOCK_TAIL + LEAF_ENTRY * live;
        let last = buf.with(|data| frame.last_unused(data))?;
        let Some(last) = last.filter(|last| usize::from(last.len) >= need) else { return Ok(()) };
        let kept = leaf.with(|data| -> Result<_, Corrupt> {
            Ok(entries::live(Leaf::parse_counts(Kind::DirLeaf1, data, at)?.entries()))
        })?;
        self.shrink(cx, self.leaf_start(), &leaf)?;
        self.stamp_block(&buf, Kind::DirBlock);
        let frame = Frame { kind: Kind::DirBlock, ..frame };
        let mut ranges = Ranges::new();
        ranges.push(0..DATA_HEADER);
        let end = buf.len() - need;
        ranges.push(end..buf.len());
        buf.with_mut(|data| -> Result<(), Corrupt> {
            for (index, entry) in kept.iter().enumerate() {
                entry.write(&mut data[end..], index);
            }
            set_block_tail(data, kept.len() as u32, 0);
            frame.cut(data, last.offset.into(), usize::from(last.len) - need, &mut ranges)
        })?;
        self.log(&buf, &ranges);
        self.block_to_local(cx)
    }

    /// The leaf becomes the root of a tree; a free block takes the room of the data blocks.
    pub(super) fn leaf_to_node(&mut self, cx: &mut Cx) -> Result<()> {
        let leaf = self.leaf(cx)?;
        let at = self.block_at(self.leaf_start());
        let (live, bests) = leaf.with(|data| -> Result<_, Corrupt> {
            let view = Leaf::parse_counts(Kind::DirLeaf1, data, at)?;
            Ok((entries::live(view.entries()), view.bests().collect::<Vec<_>>()))
        })?;
        let size = self.block_size();
        for (number, part) in bests.chunks(free_max(size)).enumerate() {
            let buf = self.grow(cx, free::place(self.geometry(), number as u64), Kind::DirFree)?;
            let first = (number * free_max(size)) as u32;
            buf.with_mut(|data| emit_free(data, first, part));
            self.log_all(&buf);
        }
        self.inode.room.lock(cx).forget();
        self.stamp_block(&leaf, Kind::DirLeafN);
        leaf.with_mut(|data| {
            data[LEAF_HEADER..].fill(0);
            emit_leaf(data, &live, None);
        });
        self.log_all(&leaf);
        Ok(())
    }
}
