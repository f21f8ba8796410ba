//! One wrong byte, found by its checksum.
//!
//! A CRC is linear: the checksum of a structure with one byte changed differs from the right one by
//! a word that depends on the byte's place and on the bits that changed, not on the content. So the
//! difference between the stored checksum and the computed one names the byte. A structure of 4 KiB
//! has about a million such words among 2^32: a wrong match is a matter of one in four thousand,
//! and two matches are refused.

use base::crc::crc32c;

/// The largest structure that is searched.
const BYTES_MAX: usize = 4096;
/// Bits of a byte.
const BITS: usize = 8;

/// Finds the one byte of `bytes` whose change makes `sum` answer what `stored` answers, and answers
/// the corrected bytes. Both are functions of the whole structure; `sum` must be a CRC of 32 bits
/// over bytes at fixed places. A wrong byte in the stored checksum itself is found as well. None
/// where no change or more than one fits, and for structures of more than 4 KiB, of which too many
/// changes have one checksum.
pub fn one_byte(
    bytes: &[u8],
    sum: impl Fn(&[u8]) -> u32,
    stored: impl Fn(&[u8]) -> u32,
) -> Option<Vec<u8>> {
    let gap = sum(bytes) ^ stored(bytes);
    if gap == 0 || bytes.len() > BYTES_MAX {
        return None;
    }
    let zero = vec![0; bytes.len()];
    let base = sum(&zero) ^ stored(&zero);
    let mut probe = zero;
    let mut found = None;
    for at in 0..bytes.len() {
        let mut words = [0u32; BITS];
        for (bit, word) in words.iter_mut().enumerate() {
            probe[at] = 1 << bit;
            *word = sum(&probe) ^ stored(&probe) ^ base;
        }
        probe[at] = 0;
        for change in 1..=u8::MAX {
            let word = (0..BITS).filter(|bit| change & 1 << bit != 0).fold(0, |w, b| w ^ words[b]);
            if word == gap {
                if found.is_some() {
                    return None;
                }
                found = Some((at, change));
            }
        }
    }
    let (at, change) = found?;
    let mut fixed = bytes.to_vec();
    fixed[at] ^= change;
    (sum(&fixed) == stored(&fixed)).then_some(fixed)
}

/// The same for a CRC-32C over `len` bytes in one piece that does not cover itself, in time linear
/// in the length: the place and the bits of the one change that makes up for `gap`. In more than
/// 4 KiB only single bits are looked for.
pub fn change_of(len: usize, gap: u32) -> Option<(usize, u8)> {
    let changes = match len > BYTES_MAX {
        true => (0..BITS).map(|bit| 1 << bit).collect(),
        false => (1..=u8::MAX).collect::<Vec<_>>(),
    };
    // What each bit of a byte adds, from the last byte on to the first.
    let mut words: [u32; BITS] = std::array::from_fn(|bit| crc32c(0, &[1 << bit]));
    let mut found = None;
    for at in (0..len).rev() {
        for &change in &changes {
            let bits = (0..BITS).filter(|bit| change & 1 << bit != 0);
            if bits.fold(0, |word, bit| word ^ words[bit]) == gap {
                if found.is_some() {
                    return None;
                }
                found = Some((at, change));
            }
        }
        words = words.map(|word| crc32c(word, &[0]));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn stored(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
    }

    fn sum(bytes: &[u8]) -> u32 {
        crc32c(7, &bytes[..bytes.len() - 4])
    }

    /// Every single wrong byte is put right, two are left alone (or the structure stays as it is).
    #[test]
    fn a_wrong_byte_is_found_wherever_it_is() {
        let mut rng = Rng::new(1, 1);
        let mut right = vec![0; 256];
        rng.fill(&mut right);
        let crc = sum(&right);
        right[252..].copy_from_slice(&crc.to_le_bytes());
        for _ in 0..40 {
            let mut wrong = right.clone();
            wrong[rng.below(256) as usize] ^= 1 + rng.below(255) as u8;
            assert_eq!(one_byte(&wrong, sum, stored), Some(right.clone()));
            wrong[0] ^= 1;
            wrong[128] ^= 3;
            assert_eq!(one_byte(&wrong, sum, stored), None);
        }
        assert_eq!(one_byte(&right, sum, stored), None);
    }

    /// The change of a byte, and of a bit in more than 4 KiB, is found.
    #[test]
    fn a_change_follows_from_the_gap() {
        let mut rng = Rng::new(1, 0);
        let sum = |bytes: &[u8]| !crc32c(!0, bytes);
        for (len, change) in [(700, 0x5a), (4096, 0x81), (32 << 10, 0x40), (1 << 18, 1)] {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            let (right, at) = (sum(&bytes), rng.below(len) as usize);
            bytes[at] ^= change;
            assert_eq!(change_of(len as usize, right ^ sum(&bytes)), Some((at, change)), "{len}");
            bytes[at ^ 1] ^= 0x11;
            bytes[(at + 9) % len as usize] ^= 0x11;
            assert_eq!(change_of(len as usize, right ^ sum(&bytes)), None, "{len}");
        }
    }
}
