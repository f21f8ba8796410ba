//! The memory of a buffer: one piece, or pages.

use base::Page;
use block::{Segment, Segments};
use smallvec::SmallVec;

/// Bytes of a page of an unmapped buffer.
pub const PAGE_SIZE: usize = 4096;

/// The bytes of a buffer.
pub(crate) struct Memory {
    pieces: Pieces,
    /// True until somebody may have written them: they are zeros.
    untouched: bool,
}

enum Pieces {
    /// One piece.
    Mapped(Page),
    /// Pages of [`PAGE_SIZE`], of which the last may be shorter.
    Unmapped(SmallVec<[Page; 4]>),
}

impl Memory {
    pub fn zeroed(bytes: usize, unmapped: bool) -> Memory {
        let pieces = if unmapped {
            let pages = bytes.div_ceil(PAGE_SIZE);
            let len = |page: usize| PAGE_SIZE.min(bytes - page * PAGE_SIZE);
            Pieces::Unmapped((0..pages).map(|page| Page::zeroed(len(page))).collect())
        } else {
            Pieces::Mapped(Page::zeroed(bytes))
        };
        Memory { pieces, untouched: true }
    }

    pub fn is_unmapped(&self) -> bool {
        matches!(self.pieces, Pieces::Unmapped(_))
    }

    /// The page of a buffer that has one piece.
    pub fn page(&self) -> Option<&Page> {
        match &self.pieces {
            Pieces::Mapped(page) => Some(page),
            Pieces::Unmapped(_) => None,
        }
    }

    pub fn zero(&mut self) {
        if self.untouched {
            return;
        }
        match &mut self.pieces {
            Pieces::Mapped(page) => page.make_mut().fill(0),
            Pieces::Unmapped(pages) => pages.iter_mut().for_each(|page| page.make_mut().fill(0)),
        }
    }

    #[inline]
    pub fn piece(&self, offset: usize, len: usize) -> &[u8] {
        match &self.pieces {
            Pieces::Mapped(page) => &page[offset..offset + len],
            Pieces::Unmapped(pages) => {
                let (page, at) = within_page(offset, len);
                &pages[page][at..at + len]
            }
        }
    }

    #[inline]
    pub fn piece_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        self.untouched = false;
        match &mut self.pieces {
            Pieces::Mapped(page) => &mut page.make_mut()[offset..offset + len],
            Pieces::Unmapped(pages) => {
                let (page, at) = within_page(offset, len);
                &mut pages[page].make_mut()[at..at + len]
            }
        }
    }

    pub fn copy_out(&self, mut offset: usize, mut to: &mut [u8]) {
        while !to.is_empty() {
            let len = self.run(offset, to.len());
            to[..len].copy_from_slice(self.piece(offset, len));
            (offset, to) = (offset + len, &mut to[len..]);
        }
    }

    pub fn copy_in(&mut self, mut offset: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let len = self.run(offset, from.len());
            self.piece_mut(offset, len).copy_from_slice(&from[..len]);
            (offset, from) = (offset + len, &from[len..]);
        }
    }

    /// Appends a part of the content to `to`.
    pub fn append_to(&self, mut offset: usize, mut len: usize, to: &mut Vec<u8>) {
        while len > 0 {
            let part = self.run(offset, len);
            to.extend_from_slice(self.piece(offset, part));
            (offset, len) = (offset + part, len - part);
        }
    }

    /// How much of `len` bytes lies in one piece.
    fn run(&self, offset: usize, len: usize) -> usize {
        match &self.pieces {
            Pieces::Mapped(_) => len,
            Pieces::Unmapped(_) => len.min(PAGE_SIZE - offset % PAGE_SIZE),
        }
    }

    pub fn segments(&self, mut offset: usize, mut len: usize) -> Segments {
        let mut segs = Segments::new();
        while len > 0 {
            let part = self.run(offset, len);
            segs.push(match &self.pieces {
                Pieces::Mapped(page) => {
                    Segment { page: page.clone(), offset: offset as u32, len: part as u32 }
                }
                Pieces::Unmapped(pages) => Segment {
                    page: pages[offset / PAGE_SIZE].clone(),
                    offset: (offset % PAGE_SIZE) as u32,
                    len: part as u32,
                },
            });
            (offset, len) = (offset + part, len - part);
        }
        segs
    }

    /// Takes the pages of a read, which have the lengths of this memory's.
    pub fn replace(&mut self, mut read: Vec<Page>) {
        self.untouched = false;
        match &mut self.pieces {
            Pieces::Mapped(page) => {
                *page = read.pop().expect("a read has one page for each piece");
            }
            Pieces::Unmapped(pages) => *pages = read.into(),
        }
    }
}

fn within_page(offset: usize, len: usize) -> (usize, usize) {
    let at = offset % PAGE_SIZE;
    assert!(at + len <= PAGE_SIZE, "{len} bytes at {offset} cross a page of an unmapped buffer");
    (offset / PAGE_SIZE, at)
}
