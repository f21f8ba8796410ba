//! The work itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Errno, Nanos, Rng};
use rt::{Cx, SpinLock};
use thiserror::Error;
use vfs::OpenFlags;

use super::options::{Extra, Mode, Options};
use super::output;
use crate::{Histogram, Sink, Stats, Stop, Target, TargetFile};

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

/// What a run did.
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
    /// Of that, the fsync of all files at the end.
    pub final_fsync: Nanos,
    /// Times of the requests, nanoseconds.
    pub requests: Stats,
    /// Their distribution.
    pub latency: Histogram,
    /// Each thread.
    pub threads: Vec<ThreadReport>,
    /// Why it ended before its time.
    pub failure: Option<Failure>,
}

/// The name of a file.
fn file_name(index: u64) -> String {
    format!("test_file.{index}")
}

fn failed(call: &'static str, index: u64) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Call { call, path: file_name(index), errno }
}

/// Makes the files and fills them. May park.
///
/// # Errors
/// The call that failed.
pub fn prepare(cx: &mut Cx, target: &Target, options: &Options) -> Result<u64, Failure> {
    let size = options.file_size();
    let piece: Vec<u8> = (0..(256u32 << 10)).map(|n| (n % 253) as u8).collect();
    for index in 0..options.files {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = target
            .open(cx, file_name(index).as_bytes(), flags, 0o600)
            .map_err(failed("open", index))?;
        let mut at = file.size(cx).map_err(failed("fstat", index))?;
        while at < size {
            let len = (size - at).min(piece.len() as u64) as usize;
            let done = file.write_at(cx, at, &piece[..len]);
            at += done.map_err(failed("write", index))? as u64;
        }
        file.fsync(cx, false).map_err(failed("fsync", index))?;
        file.close(cx).map_err(failed("close", index))?;
    }
    Ok(options.files * size)
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
    others: AtomicU64,
}

/// The choice of the next request.
struct State {
    rng: Rng,
    reads: u64,
    writes: u64,
    /// The next block of a sequential test.
    next: u64,
    failure: Option<Failure>,
}

/// A request.
struct Request {
    write: bool,
    file: u64,
    offset: u64,
    len: u64,
    /// So many requests were chosen before it.
    number: u64,
}

impl Shared {
    /// The next request; `None` where the run is over.
    fn next(&self, cx: &Cx) -> Option<Request> {
        let options = &self.options;
        let mut state = self.state.lock(cx);
        let number = state.reads + state.writes;
        let over = options.requests > 0 && number >= options.requests;
        if over || state.failure.is_some() || self.stop.is_due(cx) {
            return None;
        }
        let write = match options.mode {
            Mode::SeqWr | Mode::SeqRewr | Mode::RndWr => true,
            Mode::SeqRd | Mode::RndRd => false,
            // The share of reads so far decides.
            Mode::RndRw => (state.reads + 1) as f64 / (state.writes + 1) as f64 >= options.rw_ratio,
        };
        let (block, size) = (options.block_size, options.file_size());
        let blocks = size / block;
        let at = if options.mode.is_random() {
            state.rng.below(blocks * options.files)
        } else {
            let at = state.next;
            if at == blocks * options.files {
                return None;
            }
            state.next += 1;
            at
        };
        *(if write { &mut state.writes } else { &mut state.reads }) += 1;
        let (file, offset) = (at / blocks, at % blocks * block);
        Some(Request { write, file, offset, len: block, number })
    }

    fn serve(&self, cx: &mut Cx, request: &Request, buf: &mut [u8]) -> Result<(), Failure> {
        let (file, index) = (&self.files[request.file as usize], request.file);
        let buf = &mut buf[..request.len as usize];
        if request.write {
            file.write_at(cx, request.offset, buf).map_err(failed("write", index))?;
            if self.options.fsync_all {
                self.sync(cx, index)?;
            }
        } else {
            file.read_at(cx, request.offset, buf).map_err(failed("read", index))?;
        }
        let freq = self.options.fsync_freq;
        if freq > 0 && request.write && (request.number + 1).is_multiple_of(freq) {
            (0..self.options.files).try_for_each(|index| self.sync(cx, index))?;
        }
        Ok(())
    }

    fn sync(&self, cx: &mut Cx, index: u64) -> Result<(), Failure> {
        self.others.fetch_add(1, Ordering::Relaxed);
        let file = &self.files[index as usize];
        file.fsync(cx, self.options.fdatasync).map_err(failed("fsync", index))
    }

    fn thread(&self, cx: &mut Cx) -> (ThreadReport, Stats, Histogram) {
        let mut buf = crate::AlignedBuffer::new(self.options.block_size as usize);
        let (mut own, mut stats, mut times) =
            (ThreadReport::default(), Stats::new(), Histogram::new());
        while let Some(request) = self.next(cx) {
            let start = cx.now();
            let done = self.serve(cx, &request, buf.bytes_mut());
            let span = cx.now().since(start);
            own.events += 1;
            own.time += span;
            stats.add(span.0);
            times.add(span.0);
            if let Err(failure) = done {
                self.state.lock(cx).failure.get_or_insert(failure);
            }
        }
        (own, stats, times)
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
    sink.out(&output::start(options));
    let report = run_silently(cx, target, options, stop);
    match &report.failure {
        Some(failure) => sink.err(&format!("{failure}\n")),
        None => sink.out(&output::summary(options, &report)),
    }
    report
}

fn run_silently(cx: &mut Cx, target: &Target, options: &Options, stop: &Stop) -> Report {
    if !target.fits(cx) {
        return Report { failure: Some(Failure::Clock), ..Report::default() };
    }
    let files = match open_files(cx, target, options) {
        Ok(files) => files,
        Err(failure) => return Report { failure: Some(failure), ..Report::default() },
    };
    let start = cx.now();
    let stop = stop.nested();
    if options.seconds > 0 {
        stop.set_deadline(start + Nanos::from_secs(options.seconds));
    }
    let seed = if options.seed > 0 { options.seed } else { cx.random() };
    let rng = Rng::new(seed, 0x7379_7362_656e_6368);
    let state = State { rng, reads: 0, writes: 0, next: 0, failure: None };
    let shared = Arc::new(Shared {
        options: options.clone(),
        files,
        stop,
        state: SpinLock::named("sysbench", state),
        others: AtomicU64::new(0),
    });
    let tasks: Vec<_> = (0..options.threads)
        .map(|number| {
            let shared = shared.clone();
            cx.spawn(&format!("sysbench-{number}"), move |cx| shared.thread(cx))
        })
        .collect();
    let mut report = Report::default();
    for task in tasks {
        let (thread, stats, times) = task.join(cx);
        report.threads.push(thread);
        report.requests.merge(&stats);
        report.latency.merge(&times);
    }
    finish(cx, shared, start, report)
}

/// Makes everything durable, closes the files and adds up.
fn finish(cx: &mut Cx, shared: Arc<Shared>, start: Nanos, mut report: Report) -> Report {
    let before = cx.now();
    let mut done = Ok(());
    if shared.options.fsync_end && shared.state.lock(cx).failure.is_none() {
        done = (0..shared.options.files).try_for_each(|index| shared.sync(cx, index));
    }
    report.final_fsync = cx.now().since(before);
    report.total = cx.now().since(start);
    let shared = Arc::into_inner(shared).expect("the threads have ended");
    for (index, file) in shared.files.into_iter().enumerate() {
        done = done.and(file.close(cx).map_err(failed("close", index as u64)));
    }
    let state = shared.state.into_inner();
    (report.reads, report.writes) = (state.reads, state.writes);
    report.read_bytes = report.reads * shared.options.block_size;
    report.write_bytes = report.writes * shared.options.block_size;
    report.others = shared.others.load(Ordering::Relaxed);
    report.failure = state.failure.or(done.err());
    report
}
