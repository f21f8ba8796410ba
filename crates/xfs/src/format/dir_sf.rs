//! A small directory inside its inode: count, parent, then names with the place that they would
//! have in a block.

use base::Ino;

use super::dir::{DATA_HEADER, FileType, entry_size};
use super::{
    At, Corrupt, CorruptKind, Features, Kind, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at,
};

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SfEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Where it would lie in a single block, in bytes: its cookie.
    pub offset: u16,
    /// The inode's type; unknown without `ftype`.
    pub file_type: FileType,
    /// The inode.
    pub ino: Ino,
}

/// A valid directory in its inode.
#[derive(Clone, Copy)]
pub struct Shortform<'a> {
    /// Number of names.
    pub count: u8,
    /// Inode numbers have eight bytes, not four.
    pub wide: bool,
    /// The directory above.
    pub parent: Ino,
    data: &'a [u8],
    ftype: bool,
}

impl<'a> Shortform<'a> {
    /// The directory in `data`, which is as long as the inode's size: every entry fits, offsets
    /// rise.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(data: &'a [u8], features: &Features, at: At) -> Result<Shortform<'a>, Corrupt> {
        let ftype = features.ftype();
        let header = if features.number < 5 { Kind::DirData.header_v4() } else { DATA_HEADER };
        let short = CorruptKind::Short { what: "small directory", bytes: data.len() };
        if data.len() < 6 || (data[1] != 0 && data.len() < 10) {
            return Err(short.at(at));
        }
        let (count, wide) = (data[0], data[1] != 0);
        // With wide numbers the second byte counts the names that need them.
        let parent = if wide { u64_at(data, 2) } else { u64::from(u32_at(data, 2)) };
        let directory = Shortform { count, wide, parent: Ino(parent), data, ftype };
        // The first two of a block are for "." and "..".
        let first = (header + 2 * entry_size(1, ftype)) as u16;
        let (mut place, mut least) = (directory.header(), first);
        for _ in 0..count {
            let (entry, next) = directory.entry(place, at)?;
            if entry.offset < least {
                return Err(CorruptKind::DirEntryPlace { offset: u32::from(entry.offset) }.at(at));
            }
            least = entry.offset.saturating_add(entry_size(entry.name.len(), ftype) as u16);
            place = next;
        }
        if place != data.len() {
            return Err(CorruptKind::ShortformSize { size: data.len(), used: place }.at(at));
        }
        Ok(directory)
    }

    fn header(&self) -> usize {
        if self.wide { 10 } else { 6 }
    }

    fn entry(&self, place: usize, at: At) -> Result<(SfEntry<'a>, usize), Corrupt> {
        let (data, number) = (self.data, if self.wide { 8 } else { 4 });
        let len = usize::from(*data.get(place).unwrap_or(&0));
        let kind = CorruptKind::DirNameLen { offset: place as u32, len: len as u32 };
        let next = place + 3 + len + usize::from(self.ftype) + number;
        if len == 0 || next > data.len() {
            return Err(kind.at(at));
        }
        let type_number = if self.ftype { data[place + 3 + len] } else { 0 };
        let kind = CorruptKind::DirFileType { offset: place as u32, number: type_number };
        let file_type = FileType::from_number(type_number).ok_or_else(|| kind.at(at))?;
        let ino =
            if self.wide { u64_at(data, next - 8) } else { u64::from(u32_at(data, next - 4)) };
        let name = &data[place + 3..][..len];
        Ok((SfEntry { name, offset: u16_at(data, place + 1), file_type, ino: Ino(ino) }, next))
    }

    /// The names in order.
    pub fn entries(&self) -> impl Iterator<Item = SfEntry<'a>> + use<'a> {
        let (directory, mut place) = (*self, self.header());
        (0..self.count).map(move |_| {
            let (entry, next) =
                directory.entry(place, At::Block(0)).expect("parse checked every entry");
            place = next;
            entry
        })
    }
}

/// Bytes of a small directory with these entries.
pub fn size<'a>(entries: impl Iterator<Item = SfEntry<'a>>, wide: bool, ftype: bool) -> usize {
    let number = if wide { 8 } else { 4 };
    let each = entries.map(|entry| 3 + entry.name.len() + usize::from(ftype) + number);
    2 + number + each.sum::<usize>()
}

/// Writes a small directory, inode numbers as wide as the largest asks, and returns its size.
///
/// # Panics
/// If it does not fit into `data`.
pub fn emit(data: &mut [u8], parent: Ino, entries: &[SfEntry<'_>], ftype: bool) -> usize {
    let is_wide = |ino: Ino| ino.0 > u64::from(u32::MAX);
    let wide_count = entries.iter().filter(|entry| is_wide(entry.ino)).count();
    let wide_count = wide_count + usize::from(is_wide(parent));
    let wide = wide_count > 0;
    let put = |data: &mut [u8], at: usize, ino: Ino| match wide {
        true => put_u64(data, at, ino.0),
        false => put_u32(data, at, ino.0 as u32),
    };
    (data[0], data[1]) = (entries.len() as u8, wide_count as u8);
    put(data, 2, parent);
    let number = if wide { 8 } else { 4 };
    let mut place = 2 + number;
    for entry in entries {
        data[place] = entry.name.len() as u8;
        put_u16(data, place + 1, entry.offset);
        data[place + 3..][..entry.name.len()].copy_from_slice(entry.name);
        place += 3 + entry.name.len();
        if ftype {
            data[place] = entry.file_type as u8;
            place += 1;
        }
        put(data, place, entry.ino);
        place += number;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::features::Incompat;

    #[test]
    fn small_directories_come_back_with_numbers_of_both_widths() {
        let incompat = Incompat::FTYPE;
        let five = Features { number: 5, incompat, ..Features::default() };
        for ino in [Ino(131), Ino(1 << 33)] {
            let file_type = FileType::Regular;
            let entries = [
                SfEntry { name: b"one", offset: 0x60, file_type, ino },
                SfEntry { name: b"another", offset: 0x70, file_type, ino: Ino(132) },
            ];
            let mut data = [0; 128];
            let used = emit(&mut data, Ino(128), &entries, true);
            assert_eq!(used, size(entries.iter().cloned(), ino.0 > 1 << 32, true));
            let read = Shortform::parse(&data[..used], &five, At::Block(0)).expect("valid");
            assert_eq!((read.parent, read.wide), (Ino(128), ino.0 > 1 << 32));
            assert_eq!(read.entries().collect::<Vec<_>>(), entries);
            assert!(Shortform::parse(&data[..used - 1], &five, At::Block(0)).is_err());
            assert!(Shortform::parse(&data[..used + 1], &five, At::Block(0)).is_err());
        }
    }
}
