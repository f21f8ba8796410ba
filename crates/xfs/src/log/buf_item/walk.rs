//! Three ways from a bitmap of dirty chunks to the regions of a log item.
//!
//! - [`Variant::Bitwise`]: one set bit at a time, comparing the addresses of each two chunks. What
//!   Linux did up to 5.11.
//! - [`Variant::Contiguous`]: whole runs, with one comparison of addresses for each; bit by bit for
//!   the rest of the segment where that finds a jump. What the patch of the thread does, with its
//!   weak points: it looks at the two ends only (two jumps that cancel are not seen), it looks one
//!   chunk past the end, and its size pass counts one region too many behind a jump, or one too few
//!   where the jump is as far as the run is long.
//! - [`Variant::Runs`]: ours. The jumps of the memory are cuts in the bitmap, so a run never
//!   crosses one; the size is two counters, and a walk costs a few operations for each run.
//!
//! Source: "xfs: optimise xfs_buf_item_size/format for contiguous regions", Dave Chinner, 2021; the
//! algorithms as its commit message and the delayed logging design document describe them.

use super::bitmap::{CHUNK, DirtyMap};

/// Which way is taken; a mount option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Variant {
    /// Bit by bit.
    Bitwise,
    /// Whole runs with one test for a jump each.
    Contiguous,
    /// Counted runs of a bitmap with cuts.
    #[default]
    Runs,
}

impl Variant {
    /// All of them, in the order of their invention.
    pub const ALL: [Variant; 3] = [Variant::Bitwise, Variant::Contiguous, Variant::Runs];

    /// The value of the mount option `buf_item`.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Bitwise => "bitwise",
            Variant::Contiguous => "contiguous",
            Variant::Runs => "runs",
        }
    }

    /// The variant of that name.
    pub fn by_name(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.name() == name)
    }
}

/// Where the bytes of a segment lie in memory.
pub trait Addresses {
    /// The address of byte `offset`; any number that follows from nothing for an offset that lies
    /// behind the end.
    fn address(&self, offset: usize) -> u64;
}

/// Memory in one piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapped;

impl Addresses for Mapped {
    #[inline]
    fn address(&self, offset: usize) -> u64 {
        offset as u64
    }
}

/// Memory in pages, each at an address of its own.
#[derive(Clone, Debug)]
pub struct Paged {
    /// Base address of each page.
    pub pages: Vec<u64>,
    /// Bytes of a page, a power of two and at least a chunk.
    pub page_size: usize,
    /// Bytes of the first page that lie before the segment.
    pub skip: usize,
}

impl Paged {
    /// The chunks that do not follow the one before them.
    pub fn cuts(&self) -> impl Iterator<Item = usize> + '_ {
        (1..self.pages.len()).filter_map(|page| {
            let jump = self.pages[page] != self.pages[page - 1] + self.page_size as u64;
            jump.then(|| (page * self.page_size - self.skip) / CHUNK)
        })
    }
}

impl Addresses for Paged {
    #[inline]
    fn address(&self, offset: usize) -> u64 {
        let offset = offset + self.skip;
        let page = self.pages.get(offset / self.page_size);
        page.map_or(u64::MAX, |base| base + (offset % self.page_size) as u64)
    }
}

/// Counts the steps of a walk.
pub trait Probe {
    /// A search for a set or a clear bit.
    fn bit_visit(&mut self);
    /// A computation of an address.
    fn address(&mut self);
}

/// Counts nothing and costs nothing.
pub struct Unprobed;

impl Probe for Unprobed {
    #[inline]
    fn bit_visit(&mut self) {}
    #[inline]
    fn address(&mut self) {}
}

/// The steps of a walk, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Searches for bits.
    pub bits: u64,
    /// Computations of addresses.
    pub addresses: u64,
}

impl Probe for Visits {
    fn bit_visit(&mut self) {
        self.bits += 1;
    }
    fn address(&mut self) {
        self.addresses += 1;
    }
}

/// Regions and bytes of data that a segment needs in the log, without its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Regions of data.
    pub regions: usize,
    /// Bytes of data.
    pub bytes: usize,
}

/// One walk over one segment.
pub struct Walk<'a, A, P> {
    /// The dirty chunks.
    pub map: &'a DirtyMap,
    /// Where they lie.
    pub memory: &'a A,
    /// Counts the steps.
    pub probe: &'a mut P,
}

impl<A: Addresses, P: Probe> Walk<'_, A, P> {
    /// The *size* pass. May be wrong by one region in [`Variant::Contiguous`]; bytes are right.
    #[inline]
    pub fn size(&mut self, variant: Variant) -> Size {
        match variant {
            Variant::Bitwise => self.size_bitwise(),
            Variant::Contiguous => self.size_contiguous(),
            Variant::Runs => Size { regions: self.map.runs(), bytes: self.map.bits() * CHUNK },
        }
    }

    /// The *format* pass: calls `emit` with the first chunk and the length of each region.
    #[inline]
    pub fn format(&mut self, variant: Variant, emit: &mut impl FnMut(usize, usize)) {
        match variant {
            Variant::Bitwise => self.bitwise_from(0, emit),
            Variant::Contiguous => self.format_contiguous(emit),
            Variant::Runs => self.format_runs(emit),
        }
    }

    #[inline]
    fn next_bit(&mut self, from: usize) -> Option<usize> {
        self.probe.bit_visit();
        self.map.next_bit(from)
    }

    #[inline]
    fn contig_bits(&mut self, from: usize) -> usize {
        self.probe.bit_visit();
        self.map.contig_bits(from)
    }

    #[inline]
    fn address(&mut self, chunk: usize) -> u64 {
        self.probe.address();
        self.memory.address(chunk * CHUNK)
    }

    fn size_bitwise(&mut self) -> Size {
        let Some(mut last) = self.next_bit(0) else { return Size::default() };
        let mut size = Size { regions: 1, bytes: CHUNK };
        while let Some(next) = self.next_bit(last + 1) {
            if next != last + 1 || self.address(next) != self.address(last) + CHUNK as u64 {
                size.regions += 1;
            }
            last = next;
            size.bytes += CHUNK;
        }
        size
    }

    fn bitwise_from(&mut self, from: usize, emit: &mut impl FnMut(usize, usize)) {
        let Some(mut first) = self.next_bit(from) else { return };
        let (mut last, mut count) = (first, 1);
        while let Some(next) = self.next_bit(last + 1) {
            if next != last + 1 || self.address(next) != self.address(last) + CHUNK as u64 {
                emit(first, count);
                (first, count) = (next, 0);
            }
            last = next;
            count += 1;
        }
        emit(first, count);
    }

    /// True if both ends of a run say that its memory jumps somewhere.
    fn jumps(&mut self, first: usize, count: usize) -> bool {
        count > 1
            && self.address(first + count).wrapping_sub(self.address(first))
                != (count * CHUNK) as u64
    }

    fn size_contiguous(&mut self) -> Size {
        let mut size = Size::default();
        let mut from = self.next_bit(0);
        while let Some(first) = from {
            let count = self.contig_bits(first);
            if self.jumps(first, count) {
                return self.size_slowly(size, first, count);
            }
            size.regions += 1;
            size.bytes += count * CHUNK;
            from = self.next_bit(first + count + 1);
        }
        size
    }

    /// The rest of a segment bit by bit; the first comparison is made with the length of the run
    /// that was left, so one region is counted too many.
    fn size_slowly(&mut self, mut size: Size, mut first: usize, mut count: usize) -> Size {
        let mut last = first;
        size.regions += 1;
        size.bytes += CHUNK;
        while let Some(next) = self.next_bit(last + 1) {
            let expected = (count * CHUNK) as u64;
            if next != last + 1 || self.address(next).wrapping_sub(self.address(first)) != expected
            {
                size.regions += 1;
                (first, count) = (next, 0);
            }
            last = next;
            count += 1;
            size.bytes += CHUNK;
        }
        size
    }

    fn format_contiguous(&mut self, emit: &mut impl FnMut(usize, usize)) {
        let mut from = self.next_bit(0);
        while let Some(first) = from {
            let count = self.contig_bits(first);
            if self.jumps(first, count) {
                return self.bitwise_from(first, emit);
            }
            emit(first, count);
            from = self.next_bit(first + count + 1);
        }
    }

    fn format_runs(&mut self, emit: &mut impl FnMut(usize, usize)) {
        let probe = &mut *self.probe;
        self.map.for_each_run(|first, count| {
            probe.bit_visit();
            emit(first, count);
        });
    }
}
