//! The iterations of a run, and what is known about them afterwards.

use base::{Errno, Nanos};
use rt::Cx;
use thiserror::Error;
use vfs::OpenFlags;

use super::options::Options;
use super::output;
use super::task::{Measured, Task, node_path, tree_root};
use crate::{Sink, Stop, Target};

/// A row of the summary, in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    DirCreate,
    DirStat,
    DirRename,
    DirRemove,
    FileCreate,
    FileStat,
    FileRead,
    FileRemove,
    TreeCreate,
    TreeRemove,
}

impl Operation {
    /// Every row.
    pub const ALL: [Operation; 10] = [
        Operation::DirCreate,
        Operation::DirStat,
        Operation::DirRename,
        Operation::DirRemove,
        Operation::FileCreate,
        Operation::FileStat,
        Operation::FileRead,
        Operation::FileRemove,
        Operation::TreeCreate,
        Operation::TreeRemove,
    ];

    /// As the tool prints it.
    pub fn label(self) -> &'static str {
        match self {
            Operation::DirCreate => "Directory creation",
            Operation::DirStat => "Directory stat",
            Operation::DirRename => "Directory rename",
            Operation::DirRemove => "Directory removal",
            Operation::FileCreate => "File creation",
            Operation::FileStat => "File stat",
            Operation::FileRead => "File read",
            Operation::FileRemove => "File removal",
            Operation::TreeCreate => "Tree creation",
            Operation::TreeRemove => "Tree removal",
        }
    }

    pub(super) fn of_files(self) -> bool {
        use Operation::*;
        matches!(self, FileCreate | FileStat | FileRead | FileRemove)
    }

    /// Is this a phase of the tasks that the options ask for?
    fn wanted(self, options: &Options) -> bool {
        let kind = if self.of_files() { options.files_too } else { options.directories_too };
        let phase = match self {
            Operation::DirCreate | Operation::FileCreate => options.create,
            Operation::DirStat | Operation::FileStat => options.stat,
            Operation::DirRename => options.rename,
            Operation::FileRead => options.read,
            Operation::DirRemove | Operation::FileRemove => options.remove,
            Operation::TreeCreate | Operation::TreeRemove => return false,
        };
        kind && phase
    }
}

/// Why a run ended with exit status 1.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}: {path}: {}", .operation.label(), .errno.text())]
pub struct Failure {
    /// The phase.
    pub operation: Operation,
    /// What it worked on.
    pub path: String,
    /// Why.
    pub errno: Errno,
}

/// The rates of one operation, one for each iteration.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Which.
    pub operation: Operation,
    /// Operations per second over all tasks, by the slowest task.
    pub rates: Vec<f64>,
    /// Items over all tasks.
    pub items: u64,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The summary's rows, in its order.
    pub rows: Vec<Row>,
    /// Why it ended early.
    pub failure: Option<Failure>,
    /// The stop ended it.
    pub stopped: bool,
}

impl Report {
    /// As the tool's.
    pub fn exit_status(&self) -> u8 {
        u8::from(self.failure.is_some())
    }

    fn add(&mut self, operation: Operation, items: u64, span: Nanos) {
        let rate = items as f64 / span.as_secs_f64().max(1e-9);
        match self.rows.iter_mut().find(|row| row.operation == operation) {
            Some(row) => row.rates.push(rate),
            None => self.rows.push(Row { operation, rates: vec![rate], items }),
        }
    }
}

/// Runs a command line. May park.
pub fn run(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    sink: &mut dyn Sink,
) -> Report {
    let mut report = Report::default();
    sink.out(&output::start(cx, target, options));
    for iteration in 0..options.iterations {
        if stop.is_due(cx) {
            report.stopped = true;
            break;
        }
        if options.delay > 0 {
            cx.sleep(Nanos::from_secs(options.delay));
        }
        if let Err(failure) = iterate(cx, target, options, stop, iteration, &mut report) {
            sink.err(&format!("ERROR: {failure}\n"));
            report.failure = Some(failure);
            return report;
        }
    }
    report.stopped |= stop.is_due(cx);
    report.rows.sort_by_key(|row| row.operation);
    sink.out(&output::summary(options, &report));
    sink.out(&output::end(cx));
    report
}

fn iterate(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    iteration: u64,
    report: &mut Report,
) -> Result<(), Failure> {
    let tops = tops(options, iteration);
    if options.create {
        let begin = cx.now();
        let mut made = 0;
        for (rank, top) in trees(options, &tops) {
            made += make_tree(cx, target, options, rank, top)?;
        }
        report.add(Operation::TreeCreate, made, cx.now().since(begin));
        prefill(cx, target, options, stop, &tops, true)?;
    }
    for operation in Operation::ALL.into_iter().filter(|operation| operation.wanted(options)) {
        let tasks: Vec<_> = (0..options.tasks)
            .map(|rank| {
                let top = tops[rank as usize % tops.len()].clone();
                let (target, options) = (target.clone(), options.clone());
                let task = Task { target, options, stop: stop.clone(), rank, top };
                cx.spawn(&format!("mdtest-{rank}"), move |cx| task.phase(cx, operation))
            })
            .collect();
        let results: Vec<_> = tasks.into_iter().map(|task| task.join(cx)).collect();
        let measured = results.into_iter().collect::<Result<Vec<Measured>, Failure>>()?;
        let slowest = measured.iter().map(|task| task.span).max().unwrap_or(Nanos::ZERO);
        let items = measured.iter().map(|task| task.done).sum();
        report.add(operation, items, slowest);
    }
    if options.remove {
        prefill(cx, target, options, stop, &tops, false)?;
        let begin = cx.now();
        let mut gone = 0;
        for (rank, top) in trees(options, &tops) {
            gone += remove_tree(cx, target, options, rank, top)?;
        }
        for top in tops.iter() {
            remove(cx, target, top)?;
        }
        report.add(Operation::TreeRemove, gone, cx.now().since(begin));
    }
    Ok(())
}

/// The directories of an iteration, one for each `-d`.
fn tops(options: &Options, iteration: u64) -> Vec<String> {
    let each = options.directories.iter();
    each.map(|directory| format!("{directory}/test-dir.{iteration}-0")).collect()
}

/// The trees of an iteration: one, or with `-u` one for each task.
fn trees<'a>(options: &Options, tops: &'a [String]) -> Vec<(u64, &'a String)> {
    match options.unique {
        true => (0..options.tasks).map(|rank| (rank, &tops[rank as usize % tops.len()])).collect(),
        false => tops.iter().map(|top| (0, top)).collect(),
    }
}

/// Fills the directories of items, or empties them of what filled them.
fn prefill(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    stop: &Stop,
    tops: &[String],
    make: bool,
) -> Result<(), Failure> {
    let (first, count) = options.holders();
    let trees = if options.prefill > 0 { trees(options, tops) } else { Vec::new() };
    for (rank, top) in trees {
        let root = tree_root(options, top, rank);
        for node in first..first + count {
            let folder = node_path(options, &root, node);
            for number in 0..options.prefill {
                if stop.is_due(cx) {
                    return Ok(());
                }
                prefill_one(cx, target, &format!("{folder}/prefill.{number}"), make)?;
            }
        }
    }
    Ok(())
}

fn prefill_one(cx: &mut Cx, target: &Target, path: &str, make: bool) -> Result<(), Failure> {
    if make {
        let flags = OpenFlags::CREATE | OpenFlags::WRITE;
        let file = target.open(cx, path.as_bytes(), flags, 0o664);
        let closed = file.and_then(|file| file.close(cx));
        return closed.map_err(failure(Operation::TreeCreate, path));
    }
    match target.unlink(cx, path.as_bytes()) {
        // An earlier run made fewer of them.
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(failure(Operation::TreeRemove, path)(errno)),
    }
}

fn failure(operation: Operation, path: &str) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure { operation, path: path.to_owned(), errno }
}

fn mkdir(cx: &mut Cx, target: &Target, path: &str) -> Result<(), Failure> {
    match target.mkdir(cx, path.as_bytes()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(failure(Operation::TreeCreate, path)(errno)),
    }
}

fn remove(cx: &mut Cx, target: &Target, path: &str) -> Result<(), Failure> {
    target.rmdir(cx, path.as_bytes()).map_err(failure(Operation::TreeRemove, path))
}

fn make_tree(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    rank: u64,
    top: &str,
) -> Result<u64, Failure> {
    let made = target.make_path(cx, top.as_bytes());
    made.map_err(failure(Operation::TreeCreate, top))?;
    // The tool makes its directory where it is missing.
    if let Some((parent, _)) = top.rsplit_once('/') {
        mkdir(cx, target, parent)?;
    }
    mkdir(cx, target, top)?;
    let root = tree_root(options, top, rank);
    let count = options.tree_size().unwrap_or(1);
    for node in 0..count {
        mkdir(cx, target, &node_path(options, &root, node))?;
    }
    Ok(count)
}

fn remove_tree(
    cx: &mut Cx,
    target: &Target,
    options: &Options,
    rank: u64,
    top: &str,
) -> Result<u64, Failure> {
    let root = tree_root(options, top, rank);
    let count = options.tree_size().unwrap_or(1);
    for node in (0..count).rev() {
        remove(cx, target, &node_path(options, &root, node))?;
    }
    Ok(count)
}
