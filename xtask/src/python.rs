//! The Python package: built as a wheel, installed in an environment of its own, and tested.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// The crate, whose folder holds the package's sources and tests.
const CRATE: &str = "crates/python";
/// The environment; it is kept, so that a second run installs the wheel only.
const ENVIRONMENT: &str = "target/python/venv";
const WHEELS: &str = "target/python/wheels";
/// Stands between maturin and cargo, and says why.
const SHARED_CARGO: &str = "xtask/src/python/cargo.sh";
/// What the environment was installed from.
const INSTALLED: &str = "target/python/requirements.txt";

/// Builds, installs and tests the package; `more` goes to pytest.
///
/// # Errors
/// What failed, or what is missing with the command that installs it.
pub fn test(more: &[&str]) -> Result<()> {
    let python = environment()?;
    let python = run::text(&python)?;
    let wheel = wheel(python)?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    run::program(python, &[&install[..], &[run::text(&wheel)?]].concat())?;
    let config = format!("{CRATE}/pyproject.toml");
    let types = ["-m", "mypy", "--cache-dir", "target/python/mypy", "--config-file", &config];
    run::program(python, &[&types[..], &["-p", "extxfs"]].concat())?;
    run::program(python, &["-m", "mypy.stubtest", "extxfs._native"])?;
    let tests = ["-m", "pytest", "-p", "no:cacheprovider", "-c", &config, CRATE];
    // The wheel was built along with all tests, and these with the command. It runs the lab.
    let command = run::root().join("target/debug/iopath");
    let mut pytest = Command::new(python);
    pytest.args(tests).args(more).env("IOPATH_BIN", command);
    if !pytest.status().context("cannot start pytest")?.success() {
        bail!("tests of {CRATE} failed");
    }
    Ok(())
}

/// The environment's Python, with what `requirements.txt` pins.
fn environment() -> Result<PathBuf> {
    let python = std::env::current_dir()?.join(ENVIRONMENT).join("bin/python");
    let wanted = std::fs::read_to_string(format!("{CRATE}/requirements.txt"))?;
    if python.exists() && std::fs::read_to_string(INSTALLED).is_ok_and(|there| there == wanted) {
        return Ok(python);
    }
    let made = Command::new("python3").args(["-m", "venv", "--clear", ENVIRONMENT]).status();
    if !made.is_ok_and(|status| status.success()) {
        bail!("python3 with venv is missing; install it with: apt-get install -y python3-venv");
    }
    eprintln!("    installing {CRATE}/requirements.txt in {ENVIRONMENT}");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    let requirements = format!("{CRATE}/requirements.txt");
    run::program(run::text(&python)?, &[&install[..], &[&requirements]].concat())?;
    std::fs::write(INSTALLED, wanted)?;
    Ok(python)
}

/// Builds the wheel, of an unoptimized build: the tests look at what it does.
fn wheel(python: &str) -> Result<PathBuf> {
    if Path::new(WHEELS).exists() {
        std::fs::remove_dir_all(WHEELS)?;
    }
    let manifest = format!("{CRATE}/Cargo.toml");
    let build = ["-m", "maturin", "build", "--quiet", "--out", WHEELS, "--profile", "dev"];
    let target = ["--compatibility", "linux", "--manifest-path", &manifest];
    let cargo = run::root().join(SHARED_CARGO);
    let status = Command::new(python)
        .args(build)
        .args(target)
        .env("IOPATH_CARGO", run::own_cargo())
        .env("CARGO", cargo)
        .status();
    if !status.context("cannot start maturin")?.success() {
        bail!("maturin cannot build the wheel");
    }
    let mut wheels = std::fs::read_dir(WHEELS).context(WHEELS)?;
    Ok(wheels.next().context("maturin made no wheel")??.path())
}
