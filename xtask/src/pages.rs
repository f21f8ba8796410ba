//! `pages`: the pages and tables of the experiments are outputs of the lab, and are never typed.
//!
//! Each page of `docs/reproductions` that is listed here is the Markdown report of one command. The
//! summary of all of them goes between the two marks of `docs/results.md`. `--check` does the runs
//! that give the same on every machine and take no minutes again, and compares them with what is
//! there; continuous integration checks those that take a second or two in a build for tests.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::marked::Marked;
use crate::run;

/// A page and the command that makes it.
struct Page {
    /// The page's name.
    name: &'static str,
    /// What of the lab makes it: all figures are modelled or counted, so the page is the same on
    /// every machine.
    args: &'static [&'static str],
    /// Its results go into the table of all.
    results: bool,
    /// Who runs it again.
    checked: Checked,
}

/// Who runs a page again to compare it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Checked {
    /// Nobody: it takes minutes.
    No,
    /// `pages --check`.
    Check,
    /// Continuous integration too.
    Integration,
}

use Checked::{Check, Integration, No};

const fn experiment(name: &'static str, args: &'static [&'static str], checked: Checked) -> Page {
    Page { name, args, results: true, checked }
}

const PAGES: &[Page] = &[
    experiment("cfq-yield", &["run", "cfq-yield"], No),
    experiment("dio-boundary", &["run", "dio-boundary"], Check),
    experiment("dio-boundary-sata", &["run", "dio-boundary-sata"], Integration),
    experiment("dio-boundary-ram", &["run", "dio-boundary-ram"], Integration),
    experiment("today", &["run", "today"], Check),
    experiment("today-sata", &["run", "today-sata"], Check),
    experiment("today-groups", &["run", "today-groups"], Check),
    experiment("today-queues", &["run", "today-queues"], Integration),
    experiment("nfs-partial", &["run", "nfs-partial"], No),
    experiment("xfs-buf-item", &["run", "xfs-buf-item", "--case", "4k", "--case", "64k"], No),
    // What is counted; the times of the machine at hand are in bh-lru-full.
    experiment("bh-lru", &["run", "bh-lru", "--case", "trace-*"], No),
    Page { name: "cfq-yield-machines", args: SEARCH, results: false, checked: No },
];

const SEARCH: &[&str] = &["search", "cfq-yield", "--tries", "24"];

/// Where the table of all stands.
const TABLE: Marked = Marked {
    page: "docs/results.md",
    marks: ["<!-- the table below: cargo xtask pages -->", "<!-- end of the table -->"],
};

fn page(name: &str) -> PathBuf {
    PathBuf::from(format!("docs/reproductions/{name}.md"))
}

/// The program: `IOPATH_BIN`, else ours in a release build, or the one built for tests.
fn binary(wanted: Checked) -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("IOPATH_BIN") {
        return Ok(binary.into());
    }
    if wanted == Integration {
        let program = run::root().join("target/debug/iopath");
        ensure!(program.is_file(), "{} is not there: cargo build", program.display());
        return Ok(program);
    }
    run::cargo(&["build", "--release", "--quiet"])?;
    Ok(run::root().join("target/release/iopath"))
}

/// Runs the lab; status 3 says that something lies outside of its range, which pages show.
fn lab(binary: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new(binary);
    command.args(["lab", "--quiet"]).args(args).stdout(std::process::Stdio::null());
    let status = command.status().with_context(|| format!("cannot start {}", binary.display()))?;
    match status.code() {
        Some(0 | 3) => Ok(()),
        _ => bail!("iopath lab {} failed ({status})", args.join(" ")),
    }
}

/// Runs pages into a folder, and answers the summary of all of them.
fn make(pages: &[&Page], folder: &Path, wanted: Checked) -> Result<String> {
    let binary = binary(wanted)?;
    let text = |path: PathBuf| path.to_str().map(str::to_owned).context("a path that is no text");
    let results = text(folder.join("results.jsonl"))?;
    for one in pages {
        let markdown = text(folder.join(format!("{}.md", one.name)))?;
        let files = ["--markdown", &markdown, "--results", &results];
        let files = if one.results { &files[..] } else { &files[..2] };
        run::step(one.name, || lab(&binary, &[one.args, files].concat()))?;
    }
    let summary = text(folder.join("summary.md"))?;
    lab(&binary, &["report", &results, "--summary", &summary])?;
    std::fs::read_to_string(&summary).context(summary)
}

/// Makes the pages of that name, or all of them and the table of all.
pub fn write(names: &[&str]) -> Result<()> {
    let known = || PAGES.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    if let Some(name) = names.iter().find(|name| PAGES.iter().all(|one| one.name != **name)) {
        bail!("there is no page `{name}`; there are: {}", known());
    }
    let wanted = |one: &&Page| names.is_empty() || names.contains(&one.name);
    let pages: Vec<&Page> = PAGES.iter().filter(wanted).collect();
    let folder = scratch()?;
    let summary = make(&pages, &folder, No)?;
    for one in pages {
        std::fs::copy(folder.join(format!("{}.md", one.name)), page(one.name))?;
    }
    if names.is_empty() {
        TABLE.replace(&summary)?;
    }
    std::fs::remove_dir_all(folder).context("the scratch folder")
}

/// Does runs again that give the same everywhere, and compares.
pub fn check() -> Result<()> {
    again(Check)
}

/// The same with what takes a second or two in a build for tests.
pub fn check_quick() -> Result<()> {
    again(Integration)
}

fn again(least: Checked) -> Result<()> {
    let pages: Vec<&Page> = PAGES.iter().filter(|one| one.checked >= least).collect();
    let folder = scratch()?;
    let summary = make(&pages, &folder, least)?;
    for one in &pages {
        let made = std::fs::read_to_string(folder.join(format!("{}.md", one.name)))?;
        let there = std::fs::read_to_string(page(one.name))?;
        if let Some((made, there)) = difference(&made, &there) {
            bail!(
                "docs/reproductions/{}.md is not what is found now: `cargo xtask pages {}` makes \
                 it again\n  there: {there}\n  now:   {made}",
                one.name,
                one.name
            );
        }
    }
    if least == Check {
        in_table(&summary)?;
    }
    std::fs::remove_dir_all(folder).context("the scratch folder")
}

/// The table has each of these rows.
fn in_table(summary: &str) -> Result<()> {
    let rows: Vec<String> = TABLE.table()?.lines().map(plain).collect();
    match summary.lines().skip(2).map(plain).find(|row| !rows.contains(row)) {
        Some(row) => bail!("{} has no row `{row}`: `cargo xtask pages` makes it again", TABLE.page),
        None => Ok(()),
    }
}

/// The first line that differs, apart from those that name build and host.
fn difference(made: &str, there: &str) -> Option<(String, String)> {
    let own = |line: &&str| !["- program: ", "- host: "].iter().any(|head| line.starts_with(head));
    let lines = |text: &str| text.lines().filter(own).map(str::to_owned).collect::<Vec<_>>();
    let (made, there) = (lines(made), lines(there));
    let most = made.len().max(there.len());
    let line = |all: &[String], index: usize| all.get(index).cloned().unwrap_or_default();
    let pair = |index: usize| (line(&made, index), line(&there, index));
    (0..most).map(pair).find(|(made, there)| made != there)
}

/// A row of a table, whatever the widths of its columns.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn scratch() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("iopath-pages-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_build_and_host_may_differ() {
        let page = "# a\n| 1 | 2 |\n- program: `x`\n- host: `h`\n- seeds: `1`\n";
        assert_eq!(difference(page, &page.replace("`x`", "`y`").replace("`h`", "`i`")), None);
        let (made, there) = difference(page, &page.replace("| 2 |", "| 3 |")).expect("it differs");
        assert_eq!((made.as_str(), there.as_str()), ("| 1 | 2 |", "| 1 | 3 |"));
        assert!(difference(page, "# a\n").is_some());
    }

    #[test]
    fn rows_have_no_widths() {
        assert_eq!(plain("| x   |  1 |"), "| x | 1 |");
    }
}
