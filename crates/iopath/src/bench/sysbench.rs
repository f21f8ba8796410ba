//! The front end of sysbench's file I/O test.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use base::Nanos;
use rt::Cx;
use serde_json::{Value, json};
use workload::sysbench::{self, Command, Options, Report, Usage};
use workload::{Sink, Target};

use super::{Machine, Where, run_at, texts};
use crate::app::App;
use crate::out::Out;

/// Runs sysbench with its own arguments.
///
/// # Errors
/// The place cannot be used, output cannot be written. What sysbench itself reports is in its
/// output and the exit status 1.
pub fn run(
    app: &mut App,
    place: Option<Where>,
    machine: &Machine,
    stop_after: Option<Nanos>,
    arguments: &[OsString],
) -> Result<ExitCode> {
    let options = match Options::parse(&with_files(texts(arguments)?)?) {
        Ok(options) => options,
        Err(asked @ (Usage::Help | Usage::Version)) => {
            app.out.line(asked.to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let place = match place {
        Some(place) => place,
        None => {
            machine.refuse_without_sim()?;
            Where::Host(PathBuf::new())
        }
    };
    match options.command {
        Command::Run => work(app, &place, stop_after, &options),
        other => {
            let finished = run_at(app, &place, None, None, |cx, _, target, _| match other {
                Command::Prepare => sysbench::prepare(cx, target, &options)
                    .map(|done| sysbench::prepared(&options, &done)),
                _ => sysbench::cleanup(cx, target, &options)
                    .map(|()| "Removing test files...\n".to_owned()),
            })?;
            match finished.result {
                Ok(text) => app.out.bytes(text.as_bytes())?,
                Err(failure) => {
                    eprintln!("{failure}");
                    return Ok(ExitCode::FAILURE);
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The arguments with those that files hold which `--config-file` names, in front: what is given
/// beside them is stronger.
///
/// # Errors
/// A file that cannot be read.
fn with_files(arguments: Vec<String>) -> Result<Vec<String>> {
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    for word in arguments {
        let Some(path) = word.strip_prefix("--config-file=") else {
            rest.push(word);
            continue;
        };
        let text = std::fs::read_to_string(path).map_err(|error| anyhow!("{path}: {error}"))?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
        found.extend(lines.map(|line| format!("--{}", line.trim_start_matches('-'))));
    }
    found.extend(rest);
    Ok(found)
}

fn work(
    app: &mut App,
    place: &Where,
    stop_after: Option<Nanos>,
    options: &Options,
) -> Result<ExitCode> {
    let before = |cx: &mut Cx, target: &Target| {
        sysbench::prepare(cx, target, options).map(drop).map_err(|failure| anyhow!("{failure}"))
    };
    let is_sim = matches!(place, Where::Sim(_));
    let prepare: Option<super::Prepare<'_>> = if is_sim { Some(&before) } else { None };
    let finished = run_at(app, place, stop_after, prepare, |cx, out, target, stop| {
        let mut sink = ToolSink { out, failed: None };
        let report = sysbench::run(cx, target, options, stop, &mut sink);
        (report, sink.failed)
    })?;
    let (report, failed) = finished.result;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if app.out.json {
        app.out.document(&document(&report))?;
    }
    if let Some(note) = finished.note {
        app.out.note(note);
    }
    Ok(ExitCode::from(u8::from(report.failure.is_some())))
}

/// Standard output and standard error.
struct ToolSink<'o> {
    out: &'o mut Out,
    failed: Option<io::Error>,
}

impl Sink for ToolSink<'_> {
    fn out(&mut self, text: &str) {
        if !self.out.json
            && let Err(error) = self.out.bytes(text.as_bytes()).and_then(|()| self.out.flush())
        {
            self.failed.get_or_insert(error);
        }
    }

    fn err(&mut self, text: &str) {
        eprint!("{text}");
    }

    fn log(&mut self, _text: &str) {}
}

fn document(report: &Report) -> Value {
    let threads: Vec<Value> = report
        .threads
        .iter()
        .map(|thread| json!({ "events": thread.events, "time_ns": thread.time.0 }))
        .collect();
    json!({
        "tool": "sysbench fileio",
        "reads": report.reads,
        "writes": report.writes,
        "others": report.others,
        "read_bytes": report.read_bytes,
        "write_bytes": report.write_bytes,
        "total_ns": report.total.0,
        "final_fsync_ns": report.final_fsync.0,
        "min_ns": report.requests.min(),
        "mean_ns": report.requests.mean(),
        "max_ns": report.requests.max(),
        "p95_ns": (report.latency.percentile(95) * 1e6) as u64,
        "threads": threads,
        "failure": report.failure.as_ref().map(|failure| failure.to_string()),
    })
}
