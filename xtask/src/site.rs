//! The site of the documentation: the pages of `docs` with a reference that the command itself
//! gives, made by mdBook; and the pages whose commands are run as they stand.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run;

/// Where the pages are put together.
const BOOK: &str = "target/site";
/// Pages whose blocks of `sh` are run, one page after the other, each in an empty folder.
const FOLLOWED: &[&str] = &[
    "docs/tutorials/build-an-image.md",
    "docs/tutorials/mount-and-serve.md",
    "docs/tutorials/rescue-files.md",
    "docs/tutorials/compare-elevators.md",
];

/// The parts of the site, with their pages below `docs`.
const PARTS: &[(&str, &[&str])] = &[
    (
        "Tutorials",
        &[
            "tutorials/build-an-image.md",
            "tutorials/mount-and-serve.md",
            "tutorials/rescue-files.md",
            "tutorials/compare-elevators.md",
        ],
    ),
    (
        "How to",
        &[
            "operators.md",
            "build.md",
            "disk.md",
            "mount.md",
            "nfs.md",
            "nbd.md",
            "network.md",
            "containers.md",
            "volumes.md",
            "repair.md",
            "rescue.md",
            "quota.md",
            "encryption.md",
            "fast-commits.md",
            "crash.md",
            "bench.md",
            "scale.md",
            "traces.md",
            "library.md",
            "python.md",
            "c.md",
            "add-an-elevator.md",
            "add-a-device.md",
            "add-a-workload.md",
        ],
    ),
    (
        "Reference",
        &[
            "cli.md",
            "cp.md",
            "supported.md",
            "features.md",
            "xfs.md",
            "variants.md",
            "machines.md",
            "elevators.md",
            "glossary.md",
            "dependencies.md",
            "provenance.md",
        ],
    ),
    (
        "Explanation",
        &[
            "sandbox.md",
            "fault-model.md",
            "direct-io.md",
            "concurrency.md",
            "xfs-data.md",
            "xfs-log.md",
            "xfs-sharing.md",
            "bh-lru.md",
            "experiments.md",
            "results.md",
            "peers.md",
            "mount-audit.md",
        ],
    ),
];

/// Checks the links of all pages, and lets mdBook make the site: `target/site/book`.
///
/// # Errors
/// A link leads nowhere, a page is in no part; mdBook is missing or refuses.
pub fn build() -> Result<()> {
    links()?;
    if Command::new("mdbook").arg("--version").output().is_err() {
        bail!("mdbook is missing; install it with: cargo install mdbook");
    }
    let source = Path::new(BOOK).join("src");
    let _none_yet = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(source.join("docs"))?;
    copy_pages(Path::new("docs"), &source.join("docs"))?;
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"] {
        std::fs::copy(page, source.join(page))?;
    }
    let commands = reference()?;
    std::fs::write(source.join("docs/commands.md"), commands)?;
    std::fs::write(source.join("SUMMARY.md"), summary()?)?;
    std::fs::copy("docs/book.toml", Path::new(BOOK).join("book.toml"))?;
    run::program("mdbook", &["build", BOOK])
}

/// Copies the pages, and what they show.
fn copy_pages(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy_pages(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The table of contents; every page of `docs` must be in it.
fn summary() -> Result<String> {
    let mut text = String::from("# Contents\n\n[iopath](README.md)\n\n");
    let mut left: Vec<PathBuf> = pages(Path::new("docs"))?;
    left.retain(|page| !page.ends_with("docs/README.md"));
    for (part, names) in PARTS {
        writeln!(text, "# {part}\n")?;
        for name in *names {
            let page = Path::new("docs").join(name);
            left.retain(|other| *other != page);
            writeln!(text, "- [{}]({})", title(&page)?, page.display())?;
        }
        if *part == "Reference" {
            writeln!(text, "- [Commands and options](docs/commands.md)")?;
        }
        text.push('\n');
    }
    writeln!(
        text,
        "# The project\n\n- [Architecture](ARCHITECTURE.md)\n- [Contributing](CONTRIBUTING.md)"
    )?;
    writeln!(
        text,
        "- [Security](SECURITY.md)\n- [Changes](CHANGELOG.md)\n- [All pages](docs/README.md)\n"
    )?;
    writeln!(text, "# Reports of experiments\n")?;
    let (reports, others): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|page| page.starts_with("docs/reproductions"));
    for page in reports {
        writeln!(text, "- [{}]({})", title(&page)?, page.display())?;
    }
    match others.first() {
        None => Ok(text),
        Some(page) => bail!("{}: name it in PARTS of xtask/src/site.rs", page.display()),
    }
}

/// The heading of a page.
fn title(page: &Path) -> Result<String> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    heading.map(str::to_owned).with_context(|| format!("{} has no heading", page.display()))
}

/// All pages below a folder, in order.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(pages(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// Every link from a page to a file of the project leads to one.
///
/// # Errors
/// Names all that do not.
pub fn links() -> Result<()> {
    let mut all = pages(Path::new("docs"))?;
    all.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from),
    );
    let mut wrong = Vec::new();
    let mut headings: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for page in all {
        let text = std::fs::read_to_string(&page)?;
        for link in targets(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { page.clone() } else { folder.join(path) };
            let Ok(target) = target.canonicalize() else {
                wrong.push(format!("{}: {link}", page.display()));
                continue;
            };
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            if anchor.is_empty() || !is_page {
                continue;
            }
            if !headings.contains_key(&target) {
                headings.insert(target.clone(), anchors(&std::fs::read_to_string(&target)?));
            }
            if !headings[&target].iter().any(|heading| heading == anchor) {
                wrong.push(format!("{}: {link}: no such heading", page.display()));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!("links that lead nowhere:\n  {}", wrong.join("\n  ")),
    }
}

/// The targets of links to files, outside of blocks of code.
fn targets(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        inside ^= line.starts_with("```");
        if inside {
            continue;
        }
        for part in line.split("](").skip(1) {
            let link = part.split([')', ' ']).next().unwrap_or_default();
            if !link.contains("://") && !link.starts_with("mailto:") && !link.is_empty() {
                found.push(link);
            }
        }
    }
    found
}

/// The anchors of a page's headings, as forges and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The program whose words are the reference.
fn program() -> Result<PathBuf> {
    let named = std::env::var_os("IOPATH_BIN").map(PathBuf::from);
    let built = [PathBuf::from("target/release/iopath"), PathBuf::from("target/debug/iopath")];
    let found = named.into_iter().chain(built).find(|path| path.exists());
    found
        .context("no program: cargo build -p iopath, or name one with IOPATH_BIN")?
        .canonicalize()
        .map_err(Into::into)
}

/// What a program writes.
fn said(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).env("COLUMNS", "100").output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{} {}: {error}", program.display(), arguments.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The help of every command, and the lists of machines and experiments.
fn reference() -> Result<String> {
    let program = program()?;
    let mut text = String::from(
        "# Commands and options\n\nMade from `iopath --help` and the help of each command.\n",
    );
    let whole = said(&program, &["--help"])?;
    write!(text, "\n## iopath\n\n```text\n{whole}```\n")?;
    for name in commands(&whole) {
        let help = said(&program, &[name, "--help"])?;
        write!(text, "\n## iopath {name}\n\n```text\n{help}```\n")?;
        for below in commands(&help) {
            let help = said(&program, &[name, below, "--help"])?;
            write!(text, "\n### iopath {name} {below}\n\n```text\n{help}```\n")?;
        }
    }
    for (title, arguments) in [("Machines", &["machines"][..]), ("Experiments", &["lab", "list"])] {
        write!(text, "\n## {title}\n\n```text\n{}```\n", said(&program, arguments)?)?;
    }
    Ok(text)
}

/// The commands that a help lists.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// Runs the commands of the pages that begin a face, as they stand.
///
/// # Errors
/// A command fails: the page, and what it wrote.
pub fn follow() -> Result<()> {
    let program = program()?;
    let folder = program.parent().context("the program's folder")?.display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    for page in FOLLOWED {
        let text = std::fs::read_to_string(page).with_context(|| page.to_string())?;
        let blocks = blocks(&text);
        if blocks.is_empty() {
            bail!("{page} has no blocks of sh");
        }
        let place = std::env::temp_dir().join(format!("iopath-follow-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let script = format!("set -e\n{}", blocks.concat());
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(&place)
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output();
        std::fs::remove_dir_all(&place)?;
        let output = output?;
        if !output.status.success() {
            let (out, error) = (&output.stdout, &output.stderr);
            let (out, error) = (String::from_utf8_lossy(out), String::from_utf8_lossy(error));
            bail!("{page}: {}\n{out}{error}", output.status);
        }
        eprintln!("    {page}: {} blocks", blocks.len());
    }
    Ok(())
}

/// The blocks of `sh`, in their order.
fn blocks(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```sh") => {
                inside = true;
                found.push(String::new());
            }
            (true, "```") => inside = false,
            (true, line) => {
                if let Some(block) = found.last_mut() {
                    block.push_str(line);
                    block.push('\n');
                }
            }
            (false, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_links_and_headings_are_found() {
        let page =
            "# A page: `x`\n[a](b.md#c) [w](https://x)\n```sh\nls [x](y)\n```\n```\nno\n```\n";
        assert_eq!(blocks(page), ["ls [x](y)\n"]);
        assert_eq!(targets(page), ["b.md#c"]);
        assert_eq!(anchors(page), ["a-page-x"]);
        let help =
            "x\n\nCommands:\n  a  does\n  b  does\n     more\n  help  this\n\nOptions:\n  -c\n";
        assert_eq!(commands(help), ["a", "b"]);
    }
}
