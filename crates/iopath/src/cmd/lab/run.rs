//! `lab run`.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use block::TraceEvent;
use block::trace::{Format, ProcessNames, write_all};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::experiment::{Experiment, Plan, RunKey, SeedRange, Size};
use lab::programs;
use lab::report::Report;
use lab::run::{Build, Progress, RunError, RunOptions, RunRecord, Shard, lines, run_all};

use super::write::LabReports;
use super::{Outputs, parse_seeds, parse_shard};
use crate::app::App;

/// Runs that were found already done count as nothing in the display.
#[derive(Args, Clone)]
pub struct Options {
    /// Experiments by name, or files; where none is named all built-in ones, without their sweeps
    /// and some tables
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Another machine instead of the experiment's: a name (`iopath machines`) or a profile
    #[arg(long, value_name = "FILE")]
    machine: Option<String>,
    /// Only this variant; may be repeated
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Only this case, or all that begin so (`d-*`); may be repeated (`lab list`)
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Only this file system
    #[arg(long, value_name = "NAME")]
    filesystem: Vec<String>,
    /// Seeds, e.g. 1..5; default: those of the experiment
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<SeedRange>,
    /// Runs at a time; default: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(0..=4096))]
    jobs: u64,
    /// All seeds, all tables, all points of the sweeps
    #[arg(long)]
    full: bool,
    /// No sweeps
    #[arg(long)]
    no_sweeps: bool,
    /// Keep results as JSON lines in this file; runs that are in it already are not done again
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Only part I of N parts; the results of all parts are joined by `lab merge`
    #[arg(long, value_name = "I/N", value_parser = parse_shard, requires = "results")]
    shard: Option<Shard>,
    /// Write the events of the first seed of each run into directories below this one
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Print all tables of all experiments as text
    #[arg(long)]
    full_text: bool,
    #[command(flatten)]
    outputs: Outputs,
}

impl Options {
    /// All experiments, with no wish about any of them.
    fn is_brief(&self) -> bool {
        let chosen = [&self.names, &self.variant, &self.case, &self.filesystem];
        chosen.iter().all(|list| list.is_empty()) && !self.full && self.seeds.is_none()
    }
}

/// The page that is written where several experiments are run and no other is asked for.
const PAGE: &str = "lab-report.html";

/// Runs `lab run`.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let experiments = asked(app, options)?;
    let short = experiments.len() > 1 && !options.full_text;
    let mut found = LabReports { short, ..LabReports::default() };
    let build = this_build();
    for experiment in &experiments {
        let records = one(app, experiment, options, &build)?;
        if options.shard.is_none() {
            let report = Report::build(experiment, records, &command(experiment, options));
            found.report(app, report)?;
        }
    }
    if options.shard.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut outputs = options.outputs.clone();
    if short && !app.out.json {
        outputs.html.get_or_insert_with(|| PAGE.into());
    }
    found.write(app, &outputs)?;
    if options.is_brief() {
        app.out.note("`iopath lab run NAME` has the sweeps and all tables, `--full` all seeds");
    }
    found.end(app)
}

/// The build of this program.
fn this_build() -> Build {
    Build::of(env!("IOPATH_COMMIT"), std::env::current_exe().ok().as_deref())
}

/// What is to be run. All is read first: a mistake in the last one should not cost the time of the
/// others. Where none is named, those that an option has no meaning for are left out, with a note.
fn asked(app: &App, options: &Options) -> Result<Vec<Experiment>> {
    let names: Vec<String> = match options.names.is_empty() {
        true => lab::experiments().map(str::to_owned).collect(),
        false => options.names.clone(),
    };
    let left_out = |name: &str, option: &str| {
        app.out.note(format!("{name} is left out: {option} has no meaning for it"));
    };
    let mut experiments = Vec::new();
    for name in names {
        let mut experiment = Experiment::load(&name)?;
        if let Some(machine) = &options.machine {
            if options.names.is_empty() && experiment.file.machine.is_at_hand() {
                left_out(&name, "--machine");
                continue;
            }
            experiment = experiment.on_machine(machine)?;
        }
        let program = programs::of(&experiment).map_err(|what| anyhow!("{name}: {what}"))?;
        let measured = experiment.file.case.values().any(|case| case.measured);
        let fits =
            (options.shard.is_none() || !measured) && (options.trace.is_none() || program.traces());
        drop(program);
        if fits || !options.names.is_empty() {
            experiments.push(experiment);
        } else {
            left_out(&name, if options.shard.is_some() { "--shard" } else { "--trace" });
        }
    }
    Ok(experiments)
}

fn one(
    app: &App,
    experiment: &Experiment,
    options: &Options,
    build: &Build,
) -> Result<Vec<RunRecord>> {
    let plan = Plan {
        size: if options.full { Size::Full } else { Size::Quick },
        seeds: options.seeds,
        variants: options.variant.clone(),
        cases: options.case.clone(),
        filesystems: options.filesystem.clone(),
        no_sweeps: options.no_sweeps,
        brief: options.is_brief(),
    };
    let run = RunOptions {
        plan,
        jobs: options.jobs as usize,
        shard: options.shard,
        trace: options.trace.is_some(),
        build: build.clone(),
    };
    let (known, file) = match &options.results {
        Some(path) => results(experiment, &run, path)?,
        None => (Vec::new(), None),
    };
    let shown = std::io::stderr().is_terminal() && !app.options.quiet && !app.out.json;
    let keeper = Keeper { bar: bar(shown, &experiment.name), file, trace: options.trace.clone() };
    let records = run_all(experiment, &run, known, &keeper);
    keeper.bar.finish_and_clear();
    Ok(records?)
}

/// What a file of results holds already, and the file to go on with.
fn results(
    experiment: &Experiment,
    run: &RunOptions,
    path: &Path,
) -> Result<(Vec<RunRecord>, Option<File>)> {
    let mut known = Vec::new();
    if path.exists() {
        let all = lines::read(path)?;
        let own = |record: &RunRecord| record.experiment == experiment.name;
        known = all.into_iter().filter(own).collect::<Vec<_>>();
        known.retain(|record| record.digest == experiment.digest);
        let made = run.made(experiment)?;
        let other = known
            .iter()
            .map(|record| &record.made)
            .find(|one| (&one.build, &one.machine) != (&made.build, &made.machine));
        if let Some(other) = other {
            bail!(
                "{} has results of another build or machine ({}; machine {}): choose another file; \
                 `iopath lab compare` shows both side by side",
                path.display(),
                other.build,
                other.machine
            );
        }
    }
    cut_torn_line(path)?;
    let file = File::options().create(true).append(true).open(path);
    Ok((known, Some(file.with_context(|| path.display().to_string())?)))
}

/// A run that was killed may have left half a line: the next one would be appended to it.
fn cut_torn_line(path: &Path) -> Result<()> {
    let Ok(text) = std::fs::read(path) else { return Ok(()) };
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        let file = File::options().write(true).open(path)?;
        file.set_len(whole as u64).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn bar(shown: bool, name: &str) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{prefix} [{bar:30}] {pos}/{len} runs, {msg} [{elapsed}, {eta} left]";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Shows progress, keeps lines and traces.
struct Keeper {
    bar: ProgressBar,
    file: Option<File>,
    trace: Option<PathBuf>,
}

impl Progress for Keeper {
    fn begin(&self, records: usize) {
        self.bar.set_length(records as u64);
    }

    fn done(&self, record: &RunRecord) -> Result<(), RunError> {
        self.bar.inc(1);
        self.bar.set_message(record.key.to_string());
        // One write of one line at the end of the file: lines of several threads do not mix.
        let write = |mut file: &File| file.write_all(lines::to_line(record).as_bytes());
        let failed = |error: std::io::Error| RunError::Lines(format!("results: {error}"));
        self.file.as_ref().map_or(Ok(()), write).map_err(failed)
    }

    fn trace(
        &self,
        key: &RunKey,
        events: &[TraceEvent],
        names: &ProcessNames,
    ) -> Result<(), RunError> {
        let Some(dir) = &self.trace else { return Ok(()) };
        let point = key.point.as_ref().map_or(String::new(), |point| {
            format!("-{}={}", point.vary.replace(' ', "-"), point.value)
        });
        let RunKey { filesystem, case, variant, seed, .. } = key;
        let name = format!("{filesystem}-{case}-{variant}{point}-{seed}");
        let formats = [Format::Blktrace, Format::Iolog, Format::Perfetto, Format::Text];
        let written = write_all(&dir.join(name), &formats, events, names);
        written.map(drop).map_err(|error| RunError::Lines(format!("trace: {error}")))
    }
}

/// The command line that gives the same again.
fn command(experiment: &Experiment, options: &Options) -> String {
    let mut line = format!("iopath lab run {}", experiment.source);
    let lists = [
        ("--filesystem", &options.filesystem),
        ("--variant", &options.variant),
        ("--case", &options.case),
    ];
    for (option, values) in lists {
        values.iter().for_each(|value| line.push_str(&format!(" {option} {value}")));
    }
    options.machine.iter().for_each(|machine| line.push_str(&format!(" --machine {machine}")));
    if let Some(seeds) = options.seeds {
        line.push_str(&format!(" --seeds {seeds}"));
    }
    let flags = [(options.full, " --full"), (options.no_sweeps, " --no-sweeps")];
    flags.iter().filter(|(set, _)| *set).for_each(|(_, flag)| line.push_str(flag));
    line
}
