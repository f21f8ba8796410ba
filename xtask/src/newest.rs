//! xfsprogs and e2fsprogs of Debian's newest suite, in a folder of their own beside the host's.
//!
//! `testkit::newest` runs them with the folder's own loader, so that the folder needs nothing but
//! files. It is made once, in about a minute.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{judges, run};

/// The folder where `IOPATH_NEWEST` names none; `testkit::newest` looks there, too.
const FOLDER: &str = "/var/cache/iopath/newest";
/// What is installed.
const PACKAGES: &str = "xfsprogs,e2fsprogs";
const SUITE: &str = "sid";

/// The folder of the tools.
pub fn folder() -> PathBuf {
    std::env::var_os("IOPATH_NEWEST").map_or_else(|| FOLDER.into(), PathBuf::from)
}

/// Makes sure that the tools are there, and prints their version.
///
/// # Errors
/// What is missing, with the command that makes it.
pub fn require() -> Result<()> {
    let folder = folder();
    if !there(&folder) {
        make(&folder)?;
    }
    eprintln!("    {}: {}", folder.display(), version()?);
    Ok(())
}

fn there(folder: &Path) -> bool {
    ["mkfs.xfs", "xfs_repair", "e2fsck"]
        .iter()
        .all(|tool| folder.join("usr/sbin").join(tool).exists())
}

/// Makes the folder under another name first, so that a run that was cut leaves none.
fn make(folder: &Path) -> Result<()> {
    let name = folder.display();
    if !judges::is_root() {
        bail!("{name}: no newest judges there; as root: cargo xtask judges --newest");
    }
    let new = folder.with_extension("new");
    let unfinished = new.to_str().context("the folder's name is no text")?;
    if new.exists() {
        std::fs::remove_dir_all(&new).with_context(|| format!("{unfinished} is in the way"))?;
    }
    let parent = folder.parent().context("the folder has no parent")?;
    std::fs::create_dir_all(parent)?;
    eprintln!("    installing {PACKAGES} of {SUITE} in {name}");
    let include = format!("--include={PACKAGES}");
    run::program("debootstrap", &["--variant=minbase", &include, SUITE, unfinished])?;
    if folder.exists() {
        bail!("{name} is there without the tools: remove it");
    }
    Ok(std::fs::rename(&new, folder)?)
}

/// The words that run one of the tools in a shell.
pub fn words(tool: &str) -> String {
    let folder = folder();
    let folder = folder.display();
    let loader = "lib64/ld-linux-x86-64.so.2 --library-path";
    format!("{folder}/{loader} {folder}/usr/lib/x86_64-linux-gnu {folder}/usr/sbin/{tool}")
}

fn version() -> Result<String> {
    let output = Command::new("sh").args(["-c", &format!("{} -V", words("mkfs.xfs"))]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
