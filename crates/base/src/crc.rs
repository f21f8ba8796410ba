//! Checksums of the disk formats, in the raw form that ext4 and XFS use: neither the seed nor the
//! result is inverted, so a checksum may be continued over several pieces. Callers start with
//! `!0` where the format says so.

/// CRC-32C (Castagnoli) over `bytes`, continued from `seed`, without inversions.
///
/// Source: ext4 and jbd2 checksum documentation, kernel `Documentation/filesystems/ext4/checksums`.
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The change of four bytes, as a little-endian number, that changes a CRC-32C by `gap` where
/// `behind` more bytes follow. There is exactly one.
pub fn crc32c_word(gap: u32, behind: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    // Each step takes back what one bit does.
    (0..(behind + 4) * 8).fold(gap, |crc, _| match crc >> 31 {
        0 => crc << 1,
        _ => (crc ^ POLYNOMIAL) << 1 | 1,
    })
}

/// Big-endian CRC-32 (IEEE polynomial, most significant bit first), continued from `seed`, as the
/// commit blocks of jbd2 checksum version 1 carry it.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(seed, |crc, &byte| (crc << 8) ^ CRC32_BE_TABLE[((crc >> 24) as u8 ^ byte) as usize])
}

/// CRC-32 (IEEE) with both inversions, as GPT headers and archives use it.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-16 (polynomial 0x8005, reflected) over `bytes`, continued from `seed`: group descriptors of
/// `uninit_bg` (gdt_csum) start with `!0`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| (crc >> 8) ^ CRC16_TABLE[(crc as u8 ^ byte) as usize])
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = (n as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 { (crc << 1) ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: &[u8] = b"123456789";

    #[test]
    fn a_changed_word_follows_from_the_checksum() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in [0, 37, 96] {
            let mut other = bytes.clone();
            let change = 0x9005_0a01u32;
            for (byte, bits) in other[at..].iter_mut().zip(change.to_le_bytes()) {
                *byte ^= bits;
            }
            let gap = crc32c(!0, &bytes) ^ crc32c(!0, &other);
            assert_eq!(crc32c_word(gap, 96 - at), change, "{at}");
        }
    }

    #[test]
    fn known_answers() {
        assert_eq!(crc32c(!0, CHECK), 0x1cf9_6d7c);
        assert_eq!(!crc32c(!0, CHECK), 0xe306_9283);
        assert_eq!(crc32(CHECK), 0xcbf4_3926);
        // CRC-32/BZIP2 inverts the result of this form; CRC-32/MPEG-2 does not.
        assert_eq!(crc32_be(!0, CHECK), 0x0376_e6e7);
        assert_eq!(crc16(0, CHECK), 0xbb3d);
        assert_eq!(crc16(!0, CHECK), 0x4b37);
    }

    #[test]
    fn a_checksum_may_be_continued() {
        let (a, b) = CHECK.split_at(4);
        assert_eq!(crc32c(crc32c(!0, a), b), crc32c(!0, CHECK));
        assert_eq!(crc32_be(crc32_be(!0, a), b), crc32_be(!0, CHECK));
        assert_eq!(crc16(crc16(!0, a), b), crc16(!0, CHECK));
    }
}
