//! Blocks of the orphan file: inode numbers, then magic number and checksum.
//!
//! Source: kernel `Documentation/filesystems/ext4/orphan.rst`.

use super::checksum::{InodeSeed, put_u32, u32_at};
use super::{At, Corrupt, CorruptKind, Geometry};

/// `ob_magic`.
pub const MAGIC: u32 = 0x0b10_ca04;
/// Bytes of the tail: magic number and checksum.
pub const TAIL_SIZE: usize = 8;

/// How many inode numbers a block holds.
pub fn slots_per_block(block_size: u32) -> usize {
    (block_size as usize - TAIL_SIZE) / 4
}

/// Checks magic number and checksum of the orphan file's block that lies in device block `block`.
///
/// # Errors
/// The first check that fails.
pub fn check(
    data: &[u8],
    block: u64,
    seed: InodeSeed,
    g: &Geometry,
    at: At,
) -> Result<(), Corrupt> {
    let found = u32_at(data, data.len() - TAIL_SIZE);
    if found != MAGIC {
        return Err(CorruptKind::OrphanMagic { found }.at(at));
    }
    if g.checksums.metadata {
        let (found, expected) = (u32_at(data, data.len() - 4), seed.orphan_block(block, data));
        if found != expected {
            return Err(CorruptKind::OrphanChecksum { found, expected }.at(at));
        }
    }
    Ok(())
}

/// Does a block end with the magic number?
pub fn is_marked(data: &[u8]) -> bool {
    u32_at(data, data.len() - TAIL_SIZE) == MAGIC
}

/// The inode in slot `index`, 0 where the slot is free.
pub fn slot(data: &[u8], index: usize) -> u32 {
    u32_at(data, index * 4)
}

/// Stores an inode number, or 0, in slot `index`. The checksum is set by [`set_tail`].
pub fn set_slot(data: &mut [u8], index: usize, ino: u32) {
    put_u32(data, index * 4, ino);
}

/// Writes magic number and checksum of the block that will lie in device block `block`.
pub fn set_tail(data: &mut [u8], block: u64, seed: InodeSeed, geometry: &Geometry) {
    let end = data.len();
    put_u32(data, end - TAIL_SIZE, MAGIC);
    let checksum = if geometry.checksums.metadata { seed.orphan_block(block, data) } else { 0 };
    put_u32(data, end - 4, checksum);
}
