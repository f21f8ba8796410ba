//! Sets of four entries, chosen by a hash of the block number, that pin nothing.
//!
//! A lookup compares four keys, whatever the size, and moves no entry: the order of a set is one
//! byte. An entry is a *weak* reference: it finds its buffer while the index has it, and does not
//! keep it there; so the structure may be large without the objection that a large array meets.
//!
//! A new block enters its set in the third place, behind the two that were hit last: a block that
//! an operation uses once (a directory's leaf) drives out another such block, not those that every
//! operation uses. A hit puts an entry first.

use std::sync::{Arc, Weak};

use super::{LRU_MAX, LruCounts};
use crate::buffer::{Buffer, BufferRef};

/// Entries of a set.
pub(super) const WAYS: usize = 4;
const SETS_MAX: usize = LRU_MAX / WAYS;
/// Ways of an untouched set, most recent first, two bits each.
const FIRST_ORDER: u8 = 0b11_10_01_00;
/// The place at which a new block enters the order.
const ENTRY_PLACE: u32 = 2;

/// Weak references to the buffers that one CPU used last.
pub struct SetLru {
    keys: [[u64; WAYS]; SETS_MAX],
    order: [u8; SETS_MAX],
    buffers: Vec<[Weak<Buffer>; WAYS]>,
    /// Bits of the hash that do not choose the set.
    shift: u32,
    hits: [u64; WAYS],
    misses: u64,
    compares: u64,
}

/// The place of `way` in an order.
#[inline]
fn place_of(order: u8, way: usize) -> u32 {
    (0..WAYS as u32).find(|place| order >> (2 * place) & 3 == way as u8).unwrap_or(0)
}

/// Moves the way at place `from` to place `to`, which is not behind it.
#[inline]
fn advance(order: u8, from: u32, to: u32) -> u8 {
    let way = order >> (2 * from) & 3;
    let mask = |places: u32| ((1u16 << (2 * places)) - 1) as u8;
    let before = order & mask(to);
    let between = (order & mask(from) & !mask(to)) << 2;
    let behind = order & !mask(from + 1);
    before | way << (2 * to) | between | behind
}

impl SetLru {
    /// Empty; `sets` is a power of two up to 16.
    ///
    /// # Panics
    /// Where it is another number.
    pub fn new(sets: usize) -> SetLru {
        assert!(sets.is_power_of_two() && sets <= SETS_MAX, "{sets} sets");
        SetLru {
            keys: [[u64::MAX; WAYS]; SETS_MAX],
            order: [FIRST_ORDER; SETS_MAX],
            buffers: (0..sets).map(|_| Default::default()).collect(),
            shift: 64 - sets.trailing_zeros(),
            hits: [0; WAYS],
            misses: 0,
            compares: 0,
        }
    }

    #[inline]
    fn set_of(&self, block: u64) -> usize {
        // The wide shift is one of 64 where there is one set.
        let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash.checked_shr(self.shift).unwrap_or(0) as usize
    }

    /// Finds `block`; counts how many entries of its set were used more recently.
    ///
    /// An entry whose buffer has left the index counts as a miss.
    #[inline]
    pub fn lookup(&mut self, block: u64) -> Option<BufferRef> {
        let set = self.set_of(block);
        let keys = &mut self.keys[set];
        let Some(way) = keys.iter().position(|&key| key == block) else {
            self.misses += 1;
            self.compares += WAYS as u64;
            return None;
        };
        self.compares += way as u64 + 1;
        let found = self.buffers[set][way].upgrade().filter(|buffer| !buffer.forgotten());
        if found.is_none() {
            keys[way] = u64::MAX;
            self.buffers[set][way] = Weak::new();
            self.misses += 1;
            return None;
        }
        let order = self.order[set];
        let place = place_of(order, way);
        self.hits[place as usize] += 1;
        if place > 0 {
            self.order[set] = advance(order, place, 0);
        }
        found
    }

    /// Takes a buffer in that was just found in the index; the last one of its set leaves.
    pub fn install(&mut self, buffer: &BufferRef) {
        let block = buffer.block();
        let set = self.set_of(block);
        let order = self.order[set];
        let way_at = |place: u32| usize::from(order >> (2 * place) & 3);
        let last = WAYS as u32 - 1;
        let find = |key| (0..=last).find(|&place| self.keys[set][way_at(place)] == key);
        // Only where two tasks of one CPU looked at once is it here already.
        let place = find(block).or_else(|| find(u64::MAX)).unwrap_or(last);
        let way = way_at(place);
        self.keys[set][way] = block;
        self.buffers[set][way] = Arc::downgrade(buffer);
        if place > ENTRY_PLACE {
            self.order[set] = advance(order, place, ENTRY_PLACE);
        }
    }

    /// Drops all references.
    pub fn clear(&mut self) {
        self.keys = [[u64::MAX; WAYS]; SETS_MAX];
        self.buffers.fill_with(Default::default);
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

    fn ways(order: u8) -> Vec<u8> {
        (0..WAYS).map(|place| order >> (2 * place) & 3).collect()
    }

    #[test]
    fn an_order_is_advanced_as_a_list_is() {
        let mut order = FIRST_ORDER;
        let mut list = vec![0u8, 1, 2, 3];
        let mut rng = base::Rng::new(3, 3);
        for _ in 0..2000 {
            let from = rng.below(4) as u32;
            let to = rng.below(u64::from(from) + 1) as u32;
            order = advance(order, from, to);
            let way = list.remove(from as usize);
            list.insert(to as usize, way);
            assert_eq!(ways(order), list);
            assert!((0..4).all(|way| list[place_of(order, way as usize) as usize] == way));
        }
    }
}
