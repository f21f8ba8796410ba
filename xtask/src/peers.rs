//! `docs/peers.md`: our mount and command beside the peers, measured in one run on the machine at
//! hand. Every round runs every way once; medians and ranges are reported, wins and losses alike.

mod page;
mod ways;

use crate::run;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use ways::{BUILDERS, MOUNTERS, PRELUDE, WORKS};

const PAGE: &str = "docs/peers.md";
const ROUNDS: usize = 5;

/// Where images and trees lie, in memory: a folder for each process, whose number follows the
/// prefix.
const SCRATCH: &str = "/dev/shm";
const PREFIX: &str = "iopath-peers-";

/// The programs that are measured.
struct Programs {
    /// Ours.
    ours: PathBuf,
    /// The one that leads to the crates of others.
    crates: PathBuf,
}

/// What was measured.
#[derive(Default)]
struct Figures {
    /// The kinds of work in their order; the index and the name of a kind lead to its ways.
    order: Vec<String>,
    /// Seconds of each round, by work and way.
    seconds: BTreeMap<(usize, String), BTreeMap<&'static str, Vec<f64>>>,
    /// What the judges said of a way.
    judged: BTreeSet<(&'static str, String)>,
}

impl Figures {
    fn note(&mut self, way: &'static str, output: ScriptOutput) {
        for (label, seconds) in output.seconds {
            let at = self.order.iter().position(|known| *known == label).unwrap_or_else(|| {
                self.order.push(label.clone());
                self.order.len() - 1
            });
            self.seconds.entry((at, label)).or_default().entry(way).or_default().push(seconds);
        }
        self.judged.extend(output.judged.into_iter().map(|text| (way, text)));
    }

    /// The median of a way's seconds for some work.
    fn median(&self, work: &str, way: &str) -> Option<f64> {
        let at = self.order.iter().position(|known| known == work)?;
        self.seconds.get(&(at, work.to_owned()))?.get(way).map(|seconds| middle(seconds))
    }
}

/// The median of an odd number of figures.
pub(crate) fn middle(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// What one script reported.
struct ScriptOutput {
    seconds: Vec<(String, f64)>,
    judged: Vec<String>,
}

/// Measures everything and writes the page. `IOPATH_ROUNDS` says how many rounds; `IOPATH_BIN` and
/// `IOPATH_PEERS_BIN` name programs that are built already.
pub fn write() -> Result<()> {
    let ours = match std::env::var_os("IOPATH_BIN") {
        Some(binary) => PathBuf::from(binary),
        None => {
            run::cargo(&["build", "--release", "--quiet"])?;
            run::root().join("target/release/iopath")
        }
    };
    let crates = match std::env::var_os("IOPATH_PEERS_BIN") {
        Some(binary) => PathBuf::from(binary),
        None => {
            let (manifest, target) = ("peers/Cargo.toml", "target/peers");
            let from = ["build", "--release", "--quiet", "--locked", "--manifest-path", manifest];
            run::cargo(&[&from[..], &["--target-dir", target]].concat())?;
            run::root().join(target).join("release/iopath-peers")
        }
    };
    let rounds = match std::env::var("IOPATH_ROUNDS") {
        Ok(text) => text.parse().context("IOPATH_ROUNDS is a number above 0")?,
        Err(_) => ROUNDS,
    };
    sweep()?;
    let place = PathBuf::from(SCRATCH).join(format!("{PREFIX}{}", std::process::id()));
    std::fs::create_dir_all(place.join("mnt")).with_context(|| place.display().to_string())?;
    let measured = measure(&place, &Programs { ours, crates }, rounds);
    std::fs::remove_dir_all(&place).context("removing the scratch folder")?;
    std::fs::write(PAGE, page::page(&measured?, rounds)?).context(PAGE)
}

/// Takes away what runs that were killed have left: mounts, with them their loop devices, and
/// folders.
fn sweep() -> Result<()> {
    for entry in std::fs::read_dir(SCRATCH).context(SCRATCH)? {
        let place = entry.context(SCRATCH)?.path();
        let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(Ok(process)) = name.strip_prefix(PREFIX).map(str::parse::<u32>) else { continue };
        if Path::new("/proc").join(process.to_string()).exists() {
            continue;
        }
        eprintln!("    taking away what process {process} has left in {}", place.display());
        // Not mounted is what is hoped for.
        let _not_mounted = Command::new("umount").arg("-l").arg(place.join("mnt")).output();
        std::fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    Ok(())
}

fn measure(place: &Path, programs: &Programs, rounds: usize) -> Result<Figures> {
    crate::bench::make_tree(&place.join("tree"))?;
    let mut figures = Figures::default();
    for round in 0..rounds {
        eprintln!("    round {} of {rounds}", round + 1);
        for work in WORKS {
            let able = |name: &str| !work.without.contains(&name);
            for mounter in MOUNTERS.iter().filter(|mounter| able(mounter.name)) {
                let script = format!("{}\n{}", mounter.functions, work.script);
                figures.note(mounter.name, once(place, programs, &script)?);
            }
        }
        for (name, script) in BUILDERS {
            figures.note(name, once(place, programs, script)?);
        }
    }
    Ok(figures)
}

/// Runs a script; answers what it tells.
fn once(place: &Path, programs: &Programs, script: &str) -> Result<ScriptOutput> {
    let _none_left = std::fs::remove_dir_all(place.join("out"));
    std::fs::create_dir_all(place.join("out"))?;
    let output = Command::new("bash")
        .args(["-ec", &format!("{PRELUDE}\n{script}")])
        .current_dir(place)
        .env("I", place.join("image"))
        .env("M", place.join("mnt"))
        .env("T", place.join("tree"))
        .env("O", place.join("out"))
        .env("W", place.join("work"))
        .env("B", &programs.ours)
        .env("C", &programs.crates)
        .output()
        .context("cannot start bash")?;
    if !output.status.success() {
        bail!("{script}\n{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| {
        let (label, nanos) = line.strip_prefix("@ ")?.rsplit_once(' ')?;
        Some((label.to_owned(), nanos.parse::<f64>().ok()? / 1e9))
    };
    let judged = text.lines().filter_map(|line| line.strip_prefix("! "));
    Ok(ScriptOutput {
        seconds: text.lines().filter_map(parse).collect(),
        judged: judged.map(str::to_owned).collect(),
    })
}
