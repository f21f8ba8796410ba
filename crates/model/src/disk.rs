//! A hard disk: arm, rotation, zones, read-ahead, write cache, command queue.
//!
//! - The **medium** serves one thing at a time: it moves the arm, waits for the sector to come
//!   round (`disk/geometry.rs`), and moves the data. Where the disk turns follows from the clock
//!   alone.
//! - Of the **commands** that wait, the one that can begin soonest is next, arm and rotation taken
//!   together; one that has waited for the age limit goes first.
//! - After a read the disk **reads ahead** into its segment until the segment is full or another
//!   command wants the medium. A read that the segment holds, or soon will, is answered from there,
//!   so a sequential reader never waits for a turn.
//! - With the **write cache** on, a write is done when the cache has it, and is written out
//!   (`disk/cache.rs`): after some idle time, or competing with the reads where the cache runs full
//!   or a flush waits. FUA goes to the medium. A power cut loses what the cache holds.
//!
//! Not modelled: defects and retries, thermal recalibration, track buffers that begin in the middle
//! of a track (zero-latency reads), power states, the difference between inner and outer seeks,
//! serpentine numbering.

mod cache;
mod geometry;
mod media;

use crate::ModelStats;
use crate::machine::{Agenda, Command, Machine};
use crate::quantity::Rate;
use base::Nanos;
use block::Op;
use cache::WriteCache;
use geometry::Geometry;
use media::{Media, Segment, Waiting};
use std::collections::VecDeque;

/// The parameters of a hard disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParams {
    /// Turns per minute, above 0.
    pub rpm: u64,
    /// Surfaces, from 1.
    pub heads: u64,
    /// Tracks per surface, from 1.
    pub cylinders: u64,
    /// Rings with one number of sectors per track, from 1.
    pub zones: u64,
    /// Sectors of 512 bytes on an outermost track.
    pub outer_track: u64,
    /// Sectors of 512 bytes on an innermost track.
    pub inner_track: u64,
    /// From one track to its neighbour, settling included.
    pub track_seek: Nanos,
    /// Mean over all pairs of tracks.
    pub average_seek: Nanos,
    /// From edge to edge.
    pub full_seek: Nanos,
    /// How much longer the arm settles before a write.
    pub write_settle: Nanos,
    /// To another surface of the same cylinder.
    pub head_switch: Nanos,
    /// The electronics' part of every command.
    pub command_overhead: Nanos,
    /// The bus between host and disk.
    pub bus: Rate,
    /// Read-ahead segments, from 1.
    pub segments: usize,
    /// Bytes of a read-ahead segment: how far ahead of the reader the disk goes.
    pub segment: u64,
    /// Bytes of the write cache; 0 turns it off.
    pub write_cache: u64,
    /// A power cut loses what the write cache holds.
    pub volatile: bool,
    /// Idle time before the write cache is written out.
    pub destage_idle: Nanos,
    /// A command that has waited so long goes first.
    pub age_limit: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A read, or what is no write, is done.
    Done(u32),
    /// A write to the medium is done.
    Written(u32),
    /// The cache has a write; where from and to.
    Cached(u32, u64, u64),
    /// The medium is done with what it does.
    Medium,
    /// A command's overhead is over: it can go to the medium.
    Ready,
    /// What was read ahead is there, for the request that waits for it.
    Promised,
    /// The medium may have been idle long enough.
    Idle,
}

/// A flush that waits for the cache.
struct Flush {
    tag: u32,
    /// It waits for writes up to this number.
    upto: u64,
}

pub(crate) struct Disk {
    params: DiskParams,
    geometry: Geometry,
    agenda: Agenda<Event>,
    media: Media,
    /// Commands for the medium.
    waiting: Vec<Waiting>,
    segments: VecDeque<Segment>,
    cache: WriteCache,
    /// Sectors that are on their way into the cache.
    arriving: u64,
    /// Writes that wait for room in the cache.
    stalled: VecDeque<Command>,
    flushes: VecDeque<Flush>,
    /// Writes that have completed.
    completed: u64,
    bus_free: Nanos,
    stats: ModelStats,
}

impl Disk {
    pub fn new(params: DiskParams) -> Disk {
        Disk {
            geometry: Geometry::new(&params),
            agenda: Agenda::new(),
            media: Media::default(),
            waiting: Vec::new(),
            segments: VecDeque::new(),
            cache: WriteCache::default(),
            arriving: 0,
            stalled: VecDeque::new(),
            flushes: VecDeque::new(),
            completed: 0,
            bus_free: Nanos::ZERO,
            stats: ModelStats::default(),
            params,
        }
    }

    /// Sectors of the whole disk.
    pub fn capacity(&self) -> u64 {
        self.geometry.capacity()
    }

    /// When the bus has moved `sectors` that it can have from `from` on.
    fn bus(&mut self, from: Nanos, sectors: u64) -> Nanos {
        self.bus_free = self.bus_free.max(from) + self.params.bus.time(sectors * 512);
        self.bus_free
    }

    fn read(&mut self, now: Nanos, command: Command) {
        let ready = now + self.params.command_overhead;
        let (start, end) = (command.sector.0, command.end());
        self.follow_read_ahead(now);
        if self.cache.covers(start, end) || self.in_segment(start, end) {
            self.stats.read_hits += 1;
            let done = self.bus(ready, command.count);
            return self.agenda.at(done, Event::Done(command.tag));
        }
        if let Some(there) = self.read_ahead_reaches(now, start, end) {
            self.stats.read_hits += 1;
            self.stats.prefetch_hits += 1;
            // The bus moves the front while the rear still comes from the medium.
            let head = Nanos(there.0.saturating_sub(self.params.bus.time(command.bytes()).0));
            let done = self.bus(ready.max(head), command.count).max(there);
            return self.agenda.at(done, Event::Done(command.tag));
        }
        self.stats.read_misses += 1;
        self.wait_for_medium(ready, command);
    }

    fn write(&mut self, now: Nanos, command: Command) {
        if self.params.write_cache == 0 || command.fua {
            let ready = self.bus(now + self.params.command_overhead, command.count);
            return self.wait_for_medium(ready, command);
        }
        if self.is_full(command.count) || !self.stalled.is_empty() {
            self.stats.write_stalls += 1;
            self.stalled.push_back(command);
            return self.go_on(now);
        }
        self.take(now, command);
    }

    fn is_full(&self, more: u64) -> bool {
        let held = self.cache.sectors + self.arriving + self.media.writing_sectors();
        held > 0 && (held + more) * 512 > self.params.write_cache
    }

    /// A write that the cache has room for.
    fn take(&mut self, now: Nanos, command: Command) {
        self.stats.write_hits += 1;
        self.arriving += command.count;
        let done = self.bus(now + self.params.command_overhead, command.count);
        let (start, end) = (command.sector.0, command.end());
        self.agenda.at(done, Event::Cached(command.tag, start, end));
    }

    fn cached(&mut self, now: Nanos, start: u64, end: u64) {
        self.completed += 1;
        self.arriving -= end - start;
        self.cache.add(start, end, self.completed);
        self.go_on(now);
    }

    fn flush(&mut self, now: Nanos, tag: u32) {
        self.stats.flushes += 1;
        self.flushes.push_back(Flush { tag, upto: self.completed });
        self.end_flushes(now);
        self.go_on(now);
    }

    /// Ends the flushes that wait for nothing any more.
    fn end_flushes(&mut self, now: Nanos) {
        while let Some(flush) = self.flushes.front() {
            let writing = self.media.writing().map(|run| run.age).min();
            let oldest = writing.into_iter().chain(self.cache.oldest()).min();
            if oldest.is_some_and(|age| age <= flush.upto) {
                return;
            }
            let done = now + self.params.command_overhead;
            self.agenda.at(done, Event::Done(flush.tag));
            self.flushes.pop_front();
        }
    }

    /// A run has reached the medium, or was replaced by what has.
    fn clean(&mut self, now: Nanos) {
        self.end_flushes(now);
        while let Some(&command) = self.stalled.front() {
            if self.is_full(command.count) {
                break;
            }
            self.stalled.pop_front();
            self.take(now, command);
        }
    }

    /// The write-out competes with the commands.
    fn is_pressed(&self) -> bool {
        let half = self.params.write_cache / 2 / 512;
        !self.flushes.is_empty() || !self.stalled.is_empty() || self.cache.sectors > half
    }
}

impl Machine for Disk {
    fn submit(&mut self, now: Nanos, command: Command, _segments: &[block::Segment]) {
        self.stats.commands += 1;
        match command.op {
            Op::Read => self.read(now, command),
            Op::Write | Op::WriteZeroes => self.write(now, command),
            Op::Flush => self.flush(now, command.tag),
            Op::Discard => {
                self.completed += 1;
                let done = now + self.params.command_overhead;
                self.agenda.at(done, Event::Done(command.tag));
            }
        }
    }

    fn next(&mut self) -> Option<Nanos> {
        self.agenda.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u32>) {
        while let Some((at, event)) = self.agenda.pop(now) {
            match event {
                Event::Done(tag) => done.push(tag),
                Event::Written(tag) => {
                    self.completed += 1;
                    done.push(tag);
                }
                Event::Cached(tag, start, end) => {
                    self.cached(at, start, end);
                    done.push(tag);
                }
                Event::Medium => self.medium_done(at),
                Event::Ready | Event::Promised => self.go_on(at),
                Event::Idle => self.idle(at),
            }
        }
    }

    fn stats(&self, _now: Nanos) -> ModelStats {
        let held = self.cache.sectors + self.media.writing_sectors();
        ModelStats { dirty_bytes: held * 512, ..self.stats.clone() }
    }

    fn losable(&self) -> Vec<u64> {
        if !self.params.volatile {
            return Vec::new();
        }
        let writing = self.media.writing().flat_map(|run| run.writes.iter().copied());
        let mut all: Vec<u64> = self.cache.writes().chain(writing).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
impl DiskParams {
    /// Round numbers, for tests.
    pub(crate) fn example() -> DiskParams {
        DiskParams {
            rpm: 7200,
            heads: 4,
            cylinders: 60_000,
            zones: 16,
            outer_track: 1600,
            inner_track: 800,
            track_seek: Nanos::from_micros(500),
            average_seek: Nanos::from_millis(8),
            full_seek: Nanos::from_millis(17),
            write_settle: Nanos::from_micros(400),
            head_switch: Nanos::from_micros(400),
            command_overhead: Nanos::from_micros(200),
            bus: Rate(300_000_000),
            segments: 16,
            segment: 512 << 10,
            write_cache: 0,
            volatile: true,
            destage_idle: Nanos::from_millis(10),
            age_limit: Nanos::from_millis(500),
        }
    }
}
