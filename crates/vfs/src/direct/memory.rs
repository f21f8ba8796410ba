//! The caller's memory as the engine walks it.

use base::{Errno, Page};
use block::Segment;
use cache::Mapping;

/// Largest page that slices are copied through, in bytes.
const BOUNCE_BYTES: u64 = 64 << 10;

/// The memory of a call.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// Bytes that are written: copied, page by page, as the bios are built.
    Bytes(&'a [u8]),
    /// Pages that are written: shared, not copied. Whoever changes one meanwhile gets a copy.
    Pages(&'a [Segment]),
    /// Nothing yet: so many bytes are read into new pages.
    New(u64),
}

impl Memory<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Memory::Bytes(bytes) => bytes.len() as u64,
            Memory::Pages(segments) => block::bytes_of(segments),
            Memory::New(len) => *len,
        }
    }

    /// True where it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory from some place on.
pub enum Rest<'a> {
    /// A shorter slice.
    Bytes(&'a [u8]),
    /// Pieces, the first one maybe cut.
    Pages(Vec<Segment>),
    /// So many bytes.
    New(u64),
}

impl Rest<'_> {
    /// As memory.
    pub fn as_memory(&self) -> Memory<'_> {
        match self {
            Rest::Bytes(bytes) => Memory::Bytes(bytes),
            Rest::Pages(segments) => Memory::Pages(segments),
            Rest::New(len) => Memory::New(*len),
        }
    }
}

impl<'a> Memory<'a> {
    /// What lies behind the first `count` bytes.
    pub fn skip(&self, count: u64) -> Rest<'a> {
        match self {
            Memory::Bytes(bytes) => Rest::Bytes(&bytes[count as usize..]),
            Memory::New(len) => Rest::New(len - count),
            Memory::Pages(segments) => {
                let mut left = count;
                let behind = segments.iter().filter_map(|segment| {
                    let skip = left.min(u64::from(segment.len)) as u32;
                    left -= u64::from(skip);
                    let (offset, len) = (segment.offset + skip, segment.len - skip);
                    (len > 0).then(|| Segment { page: segment.page.clone(), offset, len })
                });
                Rest::Pages(behind.collect())
            }
        }
    }

    /// Whether direct I/O on `mapping` may move this memory to or from `off`.
    ///
    /// # Errors
    /// `EINVAL` where `off`, the length or that of a piece is not a multiple of the device's
    /// logical block, or the end has no number.
    pub fn check(&self, mapping: &Mapping, off: u64) -> Result<(), Errno> {
        super::check(mapping, off, self.len())?;
        match self {
            Memory::Pages(segments) => {
                segments.iter().try_for_each(|seg| super::check(mapping, 0, u64::from(seg.len)))
            }
            _ => Ok(()),
        }
    }
}

/// The memory with the pages that it is walked by.
pub(super) struct Walk<'a> {
    memory: Memory<'a>,
    /// Bytes of a page.
    unit: u64,
    /// Where in its first page the memory begins.
    first: u64,
    /// Ends of the pieces of [`Memory::Pages`], from the start of the memory.
    ends: Vec<u64>,
}

impl<'a> Walk<'a> {
    /// Walks by pages of `page_size` bytes; by pieces as they come where it is `None`.
    pub fn new(memory: Memory<'a>, page_size: Option<u32>) -> Walk<'a> {
        let mut walk = Walk { memory, unit: BOUNCE_BYTES, first: 0, ends: Vec::new() };
        if let Memory::Pages(segments) = memory {
            walk.unit = u64::MAX;
            let end = |end: &mut u64, segment: &Segment| {
                *end += u64::from(segment.len);
                Some(*end)
            };
            walk.ends = segments.iter().scan(0, end).collect();
        }
        if let Some(size) = page_size {
            walk.unit = u64::from(size);
            if let Memory::Pages([segment, ..]) = memory {
                walk.first = u64::from(segment.offset) % walk.unit;
            }
        }
        walk
    }

    /// True where bytes are copied, so that a bound on what is in flight bounds memory.
    pub fn copies(&self) -> bool {
        !matches!(self.memory, Memory::Pages(_))
    }

    /// The number of the page with byte `at` of the memory.
    pub fn page(&self, at: u64) -> u64 {
        match self.unit {
            u64::MAX => self.piece(at) as u64,
            unit => (self.first + at) / unit,
        }
    }

    /// Bytes from `at` to the end of its page, and of its piece.
    pub fn room(&self, at: u64) -> u64 {
        let page = match self.unit {
            u64::MAX => u64::MAX,
            unit => unit - (self.first + at) % unit,
        };
        match self.memory {
            Memory::Pages(_) => page.min(self.ends[self.piece(at)] - at),
            _ => page,
        }
    }

    fn piece(&self, at: u64) -> usize {
        self.ends.partition_point(|&end| end <= at)
    }

    /// The bytes `at..at + len`, which lie in one page, for a bio.
    pub fn segment(&self, at: u64, len: u32) -> Segment {
        match self.memory {
            Memory::Bytes(bytes) => {
                Segment::whole(Page::from_slice(&bytes[at as usize..][..len as usize]))
            }
            Memory::New(_) => Segment::whole(Page::zeroed(len as usize)),
            Memory::Pages(segments) => {
                let piece = self.piece(at);
                let before = if piece == 0 { 0 } else { self.ends[piece - 1] };
                let (page, start) = (segments[piece].page.clone(), segments[piece].offset);
                Segment { page, offset: start + (at - before) as u32, len }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_begins_inside_a_page_has_a_short_first_piece() {
        let page = Page::zeroed(16384);
        let segments = [
            Segment { page: page.clone(), offset: 1024, len: 16384 - 1024 },
            Segment { page, offset: 0, len: 8192 },
        ];
        let walk = Walk::new(Memory::Pages(&segments), Some(4096));
        assert_eq!([walk.room(0), walk.room(512), walk.room(3072)], [3072, 2560, 4096]);
        assert_eq!([walk.page(0), walk.page(3071), walk.page(3072)], [0, 0, 1]);
        assert_eq!(walk.room(15360), 4096, "the second piece");
        let segment = walk.segment(15360 + 4096, 4096);
        assert_eq!((segment.offset, segment.len), (4096, 4096));
        let walk = Walk::new(Memory::Pages(&segments), None);
        assert_eq!([walk.room(0), walk.room(15360)], [15360, 8192], "as it comes");
        assert_eq!(Walk::new(Memory::New(1 << 20), None).room(100), BOUNCE_BYTES - 100);
    }
}
