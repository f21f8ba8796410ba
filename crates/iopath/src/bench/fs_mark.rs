//! The front end of fs_mark.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use base::Nanos;
use serde_json::{Value, json};
use workload::Sink;
use workload::fs_mark::{self, CallStats, Options, Report};

use super::{Machine, Where, of_directories, run_at, texts};
use crate::app::App;
use crate::out::Out;

/// Runs fs_mark with its own arguments.
///
/// # Errors
/// The place cannot be used, output cannot be written. What fs_mark itself reports is in its
/// output and the exit status 1.
pub fn run(
    app: &mut App,
    place: Option<Where>,
    machine: &Machine,
    stop_after: Option<Nanos>,
    arguments: &[OsString],
) -> Result<ExitCode> {
    let mut options = match Options::parse(&texts(arguments)?) {
        Ok(options) => options,
        Err(error) => {
            // As the tool does: help too is a failure.
            match error {
                fs_mark::Usage::Help => {}
                error => eprintln!("{error}"),
            }
            eprint!("{}", fs_mark::usage());
            return Ok(ExitCode::FAILURE);
        }
    };
    let place = match place {
        Some(place) => place,
        None => {
            machine.refuse_without_sim()?;
            of_directories(&mut options.directories)?
        }
    };
    let log = OpenOptions::new().create(true).append(true).open(&options.log_file);
    let log = log.with_context(|| format!("log file {}", options.log_file))?;
    let finished = run_at(app, &place, stop_after, None, |cx, out, target, stop| {
        let mut sink = ToolSink { out, log, failed: None };
        let report = fs_mark::run(cx, target, &options, stop, &mut sink);
        (report, sink.failed)
    })?;
    let (report, failed) = finished.result;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if app.out.json {
        app.out.document(&document(&options, &report))?;
    }
    if let Some(note) = finished.note {
        app.out.note(note);
    }
    Ok(ExitCode::from(report.exit_status()))
}

/// Standard output, standard error and the log file.
struct ToolSink<'o> {
    out: &'o mut Out,
    log: File,
    failed: Option<io::Error>,
}

impl ToolSink<'_> {
    fn keep(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }
}

impl Sink for ToolSink<'_> {
    fn out(&mut self, text: &str) {
        if !self.out.json {
            let done = self.out.bytes(text.as_bytes()).and_then(|()| self.out.flush());
            self.keep(done);
        }
    }

    fn err(&mut self, text: &str) {
        eprint!("{text}");
    }

    fn log(&mut self, text: &str) {
        let done = self.log.write_all(text.as_bytes());
        self.keep(done);
    }
}

fn call(stats: &CallStats) -> Value {
    json!({
        "count": stats.stats.count(),
        "min_ns": stats.stats.min(),
        "mean_ns": stats.stats.mean(),
        "max_ns": stats.stats.max(),
        "p50_ns": stats.histogram.percentile(50.0),
        "p99_ns": stats.histogram.percentile(99.0),
    })
}

fn document(options: &Options, report: &Report) -> Value {
    let iterations: Vec<Value> = report
        .iterations
        .iter()
        .map(|iteration| {
            json!({
                "files": iteration.files,
                "count": iteration.count,
                "files_per_second": iteration.files_per_second,
                "overhead_ns": iteration.overhead.0,
                "used_percent": iteration.used_percent,
                "start_ns": iteration.start.0,
                "end_ns": iteration.end.0,
                "complete": iteration.complete,
            })
        })
        .collect();
    let calls = &report.calls;
    json!({
        "tool": "fs_mark",
        "arguments": options.arguments,
        "size": options.file_size,
        "iterations": iterations,
        "calls": {
            "creat": call(&calls.create),
            "write": call(&calls.write),
            "fsync": call(&calls.fsync),
            "sync": call(&calls.sync),
            "close": call(&calls.close),
            "unlink": call(&calls.unlink),
        },
        "file": call(&report.file),
        "files_per_100ms": report.timeline.slots().iter().map(|slot| slot.0).collect::<Vec<_>>(),
        "interval_ns": report.timeline.interval().0,
        "stopped": report.stopped,
        "failure": report.failure.as_ref().map(|failure| failure.to_string()),
    })
}
