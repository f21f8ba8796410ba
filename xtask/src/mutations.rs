//! Mutations of the journal, ext4 and XFS: would the crash campaign notice?
//!
//! Each file in `xtask/mutations` is a patch that takes something away on which a power cut
//! depends. A test checks that all of them still apply. `cargo xtask mutations` applies one after
//! the other in a checkout of its own, runs the campaign of CI, and prints after how many states it
//! failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

const PATCHES: &str = "xtask/mutations";
/// What the campaign says where it has found something.
const FOUND: &str = " states before";

/// The patches, by name.
fn patches() -> Result<Vec<PathBuf>> {
    let dir = run::root().join(PATCHES);
    let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let mut patches: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    patches.sort();
    Ok(patches)
}

fn git(dir: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new("git").args(args).current_dir(dir).output().context("git")?;
    match output.status.success() {
        true => Ok(()),
        false => bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)),
    }
}

/// Applies the mutations whose names begin with one of `names`, all without, one after the other.
pub fn run_all(names: &[&str]) -> Result<()> {
    let root = run::root();
    let tree = root.join("target/mutations/tree");
    if tree.exists() {
        git(&root, &["worktree", "remove", "--force", &tree.display().to_string()])?;
    }
    git(&root, &["worktree", "add", "--detach", &tree.display().to_string()])?;
    let mut missed = Vec::new();
    println!("| mutation | found after states |\n| --- | --- |");
    for patch in patches()? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !names.is_empty() && !names.iter().any(|wanted| name.starts_with(wanted)) {
            continue;
        }
        git(&tree, &["checkout", "--force", "--", "."])?;
        git(&tree, &["apply", &patch.display().to_string()])?;
        match campaign(&tree, &root.join("target/mutations/target"))? {
            Some(states) => println!("| {name} | {states} |"),
            None => {
                println!("| {name} | not found |");
                missed.push(name);
            }
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("not found: {}", missed.join(", ")),
    }
}

/// Runs the campaign of CI in a tree; the states before the first finding.
fn campaign(tree: &Path, target: &Path) -> Result<Option<u64>> {
    let output = Command::new("cargo")
        .args(["test", "--quiet", "-p", "iopath-crash", "--test", "campaign"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .context("cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let states = text.find(FOUND).and_then(|at| text[..at].rsplit(' ').next());
    match states.and_then(|states| states.parse().ok()) {
        Some(states) => Ok(Some(states)),
        None => bail!("the campaign fails without a finding:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A patch that does not apply any more says nothing about the code of today.
    #[test]
    fn mutations_apply() {
        let patches = patches().unwrap();
        assert!(patches.len() >= 12, "{patches:?}");
        for patch in patches {
            git(&run::root(), &["apply", "--check", &patch.display().to_string()]).unwrap();
        }
    }
}
