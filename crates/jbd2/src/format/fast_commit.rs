//! Just enough of ext4's fast commits to know that there are some.
//!
//! Fast commits are tag-length-value records, little-endian, in the last blocks of the journal. The
//! first record of the area is a head that names the transaction it belongs to.

/// `EXT4_FC_TAG_HEAD`.
const TAG_HEAD: u16 = 9;

/// The transaction that a fast commit area continues, or `None` where its first block begins with
/// no head.
pub fn head_tid(first_block: &[u8]) -> Option<u32> {
    let le16 = |at: usize| Some(u16::from_le_bytes(first_block.get(at..at + 2)?.try_into().ok()?));
    let tid = first_block.get(8..12)?;
    (le16(0)? == TAG_HEAD && le16(2)? >= 8)
        .then(|| u32::from_le_bytes(tid.try_into().expect("four bytes")))
}
