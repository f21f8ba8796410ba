//! The iterations of a run, and what is known about them afterwards.

use base::{Errno, Nanos};
use rt::{Cx, JoinHandle};
use thiserror::Error;

use super::options::Options;
use super::output;
use super::thread::{Thread, ThreadResult};
use crate::{Histogram, Sink, Stats, Stop, Target, Timeline};

/// The length of an interval of [`Report::timeline`].
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Why a run ended with exit status 1. The text is the tool's own.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The files of the next iteration would not fit: how a run with `-F` ends. The tool prints it
    /// to standard output.
    #[error("Insufficient free space in {directory} to create {files} new files, exiting")]
    NoSpace {
        /// The directory.
        directory: String,
        /// Files that a thread would create.
        files: u64,
    },
    /// A directory could not be made.
    #[error("fill_dir:mkdir {path} failed: {}", errno.text())]
    Mkdir {
        /// The directory.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// A file could not be created.
    #[error("Error in creat: {}", .0.text())]
    Create(Errno),
    /// A write failed.
    #[error("fs_mark: write_file write failed: -1 {}", .0.text())]
    Write(Errno),
    /// Another call failed.
    #[error("fs_mark: {call} {path} failed: {}", errno.text())]
    Call {
        /// The call's name.
        call: &'static str,
        /// Its file.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// A directory of the host was asked for in virtual time.
    #[error("fs_mark: a directory of the host has no virtual time")]
    Clock,
}

/// Times of one kind of system call.
#[derive(Clone, Debug, Default)]
pub struct CallStats {
    /// Summary, nanoseconds.
    pub stats: Stats,
    /// Distribution, nanoseconds.
    pub histogram: Histogram,
}

impl CallStats {
    /// Adds the time of a call.
    pub(super) fn add(&mut self, span: Nanos) {
        self.stats.add(span.0);
        self.histogram.add(span.0);
    }

    fn merge(&mut self, other: &CallStats) {
        self.stats.merge(&other.stats);
        self.histogram.merge(&other.histogram);
    }
}

/// Times of all kinds of system calls, in the order of the tool's columns.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// open(2) of a new file.
    pub create: CallStats,
    /// Each write(2).
    pub write: CallStats,
    /// Each fsync(2).
    pub fsync: CallStats,
    /// sync(2).
    pub sync: CallStats,
    /// close(2).
    pub close: CallStats,
    /// unlink(2).
    pub unlink: CallStats,
}

impl Calls {
    /// The kinds in the order of the tool's columns.
    pub fn all(&self) -> [&CallStats; 6] {
        [&self.create, &self.write, &self.fsync, &self.sync, &self.close, &self.unlink]
    }

    /// Adds the times that another thread or iteration saw.
    pub(super) fn merge(&mut self, other: &Calls) {
        self.create.merge(&other.create);
        self.write.merge(&other.write);
        self.fsync.merge(&other.fsync);
        self.sync.merge(&other.sync);
        self.close.merge(&other.close);
        self.unlink.merge(&other.unlink);
    }

    /// Time in the calls that count as writing a file.
    pub(super) fn writing(&self) -> f64 {
        let calls = [&self.create, &self.write, &self.fsync, &self.sync, &self.close];
        calls.iter().map(|call| call.stats.sum()).sum()
    }
}

/// One iteration: a row of the tool's table.
#[derive(Clone, PartialEq, Debug)]
pub struct Iteration {
    /// When it began, on the clock of the run.
    pub start: Nanos,
    /// When it ended, removal of the files included.
    pub end: Nanos,
    /// Files of this iteration, all threads.
    pub files: u64,
    /// Files since the run began, all threads.
    pub count: u64,
    /// The sum of the threads' rates; removal is not counted.
    pub files_per_second: f64,
    /// Time in the test outside of the calls that write files, all threads.
    pub overhead: Nanos,
    /// Share of the first directory's file system that is not available, percent.
    pub used_percent: u64,
    /// False for the last one of a run that was stopped or failed: the tool prints no row for it.
    pub complete: bool,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The iterations, in order.
    pub iterations: Vec<Iteration>,
    /// Times of the system calls of all iterations.
    pub calls: Calls,
    /// Time of a file from its creation until it is closed (and, with `-S 1`, durable).
    pub file: CallStats,
    /// Files and bytes finished per 100 ms.
    pub timeline: Timeline,
    /// Why the run ended before its time; `None` where it came to its end or was stopped.
    pub failure: Option<Failure>,
    /// True where the [`Stop`] ended it.
    pub stopped: bool,
}

impl Report {
    fn new(start: Nanos) -> Report {
        Report {
            iterations: Vec::new(),
            calls: Calls::default(),
            file: CallStats::default(),
            timeline: Timeline::new(start, INTERVAL),
            failure: None,
            stopped: false,
        }
    }

    /// Files that were finished in all.
    pub fn files(&self) -> u64 {
        self.iterations.iter().map(|iteration| iteration.files).sum()
    }

    /// The exit status of the tool.
    pub fn exit_status(&self) -> u8 {
        u8::from(self.failure.is_some())
    }
}

/// Runs fs_mark. May park.
///
/// Ends with all iterations done, a failure (exit status 1), or when `stop` is due; then files stay
/// where they are, as where the tool is killed.
pub fn run(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Report {
    let mut report = Report::new(cx.now());
    if !target.fits(cx) {
        return failed(report, Failure::Clock, sink);
    }
    let (out, log) = output::start(options, cx.realtime());
    sink.out(&out);
    sink.log(&log);
    let first = first_subdirectory(cx, options);
    let mut done = 0;
    while (options.fill || done < options.iterations) && !report.stopped {
        match iterate(cx, target, options, stop, first, &mut report) {
            Ok(Some(row)) => {
                sink.out(&row);
                sink.log(&row);
            }
            Ok(None) => report.stopped = true,
            Err(failure) => return failed(report, failure, sink),
        }
        done += 1;
    }
    report
}

fn failed(mut report: Report, failure: Failure, sink: &mut dyn Sink) -> Report {
    let text = format!("{failure}\n");
    match failure {
        Failure::NoSpace { .. } => sink.out(&text),
        _ => sink.err(&text),
    }
    report.failure = Some(failure);
    report
}

/// The subdirectory in which every iteration begins, from the runtime's seed.
fn first_subdirectory(cx: &mut Cx, options: &Options) -> u64 {
    match options.subdirectories {
        0 => 0,
        count => cx.rng().below(count),
    }
}

/// One iteration: the threads, then its row, or `None` where the run is stopped.
fn iterate(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    first: u64,
    report: &mut Report,
) -> Result<Option<String>, Failure> {
    let start = cx.now();
    for directory in &options.directories {
        let path = directory.clone();
        let made = target.make_path(cx, directory.as_bytes());
        made.map_err(|errno| Failure::Mkdir { path, errno })?;
    }
    let timeline = Timeline::new(report.timeline.start(), INTERVAL);
    let threads: Vec<JoinHandle<ThreadResult>> = (0..options.threads)
        .map(|number| {
            let thread = Thread::new(target, options, stop, number, first, timeline.clone());
            cx.spawn(&format!("fs_mark-{number}"), move |cx| thread.run(cx))
        })
        .collect();
    let results: Vec<ThreadResult> = threads.into_iter().map(|thread| thread.join(cx)).collect();
    let (iteration, calls) = summarize(cx, start, &results, report);
    report.iterations.push(iteration);
    if let Some(failure) = results.into_iter().find_map(|result| result.failure) {
        return Err(failure);
    }
    let last = report.iterations.last_mut().expect("just pushed");
    if !last.complete {
        return Ok(None);
    }
    let space = target.space(cx, options.directories[0].as_bytes());
    last.used_percent = space.map_or(0, |space| space.used_percent());
    Ok(Some(output::row(options, last, &calls)))
}

fn summarize(
    cx: &Cx,
    start: Nanos,
    results: &[ThreadResult],
    report: &mut Report,
) -> (Iteration, Calls) {
    let mut calls = Calls::default();
    let mut iteration = Iteration {
        start,
        end: cx.now(),
        files: 0,
        count: report.files(),
        files_per_second: 0.0,
        overhead: Nanos::ZERO,
        used_percent: 0,
        complete: true,
    };
    for result in results {
        calls.merge(&result.calls);
        report.file.merge(&result.file);
        report.timeline.merge(&result.timeline);
        iteration.files += result.files;
        iteration.files_per_second += result.files as f64 / result.writing.as_secs_f64().max(1e-9);
        let overhead = result.writing.0 as f64 - result.calls.writing();
        iteration.overhead += Nanos(overhead.max(0.0) as u64);
        iteration.complete &= result.complete;
    }
    iteration.count += iteration.files;
    report.calls.merge(&calls);
    (iteration, calls)
}
