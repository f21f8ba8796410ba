//! The records of the btrees of an allocation group.

use super::{Owner, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// A free extent, in both trees of free space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FreeExtent {
    /// First block in the group.
    pub start: u32,
    /// Blocks, at least 1.
    pub len: u32,
}

impl FreeExtent {
    /// The record, or the key, in `data`.
    pub fn read(data: &[u8]) -> FreeExtent {
        FreeExtent { start: u32_at(data, 0), len: u32_at(data, 4) }
    }

    /// Writes the record, or the key.
    pub fn write(&self, data: &mut [u8]) {
        put_u32(data, 0, self.start);
        put_u32(data, 4, self.len);
    }
}

/// 64 inodes, some of which may have no place on the disk (`sparse`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeChunk {
    /// Number in the group of the first inode, a multiple of 64 (of the sparse alignment).
    pub start: u32,
    /// One bit for each four inodes that have no place.
    pub holes: u16,
    /// Inodes that have a place: 64 without holes.
    pub count: u8,
    /// Inodes that have a place and are free.
    pub free_count: u8,
    /// One bit for each inode that is free; those without a place count as free.
    pub free: u64,
}

impl InodeChunk {
    /// The record in `data`. Without `sparse` the count of free inodes has 32 bits.
    pub fn read(data: &[u8], sparse: bool) -> InodeChunk {
        let (start, free) = (u32_at(data, 0), u64_at(data, 8));
        if sparse {
            let (count, free_count) = (data[6], data[7]);
            return InodeChunk { start, holes: u16_at(data, 4), count, free_count, free };
        }
        let free_count = u32_at(data, 4).min(255) as u8;
        InodeChunk { start, holes: 0, count: 64, free_count, free }
    }

    /// Writes the record.
    pub fn write(&self, data: &mut [u8], sparse: bool) {
        put_u32(data, 0, self.start);
        put_u64(data, 8, self.free);
        if sparse {
            put_u16(data, 4, self.holes);
            (data[6], data[7]) = (self.count, self.free_count);
        } else {
            put_u32(data, 4, u32::from(self.free_count));
        }
    }

    /// One bit for each inode that has no place.
    pub fn hole_mask(&self) -> u64 {
        (0..16)
            .filter(|bit| self.holes & 1 << bit != 0)
            .fold(0, |mask, bit| mask | 0xf << (4 * bit))
    }

    /// One bit for each inode that is in use.
    pub fn used(&self) -> u64 {
        !self.free & !self.hole_mask()
    }

    /// One bit for each inode that has a place and is free.
    pub fn available(&self) -> u64 {
        self.free & !self.hole_mask()
    }

    /// Whether the counts agree with the masks, and inodes without a place count as free.
    pub fn consistent(&self) -> bool {
        let holes = self.hole_mask();
        u32::from(self.count) == 64 - holes.count_ones()
            && u32::from(self.free_count) == self.available().count_ones()
            && self.free & holes == holes
    }
}

/// Owners in reverse mappings that are no inodes.
pub mod owner {
    /// Nobody knows.
    pub const UNKNOWN: u64 = -2i64 as u64;
    /// The headers of a group.
    pub const FS: u64 = -3i64 as u64;
    /// The log.
    pub const LOG: u64 = -4i64 as u64;
    /// The free space and reverse mapping btrees, and the AGFL.
    pub const AG: u64 = -5i64 as u64;
    /// The inode btrees.
    pub const INOBT: u64 = -6i64 as u64;
    /// Inode chunks.
    pub const INODES: u64 = -7i64 as u64;
    /// The reference count btree.
    pub const REFC: u64 = -8i64 as u64;
    /// Extents in a CoW fork.
    pub const COW: u64 = -9i64 as u64;

    /// Whether this owner is an inode.
    pub fn is_inode(owner: u64) -> bool {
        owner >> 63 == 0
    }
}

/// Flags of a reverse mapping, in the high bits of its offset.
pub const RMAP_ATTR_FORK: u64 = 1 << 63;
/// A block of a block map.
pub const RMAP_BMBT: u64 = 1 << 62;
/// An unwritten extent.
pub const RMAP_UNWRITTEN: u64 = 1 << 61;
/// The offset without its flags.
pub const RMAP_OFFSET_MASK: u64 = (1 << 54) - 1;

/// Who owns an extent of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rmap {
    /// First block in the group.
    pub start: u32,
    /// Blocks, at least 1.
    pub len: u32,
    /// An inode, or one of [`owner`].
    pub owner: u64,
    /// File block with the flags in the high bits; 0 where no inode owns it.
    pub offset: u64,
}

impl Rmap {
    /// Whether `next` continues it, so that one record can hold both.
    pub fn is_continued_by(&self, next: &Rmap) -> bool {
        let offset = if self.has_offset() { u64::from(self.len) } else { 0 };
        self.owner == next.owner
            && self.start + self.len == next.start
            && self.offset + offset == next.offset
    }

    /// Whether its blocks have a place in a fork.
    pub fn has_offset(&self) -> bool {
        Owner { owner: self.owner, offset: self.offset }.has_offset()
    }

    /// The record in `data`.
    pub fn read(data: &[u8]) -> Rmap {
        Rmap {
            start: u32_at(data, 0),
            len: u32_at(data, 4),
            owner: u64_at(data, 8),
            offset: u64_at(data, 16),
        }
    }

    /// Writes the record.
    pub fn write(&self, data: &mut [u8]) {
        put_u32(data, 0, self.start);
        put_u32(data, 4, self.len);
        put_u64(data, 8, self.owner);
        put_u64(data, 16, self.offset);
    }

    /// What orders records: block, owner, offset (without the flag of unwritten extents).
    pub fn key(&self) -> RmapKey {
        let offset = self.offset & !RMAP_UNWRITTEN;
        RmapKey { start: self.start, owner: self.owner, offset }
    }

    /// The key of the record's last block.
    pub fn high_key(&self) -> RmapKey {
        let mut key = self.key();
        let more = self.len.saturating_sub(1);
        key.start = key.start.wrapping_add(more);
        if owner::is_inode(self.owner) && self.offset & RMAP_BMBT == 0 {
            key.offset = key.offset.wrapping_add(u64::from(more));
        }
        key
    }
}

/// A key of the reverse mapping tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RmapKey {
    /// Block in the group.
    pub start: u32,
    /// Owner.
    pub owner: u64,
    /// Offset with the flags of attribute forks and block maps.
    pub offset: u64,
}

impl RmapKey {
    /// The key in `data`.
    pub fn read(data: &[u8]) -> RmapKey {
        let offset = u64_at(data, 12) & !RMAP_UNWRITTEN;
        RmapKey { start: u32_at(data, 0), owner: u64_at(data, 4), offset }
    }

    /// Writes the key.
    pub fn write(&self, data: &mut [u8]) {
        put_u32(data, 0, self.start);
        put_u64(data, 4, self.owner);
        put_u64(data, 12, self.offset);
    }
}

/// The bit of a reference count's start that distinguishes CoW forks from shared extents.
pub const REFCOUNT_COW: u32 = 1 << 31;

/// How often an extent of a group is referred to: more than once, or in a CoW fork.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Refcount {
    /// First block in the group, without the CoW bit.
    pub start: u32,
    /// In a CoW fork.
    pub cow: bool,
    /// Blocks, at least 1.
    pub len: u32,
    /// References: 1 in a CoW fork, else at least 2.
    pub refs: u32,
}

impl Refcount {
    /// The record in `data`.
    pub fn read(data: &[u8]) -> Refcount {
        let start = u32_at(data, 0);
        Refcount {
            start: start & !REFCOUNT_COW,
            cow: start & REFCOUNT_COW != 0,
            len: u32_at(data, 4),
            refs: u32_at(data, 8),
        }
    }

    /// The start with the CoW bit: the key.
    pub fn key(&self) -> u32 {
        self.start | if self.cow { REFCOUNT_COW } else { 0 }
    }

    /// Adds the record behind those of a list, joined with the last one where it continues that.
    pub fn append_to(self, list: &mut Vec<Refcount>) {
        match list.last_mut() {
            Some(last) if last.is_continued_by(&self) => last.len += self.len,
            _ => list.push(self),
        }
    }

    /// True if `next` says the same of the blocks behind this record's.
    pub fn is_continued_by(&self, next: &Refcount) -> bool {
        self.start.checked_add(self.len) == Some(next.start)
            && next.start.checked_add(next.len).is_some()
            && (self.cow, self.refs) == (next.cow, next.refs)
    }

    /// Writes the record.
    pub fn write(&self, data: &mut [u8]) {
        put_u32(data, 0, self.key());
        put_u32(data, 4, self.len);
        put_u32(data, 8, self.refs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_bytes() {
        let chunk = InodeChunk { start: 128, holes: 0xff00, count: 32, free_count: 31, free: !1 };
        assert!(chunk.consistent());
        assert_eq!((chunk.used(), chunk.available().count_ones()), (1, 31));
        let mut data = [0; 24];
        chunk.write(&mut data, true);
        assert_eq!(InodeChunk::read(&data, true), chunk);
        let rmap = Rmap { start: 7, len: 4, owner: 133, offset: 9 | RMAP_UNWRITTEN };
        rmap.write(&mut data);
        assert_eq!(Rmap::read(&data), rmap);
        assert_eq!(rmap.high_key(), RmapKey { start: 10, owner: 133, offset: 12 });
        let mut key = [0; 20];
        rmap.key().write(&mut key);
        assert_eq!(RmapKey::read(&key), rmap.key());
        let refcount = Refcount { start: 12, cow: true, len: 8, refs: 1 };
        refcount.write(&mut data);
        assert_eq!(Refcount::read(&data), refcount);
    }

    #[test]
    fn a_chunk_whose_counts_disagree_is_told() {
        let whole = InodeChunk { start: 64, holes: 0, count: 64, free_count: 64, free: !0 };
        assert!(whole.consistent());
        assert!(!InodeChunk { free_count: 63, ..whole }.consistent());
        assert!(!InodeChunk { holes: 1, ..whole }.consistent());
        assert!(
            !InodeChunk { holes: 1, count: 60, free_count: 60, free: !1, ..whole }.consistent()
        );
    }
}
