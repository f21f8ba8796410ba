//! Writing into directory data blocks, and the three largest unused ranges of their headers.

use base::Ino;

use super::{
    BLOCK_TAIL, DATA_HEADER, DataBlock, FREE_TAG, FileType, Item, LEAF_ENTRY, LeafEntry,
    entry_size, put_u16, put_u64, set_block_tail, u16_at,
};
use crate::format::Features;
use crate::format::dir_sf::SfEntry;
use crate::format::{At, Corrupt, CorruptKind, Expect, Kind, verifier};

/// Where the header's list of unused ranges lies.
const BEST_FREE: usize = 48;
/// As in version 4.
const BEST_FREE_V4: usize = 4;

/// An unused range in a data block's header: offset and length in bytes, zeroes for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BestFree {
    /// Where it lies in the block.
    pub offset: u16,
    /// How long it is.
    pub len: u16,
}

/// The header's list: the three largest unused ranges, the largest first.
pub fn best_free(data: &[u8]) -> [BestFree; 3] {
    list_at(data, BEST_FREE)
}

fn list_at(data: &[u8], list: usize) -> [BestFree; 3] {
    [0, 1, 2].map(|index| {
        let at = list + 4 * index;
        BestFree { offset: u16_at(data, at), len: u16_at(data, at + 2) }
    })
}

impl DataBlock<'_> {
    /// The header's list, of either version.
    pub fn best_free(&self) -> [BestFree; 3] {
        list_at(self.data, if self.start() == DATA_HEADER { BEST_FREE } else { BEST_FREE_V4 })
    }
}

/// Stores the header's list.
pub fn set_best_free(data: &mut [u8], list: &[BestFree; 3]) {
    for (index, range) in list.iter().enumerate() {
        let at = BEST_FREE + 4 * index;
        put_u16(data, at, range.offset);
        put_u16(data, at + 2, range.len);
    }
}

/// The three largest unused ranges of a block by looking at all of it; among equal ones the first.
///
/// # Errors
/// The first damage met.
pub fn find_best_free(block: &DataBlock<'_>, at: At) -> Result<[BestFree; 3], Corrupt> {
    let mut list = [BestFree::default(); 3];
    for item in block.items(block.start(), at) {
        if let Item::Unused { offset, len } = item? {
            let range = BestFree { offset: offset as u16, len: len as u16 };
            let place = list.iter().position(|other| range.len > other.len);
            if let Some(place) = place {
                list[place..].rotate_right(1);
                list[place] = range;
            }
        }
    }
    Ok(list)
}

/// Writes the header of a data block (or single block) without any name; what is behind the header
/// is left to the caller.
pub fn init_data(kind: Kind, data: &mut [u8], expect: &Expect) {
    data[..DATA_HEADER].fill(0);
    verifier::stamp(kind, data, expect);
}

/// Writes an unused range.
pub fn set_unused(data: &mut [u8], offset: usize, len: usize) {
    put_u16(data, offset, FREE_TAG);
    put_u16(data, offset + 2, len as u16);
    put_u16(data, offset + len - 2, offset as u16);
}

/// Writes a name at `offset` and returns how many bytes it takes.
pub fn set_entry(
    data: &mut [u8],
    offset: usize,
    ino: Ino,
    name: &[u8],
    file_type: Option<FileType>,
) -> usize {
    let size = entry_size(name.len(), file_type.is_some());
    data[offset..offset + size].fill(0);
    put_u64(data, offset, ino.0);
    data[offset + 8] = name.len() as u8;
    data[offset + 9..][..name.len()].copy_from_slice(name);
    if let Some(file_type) = file_type {
        data[offset + 9 + name.len()] = file_type as u8;
    }
    put_u16(data, offset + size - 2, offset as u16);
    size
}

/// Writes names and index of a single block behind its header. `dots` are the directory itself and
/// its parent; the other names lie where their entries say.
///
/// # Errors
/// A name that overlaps another, or the index.
pub fn fill_block(
    data: &mut [u8],
    dots: [Ino; 2],
    names: &[SfEntry<'_>],
    features: &Features,
    at: At,
) -> Result<(), Corrupt> {
    let (ftype, case) = (features.ftype(), features.case());
    let dotdot = DATA_HEADER + entry_size(1, ftype);
    let own = |name, offset: usize, ino| {
        let (offset, file_type) = (offset as u16, FileType::Directory);
        SfEntry { name, offset, file_type, ino }
    };
    let dots = [own(b".", DATA_HEADER, dots[0]), own(b"..", dotdot, dots[1])];
    let count = names.len() + 2;
    let end = data.len() - BLOCK_TAIL - LEAF_ENTRY * count;
    let (mut place, mut index) = (DATA_HEADER, Vec::with_capacity(count));
    for entry in dots.iter().chain(names) {
        let offset = usize::from(entry.offset);
        let size = entry_size(entry.name.len(), ftype);
        if offset < place || offset + size > end || !offset.is_multiple_of(8) {
            return Err(CorruptKind::DirEntryPlace { offset: offset as u32 }.at(at));
        }
        if offset > place {
            set_unused(data, place, offset - place);
        }
        set_entry(data, offset, entry.ino, entry.name, ftype.then_some(entry.file_type));
        index.push(LeafEntry { hash: case.hash(entry.name), address: (offset >> 3) as u32 });
        place = offset + size;
    }
    if place < end {
        set_unused(data, place, end - place);
    }
    index.sort();
    for (number, entry) in index.into_iter().enumerate() {
        entry.write(&mut data[end..], number);
    }
    set_block_tail(data, count as u32, 0);
    let best = find_best_free(&DataBlock::new(Kind::DirBlock, data, ftype, at)?, at)?;
    set_best_free(data, &best);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_gaps_come_back_and_the_largest_gaps_are_found() {
        let mut data = vec![0; 1024];
        let size = set_entry(&mut data, 64, Ino(128), b"a", Some(FileType::Directory));
        assert_eq!(size, 16);
        set_unused(&mut data, 80, 32);
        set_entry(&mut data, 112, Ino(129), b"a-longer-name", Some(FileType::Regular));
        set_unused(&mut data, 112 + 32, 1024 - 144);
        let at = At::Block(0);
        let block = DataBlock::new(Kind::DirData, &data, true, at).expect("valid");
        let items: Vec<_> = block.items(64, at).collect::<Result<_, _>>().expect("valid");
        assert_eq!(items.len(), 4);
        assert!(matches!(items[0], Item::Entry { name: b"a", ino: Ino(128), .. }));
        assert_eq!(items[1], Item::Unused { offset: 80, len: 32 });
        let best = find_best_free(&block, at).expect("valid");
        assert_eq!(best.map(|range| range.len), [880, 32, 0]);
        set_best_free(&mut data, &best);
        assert_eq!(best_free(&data), best);
        data[126] ^= 1;
        assert!(DataBlock::new(Kind::DirData, &data, true, at).is_ok());
    }

    #[test]
    fn damaged_items_are_named_and_never_loop() {
        let mut data = vec![0; 512];
        set_unused(&mut data, 64, 448);
        let at = At::Block(0);
        for (place, value) in [(66, 0), (66, 0xff), (67, 3), (510, 9), (64, 1)] {
            let mut bad = data.clone();
            bad[place] = value;
            let block = DataBlock::new(Kind::DirData, &bad, true, at).expect("header is not read");
            assert!(block.items(64, at).any(|item| item.is_err()), "byte {place}");
        }
    }
}
