//! Checksums in blocks: the last bytes of each hold the sum of the rest and its place.

use base::crc::crc32c;

/// Bytes of a block that are taken: sum, file, offset.
pub(super) const TRAILER: usize = 16;

/// Completes the blocks of a request at `offset` of a file.
pub(super) fn stamp(data: &mut [u8], block: usize, file: u64, offset: u64) {
    for (index, block) in data.chunks_mut(block).enumerate() {
        let Some(at) = block.len().checked_sub(TRAILER) else { continue };
        let place = offset + (index * block.len()) as u64;
        block[at + 4..at + 8].copy_from_slice(&(file as u32).to_le_bytes());
        block[at + 8..].copy_from_slice(&place.to_le_bytes());
        let sum = crc32c(u32::MAX, &block[..at]) ^ crc32c(u32::MAX, &block[at + 4..]);
        block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The offset of the first block that is not what [`stamp`] made of it.
pub(super) fn mismatch(data: &[u8], block: usize, file: u64, offset: u64) -> Option<u64> {
    let mut want = data.to_vec();
    stamp(&mut want, block, file, offset);
    let wrong = data.chunks(block).zip(want.chunks(block)).position(|(got, want)| got != want);
    wrong.map(|index| offset + (index * block) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_misplaced_block_is_found() {
        let mut data = vec![7; 3 * 512];
        stamp(&mut data, 512, 2, 1024);
        assert_eq!(mismatch(&data, 512, 2, 1024), None);
        assert_eq!(mismatch(&data, 512, 1, 1024), Some(1024));
        assert_eq!(mismatch(&data[512..], 512, 2, 1024), Some(1024));
        data[600] ^= 1;
        assert_eq!(mismatch(&data, 512, 2, 1024), Some(1536));
        assert_eq!(mismatch(&[0; 512], 512, 0, 0), Some(0));
    }
}
