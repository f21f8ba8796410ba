//! The front end of mdtest.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Nanos;
use serde_json::json;
use workload::mdtest::{self, Options, Usage};

use super::{Machine, TextSink, Where, of_directories, run_at, texts};
use crate::app::App;

/// Runs mdtest with its own arguments.
///
/// # Errors
/// The place cannot be used, output cannot be written. What mdtest itself reports is in its
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
        Err(Usage::Help) => {
            eprintln!("the options are those of mdtest; --tasks N says how many tasks there are");
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
            of_directories(&mut options.directories)?
        }
    };
    let finished = run_at(app, &place, stop_after, None, |cx, out, target, stop| {
        let mut sink = TextSink { out, failed: None };
        let report = mdtest::run(cx, target, &options, stop, &mut sink);
        (report, sink.failed)
    })?;
    let (report, failed) = finished.result;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if app.out.json {
        let rows = report.rows.iter().map(|row| {
            json!({
                "operation": row.operation.label(),
                "items": row.items,
                "rates_per_second": row.rates,
            })
        });
        app.out.document(&json!({
            "tool": "mdtest",
            "arguments": options.arguments,
            "tasks": options.tasks,
            "rows": rows.collect::<Vec<_>>(),
            "stopped": report.stopped,
            "failure": report.failure.as_ref().map(|failure| failure.to_string()),
        }))?;
    }
    if let Some(note) = finished.note {
        app.out.note(note);
    }
    Ok(ExitCode::from(report.exit_status()))
}
