//! Running other programs, with one line of what and how long.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The project's root folder.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the project's root").to_path_buf()
}

/// Runs cargo and fails where it fails.
pub fn cargo(args: &[&str]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    program(&cargo, args)
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

/// Runs one step of a longer task and says on standard error how long it took.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
pub fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    task().with_context(|| format!("step `{name}`"))?;
    eprintln!("    {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
