//! The work itself.

use std::sync::Arc;

use base::{Errno, Nanos, Rng};
use rt::{Cx, SpinLock, WaitQueue};
use thiserror::Error;
use vfs::OpenFlags;

use super::latency::Latency;
use super::options::{Dialect, Extra, IoMode, Mode, Options};
use super::{output, validate};
use crate::{NullSink, Sink, Stats, Stop, Target, TargetFile};

/// Bytes of a page of the host, by which mappings are faulted in.
const PAGE: u64 = 4096;
/// Most tasks of all threads in mode async.
const LANES_MAX: u64 = 1024;

/// Why a run ended before its time.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// A call on a file failed.
    #[error("FATAL: {call} of file `{path}` failed: {}", errno.text())]
    Call {
        /// The call.
        call: &'static str,
        /// The file.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// A file is smaller than the command line says.
    #[error(
        "FATAL: Size of file '{path}' is {size}B, but at least {wanted}B is expected. \
             Run 'prepare' first."
    )]
    Size {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// What is needed.
        wanted: u64,
    },
    /// A block is not what was written.
    #[error(
        "FATAL: Validation failed on file {file}, block offset {offset}: checksum or place differ"
    )]
    Content {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
    },
    /// A directory of the host was asked for in virtual time.
    #[error("FATAL: a directory of the host has no virtual time")]
    Clock,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadReport {
    /// Requests.
    pub events: u64,
    /// Time in them.
    pub time: Nanos,
}

/// What a run did, or a part of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// fsyncs.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// From the first request until everything is durable.
    pub total: Nanos,
    /// Of that, what the figures are of: since the last checkpoint.
    pub span: Nanos,
    /// Of that, the fsync of all files at the end.
    pub final_fsync: Nanos,
    /// Times of the requests, nanoseconds.
    pub requests: Stats,
    /// Their distribution.
    pub latency: Latency,
    /// Each thread.
    pub threads: Vec<ThreadReport>,
    /// Why it ended before its time.
    pub failure: Option<Failure>,
}

impl Report {
    fn add(&mut self, thread: usize, tally: &Tally) {
        self.reads += tally.reads;
        self.writes += tally.writes;
        self.others += tally.others;
        self.read_bytes += tally.bytes.0;
        self.write_bytes += tally.bytes.1;
        self.requests.merge(&tally.requests);
        self.latency.merge(&tally.latency);
        let own = &mut self.threads[thread];
        own.events += tally.requests.count();
        own.time += Nanos(tally.requests.sum() as u64);
    }
}

/// What a thread has done since the last checkpoint.
#[derive(Clone, Debug, Default)]
struct Tally {
    reads: u64,
    writes: u64,
    others: u64,
    bytes: (u64, u64),
    requests: Stats,
    latency: Latency,
}

/// The name of a file.
fn file_name(index: u64) -> String {
    format!("test_file.{index}")
}

fn failed(call: &'static str, index: u64) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Call { call, path: file_name(index), errno }
}

/// Makes the files and fills them, as far as they are not there. May park.
///
/// # Errors
/// The call that failed.
pub fn prepare(cx: &mut Cx, target: &Target, options: &Options) -> Result<Prepared, Failure> {
    let (size, start) = (options.file_size(), cx.now());
    let block = options.block_size as usize;
    // Zeros, as the tool's.
    let mut piece = vec![0; block * (256usize << 10).div_ceil(block)];
    let mut prepared = Prepared::default();
    for index in 0..options.files {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = target
            .open(cx, file_name(index).as_bytes(), flags, 0o600)
            .map_err(failed("open", index))?;
        let mut at = file.size(cx).map_err(failed("fstat", index))?;
        prepared.reused.push(at >= size);
        if options.validate {
            at -= at % options.block_size;
        }
        while at < size {
            let len = (size - at).min(piece.len() as u64) as usize;
            if options.validate {
                validate::stamp(&mut piece[..len], block, index, at);
            }
            let done = file.write_at(cx, at, &piece[..len]);
            let done = done.map_err(failed("write", index))? as u64;
            at += done;
            prepared.bytes += done;
        }
        file.fsync(cx, false).map_err(failed("fsync", index))?;
        file.close(cx).map_err(failed("close", index))?;
    }
    prepared.time = cx.now().since(start);
    Ok(prepared)
}

/// What [`prepare`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prepared {
    /// Bytes written.
    pub bytes: u64,
    /// Time that it took.
    pub time: Nanos,
    /// For each file: it was there.
    pub reused: Vec<bool>,
}

/// Removes the files. May park.
///
/// # Errors
/// The call that failed.
pub fn cleanup(cx: &mut Cx, target: &Target, options: &Options) -> Result<(), Failure> {
    for index in 0..options.files {
        match target.unlink(cx, file_name(index).as_bytes()) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failed("unlink", index)(errno)),
        }
    }
    Ok(())
}

/// What the threads share.
struct Shared {
    options: Options,
    files: Vec<TargetFile>,
    stop: Stop,
    state: SpinLock<State>,
    tallies: Vec<SpinLock<Tally>>,
    /// Threads that have not ended.
    running: SpinLock<u64>,
    ended: WaitQueue,
}

/// The choice of the next request.
struct State {
    rng: Rng,
    /// When the next request is due, where they come at a rate.
    arrivals: Option<(Rng, Nanos)>,
    reads: u64,
    writes: u64,
    /// fsyncs that were requests of their own.
    syncs: u64,
    /// Something was written since the last round of them.
    dirty: bool,
    /// The next file of such a round.
    round: Option<u64>,
    /// The next byte of a sequential test.
    next: u64,
    failure: Option<Failure>,
}

/// A request.
#[derive(Clone, Copy)]
enum Request {
    Io { write: bool, file: u64, offset: u64, len: u64 },
    Sync { file: u64 },
}

impl Shared {
    /// The next request and when it is due; `None` where the run is over.
    fn next(&self, cx: &Cx) -> Option<(Request, Nanos)> {
        let options = &self.options;
        let mut state = self.state.lock(cx);
        let number = state.reads + state.writes + state.syncs;
        let over = options.requests > 0 && number >= options.requests;
        if over || state.failure.is_some() || self.stop.is_due(cx) {
            return None;
        }
        let request = state.choose(options)?;
        let due = match &mut state.arrivals {
            None => cx.now(),
            Some((rng, due)) => {
                let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                *due += Nanos((-(1.0 - unit).ln() * 1e9 / options.rate as f64) as u64);
                *due
            }
        };
        Some((request, due))
    }

    fn serve(
        &self,
        cx: &mut Cx,
        request: Request,
        buf: &mut [u8],
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let (write, index, offset, len) = match request {
            Request::Sync { file } => {
                tally.others += 1;
                return self.sync(cx, file);
            }
            Request::Io { write, file, offset, len } => (write, file, offset, len),
        };
        let (file, buf) = (&self.files[index as usize], &mut buf[..len as usize]);
        let block = self.options.block_size as usize;
        if !write {
            tally.reads += 1;
            let count = file.read_at(cx, offset, buf).map_err(failed("read", index))?;
            tally.bytes.0 += count as u64;
            let wrong = || validate::mismatch(&buf[..count], block, index, offset);
            return match self.options.validate.then(wrong).flatten() {
                Some(offset) => Err(Failure::Content { file: index, offset }),
                None => Ok(()),
            };
        }
        if self.options.io_mode == IoMode::Mmap {
            // A fault brings whole pages before a store changes a part of them.
            let first = offset / PAGE * PAGE;
            let mut pages = vec![0; ((offset + len).next_multiple_of(PAGE) - first) as usize];
            file.read_at(cx, first, &mut pages).map_err(failed("read", index))?;
        }
        if self.options.validate {
            validate::stamp(buf, block, index, offset);
        }
        tally.writes += 1;
        tally.bytes.1 += len;
        file.write_at(cx, offset, buf).map_err(failed("write", index))?;
        if self.options.fsync_all {
            tally.others += 1;
            self.sync(cx, index)?;
        }
        Ok(())
    }

    fn sync(&self, cx: &mut Cx, index: u64) -> Result<(), Failure> {
        let file = &self.files[index as usize];
        file.fsync(cx, self.options.fdatasync).map_err(failed("fsync", index))
    }

    fn thread(&self, cx: &mut Cx, number: usize) {
        let mut buf = crate::AlignedBuffer::new(self.options.request_max() as usize);
        while let Some((request, due)) = self.next(cx) {
            let early = due.since(cx.now());
            if early > Nanos(0) {
                cx.sleep(early);
            }
            let mut done_now = Tally::default();
            let done = self.serve(cx, request, buf.bytes_mut(), &mut done_now);
            let span = cx.now().since(due);
            let mut tally = self.tallies[number].lock(cx);
            tally.reads += done_now.reads;
            tally.writes += done_now.writes;
            tally.others += done_now.others;
            tally.bytes.0 += done_now.bytes.0;
            tally.bytes.1 += done_now.bytes.1;
            tally.requests.add(span.0);
            tally.latency.add(span.0);
            drop(tally);
            if let Err(failure) = done {
                self.state.lock(cx).failure.get_or_insert(failure);
            }
        }
        *self.running.lock(cx) -= 1;
        self.ended.wake_all();
    }
}

impl State {
    fn choose(&mut self, options: &Options) -> Option<Request> {
        if let Some(file) = self.round {
            self.round = Some(file + 1).filter(|&next| next < options.files);
            self.syncs += 1;
            return Some(Request::Sync { file });
        }
        let (block, size) = (options.block_size, options.file_size());
        let write = match options.mode {
            Mode::SeqWr | Mode::SeqRewr | Mode::RndWr => true,
            Mode::SeqRd | Mode::RndRd => false,
            // The share of reads so far decides.
            Mode::RndRw => (self.reads + 1) as f64 / (self.writes + 1) as f64 >= options.rw_ratio,
        };
        let blocks = size / block;
        let (file, offset, len) = if options.mode.is_random() {
            let at = self.rng.below(blocks * options.files);
            (at / blocks, at % blocks * block, block)
        } else {
            // Version 1.0 begins again until something else ends the run.
            if self.next == size * options.files && options.dialect == Dialect::New {
                self.next = 0;
            }
            let (file, offset) = (self.next / size, self.next % size);
            if file == options.files {
                return None;
            }
            let len = options.request_max().min(size - offset);
            self.next += len;
            (file, offset, len)
        };
        *(if write { &mut self.writes } else { &mut self.reads }) += 1;
        self.dirty |= write;
        let freq = options.fsync_freq;
        let due = freq > 0 && (self.reads + self.writes).is_multiple_of(freq);
        if due && self.dirty && !options.fsync_all {
            self.round = Some(0);
            self.dirty = false;
        }
        Some(Request::Io { write, file, offset, len })
    }
}

fn open_files(cx: &mut Cx, target: &Target, options: &Options) -> Result<Vec<TargetFile>, Failure> {
    let mut flags = OpenFlags::READ | OpenFlags::WRITE;
    match options.extra {
        Extra::None => {}
        Extra::Sync => flags |= OpenFlags::SYNC,
        Extra::Dsync => flags |= OpenFlags::DSYNC,
        Extra::Direct => flags |= OpenFlags::DIRECT,
    }
    if options.mode == Mode::SeqWr {
        flags |= OpenFlags::CREATE;
    }
    let mut files = Vec::new();
    for index in 0..options.files {
        let path = file_name(index);
        let file = target.open(cx, path.as_bytes(), flags, 0o600).map_err(failed("open", index))?;
        let size = file.size(cx).map_err(failed("fstat", index))?;
        let wanted = options.file_size();
        if options.mode != Mode::SeqWr && size < wanted {
            return Err(Failure::Size { path, size, wanted });
        }
        files.push(file);
    }
    Ok(files)
}

/// Runs the test on files that [`prepare`] made. May park.
///
/// Ends with all requests done, after the time that the command line says, or when `stop` is due;
/// then all files are made durable, unless the command line says otherwise.
pub fn run(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Report {
    let mut quiet = NullSink;
    let notices: &mut dyn Sink = if options.verbosity >= 3 { &mut *sink } else { &mut quiet };
    notices.out(&output::start(options));
    let (report, last) = work(cx, target, options, stop, notices);
    match &report.failure {
        Some(failure) => sink.err(&format!("{failure}\n")),
        None if options.verbosity >= 3 => sink.out(&output::summary(options, &last)),
        None => {}
    }
    report
}

/// Returns what the whole run did, and what since the last checkpoint.
fn work(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> (Report, Report) {
    let fails =
        |failure| (Report { failure: Some(failure), ..Report::default() }, Report::default());
    if !target.fits(cx) {
        return fails(Failure::Clock);
    }
    let files = match open_files(cx, target, options) {
        Ok(files) => files,
        Err(failure) => return fails(failure),
    };
    let start = cx.now();
    let stop = stop.nested();
    if options.seconds > 0 {
        stop.set_deadline(start + Nanos::from_secs(options.seconds));
    }
    let seed = if options.seed > 0 { options.seed } else { cx.random() };
    let state = State {
        rng: Rng::new(seed, 0x7379_7362_656e_6368),
        arrivals: (options.rate > 0).then(|| (Rng::new(seed, 0x7261_7465), start)),
        reads: 0,
        writes: 0,
        syncs: 0,
        dirty: false,
        round: None,
        next: 0,
        failure: None,
    };
    let lanes = match options.io_mode {
        IoMode::Async => options.backlog.min(LANES_MAX / options.threads).max(1),
        _ => 1,
    };
    let tally = || SpinLock::named("sysbench thread", Tally::default());
    let shared = Arc::new(Shared {
        options: options.clone(),
        files,
        stop,
        state: SpinLock::named("sysbench", state),
        tallies: (0..options.threads).map(|_| tally()).collect(),
        running: SpinLock::named("sysbench threads", options.threads * lanes),
        ended: WaitQueue::named("sysbench threads"),
    });
    let tasks: Vec<_> = (0..options.threads * lanes)
        .map(|number| {
            let (shared, thread) = (shared.clone(), (number % options.threads) as usize);
            cx.spawn(&format!("sysbench-{number}"), move |cx| shared.thread(cx, thread))
        })
        .collect();
    let mut parts = Parts::new(start, options);
    parts.watch(cx, &shared, sink);
    for task in tasks {
        task.join(cx);
    }
    finish(cx, shared, parts)
}

/// Reports while the threads work.
struct Parts {
    start: Nanos,
    /// The last checkpoint.
    since: Nanos,
    /// All before it.
    before: Report,
    /// What was reported last, and when.
    reported: (Report, Nanos),
}

impl Parts {
    fn new(start: Nanos, options: &Options) -> Parts {
        let empty = empty(options);
        Parts { start, since: start, before: empty.clone(), reported: (empty, start) }
    }

    /// Since the last checkpoint.
    fn report(&self, cx: &Cx, shared: &Shared) -> Report {
        let mut report = empty(&shared.options);
        for (thread, tally) in shared.tallies.iter().enumerate() {
            report.add(thread, &tally.lock(cx).clone());
        }
        report.span = cx.now().since(self.since);
        report.total = cx.now().since(self.start);
        report
    }

    /// Reports what is due at its time, until all threads have ended.
    fn watch(&mut self, cx: &mut Cx, shared: &Shared, sink: &mut dyn Sink) {
        let options = &shared.options;
        let interval = Nanos::from_secs(options.report_interval);
        let mut next = (interval > Nanos(0)).then(|| self.start + interval);
        let mut checkpoints = options.checkpoints.iter().map(|&at| Nanos::from_secs(at));
        let mut check = checkpoints.next().map(|at| self.start + at);
        while let Some(at) = next.into_iter().chain(check).min() {
            let over = || *shared.running.lock_irq() == 0;
            let wait = at.since(cx.now());
            if shared.ended.wait_until_timeout(cx, "sysbench threads", wait, over) {
                return;
            }
            if next == Some(at) {
                next = Some(at + interval);
                let now = self.report(cx, shared);
                let span = cx.now().since(self.reported.1);
                sink.out(&output::interval(options, &now, &self.reported.0, span));
                self.reported = (now, cx.now());
            }
            if check == Some(at) {
                check = checkpoints.next().map(|at| self.start + at);
                let report = self.report(cx, shared);
                sink.out(&output::checkpoint(options, &report));
                self.checkpoint(cx, shared);
            }
        }
    }

    fn checkpoint(&mut self, cx: &Cx, shared: &Shared) {
        for (thread, tally) in shared.tallies.iter().enumerate() {
            self.before.add(thread, &std::mem::take(&mut *tally.lock(cx)));
        }
        self.since = cx.now();
        self.reported = (empty(&shared.options), cx.now());
    }
}

fn empty(options: &Options) -> Report {
    let threads = vec![ThreadReport::default(); options.threads as usize];
    Report { threads, ..Report::default() }
}

/// Makes everything durable, closes the files and adds up.
fn finish(cx: &mut Cx, shared: Arc<Shared>, mut parts: Parts) -> (Report, Report) {
    let before = cx.now();
    let options = &shared.options;
    let mut done = Ok(());
    // A test that only reads has nothing to make durable.
    let wanted = options.fsync_end && !options.fsync_all;
    let writes = !matches!(options.mode, Mode::SeqRd | Mode::RndRd);
    if wanted && writes && shared.state.lock(cx).failure.is_none() {
        for index in 0..options.files {
            shared.tallies[0].lock(cx).others += 1;
            done = done.and(shared.sync(cx, index));
        }
    }
    let mut last = parts.report(cx, &shared);
    last.final_fsync = cx.now().since(before);
    parts.checkpoint(cx, &shared);
    let mut report = parts.before;
    report.final_fsync = last.final_fsync;
    (report.total, report.span) = (last.total, last.total);
    let shared = Arc::into_inner(shared).expect("the threads have ended");
    for (index, file) in shared.files.into_iter().enumerate() {
        done = done.and(file.close(cx).map_err(failed("close", index as u64)));
    }
    report.failure = shared.state.into_inner().failure.or(done.err());
    (report, last)
}
