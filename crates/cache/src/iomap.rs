//! Where the bytes of a file lie, and in which state: what a file system says of a range of a file
//! (Linux: `struct iomap`). Buffered and direct I/O, readahead, zeroing, write-back, seeks and the
//! report of a file's extents use this one type.

use base::Sector;
use base::unit::SECTOR_SIZE;
use smallvec::SmallVec;

/// The state of a part of a file, and its place where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IomapKind {
    /// Nothing is allocated: it reads as zeros.
    Hole,
    /// It is in memory only, with space reserved; its place is not chosen yet.
    Delalloc,
    /// Content on the device, from this sector on.
    Mapped(Sector),
    /// Allocated from this sector on, and not written: it reads as zeros.
    Unwritten(Sector),
    /// Content on the device, from this sector on, that other files, or other parts of this one,
    /// share. Only reports distinguish it from [`Mapped`](IomapKind::Mapped).
    Shared(Sector),
    /// Content in the inode itself; it has no place of its own.
    Inline,
}

/// A part of a file that lies together on the device in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iomap {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
    /// State and place.
    pub kind: IomapKind,
}

/// Parts in ascending order without gaps.
pub type Iomaps = SmallVec<[Iomap; 4]>;

impl Iomap {
    /// The byte behind the last one.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The first sector with content; `None` for what reads as zeros, and for what has no sectors.
    #[inline]
    pub fn content(&self) -> Option<Sector> {
        match self.kind {
            IomapKind::Mapped(sector) | IomapKind::Shared(sector) => Some(sector),
            _ => None,
        }
    }

    /// The first sector, where the part has a place on the device.
    pub fn place(&self) -> Option<Sector> {
        match self.kind {
            IomapKind::Unwritten(sector) => Some(sector),
            _ => self.content(),
        }
    }

    /// The place on the device in bytes; 0 where it has none.
    pub fn physical(&self) -> u64 {
        self.place().map_or(0, Sector::bytes)
    }

    /// The part of it from byte `from` of the file up to byte `to`; both lie inside, `from` a
    /// multiple of the sector size away from the start.
    pub fn part(&self, from: u64, to: u64) -> Iomap {
        debug_assert!(self.offset <= from && from <= to && to <= self.end(), "a part of {self:?}");
        let on = |sector: Sector| Sector(sector.0 + (from - self.offset) / SECTOR_SIZE);
        let kind = match self.kind {
            IomapKind::Mapped(sector) => IomapKind::Mapped(on(sector)),
            IomapKind::Unwritten(sector) => IomapKind::Unwritten(on(sector)),
            IomapKind::Shared(sector) => IomapKind::Shared(on(sector)),
            kind => kind,
        };
        Iomap { offset: from, len: to - from, kind }
    }
}

/// What a walk over the map of a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To read content: what is on the device counts, also before the metadata say so.
    Read,
    /// To report what the metadata say, and what is reserved for dirty pages.
    Report,
    /// To write past the page cache beside others: only blocks with content are of use.
    Overwrite,
    /// To write past the page cache, with the file locked alone: what is missing is allocated.
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_where_it_lay() {
        let whole = Iomap { offset: 4096, len: 8192, kind: IomapKind::Mapped(Sector(80)) };
        let part = whole.part(8192, 12288);
        assert_eq!(part, Iomap { offset: 8192, len: 4096, kind: IomapKind::Mapped(Sector(88)) });
        assert_eq!(
            (part.end(), part.content(), part.place()),
            (12288, Some(Sector(88)), Some(Sector(88)))
        );
        let ahead = Iomap { kind: IomapKind::Unwritten(Sector(80)), ..whole }.part(4096, 4608);
        assert_eq!((ahead.content(), ahead.place()), (None, Some(Sector(80))));
        let shared = Iomap { kind: IomapKind::Shared(Sector(80)), ..whole }.part(8192, 12288);
        assert_eq!((shared.content(), shared.physical()), (Some(Sector(88)), 88 * 512));
        let inline = Iomap { kind: IomapKind::Inline, ..whole };
        assert_eq!((inline.content(), inline.place(), inline.physical()), (None, None, 0));
        let hole = Iomap { kind: IomapKind::Hole, ..whole }.part(5120, 12288);
        assert_eq!((hole.len, hole.place()), (7168, None));
    }
}
