//! The front end of mdtest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::Nanos;
use serde_json::json;
use workload::mdtest::{self, Options, Usage};

use super::{Machine, TextSink, Where, run_at, split_image, texts};
use crate::app::App;
use crate::target::Place;

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
            from_directories(&mut options)?
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

/// `-d IMAGE:/dir` names an image; all directories must name the same one, or none.
fn from_directories(options: &mut Options) -> Result<Where> {
    let places: Vec<Option<Place>> =
        options.directories.iter().map(|path| split_image(path)).collect();
    let Some(first) = places.iter().flatten().next().cloned() else {
        return Ok(Where::Host(PathBuf::new()));
    };
    for (path, place) in options.directories.iter_mut().zip(places) {
        match place {
            Some(place) if place.target == first.target => {
                *path = String::from_utf8(place.path).context("a directory's name is text")?;
            }
            _ => bail!("-d {path}: another place than {}; one run has one place", first.target),
        }
    }
    Ok(Where::Image(Place { target: first.target, path: b"/".to_vec() }))
}
