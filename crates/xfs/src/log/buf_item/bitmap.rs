//! Which 128-byte chunks of one segment of a buffer are dirty.

use smallvec::SmallVec;

/// Bytes that one bit stands for.
pub const CHUNK: usize = 128;

/// A bitmap of dirty chunks that knows how many runs it has.
///
/// A *run* is a maximal range of set bits whose memory is contiguous: it is also cut where the
/// buffer's memory jumps, which a second bitmap of *cuts* shows (bit `i` is set where chunk `i`
/// does not follow chunk `i - 1` in memory). The counts of bits and runs are kept while bits are
/// set, so that the size of a log item costs no look at the bitmap.
#[derive(Clone, Debug)]
pub struct DirtyMap {
    words: SmallVec<[u64; 8]>,
    /// As long as `words`; empty where the memory has no jump.
    cuts: SmallVec<[u64; 1]>,
    chunks: u32,
    bits: u32,
    runs: u32,
}

/// The bits of chunks `first..=last` in a word that has some of them.
#[inline]
fn chunks_in(word: usize, first: usize, last: usize) -> u64 {
    let from = if word == first / 64 { first % 64 } else { 0 };
    let to = if word == last / 64 { last % 64 } else { 63 };
    (!0 << from) & (!0 >> (63 - to))
}

impl DirtyMap {
    /// A clean map of a segment of `bytes` bytes in one piece of memory.
    pub fn new(bytes: usize) -> DirtyMap {
        let chunks = bytes.div_ceil(CHUNK);
        let words = SmallVec::from_elem(0, chunks.div_ceil(64));
        DirtyMap { words, cuts: SmallVec::new(), chunks: chunks as u32, bits: 0, runs: 0 }
    }

    /// As [`DirtyMap::new`], with a cut before each chunk that `cuts` names.
    pub fn with_cuts(bytes: usize, cuts: impl Iterator<Item = usize>) -> DirtyMap {
        let mut map = DirtyMap::new(bytes);
        for chunk in cuts.filter(|&chunk| chunk < map.chunks as usize) {
            map.cuts.resize(map.words.len(), 0);
            map.cuts[chunk / 64] |= 1 << (chunk % 64);
        }
        map
    }

    /// Chunks of the segment.
    pub fn chunks(&self) -> usize {
        self.chunks as usize
    }

    /// Dirty chunks.
    #[inline]
    pub fn bits(&self) -> usize {
        self.bits as usize
    }

    /// Runs of dirty chunks.
    #[inline]
    pub fn runs(&self) -> usize {
        self.runs as usize
    }

    /// True if nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// The words, chunk 0 in the lowest bit of the first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// True if the chunk is dirty.
    pub fn test(&self, chunk: usize) -> bool {
        self.words[chunk / 64] >> (chunk % 64) & 1 != 0
    }

    /// Marks the chunks of bytes `first..=last` dirty; returns whether any was clean.
    ///
    /// # Panics
    /// If the range is empty or leaves the segment.
    pub fn log(&mut self, first: usize, last: usize) -> bool {
        let (first, last) = (first / CHUNK, last / CHUNK);
        assert!(
            first <= last && last < self.chunks(),
            "chunks {first}..={last} of {}",
            self.chunks
        );
        let (low, high) = (first / 64, last / 64);
        let mask = |word| chunks_in(word, first, last);
        let words = &mut self.words[..];
        // A bit that is set may end the start of a run in the word behind it.
        let end = ((last + 1) / 64).min(words.len() - 1);
        if low == end {
            let (old, new) = (words[low], words[low] | mask(low));
            // Most of what is logged is logged again.
            if old == new {
                return false;
            }
            let carry = if low > 0 { words[low - 1] >> 63 } else { 0 };
            let cut = self.cuts.get(low).copied().unwrap_or(0);
            let starts = |word: u64| (word & (!(word << 1 | carry) | cut)).count_ones();
            words[low] = new;
            self.bits += (new & !old).count_ones();
            self.runs = self.runs + starts(new) - starts(old);
            return true;
        }
        if (low..=high).all(|word| words[word] & mask(word) == mask(word)) {
            return false;
        }
        let before = self.count(low, end);
        for word in low..=high {
            self.words[word] |= mask(word);
        }
        let after = self.count(low, end);
        self.bits += after.0 - before.0;
        self.runs = self.runs + after.1 - before.1;
        true
    }

    /// As [`DirtyMap::log`], for a map of which nothing but [`DirtyMap::next_run`] is asked before
    /// it is cleared: nothing is counted.
    pub fn mark(&mut self, first: usize, last: usize) -> bool {
        let (first, last) = (first / CHUNK, last / CHUNK);
        let (low, high) = (first / 64, last / 64);
        if low == high {
            let word = &mut self.words[low];
            let new = *word | chunks_in(low, first, last);
            let changed = new != *word;
            *word = new;
            return changed;
        }
        let mut changed = false;
        for (index, word) in self.words[low..=high].iter_mut().enumerate() {
            let new = *word | chunks_in(low + index, first, last);
            changed |= new != *word;
            *word = new;
        }
        changed
    }

    /// Makes everything clean.
    pub fn clear(&mut self) {
        match &mut self.words[..] {
            [word] => *word = 0,
            words => words.fill(0),
        }
        (self.bits, self.runs) = (0, 0);
    }

    /// Bits, and starts of runs, in a range of words.
    fn count(&self, low: usize, high: usize) -> (u32, u32) {
        (low..=high).fold((0, 0), |(bits, runs), word| {
            (bits + self.words[word].count_ones(), runs + self.starts(word).count_ones())
        })
    }

    fn cut(&self, word: usize) -> u64 {
        self.cuts.get(word).copied().unwrap_or(0)
    }

    fn starts(&self, word: usize) -> u64 {
        let carry = if word > 0 { self.words[word - 1] >> 63 } else { 0 };
        self.words[word] & (!(self.words[word] << 1 | carry) | self.cut(word))
    }

    /// The first run at or behind chunk `from`: its first chunk and its length.
    #[inline]
    pub fn next_run(&self, from: usize) -> Option<(usize, usize)> {
        let count = self.words.len();
        let mut word = from / 64;
        let mut set = self.words.get(word)? & (!0 << (from % 64));
        while set == 0 {
            word += 1;
            set = *self.words.get(word)?;
        }
        let start = word * 64 + set.trailing_zeros() as usize;
        let mut word = (start + 1) / 64;
        if word == count {
            return Some((start, 1));
        }
        let mut stop = (!self.words[word] | self.cut(word)) & (!0 << ((start + 1) % 64));
        while stop == 0 {
            word += 1;
            if word == count {
                return Some((start, count * 64 - start));
            }
            stop = !self.words[word] | self.cut(word);
        }
        Some((start, word * 64 + stop.trailing_zeros() as usize - start))
    }

    /// Calls `emit` with the first chunk and the length of every run, in order. One look at each
    /// word, up to the end of the last run.
    #[inline]
    pub fn for_each_run(&self, mut emit: impl FnMut(usize, usize)) {
        let (words, cuts) = (&self.words[..], &self.cuts[..]);
        let (mut left, mut carry) = (self.runs, 0);
        let mut start = None;
        for (index, &word) in words.iter().enumerate() {
            if left == 0 {
                return;
            }
            // If a bit differs from the one before it a run begins or ends; at a cut inside a
            // run one ends and another begins.
            let before = word << 1 | carry;
            let mut edges = (word ^ before) | (cuts.get(index).unwrap_or(&0) & word & before);
            carry = word >> 63;
            while edges != 0 {
                let bit = edges.trailing_zeros();
                let at = index * 64 + bit as usize;
                edges &= edges - 1;
                if let Some(start) = start.take() {
                    emit(start, at - start);
                    left -= 1;
                }
                if word >> bit & 1 != 0 {
                    start = Some(at);
                }
            }
        }
        if let Some(start) = start {
            emit(start, words.len() * 64 - start);
        }
    }

    /// Dirty chunks before `chunk`.
    pub fn rank(&self, chunk: usize) -> usize {
        let whole: u32 = self.words[..chunk / 64].iter().map(|word| word.count_ones()).sum();
        let rest = match chunk % 64 {
            0 => 0,
            bits => (self.words[chunk / 64] & !(!0 << bits)).count_ones(),
        };
        (whole + rest) as usize
    }

    /// The first dirty chunk at or behind `from`, as the algorithms of the thread ask for it.
    #[inline]
    pub fn next_bit(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut set = self.words.get(word)? & (!0 << (from % 64));
        while set == 0 {
            word += 1;
            set = *self.words.get(word)?;
        }
        Some(word * 64 + set.trailing_zeros() as usize)
    }

    /// The number of dirty chunks from `from` on without a clean one between.
    #[inline]
    pub fn contig_bits(&self, from: usize) -> usize {
        let mut word = from / 64;
        let Some(&bits) = self.words.get(word) else { return 0 };
        let mut clear = !(bits | !(!0 << (from % 64)));
        while clear == 0 {
            word += 1;
            match self.words.get(word) {
                Some(bits) => clear = !bits,
                None => return word * 64 - from,
            }
        }
        word * 64 + clear.trailing_zeros() as usize - from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow_runs(map: &DirtyMap, cuts: &[usize]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for chunk in (0..map.chunks()).filter(|&chunk| map.test(chunk)) {
            match runs.last_mut() {
                Some((at, len)) if *at + *len == chunk && !cuts.contains(&chunk) => *len += 1,
                _ => runs.push((chunk, 1)),
            }
        }
        runs
    }

    proptest! {
        /// Counts, runs and ranks agree with a walk over single bits, for all orders of logging.
        #[test]
        fn counts_are_those_of_a_slow_walk(
            sectors in 1usize..=128,
            ranges in prop::collection::vec((0usize..65536, 0usize..3000), 0..40),
            cuts in prop::collection::vec(0usize..512, 0..8),
        ) {
            let bytes = sectors * 512;
            let mut map = DirtyMap::with_cuts(bytes, cuts.iter().copied());
            for (first, len) in ranges {
                let first = first % bytes;
                let last = (first + len).min(bytes - 1);
                let fresh = (first / CHUNK..=last / CHUNK).any(|chunk| !map.test(chunk));
                prop_assert_eq!(map.log(first, last), fresh);
                let runs = slow_runs(&map, &cuts);
                prop_assert_eq!(map.runs(), runs.len());
                prop_assert_eq!(map.bits(), runs.iter().map(|run| run.1).sum::<usize>());
                let (mut at, mut found) = (0, Vec::new());
                while let Some((start, len)) = map.next_run(at) {
                    let before: usize = found.iter().map(|run: &(usize, usize)| run.1).sum();
                    prop_assert_eq!(map.rank(start), before);
                    found.push((start, len));
                    at = start + len;
                }
                prop_assert_eq!(&found, &runs);
                let mut walked = Vec::new();
                map.for_each_run(|start, len| walked.push((start, len)));
                prop_assert_eq!(&walked, &runs);
            }
        }
    }
}
