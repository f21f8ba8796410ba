//! Bitmaps as ext2/3/4 store them: bit `n` is bit `n % 8` of byte `n / 8`, a set bit is in use.
//!
//! Bit positions are counted from 0 within the slice. Searches work on 64-bit words.

#[inline]
fn word(map: &[u8], index: usize) -> u64 {
    let at = index * 8;
    match map.get(at..at + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        None => {
            let mut bytes = [0u8; 8];
            let rest = &map[at..];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(bytes)
        }
    }
}

/// True where bit `bit` is set.
///
/// # Panics
/// Where the bit lies beyond the map.
#[inline]
pub fn test(map: &[u8], bit: usize) -> bool {
    map[bit / 8] & (1 << (bit % 8)) != 0
}

/// Sets bit `bit`; returns whether it was set before.
///
/// # Panics
/// Where the bit lies beyond the map.
#[inline]
pub fn set(map: &mut [u8], bit: usize) -> bool {
    let was = test(map, bit);
    map[bit / 8] |= 1 << (bit % 8);
    was
}

/// Clears bit `bit`; returns whether it was set before.
///
/// # Panics
/// Where the bit lies beyond the map.
#[inline]
pub fn clear(map: &mut [u8], bit: usize) -> bool {
    let was = test(map, bit);
    map[bit / 8] &= !(1 << (bit % 8));
    was
}

fn find(map: &[u8], from: usize, end: usize, flip: u64) -> Option<usize> {
    debug_assert!(end <= map.len() * 8, "search beyond the map");
    if from >= end {
        return None;
    }
    let mut index = from / 64;
    let mut bits = (word(map, index) ^ flip) & (!0u64 << (from % 64));
    loop {
        if bits != 0 {
            let found = index * 64 + bits.trailing_zeros() as usize;
            return (found < end).then_some(found);
        }
        index += 1;
        if index * 64 >= end {
            return None;
        }
        bits = word(map, index) ^ flip;
    }
}

/// The first clear bit in `from..end`.
#[inline]
pub fn find_next_zero(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, !0)
}

/// The first set bit in `from..end`.
#[inline]
pub fn find_next_set(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, 0)
}

/// How many clear bits follow each other from `from`, looking no further than `end`.
pub fn run_of_zeros(map: &[u8], from: usize, end: usize) -> usize {
    find_next_set(map, from, end).unwrap_or(end.max(from)) - from
}

/// How many set bits follow each other from `from`, looking no further than `end`.
pub fn run_of_ones(map: &[u8], from: usize, end: usize) -> usize {
    find_next_zero(map, from, end).unwrap_or(end.max(from)) - from
}

fn fill(map: &mut [u8], from: usize, end: usize, value: bool) {
    let put = |byte: &mut u8, mask: u8| {
        if value { *byte |= mask } else { *byte &= !mask }
    };
    if from >= end {
        return;
    }
    let (first, last) = (from / 8, (end - 1) / 8);
    let head = 0xffu8 << (from % 8);
    let tail = 0xffu8 >> (7 - (end - 1) % 8);
    if first == last {
        return put(&mut map[first], head & tail);
    }
    put(&mut map[first], head);
    map[first + 1..last].fill(if value { 0xff } else { 0 });
    put(&mut map[last], tail);
}

/// Sets all bits in `from..end`.
///
/// # Panics
/// Where the range reaches beyond the map.
pub fn set_range(map: &mut [u8], from: usize, end: usize) {
    fill(map, from, end, true);
}

/// Clears all bits in `from..end`.
///
/// # Panics
/// Where the range reaches beyond the map.
pub fn clear_range(map: &mut [u8], from: usize, end: usize) {
    fill(map, from, end, false);
}

/// How many of the first `end` bits are clear.
pub fn count_zeros(map: &[u8], end: usize) -> usize {
    let whole: u32 = (0..end / 64).map(|index| word(map, index).count_zeros()).sum();
    let rest = (end / 64 * 64..end).filter(|&bit| !test(map, bit)).count();
    whole as usize + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_agree_with_bit_by_bit(
            map in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 1..40),
            from in 0usize..330, end in 0usize..330,
        ) {
            let end = end.min(map.len() * 8);
            let slow_zero = (from..end).find(|&bit| !test(&map, bit));
            let slow_set = (from..end).find(|&bit| test(&map, bit));
            prop_assert_eq!(find_next_zero(&map, from, end), slow_zero);
            prop_assert_eq!(find_next_set(&map, from, end), slow_set);
            prop_assert_eq!(count_zeros(&map, end), (0..end).filter(|&b| !test(&map, b)).count());
            if from <= end {
                let run = (from..end).take_while(|&bit| !test(&map, bit)).count();
                prop_assert_eq!(run_of_zeros(&map, from, end), run);
            }
        }

        #[test]
        fn range_fills_touch_exactly_the_range(
            map in prop::collection::vec(any::<u8>(), 1..20), a in 0usize..160, b in 0usize..160,
        ) {
            let bits = map.len() * 8;
            let (from, end) = (a.min(b).min(bits), a.max(b).min(bits));
            for value in [true, false] {
                let mut filled = map.clone();
                fill(&mut filled, from, end, value);
                for bit in 0..bits {
                    let want = if (from..end).contains(&bit) { value } else { test(&map, bit) };
                    prop_assert_eq!(test(&filled, bit), want);
                }
            }
        }
    }
}
