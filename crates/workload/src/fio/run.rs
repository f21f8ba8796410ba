//! A run: files are laid out, jobs begin together stage by stage, and their figures are collected.

use std::sync::Arc;

use base::{Errno, Nanos, Rng, Timespec};
use rt::{Cx, Mutex};

use super::file::JobFiles;
use super::job::{Engine, Job};
use super::jobfile::JobFile;
use super::layout::{self, JobPath, LayoutError};
use super::place::JobPlaces;
use super::report::{DirectionReport, FioReport, JobReport};
use super::state::State;
use super::worker::Worker;
use crate::{Stop, Target};

/// The seed of `randrepeat=1` in real time, where every run begins alike.
const REPEATED_SEED: u64 = 0x6669_6f33;

/// One copy of a job.
struct Copy {
    job: Arc<Job>,
    /// Number among the copies of its job.
    number: u64,
    /// Number among all copies, from 1: fio's thread number.
    thread: u64,
    group: u32,
    stage: u32,
    seed: u64,
}

fn copies(cx: &mut Cx, file: &JobFile) -> Vec<Copy> {
    let mut copies = Vec::new();
    let (mut group, mut stage) = (0, 0);
    for (index, job) in file.jobs.iter().enumerate() {
        if index > 0 && job.stonewall {
            stage += 1;
        }
        if index > 0 && (job.stonewall || job.new_group) {
            group += 1;
        }
        let job = Arc::new(job.clone());
        for number in 0..job.numjobs {
            let thread = copies.len() as u64 + 1;
            let seed = seed(cx, &job, thread);
            copies.push(Copy { job: job.clone(), number, thread, group, stage, seed });
        }
    }
    copies
}

/// The seed of a copy: from `randseed`, else from the runtime's; in real time a fixed one, unless
/// the job wants every run to differ.
fn seed(cx: &mut Cx, job: &Job, thread: u64) -> u64 {
    let base = match (job.randseed, job.randrepeat) {
        (Some(seed), _) => seed,
        (None, true) if !cx.is_virtual() => REPEATED_SEED,
        (None, true) => cx.runtime().seed(),
        (None, false) => cx.random(),
    };
    Rng::new(base, thread).next_u64()
}

/// Lays out the files of all jobs without running them, so that a caller can empty caches between.
/// Returns the preamble's lines on them. May park.
///
/// # Errors
/// What failed, in words.
pub fn lay_out(cx: &mut Cx, target: &Target, file: &JobFile) -> Result<String, String> {
    let mut text = String::new();
    for copy in copies(cx, file) {
        let paths = prepare(cx, target, &copy, &mut text);
        paths.map_err(|error| layout_text(&copy.job, &error))?;
    }
    Ok(text)
}

fn prepare(
    cx: &mut Cx,
    target: &Target,
    copy: &Copy,
    text: &mut String,
) -> Result<Vec<JobPath>, LayoutError> {
    let mut files = 0;
    let mut bytes = 0;
    let mut note = |_: &Job, size: u64| {
        files += 1;
        bytes += size;
    };
    let paths = layout::prepare(cx, target, &copy.job, copy.number, copy.seed, &mut note);
    if files > 0 {
        let (plural, mib) = (if files == 1 { "file" } else { "files" }, bytes >> 20);
        let name = &copy.job.name;
        let line = match files {
            1 => format!("{name}: Laying out IO file (1 file / {mib}MiB)\n"),
            _ => format!("{name}: Laying out IO files ({files} {plural} / total {mib}MiB)\n"),
        };
        text.push_str(&line);
    }
    paths
}

fn layout_text(job: &Job, error: &LayoutError) -> String {
    let LayoutError { call, path, errno } = error;
    format!("{}: {call} {path}: {}", job.name, errno.text())
}

/// Runs all jobs. May park.
///
/// Ends when all of them end, or when `stop` is due.
pub fn run(cx: &mut Cx, target: &Target, file: &JobFile, stop: &Stop) -> FioReport {
    let start = cx.now();
    let copies = copies(cx, file);
    let mut report = FioReport {
        jobs: Vec::new(),
        globals: file.globals.clone(),
        preamble: super::output::preamble(file),
        messages: file.warnings.clone(),
        ended: Timespec::default(),
        stopped: false,
    };
    if !target.fits(cx) {
        report.messages.push("fio: a directory of the host has no virtual time".into());
        report.jobs = copies.iter().map(|copy| failed(cx, copy, start, Errno::EINVAL)).collect();
        return report;
    }
    let mut prepared = Vec::new();
    for copy in copies {
        let paths = prepare(cx, target, &copy, &mut report.preamble);
        prepared.push((copy, paths));
    }
    report.preamble.push('\n');
    report.messages.extend(prepared.iter().filter_map(|(copy, _)| depth_note(copy)));
    let stop = &stop.nested();
    let mut rest = prepared.into_iter().peekable();
    while let Some((first, paths)) = rest.next() {
        let stage = first.stage;
        let mut tasks = vec![start_copy(cx, target, first, paths, stop, start, &mut report)];
        while let Some((copy, paths)) = rest.next_if(|(copy, _)| copy.stage == stage) {
            tasks.push(start_copy(cx, target, copy, paths, stop, start, &mut report));
        }
        for task in tasks {
            let done = match task {
                Started::Task(task) => task.join(cx),
                Started::Failed(report) => *report,
            };
            add(&mut report.jobs, done);
        }
    }
    report.ended = cx.realtime();
    report.stopped = stop.is_due(cx);
    report
}

fn depth_note(copy: &Copy) -> Option<String> {
    let (job, first) = (&copy.job, copy.number == 0);
    let shallow = matches!(job.engine, Engine::Sync(_)) && job.iodepth > 1;
    (first && shallow).then(|| {
        "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be \
         capped at 1"
            .into()
    })
}

/// Copies of one group become one report with `group_reporting`.
fn add(jobs: &mut Vec<JobReport>, done: JobReport) {
    match jobs.last_mut() {
        Some(last) if last.job.group_reporting && last.group == done.group => last.merge(done),
        _ => jobs.push(done),
    }
}

enum Started {
    Task(rt::JoinHandle<JobReport>),
    Failed(Box<JobReport>),
}

fn start_copy(
    cx: &mut Cx,
    target: &Target,
    copy: Copy,
    paths: Result<Vec<JobPath>, LayoutError>,
    stop: &Stop,
    start: Nanos,
    report: &mut FioReport,
) -> Started {
    match paths {
        Ok(paths) => {
            let name = format!("fio-{}-{}", copy.job.name, copy.number);
            let (target, stop) = (target.clone(), stop.clone());
            let body = move |cx: &mut Cx| run_copy(cx, &target, &copy, paths, &stop, start);
            Started::Task(cx.spawn(&name, body))
        }
        Err(error) => {
            report.messages.push(format!("fio: {}", layout_text(&copy.job, &error)));
            let mut failed = failed(cx, &copy, start, error.errno);
            failed.error_text = layout_text(&copy.job, &error);
            Started::Failed(Box::new(failed))
        }
    }
}

fn failed(cx: &Cx, copy: &Copy, start: Nanos, errno: Errno) -> JobReport {
    JobReport {
        job: (*copy.job).clone(),
        group: copy.group,
        copies: 1,
        pid: cx.task().0,
        error: Some(errno),
        error_text: errno.text().into(),
        directions: [(); 3].map(|()| DirectionReport::new(start)),
        sync: Default::default(),
        bands: Default::default(),
        depths: [0; 7],
        ended: cx.realtime(),
        runtime: Nanos::ZERO,
        logs: Vec::new(),
    }
}

/// The life of one copy, in its own task.
fn run_copy(
    cx: &mut Cx,
    target: &Target,
    copy: &Copy,
    paths: Vec<JobPath>,
    stop: &Stop,
    start: Nanos,
) -> JobReport {
    let job = &copy.job;
    set_priority(cx, job);
    if job.create_only {
        let mut report = failed(cx, copy, start, Errno::EIO);
        report.error = None;
        report.error_text.clear();
        return report;
    }
    sleep_until(cx, start + job.startdelay, stop);
    let files = match JobFiles::open(cx, target, job, paths) {
        Ok(files) => files,
        Err((path, errno)) => {
            let mut report = failed(cx, copy, start, errno);
            report.error_text = format!("open {path}: {}", errno.text());
            return report;
        }
    };
    match work(cx, copy, files, stop, start) {
        Ok(report) => report,
        Err(text) => {
            let mut report = failed(cx, copy, start, Errno::EINVAL);
            report.error_text = text;
            report
        }
    }
}

fn set_priority(cx: &mut Cx, job: &Job) {
    let class = match job.prioclass {
        1 => rt::IoClass::RealTime,
        2 => rt::IoClass::BestEffort,
        3 => rt::IoClass::Idle,
        _ if job.prio > 0 => rt::IoClass::BestEffort,
        _ => return,
    };
    if let Some(priority) = rt::IoPriority::new(class, job.prio) {
        cx.set_ioprio(priority);
    }
}

fn sleep_until(cx: &mut Cx, when: Nanos, stop: &Stop) {
    while cx.now() < when && !stop.is_due(cx) {
        let nap = when.since(cx.now()).min(Nanos::from_millis(100));
        cx.sleep(nap);
    }
}

/// Bytes that a copy moves in all, and whether it begins again where a pass ends.
fn volume(job: &Job, files: &JobFiles) -> (u64, bool) {
    let pass: u64 = files.extents().iter().fold(0, |sum, extent| sum.saturating_add(extent.len));
    let once = job.io_size.map_or(pass, |size| size.of(pass));
    let limit = match job.time_based || job.replay.is_some() {
        true => u64::MAX,
        false => once.saturating_mul(job.loops),
    };
    (limit, limit > pass && job.replay.is_none())
}

fn work(
    cx: &mut Cx,
    copy: &Copy,
    files: JobFiles,
    stop: &Stop,
    start: Nanos,
) -> Result<JobReport, String> {
    let job = &copy.job;
    let (limit, endless) = volume(job, &files);
    let places = JobPlaces::new(job, &files.extents(), copy.seed, endless)?;
    if job.pre_read {
        files.pre_read(cx).map_err(|errno| format!("pre_read: {}", errno.text()))?;
    }
    let (now, is_virtual) = (cx.now(), cx.is_virtual());
    let state = State::new(job, places, limit, now, start, is_virtual, copy.seed);
    let worker = Worker {
        job: job.clone(),
        files: Arc::new(files),
        state: Arc::new(Mutex::named("fio job", state)),
        stop: stop.clone(),
        seed: copy.seed,
    };
    let ioc = cx.ioc();
    let helpers: Vec<_> = (1..job.depth())
        .map(|number| {
            let worker = worker.clone();
            cx.spawn(&format!("fio-{}-{}.{number}", job.name, copy.number), move |cx| {
                cx.set_ioc(ioc);
                worker.run(cx);
            })
        })
        .collect();
    worker.run(cx);
    helpers.into_iter().for_each(|helper| helper.join(cx));
    end(cx, &worker);
    if job.exitall {
        stop.request();
    }
    Ok(collect(cx, copy, worker))
}

/// What follows the operations: the last sync, the check, the close.
fn end(cx: &mut Cx, worker: &Worker) {
    let job = &worker.job;
    if job.end_fsync || job.fsync_on_close {
        for number in 0..worker.files.extents().len() {
            let begin = cx.now();
            let done = worker.files.fsync(cx, number, false);
            let span = cx.now().since(begin);
            worker.state.lock(cx).synced(span, done);
        }
    }
    let now = cx.now();
    worker.state.lock(cx).finish(now);
    if job.verify.is_some() && job.do_verify && !job.verify_only {
        let reads_before = worker.state.lock(cx).directions[0].ios;
        worker.verify_written(cx);
        let span = cx.now().since(now);
        let figures = &mut worker.state.lock(cx).directions[0];
        if figures.ios > reads_before {
            figures.runtime += span;
        }
    }
}

fn collect(cx: &mut Cx, copy: &Copy, worker: Worker) -> JobReport {
    let mut report = failed(cx, copy, Nanos::ZERO, Errno::EIO);
    report.error = None;
    report.error_text.clear();
    let unlinked = match worker.job.unlink {
        true => worker.files.unlink(cx),
        false => Ok(()),
    };
    let Worker { files, state, .. } = worker;
    if let Ok(mut files) = Arc::try_unwrap(files).map_err(drop) {
        let closed = files.close(cx).and(unlinked);
        if let Err(errno) = closed {
            report.error = Some(errno);
            report.error_text = "close".into();
        }
    }
    let mut state = state.lock(cx);
    if let Some((errno, text)) = state.error.take() {
        report.error = Some(errno);
        report.error_text = text;
    }
    report.runtime = cx.now().since(state.counted_from);
    report.logs = super::log::files(&copy.job, copy.thread, &state.entries);
    report.directions = std::mem::replace(
        &mut state.directions,
        [(); 3].map(|()| DirectionReport::new(Nanos::ZERO)),
    );
    report.sync = std::mem::take(&mut state.sync);
    report.bands = std::mem::take(&mut state.bands);
    report.depths = state.depths;
    report
}
