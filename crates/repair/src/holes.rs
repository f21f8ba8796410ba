//! A device whose unreadable places read as zeros, and which says which these were.

use std::ops::Range;
use std::sync::Arc;

use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, Op, Segment, Segments};
use rt::SpinLock;

/// Reads go to the device below. What it cannot read, what is known to be lost, and what lies
/// behind its end reads as zeros, and is noted. Nothing that writes is accepted.
///
/// A request that fails is cut in halves, until the unreadable blocks stand alone: each of those
/// costs one try more than on the device itself.
pub struct Holes {
    core: Arc<Core>,
    info: DeviceInfo,
}

struct Core {
    below: Arc<dyn Device>,
    lost: RangeSet64,
    met: Arc<SpinLock<RangeSet64>>,
}

impl Holes {
    /// Over `below`, as a device of `bytes` bytes (at least those of `below`, in whole logical
    /// blocks). `lost` is in sectors; a logical block that it touches is lost.
    pub fn new(below: Arc<dyn Device>, bytes: u64, lost: &RangeSet64) -> Holes {
        let (unit, end) = (below.info().block_sectors(), below.info().sectors);
        let sectors = bytes.div_ceil(SECTOR_SIZE).next_multiple_of(unit).max(end);
        let mut whole = RangeSet64::new();
        for run in lost.iter().chain(std::iter::once(end..sectors)) {
            whole.insert(run.start / unit * unit..run.end.next_multiple_of(unit).min(sectors));
        }
        let info = DeviceInfo {
            sectors,
            read_only: true,
            discard: false,
            write_zeroes: false,
            fua: false,
            chunk: 0,
            ..below.info().clone()
        };
        let met = Arc::new(SpinLock::new(RangeSet64::new()));
        Holes { core: Arc::new(Core { below, lost: whole, met }), info }
    }

    /// What was read so far and is not there, in sectors.
    pub fn met(&self) -> RangeSet64 {
        self.core.met.lock_irq().clone()
    }

    /// Forgets what was read so far.
    pub fn forget(&self) {
        *self.core.met.lock_irq() = RangeSet64::new();
    }
}

impl Device for Holes {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let range = io.sector.0..io.end_sector().0;
        match io.op {
            Op::Read if !self.core.lost.intersects(range.clone()) => {
                let core = self.core.clone();
                self.core.below.submit(io.wrap(move |io, result| match result {
                    Ok(()) => io.succeed(),
                    Err(_) => Retry::start(&core, io),
                }));
            }
            Op::Read => Retry::start(&self.core, io),
            Op::Flush => io.succeed(),
            Op::Write | Op::Discard | Op::WriteZeroes => io.fail(Cause::ReadOnly),
        }
    }

    fn name(&self) -> String {
        format!("{} with holes", self.core.below.name())
    }
}

/// A request that is read in pieces.
struct Retry {
    core: Arc<Core>,
    /// The request, and the sectors of it that are not done.
    state: SpinLock<(Option<DeviceIo>, u64)>,
}

impl Retry {
    fn start(core: &Arc<Core>, io: DeviceIo) {
        let range = io.sector.0..io.end_sector().0;
        let state = SpinLock::new((Some(io), range.end - range.start));
        Arc::new(Retry { core: core.clone(), state }).attempt(range);
    }

    /// Reads a piece, or fills it with zeros, or cuts it.
    fn attempt(self: &Arc<Retry>, range: Range<u64>) {
        let hole = self.core.lost.within(range.clone()).next();
        match hole {
            None => self.read(range),
            Some(hole) => {
                let (before, behind) = (range.start..hole.start, hole.end..range.end);
                self.zeros(hole);
                for part in [before, behind].into_iter().filter(|part| !part.is_empty()) {
                    self.attempt(part);
                }
            }
        }
    }

    fn read(self: &Arc<Retry>, range: Range<u64>) {
        let (first, count) = (range.start, range.end - range.start);
        let page = Page::zeroed((count * SECTOR_SIZE) as usize);
        let retry = self.clone();
        let end = move |segs: Segments, result| {
            let unit = retry.core.below.info().block_sectors();
            match result {
                Ok(()) => retry.done(range, segs[0].bytes()),
                Err(_) if count <= unit => retry.zeros(range),
                Err(_) => {
                    let middle = range.start + (count / 2).next_multiple_of(unit).min(count - unit);
                    retry.read(range.start..middle);
                    retry.read(middle..range.end);
                }
            }
        };
        let segs = std::iter::once(Segment::whole(page)).collect();
        let io = DeviceIo::new(Op::Read, Sector(first), segs, BioFlags::empty(), end);
        self.core.below.submit(io);
    }

    /// A piece is not there.
    fn zeros(&self, range: Range<u64>) {
        self.core.met.lock_irq().insert(range.clone());
        self.fill(range, |into| into.fill(0));
    }

    /// A piece is read.
    fn done(&self, range: Range<u64>, mut from: &[u8]) {
        self.fill(range, |into| {
            let (part, rest) = from.split_at(into.len());
            into.copy_from_slice(part);
            from = rest;
        });
    }

    /// Fills a piece of the request, segment by segment, and ends the request with its last piece.
    fn fill(&self, range: Range<u64>, mut put: impl FnMut(&mut [u8])) {
        let mut state = self.state.lock_irq();
        let (io, left) = &mut *state;
        let Some(request) = io else { return };
        let mut at = request.sector.bytes();
        let wanted = range.start * SECTOR_SIZE..range.end * SECTOR_SIZE;
        for seg in &mut request.segs {
            let end = at + u64::from(seg.len);
            let (from, to) = (wanted.start.max(at), wanted.end.min(end));
            if from < to {
                put(&mut seg.bytes_mut()[(from - at) as usize..(to - at) as usize]);
            }
            at = end;
        }
        *left -= range.end - range.start;
        let ended = if *left == 0 { io.take() } else { None };
        drop(state);
        if let Some(io) = ended {
            io.succeed();
        }
    }
}
