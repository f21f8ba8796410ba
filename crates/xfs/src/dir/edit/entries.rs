//! Hash indexes as arrays of entries, sorted by hash, in which stale ones leave room for new ones.

use super::data::Range;
use crate::format::dir::{LEAF_ENTRY, LeafEntry, Leaves};
use crate::format::u32_at;

/// Entries that are looked at on one side before the other.
const STRIDE: usize = 16;

/// Which entries of a range, [`STRIDE`] at the most, are stale: a bit for each, without branches.
fn stale_bits(array: &[u8], from: usize, to: usize) -> u32 {
    let entries = array[from * LEAF_ENTRY..to * LEAF_ENTRY].chunks_exact(LEAF_ENTRY);
    let bit = |entry: &[u8], at: usize| u32::from(u32_at(entry, 4) == 0) << at;
    entries.enumerate().fold(0, |bits, (at, entry)| bits | bit(entry, at))
}

/// True if one of a range of entries is stale. Names whose hashes lie together use up the gaps
/// there, so that mostly none is.
fn has_stale(array: &[u8], from: usize, to: usize) -> bool {
    let entries = array[from * LEAF_ENTRY..to * LEAF_ENTRY].chunks_exact(LEAF_ENTRY);
    // The address is behind the hash, in whatever byte order: below one only where it is zero.
    let address = |entry: &[u8]| u64::from_le_bytes(entry.try_into().expect("eight bytes")) >> 32;
    entries.fold(0, |below, entry| below | address(entry).wrapping_sub(1)) >> 63 != 0
}

/// The stale entry that is the nearest one to `index`, among `count`. Of two the one below.
fn nearest_stale(array: &[u8], index: usize, count: usize) -> Option<usize> {
    let (mut low, mut high) = (index, index);
    while low > 0 || high < count {
        let (below, above) = (low.saturating_sub(STRIDE), count.min(high + STRIDE));
        if !has_stale(array, below, low) && !has_stale(array, high, above) {
            (low, high) = (below, above);
            continue;
        }
        let [left, right] = [stale_bits(array, below, low), stale_bits(array, high, above)];
        let left = left.checked_ilog2().map(|bit| below + bit as usize);
        let right = (right != 0).then(|| high + right.trailing_zeros() as usize);
        match (left, right) {
            (Some(left), Some(right)) if right - index < index - left => return Some(right),
            (None, None) => (low, high) = (below, above),
            (left, right) => return left.or(right),
        }
    }
    None
}

/// Puts an entry into an array of `count`, over a stale one where there is any, else behind the
/// last, where there must be room. Returns which entries were written.
pub(super) fn insert(array: &mut [u8], count: usize, entry: LeafEntry, any_stale: bool) -> Range {
    let index = Leaves::new(&array[..count * LEAF_ENTRY]).lower_bound(entry.hash);
    let free = any_stale.then(|| nearest_stale(array, index, count)).flatten().unwrap_or(count);
    if free < index {
        array.copy_within((free + 1) * LEAF_ENTRY..index * LEAF_ENTRY, free * LEAF_ENTRY);
        entry.write(array, index - 1);
        free..index
    } else {
        array.copy_within(index * LEAF_ENTRY..free * LEAF_ENTRY, (index + 1) * LEAF_ENTRY);
        entry.write(array, index);
        index..free + 1
    }
}

/// Puts `add` stale entries between the `count` ones of an array, none of which is stale: who comes
/// later finds a place nearby, and moves a few entries instead of half of them.
pub(super) fn spread(array: &mut [u8], count: usize, add: usize) {
    let place = |index: usize| index + index * add / count.max(1);
    // From the end, so that nothing is overwritten before it was moved.
    for index in (0..count).rev() {
        let entry = Leaves::new(&array[..count * LEAF_ENTRY]).get(index);
        let (at, end) = (place(index), place(index + 1));
        entry.write(array, at);
        (at + 1..end).for_each(|gap| LeafEntry { address: 0, ..entry }.write(array, gap));
    }
}

/// Entries that are not stale, in order.
pub(super) fn live(leaves: Leaves<'_>) -> Vec<LeafEntry> {
    leaves.iter().filter(|entry| entry.address != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_entries_keep_their_order_and_leave_room_everywhere() {
        for (count, add) in [(1, 1), (7, 3), (10, 10), (100, 37), (64, 200), (5, 0)] {
            let mut array = vec![0u8; (count + add) * LEAF_ENTRY];
            let entry = |n: usize| LeafEntry { hash: 3 * n as u32, address: 8 + n as u32 };
            (0..count).for_each(|n| entry(n).write(&mut array, n));
            spread(&mut array, count, add);
            let leaves = Leaves::new(&array);
            leaves.check(add as u32, crate::format::At::Block(0)).expect("sorted");
            assert_eq!(live(leaves), (0..count).map(entry).collect::<Vec<_>>());
            let farthest = (0..count + add).filter_map(|at| nearest_stale(&array, at, count + add));
            let spacing = (count + add).div_ceil(add.max(1));
            assert!(farthest.enumerate().all(|(at, stale)| at.abs_diff(stale) <= spacing));
        }
    }

    #[test]
    fn the_nearest_stale_entry_is_found_on_either_side() {
        for count in [1, 15, 16, 17, 33, 100] {
            for stale in [0u128, 1, 1 << 99, 1 << 20 | 1 << 70, 1 << 31 | 1 << 33, 0b11 << 60] {
                let mut array = vec![0u8; count * LEAF_ENTRY];
                let address = |at: usize| u32::from(stale >> at & 1 == 0);
                (0..count).for_each(|at| {
                    LeafEntry { hash: 0, address: address(at) }.write(&mut array, at);
                });
                for index in 0..=count {
                    // An entry at the place itself is as near as the one in front of it is.
                    let distance = |at: usize| (at.abs_diff(index), usize::from(at >= index));
                    let stale = |&at: &usize| u32_at(&array, at * LEAF_ENTRY + 4) == 0;
                    let all = (0..count).filter(stale);
                    let nearest = all.min_by_key(|&at| distance(at));
                    assert_eq!(nearest_stale(&array, index, count), nearest, "{index} of {count}");
                }
            }
        }
    }

    #[test]
    fn entries_stay_sorted_and_take_the_nearest_stale_place() {
        let mut array = vec![0u8; 8 * LEAF_ENTRY];
        let mut count = 0;
        for (address, hash) in [(8, 5u32), (9, 1), (10, 9), (11, 5), (12, 7)] {
            let range = insert(&mut array, count, LeafEntry { hash, address }, false);
            count += 1;
            assert!(range.end == count);
        }
        let stale = LeafEntry { hash: 5, address: 0 };
        stale.write(&mut array, 1);
        let range = insert(&mut array, count, LeafEntry { hash: 8, address: 20 }, true);
        assert_eq!(range, 1..4);
        let leaves = Leaves::new(&array[..count * LEAF_ENTRY]);
        leaves.check(0, crate::format::At::Block(0)).expect("sorted");
        assert_eq!(live(leaves).len(), 5);
        LeafEntry { hash: 9, address: 0 }.write(&mut array, 4);
        assert_eq!(insert(&mut array, count, LeafEntry { hash: 0, address: 21 }, true), 0..5);
    }
}
