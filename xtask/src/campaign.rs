//! The long crash campaign: pieces of some thousand states, several at once, whose figures are kept
//! and published. Killed and started again, it does the pieces that are not there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::marked::Marked;
use crate::{run, suite};

/// Workloads of one piece: some 10,000 states, of which the kernel's control takes 400.
const PIECE: u64 = 340;
/// Where the figures are published.
const TABLE: Marked = Marked {
    page: "docs/fault-model.md",
    marks: ["<!-- cargo xtask campaign -->", "<!-- end of campaign -->"],
};
/// The same of XFS with parent pointers.
const PARENTS: Marked = Marked {
    page: "docs/fault-model.md",
    marks: ["<!-- cargo xtask campaign --parents -->", "<!-- end of campaign of parents -->"],
};
/// A part of the campaign: its test, what its figures begin with, and their file.
const PROMISES: Part = ("nothing_that_was_promised_is_lost", "campaign ", "pieces.jsonl");
const KERNEL: Part = ("kernel::the_kernel_recovers_the_same", "control ", "control.jsonl");

type Part = (&'static str, &'static str, &'static str);

/// A campaign of one seed.
struct Campaign {
    seed: u64,
    /// Its program, built when it began, and what it has found so far.
    dir: PathBuf,
    /// Pieces at once.
    jobs: usize,
    /// Of XFS with parent pointers alone.
    parents: bool,
}

/// Goes on until there are so many states, each of another content, and so many that the kernel
/// recovered; then publishes.
///
/// # Errors
/// What the campaign found, with its story.
pub fn run_all(args: &[&str]) -> Result<()> {
    let (mut states, mut kernel, mut seed) = (1_000_000, 10_000, 7);
    let mut parents = false;
    let mut jobs = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse().ok());
        match *arg {
            "--seed" => seed = number().context("--seed NUMBER")?,
            "--kernel" => kernel = number().context("--kernel STATES")?,
            "--parents" => parents = true,
            "--jobs" => jobs = number().context("--jobs NUMBER")?,
            text => states = text.parse().with_context(|| format!("{text}: not a number"))?,
        }
    }
    let kinds = if parents { "-parents" } else { "" };
    let dir = run::root().join(format!("target/campaign/{seed}{kinds}"));
    let campaign = Campaign { seed, dir, jobs: jobs.clamp(1, 1024) as usize, parents };
    campaign.program()?;
    campaign.part(PROMISES, states, || campaign.contents())?;
    campaign.part(KERNEL, kernel, || Ok(sum(&campaign.pieces(KERNEL)?, "states")))?;
    let table = if parents { PARENTS } else { TABLE };
    table.replace(&campaign.table()?)
}

impl Campaign {
    /// The test program: all pieces are of the same one, also where the code changes meanwhile.
    fn program(&self) -> Result<PathBuf> {
        let program = self.dir.join("program");
        if !program.exists() {
            std::fs::create_dir_all(&self.dir)?;
            let built = suite::build(&["--release", "--test", "campaign"])?;
            let built = built.first().context("no program of that name")?;
            std::fs::copy(&built.path, &program).context("copy the test program")?;
        }
        Ok(program)
    }

    /// The figures of all pieces of a part.
    fn pieces(&self, (_, _, file): Part) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).context(line.to_owned())).collect()
    }

    /// How many contents of a disk were judged.
    fn contents(&self) -> Result<u64> {
        let keys = std::fs::read(self.dir.join("keys")).unwrap_or_default();
        let mut contents: Vec<&[u8]> = keys.chunks_exact(8).collect();
        contents.sort_unstable();
        contents.dedup();
        Ok(contents.len() as u64)
    }

    /// Does pieces until `reached` answers as many as are wanted.
    fn part(
        &self,
        part: Part,
        wanted: u64,
        reached: impl Fn() -> Result<u64> + Sync,
    ) -> Result<()> {
        let there: BTreeSet<u64> =
            self.pieces(part)?.iter().map(|piece| count(piece, "round")).collect();
        let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = || {
            let mut failed = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let result = reached().and_then(|states| {
                    println!("{}: {states} of {wanted} states", part.0);
                    let mut round = || next.fetch_add(PIECE, Ordering::Relaxed);
                    let round = std::iter::repeat_with(&mut round).find(|at| !there.contains(at));
                    match round.filter(|_| states < wanted) {
                        Some(round) => self.piece(part, round).map(|()| false),
                        None => Ok(true),
                    }
                });
                let ends = result.unwrap_or_else(|error| {
                    failed.push(error);
                    true
                });
                ended.fetch_or(ends, Ordering::Relaxed);
            }
            failed
        };
        suite::side_by_side(self.jobs, &work).into_iter().next().map_or(Ok(()), Err)
    }

    /// Does the piece that begins with a workload, and keeps its figures.
    fn piece(&self, (test, begins, file): Part, round: u64) -> Result<()> {
        let all = u64::MAX.to_string();
        let output = Command::new(self.program()?)
            .args(["--nocapture", "--exact", test])
            .current_dir(run::root().join("crates/crash"))
            .env("IOPATH_CRASH_SEED", self.seed.to_string())
            .env("IOPATH_CRASH_ROUND", round.to_string())
            .env("IOPATH_CRASH_ROUNDS", PIECE.to_string())
            .env("IOPATH_CRASH_STATES", &all)
            .env("IOPATH_CRASH_ORDER", "short")
            .env("IOPATH_CRASH_KERNEL", &all)
            .env("IOPATH_CRASH_ONLY", if self.parents { "parents" } else { "" })
            .env("IOPATH_CRASH_KEYS", self.dir.join("keys"))
            .output()
            .context("the test program")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(|line| line.strip_prefix(begins));
        let Some(figures) = figures.filter(|_| output.status.success()) else {
            bail!("{test}, round {round}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
        };
        let out = std::fs::File::options().append(true).create(true).open(self.dir.join(file));
        out?.write_all(format!("{figures}\n").as_bytes()).context("the figures of a piece")
    }

    /// What the page says: one line for each kind of file system.
    fn table(&self) -> Result<String> {
        let pieces = self.pieces(PROMISES)?;
        let first = pieces.first().context("no piece")?;
        let sequences = count(first, "sequences");
        let of_kinds = pieces.iter().filter_map(|piece| piece["kinds"].as_array());
        let workloads: u64 = of_kinds.map(|kinds| sum(kinds, "workloads")).sum();
        let mut table = format!(
            "Seed {}: {} states in {} workloads, {} contents of a disk; nothing was lost.\n\n\
             | file system | states | recovered for them | of these, asked outside | workloads \
             | short sequences, of {sequences} |\n| --- | --- | --- | --- | --- | --- |\n",
            self.seed,
            sum(&pieces, "states"),
            workloads,
            self.contents()?,
        );
        let kinds = first["kinds"].as_array().context("no kinds")?;
        for (index, kind) in kinds.iter().enumerate() {
            let own: Vec<Value> =
                pieces.iter().map(|piece| piece["kinds"][index].clone()).collect();
            let name = kind["name"].as_str().unwrap_or_default().replace(['"', '\\'], "`");
            write!(table, "| {} |", name.trim_end_matches(", ``"))?;
            for figure in ["states", "recovered", "asked", "workloads", "short"] {
                write!(table, " {} |", sum(&own, figure))?;
            }
            table.push('\n');
        }
        let kernel = sum(&self.pieces(KERNEL)?, "states");
        writeln!(
            table,
            "\nThe kernel {} mounted and recovered {kernel} states of short and long workloads: \
             the same trees as ours.",
            run::kernel()?
        )?;
        Ok(table)
    }
}

fn count(piece: &Value, name: &str) -> u64 {
    piece[name].as_u64().unwrap_or_default()
}

fn sum(pieces: &[Value], name: &str) -> u64 {
    pieces.iter().map(|piece| count(piece, name)).sum()
}
