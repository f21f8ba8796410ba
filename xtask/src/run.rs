//! Running other programs, with one line of what and how long.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The project's root folder: of the tree in which cargo runs us, where a copied folder `target`
/// has the program of another one.
pub fn root() -> PathBuf {
    let built = || env!("CARGO_MANIFEST_DIR").into();
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(built, PathBuf::from);
    xtask.parent().expect("xtask lies in the project's root").to_path_buf()
}

/// The release of the kernel that runs us.
pub fn kernel() -> Result<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    Ok(release.context("the kernel's release")?.trim().to_owned())
}

/// The cargo that runs us.
pub fn own_cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// What says to cargo whether it keeps what makes the next build of a changed crate cheaper.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// True where nothing but this program was built before, and nobody has chosen yet how to build.
pub fn is_cold() -> bool {
    let built = std::fs::read_dir("target/debug/incremental").into_iter().flatten().flatten();
    let others = built.filter(|one| !one.file_name().to_string_lossy().starts_with("xtask"));
    std::env::var_os(INCREMENTAL).is_none() && others.count() == 0
}

/// Runs a task of ours with cargo told to keep nothing: a first build is faster, and half as large
/// on disk.
pub fn again_without_incremental(task: &str) -> Result<()> {
    let own = std::env::current_exe().context("this program's path")?;
    let status = Command::new(own).arg(task).env(INCREMENTAL, "0").status();
    if !status.context("cannot start this program again")?.success() {
        bail!("`{task}` failed");
    }
    Ok(())
}

/// Processor time of the programs that we have waited for, seconds.
pub fn of_children() -> Result<f64> {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat")?;
    // proc_pid_stat(5): cutime and cstime are the fields 16 and 17; we are behind the second.
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

/// Runs cargo and fails where it fails.
pub fn cargo(args: &[&str]) -> Result<()> {
    program(&own_cargo(), args)
}

/// What cargo writes on standard output; a non-zero exit is an error, of which cargo says more on
/// standard error.
pub fn cargo_output(args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(own_cargo()).args(args).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed ({})", args.join(" "), output.status);
    }
    Ok(output.stdout)
}

/// What a call of cargo builds, a message of cargo each.
pub fn artifacts(args: &[&str]) -> Result<Vec<Value>> {
    const MESSAGES: &[&str] = &["--quiet", "--message-format=json-render-diagnostics"];
    let output = cargo_output(&[args, MESSAGES].concat())?;
    let lines = output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("a message of cargo")).collect()
}

/// The packages of the workspace, with `deps` their dependencies too, as `cargo metadata` has them.
pub fn metadata(deps: bool) -> Result<Value> {
    let only_ours: &[&str] = if deps { &[] } else { &["--no-deps"] };
    let output = cargo_output(&[&["metadata", "--format-version", "1"], only_ours].concat())?;
    serde_json::from_slice(&output).context("output of cargo metadata")
}

/// Runs a program with our own input and output; a non-zero exit is an error.
pub fn program(name: &str, args: &[&str]) -> Result<()> {
    let status =
        Command::new(name).args(args).status().with_context(|| format!("cannot start `{name}`"))?;
    if !status.success() {
        bail!("`{name} {}` failed ({status})", args.join(" "));
    }
    Ok(())
}

/// A path as an argument of a program.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}

/// Runs one step of a longer task and says on standard error how long it took.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
pub fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    task().with_context(|| format!("step `{name}`"))?;
    eprintln!("    {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
