//! The hash index of larger directories: leaves, and the free blocks that say which data block
//! has room.
//!
//! A directory with one leaf (`leaf1`) keeps the room of its data blocks at the end of the leaf;
//! with several leaves (`leafN`, below nodes) free blocks hold it.

use super::da::counts_at;
use super::dir::{LEAF_ENTRY, LeafEntry, Leaves};
use super::{At, Corrupt, CorruptKind, Geometry, Kind, put_u16, put_u32, u16_at, u32_at};

/// Bytes of a leaf's header.
pub const LEAF_HEADER: usize = 64;
/// Bytes of a free block's header.
pub const FREE_HEADER: usize = 64;
/// The room of a data block that does not exist.
pub const NULL_BEST: u16 = 0xffff;

/// A valid leaf of either kind, whose self-description was verified.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// Entries that are stale.
    pub stale: u16,
    count: u16,
    /// Data blocks that the tail knows, 0 for `leafN`.
    bests: usize,
    header: usize,
    data: &'a [u8],
}

impl<'a> Leaf<'a> {
    /// The leaf in `data`: counts, order and stale entries.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(kind: Kind, data: &'a [u8], at: At) -> Result<Leaf<'a>, Corrupt> {
        let leaf = Leaf::parse_counts(kind, data, at)?;
        leaf.entries().check(u32::from(leaf.stale), at)?;
        Ok(leaf)
    }

    /// As [`Leaf::parse`] without a look at all entries: a search is right or finds nothing.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_counts(kind: Kind, data: &'a [u8], at: At) -> Result<Leaf<'a>, Corrupt> {
        let header = kind.header(data, LEAF_HEADER);
        let counts = counts_at(header);
        let (count, stale) = (u16_at(data, counts), u16_at(data, counts + 2));
        let mut end = data.len();
        let mut bests = 0;
        if kind == Kind::DirLeaf1 {
            bests = u32_at(data, end - 4) as usize;
            let room = end - header - 4;
            if bests > room / 2 {
                return Err(CorruptKind::DirBests { found: bests as u32 }.at(at));
            }
            end -= 4 + 2 * bests;
        }
        let limit = ((end - header) / LEAF_ENTRY) as u16;
        if count > limit || stale > count {
            return Err(CorruptKind::DirLeafCount { count, stale, limit }.at(at));
        }
        Ok(Leaf { stale, count, bests, header, data })
    }

    /// The entries, sorted by hash.
    pub fn entries(&self) -> Leaves<'a> {
        Leaves::new(&self.data[self.header..][..LEAF_ENTRY * usize::from(self.count)])
    }

    /// The largest unused range of each data block, as the tail of a `leaf1` says.
    pub fn bests(&self) -> impl ExactSizeIterator<Item = u16> + use<'a> {
        let (data, at) = (self.data, self.data.len() - 4 - 2 * self.bests);
        (0..self.bests).map(move |index| u16_at(data, at + 2 * index))
    }
}

/// Writes entries and, for a `leaf1`, the room of each data block; the self-description stays.
///
/// # Panics
/// If they do not fit.
pub fn emit_leaf(data: &mut [u8], entries: &[LeafEntry], bests: Option<&[u16]>) {
    let tail = bests.map_or(0, |bests| 4 + 2 * bests.len());
    let room = data.len() - LEAF_HEADER - tail;
    assert!(entries.len() * LEAF_ENTRY <= room, "{} entries do not fit", entries.len());
    let stale = entries.iter().filter(|entry| entry.address == 0).count();
    put_u16(data, 56, entries.len() as u16);
    put_u16(data, 58, stale as u16);
    for (index, entry) in entries.iter().enumerate() {
        entry.write(&mut data[LEAF_HEADER..], index);
    }
    if let Some(bests) = bests {
        let end = data.len();
        put_u32(data, end - 4, bests.len() as u32);
        for (index, &best) in bests.iter().enumerate() {
            put_u16(data, end - tail + 2 * index, best);
        }
    }
}

/// Room for data blocks in a free block of `size` bytes, of version 5.
pub fn free_max(size: usize) -> usize {
    (size - FREE_HEADER) / 2
}

/// Room for data blocks in a free block, of either version.
pub fn free_room(geometry: &Geometry) -> usize {
    let size = geometry.dir_block_size as usize;
    if geometry.v4() { (size - Kind::DirFree.header_v4()) / 2 } else { free_max(size) }
}

/// A valid free block, whose self-description was verified.
#[derive(Clone, Copy)]
pub struct Free<'a> {
    /// The first data block that it describes.
    pub first: u32,
    /// Data blocks that exist.
    pub used: u32,
    count: usize,
    header: usize,
    data: &'a [u8],
}

impl<'a> Free<'a> {
    /// The free block in `data`, number `index` of its directory.
    ///
    /// # Errors
    /// [`CorruptKind::DirFree`].
    pub fn parse(data: &'a [u8], index: u32, at: At) -> Result<Free<'a>, Corrupt> {
        let header = Kind::DirFree.header(data, FREE_HEADER);
        let counts = if header == FREE_HEADER { 48 } else { 4 };
        let [first, valid, used] = [0, 4, 8].map(|at| u32_at(data, counts + at));
        let max = (data.len() - header) / 2;
        let fits = valid as usize <= max && used <= valid;
        if !fits || u64::from(first) != u64::from(index) * max as u64 {
            return Err(CorruptKind::DirFree { first, valid, used }.at(at));
        }
        Ok(Free { first, used, count: valid as usize, header, data })
    }

    /// The largest unused range of each data block; [`NULL_BEST`] where there is none.
    pub fn bests(&self) -> impl ExactSizeIterator<Item = u16> + use<'a> {
        let (data, header) = (self.data, self.header);
        (0..self.count).map(move |index| u16_at(data, header + 2 * index))
    }

    /// The first data block that has room for `size` bytes, from number `from` of this block on.
    pub fn first_with(&self, size: usize, from: usize) -> Option<usize> {
        (from..self.count).find(|index| {
            let best = u16_at(self.data, self.header + 2 * index);
            best != NULL_BEST && usize::from(best) >= size
        })
    }
}

/// Writes a free block's counts and rooms; the self-description stays.
///
/// # Panics
/// If they do not fit.
pub fn emit_free(data: &mut [u8], first: u32, bests: &[u16]) {
    assert!(bests.len() <= free_max(data.len()), "{} rooms do not fit", bests.len());
    put_u32(data, 48, first);
    put_u32(data, 52, bests.len() as u32);
    put_u32(data, 56, bests.iter().filter(|&&best| best != NULL_BEST).count() as u32);
    for (index, &best) in bests.iter().enumerate() {
        put_u16(data, FREE_HEADER + 2 * index, best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_and_free_blocks_come_back() {
        let entry = |hash, address| LeafEntry { hash, address };
        let entries = [entry(1, 8), entry(1, 0), entry(9, 17)];
        let mut data = vec![0; 512];
        emit_leaf(&mut data, &entries, Some(&[40, NULL_BEST]));
        let leaf = Leaf::parse(Kind::DirLeaf1, &data, At::Block(0)).expect("valid");
        assert_eq!(leaf.entries().iter().collect::<Vec<_>>(), entries);
        assert_eq!((leaf.stale, leaf.bests().collect::<Vec<_>>()), (1, vec![40, NULL_BEST]));
        assert_eq!(leaf.entries().lower_bound(2), 2);
        emit_leaf(&mut data, &[entry(9, 8), entry(1, 9)], None);
        assert!(Leaf::parse(Kind::DirLeafN, &data, At::Block(0)).is_err());
        emit_free(&mut data, 0, &[16, NULL_BEST, 24]);
        let free = Free::parse(&data, 0, At::Block(0)).expect("valid");
        assert_eq!((free.used, free.bests().len()), (2, 3));
        let fits = |size, from| free.first_with(size, from);
        assert_eq!(
            [fits(16, 0), fits(17, 0), fits(8, 1), fits(25, 0), fits(8, 9)],
            [Some(0), Some(2), Some(2), None, None]
        );
        assert!(Free::parse(&data, 1, At::Block(0)).is_err());
    }
}
