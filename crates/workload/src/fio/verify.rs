//! Blocks that carry a checksum of themselves and the place where they belong.
//!
//! The header has the fields of fio's, in an order of its own: a file that fio wrote is not
//! verified here, nor the other way round.

use base::{Rng, crc};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use xxhash_rust::xxh32::xxh32;

use super::job::Verify;

/// Smallest block that has room for a header with the longest checksum.
pub const HEADER_MIN: u64 = 128;
const HEADER: usize = HEADER_MIN as usize;
const MAGIC: u32 = 0x6962_6c6b;
/// Where in the header the checksum begins.
const SUM_AT: usize = 40;

/// What is wrong with a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// No header is there: the block was never written, or something else is.
    Magic,
    /// The header's own checksum.
    Header,
    /// The block belongs elsewhere: the offset that it names.
    Offset(u64),
    /// The block has another length.
    Length(u64),
    /// The block is that of another write: its number.
    Number(u64),
    /// The checksum of the content.
    Content,
    /// The pattern, from this byte on.
    Pattern(u64),
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mismatch::Magic => write!(f, "bad magic header"),
            Mismatch::Header => write!(f, "bad header checksum"),
            Mismatch::Offset(offset) => write!(f, "bad header offset {offset}"),
            Mismatch::Length(len) => write!(f, "bad header length {len}"),
            Mismatch::Number(number) => write!(f, "bad header numberio {number}"),
            Mismatch::Content => write!(f, "verify failed"),
            Mismatch::Pattern(at) => write!(f, "bad pattern at byte {at}"),
        }
    }
}

fn checksum(kind: Verify, data: &[u8]) -> Vec<u8> {
    match kind {
        Verify::Crc32c => crc::crc32c(!0, data).to_le_bytes().to_vec(),
        Verify::Crc32 => crc::crc32(data).to_le_bytes().to_vec(),
        Verify::Crc16 => crc::crc16(0, data).to_le_bytes().to_vec(),
        Verify::Md5 => Md5::digest(data).to_vec(),
        Verify::Sha1 => Sha1::digest(data).to_vec(),
        Verify::Xxhash => xxh32(data, 0).to_le_bytes().to_vec(),
        Verify::Sha256 => Sha256::digest(data).to_vec(),
        Verify::Sha512 => Sha512::digest(data).to_vec(),
        Verify::Pattern | Verify::Null => Vec::new(),
    }
}

fn repeat_pattern(pattern: &[u8], offset: u64, data: &mut [u8]) {
    if pattern.is_empty() {
        return;
    }
    let start = (offset % pattern.len() as u64) as usize;
    let bytes = pattern.iter().cycle().skip(start);
    data.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
}

/// Fills a block for byte `offset` of its file; `number` counts the job's writes.
pub fn fill(kind: Verify, pattern: &[u8], offset: u64, number: u64, block: &mut [u8]) {
    if kind == Verify::Pattern {
        return repeat_pattern(pattern, 0, block);
    }
    let Some((header, content)) = block.split_at_mut_checked(HEADER) else { return };
    match pattern {
        [] => Rng::new(offset, number).fill(content),
        pattern => repeat_pattern(pattern, 0, content),
    }
    let sum = checksum(kind, content);
    let len = (HEADER + content.len()) as u64;
    header.fill(0);
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..16].copy_from_slice(&len.to_le_bytes());
    header[16..24].copy_from_slice(&offset.to_le_bytes());
    header[24..32].copy_from_slice(&number.to_le_bytes());
    header[SUM_AT..SUM_AT + sum.len()].copy_from_slice(&sum);
    let own = crc::crc32c(!0, header);
    header[32..36].copy_from_slice(&own.to_le_bytes());
}

/// Checks a block that was read from byte `offset` of its file.
///
/// # Errors
/// What is wrong with it.
pub fn check(kind: Verify, pattern: &[u8], offset: u64, block: &[u8]) -> Result<(), Mismatch> {
    if kind == Verify::Null {
        return Ok(());
    }
    if kind == Verify::Pattern {
        let mut expected = vec![0; block.len()];
        repeat_pattern(pattern, 0, &mut expected);
        let wrong = block.iter().zip(&expected).position(|(is, should)| is != should);
        return wrong.map_or(Ok(()), |at| Err(Mismatch::Pattern(at as u64)));
    }
    let Some((header, content)) = block.split_at_checked(HEADER) else {
        return Err(Mismatch::Length(block.len() as u64));
    };
    let number = |at: usize| {
        u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes of the header"))
    };
    if header[..4] != MAGIC.to_le_bytes() {
        return Err(Mismatch::Magic);
    }
    let mut plain = [0; HEADER];
    plain.copy_from_slice(header);
    plain[32..36].fill(0);
    if header[32..36] != crc::crc32c(!0, &plain).to_le_bytes() {
        return Err(Mismatch::Header);
    }
    if number(16) != offset {
        return Err(Mismatch::Offset(number(16)));
    }
    if number(8) != block.len() as u64 {
        return Err(Mismatch::Length(number(8)));
    }
    let sum = checksum(kind, content);
    match header[SUM_AT..SUM_AT + sum.len()] == sum {
        true => Ok(()),
        false => Err(Mismatch::Content),
    }
}

/// The number of the write that a good block is from.
pub fn number(kind: Verify, block: &[u8]) -> Option<u64> {
    let bytes = block.get(24..32)?.try_into().ok()?;
    (!matches!(kind, Verify::Pattern | Verify::Null)).then(|| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Verify; 8] = [
        Verify::Crc32c,
        Verify::Crc32,
        Verify::Crc16,
        Verify::Md5,
        Verify::Sha1,
        Verify::Xxhash,
        Verify::Sha256,
        Verify::Sha512,
    ];

    #[test]
    fn crc16_of_the_usual_string() {
        assert_eq!(crc::crc16(0, b"123456789"), 0xbb3d);
    }

    /// Every single flipped bit is noticed, and a block at another place or of another length.
    #[test]
    fn a_changed_block_is_noticed() {
        for kind in KINDS {
            let mut block = vec![0; 512];
            fill(kind, b"", 4096, 3, &mut block);
            assert_eq!(check(kind, b"", 4096, &block), Ok(()));
            assert_eq!(check(kind, b"", 8192, &block), Err(Mismatch::Offset(4096)));
            assert_eq!(check(kind, b"", 4096, &block[..256]), Err(Mismatch::Length(512)));
            for bit in (0..512 * 8).step_by(7) {
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(check(kind, b"", 4096, &block).is_err(), "{kind:?} bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(check(kind, b"", 4096, &[0; 512]), Err(Mismatch::Magic));
        }
    }

    #[test]
    fn a_pattern_repeats() {
        let mut block = vec![0; 10];
        fill(Verify::Pattern, b"abc", 0, 0, &mut block);
        assert_eq!(block, b"abcabcabca");
        assert_eq!(check(Verify::Pattern, b"abc", 0, b"abcabX"), Err(Mismatch::Pattern(5)));
    }
}
