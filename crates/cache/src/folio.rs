//! Folios and the ordered index of a file's folios.
//!
//! A folio is 4, 16 or 64 KiB of a file, aligned to its size, with three sets of byte ranges that
//! know nothing of each other:
//!
//! - *valid*: the memory holds what a reader must see. It survives write-back.
//! - *dirty*: newer than the device. Always a part of *valid*.
//! - *reading*: a device read is on its way. When it arrives it fills only what is not valid by
//!   then, so a writer never waits for a reader.
//!
//! What is being written is not noted here but in the mapping's list of writes in flight: the bios
//! hold references to the page memory, and a writer in the meantime gets a private copy.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::Page;
use base::range::RangeSet;
use smallvec::SmallVec;

/// Folios of one chunk of the index: one bit each in a `u64`.
pub(crate) const CHUNK_FOLIOS: u64 = 64;

/// One folio.
#[derive(Debug, Default)]
pub(crate) struct Folio {
    /// The memory, of the folio size; `None` until the first byte arrives. Bytes that are not
    /// valid hold nothing that may be shown.
    pub(crate) page: Option<Page>,
    /// Bytes that readers may see, relative to the folio.
    pub(crate) valid: RangeSet,
    /// Bytes newer than the device, relative to the folio; a subset of `valid`.
    pub(crate) dirty: RangeSet,
    /// Bytes that a device read is to fill, relative to the folio.
    pub(crate) reading: RangeSet,
    /// Value of the mapping's epoch when the folio was made or its reads were cancelled: answers
    /// to reads begun in an older epoch are stale.
    pub(crate) epoch: u64,
    /// Used again since the clock hand passed.
    pub(crate) referenced: bool,
    /// Brought in by a read and not used yet; the clock hand passes it once.
    pub(crate) fresh: bool,
}

impl Folio {
    /// The memory for writing, zeroed where there was none; a private copy where a bio holds it.
    pub(crate) fn memory(&mut self, size: u32) -> &mut [u8] {
        self.page.get_or_insert_with(|| Page::zeroed(size as usize)).make_mut()
    }

    /// Copies `bytes` to `at` and marks them valid and dirty.
    pub(crate) fn write(&mut self, at: u32, bytes: &[u8], size: u32) {
        let range = at..at + bytes.len() as u32;
        let page = self.page.get_or_insert_with(|| Page::zeroed(size as usize));
        page.copy_in(at as usize, bytes);
        self.valid.insert(range.clone());
        self.dirty.insert(range);
    }

    /// Makes the parts of `range` that are not valid zero and valid.
    pub(crate) fn fill_zero(&mut self, range: Range<u32>, size: u32) {
        if self.valid.covers(range.clone()) {
            return;
        }
        if self.page.is_none() {
            self.page = Some(Page::zeroed(size as usize));
        } else {
            let gaps = self.valid.gaps(range.clone());
            let memory = self.memory(size);
            for gap in gaps {
                memory[gap.start as usize..gap.end as usize].fill(0);
            }
        }
        self.valid.insert(range);
    }

    /// Fills the parts of `range` that are not valid from `page`, in which the folio's byte
    /// `range.start` is byte `offset`. A page of the folio's own shape becomes the memory itself
    /// where there is none yet.
    pub(crate) fn fill(&mut self, range: Range<u32>, page: Page, offset: u32, size: u32) {
        if self.page.is_none() && page.len() == size as usize && offset == range.start {
            debug_assert!(self.valid.is_empty());
            self.page = Some(page);
        } else {
            let gaps = self.valid.gaps(range.clone());
            let memory = self.memory(size);
            for gap in gaps {
                let from = (gap.start - range.start + offset) as usize;
                let len = (gap.end - gap.start) as usize;
                memory[gap.start as usize..gap.end as usize]
                    .copy_from_slice(&page[from..from + len]);
            }
        }
        self.valid.insert(range);
    }

    /// Forgets everything known of `range`, dirty or not.
    pub(crate) fn forget(&mut self, range: Range<u32>) {
        self.valid.remove(range.clone());
        self.dirty.remove(range);
    }

    /// True where nothing would be lost with this folio and nothing is on its way into it.
    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.reading.is_empty()
    }
}

/// 64 neighbouring folios; only those present take memory.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    present: u64,
    dirty: u64,
    folios: SmallVec<[Folio; 1]>,
}

impl Chunk {
    fn rank(&self, bit: u32) -> usize {
        (self.present & ((1u64 << bit) - 1)).count_ones() as usize
    }

    fn get(&self, bit: u32) -> Option<&Folio> {
        (self.present >> bit & 1 == 1).then(|| &self.folios[self.rank(bit)])
    }

    fn get_mut(&mut self, bit: u32) -> Option<&mut Folio> {
        if self.present >> bit & 1 == 0 {
            return None;
        }
        let rank = self.rank(bit);
        Some(&mut self.folios[rank])
    }
}

/// The chunks of a file: a file that fits into one chunk needs no tree.
#[derive(Debug, Default)]
enum Chunks {
    #[default]
    Empty,
    One(u64, Chunk),
    Many(BTreeMap<u64, Chunk>),
}

impl Chunks {
    #[inline]
    fn get(&self, key: u64) -> Option<&Chunk> {
        match self {
            Chunks::Empty => None,
            Chunks::One(at, chunk) => (*at == key).then_some(chunk),
            Chunks::Many(chunks) => chunks.get(&key),
        }
    }

    #[inline]
    fn get_mut(&mut self, key: u64) -> Option<&mut Chunk> {
        match self {
            Chunks::Empty => None,
            Chunks::One(at, chunk) => (*at == key).then_some(chunk),
            Chunks::Many(chunks) => chunks.get_mut(&key),
        }
    }

    /// The first chunk with a key of at least `key`.
    fn next(&self, key: u64) -> Option<(u64, &Chunk)> {
        match self {
            Chunks::Empty => None,
            Chunks::One(at, chunk) => (*at >= key).then_some((*at, chunk)),
            Chunks::Many(chunks) => chunks.range(key..).next().map(|(at, chunk)| (*at, chunk)),
        }
    }

    fn get_or_insert(&mut self, key: u64) -> &mut Chunk {
        if let Chunks::Empty = self {
            *self = Chunks::One(key, Chunk::default());
        }
        if let Chunks::One(at, chunk) = self
            && *at != key
        {
            let first = (*at, std::mem::take(chunk));
            *self = Chunks::Many(BTreeMap::from([first]));
        }
        match self {
            Chunks::Empty => unreachable!("made one above"),
            Chunks::One(_, chunk) => chunk,
            Chunks::Many(chunks) => chunks.entry(key).or_default(),
        }
    }

    fn remove(&mut self, key: u64) {
        match self {
            Chunks::Many(chunks) => {
                chunks.remove(&key);
                if chunks.is_empty() {
                    *self = Chunks::Empty;
                }
            }
            _ => *self = Chunks::Empty,
        }
    }
}

/// The folios of one file, ordered by index (file offset divided by the folio size).
#[derive(Debug, Default)]
pub(crate) struct Index {
    chunks: Chunks,
    /// Keys of chunks with a dirty folio; kept only where there are many chunks.
    dirty_chunks: BTreeSet<u64>,
    count: u64,
    dirty: u64,
}

fn split(index: u64) -> (u64, u32) {
    (index / CHUNK_FOLIOS, (index % CHUNK_FOLIOS) as u32)
}

/// The lowest bit set in `bits` at or above `from`.
fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let rest = bits & (u64::MAX << from);
    (rest != 0).then(|| rest.trailing_zeros())
}

impl Index {
    /// How many folios there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many folios have dirty bytes.
    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<&Folio> {
        let (key, bit) = split(index);
        self.chunks.get(key)?.get(bit)
    }

    /// The folio for changing. Whoever changes `dirty` calls [`Index::note_dirty`] afterwards.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u64) -> Option<&mut Folio> {
        let (key, bit) = split(index);
        self.chunks.get_mut(key)?.get_mut(bit)
    }

    /// Puts `folio` at `index`, which was free.
    pub(crate) fn insert(&mut self, index: u64, folio: Folio) {
        let (key, bit) = split(index);
        let was_one = matches!(self.chunks, Chunks::One(..));
        let chunk = self.chunks.get_or_insert(key);
        let rank = chunk.rank(bit);
        assert!(chunk.present >> bit & 1 == 0, "folio {index} is already in the index");
        let dirty = !folio.dirty.is_empty();
        chunk.present |= 1 << bit;
        chunk.folios.insert(rank, folio);
        self.count += 1;
        if was_one && let Chunks::Many(chunks) = &self.chunks {
            let dirty = chunks.iter().filter(|(_, chunk)| chunk.dirty != 0);
            self.dirty_chunks = dirty.map(|(key, _)| *key).collect();
        }
        if dirty {
            self.note_dirty(index);
        }
    }

    /// Calls `visit` for each place of `range` in order with the folio there, until it answers
    /// false. Looks chunks up, not folios.
    pub(crate) fn walk(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(u64, Option<&mut Folio>) -> bool,
    ) {
        let mut at = range.start;
        while at < range.end {
            let (key, first) = split(at);
            let end = range.end.min((key + 1) * CHUNK_FOLIOS);
            let mut chunk = self.chunks.get_mut(key);
            let mut rank = chunk.as_ref().map_or(0, |chunk| chunk.rank(first));
            for (bit, at) in (first..).zip(at..end) {
                let folio = match &mut chunk {
                    Some(chunk) if chunk.present >> bit & 1 == 1 => {
                        rank += 1;
                        Some(&mut chunk.folios[rank - 1])
                    }
                    _ => None,
                };
                if !visit(at, folio) {
                    return;
                }
            }
            at = end;
        }
    }

    /// How many places of `range` are free.
    pub(crate) fn absent(&self, range: Range<u64>) -> u64 {
        let mut absent = 0;
        let mut at = range.start;
        while at < range.end {
            let (key, first) = split(at);
            let end = range.end.min((key + 1) * CHUNK_FOLIOS);
            let present = self.chunks.get(key).map_or(0, |chunk| chunk.present) >> first;
            let asked = u64::MAX >> (CHUNK_FOLIOS - (end - at));
            absent += end - at - u64::from((present & asked).count_ones());
            at = end;
        }
        absent
    }

    /// Puts copies of a clean `make()` where `range` is free, and calls `visit` for each place.
    pub(crate) fn fill_and_walk(
        &mut self,
        range: Range<u64>,
        make: impl Fn() -> Folio,
        mut visit: impl FnMut(u64, &mut Folio),
    ) {
        let mut at = range.start;
        while at < range.end {
            let (key, first) = split(at);
            let end = range.end.min((key + 1) * CHUNK_FOLIOS);
            if self.chunks.get(key).is_none_or(|chunk| chunk.present >> first & 1 == 0) {
                self.insert(at, make());
            }
            let chunk = self.chunks.get_mut(key).expect("it holds the first");
            let (rank, len) = (chunk.rank(first), (end - at) as usize);
            chunk.folios.reserve_exact((rank + len).saturating_sub(chunk.folios.len()));
            for (rank, (bit, at)) in (rank..).zip((first..).zip(at..end)) {
                if chunk.present >> bit & 1 == 0 {
                    chunk.folios.insert(rank, make());
                    chunk.present |= 1 << bit;
                    self.count += 1;
                }
                visit(at, &mut chunk.folios[rank]);
            }
            at = end;
        }
    }

    /// Takes the folio at `index` out.
    pub(crate) fn remove(&mut self, index: u64) -> Option<Folio> {
        let (key, bit) = split(index);
        let chunk = self.chunks.get_mut(key)?;
        if chunk.present >> bit & 1 == 0 {
            return None;
        }
        let rank = chunk.rank(bit);
        let folio = chunk.folios.remove(rank);
        chunk.present &= !(1 << bit);
        let was_dirty = chunk.dirty >> bit & 1 == 1;
        chunk.dirty &= !(1 << bit);
        let (clean, empty) = (chunk.dirty == 0, chunk.present == 0);
        self.count -= 1;
        if was_dirty {
            self.dirty -= 1;
        }
        if clean {
            self.dirty_chunks.remove(&key);
        }
        if empty {
            self.chunks.remove(key);
        }
        Some(folio)
    }

    /// Brings the dirty mark of the folio at `index` up to date. Answers +1, 0 or -1: how the
    /// number of dirty folios changed.
    pub(crate) fn note_dirty(&mut self, index: u64) -> i64 {
        let (key, bit) = split(index);
        let Some(chunk) = self.chunks.get_mut(key) else { return 0 };
        let now = chunk.get(bit).is_some_and(|folio| !folio.dirty.is_empty());
        let before = chunk.dirty >> bit & 1 == 1;
        if now == before {
            return 0;
        }
        let chunk_was_clean = chunk.dirty == 0;
        chunk.dirty ^= 1 << bit;
        let chunk_is_clean = chunk.dirty == 0;
        if chunk_was_clean != chunk_is_clean && matches!(self.chunks, Chunks::Many(_)) {
            if now {
                self.dirty_chunks.insert(key);
            } else {
                self.dirty_chunks.remove(&key);
            }
        }
        if now {
            self.dirty += 1;
            1
        } else {
            self.dirty -= 1;
            -1
        }
    }

    /// The first folio at or after `from` and before `end`.
    pub(crate) fn next(&self, from: u64, end: u64) -> Option<u64> {
        let mut from = from;
        while from < end {
            let (key, bit) = split(from);
            let (at, chunk) = self.chunks.next(key)?;
            let bit = if at == key { bit } else { 0 };
            if let Some(bit) = next_bit(chunk.present, bit) {
                let index = at * CHUNK_FOLIOS + u64::from(bit);
                return (index < end).then_some(index);
            }
            from = (at + 1) * CHUNK_FOLIOS;
        }
        None
    }

    /// The first dirty folio at or after `from` and before `end`.
    pub(crate) fn next_dirty(&self, from: u64, end: u64) -> Option<u64> {
        if self.dirty == 0 {
            return None;
        }
        let mut from = from;
        while from < end {
            let (key, bit) = split(from);
            let at = match &self.chunks {
                Chunks::Empty => return None,
                Chunks::One(at, _) => (*at >= key).then_some(*at)?,
                Chunks::Many(_) => *self.dirty_chunks.range(key..).next()?,
            };
            let bit = if at == key { bit } else { 0 };
            let dirty = self.chunks.get(at).map_or(0, |chunk| chunk.dirty);
            if let Some(bit) = next_bit(dirty, bit) {
                let index = at * CHUNK_FOLIOS + u64::from(bit);
                return (index < end).then_some(index);
            }
            from = (at + 1) * CHUNK_FOLIOS;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folio(dirty: bool) -> Folio {
        let mut folio = Folio::default();
        if dirty {
            folio.write(10, &[1; 10], 4096);
        }
        folio
    }

    proptest! {
        /// Random insertions, removals and cleanings agree with two ordered sets.
        #[test]
        fn the_index_agrees_with_ordered_sets(
            ops in prop::collection::vec((0u8..4, 0u64..300), 1..200), probe in 0u64..300,
        ) {
            let (mut index, mut all, mut dirty) =
                (Index::default(), BTreeSet::new(), BTreeSet::new());
            for (op, at) in ops {
                match op {
                    0 | 1 if !all.contains(&at) => {
                        index.insert(at, folio(op == 1));
                        all.insert(at);
                        if op == 1 { dirty.insert(at); }
                    }
                    1 => {
                        let mut seen = Vec::new();
                        index.fill_and_walk(at..at + 70, Folio::default, |at, folio| {
                            seen.push((at, !folio.dirty.is_empty()));
                        });
                        all.extend(at..at + 70);
                        let there = (at..at + 70).map(|at| (at, dirty.contains(&at)));
                        prop_assert_eq!(seen, there.collect::<Vec<_>>());
                    }
                    2 => {
                        prop_assert_eq!(index.remove(at).is_some(), all.remove(&at));
                        dirty.remove(&at);
                    }
                    _ => if let Some(folio) = index.get_mut(at) {
                        folio.dirty.clear();
                        prop_assert_eq!(index.note_dirty(at) == -1, dirty.remove(&at));
                    }
                }
                prop_assert_eq!(index.count(), all.len() as u64);
                prop_assert_eq!(index.dirty_count(), dirty.len() as u64);
                let rest = probe..290.max(probe);
                let missing = rest.clone().filter(|at| !all.contains(at)).count();
                prop_assert_eq!(index.absent(rest.clone()), missing as u64);
                let mut seen = Vec::new();
                index.walk(rest.clone(), |at, folio| {
                    seen.push((at, folio.map(|folio| !folio.dirty.is_empty())));
                    true
                });
                let there = |at: u64| all.contains(&at).then(|| dirty.contains(&at));
                prop_assert_eq!(seen, rest.clone().map(|at| (at, there(at))).collect::<Vec<_>>());
                prop_assert_eq!(index.next(probe, 290), all.range(rest.clone()).next().copied());
                prop_assert_eq!(index.next_dirty(probe, 290), dirty.range(rest).next().copied());
            }
            prop_assert_eq!(index.get(probe).is_some(), all.contains(&probe));
        }
    }

    /// A read that arrives late fills only what nobody wrote in the meantime.
    #[test]
    fn a_late_read_leaves_written_bytes_alone() {
        let mut folio = Folio::default();
        folio.write(100, &[7; 50], 4096);
        folio.fill(0..4096, Page::from_slice(&[9; 4096]), 0, 4096);
        let page = folio.page.as_ref().expect("has memory");
        assert!(page[..100].iter().chain(&page[150..]).all(|&b| b == 9));
        assert!(page[100..150].iter().all(|&b| b == 7));
        assert!(folio.valid.covers(0..4096));
        assert_eq!(folio.dirty.iter().collect::<Vec<_>>(), vec![100..150]);
    }

    /// A page of the folio's own shape is taken over without a copy; a writer then leaves a bio's
    /// reference alone.
    #[test]
    fn a_whole_page_is_taken_over() {
        let mut folio = Folio::default();
        let page = Page::from_slice(&[9; 4096]);
        folio.fill(0..4096, page.clone(), 0, 4096);
        assert!(folio.page.as_ref().expect("has memory").ptr_eq(&page));
        folio.write(0, &[1], 4096);
        assert_eq!(page[0], 9);
    }
}
