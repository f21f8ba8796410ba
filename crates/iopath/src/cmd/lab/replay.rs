//! `lab replay`: a recorded trace on modelled machines.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use lab::replay::{self, Outcome, Pace, Setup};
use lab::report::{Align, TextTable};
use model::Profile;
use serde_json::json;

use crate::app::App;

/// What `lab replay` takes.
#[derive(Args)]
pub struct Options {
    /// Traces: blktrace's files (or their name before `.blktrace.0`), blkparse's text, fio's lists
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// A machine: a name (`iopath machines`) or a profile; may be repeated
    #[arg(long, value_name = "FILE", default_value = "disk-7200")]
    machine: Vec<String>,
    /// An elevator; may be repeated
    #[arg(long, value_name = "NAME", default_value = "deadline")]
    elevator: Vec<String>,
    /// When a process goes on: open (at the trace's times), closed (when its last operation is
    /// done), think (the same, and it thinks as long as in the trace)
    #[arg(long, value_enum, default_value_t = PaceArg::Open)]
    pace: PaceArg,
    /// Multiply the trace's times: 0.5 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// One device of the trace, as major,minor; default: the busiest
    #[arg(long, value_name = "MAJOR,MINOR", value_parser = parse_device)]
    device: Option<(u32, u32)>,
    /// Seed of the world
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The pace as an option.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum PaceArg {
    Open,
    Closed,
    Think,
}

fn parse_device(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is no device: write major,minor"))
}

/// Runs `lab replay`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    if !(options.scale.is_finite() && options.scale >= 0.0) {
        bail!("--scale {}: give a factor of 0 or more", options.scale);
    }
    let trace = replay::read(&options.traces, options.device).map_err(anyhow::Error::msg)?;
    let pace = match options.pace {
        PaceArg::Open => Pace::Open,
        PaceArg::Closed => Pace::Closed,
        PaceArg::Think => Pace::Think,
    };
    let mut outcomes = Vec::new();
    for machine in &options.machine {
        let profile = Profile::load(machine)?;
        for elevator in &options.elevator {
            let setup = Setup {
                profile: &profile,
                elevator,
                pace,
                scale: options.scale,
                seed: options.seed,
            };
            outcomes.push(replay::play(&trace, &setup).map_err(anyhow::Error::msg)?);
        }
    }
    if app.out.json {
        app.out.document(&json!({ "notes": trace.notes, "outcomes": outcomes }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for note in &trace.notes {
        app.out.line(format!("note: {note}"))?;
    }
    app.out.bytes(table(&outcomes).text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A row for each process on each machine under each elevator.
fn table(outcomes: &[Outcome]) -> TextTable {
    use Align::{Left, Right};
    let mut table = TextTable::new([
        ("machine, elevator", Left),
        ("process", Left),
        ("ops", Right),
        ("MiB/s", Right),
        ("p50 ms", Right),
        ("p95", Right),
        ("p99", Right),
        ("max", Right),
        ("late", Right),
        ("failed", Right),
    ]);
    for one in outcomes {
        table.row([
            format!("{}, {}", one.machine, one.elevator),
            format!("{:.3} s, {} at once", one.seconds, one.in_flight),
            one.requests.to_string(),
        ]);
        for process in &one.processes {
            let rate = process.bytes as f64 / 1_048_576.0 / process.seconds.max(1e-9);
            let times = process.latency_ms.map(|time| format!("{time:.2}"));
            let head = [
                String::new(),
                format!("{} {}", process.pid, process.name).trim().to_owned(),
                process.ios.to_string(),
                format!("{rate:.1}"),
            ];
            let tail = [format!("{:.2}", process.late_ms), process.failed.to_string()];
            table.row(head.into_iter().chain(times).chain(tail));
        }
    }
    table
}
