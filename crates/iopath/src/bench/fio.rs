//! The front end of fio.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use base::Nanos;
use workload::fio::{self, FioReport, JobErrors, JobFile, Surroundings};

use super::{Machine, Prepare, Where, run_at, texts};
use crate::app::App;

/// fio's own command line, without the jobs.
#[derive(Debug)]
struct CommandLine {
    files: Vec<String>,
    /// `--key=value` of jobs, without dashes.
    settings: Vec<String>,
    output: Option<PathBuf>,
    formats: Vec<Format>,
    sections: Vec<String>,
    parse_only: bool,
    warnings_fatal: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Normal,
    Json,
    JsonPlus,
    Terse,
}

/// Options of fio that change nothing here, since no progress is shown and nothing is debugged.
const PASSED_OVER: [&str; 5] = ["eta", "eta-newline", "eta-interval", "max-jobs", "readonly"];
/// Options of fio that are refused by their name.
const REFUSED: [&str; 14] = [
    "client",
    "server",
    "daemonize",
    "remote-config",
    "status-interval",
    "showcmd",
    "cmdhelp",
    "enghelp",
    "crctest",
    "cpuclock-test",
    "idle-prof",
    "inflate-log",
    "trigger-file",
    "debug",
];

impl CommandLine {
    fn parse(arguments: &[String], json: bool) -> Result<CommandLine> {
        let mut line = CommandLine {
            files: Vec::new(),
            settings: Vec::new(),
            output: None,
            formats: vec![if json { Format::Json } else { Format::Normal }],
            sections: Vec::new(),
            parse_only: false,
            warnings_fatal: false,
        };
        for argument in arguments {
            match argument.strip_prefix("--") {
                Some(option) => line.option(option)?,
                None => line.files.push(argument.clone()),
            }
        }
        Ok(line)
    }

    fn option(&mut self, option: &str) -> Result<()> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "output" => self.output = Some(PathBuf::from(value)),
            "output-format" => self.formats = formats(value)?,
            "minimal" => self.formats = vec![Format::Terse],
            "append-terse" => self.formats.push(Format::Terse),
            "terse-version" if value == "3" => {}
            "terse-version" => bail!("--terse-version={value}: not supported by the fio front end"),
            "section" => self.sections.push(value.into()),
            "parse-only" => self.parse_only = true,
            "warnings-fatal" => self.warnings_fatal = true,
            key if PASSED_OVER.contains(&key) => {}
            key if REFUSED.contains(&key) => bail!("--{key}: not supported by the fio front end"),
            _ => self.settings.push(option.into()),
        }
        Ok(())
    }
}

fn formats(value: &str) -> Result<Vec<Format>> {
    let format = |name: &str| match name {
        "normal" => Ok(Format::Normal),
        "json" => Ok(Format::Json),
        "json+" => Ok(Format::JsonPlus),
        "terse" => Ok(Format::Terse),
        _ => Err(anyhow!("--output-format: `{name}` is not normal, json, json+ or terse")),
    };
    value.split(',').map(format).collect()
}

/// Runs fio with its own arguments.
///
/// # Errors
/// A wrong command line or job file, a place that cannot be used, output that cannot be written.
/// A job that fails is reported in the output, and by the exit status 1.
pub fn run(
    app: &mut App,
    place: Option<Where>,
    machine: &Machine,
    stop_after: Option<Nanos>,
    lenient: bool,
    arguments: &[OsString],
) -> Result<ExitCode> {
    let line = CommandLine::parse(&texts(arguments)?, app.out.json)?;
    let place = match place {
        Some(place) => place,
        None => {
            machine.refuse_without_sim()?;
            Where::Host(PathBuf::new())
        }
    };
    let Some(files) = read_jobs(&line, lenient)? else { return Ok(ExitCode::FAILURE) };
    if line.parse_only {
        return Ok(ExitCode::SUCCESS);
    }
    let mut status = 0;
    for file in &files {
        if line.warnings_fatal && !file.warnings.is_empty() {
            bail!("{}", file.warnings.join("; "));
        }
        status |= run_file(app, &place, stop_after, &line, file)?;
    }
    Ok(ExitCode::from(status))
}

/// Reads all jobs; where some are wrong, reports what and returns `None`.
fn read_jobs(line: &CommandLine, lenient: bool) -> Result<Option<Vec<JobFile>>> {
    let variable = |name: &str| std::env::var(name).ok();
    let include = |name: &str| std::fs::read_to_string(name).map_err(|error| error.to_string());
    let around = Surroundings {
        variable: &variable,
        include: &include,
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get()) as u64,
        // That of our path, whatever the host has.
        page_size: 4096,
        memory_mib: memory_mib(),
    };
    let settings: Vec<&str> = line.settings.iter().map(String::as_str).collect();
    let named = settings.first().is_some_and(|first| first.starts_with("name="));
    let mut parsed: Vec<Result<JobFile, JobErrors>> = Vec::new();
    if named || line.files.is_empty() {
        if settings.is_empty() {
            bail!("no jobs are defined; name a job file, or open a job with --name=NAME");
        }
        parsed.push(JobFile::from_arguments(&settings, &around, lenient));
    }
    let overrides = if named { &[][..] } else { &settings };
    for name in &line.files {
        let text = read_file(name)?;
        let name = if name == "-" { "standard input" } else { name };
        parsed.push(JobFile::parse_in(name, &text, overrides, &around, lenient));
    }
    let mut files = Vec::new();
    let mut good = true;
    for result in parsed {
        match result {
            Ok(file) => files.push(chosen(file, &line.sections)?),
            Err(errors) => {
                eprintln!("{errors}");
                good = false;
            }
        }
    }
    Ok(good.then_some(files))
}

fn read_file(name: &str) -> Result<String> {
    if name != "-" {
        return std::fs::read_to_string(name).with_context(|| format!("job file {name}"));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("job file on standard input")?;
    Ok(text)
}

fn memory_mib() -> u64 {
    rustix::system::sysinfo().totalram as u64 >> 20
}

fn chosen(mut file: JobFile, sections: &[String]) -> Result<JobFile> {
    if !sections.is_empty() {
        file.jobs.retain(|job| sections.contains(&job.name));
        if file.jobs.is_empty() {
            bail!("--section={}: no such section", sections.join(", --section="));
        }
    }
    Ok(file)
}

fn run_file(
    app: &mut App,
    place: &Where,
    stop_after: Option<Nanos>,
    line: &CommandLine,
    file: &JobFile,
) -> Result<u8> {
    // On our path the files are laid out under a mount of their own, so that nothing is cached.
    let lay_out = |cx: &mut rt::Cx, target: &workload::Target| {
        fio::lay_out(cx, target, file).map(drop).map_err(|text| anyhow!("fio: {text}"))
    };
    let lay_out: Prepare = &lay_out;
    let cold = !matches!(place, Where::Host(_)) && file.jobs.iter().any(|job| job.invalidate);
    let prepare = cold.then_some(lay_out);
    let finished = run_at(app, place, stop_after, prepare, |cx, _, target, stop| {
        fio::run(cx, target, file, stop)
    })?;
    let report = finished.result;
    report.messages.iter().for_each(|message| eprintln!("{message}"));
    write_logs(&report)?;
    let text: String = line.formats.iter().map(|&format| rendered(&report, format)).collect();
    match &line.output {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => app.out.bytes(text.as_bytes())?,
    }
    if let Some(note) = finished.note {
        app.out.note(note);
    }
    Ok(report.exit_status())
}

fn rendered(report: &FioReport, format: Format) -> String {
    match format {
        Format::Normal => report.text(),
        Format::Json => report.json(false),
        Format::JsonPlus => report.json(true),
        Format::Terse => report.terse(),
    }
}

/// Writes the logs that the jobs asked for; those with one name follow each other.
fn write_logs(report: &FioReport) -> Result<()> {
    let mut files: std::collections::BTreeMap<&str, String> = Default::default();
    for (name, content) in report.logs() {
        files.entry(name).or_default().push_str(content);
    }
    for (name, content) in files {
        std::fs::write(name, content).with_context(|| format!("log file {name}"))?;
    }
    Ok(())
}
