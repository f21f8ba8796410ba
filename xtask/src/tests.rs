//! The test programs of the workspace, as many at once as keep the processors busy.
//!
//! `cargo test` runs one test program after the other, and most of them end with one long test: a
//! processor waits. Here the programs are built by cargo, then run side by side.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run;

/// A test program and the folder of its package, where it runs.
struct Program {
    path: PathBuf,
    folder: PathBuf,
    package: String,
}

/// Builds and runs every test program, then the examples in the documentation.
///
/// # Errors
/// What does not build; the names of the programs that failed, whose output is printed.
pub fn run_all() -> Result<()> {
    let programs = build()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let total = programs.len();
    let queue = Mutex::new(programs.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").next();
                    let Some(program) = next else { break };
                    if let Err(error) = one(&program) {
                        eprintln!("{error:#}");
                        failed.lock().expect("no worker panics").push(program.path);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no worker panics");
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|path| path.display().to_string()).collect();
        bail!("{} of {total} test programs failed: {}", failed.len(), names.join(" "));
    }
    run::cargo(&["test", "--workspace", "--quiet", "--doc"])
}

/// What cargo builds.
fn build() -> Result<Vec<Program>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--no-run", "--quiet"]);
    command.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build ({})", output.status);
    }
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut programs = Vec::new();
    for line in lines {
        let message: Value = serde_json::from_slice(line).context("a message of cargo")?;
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
    let mut command = Command::new(&program.path);
    command.arg("--quiet").current_dir(&program.folder);
    // As cargo sets them: a failure says by them how it is repeated.
    command.env("CARGO_MANIFEST_DIR", &program.folder).env("CARGO_PKG_NAME", &program.package);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    bail!("{}: {}\n{out}{err}", program.path.display(), output.status)
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
