//! Data behind names (`dirdata`, which Lustre's metadata servers have): they are stepped over, go
//! with a name that is moved, and go away with it or with what it leads to. New names have none.
//!
//! The lower four bits of an entry's type are the type. Each of the upper ones says that data
//! follow: behind the name and a zero byte, in the order of the bits, each with a first byte that
//! counts them, itself too. The entry's length covers them.
//!
//! Source: the proposal to linux-ext4 of 2009-05-05, and the commit message of e2fsprogs
//! 30a7610edf. No image of a server was at hand.

use super::{DirLayout, Entries, Entry, HEADER_LEN, Header, Names, entry_len, whole_len};
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

impl Names {
    /// The type that a stored byte of the type says, in a directory with such names.
    pub fn type_of(self, stored: u8) -> u8 {
        stored & type_mask(self)
    }
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

/// What lies behind a name: nothing, or a zero byte and the pieces that the upper bits of the type
/// announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behind<'a> {
    bits: u8,
    bytes: &'a [u8],
}

impl<'a> Behind<'a> {
    /// Nothing.
    pub const NONE: Behind<'static> = Behind { bits: 0, bytes: &[] };

    /// What [`Behind::to_vec`] made of it.
    pub fn of(kept: &'a [u8]) -> Behind<'a> {
        kept.split_first().map_or(Behind::default(), |(&bits, bytes)| Behind { bits, bytes })
    }

    /// What the entry of a checked block at `at` has.
    #[cold]
    fn read(block: &'a [u8], at: usize, header: Header) -> Behind<'a> {
        let start = at + HEADER_LEN + usize::from(header.name_len);
        let end = (start + data_len(block, at, header)).min(at + whole_len(header.rec_len, block));
        match block.get(start..end) {
            Some(bytes) if header.ino != 0 => Behind { bits: header.file_type & FOLLOW, bytes },
            _ => Behind::default(),
        }
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Is there nothing?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, after one that says what they are; none where there is nothing.
    pub fn to_vec(&self) -> Vec<u8> {
        if self.is_empty() { Vec::new() } else { [&[self.bits], self.bytes].concat() }
    }

    /// Puts it behind the name of the entry at `offset`, which has none. Answers false, with
    /// nothing changed, where the entry has no room for it.
    pub fn set_behind(&self, block: &mut [u8], offset: u32) -> bool {
        if self.is_empty() {
            return true;
        }
        let at = offset as usize;
        let header = Header::read(block, at).expect("offset is an entry");
        let name_len = usize::from(header.name_len);
        let start = at + HEADER_LEN + name_len;
        let (end, filled) = (start + self.bytes.len(), at + entry_len(name_len + self.bytes.len()));
        if filled > at + whole_len(header.rec_len, block) {
            return false;
        }
        block[start..end].copy_from_slice(self.bytes);
        block[end..filled].fill(0);
        Header { file_type: header.file_type | self.bits, ..header }.write(block, at);
        true
    }
}

impl DirLayout {
    /// The bytes that an entry with such a name, and this behind it, needs.
    #[inline]
    pub fn need(&self, name_len: usize, behind: Behind<'_>) -> usize {
        match behind.is_empty() {
            true => self.entry_len(name_len),
            false => entry_len(name_len + behind.bytes.len()),
        }
    }
}

impl Entry<'_> {
    /// The bytes that it needs, with what lies behind its name.
    #[inline]
    pub fn need(&self, layout: DirLayout) -> usize {
        match layout.names {
            Names::Data => layout.need(self.name.len(), self.behind),
            _ => layout.entry_len(self.name.len()),
        }
    }
}

impl<'a> Entries<'a> {
    /// What lies behind the name of the entry at hand.
    #[inline(always)]
    pub(super) fn behind(&self, header: Header) -> Behind<'a> {
        match self.types == u8::MAX || header.file_type & FOLLOW == 0 {
            true => Behind::default(),
            false => Behind::read(self.block, self.offset, header),
        }
    }
}

/// Have the first two entries of a directory data behind their names?
pub fn data_behind_dots(block: &[u8]) -> bool {
    [0, HEADER_LEN + 4]
        .iter()
        .any(|&at| Header::read(block, at).is_some_and(|header| header.file_type & FOLLOW != 0))
}

/// Where the second of the first two entries begins, and where it ends with its data, the room
/// that it has to spare left out. `None` where the first has such room too, or either is no entry.
pub fn dots_with_data(block: &[u8]) -> Option<(usize, usize)> {
    let end = |at: usize| {
        let header = Header::read(block, at)?;
        check_data(block, at, header).ok()?;
        let len = entry_len(usize::from(header.name_len) + data_len(block, at, header));
        (len <= whole_len(header.rec_len, block)).then_some((at + len, header))
    };
    let (second, dot) = end(0)?;
    (whole_len(dot.rec_len, block) == second).then_some(())?;
    Some((second, end(second)?.0))
}

/// What lies behind the name of the entry at `offset` of a block that was not checked; `None` where
/// it leaves the entry.
pub fn sound_behind(block: &[u8], layout: DirLayout, offset: u32) -> Option<Vec<u8>> {
    let header = Header::read(block, offset as usize)?;
    if layout.names == Names::Data && header.ino != 0 {
        check_data(block, offset as usize, header).ok()?;
    }
    Some(behind(block, layout, offset))
}

/// What lies behind the name of the entry at `offset`, as [`Behind::to_vec`] gives it.
pub fn behind(block: &[u8], layout: DirLayout, offset: u32) -> Vec<u8> {
    let at = offset as usize;
    let header = Header::read(block, at).expect("offset is an entry");
    if layout.names != Names::Data || header.file_type & FOLLOW == 0 {
        return Vec::new();
    }
    Behind::read(block, at, header).to_vec()
}
