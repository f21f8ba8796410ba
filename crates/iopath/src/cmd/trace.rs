//! `trace`: runs another command and keeps what the block layer did meanwhile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use block::LatencyHistogram;
use block::trace::{Format, OpSummary, Summary, write_all};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::app::{App, Recorder};
use crate::cli;

/// Run a command and trace the block layer, for blkparse, btt, fio and Perfetto
#[derive(Args)]
#[command(after_help = "\
Formats: blktrace (trace.blktrace.N for blkparse -i trace; trace.bin for btt, iowatcher and
fio --read_iolog), iolog (trace.iolog, trace.iolog2 for fio), perfetto (trace.pftrace for
ui.perfetto.dev), text (trace.txt, the lines of blkparse). summary.json is always written.
Of a command with several images each has a directory of its own. The exit status is that
of the command.

Examples:
  iopath trace -d out -- cp -a ./tree disk.img:/
  blkparse -i out/trace
  btt -i out/trace.bin
  iopath trace -d out --format perfetto -- cat disk.img:/large > large
  iopath trace -d out --json -- -o data=journal cp -a ./tree disk.img:/ | jq .queues[0].operations
  iopath trace -d out -- bench --target sim:array-2010 --elevator cfq fs_mark -d /a -n 100
  fio --name=again --read_iolog=out/trace.iolog --replay_redirect=copy.img")]
pub struct Options {
    /// Directory for the files; made if it is missing
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
    /// Formats to write: blktrace, iolog, perfetto, text
    #[arg(short, long, value_delimiter = ',', default_value = "blktrace,perfetto,text")]
    format: Vec<Format>,
    /// Events to keep of each device, about 60 bytes each; older ones are dropped
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    events: u64,
    /// The command with its options
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Runs `trace`.
///
/// # Errors
/// Those of the command, after the files were written; those of the files.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    if app.recorder.is_some() {
        bail!("a trace of a trace: name another command");
    }
    app.recorder = Some(Recorder::new(options.events as usize));
    let result = cli::run_inside(app, &options.command);
    let recorder = app.recorder.take().expect("set above, and taken nowhere else");
    let written = write(app, options, &recorder);
    let code = result?;
    written?;
    Ok(code)
}

/// Writes the files of every queue that has seen something, and the summary.
fn write(app: &mut App, options: &Options, recorder: &Recorder) -> Result<()> {
    let mut queues = Vec::new();
    for (target, queue) in &recorder.queues {
        let (mut events, lost) = queue.take_trace();
        events.sort_by_key(|event| event.time);
        if !events.is_empty() {
            queues.push((target, queue, events, lost));
        }
    }
    std::fs::create_dir_all(&options.dir).with_context(|| options.dir.display().to_string())?;
    let (mut documents, count) = (Vec::new(), queues.len());
    for (index, (target, queue, events, lost)) in queues.into_iter().enumerate() {
        let dir = directory(&options.dir, target, index, count);
        let files = write_all(&dir, &options.format, &events, &queue.task_names())?;
        let summary = Summary::of(&events);
        app.out.note(format!("{target}: {} events in {}", events.len(), dir.display()));
        if lost > 0 {
            app.out.note(format!("{lost} older events were lost; --events keeps more"));
        }
        app.out.note(summary.to_string());
        let mut document = describe(&summary);
        document.insert("target".into(), json!(target));
        document.insert("elevator".into(), json!(queue.elevator()));
        document.insert("events".into(), json!(events.len()));
        document.insert("events_lost".into(), json!(lost));
        let shown = files.iter().map(|path| path.display().to_string());
        document.insert("files".into(), shown.collect());
        documents.push(Value::Object(document));
    }
    if documents.is_empty() {
        app.out.note("the command opened no image: there is nothing to trace");
    }
    let document = json!({ "queues": documents });
    let path = options.dir.join("summary.json");
    let text = serde_json::to_string_pretty(&document)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    if app.out.json {
        app.out.document(&document)?;
    }
    Ok(())
}

/// The directory of one of `count` devices.
fn directory(dir: &Path, target: &str, index: usize, count: usize) -> PathBuf {
    if count == 1 {
        return dir.to_owned();
    }
    let name = Path::new(target).file_name().map(|name| name.to_string_lossy().into_owned());
    dir.join(format!("{index}-{}", name.unwrap_or_default()))
}

fn describe(summary: &Summary) -> Map<String, Value> {
    let notes = summary.notes.iter().map(|(kind, count)| (kind.name().to_owned(), json!(count)));
    let ops =
        summary.ops.iter().map(|(op, of)| (op.to_string().replace(' ', "_"), describe_op(of)));
    let fields = [
        ("span_ns", json!(summary.span.0)),
        ("operations", Value::Object(ops.collect())),
        ("request_merges", json!(summary.request_merges)),
        ("depth_max", json!(summary.depth_max)),
        ("unfinished", json!(summary.unfinished)),
        ("elevator_notes", Value::Object(notes.collect())),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn describe_op(op: &OpSummary) -> Value {
    let times = |latency: &LatencyHistogram| {
        json!({
            "count": latency.count(),
            "mean_ns": latency.mean().0,
            "min_ns": latency.min().0,
            "p50_ns": latency.quantile(0.5).0,
            "p99_ns": latency.quantile(0.99).0,
            "max_ns": latency.max().0,
        })
    };
    json!({
        "bios": op.bios,
        "merges": op.merges,
        "requests": op.requests,
        "bytes": op.bytes,
        "q2c": times(&op.q2c),
        "q2d": times(&op.q2d),
        "d2c": times(&op.d2c),
    })
}
