//! Sets of four entries, chosen by a hash of the block number, that pin nothing.
//!
//! A lookup compares four keys, whatever the size, and moves no entry. An entry is a *weak*
//! reference: it finds its buffer while the index has it, and does not keep it there; so the
//! structure may be large without the objection that a large array meets.
//!
//! Who leaves follows from an *age*, two bits for each entry: 0 after a hit, 2 for a new one; at 3
//! an entry leaves, and where a set has none of that age, all of them grow older until it has. So a
//! block that an operation uses once (a directory's leaf) drives out another such block, not those
//! that every operation uses, and what is no longer used goes at last. (A. Jaleel, K. Theobald, S.
//! Steely, J. Emer, "High performance cache replacement using re-reference interval prediction",
//! 2010.)

use std::sync::{Arc, Weak};

use super::{LRU_MAX, LruCounts};
use crate::buffer::{Buffer, BufferRef};

/// Entries of a set.
pub(super) const WAYS: usize = 4;
const SETS_MAX: usize = LRU_MAX / WAYS;
/// The key of a way without a buffer; no block has this number.
const FREE: u64 = u64::MAX;
/// The low bit of each age of a set.
const LOW_BITS: u8 = 0b01_01_01_01;
/// The age of who leaves.
const OLDEST: u8 = 3;
/// The age of a new block.
const NEW: u8 = 2;

/// A set: what a lookup compares and what a hit takes lie on one line of the processor's caches.
#[derive(Default)]
#[repr(align(64))]
struct Entries {
    keys: Keys,
    buffers: [Weak<Buffer>; WAYS],
}

/// Block numbers, or [`FREE`].
struct Keys([u64; WAYS]);

/// The ages of a set's ways, two bits each.
#[derive(Clone, Copy)]
struct Ages(u8);

/// Weak references to the buffers that one CPU used last.
pub struct SetLru {
    sets: [Entries; SETS_MAX],
    ages: [Ages; SETS_MAX],
    /// Bits of the hash that do not choose the set.
    shift: u32,
    hits: [u64; WAYS],
    misses: u64,
    compares: u64,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys([FREE; WAYS])
    }
}

impl Keys {
    /// All are compared, whichever it is: which way has a block cannot be foretold, and a branch
    /// that the processor takes wrongly costs more than four compares.
    #[inline]
    fn way_of(&self, block: u64) -> Option<usize> {
        let equal = |way: usize| u32::from(self.0[way] == block) << way;
        let found = equal(0) | equal(1) | equal(2) | equal(3);
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
}

impl Default for Ages {
    fn default() -> Ages {
        Ages(OLDEST * LOW_BITS)
    }
}

impl Ages {
    #[inline]
    fn of(self, way: usize) -> u8 {
        self.0 >> (2 * way) & OLDEST
    }

    #[inline]
    fn set(&mut self, way: usize, age: u8) {
        self.0 = self.0 & !(OLDEST << (2 * way)) | age << (2 * way);
    }

    /// The first way that is the oldest, after all have grown as old as it takes.
    #[inline]
    fn oldest(&mut self) -> usize {
        let has = |bits: u8| bits & LOW_BITS != 0;
        let years = match self.0 {
            ages if has(ages & ages >> 1) => 0,
            ages if has(ages >> 1) => 1,
            ages if has(ages) => 2,
            _ => 3,
        };
        self.0 += years * LOW_BITS;
        ((self.0 & self.0 >> 1 & LOW_BITS).trailing_zeros() / 2) as usize
    }
}

impl SetLru {
    /// Empty; `sets` is a power of two up to 16.
    ///
    /// # Panics
    /// Where it is another number.
    pub fn new(sets: usize) -> SetLru {
        assert!(sets.is_power_of_two() && sets <= SETS_MAX, "{sets} sets");
        SetLru {
            sets: Default::default(),
            ages: Default::default(),
            shift: 64 - sets.trailing_zeros(),
            hits: [0; WAYS],
            misses: 0,
            compares: 0,
        }
    }

    /// Folded before it is multiplied: blocks at equal distances (roots of directories that were
    /// made one after another) would else share few sets where the distance times the golden ratio
    /// is nearly whole, as 68 is.
    #[inline]
    fn set_of(&self, block: u64) -> usize {
        let folded = block ^ block >> 7 ^ block >> 15;
        // The wide shift is one of 64 where there is one set.
        let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash.checked_shr(self.shift).unwrap_or(0) as usize
    }

    /// Finds `block`; counts how old its entry was.
    ///
    /// An entry whose buffer has left the index counts as a miss.
    #[inline]
    pub fn lookup(&mut self, block: u64) -> Option<BufferRef> {
        let index = self.set_of(block);
        let (set, ages) = (&mut self.sets[index], &mut self.ages[index]);
        self.compares += WAYS as u64;
        let Some(way) = set.keys.way_of(block) else {
            self.misses += 1;
            return None;
        };
        let found = set.buffers[way].upgrade().filter(|buffer| !buffer.forgotten());
        if found.is_none() {
            set.keys.0[way] = FREE;
            set.buffers[way] = Weak::new();
            ages.set(way, OLDEST);
            self.misses += 1;
            return None;
        }
        self.hits[usize::from(ages.of(way))] += 1;
        ages.set(way, 0);
        found
    }

    /// Takes a buffer in that was found in the index after a lookup here has missed it, with
    /// nothing in between. The oldest of its set leaves.
    #[inline]
    pub fn install(&mut self, buffer: &BufferRef) {
        let block = buffer.block();
        let index = self.set_of(block);
        let (set, ages) = (&mut self.sets[index], &mut self.ages[index]);
        let missed = block == FREE || set.keys.way_of(block).is_none();
        debug_assert!(missed, "block {block} is here already");
        let way = ages.oldest();
        ages.set(way, NEW);
        set.keys.0[way] = block;
        set.buffers[way] = Arc::downgrade(buffer);
    }

    /// Drops all references.
    pub fn clear(&mut self) {
        self.sets = Default::default();
        self.ages = Default::default();
    }

    /// What was counted so far.
    pub fn counts(&self) -> LruCounts {
        LruCounts {
            hits: self.hits.to_vec(),
            misses: self.misses,
            compares: self.compares,
            pinned: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_a_plain_list() {
        let mut ages = Ages::default();
        let mut list = [OLDEST; WAYS];
        let mut rng = base::Rng::new(3, 3);
        for _ in 0..4000 {
            if rng.chance(0.5) {
                while !list.contains(&OLDEST) {
                    list.iter_mut().for_each(|age| *age += 1);
                }
                let way = list.iter().position(|&age| age == OLDEST).expect("one is the oldest");
                assert_eq!(ages.oldest(), way);
            }
            let (way, age) = (rng.below(4) as usize, rng.below(4) as u8);
            ages.set(way, age);
            list[way] = age;
            assert_eq!([0, 1, 2, 3].map(|way| ages.of(way)), list);
        }
    }
}
