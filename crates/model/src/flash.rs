//! A flash device: dies on channels behind a controller with a write buffer.
//!
//! - A **read** of each flash page it touches waits for the die, takes the page's read time there,
//!   then the channel, then the bus to the host, each one after another; different dies work at
//!   once.
//! - A **write** is done when the buffer has it. The buffer fills flash pages and programs them,
//!   one die after another in turn; where it is full, writes wait for a program to end.
//! - After every block's worth of pages a die **erases** a block.
//! - Where the buffer is volatile, a **flush** programs what is left in it, padded, and waits for
//!   all programs; FUA does so behind its own write. A power cut loses what was not programmed.
//!
//! **Garbage collection** is one number: a write that continues none of the last ones is programmed
//! as often as `amplification` says, which is what a data sheet's two figures for sequential and
//! for random writes in steady state come to. Which die holds a page follows from the page's
//! number, not from where it was written. Not modelled: mapping tables, wear, suspension of a
//! program by a read, pseudo-SLC regions that run full, heat, trim beyond its command.

use crate::ModelStats;
use crate::machine::{Agenda, Command, Machine};
use crate::quantity::Rate;
use base::Nanos;
use block::{Op, Segment};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// The parameters of a flash device.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashParams {
    /// Channels between controller and dies, from 1.
    pub channels: usize,
    /// Dies on each channel, from 1.
    pub dies: usize,
    /// Bytes that a die programs at once: its page, times its planes.
    pub page: u64,
    /// Pages that are erased at once.
    pub block_pages: u64,
    /// From cells to the die's register.
    pub read: Nanos,
    /// From the register to the cells.
    pub program: Nanos,
    /// Erasing one block.
    pub erase: Nanos,
    /// One channel.
    pub channel: Rate,
    /// The bus between host and device.
    pub bus: Rate,
    /// The controller's part of a read.
    pub read_overhead: Nanos,
    /// The controller's part of a write into the buffer.
    pub write_overhead: Nanos,
    /// What each command occupies the bus and the controller for, beside its bytes.
    pub command: Nanos,
    /// The controller's part of a flush.
    pub flush_overhead: Nanos,
    /// Bytes of the write buffer.
    pub buffer: u64,
    /// A power cut loses what the buffer holds.
    pub volatile: bool,
    /// How often what continues no other write is programmed, from 1.
    pub amplification: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A read is done.
    Done(u32),
    /// A trim is done.
    Trimmed(u32),
    /// The buffer has a write of so many bytes; whether it goes on where another ended.
    Buffered(Accepted),
    /// A page is programmed.
    Programmed(u64),
    /// A flush, or a FUA write, has nothing more to wait for.
    Flushed(u32, bool),
}

/// A write that the buffer has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Accepted {
    tag: u32,
    bytes: u64,
    sequential: bool,
    fua: bool,
}

/// A page that is being programmed.
struct Program {
    bytes: u64,
    writes: SmallVec<[u64; 4]>,
}

/// A flush, or a FUA write, that waits for programs.
struct Flush {
    tag: u32,
    upto: u64,
    is_write: bool,
}

/// Places behind recent writes that a sequential one is known by.
const TRAILS: usize = 8;

pub(crate) struct Flash {
    params: FlashParams,
    agenda: Agenda<Event>,
    die_free: Vec<Nanos>,
    /// Pages that each die programmed since its last erase.
    programmed: Vec<u64>,
    channel_free: Vec<Nanos>,
    bus_free: Nanos,
    next_die: usize,
    /// The page that is being filled: bytes, and the writes that they belong to.
    open: Program,
    /// Pages that are being programmed, by number.
    programs: BTreeMap<u64, Program>,
    program_number: u64,
    /// Bytes in the buffer, or on their way into it.
    held: u64,
    /// Bytes of rewriting that garbage collection has not yet been given.
    debt: f64,
    stalled: VecDeque<Command>,
    flushes: VecDeque<Flush>,
    trails: VecDeque<u64>,
    completed: u64,
    stats: ModelStats,
}

impl Flash {
    pub fn new(params: FlashParams) -> Flash {
        let dies = params.channels * params.dies;
        Flash {
            agenda: Agenda::new(),
            die_free: vec![Nanos::ZERO; dies],
            programmed: vec![0; dies],
            channel_free: vec![Nanos::ZERO; params.channels],
            bus_free: Nanos::ZERO,
            next_die: 0,
            open: Program { bytes: 0, writes: SmallVec::new() },
            programs: BTreeMap::new(),
            program_number: 0,
            held: 0,
            debt: 0.0,
            stalled: VecDeque::new(),
            flushes: VecDeque::new(),
            trails: VecDeque::with_capacity(TRAILS),
            completed: 0,
            stats: ModelStats::default(),
            params,
        }
    }

    fn bus(&mut self, from: Nanos, bytes: u64) -> Nanos {
        self.bus_free = self.bus_free.max(from) + self.params.command + self.params.bus.time(bytes);
        self.bus_free
    }

    fn read(&mut self, now: Nanos, command: Command) {
        self.stats.read_misses += 1;
        let ready = now + self.params.read_overhead;
        let page = self.params.page;
        let (mut at, end) = (command.sector.bytes(), command.end() * 512);
        let mut there = ready;
        while at < end {
            let next = ((at / page + 1) * page).min(end);
            let die = (at / page) as usize % self.die_free.len();
            let channel = die % self.params.channels;
            let read = self.die_free[die].max(ready) + self.params.read;
            let moved = self.channel_free[channel].max(read) + self.params.channel.time(next - at);
            self.stats.media_busy += moved.since(self.die_free[die].max(ready));
            self.die_free[die] = moved;
            self.channel_free[channel] = moved;
            there = there.max(moved);
            at = next;
        }
        // The bus is busy with the front while the last page is still on its way.
        let head = Nanos(there.0.saturating_sub(self.params.bus.time(command.bytes()).0));
        let last = self.params.bus.time(command.bytes().min(page));
        let done = self.bus(head.max(ready), command.bytes()).max(there + last);
        self.agenda.at(done, Event::Done(command.tag));
    }

    fn write(&mut self, now: Nanos, command: Command) {
        let full = self.held > 0 && self.held + command.bytes() > self.params.buffer;
        if full || !self.stalled.is_empty() {
            self.stats.write_stalls += 1;
            self.stalled.push_back(command);
            return self.make_room(now);
        }
        self.take(now, command);
    }

    fn take(&mut self, now: Nanos, command: Command) {
        self.stats.write_hits += 1;
        let (bytes, fua) = (command.bytes(), command.fua && self.params.volatile);
        self.held += bytes;
        let known = self.trails.iter().position(|&trail| trail == command.sector.0);
        match known {
            Some(at) => drop(self.trails.remove(at)),
            None => self.trails.truncate(TRAILS - 1),
        }
        self.trails.push_front(command.end());
        let done = self.bus(now + self.params.write_overhead, bytes);
        let accepted = Accepted { tag: command.tag, bytes, sequential: known.is_some(), fua };
        self.agenda.at(done, Event::Buffered(accepted));
    }

    /// The buffer has a write: fills pages with it. True where it is done with that.
    fn buffered(&mut self, now: Nanos, write: Accepted) -> bool {
        let number = if write.fua { u64::MAX } else { self.completed + 1 };
        let mut left = write.bytes;
        while left > 0 {
            let part = (self.params.page - self.open.bytes).min(left);
            self.open.bytes += part;
            left -= part;
            if !write.fua {
                self.open.writes.push(number);
            }
            if self.open.bytes == self.params.page {
                self.program(now);
            }
        }
        if !write.sequential {
            self.debt += write.bytes as f64 * (self.params.amplification - 1.0).max(0.0);
        }
        while self.debt >= self.params.page as f64 {
            self.debt -= self.params.page as f64;
            self.occupy(now);
        }
        self.make_room(now);
        if write.fua {
            self.flush(now, write.tag, true);
            return false;
        }
        self.completed += 1;
        true
    }

    /// Where writes wait for room and nothing is being programmed, the open page must go.
    fn make_room(&mut self, now: Nanos) {
        if !self.stalled.is_empty() && self.programs.is_empty() && self.open.bytes > 0 {
            self.program(now);
        }
    }

    /// Occupies the next die with a program; returns when that is done.
    fn occupy(&mut self, now: Nanos) -> Nanos {
        let die = self.next_die;
        self.next_die = (die + 1) % self.die_free.len();
        let channel = die % self.params.channels;
        let transfer = self.params.channel.time(self.params.page);
        let moved = self.channel_free[channel].max(self.die_free[die]).max(now) + transfer;
        self.channel_free[channel] = moved;
        let mut done = moved + self.params.program;
        self.programmed[die] += 1;
        if self.programmed[die] == self.params.block_pages {
            self.programmed[die] = 0;
            done += self.params.erase;
        }
        let busy = done.since(self.die_free[die].max(now));
        self.stats.media_busy += busy;
        self.stats.destage_busy += busy;
        self.die_free[die] = done;
        done
    }

    /// Programs the open page.
    fn program(&mut self, now: Nanos) {
        let done = self.occupy(now);
        self.program_number += 1;
        let empty = Program { bytes: 0, writes: SmallVec::new() };
        let page = std::mem::replace(&mut self.open, empty);
        self.programs.insert(self.program_number, page);
        self.agenda.at(done, Event::Programmed(self.program_number));
    }

    fn programmed(&mut self, now: Nanos, number: u64) {
        let page = self.programs.remove(&number).expect("a page is programmed once");
        self.held -= page.bytes;
        self.stats.destaged_bytes += page.bytes;
        while let Some(&command) = self.stalled.front() {
            if self.held > 0 && self.held + command.bytes() > self.params.buffer {
                break;
            }
            self.stalled.pop_front();
            self.take(now, command);
        }
        self.make_room(now);
        self.end_flushes(now);
    }

    fn flush(&mut self, now: Nanos, tag: u32, is_write: bool) {
        self.stats.flushes += !is_write as u64;
        if self.open.bytes > 0 {
            self.program(now);
        }
        self.flushes.push_back(Flush { tag, upto: self.program_number, is_write });
        self.end_flushes(now);
    }

    fn end_flushes(&mut self, now: Nanos) {
        let oldest = self.programs.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(flush) = self.flushes.front().filter(|flush| flush.upto < oldest) {
            let over = if flush.is_write { Nanos::ZERO } else { self.params.flush_overhead };
            self.agenda.at(now + over, Event::Flushed(flush.tag, flush.is_write));
            self.flushes.pop_front();
        }
    }
}

impl Machine for Flash {
    fn submit(&mut self, now: Nanos, command: Command, _segments: &[Segment]) {
        self.stats.commands += 1;
        match command.op {
            Op::Read => self.read(now, command),
            Op::Write | Op::WriteZeroes => self.write(now, command),
            Op::Flush => self.flush(now, command.tag, false),
            Op::Discard => {
                let done = self.bus(now + self.params.write_overhead, 0);
                self.agenda.at(done, Event::Trimmed(command.tag));
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
                Event::Trimmed(tag) => {
                    self.completed += 1;
                    done.push(tag);
                }
                Event::Flushed(tag, is_write) => {
                    self.completed += is_write as u64;
                    done.push(tag);
                }
                Event::Programmed(number) => self.programmed(at, number),
                Event::Buffered(write) => {
                    if self.buffered(at, write) {
                        done.push(write.tag);
                    }
                }
            }
        }
    }

    fn stats(&self, _now: Nanos) -> ModelStats {
        ModelStats { dirty_bytes: self.held, ..self.stats.clone() }
    }

    fn losable(&self) -> Vec<u64> {
        if !self.params.volatile {
            return Vec::new();
        }
        let programs = self.programs.values().chain([&self.open]);
        let mut all: Vec<u64> = programs.flat_map(|page| page.writes.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
