//! Data behind names (`dirdata`, which Lustre's metadata servers have): they are stepped over, go
//! with a name that is moved, and go away with it or with what it leads to. New names have none.
//!
//! The lower four bits of an entry's type are the type. Each of the upper ones says that data
//! follow: behind the name and a zero byte, in the order of the bits, each with a first byte that
//! counts them, itself too. The entry's length covers them.
//!
//! Source: the proposal to linux-ext4 of 2009-05-05, and the commit message of e2fsprogs
//! 30a7610edf. No image of a server was at hand.

use super::{DirLayout, HEADER_LEN, Header, Names, whole_len};
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

/// Bytes behind the name of the entry at `at`, the zero byte between included; 0 without data.
pub(super) fn data_len(block: &[u8], at: usize, header: Header) -> usize {
    let pieces = (header.file_type & FOLLOW).count_ones();
    if pieces == 0 {
        return 0;
    }
    let start = at + HEADER_LEN + usize::from(header.name_len);
    let mut next = start + 1;
    for _ in 0..pieces {
        next += block.get(next).map_or(0, |&len| usize::from(len));
    }
    next.min(block.len()).saturating_sub(start)
}

/// Have the first two entries of a directory data behind their names?
pub fn data_behind_dots(block: &[u8]) -> bool {
    [0, HEADER_LEN + 4]
        .iter()
        .any(|&at| Header::read(block, at).is_some_and(|header| header.file_type & FOLLOW != 0))
}

/// What lies behind the name of the entry at `offset`, which says with its first byte what it is;
/// empty without data.
pub fn behind(block: &[u8], layout: DirLayout, offset: u32) -> Vec<u8> {
    let at = offset as usize;
    let header = Header::read(block, at).expect("offset is an entry");
    if layout.names != Names::Data || header.file_type & FOLLOW == 0 {
        return Vec::new();
    }
    let start = at + HEADER_LEN + usize::from(header.name_len);
    let mut kept = vec![header.file_type & FOLLOW];
    kept.extend(&block[start..start + data_len(block, at, header)]);
    kept
}

/// Puts what [`behind`] found behind the name of the entry at `offset`, which has none. Answers
/// false, with nothing changed, where the entry has no room for it.
pub fn put_behind(block: &mut [u8], offset: u32, kept: &[u8]) -> bool {
    let Some((&bits, bytes)) = kept.split_first() else { return true };
    let at = offset as usize;
    let header = Header::read(block, at).expect("offset is an entry");
    let start = at + HEADER_LEN + usize::from(header.name_len);
    if start + bytes.len() > at + whole_len(header.rec_len, block) {
        return false;
    }
    block[start..start + bytes.len()].copy_from_slice(bytes);
    Header { file_type: header.file_type | bits, ..header }.write(block, at);
    true
}
