//! The test programs of the workspace, as many at once as keep the processors busy.
//!
//! `cargo test` runs one test program after the other, and most of them end with one long test: a
//! processor waits. Here the programs are built by cargo, then run side by side.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run;

/// How long a program may run: ten times what the slowest one needs on two processors. A test that
/// waits forever is named, and the others have their say.
const LIMIT: Duration = Duration::from_secs(1500);

/// How many programs are named that took longest.
const SLOWEST: usize = 12;

/// A test program and the folder of its package, where it runs.
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    folder: PathBuf,
    package: String,
}

/// Builds and runs every test program, then the examples in the documentation.
///
/// # Errors
/// What does not build; the names of the programs that failed, whose output is printed.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
pub fn run_all() -> Result<()> {
    let programs = build(&[])?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let ended = each(workers, &programs, |program| {
        let begin = Instant::now();
        let failed = one(program).inspect_err(|error| eprintln!("{error:#}")).is_err();
        (begin.elapsed(), program.path.display().to_string(), failed)
    });
    let failed: Vec<&str> =
        ended.iter().filter(|(.., failed)| *failed).map(|(_, path, _)| path.as_str()).collect();
    slowest(ended.iter().map(|(time, path, _)| (*time, path.as_str())).collect());
    if !failed.is_empty() {
        let (some, all) = (failed.len(), programs.len());
        bail!("{some} of {all} test programs failed: {}", failed.join(" "));
    }
    run::cargo(&["test", "--workspace", "--quiet", "--doc"])
}

/// Names the programs that took longest, for who looks where the time goes.
fn slowest(mut programs: Vec<(Duration, &str)>) {
    programs.sort_unstable_by(|a, b| b.cmp(a));
    for (time, path) in programs.iter().take(SLOWEST) {
        let name = path.rsplit('/').next().unwrap_or(path);
        eprintln!("    {:6.1} s {name}", time.as_secs_f64());
    }
}

/// What the work answers for each item, in their order; so many threads take one after the other.
pub fn each<I: Sync, T: Send>(
    threads: usize,
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let mut done = side_by_side(threads, &|| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// What so many threads answer, each of which does the work.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
pub fn side_by_side<T: Send>(threads: usize, work: &(impl Fn() -> Vec<T> + Sync)) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// The test programs that cargo builds, all or those that `which` chooses.
///
/// # Errors
/// What does not build.
pub fn build(which: &[&str]) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for message in run::artifacts(&[&["test", "--workspace", "--no-run"], which].concat())? {
        let is_test = message["profile"]["test"] == true;
        let (path, manifest) = (message["executable"].as_str(), message["manifest_path"].as_str());
        if let (true, Some(path), Some(manifest)) = (is_test, path, manifest) {
            let folder = PathBuf::from(manifest).parent().context("a manifest")?.to_owned();
            let package = package_of(message["package_id"].as_str().unwrap_or_default());
            programs.push(Program { path: path.into(), folder, package });
        }
    }
    Ok(programs)
}

/// The name in a package's id: `path+file:///folder#name@version`, or `path+file:///name#version`.
fn package_of(id: &str) -> String {
    let (place, name) = id.rsplit_once('#').unwrap_or((id, ""));
    let folder = place.rsplit('/').next().unwrap_or_default();
    name.split_once('@').map_or(folder, |(name, _)| name).to_owned()
}

/// Runs one program; its output is the error, where it fails.
fn one(program: &Program) -> Result<()> {
    let said = program.path.with_extension("said");
    let file = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
    let mut command = Command::new(&program.path);
    command.current_dir(&program.folder).process_group(0).stdin(Stdio::null());
    // No pipe: a process that outlives its test would hold it open, and we would wait for it.
    command.stdout(file.try_clone()?).stderr(file);
    // As cargo sets them: a failure says by them how it is repeated.
    command.env("CARGO_MANIFEST_DIR", &program.folder).env("CARGO_PKG_NAME", &program.package);
    let mut child = command.spawn()?;
    let ended = within(LIMIT, &mut child)?;
    let processes = if ended.is_none() { of_group(child.id())? } else { String::new() };
    // What the program has left behind ends with it.
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status()?;
    let how = match ended {
        Some(status) if status.success() => return Ok(()),
        Some(status) => status.to_string(),
        None => format!("still running after {} s:\n{processes}", LIMIT.as_secs()),
    };
    let output = fs::read(&said)?;
    let output = String::from_utf8_lossy(&output);
    bail!("{}: {how}\n{output}", program.path.display())
}

/// How the program ended; `None` where it has not within the time.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
fn within(limit: Duration, child: &mut Child) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(None)
}

/// The processes of a group, a line each: what they are and where they wait.
fn of_group(group: u32) -> Result<String> {
    let format = "pid,ppid,pgid,stat,etimes,wchan:24,args";
    let output = Command::new("ps").args(["-eww", "-o", format]).output()?;
    let (table, group) = (String::from_utf8_lossy(&output.stdout), group.to_string());
    let of_it = |line: &&str| {
        let its = line.split_whitespace().nth(2);
        its == Some("PGID") || its == Some(&group)
    };
    Ok(table.lines().filter(of_it).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    /// Goal: a failing campaign names its package in the command that repeats it.
    #[test]
    fn the_name_of_a_package() {
        let names = ["path+file:///w/crates/ext4#iopath-ext4@0.1.0", "path+file:///w/xtask#0.1.0"];
        assert_eq!(names.map(super::package_of), ["iopath-ext4", "xtask"]);
    }
}
