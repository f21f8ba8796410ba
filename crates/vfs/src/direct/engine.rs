//! The engine: from a call's memory and a file's map to bios.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use base::unit::SECTOR_SIZE;
use block::{HostRange, Op, Queue, Segment};
use cache::{Intent, Iomap, IomapIter, IomapKind};
use rt::{Charge, Cx};

use super::Boundary;
use super::collect::{Collector, Section};
use super::memory::{Memory, Walk};

/// Bytes on their way of a call whose memory is copied.
const IN_FLIGHT_MAX: u64 = 32 << 20;

/// How a mount does direct I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectOptions {
    /// What the boundary mark of a run is used for.
    pub boundary: Boundary,
    /// Bytes of a page of the machine, by which all rules but [`Boundary::Prefetch`] walk the
    /// memory: a power of two.
    pub page_size: u32,
}

impl Default for DirectOptions {
    /// Ours, on a machine with pages of 4 KiB.
    fn default() -> Self {
        DirectOptions { boundary: Boundary::default(), page_size: 4096 }
    }
}

/// Why a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All is done.
    Done,
    /// The next so many bytes, up to the end of the call at most, need the page cache.
    Buffered(u64),
    /// An error.
    Failed(Errno),
}

/// What a transfer did: the first `bytes` bytes of the call, and why no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Bytes from the start of the call that are where they belong.
    pub bytes: u64,
    /// Why it ended there.
    pub stop: Stop,
}

/// A part of what a direct read gives.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// First byte in the file.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
    /// The memory that the device filled; `None` where the file has a hole.
    pub data: Option<Segment>,
}

/// The engine of one call.
pub struct Engine<'a> {
    /// The queue of the device with the file's blocks.
    pub queue: &'a Arc<Queue>,
    /// log2 of the file system's block size in bytes.
    pub block_bits: u32,
    /// The mount's.
    pub options: DirectOptions,
}

impl Engine<'_> {
    /// Writes `memory` to `off`, which the caller has checked for alignment. Returns when all bios
    /// have ended. May park.
    ///
    /// Where a bio fails, what lies before the lowest place that failed counts; of a new block
    /// that failed in part nothing does.
    pub fn write(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        off: u64,
        memory: Memory<'_>,
    ) -> Transfer {
        let end = off + memory.len();
        let mut collector = self.collector(Op::Write, memory);
        let (mut at, mut stop) = (off, Stop::Done);
        while at < end && collector.ends.failed().is_none() {
            let part = match self.map(cx, iter, at, end) {
                Ok(part) => part,
                Err(errno) => {
                    stop = Stop::Failed(errno);
                    break;
                }
            };
            let until = part.end().min(end);
            if part.place().is_none() {
                stop = Stop::Buffered(until - at);
                break;
            }
            let (mark, ahead) = self.boundary(cx, iter, &part, end);
            let new = matches!(part.kind, IomapKind::Unwritten(_));
            if new {
                self.zero(cx, &mut collector, &part, part.offset..at);
            }
            self.pieces(cx, &mut collector, off, part.part(at, until), mark, part.end());
            if new && until == end {
                let block_end = until.next_multiple_of(1 << self.block_bits);
                self.zero(cx, &mut collector, &part, until..block_end);
            }
            at = until;
            if ahead {
                collector.flush(cx);
            }
            self.throttle(cx, &mut collector);
        }
        collector.flush(cx);
        collector.ends.wait(cx, 0);
        self.result(off, at, stop, collector.ends.failed())
    }

    /// Reads from `off` to `end`, the end of the file or of the call, and gives what it finds to
    /// `take`, in any order. Returns when all bios have ended. May park.
    ///
    /// What `take` got behind the answer's bytes does not count.
    pub fn read(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        off: u64,
        end: u64,
        take: &mut dyn FnMut(Chunk),
    ) -> Transfer {
        // The last sector of the file is read as a whole.
        let unit = u64::from(self.queue.info().logical_block);
        let whole = end.next_multiple_of(unit);
        let mut collector = self.collector(Op::Read, Memory::New(whole - off));
        let mut give = |collector: &Collector<'_>| {
            for (off, seg) in collector.ends.take_filled() {
                let len = u64::from(seg.len).min(end.saturating_sub(off));
                take(Chunk { off, len, data: Some(seg) });
            }
        };
        let (mut at, mut stop) = (off, Stop::Done);
        let mut holes = Vec::new();
        while at < end && collector.ends.failed().is_none() {
            let part = match self.map(cx, iter, at, whole) {
                Ok(part) => part,
                Err(errno) => {
                    stop = Stop::Failed(errno);
                    break;
                }
            };
            let until = part.end().min(whole);
            if part.content().is_some() {
                let (mark, ahead) = self.boundary(cx, iter, &part, end);
                self.pieces(cx, &mut collector, off, part.part(at, until), mark, part.end());
                if ahead {
                    collector.flush(cx);
                }
            } else {
                holes.push(Chunk { off: at, len: until.min(end) - at, data: None });
            }
            at = until;
            if self.throttle(cx, &mut collector) {
                give(&collector);
            }
        }
        collector.flush(cx);
        collector.ends.wait(cx, 0);
        give(&collector);
        holes.into_iter().for_each(take);
        self.result(off, at.min(end), stop, collector.ends.failed())
    }

    /// Where the host keeps the bytes `off..end` of the file, in their order. None where one lies
    /// nowhere, or must come through the queue. May park.
    ///
    /// # Errors
    /// Those of the map.
    pub fn at_host(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        off: u64,
        end: u64,
    ) -> Result<Option<Vec<HostRange<'_>>>, Errno> {
        let (mut at, mut ranges) = (off, Vec::new());
        while at < end {
            let part = self.map(cx, iter, at, end)?;
            let until = part.end().min(end);
            let first = part.content().map(|first| first.bytes() + (at - part.offset));
            match first.and_then(|first| self.queue.host_range(first, until - at)) {
                Some(range) => ranges.push(range),
                None => return Ok(None),
            }
            at = until;
        }
        Ok(Some(ranges))
    }

    fn collector<'m>(&'m self, op: Op, memory: Memory<'m>) -> Collector<'m> {
        let modern = self.options.boundary.is_modern();
        let walk = Walk::new(memory, (!modern).then_some(self.options.page_size));
        Collector::new(self.queue, op, self.options.boundary, walk)
    }

    /// Asks for the part from the block with byte `at` on, up to the block with the last byte
    /// before `end`.
    fn map(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        at: u64,
        end: u64,
    ) -> Result<Iomap, Errno> {
        cx.charge_for(Charge::MapBlocks, 1);
        let range = self.start_of(at)..end.next_multiple_of(1 << self.block_bits);
        let mut part = iter.begin(cx, range.clone())?;
        if iter.intent == Intent::Overwrite && !matches!(part.kind, IomapKind::Mapped(_)) {
            part.kind = IomapKind::Hole;
        }
        debug_assert_eq!(part.offset, range.start, "a part begins where it was asked for");
        // A map that gives nothing would never end.
        if part.len == 0 {
            Err(Errno::EIO)
        } else {
            Ok(part.part(range.start, part.end().min(range.end)))
        }
    }

    fn start_of(&self, at: u64) -> u64 {
        at >> self.block_bits << self.block_bits
    }

    /// Whether a boundary mark lies behind a part, and whether the metadata block behind it is on
    /// its way now.
    fn boundary(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        part: &Iomap,
        end: u64,
    ) -> (bool, bool) {
        let mark = iter.boundary(cx, part);
        let used = mark && self.options.boundary == Boundary::Prefetch && part.end() < end;
        (mark, used && iter.prefetch(cx, part.end()))
    }

    /// The bytes of a part, piece by piece. With a `mark` a piece that ends at `marked_end` is
    /// the last one before the boundary.
    fn pieces(
        &self,
        cx: &mut Cx,
        collector: &mut Collector<'_>,
        off: u64,
        part: Iomap,
        mark: bool,
        marked_end: u64,
    ) {
        let first = part.place().expect("the caller has seen a place");
        let mut now = part.offset;
        while now < part.end() {
            let room = collector.memory().room(now - off);
            let len = room.min(part.end() - now).min(1 << 30) as u32;
            let sector = first + (now - part.offset) / SECTOR_SIZE;
            let piece = Section { file: now, memory: Some(now - off), len, sector };
            let next = now + u64::from(len);
            let takes = self.options.boundary.takes(now == part.offset, next == marked_end);
            collector.add(cx, piece, mark && takes);
            now = next;
        }
    }

    /// Bytes of a new block that the call leaves out.
    fn zero(&self, cx: &mut Cx, collector: &mut Collector<'_>, part: &Iomap, bytes: Range<u64>) {
        let part = part.part(bytes.start, bytes.end);
        if part.len > 0 {
            let (len, sector) = (part.len as u32, part.place().expect("as above"));
            collector.add(cx, Section { file: part.offset, memory: None, len, sector }, false);
        }
    }

    /// Bounds what is on its way where it is copied. True where it waited.
    fn throttle(&self, cx: &mut Cx, collector: &mut Collector<'_>) -> bool {
        if !collector.memory().copies() || collector.ends.in_flight() <= IN_FLIGHT_MAX {
            return false;
        }
        collector.flush(cx);
        collector.ends.wait(cx, IN_FLIGHT_MAX / 2);
        true
    }

    fn result(&self, off: u64, at: u64, stop: Stop, failed: Option<(u64, Errno)>) -> Transfer {
        match failed {
            None => Transfer { bytes: at - off, stop },
            // Zeros before and behind the call's bytes belong to its first and last block.
            Some((place, errno)) => {
                let place = if place >= at { self.start_of(at.max(1) - 1) } else { place };
                Transfer { bytes: place.saturating_sub(off), stop: Stop::Failed(errno) }
            }
        }
    }
}
