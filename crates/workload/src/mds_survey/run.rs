//! The points of a survey.

use std::fmt::Write;
use std::sync::Arc;

use base::{Errno, Ino, Nanos};
use rt::Cx;
use thiserror::Error;
use vfs::{FileSystem, FileType, Namespace, NewNode, OpenFlags, XattrFlags};

use super::options::{Layer, Options, Test};
use crate::calendar::ctime;
use crate::{Sink, Stop, Target, Timeline};

/// The interval of the smallest and largest rate.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// What `setxattr` sets.
const ATTRIBUTE: (&[u8], &[u8]) = (b"user.mds_survey", b"0123456789abcdef0123456789abcdef");

/// Why a survey ended with exit status 1.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The host has files only.
    #[error("mds-survey works on our path: --target IMAGE or sim:PROFILE")]
    Host,
    /// An operation failed.
    #[error("{test}: {path}: {}", .errno.text())]
    Operation {
        /// The test.
        test: &'static str,
        /// The file.
        path: String,
        /// Why.
        errno: Errno,
    },
}

/// One test at one number of threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Which.
    pub test: Test,
    /// Operations per second over all threads.
    pub rate: f64,
    /// The smallest rate of a whole second.
    pub min: f64,
    /// The largest rate of a whole second.
    pub max: f64,
    /// Operations.
    pub operations: u64,
}

/// All tests at one number of threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Threads.
    pub threads: u64,
    /// Its tests.
    pub points: Vec<Point>,
}

/// What a survey found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each number of threads.
    pub lines: Vec<Line>,
    /// Why it ended early.
    pub failure: Option<Failure>,
    /// The stop ended it.
    pub stopped: bool,
}

impl Report {
    /// As the script's.
    pub fn exit_status(&self) -> u8 {
        u8::from(self.failure.is_some())
    }
}

/// Runs a survey. May park. The lines of the summary go to the sink's output, the raw ones to its
/// log.
pub fn run(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Report {
    let mut report = Report::default();
    sink.out(&format!("{} mds-survey from iopath\n", ctime(cx.realtime())));
    let Target::Ours(names, base) = target else {
        sink.err(&format!("{}\n", Failure::Host));
        report.failure = Some(Failure::Host);
        return report;
    };
    for threads in options.points() {
        if stop.is_due(cx) {
            report.stopped = true;
            break;
        }
        let survey = Survey { names, base, options, stop, threads };
        let mut line = Line { threads, points: Vec::new() };
        let done = survey.line(cx, &mut line, sink);
        sink.out(&text_of(options, &line, done.is_err()));
        report.lines.push(line);
        if let Err(failure) = done {
            sink.err(&format!("{failure}\n"));
            report.failure = Some(failure);
            break;
        }
    }
    report.stopped |= stop.is_due(cx);
    report
}

fn text_of(options: &Options, line: &Line, failed: bool) -> String {
    let (files, dirs, threads) = (options.files, options.directories, line.threads);
    let mut text = format!("mdt {:1} file {files:7} dir {dirs:4} thr {threads:4} ", 1);
    for point in &line.points {
        let Point { test, rate, min, max, .. } = point;
        write!(text, "{} {rate:7.2} [ {min:7.2}, {max:7.2}] ", test.name())
            .expect("writing to a string");
    }
    if failed {
        let test = options.tests.get(line.points.len()).map_or("", |test| test.name());
        write!(text, "{test} {:>17} ", "ERROR").expect("writing to a string");
    }
    text.push('\n');
    text
}

/// A number of threads, at work.
struct Survey<'a> {
    names: &'a Namespace,
    base: &'a [u8],
    options: &'a Options,
    stop: &'a Stop,
    threads: u64,
}

/// What one thread does in a test.
struct Worker {
    names: Namespace,
    layer: Layer,
    test: Test,
    dir: Ino,
    path: String,
    /// Numbers of its files.
    numbers: std::ops::Range<u64>,
    stop: Stop,
}

impl Survey<'_> {
    fn line(&self, cx: &mut Cx, line: &mut Line, sink: &mut dyn Sink) -> Result<(), Failure> {
        let dirs = self.make_directories(cx)?;
        for &test in &self.options.tests {
            let point = self.point(cx, test, &dirs)?;
            let (count, threads) = (point.operations, self.threads);
            let seconds = count as f64 / point.rate.max(1e-9);
            sink.log(&format!(
                "{}: Total: total {count} threads {threads} sec {seconds:.6} {:.6}/second\n",
                test.name(),
                point.rate
            ));
            line.points.push(point);
            if self.stop.is_due(cx) {
                return Ok(());
            }
        }
        for (path, _) in &dirs {
            let gone = self.names.rmdir(cx, path.as_bytes());
            gone.map_err(failure("rmdir", path))?;
        }
        Ok(())
    }

    /// `MDT0000-tests`, `MDT0000-tests1`, ..
    fn make_directories(&self, cx: &mut Cx) -> Result<Vec<(String, Ino)>, Failure> {
        let base = String::from_utf8_lossy(self.base).trim_end_matches('/').to_owned();
        let mut dirs = Vec::new();
        for number in 0..self.options.directories {
            let suffix = if number == 0 { String::new() } else { number.to_string() };
            let path = format!("{base}/MDT0000-tests{suffix}");
            let made = self.names.mkdir(cx, path.as_bytes(), 0o755);
            let attr = made.map_err(failure("mkdir", &path))?;
            dirs.push((path, attr.ino));
        }
        Ok(dirs)
    }

    fn point(&self, cx: &mut Cx, test: Test, dirs: &[(String, Ino)]) -> Result<Point, Failure> {
        let each = self.options.files / self.threads;
        let begin = cx.now();
        let timeline = Timeline::new(begin, INTERVAL);
        let workers: Vec<_> = (0..self.threads)
            .map(|number| {
                let (path, dir) = dirs[(number % self.options.directories) as usize].clone();
                let first = self.options.start_number + number * each;
                let worker = Worker {
                    names: self.names.clone(),
                    layer: self.options.layer,
                    test,
                    dir,
                    path,
                    numbers: first..first + each,
                    stop: self.stop.clone(),
                };
                let timeline = timeline.clone();
                cx.spawn(&format!("mds-survey-{number}"), move |cx| worker.run(cx, timeline))
            })
            .collect();
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join(cx)).collect();
        let span = cx.now().since(begin).as_secs_f64().max(1e-9);
        let mut whole = timeline;
        for result in done {
            whole.merge(&result?);
        }
        let operations = whole.operations();
        let rate = operations as f64 / span;
        // Whole seconds only; the last one was cut short.
        let slots = whole.slots();
        let seconds = slots.iter().take(slots.len().saturating_sub(1)).map(|slot| slot.0 as f64);
        let (min, max) = seconds.fold((f64::MAX, 0.0f64), |(min, max), n| (min.min(n), max.max(n)));
        let (min, max) = if min > max { (rate, rate) } else { (min, max) };
        Ok(Point { test, rate, min, max, operations })
    }
}

fn failure(test: &'static str, path: &str) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure::Operation { test, path: path.to_owned(), errno }
}

impl Worker {
    fn run(self, cx: &mut Cx, mut timeline: Timeline) -> Result<Timeline, Failure> {
        let fs = self.names.fs().clone();
        for number in self.numbers.clone() {
            if self.stop.is_due(cx) {
                break;
            }
            let name = number.to_string();
            let done = match self.layer {
                Layer::Osd => self.raw(cx, &fs, name.as_bytes()),
                Layer::Mdd => self.by_path(cx, &format!("{}/{name}", self.path)),
            };
            done.map_err(failure(self.test.name(), &format!("{}/{name}", self.path)))?;
            timeline.add(cx.now(), 0);
        }
        Ok(timeline)
    }

    fn raw(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, name: &[u8]) -> Result<(), Errno> {
        let dir = self.dir;
        match self.test {
            Test::Create => {
                fs.create(cx, dir, name, &NewNode::new(FileType::Regular, 0o644)).map(drop)
            }
            Test::Lookup => fs.lookup(cx, dir, name).map(drop),
            Test::GetAttr => {
                let ino = fs.lookup(cx, dir, name)?.ino;
                fs.getattr(cx, ino).map(drop)
            }
            Test::SetXattr => {
                let ino = fs.lookup(cx, dir, name)?.ino;
                fs.setxattr(cx, ino, ATTRIBUTE.0, ATTRIBUTE.1, XattrFlags::empty())
            }
            Test::Destroy => fs.unlink(cx, dir, name),
        }
    }

    fn by_path(&self, cx: &mut Cx, path: &str) -> Result<(), Errno> {
        let (names, path) = (&self.names, path.as_bytes());
        match self.test {
            Test::Create => {
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
                names.open(cx, path, flags, 0o644)?.close(cx)
            }
            Test::Lookup | Test::GetAttr => names.lstat(cx, path).map(drop),
            Test::SetXattr => {
                names.setxattr(cx, path, ATTRIBUTE.0, ATTRIBUTE.1, XattrFlags::empty())
            }
            Test::Destroy => names.unlink(cx, path),
        }
    }
}
