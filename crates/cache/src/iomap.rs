//! Where the bytes of a file lie, and in which state: what a file system says of a range of a file
//! (Linux: `struct iomap`), and the walk over a file's map that says it ([`IomapOps`]). Reads,
//! readahead, zeroing, direct I/O, seeks and the report of a file's extents use this one type.

use std::ops::Range;

use base::unit::SECTOR_SIZE;
use base::{Errno, Sector};
use rt::Cx;
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

    /// The first sector with content; `None` for what reads as zeros.
    #[inline]
    pub fn content(&self) -> Option<Sector> {
        match self.kind {
            IomapKind::Mapped(sector) => Some(sector),
            IomapKind::Hole | IomapKind::Delalloc | IomapKind::Unwritten(_) => None,
        }
    }

    /// The first sector, where the part has a place on the device.
    pub fn place(&self) -> Option<Sector> {
        match self.kind {
            IomapKind::Mapped(sector) | IomapKind::Unwritten(sector) => Some(sector),
            IomapKind::Hole | IomapKind::Delalloc => None,
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
            kind => kind,
        };
        Iomap { offset: from, len: to - from, kind }
    }
}

/// A walk over the map of one file for one operation (Linux: `struct iomap_ops`). Whoever walks
/// holds the file's locks until the operation ends.
pub trait IomapOps {
    /// Where the first bytes of `range`, whole blocks, lie: a part in whole blocks that begins with
    /// it, is not empty and does not reach behind it.
    ///
    /// A read gets [`IomapKind::Mapped`] for what it has to ask the device for; all else is zeros.
    /// A direct write goes where the answer has a place. What is [`IomapKind::Unwritten`] holds
    /// nothing yet: the write fills up its first and its last block with zeros. Without a place the
    /// page cache has to do it. Blocks that are given here join the file when their content is
    /// there, not before. May park: reads metadata.
    ///
    /// # Errors
    /// Those of the file system; what was written before counts.
    fn begin(&mut self, cx: &mut Cx, range: Range<u64>) -> Result<Iomap, Errno>;

    /// Whether the map of what lies behind `part` is in another metadata block: the boundary mark
    /// of `get_block`. Only maps made of tables of pointers have such.
    fn boundary(&mut self, _cx: &mut Cx, _part: &Iomap) -> bool {
        false
    }

    /// Called at a boundary, before the bytes in front of it are sent: begins to read what the map
    /// of byte `at`, the first one behind, needs. True if that is on its way, so that the next
    /// [`begin`](Self::begin) may wait. Does not park.
    fn prefetch(&mut self, _cx: &mut Cx, _at: u64) -> bool {
        false
    }

    /// The content of a direct write is at the places that the walk gave for `range`, from its
    /// first byte on: makes them part of the file, in the order of the file, and lets the file
    /// grow. `complete` unless the write was cut short: then the last block, if it held nothing
    /// before, does not count. Returns up to which byte the file has the content. May park.
    fn end(
        &mut self,
        _cx: &mut Cx,
        range: Range<u64>,
        _complete: bool,
    ) -> (u64, Result<(), Errno>) {
        (range.end, Ok(()))
    }
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
        let hole = Iomap { kind: IomapKind::Hole, ..whole }.part(5120, 12288);
        assert_eq!((hole.len, hole.place()), (7168, None));
    }
}
