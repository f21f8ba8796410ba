//! The record of what a device was asked to do, so that a power cut can be placed anywhere in it.
//!
//! The log holds page references, so recording costs no copies. Entries stand in the order of
//! *completion*; each knows how long the log was when its request came, which is what decides
//! durability: a flush covers the writes that had completed when it began, and a write that was in
//! flight at a cut may be there or not.

use crate::MemoryDevice;
use base::map::{HashMap, HashSet};
use base::unit::SECTOR_SIZE;
use base::{Rng, Sector};
use block::{BioFlags, Device, DeviceInfo, DeviceIo, Op, Segments};
use rt::SpinLock;
use std::sync::Arc;

/// Bytes of a sector: what a device writes as one.
const SECTOR: usize = SECTOR_SIZE as usize;

/// What a log keeps of the content of a write: the memory itself ([`Segments`]), or where it is.
pub trait Content {
    /// Its length in bytes, a multiple of a sector.
    fn bytes(&self) -> u64;
}

impl Content for Segments {
    fn bytes(&self) -> u64 {
        block::bytes_of(self)
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<C = Segments> {
    /// Sectors were written.
    Write {
        /// First sector.
        sector: Sector,
        /// The content.
        segs: C,
        /// The write was durable when it completed.
        fua: bool,
    },
    /// A range was zeroed, or discarded (which reads as zeroes afterwards).
    Zero {
        /// First sector.
        sector: Sector,
        /// Number of sectors.
        count: u64,
        /// It was a discard.
        discard: bool,
    },
    /// The volatile cache was flushed.
    Flush,
    /// The test's own note: something was promised at this point.
    Mark(u64),
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct Entry<C = Segments> {
    /// Length of the log when the request came: it had not begun before entry `came` completed.
    pub came: usize,
    /// What happened.
    pub event: Event<C>,
}

impl<C: Content> Entry<C> {
    /// Sectors that the entry changes.
    pub fn sectors(&self) -> u64 {
        match &self.event {
            Event::Write { segs, .. } => segs.bytes() / SECTOR_SIZE,
            Event::Zero { count, .. } => *count,
            Event::Flush | Event::Mark(_) => 0,
        }
    }

    /// The first of them.
    pub fn start(&self) -> Sector {
        match self.event {
            Event::Write { sector, .. } | Event::Zero { sector, .. } => sector,
            Event::Flush | Event::Mark(_) => Sector(0),
        }
    }

    /// True for what changes the medium.
    pub fn changes(&self) -> bool {
        matches!(self.event, Event::Write { .. } | Event::Zero { .. })
    }

    /// True where a power cut may lose it until a flush.
    pub fn volatile(&self) -> bool {
        self.changes() && !matches!(self.event, Event::Write { fua: true, .. })
    }
}

/// A place of a power cut, and what the volatile cache had written by then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// Entries from 0 to here (exclusive) had completed.
    pub upto: usize,
    /// Of those, the unflushed writes that are lost whole (indexes into the log).
    pub drop: Vec<usize>,
    /// Unflushed writes of which only some sectors are there: index, and for each of its sectors in
    /// order whether it is; missing flags mean no.
    pub torn: Vec<(usize, Vec<bool>)>,
    /// Writes in flight at the cut (completed after it, came before it) that are there. Those may
    /// be named in `torn` too.
    pub early: Vec<usize>,
}

impl Cut {
    /// A cut behind `upto` entries with nothing lost.
    pub fn clean(upto: usize) -> Cut {
        Cut { upto, ..Cut::default() }
    }

    /// Takes back losses, in halves and then one by one, as long as `fails` says that the cut still
    /// fails: the smallest cut of that kind, as far as 100 attempts reach.
    pub fn shrink(mut self, mut fails: impl FnMut(&Cut) -> bool) -> Cut {
        let mut budget = 100;
        let mut stretch = self.drop.len().div_ceil(2);
        while stretch > 0 && budget > 0 {
            let mut at = 0;
            while at < self.drop.len() && budget > 0 {
                budget -= 1;
                let mut milder = self.clone();
                milder.drop.drain(at..(at + stretch).min(self.drop.len()));
                match fails(&milder) {
                    true => self = milder,
                    false => at += stretch,
                }
            }
            stretch /= 2;
        }
        for index in (0..self.torn.len()).rev() {
            // A write in flight that is not torn any more is there whole.
            let mut milder = self.clone();
            milder.torn.remove(index);
            if budget > 0 && fails(&milder) {
                self = milder;
            }
            budget -= 1;
        }
        self
    }
}

/// The log of one run. Cloning shares the pages.
#[derive(Clone, Debug)]
pub struct WriteLog<C = Segments> {
    /// The entries in the order of completion.
    pub entries: Vec<Entry<C>>,
}

impl<C> Default for WriteLog<C> {
    fn default() -> WriteLog<C> {
        WriteLog { entries: Vec::new() }
    }
}

impl<C: Content> WriteLog<C> {
    /// Writes among the first `upto` entries that a power cut behind them may lose: neither FUA nor
    /// covered by a flush that completed.
    pub fn unflushed(&self, upto: usize) -> Vec<usize> {
        let entries = &self.entries[..upto];
        let flushed = entries
            .iter()
            .filter(|entry| matches!(entry.event, Event::Flush))
            .map(|entry| entry.came)
            .max()
            .unwrap_or(0);
        self.volatile_in(flushed..upto)
    }

    /// Writes of a part of the log that only a flush makes durable.
    pub fn volatile_in(&self, part: std::ops::Range<usize>) -> Vec<usize> {
        part.filter(|index| self.entries[*index].volatile()).collect()
    }

    /// Writes that were in flight behind the first `upto` entries.
    pub fn in_flight(&self, upto: usize) -> Vec<usize> {
        let later = self.entries.iter().enumerate().skip(upto);
        later.filter(|(_, entry)| entry.changes() && entry.came <= upto).map(|(i, _)| i).collect()
    }

    /// The marks that had been reached at a cut, in order: what was promised by then.
    pub fn marks(&self, upto: usize) -> Vec<u64> {
        let mark = |entry: &Entry<C>| match entry.event {
            Event::Mark(value) => Some(value),
            _ => None,
        };
        self.entries[..upto].iter().filter_map(mark).collect()
    }

    /// Every place at which a cut is interesting by itself: before and behind each flush and each
    /// FUA write, and at the end.
    pub fn cut_points(&self) -> Vec<usize> {
        let mut points = vec![0];
        for (index, entry) in self.entries.iter().enumerate() {
            if matches!(entry.event, Event::Flush | Event::Write { fua: true, .. }) {
                points.extend([index, index + 1]);
            }
        }
        points.push(self.entries.len());
        points.dedup();
        points
    }

    /// For each of [`WriteLog::cut_points`] the two extremes: everything is there, and nothing that
    /// may be lost is there.
    pub fn cuts_at_flushes(&self) -> Vec<Cut> {
        let both = |upto: usize| {
            let drop = self.unflushed(upto);
            [
                Some(Cut::clean(upto)),
                (!drop.is_empty()).then_some(Cut { upto, drop, ..Cut::default() }),
            ]
        };
        self.cut_points().into_iter().flat_map(both).flatten().collect()
    }

    /// A cut at a random place with random losses: each write that no flush covers is there, lost
    /// or torn; each write in flight likewise.
    pub fn random_cut(&self, rng: &mut Rng) -> Cut {
        let upto = rng.below(self.entries.len() as u64 + 1) as usize;
        self.random_losses(upto, rng)
    }

    /// A cut behind `upto` entries with random losses.
    pub fn random_losses(&self, upto: usize, rng: &mut Rng) -> Cut {
        let mut cut = Cut::clean(upto);
        // Some cuts lose almost nothing, some almost everything.
        let loss = [0.05, 0.5, 0.95][rng.below(3) as usize];
        for index in self.unflushed(upto) {
            if rng.chance(loss) {
                cut.drop.push(index);
            } else if rng.chance(0.1) {
                cut.torn.push((index, self.random_tear(index, rng)));
            }
        }
        for index in self.in_flight(upto) {
            if !rng.chance(loss) {
                cut.early.push(index);
                if rng.chance(0.3) {
                    cut.torn.push((index, self.random_tear(index, rng)));
                }
            }
        }
        cut
    }

    fn random_tear(&self, index: usize, rng: &mut Rng) -> Vec<bool> {
        (0..self.entries[index].sectors()).map(|_| rng.chance(0.5)).collect()
    }
}

impl WriteLog {
    /// The content of the medium after a cut, on top of what was there when recording began.
    ///
    /// # Panics
    /// Where the log writes beyond the image, or the cut loses what was durable by then.
    pub fn image_after(&self, base: &[u8], cut: &Cut) -> Vec<u8> {
        let mut image = base.to_vec();
        self.apply(cut, |sector, bytes| {
            let start = sector.bytes() as usize;
            image[start..start + bytes.len()].copy_from_slice(bytes);
        });
        image
    }

    /// As [`WriteLog::image_after`], on a device that shares its pages with `base`: costs no more
    /// than what was written.
    ///
    /// # Panics
    /// As [`WriteLog::image_after`].
    pub fn device_after(&self, base: &MemoryDevice, cut: &Cut) -> MemoryDevice {
        let device = base.fork();
        self.apply(cut, |sector, bytes| device.write_at(sector.bytes(), bytes));
        device
    }

    /// Calls `write` for every run of sectors that the medium holds after a cut, oldest first.
    ///
    /// # Panics
    /// As [`WriteLog::image_after`].
    pub fn apply(&self, cut: &Cut, mut write: impl FnMut(Sector, &[u8])) {
        let losable = self.unflushed(cut.upto);
        let may_lose = |index: usize| index >= cut.upto || losable.binary_search(&index).is_ok();
        for &index in cut.drop.iter().chain(cut.torn.iter().map(|(index, _)| index)) {
            assert!(may_lose(index), "entry {index} was durable at a cut behind {}", cut.upto);
        }
        let dropped: HashSet<usize> = cut.drop.iter().copied().collect();
        let torn: HashMap<usize, &Vec<bool>> =
            cut.torn.iter().map(|(i, flags)| (*i, flags)).collect();
        let early = cut.early.iter().copied();
        for index in (0..cut.upto).chain(early) {
            if dropped.contains(&index) {
                continue;
            }
            let torn = torn.get(&index);
            self.entries[index].each_run(|sector, bytes| match torn {
                None => write(sector, bytes),
                Some(flags) => {
                    let first = (sector.0 - self.entries[index].start().0) as usize;
                    for (at, piece) in bytes.chunks(SECTOR).enumerate() {
                        if flags.get(first + at) == Some(&true) {
                            write(sector + at as u64, piece);
                        }
                    }
                }
            });
        }
    }
}

impl Entry {
    fn each_run(&self, mut f: impl FnMut(Sector, &[u8])) {
        match &self.event {
            Event::Write { sector, segs, .. } => {
                let mut at = *sector;
                for seg in segs {
                    f(at, seg.bytes());
                    at = at + seg.len as u64 / SECTOR_SIZE;
                }
            }
            Event::Zero { sector, count, .. } => {
                let zero = [0u8; 64 * SECTOR];
                let mut done = 0;
                while done < *count {
                    let part = (count - done).min(64);
                    f(*sector + done, &zero[..part as usize * SECTOR]);
                    done += part;
                }
            }
            Event::Flush | Event::Mark(_) => {}
        }
    }
}

/// What takes the entries of a [`RecordDevice`].
pub trait Recording: Send + 'static {
    /// Number of entries so far.
    fn count(&self) -> usize;

    /// Takes an entry. Called under a spin lock, from any thread.
    fn push(&mut self, entry: Entry);
}

impl Recording for WriteLog {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }
}

/// Passes everything on to another device and keeps a log of what changed it, in memory or where
/// another [`Recording`] keeps it.
///
/// It says that it has a volatile cache, whatever is below, so that the issuers send their flushes
/// and those are in the log; a flush goes down only to a device that takes it.
pub struct RecordDevice<R: Recording = WriteLog> {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    log: Arc<SpinLock<R>>,
}

impl RecordDevice {
    /// Starts an empty log in front of `inner`. FUA is left to the device: where `inner` lacks it,
    /// so does this one.
    pub fn new(inner: Arc<dyn Device>) -> RecordDevice {
        RecordDevice::into(inner, WriteLog::default())
    }

    /// The log so far (shares the pages).
    pub fn log(&self) -> WriteLog {
        self.log.lock_irq().clone()
    }

    /// Takes the log out and starts an empty one. Nothing may be in flight.
    pub fn take_log(&self) -> WriteLog {
        std::mem::take(&mut self.log.lock_irq())
    }

    /// Notes that something was promised: everything completed so far is what stands behind it.
    pub fn mark(&self, value: u64) {
        let mut log = self.log.lock_irq();
        let came = log.entries.len();
        log.entries.push(Entry { came, event: Event::Mark(value) });
    }
}

impl<R: Recording> RecordDevice<R> {
    /// As [`RecordDevice::new`], with a log that is kept elsewhere.
    pub fn into(inner: Arc<dyn Device>, log: R) -> RecordDevice<R> {
        let fua = inner.info().fua || !inner.info().volatile_cache;
        let info = DeviceInfo { volatile_cache: true, fua, ..inner.info().clone() };
        RecordDevice { inner, info, log: Arc::new(SpinLock::named("write log", log)) }
    }

    /// Number of entries so far.
    pub fn len(&self) -> usize {
        self.log.lock_irq().count()
    }

    /// True where nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does something with the log, under its lock.
    pub fn with_log<T>(&self, work: impl FnOnce(&mut R) -> T) -> T {
        work(&mut self.log.lock_irq())
    }
}

impl<R: Recording> Device for RecordDevice<R> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let event = match io.op {
            Op::Read => return self.inner.submit(io),
            Op::Write => Event::Write {
                sector: io.sector,
                segs: io.segs.clone(),
                fua: io.flags.contains(BioFlags::FUA),
            },
            Op::Discard | Op::WriteZeroes => {
                Event::Zero { sector: io.sector, count: io.count, discard: io.op == Op::Discard }
            }
            Op::Flush => Event::Flush,
        };
        let came = self.len();
        let log = self.log.clone();
        let mut io = io.wrap(move |io, result| {
            if result.is_ok() {
                log.lock_irq().push(Entry { came, event });
            }
            io.complete(result);
        });
        if !self.inner.info().volatile_cache {
            if io.op == Op::Flush {
                return io.succeed();
            }
            io.flags.remove(BioFlags::FUA);
        }
        self.inner.submit(io);
    }

    fn name(&self) -> String {
        format!("record of {}", self.inner.name())
    }
}
