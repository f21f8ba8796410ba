//! The mark in a superblock of XFS: `needsrepair` is set, so that nothing mounts it, and the text
//! lies in the first sector behind the structure.

use xfs::format::features::Incompat;
use xfs::format::{Kind, RawSuper, verifier};

/// Where the text lies.
const TEXT: std::ops::Range<usize> = 464..512;

/// The sector of a superblock of version 5 at the start of a block; None for anything else.
fn sector(block: &[u8]) -> Option<usize> {
    let raw = RawSuper::view(block)?;
    let size = usize::from(raw.sb_sectsize.get());
    let five = raw.sb_versionnum.get() & 0xf == 5;
    let known = raw.sb_magicnum.get() == xfs::format::super_block::MAGIC && five;
    (known && size >= TEXT.end && size <= block.len()).then_some(size)
}

/// Sets the mark in a block that begins with a superblock; false for anything else.
pub fn set(block: &mut [u8], text: &str) -> bool {
    let Some(size) = sector(block) else { return false };
    let raw = RawSuper::view_mut(block).expect("a superblock was just seen");
    let bits = raw.sb_features_incompat.get() | Incompat::NEEDSREPAIR.bits();
    raw.sb_features_incompat.set(bits);
    block[TEXT].fill(0);
    block[TEXT.start..][..text.len()].copy_from_slice(text.as_bytes());
    verifier::update_crc(Kind::Super, &mut block[..size]);
    true
}

/// The text of a superblock that has the mark, with zeros behind it; None for anything else.
pub fn get(block: &[u8]) -> Option<String> {
    sector(block)?;
    Some(String::from_utf8_lossy(&block[TEXT]).into_owned())
}
