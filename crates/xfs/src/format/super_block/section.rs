//! The first block of a realtime section in groups, which says to which file system it belongs.
//!
//! Source: images of mkfs.xfs 7.2.

use super::RawSuper;
use crate::format::{put_u32, u32_at, verifier};

/// Its magic number: "Frog".
pub(crate) const MAGIC: u32 = 0x4672_6f67;
/// Where it holds its checksum.
pub(crate) const CRC: usize = 4;
/// Where it holds the label.
const LABEL: usize = 12;
/// Where it holds the file system's UUID.
pub(crate) const UUID: usize = 24;
/// Where it holds the UUID that metadata carry.
const META_UUID: usize = 40;

/// Puts a letter in place of each byte of the label; false where the block is no superblock of a
/// section, or is damaged.
pub fn rename(block: &mut [u8], letter: u8) -> bool {
    if u32_at(block, 0) != MAGIC
        || u32_at(block, CRC) != verifier::checksum_at(block, CRC).swap_bytes()
    {
        return false;
    }
    block[LABEL..UUID].iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = letter);
    seal(block);
    true
}

fn seal(block: &mut [u8]) {
    let crc = verifier::checksum_at(block, CRC);
    put_u32(block, CRC, crc.swap_bytes());
}

/// The block as the superblock wants it.
pub(crate) fn block(raw: &RawSuper) -> Vec<u8> {
    let mut block = vec![0; raw.sb_blocksize.get() as usize];
    put_u32(&mut block, 0, MAGIC);
    block[LABEL..][..raw.sb_fname.len()].copy_from_slice(&raw.sb_fname);
    for at in [UUID, META_UUID] {
        block[at..][..16].copy_from_slice(&raw.sb_uuid);
    }
    seal(&mut block);
    block
}
