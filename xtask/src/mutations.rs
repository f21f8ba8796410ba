//! Mutations of the journal, ext4 and XFS: would the crash campaign notice?
//!
//! Each patch in `xtask/mutations` takes things away on which a power cut depends, each where the
//! variable `IOPATH_MUTATION` has its name. A test checks that all of them still apply. `cargo
//! xtask mutations` applies them to a checkout of its own, builds the campaign of CI there, once,
//! runs it with one mutation after the other, and prints after how many states it failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::marked::Marked;
use crate::run;

const PATCHES: &str = "xtask/mutations";
/// Chooses a mutation in the patched code.
const VARIABLE: &str = "IOPATH_MUTATION";
/// What stands before the name of each mutation in a patch.
const NAME: &str = "name == \"";
/// What the campaign says where it has found something.
const FOUND: &str = " states before";
/// Where the table is published.
const TABLE: Marked = Marked {
    page: "docs/fault-model.md",
    marks: ["<!-- cargo xtask mutations -->", "<!-- end of mutations -->"],
};

/// A patch and the names of its mutations.
struct Patch {
    path: PathBuf,
    names: Vec<String>,
}

fn patches() -> Result<Vec<Patch>> {
    let dir = run::root().join(PATCHES);
    let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let mut patches = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let names = text.split(NAME).skip(1).filter_map(|rest| rest.split('"').next());
        patches.push(Patch { names: names.map(str::to_owned).collect(), path });
    }
    patches.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(patches)
}

fn git(dir: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new("git").args(args).current_dir(dir).output().context("git")?;
    match output.status.success() {
        true => Ok(()),
        false => bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)),
    }
}

/// A checkout of what is committed, with all patches. The one of an earlier run is used again, and
/// only what differs is written, so that only that is built.
fn checkout(root: &Path, patches: &[Patch]) -> Result<PathBuf> {
    let tree = root.join("target/mutations");
    if tree.exists() {
        let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output()?;
        let head = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        git(&tree, &["reset", "--quiet", &head])?;
    } else {
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--detach", &tree.display().to_string()])?;
    }
    for patch in patches {
        git(&tree, &["apply", "--cached", &patch.path.display().to_string()])?;
    }
    let _some_files_differ = git(&tree, &["update-index", "-q", "--refresh"]);
    git(&tree, &["checkout-index", "--all", "--force", "--index"])?;
    git(&tree, &["clean", "--quiet", "--force", "-d"])?;
    Ok(tree)
}

/// Runs the campaign with each mutation whose name begins with one of `names`, all without, and
/// prints after how many states each is found. Where all ran, the table goes into
/// docs/fault-model.md.
pub fn run_all(names: &[&str]) -> Result<()> {
    let root = run::root();
    let patches = patches()?;
    let tree = checkout(&root, &patches)?;
    // Not the usual target: its crates have the same names.
    let target = root.join("target/mutations-target");
    let built = cargo(&tree, &target, "", &[], &["--no-run"]).status().context("cargo")?;
    if !built.success() {
        bail!("{}: the patched tree does not build", tree.display());
    }
    // Nothing is mutated without the variable: then the campaign finds nothing.
    if let Some(states) = campaign(&tree, &target, "")? {
        bail!("the campaign fails without a mutation, after {states} states");
    }
    let mut table = String::from("| mutation | found after states |\n| --- | --- |\n");
    print!("{table}");
    let mut missed = Vec::new();
    for name in patches.into_iter().flat_map(|patch| patch.names) {
        if !names.is_empty() && !names.iter().any(|wanted| name.starts_with(wanted)) {
            continue;
        }
        let states = campaign(&tree, &target, &name).with_context(|| name.clone())?;
        let shown = states.map_or_else(|| "not found".to_owned(), |states| states.to_string());
        let line = format!("| `{name}` | {shown} |\n");
        print!("{line}");
        table.push_str(&line);
        missed.extend(states.is_none().then_some(name));
    }
    if names.is_empty() {
        TABLE.replace(&table)?;
    }
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("not found: {}", missed.join(", ")),
    }
}

/// Seconds after which a mutated campaign hangs.
const LIMIT: &str = "1200";

/// Cargo in the tree, with the campaign of CI and one mutation.
fn cargo(tree: &Path, target: &Path, name: &str, before: &[&str], more: &[&str]) -> Command {
    let words = [before, &["cargo", "test", "--quiet", "--workspace", "--test", "campaign"], more];
    let words = words.concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(tree);
    command.env("CARGO_TARGET_DIR", target).env(VARIABLE, name);
    command
}

/// Runs the campaign of CI in a tree; the states before the first finding.
fn campaign(tree: &Path, target: &Path, name: &str) -> Result<Option<u64>> {
    let limit = ["timeout", "--kill-after=5", LIMIT];
    let mut command = cargo(tree, target, name, &limit, &["nothing_that_was_promised"]);
    let output = command.output().context("cargo")?;
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
        let names: Vec<&String> = patches.iter().flat_map(|patch| &patch.names).collect();
        assert!(names.len() >= 12, "{names:?}");
        for Patch { path, .. } in &patches {
            git(&run::root(), &["apply", "--check", &path.display().to_string()]).unwrap();
        }
    }
}
