//! The engine: from a call's memory and a file's map to bios.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Sector};
use block::{HostRange, Op, Queue, Segment};
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

/// Where a run of blocks of a file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Blocks of the file system, at least 1.
    pub count: u64,
    /// The first sector. `None`, of a read: zeros, without the device. Of a write: the page cache
    /// has to do it.
    pub sector: Option<Sector>,
    /// The blocks hold nothing yet: what the call leaves out of the first and of the last one is
    /// written as zeros.
    pub new: bool,
    /// The map of the next block lies in another metadata block.
    pub boundary: bool,
}

/// The map of one file, as the engine asks for it: the file system holds its locks over the call.
pub trait GetBlock {
    /// Where the blocks from `block` on lie, looking no further than `count`. With `create`, which
    /// writes ask for, blocks that there are not are given now; nothing may make them part of the
    /// file before the engine has answered that their content is there. May park: reads metadata.
    ///
    /// # Errors
    /// Those of the file system; what was written before counts.
    fn get_block(
        &mut self,
        cx: &mut Cx,
        block: u64,
        count: u64,
        create: bool,
    ) -> Result<Run, Errno>;

    /// Told at a mark, before the run's bytes are sent: begins to read what the map of `block`,
    /// the first one behind, needs. True where that is on its way, so that the next
    /// [`get_block`](Self::get_block) may wait. Does not park.
    fn prefetch(&mut self, _cx: &mut Cx, _block: u64) -> bool {
        false
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
        map: &mut dyn GetBlock,
        off: u64,
        memory: Memory<'_>,
    ) -> Transfer {
        let end = off + memory.len();
        let mut collector = self.collector(Op::Write, memory);
        let (mut at, mut stop) = (off, Stop::Done);
        while at < end && collector.ends.failed().is_none() {
            let run = match self.map(cx, map, at, end, true) {
                Ok(run) => run,
                Err(errno) => {
                    stop = Stop::Failed(errno);
                    break;
                }
            };
            let until = self.end_of(at, &run).min(end);
            if run.sector.is_none() {
                stop = Stop::Buffered(until - at);
                break;
            }
            let ahead = self.ahead(cx, map, at, &run, end);
            self.zero_head(cx, &mut collector, at, &run);
            self.pieces(cx, &mut collector, off, at, until, &run);
            if until == end {
                self.zero_tail(cx, &mut collector, at, until, &run);
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
        map: &mut dyn GetBlock,
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
            let run = match self.map(cx, map, at, whole, false) {
                Ok(run) => run,
                Err(errno) => {
                    stop = Stop::Failed(errno);
                    break;
                }
            };
            let until = self.end_of(at, &run).min(whole);
            if run.sector.is_some() {
                let ahead = self.ahead(cx, map, at, &run, end);
                self.pieces(cx, &mut collector, off, at, until, &run);
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
        map: &mut dyn GetBlock,
        off: u64,
        end: u64,
    ) -> Result<Option<Vec<HostRange<'_>>>, Errno> {
        let (mut at, mut ranges) = (off, Vec::new());
        while at < end {
            let run = self.map(cx, map, at, end, false)?;
            let until = self.end_of(at, &run).min(end);
            let first = run.sector.map(|first| first.bytes() + (at - self.start_of(at)));
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

    /// Asks for the run at byte `at`.
    fn map(
        &self,
        cx: &mut Cx,
        map: &mut dyn GetBlock,
        at: u64,
        end: u64,
        create: bool,
    ) -> Result<Run, Errno> {
        cx.charge_for(Charge::MapBlocks, 1);
        let block = at >> self.block_bits;
        let count = end.div_ceil(1 << self.block_bits) - block;
        let run = map.get_block(cx, block, count, create)?;
        // A map that gives nothing would never end.
        if run.count == 0 {
            Err(Errno::EIO)
        } else {
            Ok(Run { count: run.count.min(count), ..run })
        }
    }

    fn start_of(&self, at: u64) -> u64 {
        at >> self.block_bits << self.block_bits
    }

    /// The first byte behind the run at `at`.
    fn end_of(&self, at: u64, run: &Run) -> u64 {
        ((at >> self.block_bits) + run.count) << self.block_bits
    }

    /// At a mark that is to be used for it: begins to read the next metadata block.
    fn ahead(&self, cx: &mut Cx, map: &mut dyn GetBlock, at: u64, run: &Run, end: u64) -> bool {
        let next = self.end_of(at, run);
        let wanted = run.boundary && self.options.boundary == Boundary::Prefetch && next < end;
        wanted && map.prefetch(cx, next >> self.block_bits)
    }

    fn sector(&self, run: &Run, run_start: u64, at: u64) -> Sector {
        let first = run.sector.expect("the caller has seen a sector");
        first + (at - run_start) / SECTOR_SIZE
    }

    /// Bytes `at..until` of a run, piece by piece.
    fn pieces(
        &self,
        cx: &mut Cx,
        collector: &mut Collector<'_>,
        off: u64,
        at: u64,
        until: u64,
        run: &Run,
    ) {
        let (start, run_end) = (self.start_of(at), self.end_of(at, run));
        let mut now = at;
        while now < until {
            let room = collector.memory().room(now - off);
            let len = room.min(until - now).min(1 << 30) as u32;
            let piece = Section {
                file: now,
                memory: Some(now - off),
                len,
                sector: self.sector(run, start, now),
            };
            let next = now + u64::from(len);
            let takes = self.options.boundary.takes(now == at, next == run_end);
            collector.add(cx, piece, run.boundary && takes);
            now = next;
        }
    }

    /// What lies before `at` in a new block.
    fn zero_head(&self, cx: &mut Cx, collector: &mut Collector<'_>, at: u64, run: &Run) {
        let start = self.start_of(at);
        if run.new && start < at {
            let (len, sector) = ((at - start) as u32, self.sector(run, start, start));
            collector.add(cx, Section { file: start, memory: None, len, sector }, false);
        }
    }

    /// What lies behind `until` in the new block that the call ends in.
    fn zero_tail(
        &self,
        cx: &mut Cx,
        collector: &mut Collector<'_>,
        at: u64,
        until: u64,
        run: &Run,
    ) {
        let block_end = until.next_multiple_of(1 << self.block_bits);
        if run.new && until < block_end {
            let sector = self.sector(run, self.start_of(at), until);
            let len = (block_end - until) as u32;
            collector.add(cx, Section { file: until, memory: None, len, sector }, false);
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
