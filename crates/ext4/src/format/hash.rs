//! The hashes of directory names.
//!
//! Source: kernel `Documentation/filesystems/ext4/directory`; half MD4 from RFC 1320 with the
//! rounds that ext3 kept; TEA from Wheeler and Needham (1994); checked against `debugfs dx_hash`.

pub use super::super_block::HashVersion;

impl HashVersion {
    /// The version in a tree's root (0, 1 or 2), in a file system whose superblock says how
    /// characters count. `None` for a number that has no meaning here (6 says that the hashes stand
    /// beside the names, which are encrypted).
    pub fn from_disk(number: u8, unsigned: bool) -> Option<HashVersion> {
        let version = HashVersion::from_number(number)?;
        Some(if unsigned { version.unsigned() } else { version })
    }

    /// The number that a tree's root holds for this version: 0, 1 or 2.
    pub fn on_disk(self) -> u8 {
        self as u8 % 3
    }

    fn is_unsigned(self) -> bool {
        self as u8 >= 3
    }
}

/// The hash of a name. Trees order names by `major` alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct NameHash {
    /// What the tree's nodes hold: bit 0 is always clear (there it marks a continuation), and the
    /// largest value is `0xffff_fffc`.
    pub major: u32,
    /// Refines the order for directory positions; 0 for the legacy hash.
    pub minor: u32,
}

impl NameHash {
    /// Hashes as a tree has them.
    #[inline]
    pub fn new(major: u32, minor: u32) -> NameHash {
        let major = match major & !1 {
            // The end of a directory has the largest position: no name may have it.
            0xffff_fffe => 0xffff_fffc,
            hash => hash,
        };
        NameHash { major, minor }
    }
}

/// The initial state where the superblock has no seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Hashes a name. `seed` is the superblock's `s_hash_seed`; all zeros stand for the default.
pub fn hash_name(version: HashVersion, seed: &[u32; 4], name: &[u8]) -> NameHash {
    let unsigned = version.is_unsigned();
    let (major, minor) = match version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
            let state = rounds::<8>(seed, name, unsigned, half_md4);
            (state[1], state[2])
        }
        HashVersion::Tea | HashVersion::TeaUnsigned => {
            let state = rounds::<4>(seed, name, unsigned, tea);
            (state[0], state[1])
        }
    };
    NameHash::new(major, minor)
}

/// A character as the hashes see it.
#[inline(always)]
fn extend(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { byte as i8 as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut hash, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mixed = extend(byte, unsigned).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(hash ^ mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        before = hash;
        hash = next;
    }
    hash << 1
}

/// Feeds the name in pieces of `4 * N` bytes into `transform`.
#[inline(always)]
fn rounds<const N: usize>(
    seed: &[u32; 4],
    name: &[u8],
    unsigned: bool,
    transform: fn(&mut [u32; 4], &[u32; N]),
) -> [u32; 4] {
    let mut state = if *seed == [0; 4] { DEFAULT_SEED } else { *seed };
    let mut rest = name;
    while !rest.is_empty() {
        transform(&mut state, &pack::<N>(rest, unsigned));
        rest = rest.get(4 * N..).unwrap_or(&[]);
    }
    state
}

/// The first `4 * N` bytes as `N` big-endian words, filled up with the length of the whole rest.
#[inline(always)]
fn pack<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let pad = rest.len() as u32 | (rest.len() as u32) << 8;
    let pad = pad | pad << 16;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        // Four bytes that have no sign push the filling out.
        if let Ok(bytes) = bytes.try_into().map(u32::from_be_bytes)
            && (unsigned || bytes & 0x8080_8080 == 0)
        {
            *word = bytes;
            continue;
        }
        *word = bytes.iter().fold(pad, |word, &b| extend(b, unsigned).wrapping_add(word << 8));
    }
    words
}

/// Three rounds of MD4 with eight operations each.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    const ORDER: [[usize; 8]; 3] =
        [[0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 5, 7, 0, 2, 4, 6], [3, 7, 2, 6, 1, 5, 0, 4]];
    const SHIFT: [[u32; 4]; 3] = [[3, 7, 11, 19], [3, 5, 9, 13], [3, 9, 11, 15]];
    const ADD: [u32; 3] = [0, 0x5a82_7999, 0x6ed9_eba1];

    let [mut a, mut b, mut c, mut d] = *state;
    for round in 0..3 {
        for step in 0..8 {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let word = input[ORDER[round][step]].wrapping_add(ADD[round]);
            let sum = a.wrapping_add(mixed).wrapping_add(word);
            (a, b, c, d) = (d, sum.rotate_left(SHIFT[round][step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of the Tiny Encryption Algorithm; the first two words of the state are the text.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(
            (y << 4).wrapping_add(key[0]) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]),
        );
        y = y.wrapping_add(
            (x << 4).wrapping_add(key[2]) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]),
        );
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12345678-9abc-def0-1122-334455667788 as a superblock stores it.
    const SEED: [u32; 4] = [0x7856_3412, 0xf0de_bc9a, 0x4433_2211, 0x8877_6655];

    #[test]
    fn hashes_agree_with_debugfs() {
        let long = [b'x'; 255];
        let umlauts = b"\xc3\xa4\xc3\xb6\xff";
        let odd = b"name with 33 bytes: abcdefghijklmn";
        type Row<'a> = (HashVersion, &'a [u32; 4], &'a [u8], u32, u32);
        use HashVersion::*;
        let none = &[0; 4];
        let rows: &[Row] = &[
            (Legacy, none, b"a", 0xe74b53e2, 0),
            (Legacy, none, odd, 0xdf8d397a, 0),
            (Legacy, none, umlauts, 0x2ac1d9aa, 0),
            (Legacy, none, &long, 0x30557da6, 0),
            (HalfMd4, none, b"hello", 0x1746da32, 0x420013b5),
            (HalfMd4, &SEED, b"lost+found", 0xab04c708, 0x9fa6233c),
            (HalfMd4, none, odd, 0xf0936624, 0x63cbd343),
            (HalfMd4, &SEED, umlauts, 0xf254de8c, 0xcec56ccf),
            (HalfMd4, none, &long, 0x2aa7169e, 0x655f9d9c),
            (Tea, none, b"hello", 0x6f5bb1a8, 0x231917c2),
            (Tea, &SEED, odd, 0x58085e2a, 0x2396e8ae),
            (Tea, none, umlauts, 0x673d4e9a, 0xd3523bc2),
            (Tea, none, &long, 0x6c4c00ee, 0xeafdb6b),
        ];
        for &(version, seed, name, major, minor) in rows {
            assert_eq!(
                hash_name(version, seed, name),
                NameHash { major, minor },
                "{version:?} {:?}",
                String::from_utf8_lossy(name)
            );
        }
    }

    #[test]
    fn versions_name_each_other() {
        for number in 0..3 {
            for unsigned in [false, true] {
                let version = HashVersion::from_disk(number, unsigned).expect("known");
                assert_eq!((version.on_disk(), version.is_unsigned()), (number, unsigned));
            }
        }
        assert_eq!(HashVersion::from_disk(6, false), None);
    }

    #[test]
    fn ascii_hashes_alike_signed_and_unsigned() {
        for (a, b) in [
            (HashVersion::HalfMd4, HashVersion::HalfMd4Unsigned),
            (HashVersion::Tea, HashVersion::TeaUnsigned),
            (HashVersion::Legacy, HashVersion::LegacyUnsigned),
        ] {
            assert_eq!(hash_name(a, &SEED, b"plain"), hash_name(b, &SEED, b"plain"));
            assert_ne!(hash_name(a, &SEED, b"\xe4"), hash_name(b, &SEED, b"\xe4"));
        }
    }
}
