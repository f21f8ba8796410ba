//! Data behind names (`dirdata`, which Lustre's metadata servers have): they are stepped over.
//!
//! The lower four bits of an entry's type are the type. Each of the upper ones says that data
//! follow: behind the name and a zero byte, in the order of the bits, each with a first byte that
//! counts them, itself too. The entry's length covers them.
//!
//! Source: the proposal to linux-ext4 of 2009-05-05, and the commit message of e2fsprogs
//! 30a7610edf. No image of a server was at hand.

use super::{HEADER_LEN, Header, Names, whole_len};
use crate::format::CorruptKind;

/// The bits of a stored type that say the type.
const TYPE: u8 = 0x0f;
/// The bits that say that data follow.
const FOLLOW: u8 = 0xf0;

/// The bits of a stored type that say the type, in a directory with such names.
#[inline(always)]
pub(super) fn type_mask(names: Names) -> u8 {
    if names == Names::Data { TYPE } else { u8::MAX }
}

/// Checks that the data lie inside of the entry at `at`.
///
/// # Errors
/// They do not.
pub(super) fn check_data(block: &[u8], at: usize, header: Header) -> Result<(), CorruptKind> {
    let name_len = usize::from(header.name_len);
    let rec_len = whole_len(header.rec_len, block);
    let end = at + rec_len;
    let mut next = at + HEADER_LEN + name_len + 1;
    for _ in 0..(header.file_type & FOLLOW).count_ones() {
        let len = match block.get(next) {
            Some(&len) if len > 0 && next < end => usize::from(len),
            _ => end + 1,
        };
        next = next.saturating_add(len);
        if next > end {
            let (name_len, rec_len) = (name_len as u32, rec_len as u32);
            return Err(CorruptKind::DirNameLen { offset: at as u32, name_len, rec_len });
        }
    }
    Ok(())
}
