//! Which parts of a buffer are dirty, and how they are logged.
//!
//! Each extent of a buffer is a *segment*, logged as if it were a buffer of its own: a header with
//! a bitmap of dirty 128-byte chunks, then one region for each run of them. Bits gather while the
//! buffer is logged again and again, until it is written to its place.
//!
//! A commit asks for the *size* first and then *formats* into the item's log vector. How the bitmap
//! is walked is a [`Variant`]; the regions are the same in all of them for a buffer whose memory is
//! in one piece. Ours does less in two more ways: the size is counters, and where the runs are the
//! same as at the last format, only the chunks that were dirtied since are copied into the vector
//! that is there already, whose size needs no question.

pub mod bitmap;
mod iop_stats;
pub mod walk;

use smallvec::SmallVec;

use crate::buf::map::BufMap;
use crate::buf::memory::{Memory, PAGE_SIZE};
use crate::format::Kind;
use crate::format::log_item::BufferType;
use crate::log::item::LogVec;
use bitmap::{CHUNK, DirtyMap};
use walk::{Mapped, Paged, Probe, Size, Unprobed, Variant, Walk};

/// Type of a buffer item in the log.
const LI_BUF: u16 = 0x123c;
/// The item holds unlinked pointers of inodes.
const BLF_INODE_BUF: u16 = 1 << 0;
/// The buffer's blocks were freed: recovery must not recover older copies.
const BLF_CANCEL: u16 = 1 << 1;
/// Where the number of the buffer's kind begins in the flags.
const BLF_TYPE_SHIFT: u32 = 11;
/// How the log says what a buffer without a magic number holds: a flag, of quota records only, and
/// the number of its kind.
const PLAIN_KINDS: [(BufItemFlags, u16, u16); 5] = [
    (BufItemFlags::REALTIME_BITMAP, 0, BufferType::RealtimeBitmap as u16),
    (BufItemFlags::REALTIME_SUMMARY, 0, BufferType::RealtimeSummary as u16),
    (BufItemFlags::USER_DQUOTS, 1 << 2, 1),
    (BufItemFlags::PROJECT_DQUOTS, 1 << 3, 2),
    (BufItemFlags::GROUP_DQUOTS, 1 << 4, 3),
];
/// Bytes of a header before the bitmap.
const HEADER: usize = 20;

bitflags::bitflags! {
    /// What a transaction said of a buffer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct BufItemFlags: u8 {
        /// Its blocks are freed by a transaction: only a cancel record is logged.
        const STALE = 1 << 0;
        /// It is written before the log moves past it, but its content is not logged.
        const ORDERED = 1 << 1;
        /// It holds inodes, of which only the unlinked pointers are logged.
        const INODE_BUF = 1 << 2;
        /// It holds quota records of users.
        const USER_DQUOTS = 1 << 3;
        /// It holds quota records of projects.
        const PROJECT_DQUOTS = 1 << 4;
        /// It holds quota records of groups.
        const GROUP_DQUOTS = 1 << 5;
        /// It holds a part of the realtime bitmap.
        const REALTIME_BITMAP = 1 << 6;
        /// It holds a part of the realtime summary.
        const REALTIME_SUMMARY = 1 << 7;
    }
}

/// One extent's part of the item.
struct Segment {
    blkno: u64,
    /// Blocks of 512 bytes.
    len: u32,
    /// Its first byte in the buffer.
    offset: usize,
    /// Dirty since the buffer was written.
    dirty: DirtyMap,
    /// Dirty since the last format; only marked, not counted.
    fresh: DirtyMap,
    /// Where its data begins in the vector of the last format.
    base: usize,
}

impl Segment {
    fn map_words(&self) -> usize {
        self.dirty.chunks().div_ceil(32)
    }

    fn header_bytes(&self) -> usize {
        HEADER + 4 * self.map_words()
    }

    /// Marks bytes of the segment dirty; true if a chunk was clean.
    #[inline]
    fn log(&mut self, first: usize, last: usize) -> bool {
        // What is fresh is dirty.
        self.fresh.mark(first, last) && self.dirty.log(first, last)
    }
}

/// The log item of a buffer.
pub(crate) struct BufItem {
    segments: SmallVec<[Segment; 1]>,
    pub flags: BufItemFlags,
    unmapped: bool,
    /// The runs are those of the vector that the last format made.
    same_layout: bool,
}

/// The addresses of an unmapped buffer: no two of its pages touch.
///
/// They follow from the layout alone, never from where the host happened to put the pages, so that
/// the content of a log is a function of what was logged.
pub(crate) fn scattered(bytes: usize, skip: usize) -> Paged {
    let pages = (skip + bytes).div_ceil(PAGE_SIZE);
    let pages = (0..pages as u64).map(|page| page * 2 * PAGE_SIZE as u64).collect();
    Paged { pages, page_size: PAGE_SIZE, skip }
}

impl BufItem {
    pub fn new(maps: &[BufMap], unmapped: bool) -> BufItem {
        let mut offset = 0;
        let segments = maps.iter().map(|map| {
            let (start, bytes) = (offset, map.bytes());
            offset += bytes;
            let dirty = if unmapped {
                let pages = scattered(bytes, start % PAGE_SIZE);
                DirtyMap::with_cuts(bytes, pages.cuts())
            } else {
                DirtyMap::new(bytes)
            };
            let (blkno, len) = (map.daddr.0, map.len);
            Segment { blkno, len, offset: start, dirty, fresh: DirtyMap::new(bytes), base: 0 }
        });
        let segments = segments.collect();
        BufItem { segments, flags: BufItemFlags::empty(), unmapped, same_layout: false }
    }

    /// Marks bytes `first..=last` of the buffer dirty.
    pub fn log(&mut self, first: usize, last: usize) {
        self.flags.remove(BufItemFlags::STALE | BufItemFlags::ORDERED);
        if let [segment] = &mut self.segments[..] {
            self.same_layout &= !segment.log(first, last);
            return;
        }
        for segment in &mut self.segments {
            let end = segment.offset + segment.len as usize * 512;
            if last < segment.offset || first >= end {
                continue;
            }
            let from = first.max(segment.offset) - segment.offset;
            let to = last.min(end - 1) - segment.offset;
            self.same_layout &= !segment.log(from, to);
        }
    }

    /// Nothing is dirty any more: it was written, or its blocks were freed.
    pub fn clean(&mut self) {
        for segment in &mut self.segments {
            segment.dirty.clear();
            segment.fresh.clear();
        }
        self.same_layout = false;
    }

    /// Marks it as freed.
    pub fn make_stale(&mut self) {
        self.clean();
        self.flags.remove(BufItemFlags::ORDERED);
        self.flags.insert(BufItemFlags::STALE);
    }

    /// True if it holds inodes, of which less is logged than is to be written.
    pub fn holds_inodes(&self) -> bool {
        self.flags.intersects(BufItemFlags::INODE_BUF | BufItemFlags::ORDERED)
    }

    /// True if a byte is dirty.
    pub fn is_dirty(&self) -> bool {
        self.segments.iter().any(|segment| !segment.dirty.is_empty())
    }

    /// The *size* pass: regions and bytes, headers included.
    pub fn size(&self, variant: Variant) -> Size {
        let mut size = Size::default();
        if self.flags.contains(BufItemFlags::ORDERED) {
            return size;
        }
        let stale = self.flags.contains(BufItemFlags::STALE);
        for segment in &self.segments {
            if stale || !segment.dirty.is_empty() {
                let data = if stale { Size::default() } else { self.walk_size(segment, variant) };
                size.regions += 1 + data.regions;
                size.bytes += segment.header_bytes() + data.bytes;
            }
        }
        size
    }

    fn walk_size(&self, segment: &Segment, variant: Variant) -> Size {
        self.walk_size_with(segment, variant, &mut Unprobed)
    }

    fn walk_size_with(&self, segment: &Segment, variant: Variant, probe: &mut impl Probe) -> Size {
        let map = &segment.dirty;
        match self.unmapped {
            false => Walk { map, memory: &Mapped, probe }.size(variant),
            // Ours knows the jumps from the bitmap.
            true if variant == Variant::Runs => Walk { map, memory: &Mapped, probe }.size(variant),
            true => {
                let bytes = segment.len as usize * 512;
                let memory = &scattered(bytes, segment.offset % PAGE_SIZE);
                Walk { map, memory, probe }.size(variant)
            }
        }
    }

    /// True if a format brings the vector of the last one, `known`, up to date: it needs no more
    /// room than it has.
    pub(crate) fn reuses(&self, variant: Variant, known: bool) -> bool {
        known && self.same_layout && variant == Variant::Runs
    }

    /// The *format* pass: makes `vec` the item's log vector, with content from `memory`. `reuse`
    /// says that `vec` is as the last format left it.
    pub fn format(
        &mut self,
        variant: Variant,
        kind: Option<Kind>,
        vec: &mut LogVec,
        reuse: bool,
        memory: &Memory,
    ) {
        if self.reuses(variant, reuse) {
            self.copy_fresh(kind, vec, memory);
        } else {
            vec.clear();
            if !self.flags.contains(BufItemFlags::ORDERED) {
                self.format_all(variant, kind, vec, memory);
            }
            self.same_layout = true;
        }
        self.segments.iter_mut().for_each(|segment| segment.fresh.clear());
    }

    /// The vector has these runs already: brings it up to date.
    fn copy_fresh(&mut self, kind: Option<Kind>, vec: &mut LogVec, memory: &Memory) {
        // A directory's block becomes a data block where it is.
        let flags = self.log_flags(kind);
        for segment in &self.segments {
            if segment.dirty.is_empty() {
                continue;
            }
            let header = segment.base - segment.header_bytes();
            put_flags(&mut vec.bytes_mut()[header..], flags);
            let mut at = 0;
            while let Some((first, count)) = segment.fresh.next_run(at) {
                // Chunks that are fresh are dirty, so they are neighbours in the vector too.
                let place = segment.base + segment.dirty.rank(first) * CHUNK;
                let bytes = &mut vec.bytes_mut()[place..place + count * CHUNK];
                memory.copy_out(segment.offset + first * CHUNK, bytes);
                at = first + count;
            }
        }
    }

    fn format_all(
        &mut self,
        variant: Variant,
        kind: Option<Kind>,
        vec: &mut LogVec,
        memory: &Memory,
    ) {
        let flags = self.log_flags(kind);
        let stale = self.flags.contains(BufItemFlags::STALE);
        for segment in &mut self.segments {
            if !stale && segment.dirty.is_empty() {
                continue;
            }
            let header = write_header(vec, segment, flags);
            segment.base = vec.len();
            let mut regions = 1;
            if !stale {
                let offset = segment.offset;
                let mut emit = |first: usize, count: usize| {
                    regions += 1;
                    let start = offset + first * CHUNK;
                    vec.append(|bytes| memory.append_to(start, count * CHUNK, bytes));
                };
                walk_format(segment, self.unmapped, variant, &mut emit, &mut Unprobed);
            }
            vec.bytes_mut()[header + 2..header + 4].copy_from_slice(&u16::to_le_bytes(regions));
        }
    }

    fn log_flags(&self, kind: Option<Kind>) -> u16 {
        let mut flags = kind.map_or(0, log_type) << BLF_TYPE_SHIFT;
        // As of most.
        if self.flags.is_empty() {
            return flags;
        }
        if self.flags.contains(BufItemFlags::STALE) {
            flags |= BLF_CANCEL;
        }
        if self.flags.contains(BufItemFlags::INODE_BUF) {
            flags |= BLF_INODE_BUF;
        }
        for (has, flag, number) in PLAIN_KINDS {
            if self.flags.contains(has) {
                flags |= flag | number << BLF_TYPE_SHIFT;
            }
        }
        flags
    }
}

fn walk_format(
    segment: &Segment,
    unmapped: bool,
    variant: Variant,
    emit: &mut impl FnMut(usize, usize),
    probe: &mut impl Probe,
) {
    let map = &segment.dirty;
    if unmapped && variant != Variant::Runs {
        let memory = &scattered(segment.len as usize * 512, segment.offset % PAGE_SIZE);
        Walk { map, memory, probe }.format(variant, emit);
    } else {
        Walk { map, memory: &Mapped, probe }.format(variant, emit);
    }
}

/// Writes a segment's header with its bitmap; returns where. The count of regions is left out.
fn write_header(vec: &mut LogVec, segment: &Segment, flags: u16) -> usize {
    let at = vec.len();
    let words = segment.map_words();
    let header = vec.region(HEADER + 4 * words);
    header[0..2].copy_from_slice(&LI_BUF.to_le_bytes());
    put_flags(header, flags);
    header[6..8].copy_from_slice(&(segment.len as u16).to_le_bytes());
    header[8..16].copy_from_slice(&segment.blkno.to_le_bytes());
    header[16..20].copy_from_slice(&(words as u32).to_le_bytes());
    for (index, place) in header[HEADER..].chunks_exact_mut(4).enumerate() {
        let word = segment.dirty.words()[index / 2] >> (32 * (index % 2));
        place.copy_from_slice(&(word as u32).to_le_bytes());
    }
    at
}

fn put_flags(header: &mut [u8], flags: u16) {
    header[4..6].copy_from_slice(&flags.to_le_bytes());
}

/// The number by which the log knows a kind of buffer.
pub(crate) fn log_type(kind: Kind) -> u16 {
    match kind {
        Kind::FreeByBlock | Kind::FreeBySize | Kind::Inobt | Kind::Finobt => 4,
        Kind::Rmap | Kind::Refcount | Kind::Bmap => 4,
        Kind::RealtimeRmap | Kind::RealtimeRefcount => 4,
        Kind::Agf => 5,
        Kind::Agfl => 6,
        Kind::Agi => 7,
        Kind::Inode => 8,
        Kind::Symlink => 9,
        Kind::DirBlock => 10,
        Kind::DirData => 11,
        Kind::DirFree => 12,
        Kind::DirLeaf1 => 13,
        Kind::DirLeafN => 14,
        Kind::DaNode => 15,
        Kind::AttrLeaf => 16,
        Kind::AttrRemote => 17,
        Kind::Super => 18,
        Kind::RealtimeBitmap => BufferType::RealtimeBitmap as u16,
        Kind::RealtimeSummary => BufferType::RealtimeSummary as u16,
    }
}
