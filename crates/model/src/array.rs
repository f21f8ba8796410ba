//! An enterprise array: a write cache that outlives a power cut, sequential prefetch, and a back
//! end of many spindles for which the two compete.
//!
//! - A **write** is done when the cache has it: a latency and the transfer, any number at once. A
//!   read in service delays it a little. Where the cache is full, it waits for write-out.
//! - **Write-out** (destage) begins at once and shares the back end with the reads, by time: each
//!   side gets half where both want it, the rest of the other where not. Neighbouring runs in the
//!   cache go out as one. A run that continues none of the last ones costs a movement.
//! - A **sequential reader** is detected at its second command. From then on the array reads a
//!   window ahead of it in chunks; a read is done when its last chunk is there.
//! - A read of what still waits in the write cache is answered from there.
//! - Any other **read** goes to one spindle of the back end: it takes the whole latency, but
//!   occupies only one of the spindles.
//!
//! Not modelled: RAID levels beyond what the constants hold, failed members, mirroring between
//! controllers, what the host's second path would do.

use crate::machine::{Agenda, Command, Machine};
use crate::quantity::Rate;
use crate::{ModelStats, runs::Runs};
use base::Nanos;
use block::{Op, Segment};
use std::collections::VecDeque;

/// The parameters of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayParams {
    /// A write into the cache, beside its transfer.
    pub write_latency: Nanos,
    /// How much longer a write takes that finds a read in service.
    pub read_delays_write: Nanos,
    /// A read out of the cache, beside its transfer.
    pub read_hit_latency: Nanos,
    /// A read from one spindle, beside its transfer.
    pub random_read: Nanos,
    /// Spindles that serve random reads at once, from 1.
    pub spindles: u64,
    /// The path between host and array, each way.
    pub port_rate: Rate,
    /// What the back end reads ahead for a sequential reader.
    pub stream_rate: Rate,
    /// One unit of reading ahead, in bytes.
    pub prefetch_chunk: u64,
    /// How far ahead of the reader, in bytes.
    pub prefetch_window: u64,
    /// Sequential readers that are kept apart.
    pub streams: usize,
    /// Bytes of the write cache.
    pub write_cache: u64,
    /// What the back end writes out.
    pub destage_rate: Rate,
    /// What a run that continues no other costs the back end beside its bytes.
    pub destage_seek: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A command is done.
    Done(u32),
    /// A read command is done.
    ReadDone(u32),
    /// The back end has done its job and is free.
    BackEnd,
}

/// What the back end does.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// A read that continues nothing.
    Read(Command),
    /// A chunk for the stream of that identity.
    Chunk { stream: u64, upto: u64 },
    /// So many sectors of the write cache.
    Destage(u64),
}

/// A sequential reader. Places are sectors.
struct Stream {
    identity: u64,
    /// Commands that came in sequence.
    length: u64,
    /// Where the next command is expected.
    next: u64,
    /// Read ahead and in the cache up to here.
    ready: u64,
    /// Ordered from the back end up to here.
    ordered: u64,
    /// Commands that wait for what is on its way.
    waiting: VecDeque<Command>,
    used: u64,
}

pub(crate) struct Array {
    params: ArrayParams,
    sectors: u64,
    agenda: Agenda<Event>,
    /// Reads and chunks for the back end.
    reads: VecDeque<Job>,
    /// Runs in the write cache that nobody writes out yet.
    dirty: Runs,
    /// Where the last runs ended, the latest first.
    trails: VecDeque<u64>,
    busy: Option<Job>,
    /// How much more of the back end the reads have had than the write-out, while both wanted it.
    advantage: i64,
    streams: Vec<Stream>,
    stream_names: u64,
    /// Writes that wait for room in the cache.
    stalled: VecDeque<Command>,
    /// Bytes in the cache that the back end has not finished.
    dirty_bytes: u64,
    reads_in_service: u32,
    /// When the way to the host, and that from it, is free.
    port_read: Nanos,
    port_write: Nanos,
    stats: ModelStats,
}

/// Runs whose ends the write-out remembers.
const TRAILS: usize = 8;

impl Array {
    pub fn new(params: ArrayParams, sectors: u64) -> Array {
        Array {
            sectors,
            agenda: Agenda::new(),
            reads: VecDeque::new(),
            dirty: Runs::default(),
            trails: VecDeque::with_capacity(TRAILS),
            busy: None,
            advantage: 0,
            streams: Vec::with_capacity(params.streams),
            stream_names: 0,
            stalled: VecDeque::new(),
            dirty_bytes: 0,
            reads_in_service: 0,
            port_read: Nanos::ZERO,
            port_write: Nanos::ZERO,
            stats: ModelStats::default(),
            params,
        }
    }

    fn read(&mut self, now: Nanos, command: Command) {
        self.reads_in_service += 1;
        if self.dirty.covers(command.sector.0, command.end()) {
            self.stats.read_hits += 1;
            return self.answer(now, command);
        }
        let Some(at) = self.stream_of(&command) else { return self.read_elsewhere(command) };
        let window = self.params.prefetch_window / 512;
        let sectors = self.sectors;
        let stream = &mut self.streams[at];
        stream.length += 1;
        stream.next = stream.next.max(command.end());
        stream.used = self.stats.commands;
        if stream.ready >= command.end() {
            self.stats.read_hits += 1;
            self.stats.prefetch_hits += 1;
            self.order(at, (command.end() + window).min(sectors));
            return self.answer(now, command);
        }
        if stream.ordered >= command.end() {
            self.stats.prefetch_hits += 1;
        } else {
            self.stats.read_misses += 1;
        }
        stream.waiting.push_back(command);
        self.order(at, (command.end() + window).min(sectors));
    }

    /// The stream that `command` continues or re-reads.
    fn stream_of(&self, command: &Command) -> Option<usize> {
        let window = self.params.prefetch_window / 512;
        self.streams.iter().position(|stream| {
            let start = command.sector.0;
            start == stream.next || (start < stream.ordered && start + window >= stream.ready)
        })
    }

    /// A read that continues nothing: it may begin a stream.
    fn read_elsewhere(&mut self, command: Command) {
        self.stats.read_misses += 1;
        self.stats.seeks += 1;
        self.stream_names += 1;
        let end = command.end();
        let stream = Stream {
            identity: self.stream_names,
            length: 1,
            next: end,
            ready: end,
            ordered: end,
            waiting: VecDeque::new(),
            used: self.stats.commands,
        };
        if self.streams.len() < self.params.streams {
            self.streams.push(stream);
        } else {
            let idle = |stream: &&mut Stream| stream.waiting.is_empty();
            let oldest = self.streams.iter_mut().filter(idle).min_by_key(|stream| stream.used);
            if let Some(slot) = oldest {
                *slot = stream;
            }
        }
        self.reads.push_back(Job::Read(command));
    }

    /// Orders chunks for a stream up to sector `upto`.
    fn order(&mut self, at: usize, upto: u64) {
        let chunk = self.params.prefetch_chunk / 512;
        let stream = &mut self.streams[at];
        while stream.ordered < upto {
            // Chunks end at multiples of their size.
            let end = ((stream.ordered / chunk + 1) * chunk).min(self.sectors);
            stream.ordered = end;
            self.reads.push_back(Job::Chunk { stream: stream.identity, upto: end });
        }
    }

    /// A read whose data are in the cache.
    fn answer(&mut self, now: Nanos, command: Command) {
        let begin = (now + self.params.read_hit_latency).max(self.port_read);
        let end = begin + self.params.port_rate.time(command.bytes());
        self.port_read = end;
        self.agenda.at(end, Event::ReadDone(command.tag));
    }

    fn write(&mut self, now: Nanos, command: Command) {
        let full = self.dirty_bytes + command.bytes() > self.params.write_cache;
        if full && self.dirty_bytes > 0 || !self.stalled.is_empty() {
            self.stats.write_stalls += 1;
            return self.stalled.push_back(command);
        }
        self.take(now, command);
    }

    /// A write for which the cache has room.
    fn take(&mut self, now: Nanos, command: Command) {
        self.stats.write_hits += 1;
        let mut latency = self.params.write_latency;
        if self.reads_in_service > 0 {
            latency += self.params.read_delays_write;
        }
        let transfer = self.params.port_rate.time(command.bytes());
        self.port_write = self.port_write.max(now) + transfer;
        self.agenda.at(self.port_write + latency, Event::Done(command.tag));
        // What is overwritten while it waits is written out once.
        let new = self.dirty.add(command.sector.0, command.end());
        self.dirty_bytes += new * 512;
    }

    /// Gives the back end something to do.
    fn run(&mut self, now: Nanos) {
        if self.busy.is_some() {
            return;
        }
        let wants = (!self.reads.is_empty(), !self.dirty.is_empty());
        let pressed = self.dirty_bytes > self.params.write_cache / 4 * 3;
        let (job, span) = match wants {
            (false, false) => return,
            (true, false) => self.next_read(now),
            (false, true) => self.next_destage(),
            (true, true) if pressed || self.advantage > 0 => self.next_destage(),
            (true, true) => self.next_read(now),
        };
        if wants == (true, true) {
            let sign = if matches!(job, Job::Destage(_)) { -1 } else { 1 };
            self.advantage += sign * span.0 as i64;
        } else {
            self.advantage = 0;
        }
        self.stats.media_busy += span;
        self.busy = Some(job);
        self.agenda.at(now + span, Event::BackEnd);
    }

    fn next_read(&mut self, now: Nanos) -> (Job, Nanos) {
        let job = self.reads.pop_front().expect("a read waits");
        match job {
            Job::Read(command) => {
                let transfer = self.params.stream_rate.time(command.bytes());
                let arm = self.params.random_read;
                self.answer(now + arm + transfer, command);
                self.stats.positioning += arm;
                (job, Nanos(arm.0 / self.params.spindles) + transfer)
            }
            Job::Chunk { .. } => {
                let bytes = self.params.prefetch_chunk;
                self.stats.prefetched_bytes += bytes;
                (job, self.params.stream_rate.time(bytes))
            }
            Job::Destage(_) => unreachable!("the reads' queue holds reads"),
        }
    }

    fn next_destage(&mut self) -> (Job, Nanos) {
        let (start, end) = self.next_run();
        let most = start + self.params.prefetch_chunk / 512;
        let end = end.min(most);
        self.dirty.remove(start, end);
        let continues = self.trails.iter().position(|&trail| trail == start);
        let mut span = self.params.destage_rate.time((end - start) * 512);
        match continues {
            Some(at) => drop(self.trails.remove(at)),
            None => {
                span += self.params.destage_seek;
                self.stats.seeks += 1;
                self.stats.positioning += self.params.destage_seek;
                self.trails.truncate(TRAILS - 1);
            }
        }
        self.trails.push_front(end);
        self.stats.destage_busy += span;
        (Job::Destage(end - start), span)
    }

    /// The run to write out next: one that continues the last one, else the next above it, so that
    /// the arms sweep.
    fn next_run(&self) -> (u64, u64) {
        let from = self.trails.front().copied().unwrap_or(0);
        let run = self.dirty.at_or_after(from).or_else(|| self.dirty.at_or_after(0));
        run.expect("something is dirty")
    }

    fn back_end_done(&mut self, now: Nanos) {
        match self.busy.take().expect("the back end was busy") {
            Job::Read(_) => {}
            Job::Chunk { stream, upto } => {
                if let Some(at) = self.streams.iter().position(|s| s.identity == stream) {
                    self.streams[at].ready = upto;
                    while let Some(command) = self.streams[at].waiting.front().copied() {
                        if command.end() > upto {
                            break;
                        }
                        self.streams[at].waiting.pop_front();
                        self.answer(now, command);
                    }
                }
            }
            Job::Destage(count) => {
                self.dirty_bytes -= count * 512;
                self.stats.destaged_bytes += count * 512;
                while let Some(&command) = self.stalled.front() {
                    let full = self.dirty_bytes + command.bytes() > self.params.write_cache;
                    if full && self.dirty_bytes > 0 {
                        break;
                    }
                    self.stalled.pop_front();
                    self.take(now, command);
                }
            }
        }
    }
}

impl Machine for Array {
    fn submit(&mut self, now: Nanos, command: Command, _segments: &[Segment]) {
        self.stats.commands += 1;
        match command.op {
            Op::Read => self.read(now, command),
            Op::Write | Op::WriteZeroes => self.write(now, command),
            // Nothing is volatile, and nothing is given back.
            Op::Flush | Op::Discard => {
                self.stats.flushes += (command.op == Op::Flush) as u64;
                self.agenda.at(now + self.params.write_latency, Event::Done(command.tag));
            }
        }
        self.run(now);
    }

    fn next(&mut self) -> Option<Nanos> {
        self.agenda.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u32>) {
        while let Some((at, event)) = self.agenda.pop(now) {
            match event {
                Event::Done(tag) => done.push(tag),
                Event::ReadDone(tag) => {
                    self.reads_in_service -= 1;
                    done.push(tag);
                }
                Event::BackEnd => {
                    self.back_end_done(at);
                    self.run(at);
                }
            }
        }
    }

    fn stats(&self, _now: Nanos) -> ModelStats {
        ModelStats { dirty_bytes: self.dirty_bytes, ..self.stats.clone() }
    }

    fn losable(&self) -> Vec<u64> {
        Vec::new() // The cache outlives a power cut.
    }
}
