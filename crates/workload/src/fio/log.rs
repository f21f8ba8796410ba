//! Log files: bandwidth, operations and latencies over time, and the operations themselves.

use std::fmt::Write;

use base::Nanos;

use super::job::{Direction, Job};
use super::state::Entry;

/// Which figure a log holds.
#[derive(Clone, Copy)]
enum Figure {
    Bandwidth,
    Operations,
    /// Number of the time: submission, completion, whole.
    Latency(usize),
}

impl Figure {
    /// Of one operation: KiB a second, operations, nanoseconds.
    fn of(self, entry: &Entry) -> u64 {
        match self {
            Figure::Bandwidth => {
                let ns = u128::from(entry.times[1].0.max(1));
                (u128::from(entry.unit.len) * 1_000_000_000 / ns / 1024) as u64
            }
            Figure::Operations => 1,
            Figure::Latency(which) => entry.times[which].0,
        }
    }

    /// Of all operations of an interval.
    fn over(self, entries: &[&Entry], interval: Nanos) -> u64 {
        let ns = u128::from(interval.0.max(1));
        match self {
            Figure::Bandwidth => {
                let bytes: u128 = entries.iter().map(|entry| u128::from(entry.unit.len)).sum();
                (bytes * 1_000_000_000 / ns / 1024) as u64
            }
            Figure::Operations => (entries.len() as u128 * 1_000_000_000 / ns) as u64,
            Figure::Latency(which) => {
                let sum: u64 = entries.iter().map(|entry| entry.times[which].0).sum();
                sum / entries.len().max(1) as u64
            }
        }
    }
}

/// The log files that a job asks for: name and content. `thread` is the copy's number from 1.
pub fn files(job: &Job, thread: u64, entries: &[Entry]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut add = |prefix: &Option<String>, logs: &[(&str, Figure)]| {
        let Some(prefix) = prefix else { return };
        let prefix = if prefix.is_empty() { &job.name } else { prefix };
        for &(kind, figure) in logs {
            let name = match job.per_job_logs {
                true => format!("{prefix}_{kind}.{thread}.log"),
                false => format!("{prefix}_{kind}.log"),
            };
            files.push((name, content(figure, entries, job.log_avg)));
        }
    };
    add(&job.write_bw_log, &[("bw", Figure::Bandwidth)]);
    let latencies =
        [("slat", Figure::Latency(0)), ("clat", Figure::Latency(1)), ("lat", Figure::Latency(2))];
    add(&job.write_lat_log, &latencies);
    add(&job.write_iops_log, &[("iops", Figure::Operations)]);
    if let Some(name) = &job.write_iolog {
        files.push((name.clone(), iolog(job, thread - 1, entries)));
    }
    files
}

/// Lines of `msec, value, direction, block size, offset`.
fn content(figure: Figure, entries: &[Entry], interval: Nanos) -> String {
    let mut out = String::new();
    if interval == Nanos::ZERO {
        for entry in entries {
            let (ms, unit) = (entry.when.0 / 1_000_000, entry.unit);
            let (value, direction) = (figure.of(entry), unit.direction as u8);
            writeln!(out, "{ms}, {value}, {direction}, {}, {}", unit.len, unit.offset)
                .expect("writing to a string");
        }
        return out;
    }
    let slot = |entry: &Entry| entry.when.0 / interval.0;
    for chunk in entries.chunk_by(|a, b| slot(a) == slot(b)) {
        for direction in Direction::ALL {
            let of: Vec<&Entry> =
                chunk.iter().filter(|entry| entry.unit.direction == direction).collect();
            if of.is_empty() {
                continue;
            }
            let ms = (slot(of[0]) + 1) * interval.0 / 1_000_000;
            let value = figure.over(&of, interval);
            writeln!(out, "{ms}, {value}, {}, 0, 0", direction as u8).expect("writing to a string");
        }
    }
    out
}

/// The third version of fio's list of operations.
fn iolog(job: &Job, number: u64, entries: &[Entry]) -> String {
    let mut out = String::from("fio version 3 iolog\n");
    let names: Vec<String> = (0..job.files()).map(|file| job.file_name(number, file)).collect();
    let mut line = |when: Nanos, text: std::fmt::Arguments| {
        writeln!(out, "{} {text}", when.0 / 1000).expect("writing to a string");
    };
    for action in ["add", "open"] {
        for name in &names {
            line(Nanos::ZERO, format_args!("{name} {action}"));
        }
    }
    for entry in entries {
        let unit = entry.unit;
        let word = unit.direction.word();
        let begin = Nanos(entry.when.0.saturating_sub(entry.times[2].0));
        let name = &names[unit.file];
        line(begin, format_args!("{name} {word} {} {}", unit.offset, unit.len));
    }
    let end = entries.last().map_or(Nanos::ZERO, |entry| entry.when);
    for name in &names {
        line(end, format_args!("{name} close"));
    }
    out
}
