//! `lab`: published tables, repeated in virtual time.

mod bisect;
mod calibrate;
mod compare;
mod init;
mod instructions;
mod replay;
mod run;
mod search;
mod sensitivity;
mod write;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use lab::experiment::{Experiment, SeedRange};
use lab::report::Report;
use lab::run::{RunRecord, Shard, lines};
use serde_json::{Value, json};

use self::write::LabReports;
use crate::app::App;

/// Repeat published tables on modelled machines and show ours beside them
///
/// An experiment is a file: the document, the machine, the variants, the workloads or the program
/// that does the runs, the published table and what must hold. Runs in virtual time give one result
/// for each seed. Every figure stands beside the published one, with their ratio, calibrated or
/// predicted, inside or outside its band.
///
/// Exit status: 0 where everything lies inside of its range or was accepted with a reason, 3 where
/// something lies outside, 1 for an error, 2 for wrong usage.
#[derive(Args)]
#[command(after_help = "Examples:
  iopath lab list
  iopath lab run
  iopath lab run --html all.html
  iopath lab run cfq-yield --full --html cfq-yield.html
  iopath lab run bh-lru --case c-4 --markdown bh-lru.md
  iopath lab instructions --set a
  iopath lab run cfq-yield --variant patched --case mixed --seeds 1..3
  iopath lab run nfs-partial --full
  iopath lab run xfs-buf-item --full
  iopath lab run my-experiment.toml --results runs.jsonl --shard 1/8
  iopath lab merge all.jsonl runs-1.jsonl runs-2.jsonl
  iopath lab init cfq-yield --like > mine.toml
  iopath lab run cfq-yield --machine my-array.toml --results mine.jsonl
  iopath lab replay trace --machine array-2010 --elevator cfq --elevator relay --pace think
  iopath lab calibrate sim:flash-sata --write -o mine.toml
  iopath lab search cfq-yield --tries 40
  iopath lab sensitivity dio-boundary
  iopath lab bisect --good v1 -- sh -c 'cargo run --release -- lab run ./mine.toml'
  iopath lab compare before.jsonl after.jsonl
  iopath lab report all.jsonl --html report.html")]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments
    List,
    /// Run all experiments, or the given ones
    Run(Box<run::Options>),
    /// Print an experiment as a file that can be changed and run
    Init(init::Options),
    /// Show the figures of two files of results side by side: two builds, or two machines
    Compare(compare::Options),
    /// Find the commit from which on a command fails
    Bisect(bisect::Options),
    /// Measure a device and fit a machine to it, as a profile
    Calibrate(calibrate::Options),
    /// Run a recorded trace on modelled machines, under any elevator
    Replay(replay::Options),
    /// Move each constant that was fitted, and show what the headlines become
    Sensitivity(sensitivity::Options),
    /// Try plausible machines, and show which come nearest to all published cells
    Search(search::Options),
    /// Count the instructions of an operation for each size of the buffer-head LRU (valgrind)
    Instructions(instructions::Instructions),
    /// Make the report again from files of results
    Report(ReportOptions),
    /// Join files of results, in any order
    Merge(MergeOptions),
}

/// Where reports go beside standard output.
#[derive(Args, Clone, Debug, Default)]
struct Outputs {
    /// Write the report as JSON, raw samples included
    #[arg(long = "json-file", value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Write the report as one page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the table of all experiments as Markdown
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// A template of your own for the page
    #[arg(long, value_name = "FILE", requires = "html")]
    template: Option<PathBuf>,
}

#[derive(Args)]
struct ReportOptions {
    /// Files of results, or reports in JSON
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The experiment's file, if it is not a built-in one
    #[arg(long, value_name = "FILE")]
    experiment: Option<String>,
    /// Print all tables of all experiments as text
    #[arg(long)]
    full_text: bool,
    #[command(flatten)]
    outputs: Outputs,
}

#[derive(Args)]
struct MergeOptions {
    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Files of results
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// In `lab run .. --json FILE` the option takes a file, where in other commands it takes none: a
/// word behind it that ends in `.json` is that file. `-o` of `lab calibrate` is its output; of
/// other commands it is mount options.
pub fn with_own_options(args: Vec<OsString>, command: Option<&String>) -> Vec<OsString> {
    let calibrates = command.is_some_and(|name| name == "calibrate");
    let mut out: Vec<OsString> = Vec::with_capacity(args.len());
    for arg in args {
        let text = arg.to_string_lossy();
        if calibrates && text == "-o" {
            out.push("--output".into());
            continue;
        }
        let after_json = out.last().is_some_and(|last| last == "--json");
        if after_json && text.ends_with(".json") {
            out.pop();
            out.push("--json-file".into());
        } else if let Some(file) = text.strip_prefix("--json=") {
            out.push(format!("--json-file={file}").into());
            continue;
        }
        out.push(arg);
    }
    out
}

/// Runs `lab`.
///
/// # Errors
/// An experiment that is not valid, a run that failed, a file that cannot be read or written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::List => list(app),
        Command::Run(options) => run::run(app, options),
        Command::Init(options) => init::run(app, options),
        Command::Compare(options) => compare::run(app, options),
        Command::Bisect(options) => bisect::run(app, options),
        Command::Calibrate(options) => calibrate::run(app, options),
        Command::Replay(options) => replay::run(app, options),
        Command::Search(options) => search::run(app, options),
        Command::Sensitivity(options) => sensitivity::run(app, options),
        Command::Instructions(options) => instructions::run(app, options),
        Command::Report(options) => report(app, options),
        Command::Merge(options) => merge(app, options),
    }
}

fn list(app: &mut App) -> Result<ExitCode> {
    for name in lab::experiments() {
        let file = Experiment::load(name)?.file;
        let document = &file.document;
        let mut bases: Vec<_> = file.metric.values().map(|metric| metric.basis).collect();
        bases.sort();
        bases.dedup();
        let basis = bases.iter().map(|basis| basis.word()).collect::<Vec<_>>().join(" and ");
        let (title, author, date) = (&document.title, &document.author, &document.date);
        let variants: Vec<String> = file.variant.keys().cloned().collect();
        let cases: Vec<String> = file.case.keys().cloned().collect();
        if app.out.json {
            app.out.document(&json!({
                "name": name, "title": title, "author": author, "date": date, "basis": basis,
                "question": file.question.split_whitespace().collect::<Vec<_>>().join(" "),
                "variants": variants, "cases": cases,
            }))?;
            continue;
        }
        app.out.line(name)?;
        app.out.line(format!("  {title}, {author}, {date}; {basis}"))?;
        app.out.line(format!("  variants: {}", variants.join(" ")))?;
        app.out.line(format!("  cases: {}", cases.join(" ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What files of results, and reports in JSON, hold.
#[derive(Default)]
struct Kept {
    /// Runs by experiment, merged.
    runs: Vec<(String, Vec<RunRecord>)>,
}

impl Kept {
    fn read(files: &[PathBuf]) -> Result<Kept> {
        let mut kept = Kept::default();
        for path in files {
            if path.extension().is_some_and(|extension| extension == "json") {
                kept.take_reports(path)?;
            } else {
                kept.take(lines::read(path)?);
            }
        }
        for (_, records) in &mut kept.runs {
            *records = lines::merge(std::mem::take(records))?;
        }
        Ok(kept)
    }

    fn take(&mut self, records: Vec<RunRecord>) {
        for record in records {
            match self.runs.iter_mut().find(|(name, _)| *name == record.experiment) {
                Some((_, records)) => records.push(record),
                None => self.runs.push((record.experiment.clone(), vec![record])),
            }
        }
    }

    /// A report in JSON, or a list of them.
    fn take_reports(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let no_report = || format!("{}: no report of the lab", path.display());
        let reports = match value {
            Value::Array(reports) => reports,
            one => vec![one],
        };
        for mut report in reports {
            let runs = report.get_mut("runs").map(Value::take).unwrap_or_default();
            let runs: Vec<RunRecord> = serde_json::from_value(runs).with_context(no_report)?;
            let checked = runs.iter().try_for_each(lines::check);
            checked.map_err(|what| anyhow!("{}: {what}", path.display()))?;
            self.take(runs);
        }
        Ok(())
    }
}

fn report(app: &mut App, options: &ReportOptions) -> Result<ExitCode> {
    let kept = Kept::read(&options.files)?;
    let short = kept.runs.len() > 1 && !options.full_text;
    let mut found = LabReports { short, ..LabReports::default() };
    for (name, records) in kept.runs {
        let experiment = Experiment::load(options.experiment.as_ref().unwrap_or(&name));
        let experiment = experiment.with_context(|| {
            format!("the results are of {name}; --experiment FILE says where one of your own is")
        })?;
        if let Some(record) = records.iter().find(|record| record.digest != experiment.digest) {
            bail!(
                "the results are of another text of {name} ({} instead of {}): run it again",
                record.digest,
                experiment.digest
            );
        }
        let files: Vec<String> = options.files.iter().map(|f| f.display().to_string()).collect();
        let command = format!("iopath lab report {}", files.join(" "));
        found.report(app, Report::build(&experiment, records, &command))?;
    }
    found.write(app, &options.outputs)?;
    found.end(app)
}

fn merge(app: &mut App, options: &MergeOptions) -> Result<ExitCode> {
    let mut text = String::new();
    let mut count = 0;
    for (_, records) in Kept::read(&options.files)?.runs {
        count += records.len();
        text.extend(records.iter().map(lines::to_line));
    }
    let path = options.out.display();
    std::fs::write(&options.out, text).with_context(|| path.to_string())?;
    match app.out.json {
        true => app.out.document(&json!({ "runs": count, "file": path.to_string() }))?,
        false => app.out.line(format!("{count} runs in {path}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `i/n`, from 1.
///
/// # Errors
/// A sentence.
pub(super) fn parse_shard(text: &str) -> Result<Shard, String> {
    let wrong = || format!("`{text}` is no part: write 1/4 to 4/4");
    let (number, parts) = text.split_once('/').ok_or_else(wrong)?;
    let (number, parts) =
        (number.parse().map_err(|_| wrong())?, parts.parse().map_err(|_| wrong())?);
    if (1..=parts).contains(&number) && parts <= 100_000 {
        Ok(Shard { number, parts })
    } else {
        Err(wrong())
    }
}

fn parse_seeds(text: &str) -> Result<SeedRange, String> {
    text.parse()
}

/// A failure to write, with the path.
fn cannot(path: &Path) -> impl Fn(std::io::Error) -> anyhow::Error + '_ {
    move |error| anyhow!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let args = with_own_options(args, None).into_iter().map(|arg| arg.into_string().unwrap());
        args.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn json_takes_a_file() {
        assert_eq!(rewritten("iopath lab run --json a.json"), "iopath lab run --json-file a.json");
        assert_eq!(rewritten("iopath lab run --json=x x"), "iopath lab run --json-file=x x");
        assert_eq!(rewritten("iopath lab run --json cfq-yield"), "iopath lab run --json cfq-yield");
    }

    #[test]
    fn parts_are_counted_from_one() {
        assert_eq!(parse_shard("2/4"), Ok(Shard { number: 2, parts: 4 }));
        for wrong in ["0/4", "5/4", "1", "a/b", "1/0", "1/999999"] {
            assert!(parse_shard(wrong).unwrap_err().contains(wrong));
        }
    }
}
