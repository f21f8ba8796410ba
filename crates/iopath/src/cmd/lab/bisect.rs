//! `lab bisect`: the commit from which on a command fails.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use tempfile::TempDir;

use crate::app::App;

/// The status by which a command says that a commit cannot be judged (git's own).
const SKIP: i32 = 125;

/// What `lab bisect` takes.
#[derive(Args)]
pub struct Options {
    /// A commit at which the command succeeds
    #[arg(long, value_name = "COMMIT")]
    good: String,
    /// A later commit at which it fails
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    bad: String,
    /// The repository
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    repository: PathBuf,
    /// Run in a checkout of each commit that is tried: 0 says good, 125 that it cannot be judged,
    /// every other status bad
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What a commit is found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Good,
    Bad,
    Skipped,
}

/// Runs `lab bisect`.
///
/// # Errors
/// No repository, no such commit, no commit between them; a command that cannot be started or was
/// ended by a signal; one that does not succeed at the good end, or not fail at the bad one.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let commits = between(&options.repository, &options.good, &options.bad)?;
    let checkout = Checkout::new(&options.repository, &options.good)?;
    let mut tried = 0;
    let mut judge = |app: &mut App, at: usize| {
        tried += 1;
        let commit = if at == 0 { &options.good } else { &commits[at - 1] };
        let verdict = checkout.judge(commit, &options.command)?;
        if !app.out.json {
            let word = match verdict {
                Verdict::Good => "good",
                Verdict::Bad => "bad",
                Verdict::Skipped => "skipped",
            };
            app.out.line(format!("{word:7} {}", checkout.describe(commit)?))?;
        }
        Ok(verdict)
    };
    for (at, wanted, end) in [(0, Verdict::Good, "--good"), (commits.len(), Verdict::Bad, "--bad")]
    {
        if judge(app, at)? != wanted {
            bail!("{end}: the command does not say so at this end: is it the right command?");
        }
    }
    let found = search(commits.len(), &mut |at| judge(app, at))?;
    let names = found.iter().map(|&at| checkout.describe(&commits[at - 1]));
    let names = names.collect::<Result<Vec<_>>>()?;
    if app.out.json {
        let first: Vec<&String> = found.iter().map(|&at| &commits[at - 1]).collect();
        app.out
            .document(&json!({ "first_bad": first, "tried": tried, "commits": commits.len() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match &names[..] {
        [one] => app.out.line(format!("bad since {one}"))?,
        several => {
            app.out.line("bad since one of these; the others could not be judged:")?;
            several.iter().try_for_each(|name| app.out.line(format!("  {name}")))?;
        }
    }
    app.out.line(format!("{tried} of {} commits were tried", commits.len() + 1))?;
    Ok(ExitCode::SUCCESS)
}

/// The places that may be the first bad one, of `count` behind a good one at 0; the last is bad.
fn search(count: usize, judge: &mut dyn FnMut(usize) -> Result<Verdict>) -> Result<Vec<usize>> {
    let (mut good, mut bad) = (0, count);
    let mut skipped = BTreeSet::new();
    loop {
        let middle = good + (bad - good) / 2;
        let open = (good + 1..bad).filter(|at| !skipped.contains(at));
        let Some(at) = open.min_by_key(|at| at.abs_diff(middle)) else {
            return Ok((good + 1..=bad).collect());
        };
        match judge(at)? {
            Verdict::Good => good = at,
            Verdict::Bad => bad = at,
            Verdict::Skipped => {
                skipped.insert(at);
            }
        }
    }
}

/// The commits behind `good` up to `bad`, oldest first, along the first parents.
fn between(repository: &Path, good: &str, bad: &str) -> Result<Vec<String>> {
    git(repository, &["merge-base", "--is-ancestor", good, bad])
        .with_context(|| format!("`{good}` is not older than `{bad}`"))?;
    let range = format!("{good}..{bad}");
    let list = git(repository, &["rev-list", "--reverse", "--first-parent", &range])?;
    let commits: Vec<String> = list.lines().map(str::to_owned).collect();
    if commits.is_empty() {
        bail!("there is no commit between `{good}` and `{bad}`");
    }
    Ok(commits)
}

/// What git prints.
fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments).stdin(Stdio::null());
    let output = command.output().context("git cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A working tree of its own, so that the user's stays as it is. What a command builds in ignored
/// folders is there for the next commit. Removed at the end.
struct Checkout {
    repository: PathBuf,
    tree: PathBuf,
    _folder: TempDir,
}

impl Checkout {
    fn new(repository: &Path, commit: &str) -> Result<Checkout> {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        let tree = folder.path().join("tree");
        let text = tree.to_str().context("the temporary folder's name is no text")?;
        git(repository, &["worktree", "add", "--quiet", "--detach", text, commit])?;
        Ok(Checkout { repository: repository.to_owned(), tree, _folder: folder })
    }

    fn judge(&self, commit: &str, command: &[OsString]) -> Result<Verdict> {
        git(&self.tree, &["checkout", "--quiet", "--force", "--detach", commit])?;
        let (program, arguments) = command.split_first().expect("at least one word");
        let mut child = Command::new(program);
        child.args(arguments).current_dir(&self.tree).stdin(Stdio::null());
        // What it prints is not the answer.
        child.stdout(Stdio::null());
        let status = child.status().with_context(|| program.display().to_string())?;
        match status.code() {
            Some(0) => Ok(Verdict::Good),
            Some(SKIP) => Ok(Verdict::Skipped),
            Some(_) => Ok(Verdict::Bad),
            None => bail!("{} at {commit}: {status}", Path::new(program).display()),
        }
    }

    fn describe(&self, commit: &str) -> Result<String> {
        git(&self.tree, &["log", "-1", "--format=%h %s", commit])
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let tree = self.tree.as_os_str();
        let remove = [OsStr::new("worktree"), OsStr::new("remove"), OsStr::new("--force"), tree];
        // Nothing can be done about it here; `git worktree prune` forgets what is gone.
        drop(Command::new("git").arg("-C").arg(&self.repository).args(remove).output());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer and the tries, where all from `first` on are bad.
    fn found(count: usize, first: usize, skip: &[usize]) -> (Vec<usize>, usize) {
        let mut tried = 0;
        let answer = search(count, &mut |at| {
            assert!((1..count).contains(&at), "the ends are known");
            tried += 1;
            Ok(match at {
                _ if skip.contains(&at) => Verdict::Skipped,
                _ if at >= first => Verdict::Bad,
                _ => Verdict::Good,
            })
        });
        (answer.unwrap(), tried)
    }

    #[test]
    fn the_first_bad_one_is_found_in_as_many_tries_as_halves() {
        for count in 1..40 {
            for first in 1..=count {
                let (answer, tried) = found(count, first, &[]);
                assert_eq!(answer, [first], "{count}");
                assert!(tried <= count.next_power_of_two().ilog2() as usize, "{count}: {tried}");
            }
        }
    }

    #[test]
    fn what_cannot_be_judged_stays_in_the_answer() {
        assert_eq!(found(10, 6, &[5, 6]).0, [5, 6, 7]);
        assert_eq!(found(10, 6, &[1, 2, 9]).0, [6]);
        assert_eq!(found(3, 3, &[1, 2]).0, [1, 2, 3]);
    }
}
