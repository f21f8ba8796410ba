//! The workloads of a run, by the front ends that have the real tools' own options.

use rt::Cx;
use workload::fio::{self, Direction};
use workload::{Sink, Stop, Target, Timeline, fs_mark};

use crate::experiment::options::{fs_mark_options, job_file};
use crate::experiment::{Load, Tool};
use crate::record::{Latency, Series};

/// What a workload did, whichever tool it is.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Name of the workload.
    pub name: String,
    /// fs_mark: files/s of each line of results.
    pub lines: Vec<f64>,
    /// fs_mark: files that were finished.
    pub files: u64,
    /// fio: bytes read a second, all jobs.
    pub read_rate: f64,
    /// fio: bytes written a second, all jobs.
    pub write_rate: f64,
    /// fio: bytes read and written.
    pub bytes: u64,
    /// Rates over time.
    pub series: Vec<Series>,
    /// Latencies.
    pub latencies: Vec<Latency>,
}

/// Runs a workload until it ends, `stop` is due, or it has written `lines` lines. May park.
///
/// # Errors
/// What the tool says of its failure.
pub fn run(
    cx: &mut Cx,
    target: &Target,
    load: &Load,
    stop: &Stop,
    lines: Option<u32>,
) -> Result<Outcome, String> {
    match load.tool {
        Tool::FsMark => run_fs_mark(cx, target, load, stop, lines),
        Tool::Fio => run_fio(cx, target, load, stop),
    }
}

/// Counts the lines of results, and ends the run after the last one that is wanted.
struct Lines<'a> {
    stop: &'a Stop,
    left: Option<u32>,
}

impl Sink for Lines<'_> {
    fn out(&mut self, text: &str) {
        let is_row = text.split_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok());
        if let (true, Some(left)) = (is_row, &mut self.left) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.stop.request();
            }
        }
    }
    fn err(&mut self, _text: &str) {}
    fn log(&mut self, _text: &str) {}
}

fn run_fs_mark(
    cx: &mut Cx,
    target: &Target,
    load: &Load,
    stop: &Stop,
    lines: Option<u32>,
) -> Result<Outcome, String> {
    let options = fs_mark_options(&load.text)?;
    let mut sink = Lines { stop, left: lines };
    let report = fs_mark::run(cx, target, &options, stop, &mut sink);
    if let Some(failure) = &report.failure {
        return Err(failure.to_string());
    }
    let whole = report.iterations.iter().filter(|iteration| iteration.complete);
    Ok(Outcome {
        name: load.name.clone(),
        lines: whole.map(|iteration| iteration.files_per_second).collect(),
        files: report.files(),
        series: vec![series(&load.name, "files/s", &report.timeline)],
        latencies: vec![Latency {
            name: format!("{}: one file", load.name),
            buckets: report.file.histogram.buckets().collect(),
        }],
        ..Outcome::default()
    })
}

/// Operations and bytes of a timeline as rates; the last, partial slot is left out.
fn series(name: &str, unit: &str, timeline: &Timeline) -> Series {
    let step = timeline.interval();
    let slots = timeline.slots();
    let by_second = |n: f64| n / step.as_secs_f64();
    let value = |slot: &(u64, u64)| match unit {
        "files/s" => by_second(slot.0 as f64),
        _ => by_second(slot.1 as f64 / 1e6),
    };
    let whole = slots.len().saturating_sub(1).max(1).min(slots.len());
    Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        step_ns: step.0,
        values: slots[..whole].iter().map(value).collect(),
    }
}

fn run_fio(cx: &mut Cx, target: &Target, load: &Load, stop: &Stop) -> Result<Outcome, String> {
    let file = job_file(&load.text)?;
    let report = fio::run(cx, target, &file, stop);
    let mut outcome = Outcome { name: load.name.clone(), ..Outcome::default() };
    for job in &report.jobs {
        if job.error.is_some() {
            return Err(job.error_text.clone());
        }
        for direction in [Direction::Read, Direction::Write] {
            let found = job.direction(direction);
            if found.ios == 0 {
                continue;
            }
            outcome.bytes += found.bytes;
            let name = format!("{}: {}", load.name, direction.word());
            let (rate, timeline) = (found.bandwidth(), &found.timeline);
            match direction {
                Direction::Read => outcome.read_rate += rate,
                _ => outcome.write_rate += rate,
            }
            outcome.series.push(series(&name, "MB/s", timeline));
            let buckets = found.clat.histogram.buckets().collect();
            outcome.latencies.push(Latency { name, buckets });
        }
    }
    Ok(outcome)
}
