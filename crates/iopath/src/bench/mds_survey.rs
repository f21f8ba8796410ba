//! The front end of mds-survey.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base::Nanos;
use serde_json::json;
use workload::Sink;
use workload::mds_survey::{self, Options, VARIABLES};

use super::{Machine, TextSink, Where, run_at, texts};
use crate::app::App;

/// Keeps the raw lines beside what is shown.
struct Keeping<'s, 'o> {
    shown: &'s mut TextSink<'o>,
    summary: String,
    detail: String,
}

impl Sink for Keeping<'_, '_> {
    fn out(&mut self, text: &str) {
        self.summary.push_str(text);
        self.shown.out(text);
    }

    fn err(&mut self, text: &str) {
        self.shown.err(text);
    }

    fn log(&mut self, text: &str) {
        self.detail.push_str(text);
    }
}

/// Runs mds-survey with settings of the environment and of the command line.
///
/// # Errors
/// The place cannot be used, output cannot be written. What the survey itself reports is in its
/// output and the exit status 1.
pub fn run(
    app: &mut App,
    place: Option<Where>,
    machine: &Machine,
    stop_after: Option<Nanos>,
    arguments: &[OsString],
) -> Result<ExitCode> {
    let from_environment = VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(format!("{name}={value}"))
    });
    let settings: Vec<String> = from_environment.chain(texts(arguments)?).collect();
    let options = match Options::parse(&settings) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let Some(place) = place else {
        machine.refuse_without_sim()?;
        bail!("mds-survey works on our path: --target IMAGE or --target sim:PROFILE");
    };
    let finished = run_at(app, &place, stop_after, None, |cx, out, target, stop| {
        let mut shown = TextSink { out, failed: None };
        let (summary, detail) = (String::new(), String::new());
        let mut sink = Keeping { shown: &mut shown, summary, detail };
        let report = mds_survey::run(cx, target, &options, stop, &mut sink);
        let (summary, detail) = (sink.summary, sink.detail);
        (report, summary, detail, shown.failed)
    })?;
    let (report, summary, detail, failed) = finished.result;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if options.result_place.is_some() || options.result_name.is_some() {
        let folder = options.result_place.as_deref().unwrap_or("/tmp");
        let name = options.result_name.as_deref().unwrap_or("mds_survey");
        for (suffix, text) in [("summary", &summary), ("detail", &detail)] {
            let path = Path::new(folder).join(format!("{name}.{suffix}"));
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    if app.out.json {
        for line in &report.lines {
            for point in &line.points {
                app.out.document(&json!({
                    "tool": "mds-survey",
                    "files": options.files,
                    "directories": options.directories,
                    "threads": line.threads,
                    "test": point.test.name(),
                    "rate_per_second": point.rate,
                    "min_per_second": point.min,
                    "max_per_second": point.max,
                    "operations": point.operations,
                }))?;
            }
        }
    }
    if let Some(note) = finished.note {
        app.out.note(note);
    }
    Ok(ExitCode::from(report.exit_status()))
}
