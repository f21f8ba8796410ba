//! `crash explore`: the states that a power cut can leave, each recovered, checked and judged.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::Nanos;
use clap::Args;
use crash::explore::State;
use crash::finding::{FINDINGS, KINDS_MAX};
use crash::story::{Story, story};
use crash::{Disk, Exploration, Header, Judge, Kind, Limits, Log, Outcome, Refusal, Rules};
use device::Cut;
use fuse::Signals;
use lab::run::Shard;
use rt::{Cx, SpinLock};
use serde_json::json;
use vfs::FileSystem;

use super::again;
use super::directory::remove_left;
use super::interrupt;
use super::merge::INCOMPLETE;
use super::orphans::Adopting;
use super::place;
use super::program::Program;
use super::results::{Plan, Results};
use super::words;
use crate::app::App;
use crate::cmd::lab::parse_shard;
use crate::confine::folder_of;
use crate::text::printable;

/// Visit the states that a power cut can leave
#[derive(Args)]
#[command(after_help = "Examples:
  iopath crash explore run.log                            recovery and our fsck alone
  iopath crash explore run.log --oracle posix             what fsync and rename promised
  iopath crash explore run.log -- ./my-check              exit status 0: the state is right
  iopath crash explore run.log --disk nvme-awun=16K --seed 7 -- sh -c 'test -s file'
  iopath crash explore run.log --shard 3/64 --results 3.jsonl -- ./my-check
  iopath crash explore run.log --html report.html -- ./my-check
  iopath crash explore vm.log --fs btrfs --from installed -- ./my-check
  iopath crash explore run.log --cut 37,lost:12 -- ./my-check    one state, as a report names it
  iopath crash explore run.log --cut 37,lost:12 --image a.img    its disk, to look at
CHECK runs in a directory with the recovered tree; its program is found from here, its arguments are
passed as they are. $IOPATH_CRASH_MARKS names a file with a line for
each mark that had been reached, $IOPATH_CRASH_LAST_MARK is the last one, $IOPATH_CRASH_STATE the
number of the state. Disks: volatile-cache, barrier, protected, nvme-awun=SIZE, smr, smr=SIZE,
lying. Oracles: posix, ext4, xfs.
Exit status: 0 nothing found, 1 states are wrong, 2 an error, 75 not complete (--max-states).")]
pub struct Options {
    /// The log that `iopath crash record` wrote; `LOG@2`: of the disk's second partition
    #[arg(value_name = "LOG")]
    pub(super) log: PathBuf,
    /// Model of the disk: which writes it may lose
    #[arg(long, value_name = "DISK", default_value = "volatile-cache")]
    disk: Disk,
    /// The file system, where the log does not say: ext4, xfs, or one of the kernel's
    #[arg(long, value_name = "TYPE")]
    pub(super) fs: Option<Kind>,
    /// The power fails behind the first mark TEXT only
    #[arg(long, value_name = "TEXT")]
    from: Option<String>,
    /// Seed of the random states
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Visit all subsets of up to this many unflushed writes
    #[arg(long, value_name = "WRITES", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(0..=16))]
    all_subsets: u32,
    /// Random subsets at each place where there are more
    #[arg(long, value_name = "NUMBER", default_value_t = 12)]
    samples: u32,
    /// Writes that are lost, left or torn alone at each place, at most
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    singles: u32,
    /// Show at most this many kinds of findings
    #[arg(long, value_name = "NUMBER", default_value_t = FINDINGS, value_parser = parse_findings)]
    findings: usize,
    /// Judge at most this many states
    #[arg(long, value_name = "NUMBER")]
    max_states: Option<u64>,
    /// The Ith of N parts of the states, from 1
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = parse_shard)]
    shard: Shard,
    /// Keep results in a file, and continue where it ends
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Time limit for CHECK
    #[arg(long, value_name = "SECONDS", default_value_t = Options::TIMEOUT,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) timeout: u32,
    /// Checks that run at the same time, each in a directory of its own; 0: one for each processor
    #[arg(short = 'j', long, value_name = "NUMBER", default_value_t = 0,
        value_parser = parse_jobs)]
    jobs: usize,
    /// Compare with what the recorded calls guarantee, by the rules posix, ext4 or xfs
    #[arg(long, value_name = "RULES")]
    pub(super) oracle: Option<Rules>,
    /// Who recovers the states: ours, or the kernel by a loop mount, as root; kernel is the default
    /// for what is neither ext4 nor xfs
    #[arg(long, value_name = "WHO", conflicts_with = "oracle")]
    pub(super) recover: Option<Recover>,
    /// Recover every state, also one that differs from another only where recovery does not read
    #[arg(long)]
    no_fold: bool,
    /// Do not check the recovered file systems
    #[arg(long)]
    pub(super) no_fsck: bool,
    /// Run e2fsck or xfs_repair on every Nth state, too; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) outside: u64,
    /// Where directories for CHECK are made; default: $TMPDIR, /dev/shm or /tmp
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Judge one state alone, by the cut that a report names
    #[arg(long, value_name = "CUT", conflicts_with_all = ["shard", "results", "max_states"])]
    cut: Option<String>,
    /// With --cut: write the disk of that state to a new file, before its recovery
    #[arg(long, value_name = "IMAGE", requires = "cut")]
    image: Option<PathBuf>,
    /// Write a report as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The check and its arguments
    #[arg(last = true, value_name = "CHECK")]
    pub(super) check: Vec<OsString>,
}

impl Options {
    /// Seconds that CHECK may take unless the user says otherwise.
    pub(super) const TIMEOUT: u32 = 30;

    /// The kernel recovers the states, as the user says or because our code cannot.
    fn by_kernel(&self, kind: Kind) -> bool {
        self.recover.map_or(!kind.is_ours(), |who| who == Recover::Kernel)
    }
}

/// Who recovers states.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Recover {
    /// Our code, in memory.
    Ours,
    /// The kernel.
    Kernel,
}

/// How a report begins: only one is written over.
const PAGE_BEGINS: &[u8] = b"<!doctype html><!-- iopath crash -->";

/// Checks that may run at the same time.
const JOBS_MAX: usize = 1024;

/// Exit status where states are wrong.
pub const FOUND: u8 = 1;

/// Runs `crash explore`.
///
/// # Errors
/// The log cannot be used, or the results not be written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    // Before there is any other thread.
    interrupt::watch(Signals::block(), options.dir.as_deref());
    let (path, partition) = place::split_partition(&options.log);
    let beside = place::address(path).is_none().then(|| folder_of(path));
    remove_left(options.dir.as_deref().into_iter().chain(beside));
    let shown = options.log.display().to_string();
    let log = log_of(app, path, partition)?;
    let kind = kind_of(&log, options).with_context(|| shown.clone())?;
    let from = options.from.as_ref().map(|mark| log.at_mark(mark).context(no_mark(&log, mark)));
    let from = from.transpose().with_context(|| shown.clone())?.unwrap_or(0);
    let shard = format!("{}/{}", options.shard.number, options.shard.parts);
    let page = options.html.as_deref().map(|path| {
        let page = crash::output::open(path, PAGE_BEGINS);
        page.with_context(|| path.display().to_string())
    });
    let page = page.transpose()?;
    let command = words::resolved(&options.check)?;
    refuse_same_place(options)?;
    let mut results = match &options.results {
        Some(path) => Some(Results::open(app, path, plan(&log, kind, options, &command)?, &shard)?),
        None => None,
    };
    let exploration = Exploration { from, ..exploration(kind, options, results.as_ref()) };
    let program = Arc::new(Program {
        command,
        limit: Duration::from_secs(options.timeout.into()),
        parent: options.dir.as_deref().map(std::path::absolute).transpose()?,
        known: SpinLock::named("checked trees", Default::default()),
    });
    let judge = Judges { program: program.clone(), asks: !options.check.is_empty() };
    let _ends_what_checks_leave = judge.asks.then(Adopting::begin).transpose()?;
    let began = app.cx.now();
    let outcome = match &options.cut {
        Some(cut) => {
            let cut = crash::cut::parse(cut, &log).map_err(|error| anyhow::anyhow!(error))?;
            let image = options.image.as_deref();
            again::judge(&log, &exploration, &judge, cut, image).with_context(|| shown.clone())?
        }
        None => explore(app, &shown, &log, &exploration, &judge, &mut results)?,
    };
    let took = app.cx.now() - began;
    let mut stories = Vec::new();
    for finding in &outcome.findings {
        let mut story = story(&log, kind, finding).with_context(|| shown.clone())?;
        story.repeat = Some(again::command(options, &story.cut));
        stories.push(story);
    }
    if let (Some(path), Some(mut file)) = (&options.html, page) {
        let page = crash::report::html(&log, &exploration, &outcome, &stories);
        let written = crash::output::empty(&file).and_then(|()| file.write_all(page.as_bytes()));
        written.with_context(|| path.display().to_string())?;
    }
    report(app, &shown, &outcome, &stories, took, program.trees())?;
    Ok(match (outcome.wrong, outcome.complete) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(INCOMPLETE),
        _ => ExitCode::from(FOUND),
    })
}

/// The log, or that of a partition of its disk; says where its recording did not end.
///
/// # Errors
/// It cannot be used; there is no such partition.
fn log_of(app: &mut App, path: &Path, partition: Option<u32>) -> Result<Log> {
    let log = place::open_log(app, path)?;
    let shown = path.display();
    if let Some(bytes) = log.cut_short() {
        let entries = log.len();
        app.out.note(format!(
            "{shown}: the log is cut short after {bytes} bytes, its recording did not end: this is \
             about its first {entries} entries"
        ));
    }
    match partition {
        Some(number) => place::partition(app, &log, number).with_context(|| shown.to_string()),
        None => Ok(log),
    }
}

/// The file system: as the user says, as the log says, or as its last state does.
///
/// # Errors
/// Nobody says it, or it is not one that is recovered; its checker is asked for and there is none;
/// the log cannot be read.
fn kind_of(log: &Log, options: &Options) -> Result<Kind> {
    let named = &log.header().file_system;
    let kind = match (options.fs, named.as_str()) {
        (Some(kind), Header::UNKNOWN) => Ok(kind),
        (Some(kind), named) if kind.to_string() == named => Ok(kind),
        (Some(kind), named) => bail!("--fs {kind}: the log says that it is {named}"),
        (None, Header::UNKNOWN) => {
            let end = crash::explore::medium(log, &Cut::clean(log.len()))?;
            Kind::of(&end)?.context(
                "no file system is there when the log ends; of a disk with partitions name one: \
                 `LOG@2` is the second",
            )
        }
        (None, named) => named.parse().map_err(|error| anyhow::anyhow!("{error}")),
    }?;
    if options.outside > 0 && kind.checker().is_none() {
        bail!("--outside: no checker of {kind} is known that changes nothing; let CHECK run one");
    }
    Ok(kind)
}

/// # Errors
/// The results would take the place of the log or of the page.
fn refuse_same_place(options: &Options) -> Result<()> {
    let Some(path) = &options.results else { return Ok(()) };
    if same_file(path, place::split_partition(&options.log).0) {
        bail!("--results {}: this is the log", path.display());
    }
    match &options.html {
        Some(page) if page == path || same_file(path, page) => {
            bail!("--results {}: this is the page of --html", path.display())
        }
        _ => Ok(()),
    }
}

/// Two names of one file that exists.
fn same_file(one: &Path, other: &Path) -> bool {
    let place = |path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    place(one).is_some_and(|found| Some(found) == place(other))
}

/// The marks of a log, where one is not among them.
fn no_mark(log: &Log, mark: &str) -> String {
    let marks = log.marks(log.len());
    let some = marks.iter().take(8).map(|mark| format!("{mark:?}")).collect::<Vec<_>>().join(", ");
    format!("no mark {mark:?}; there are {} marks: {some}", marks.len())
}

/// What is explored, as the options say; results say where it goes on.
fn exploration(kind: Kind, options: &Options, results: Option<&Results>) -> Exploration {
    Exploration {
        disk: options.disk,
        seed: options.seed,
        limits: Limits {
            all_subsets: options.all_subsets,
            samples: options.samples,
            singles: options.singles,
        },
        shard: (options.shard.number as u64 - 1, options.shard.parts as u64),
        before: results.map_or_else(Outcome::default, |results| results.before().clone()),
        findings_max: options.findings,
        states_max: options.max_states.unwrap_or(u64::MAX),
        oracle: options.oracle,
        check: !options.no_fsck,
        outside: options.outside,
        fold: !options.no_fold,
        by_kernel: options.by_kernel(kind),
        jobs: options.jobs,
        ..Exploration::new(kind)
    }
}

/// What decides about the states and what is said of them.
fn plan(log: &Log, kind: Kind, options: &Options, command: &[OsString]) -> Result<Plan> {
    let check: Vec<_> = options.check.iter().map(|word| word.to_string_lossy()).collect();
    let recorded =
        format!("{:016x} ({} entries of \"{}\")", log.digest(), log.len(), log.header().command);
    let options = [
        ("log", recorded),
        ("order of states", crash::plan::VERSION.to_string()),
        ("fs", kind.to_string()),
        ("from", options.from.clone().unwrap_or_default()),
        ("disk", options.disk.to_string()),
        ("seed", options.seed.to_string()),
        ("all-subsets", options.all_subsets.to_string()),
        ("samples", options.samples.to_string()),
        ("singles", options.singles.to_string()),
        ("oracle", options.oracle.map_or_else(|| "none".to_owned(), |rules| rules.to_string())),
        ("fsck", if options.no_fsck { "no" } else { "yes" }.to_owned()),
        ("outside", options.outside.to_string()),
        ("recover", if options.by_kernel(kind) { "kernel" } else { "ours" }.to_owned()),
        ("timeout", options.timeout.to_string()),
        ("check", format!("\"{}\"", check.join(" "))),
        ("content of the check", words::content(command)?),
    ];
    Ok(options.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A number of kinds of findings.
///
/// # Errors
/// It is none of those that are kept.
pub fn parse_findings(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=KINDS_MAX).contains(number));
    number.ok_or_else(|| format!("not a number from 1 to {KINDS_MAX}"))
}

/// A number of checks that run at the same time.
///
/// # Errors
/// It is no number, or too large for threads.
fn parse_jobs(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= JOBS_MAX);
    number.ok_or_else(|| format!("not a number from 0 to {JOBS_MAX}"))
}

/// That there are kinds of findings which are not shown.
pub fn further(outcome: &Outcome) -> Option<String> {
    let (all, further) = (outcome.kinds.len(), outcome.further);
    let known = if all >= KINDS_MAX { "at least " } else { "" };
    (further > 0)
        .then(|| format!("and {known}{further} further kinds of findings: --findings {all}"))
}

/// Explores, with progress on a terminal and results in the file.
fn explore(
    app: &mut App,
    name: &str,
    log: &Log,
    exploration: &Exploration,
    judge: &Judges,
    results: &mut Option<Results>,
) -> Result<Outcome> {
    let mut failed = None;
    let shown = app.out.progress("states");
    let outcome = crash::explore(log, exploration, judge, &mut |outcome| {
        // What a signal has ended is no verdict.
        interrupt::unless_ended(|| ());
        let (wrong, kinds) = (outcome.wrong, outcome.kinds.len());
        let message = format!("{}, {wrong} wrong in {kinds} ways", outcome.judged);
        shown.count(message, outcome.entries as f64 / log.len().max(1) as f64);
        if let (Some(results), None) = (results.as_mut(), &failed) {
            failed = results.note(app, outcome).err();
        }
    });
    shown.finish();
    // Where a signal has ended what a state needs, that is what is said.
    interrupt::unless_ended(|| ());
    let outcome = outcome.with_context(|| name.to_owned())?;
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(results) = results {
        results.end(app)?;
    }
    Ok(outcome)
}

fn report(
    app: &mut App,
    log: &str,
    outcome: &Outcome,
    stories: &[Story],
    took: Nanos,
    trees: usize,
) -> Result<()> {
    if app.out.json {
        let document = json!({
            "log": log,
            "states": outcome.planned,
            "distinct": outcome.distinct,
            "judged": outcome.judged,
            "recovered": outcome.recovered,
            "wrong": outcome.wrong,
            "trees": trees,
            "complete": outcome.complete,
            "seconds": took.0 as f64 / 1e9,
            "findings": stories,
            "further": outcome.further,
        });
        return Ok(app.out.document(&document)?);
    }
    for story in stories {
        // Marks and names may hold anything.
        for line in story.to_string().lines() {
            app.out.line(printable(line.as_bytes()))?;
        }
        app.out.line("")?;
    }
    if let Some(note) = further(outcome) {
        app.out.line(note)?;
    }
    let rate = outcome.judged as f64 / (took.0.max(1) as f64 / 1e9);
    let asked = match trees {
        0 => String::new(),
        trees => format!(", {trees} trees given to the check"),
    };
    app.out.line(format!(
        "{log}: {} states, {} distinct, {} judged ({rate:.0}/s), {} recovered for it{asked}: \
         {} wrong, {} kinds{}",
        outcome.planned,
        outcome.distinct,
        outcome.judged,
        outcome.recovered,
        outcome.wrong,
        outcome.findings.len() as u64 + outcome.further,
        if outcome.complete { "" } else { "; not complete" },
    ))?;
    Ok(())
}

/// Those who look at a recovered state.
struct Judges {
    program: Arc<Program>,
    /// There is a program.
    asks: bool,
}

impl Judge for Judges {
    fn judge(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, state: &State) -> Result<(), Refusal> {
        match self.asks {
            true => self.program.judge(cx, fs, state),
            false => Ok(()),
        }
    }

    fn judge_mounted(&self, dir: &Path, state: &State) -> Result<(), Refusal> {
        match self.asks {
            true => self.program.judge_mounted(dir, state),
            false => Ok(()),
        }
    }
}
