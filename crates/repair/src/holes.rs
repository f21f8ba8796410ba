//! A device whose unreadable places read as zeros, and which says which these were.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{BioFlags, Cause, Device, DeviceInfo, DeviceIo, Op, Segment, Segments};
use rt::SpinLock;

/// Runs of sectors, apart from each other: first sector and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds a run, joined with those that it touches.
    pub fn add(&mut self, mut run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let touching: Vec<u64> = self
            .0
            .range(..=run.end)
            .rev()
            .take_while(|&(_, &end)| end >= run.start)
            .map(|(&start, _)| start)
            .collect();
        for start in touching {
            let end = self.0.remove(&start).expect("it was listed");
            run = run.start.min(start)..run.end.max(end);
        }
        self.0.insert(run.start, run.end);
    }

    /// Takes a run out.
    pub fn remove(&mut self, run: Range<u64>) {
        while let Some(hit) = self.first_in(&run) {
            let (&start, &end) = self.0.range(..=hit.start).next_back().expect("it was hit");
            self.0.remove(&start);
            self.add(start..hit.start);
            self.add(hit.end..end);
        }
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// How many sectors.
    pub fn sectors(&self) -> u64 {
        self.iter().map(|run| run.end - run.start).sum()
    }

    /// The first run that has sectors in common with `range`, clipped to it.
    fn first_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.0.range(..=range.start).next_back();
        let next = || self.0.range(range.start..range.end).next();
        let (&start, &end) = before.filter(|&(_, &end)| end > range.start).or_else(next)?;
        Some(start.max(range.start)..end.min(range.end))
    }
}

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
    lost: Runs,
    met: Arc<SpinLock<Runs>>,
}

impl Holes {
    /// Over `below`, as a device of `bytes` bytes (at least those of `below`, in whole logical
    /// blocks). `lost` is in sectors; a logical block that it touches is lost.
    pub fn new(below: Arc<dyn Device>, bytes: u64, lost: &Runs) -> Holes {
        let (unit, end) = (below.info().block_sectors(), below.info().sectors);
        let sectors = bytes.div_ceil(SECTOR_SIZE).next_multiple_of(unit).max(end);
        let mut whole = Runs::default();
        for run in lost.iter().chain(std::iter::once(end..sectors)) {
            whole.add(run.start / unit * unit..run.end.next_multiple_of(unit).min(sectors));
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
        let met = Arc::new(SpinLock::new(Runs::default()));
        Holes { core: Arc::new(Core { below, lost: whole, met }), info }
    }

    /// What was read so far and is not there, in sectors.
    pub fn met(&self) -> Runs {
        self.core.met.lock_irq().clone()
    }

    /// Forgets what was read so far.
    pub fn forget(&self) {
        *self.core.met.lock_irq() = Runs::default();
    }
}

impl Device for Holes {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let range = io.sector.0..io.end_sector().0;
        match io.op {
            Op::Read if self.core.lost.first_in(&range).is_none() => {
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
        match self.core.lost.first_in(&range) {
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
        self.core.met.lock_irq().add(range.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_where_they_touch() {
        let mut runs = Runs::default();
        for run in [8..16, 0..4, 20..24, 16..18, 30..30, 3..8] {
            runs.add(run);
        }
        assert_eq!(runs.iter().collect::<Vec<_>>(), [0..18, 20..24]);
        assert_eq!(runs.sectors(), 22);
        assert_eq!(runs.first_in(&(17..40)), Some(17..18));
        assert_eq!(runs.first_in(&(18..22)), Some(20..22));
        assert_eq!(runs.first_in(&(18..20)), None);
        assert_eq!(runs.first_in(&(24..90)), None);
        runs.remove(4..6);
        runs.remove(16..23);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [0..4, 6..16, 23..24]);
    }
}
