//! What the tasks of one job share: what comes next, and what was measured. Never waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Nanos, Rng};

use super::job::{Direction, Job};
use super::measure::{Latency, LatencyBands, Rate};
use super::place::{Extent, JobPlaces, Unit};
use super::random::unit as fraction;
use super::replay::{Action, Replay};
use super::report::DirectionReport;

/// Operations in a row that take no time before a job in virtual time is given up: its clock stands
/// still, and it would never end.
const TIMELESS_MAX: u64 = 1_000_000;

/// What a task does next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// An operation; for a write, its number among the job's writes.
    Io(Unit, u64),
    /// fsync (true: fdatasync) of a file.
    Sync(usize, bool),
    /// Nothing before that time.
    Wait(Nanos),
    /// It ends.
    Done,
}

/// A written block as the check afterwards expects it: length and number of the write.
pub type Written = BTreeMap<(usize, u64), (u64, u64)>;

/// The pace of one direction.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When the next operation may begin.
    next: Nanos,
}

/// One finished operation, for the logs.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its end, since the job began.
    pub when: Nanos,
    /// What.
    pub unit: Unit,
    /// Submission, completion and whole latency.
    pub times: [Nanos; 3],
}

/// Where the time of an operation went.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// It was chosen.
    pub chosen: Nanos,
    /// It was submitted.
    pub submitted: Nanos,
    /// It was complete.
    pub complete: Nanos,
}

/// The shared state of one copy of a job.
pub struct State {
    job: Arc<Job>,
    places: JobPlaces,
    /// Since when figures count: the end of the ramp.
    pub counted_from: Nanos,
    /// When the job began.
    pub began: Nanos,
    deadline: Nanos,
    /// Bytes to be moved in all.
    limit: u64,
    issued_bytes: u64,
    issued_ios: u64,
    in_flight: usize,
    pending: Option<Unit>,
    replayed: usize,
    pace: [Pace; 3],
    pace_rng: Rng,
    think_until: Nanos,
    think_count: u64,
    writes: u64,
    unsynced: [u64; 2],
    sync_due: Option<(usize, bool)>,
    last_time: Nanos,
    timeless: u64,
    is_virtual: bool,
    done: bool,
    /// The figures.
    pub directions: [DirectionReport; 3],
    rates: [(Rate, Rate); 3],
    /// fsync and fdatasync.
    pub sync: Latency,
    /// Latencies in bands.
    pub bands: LatencyBands,
    /// Depths at submission.
    pub depths: [u64; 7],
    /// The first error.
    pub error: Option<(Errno, String)>,
    /// What was written, where it is checked afterwards.
    pub written: Written,
    /// Finished operations, where a log is asked for.
    pub entries: Vec<Entry>,
    keeps_entries: bool,
}

impl State {
    /// The state of a copy that begins at `now`; `limit` bytes are moved in all.
    pub fn new(
        job: &Arc<Job>,
        places: JobPlaces,
        limit: u64,
        now: Nanos,
        run_start: Nanos,
        is_virtual: bool,
        seed: u64,
    ) -> State {
        let counted_from = now + job.ramp_time;
        let deadline = match job.runtime {
            Nanos::ZERO => Nanos::MAX,
            runtime => counted_from + runtime,
        };
        let rate =
            || (Rate::new(counted_from, job.bwavgtime), Rate::new(counted_from, job.iopsavgtime));
        let logs = [&job.write_bw_log, &job.write_lat_log, &job.write_iops_log, &job.write_iolog];
        State {
            places,
            counted_from,
            began: now,
            deadline,
            limit,
            issued_bytes: 0,
            issued_ios: 0,
            in_flight: 0,
            pending: None,
            replayed: 0,
            pace: [Pace { next: now }; 3],
            pace_rng: Rng::new(seed, 6),
            think_until: Nanos::ZERO,
            think_count: 0,
            writes: 0,
            unsynced: [0; 2],
            sync_due: None,
            last_time: now,
            timeless: 0,
            is_virtual,
            done: false,
            directions: [(); 3].map(|()| DirectionReport::new(run_start)),
            rates: [(); 3].map(|()| rate()),
            sync: Latency::default(),
            bands: LatencyBands::default(),
            depths: [0; 7],
            error: None,
            written: Written::new(),
            entries: Vec::new(),
            keeps_entries: logs.iter().any(|log| log.is_some()),
            job: job.clone(),
        }
    }

    /// What a task does next; `stop` ends the job.
    pub fn next(&mut self, now: Nanos, stop: bool) -> Step {
        let ends = stop || now >= self.deadline || self.error.is_some();
        let enough = self.issued_bytes >= self.limit
            || (self.job.number_ios > 0 && self.issued_ios >= self.job.number_ios);
        if ends || self.done || self.stands_still(now) {
            self.done = true;
            return Step::Done;
        }
        if let Some((file, data_only)) = self.sync_due.take() {
            return Step::Sync(file, data_only);
        }
        if enough {
            self.done = true;
            return Step::Done;
        }
        if self.think_until > now {
            return Step::Wait(self.think_until.min(self.deadline));
        }
        if let Some(replay) = self.job.replay.clone() {
            return self.replay(now, &replay);
        }
        let Some(unit) = self.pending.take().or_else(|| self.places.next()) else {
            self.done = true;
            return Step::Done;
        };
        let pace = self.pace[unit.direction as usize].next;
        if pace > now {
            self.pending = Some(unit);
            return Step::Wait(pace.min(self.deadline));
        }
        self.issue(now, unit)
    }

    /// The next operation of a list, at its time unless nothing is to stall.
    fn replay(&mut self, now: Nanos, replay: &Replay) -> Step {
        let Some(operation) = replay.operations.get(self.replayed) else {
            self.done = true;
            return Step::Done;
        };
        let when = self.began + operation.at;
        if when > now && !self.job.replay_no_stall {
            return Step::Wait(when.min(self.deadline));
        }
        self.replayed += 1;
        match operation.action {
            Action::Sync(data_only) => Step::Sync(operation.file, data_only),
            Action::Move(direction) => {
                let Extent { offset, len } = operation.extent;
                self.issue(now, Unit { direction, file: operation.file, offset, len })
            }
        }
    }

    fn issue(&mut self, now: Nanos, unit: Unit) -> Step {
        self.keep_pace(now, &unit);
        self.issued_bytes += unit.len;
        self.issued_ios += 1;
        self.think_count += 1;
        if self.job.thinktime > Nanos::ZERO && self.think_count >= self.job.thinktime_blocks {
            self.think_count = 0;
            self.think_until = now + self.job.thinktime;
        }
        self.in_flight += 1;
        self.depths[(self.in_flight.ilog2() as usize).min(6)] += 1;
        let number = self.writes;
        if unit.direction == Direction::Write {
            self.writes += 1;
        }
        Step::Io(unit, number)
    }

    /// When the next operation of this direction may begin.
    fn keep_pace(&mut self, now: Nanos, unit: &Unit) {
        let direction = unit.direction as usize;
        let (bytes, ios) = (self.job.rate[direction], self.job.rate_iops[direction]);
        let gap = match (bytes, ios) {
            (0, 0) => return,
            (0, ios) => 1e9 / ios as f64,
            (bytes, _) => unit.len as f64 * 1e9 / bytes as f64,
        };
        let gap = match self.job.rate_poisson {
            true => -gap * (1.0 - fraction(&mut self.pace_rng)).ln(),
            false => gap,
        };
        let pace = &mut self.pace[direction];
        // Who fell behind does not catch up by more than a second.
        let earliest = Nanos(now.0.saturating_sub(1_000_000_000));
        pace.next = pace.next.max(earliest) + Nanos(gap as u64);
    }

    /// In virtual time: true where a million operations took no time at all.
    fn stands_still(&mut self, now: Nanos) -> bool {
        if !self.is_virtual || now > self.last_time {
            self.last_time = now;
            self.timeless = 0;
            return false;
        }
        self.timeless += 1;
        let endless = self.job.time_based && self.timeless > TIMELESS_MAX;
        if endless && self.error.is_none() {
            let text = "virtual time stands still: nothing that the job does takes time";
            self.error = Some((Errno::ETIME, text.into()));
        }
        endless
    }

    /// An operation is complete, with its bytes or its error.
    pub fn complete(&mut self, unit: &Unit, number: u64, times: Times, done: Result<u64, Errno>) {
        self.in_flight -= 1;
        let bytes = match done {
            Ok(bytes) => bytes,
            Err(errno) => return self.fail(unit, errno),
        };
        if unit.direction == Direction::Write {
            self.note_write(unit, number);
        }
        if times.complete < self.counted_from {
            return;
        }
        self.count(unit, bytes, times);
        if bytes == 0 && unit.direction == Direction::Read {
            // The file is shorter than was asked for: there is nothing behind its end.
            self.done = true;
        }
    }

    fn fail(&mut self, unit: &Unit, errno: Errno) {
        self.done = true;
        if errno == Errno::ENOSPC && self.job.fill_device {
            return;
        }
        if self.error.is_none() {
            let word = unit.direction.word();
            let text = format!("{word} offset={}, buflen={}", unit.offset, unit.len);
            self.error = Some((errno, text));
        }
    }

    fn note_write(&mut self, unit: &Unit, number: u64) {
        for (slot, (every, data_only)) in
            [(self.job.fsync, false), (self.job.fdatasync, true)].into_iter().enumerate()
        {
            self.unsynced[slot] += 1;
            if every > 0 && self.unsynced[slot] >= every {
                self.unsynced[slot] = 0;
                self.sync_due = Some((unit.file, data_only));
            }
        }
        if self.job.verify.is_some() && self.job.do_verify {
            self.note_written(unit, number);
        }
    }

    /// Keeps what is to be checked: what it covers of former writes is not expected any more.
    fn note_written(&mut self, unit: &Unit, number: u64) {
        let (file, start, end) = (unit.file, unit.offset, unit.offset + unit.len);
        let before = self.written.range((file, 0)..(file, end));
        let covered: Vec<(usize, u64)> = before
            .rev()
            .take_while(|((_, offset), _)| offset.saturating_add(1 << 30) > start)
            .filter(|((_, offset), (len, _))| offset + len > start)
            .map(|(key, _)| *key)
            .collect();
        for key in covered {
            self.written.remove(&key);
        }
        self.written.insert((file, start), (unit.len, number));
    }

    fn count(&mut self, unit: &Unit, bytes: u64, times: Times) {
        let slat = times.submitted.since(times.chosen);
        let clat = times.complete.since(times.submitted);
        let lat = times.complete.since(times.chosen);
        let direction = unit.direction as usize;
        let figures = &mut self.directions[direction];
        figures.ios += 1;
        figures.bytes += bytes;
        figures.short_ios += u64::from(bytes < unit.len);
        if self.job.engine.is_async() && !self.job.disable_slat {
            figures.slat.add(slat);
        }
        if !self.job.disable_clat {
            figures.clat.add(clat);
        }
        if !self.job.disable_lat {
            figures.lat.add(lat);
            self.bands.add(lat);
        }
        figures.timeline.add(times.complete, bytes);
        if !self.job.disable_bw {
            let (bw, iops) = &mut self.rates[direction];
            bw.add(times.complete, bytes, 1024);
            iops.add(times.complete, 1, 1);
        }
        if self.keeps_entries {
            let when = times.complete.since(self.began);
            self.entries.push(Entry { when, unit: *unit, times: [slat, clat, lat] });
        }
    }

    /// A block was read back after the run.
    pub fn verified(&mut self, unit: &Unit, times: Times, done: Result<u64, Errno>) {
        match done {
            Ok(bytes) => self.count(unit, bytes, times),
            Err(errno) => self.fail(unit, errno),
        }
    }

    /// A sync is complete.
    pub fn synced(&mut self, span: Nanos, done: Result<(), Errno>) {
        self.sync.add(span);
        if let Err(errno) = done
            && self.error.is_none()
        {
            self.error = Some((errno, "sync".into()));
        }
    }

    /// The last figures, at the job's end.
    pub fn finish(&mut self, now: Nanos) {
        let worked = now.since(self.counted_from);
        for (figures, (bw, iops)) in self.directions.iter_mut().zip(&self.rates) {
            figures.bw = bw.samples;
            figures.iops = iops.samples;
            if figures.ios > 0 {
                figures.runtime = worked;
            }
        }
    }
}
