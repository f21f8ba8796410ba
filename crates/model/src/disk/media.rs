//! The medium of a disk: what it does now, what it does next, and reading ahead.

use super::cache::Dirty;
use super::geometry::SectorPlace;
use super::{Disk, Event};
use crate::machine::Command;
use base::Nanos;
use block::Op;
use smallvec::SmallVec;

/// Runs of the write cache that are looked at for the next write-out.
const LOOK: usize = 8;
/// Most sectors that one write-out takes: a track or so.
const WRITE_OUT: u64 = 2048;

/// A run of sectors that was read and is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub start: u64,
    pub end: u64,
}

/// A command that wants the medium.
pub(super) struct Waiting {
    command: Command,
    /// From when on it can be served.
    ready: Nanos,
    came: Nanos,
    place: SectorPlace,
    /// First sector that must come from the medium; the rest is in a segment.
    from: u64,
}

/// What the medium does.
#[derive(Default)]
enum Doing {
    #[default]
    Nothing,
    /// A command, the first of its sectors that had not passed before, and when that began to; the
    /// medium is free at its end.
    Command(Command, u64, Nanos),
    /// Runs of the write cache.
    WriteOut(SmallVec<[Dirty; 4]>, u64),
    /// Goes on reading behind a read.
    Ahead {
        /// Where the segment begins.
        start: u64,
        /// Sector `at` begins to pass at `when`; everything before has been read.
        when: Nanos,
        at: u64,
        /// Where the segment is full.
        limit: u64,
        /// Reads were promised up to here: nothing else before.
        promised: Nanos,
    },
}

/// The medium.
#[derive(Default)]
pub(super) struct Media {
    doing: Doing,
    /// Cylinder and head where the arm stands.
    arm: (u64, u64),
    /// Behind which sector it stands.
    behind: u64,
    idle_since: Nanos,
    /// An event for the end of the idle time is on its way.
    watched: bool,
}

impl Media {
    /// What is being written out.
    pub fn writing(&self) -> impl Iterator<Item = &Dirty> {
        let runs: &[Dirty] = match &self.doing {
            Doing::WriteOut(runs, _) => runs,
            _ => &[],
        };
        runs.iter()
    }

    pub fn writing_sectors(&self) -> u64 {
        match &self.doing {
            Doing::WriteOut(_, sectors) => *sectors,
            _ => 0,
        }
    }
}

/// What the medium could do next.
enum Choice {
    Waiting(usize),
    WriteOut(u64),
}

impl Disk {
    pub(super) fn in_segment(&mut self, start: u64, end: u64) -> bool {
        let Some(at) = self.segments.iter().position(|s| s.start <= start && end <= s.end) else {
            return false;
        };
        let segment = self.segments.remove(at).expect("it was just found");
        self.segments.push_front(segment);
        true
    }

    /// When reading ahead will have got to `end`, if that is what the medium does and it is near.
    pub(super) fn read_ahead_reaches(&mut self, now: Nanos, start: u64, end: u64) -> Option<Nanos> {
        if !self.waiting.is_empty() || self.is_pressed() {
            return None; // The medium has something to choose.
        }
        let per_track = self.geometry.locate(start).per_track;
        let Doing::Ahead { start: first, when, at, limit, promised } = &mut self.media.doing else {
            return None;
        };
        if start < *first || start > *at + per_track / 2 || end > *limit {
            return None;
        }
        let there = if end <= *at { now } else { self.geometry.pass(*when, *at, end) };
        *limit = (*limit).max(end + self.params.segment / 512).min(self.geometry.capacity());
        if there > *promised {
            *promised = there;
            self.agenda.at(there, Event::Promised);
        }
        Some(there)
    }

    /// Lets the reading ahead progress up to now; it ends where its segment is full.
    pub(super) fn follow_read_ahead(&mut self, now: Nanos) {
        let Doing::Ahead { start, when, at, limit, promised } = &mut self.media.doing else {
            return;
        };
        let (start, from, limit, promised) = (*start, *at, *limit, *promised);
        (*when, *at) = self.geometry.reach(*when, *at, now, limit);
        let at = *at;
        self.stats.prefetched_bytes += (at - from) * 512;
        if at >= limit && promised <= now {
            self.stand_behind(at);
            self.keep(start, at);
            self.media.doing = Doing::Nothing;
        }
    }

    fn stand_behind(&mut self, sector: u64) {
        let place = self.geometry.locate(sector - 1);
        self.media.arm = (place.cylinder, place.head);
        self.media.behind = sector;
    }

    /// Keeps what was read as the newest segment.
    fn keep(&mut self, start: u64, end: u64) {
        let most = self.params.segment / 512;
        let start = start.max(end.saturating_sub(most));
        self.segments.retain(|segment| segment.start < start || segment.end > end);
        self.segments.push_front(Segment { start, end });
        self.segments.truncate(self.params.segments);
    }

    pub(super) fn wait_for_medium(&mut self, ready: Nanos, command: Command) {
        let (start, end) = (command.sector.0, command.end());
        let held = |s: &&Segment| s.start <= start && start < s.end && s.end < end;
        let held = self.segments.iter().find(held).filter(|_| command.op == Op::Read);
        let from = held.map_or(start, |segment| segment.end);
        let came = ready;
        let place = self.geometry.locate(from);
        self.waiting.push(Waiting { command, ready, came, place, from });
        self.agenda.at(ready, Event::Ready);
    }

    /// The medium may be free: gives it the next thing to do.
    pub(super) fn go_on(&mut self, now: Nanos) {
        self.follow_read_ahead(now);
        match &self.media.doing {
            Doing::Command(..) | Doing::WriteOut(..) => return,
            Doing::Ahead { promised, .. } if *promised > now => return,
            _ => {}
        }
        self.serve_what_was_read(now);
        match self.choose(now) {
            None => self.watch_idleness(now),
            Some(Choice::Waiting(index)) => self.start(now, index),
            Some(Choice::WriteOut(start)) => {
                self.stop_reading_ahead();
                self.start_write_out(now, start);
            }
        }
    }

    /// Ends waiting reads that reading ahead has passed meanwhile.
    fn serve_what_was_read(&mut self, now: Nanos) {
        let Doing::Ahead { start, at, .. } = self.media.doing else { return };
        let mut index = 0;
        while index < self.waiting.len() {
            let command = self.waiting[index].command;
            let read = command.op == Op::Read && start <= command.sector.0 && command.end() <= at;
            if !read || self.waiting[index].ready > now {
                index += 1;
                continue;
            }
            self.waiting.remove(index);
            self.stats.prefetch_hits += 1;
            let done = self.bus(now, command.count);
            self.agenda.at(done, Event::Done(command.tag));
        }
    }

    /// Where the reading of `waiting` goes on if reading ahead has already come into it: the
    /// sector, and when that begins (or began) to pass.
    fn goes_on(&self, waiting: &Waiting) -> Option<(u64, Nanos)> {
        match self.media.doing {
            Doing::Ahead { start, when, at, .. }
                if waiting.command.op == Op::Read
                    && (start..=at).contains(&waiting.from)
                    && at < waiting.command.end() =>
            {
                Some((at, when))
            }
            _ => None,
        }
    }

    fn stop_reading_ahead(&mut self) {
        if let Doing::Ahead { start, at, .. } = self.media.doing {
            self.stand_behind(at.max(start + 1));
            self.keep(start, at);
            self.media.doing = Doing::Nothing;
        }
    }

    /// Where the arm stands, also while it reads ahead.
    fn arm(&self) -> (u64, u64) {
        match self.media.doing {
            Doing::Ahead { at, .. } => {
                let place = self.geometry.locate(at.max(1) - 1);
                (place.cylinder, place.head)
            }
            _ => self.media.arm,
        }
    }

    /// How long until the first sector of a place begins to pass.
    fn positioning(&self, arm: (u64, u64), now: Nanos, place: &SectorPlace, write: bool) -> u64 {
        let movement = self.geometry.movement(arm, place, write);
        movement + self.geometry.wait(place.angle, now.0 + movement)
    }

    fn choose(&self, now: Nanos) -> Option<Choice> {
        let arm = self.arm();
        let mut best = None;
        for (index, waiting) in self.waiting.iter().enumerate() {
            if waiting.ready > now {
                continue;
            }
            if waiting.came + self.params.age_limit <= now {
                return Some(Choice::Waiting(index));
            }
            let write = waiting.command.op != Op::Read;
            let span = match self.goes_on(waiting) {
                Some((_, when)) => when.since(now).0,
                None => self.positioning(arm, now, &waiting.place, write),
            };
            if best.is_none_or(|(least, _)| span < least) {
                best = Some((span, index));
            }
        }
        let commands = best.map(|(span, index)| (span, Choice::Waiting(index)));
        if self.cache.is_empty()
            || (!self.is_pressed() && (commands.is_some() || !self.rested(now)))
        {
            return commands.map(|(_, choice)| choice);
        }
        let flushed = self.flushes.front().map(|flush| flush.upto);
        let from = self.media.behind;
        let wanted = |age: u64| flushed.is_none_or(|upto| age <= upto);
        let mut runs: SmallVec<[(u64, u64); LOOK]> = SmallVec::new();
        let near = self.cache.around(from, usize::MAX).filter(|(_, run)| wanted(run.age));
        runs.extend(near.take(LOOK).map(|(start, _)| {
            (self.positioning(arm, now, &self.geometry.locate(start), true), start)
        }));
        let cheapest = runs.into_iter().min();
        match (commands, cheapest) {
            (Some((span, choice)), Some((write, _))) if span <= write => Some(choice),
            (_, Some((_, start))) => Some(Choice::WriteOut(start)),
            (commands, None) => commands.map(|(_, choice)| choice),
        }
    }

    /// The medium has done nothing for a client long enough to write out.
    fn rested(&self, now: Nanos) -> bool {
        now >= self.media.idle_since + self.params.destage_idle
    }

    fn watch_idleness(&mut self, now: Nanos) {
        if !self.cache.is_empty() && !self.rested(now) && !self.media.watched {
            self.media.watched = true;
            self.agenda.at(self.media.idle_since + self.params.destage_idle, Event::Idle);
        }
    }

    pub(super) fn idle(&mut self, now: Nanos) {
        self.media.watched = false;
        self.go_on(now);
    }

    fn start(&mut self, now: Nanos, index: usize) {
        let waiting = self.waiting.remove(index);
        let goes_on = self.goes_on(&waiting);
        self.stop_reading_ahead();
        let Waiting { command, place, from, .. } = waiting;
        let write = command.op != Op::Read;
        if write {
            self.cache.overwrite(command.sector.0, command.end());
        }
        let (begin, from) = match goes_on {
            Some((at, when)) => (when, at),
            None => {
                let span = self.positioning(self.media.arm, now, &place, write);
                self.note_positioning(&place, span);
                (now + Nanos(span), from)
            }
        };
        let end = self.geometry.pass(begin, from, command.end()).max(now);
        self.stats.media_busy += end.since(now);
        self.media.doing = Doing::Command(command, from, begin);
        self.agenda.at(end, Event::Medium);
    }

    fn start_write_out(&mut self, now: Nanos, start: u64) {
        let place = self.geometry.locate(start);
        let span = self.positioning(self.media.arm, now, &place, true);
        self.note_positioning(&place, span);
        let (end, runs) = self.cache.take_run(start, WRITE_OUT);
        let done = self.geometry.pass(now + Nanos(span), start, end);
        self.stats.media_busy += done.since(now);
        self.stats.destage_busy += done.since(now);
        self.stats.destaged_bytes += (end - start) * 512;
        self.stand_behind(end);
        self.media.doing = Doing::WriteOut(runs, end - start);
        self.agenda.at(done, Event::Medium);
    }

    fn note_positioning(&mut self, place: &SectorPlace, span: u64) {
        self.stats.seeks += (self.media.arm.0 != place.cylinder) as u64;
        self.stats.positioning += Nanos(span);
    }

    pub(super) fn medium_done(&mut self, now: Nanos) {
        match std::mem::take(&mut self.media.doing) {
            Doing::Command(command, from, begin) => self.command_done(now, command, (from, begin)),
            Doing::WriteOut(..) => self.clean(now),
            other => self.media.doing = other,
        }
        self.go_on(now);
    }

    fn command_done(&mut self, now: Nanos, command: Command, (from, begin): (u64, Nanos)) {
        self.stand_behind(command.end());
        self.media.idle_since = now;
        if command.op != Op::Read {
            self.agenda.at(now, Event::Written(command.tag));
            return self.clean(now);
        }
        // A bus that is faster than the medium is done with the front when the rear comes, and has
        // the last sector still to move. A slower one had the first sector when it had passed.
        let passed = (command.end() - from) * 512;
        let faster = self.params.bus.time(passed) <= now.since(begin);
        let done = if faster { self.bus(now, 1) } else { self.bus(begin, command.count).max(now) };
        self.agenda.at(done, Event::Done(command.tag));
        let limit = (command.end() + self.params.segment / 512).min(self.geometry.capacity());
        let place = self.geometry.locate(command.end().min(self.geometry.capacity() - 1));
        // The first sector behind the read may be on the next track.
        let when = if place.left == place.per_track {
            let movement = self.geometry.movement(self.media.arm, &place, false);
            now + Nanos(movement + self.geometry.wait(place.angle, now.0 + movement))
        } else {
            now
        };
        self.media.doing =
            Doing::Ahead { start: command.sector.0, when, at: command.end(), limit, promised: now };
    }
}
