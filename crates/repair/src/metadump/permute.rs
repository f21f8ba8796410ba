//! Private bytes replaced by others that depend on a key.

use sha2::{Digest, Sha256};

/// Letters of obscured text: 64, all of which every file system takes in names.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Those of them that folding of letter case leaves alone.
const FOLDED: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
/// The last bytes of a name that set its hash in XFS.
const TAIL: usize = 5;
/// Rounds of a permutation.
const ROUNDS: u8 = 6;

/// A source of pseudo-random bytes for one purpose.
pub struct Stream {
    block: [u8; 32],
    used: usize,
}

impl Stream {
    /// The stream of a key, a purpose and what it is about.
    pub fn new(key: &[u8; 16], purpose: &[u8], about: &[u8]) -> Stream {
        let mut hash = Sha256::new();
        hash.update(key);
        hash.update((purpose.len() as u64).to_le_bytes());
        hash.update(purpose);
        hash.update(about);
        Stream { block: hash.finalize().into(), used: 0 }
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        if self.used == self.block.len() / 2 {
            // The other half of the block stays secret, and makes the next one.
            (self.block, self.used) = (Sha256::digest(self.block).into(), 0);
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// The next eight bytes as a number.
    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |all, _| all << 8 | u64::from(self.byte()))
    }
}

/// Letters in place of a text of so many bytes; slashes stay where they are.
pub fn text(key: &[u8; 16], purpose: &[u8], old: &mut [u8]) {
    let mut stream = Stream::new(key, purpose, old);
    for byte in old.iter_mut().filter(|byte| **byte != b'/') {
        *byte = LETTERS[usize::from(stream.byte() & 63)];
    }
}

/// Different names of one length, without an end as long as there are some.
pub struct Names {
    letters: &'static [u8],
    bits: u32,
    len: usize,
    /// Letters that number the names.
    counted: usize,
    next: u64,
    multiplier: u64,
    offset: u64,
    stream: Stream,
}

impl Names {
    /// Names of `len` bytes for one directory.
    pub fn new(key: &[u8; 16], directory: u64, len: usize, folds: bool) -> Names {
        let letters: &[u8] = if folds { FOLDED } else { LETTERS };
        let about = [directory.to_le_bytes(), (len as u64).to_le_bytes()].concat();
        let mut stream = Stream::new(key, b"names", &about);
        let (multiplier, offset) = (stream.number() | 1, stream.number());
        let (bits, counted) = (letters.len().ilog2(), len.min(10));
        Names { letters, bits, len, counted, next: 0, multiplier, offset, stream }
    }
}

impl Iterator for Names {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let all = 1_u64 << (self.bits * self.counted as u32);
        if self.next == all {
            return None;
        }
        // Multiplying by an odd number permutes the numbers below a power of two.
        let mut number = self.next.wrapping_mul(self.multiplier).wrapping_add(self.offset) % all;
        self.next += 1;
        let mask = self.letters.len() as u64 - 1;
        let name = (0..self.len).map(|index| {
            let digit = match index < self.counted {
                true => number & mask,
                false => u64::from(self.stream.byte()) & mask,
            };
            number >>= self.bits;
            self.letters[digit as usize]
        });
        Some(name.collect())
    }
}

/// Another name of the same length and with the same hash in XFS. Different names of one directory
/// become different names; names of up to four bytes stay.
pub fn same_hash(key: &[u8; 16], directory: u64, name: &mut [u8]) {
    let Some(front) = name.len().checked_sub(TAIL) else { return };
    let hash = xfs::format::hash::hash(name);
    // The name as its front and the bits of its tail that the hash leaves open.
    let mut state = name[..front].to_vec();
    state.push(free_bits(&name[front..]));
    let about = [directory.to_le_bytes(), (name.len() as u64).to_le_bytes()].concat();
    loop {
        permute(key, &about, hash, &mut state);
        let wanted = hash ^ xfs::format::hash::hash(&state[..front]).rotate_left(7 * TAIL as u32);
        name[..front].copy_from_slice(&state[..front]);
        name[front..].copy_from_slice(&tail(wanted, state[front]));
        // A permutation that is repeated until the name can be one permutes those that can.
        if !name.iter().any(|&byte| byte == 0 || byte == b'/') {
            return;
        }
    }
}

/// Permutes all byte strings of one length: a Feistel network, one half after the other.
fn permute(key: &[u8; 16], about: &[u8], hash: u32, state: &mut [u8]) {
    if let [byte] = state {
        let (mut left, mut right) = (*byte >> 4, *byte & 15);
        for round in 0..ROUNDS {
            let about = [about, &hash.to_le_bytes(), &[round, left]].concat();
            right ^= Stream::new(key, b"nibble", &about).byte() & 15;
            (left, right) = (right, left);
        }
        *byte = left << 4 | right;
        return;
    }
    let middle = state.len() / 2;
    for round in 0..ROUNDS {
        let (left, right) = state.split_at_mut(middle);
        let (from, to) = if round % 2 == 0 { (left, right) } else { (right, left) };
        let about = [about, &hash.to_le_bytes(), &[round], from].concat();
        let mut stream = Stream::new(key, b"half", &about);
        to.iter_mut().for_each(|byte| *byte ^= stream.byte());
    }
}

/// The bits of the last five bytes that their hash leaves open.
fn free_bits(tail: &[u8]) -> u8 {
    tail[0] >> 4 | (1..TAIL).fold(0, |bits, index| bits | tail[index] >> 7 << (3 + index))
}

/// The five bytes with this hash and these open bits. In the hash each byte lies seven bits above
/// the next one, so that its lowest bit meets the highest of the byte behind it.
fn tail(hash: u32, free: u8) -> [u8; TAIL] {
    let high = |index: usize| free >> (3 + index) & 1;
    let part = |index: usize| {
        let bits = (hash >> (7 * (TAIL - 1 - index))) as u8 & 0x7f;
        if index + 1 < TAIL { bits ^ high(index + 1) } else { bits }
    };
    let mut out = [0; TAIL];
    out[0] = (part(0) & 15) | free << 4;
    for (index, byte) in out.iter_mut().enumerate().skip(1) {
        *byte = part(index) | high(index) << 7;
    }
    // The upper half of the first byte comes round to the lowest bits.
    out[TAIL - 1] ^= free & 15;
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEY: [u8; 16] = [7; 16];

    #[test]
    fn names_keep_length_and_hash_and_stay_different() {
        for len in [5, 6, 7, 9, 16, 255] {
            let mut seen = BTreeSet::new();
            for number in 0..300_u32 {
                let mut name: Vec<u8> = format!("{number:03}").bytes().cycle().take(len).collect();
                name[0] = b'a' + (number % 26) as u8;
                let old = name.clone();
                same_hash(&KEY, 128, &mut name);
                assert_eq!(xfs::format::hash::hash(&name), xfs::format::hash::hash(&old));
                assert!(!name.iter().any(|&byte| byte == 0 || byte == b'/'));
                assert!(seen.insert(name), "{len}: two names became one");
            }
        }
        let mut short = *b"abcd";
        same_hash(&KEY, 128, &mut short);
        assert_eq!(short, *b"abcd");
    }

    #[test]
    fn all_names_of_one_hash_stay_different() {
        // All names of five bytes with the hash of "hello".
        let hash = xfs::format::hash::hash(b"hello");
        let all = (0..=255_u8).map(|free| tail(hash, free));
        let all: Vec<_> = all.filter(|name| !name.iter().any(|&b| b == 0 || b == b'/')).collect();
        assert!(all.len() > 200 && all.contains(b"hello"));
        let mut seen = BTreeSet::new();
        for mut name in all {
            assert_eq!(xfs::format::hash::hash(&name), hash);
            same_hash(&KEY, 128, &mut name);
            assert!(seen.insert(name));
        }
    }

    #[test]
    fn drawn_names_are_different_until_none_is_left() {
        let one: BTreeSet<_> = Names::new(&KEY, 2, 1, false).collect();
        assert_eq!(one.len(), 64);
        let two: BTreeSet<_> = Names::new(&KEY, 2, 2, true).collect();
        assert_eq!(two.len(), 1024);
        let long: BTreeSet<_> = Names::new(&KEY, 2, 40, false).take(5000).collect();
        assert!(long.len() == 5000 && long.iter().all(|name| name.len() == 40));
    }
}
