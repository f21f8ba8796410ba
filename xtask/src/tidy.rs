//! Sizes of files, functions and lines, and counts of what makes code hard to read, held by a
//! ratchet: what is above the limits today is listed in `xtask/tidy-baseline.txt` and may only
//! shrink.

mod counts;

use crate::source;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const LINE_COLUMNS: usize = 100;
const BASELINE: &str = "xtask/tidy-baseline.txt";

/// Finding (kind and place) to its size.
type Findings = BTreeMap<String, usize>;

/// Compares the tree with the baseline; with `bless`, writes what is left of it.
pub fn check(bless: bool) -> Result<()> {
    let mut found = Findings::new();
    for folder in ["crates", "xtask"] {
        for file in source::files(Path::new(folder))? {
            measure(&file, &mut found)?;
        }
    }
    counts::count(&mut found)?;
    let baseline = read_baseline()?;
    if bless {
        let text: String = found.iter().map(|(place, size)| format!("{size} {place}\n")).collect();
        return std::fs::write(BASELINE, text).context(BASELINE);
    }
    let grown: Vec<String> = found
        .iter()
        .filter(|(place, size)| baseline.get(*place).is_none_or(|allowed| *size > allowed))
        .map(|(place, size)| format!("{place}: {size}"))
        .collect();
    if !grown.is_empty() {
        bail!(
            "larger than the limits (file {FILE_LINES} lines without tests, function \
             {FUNCTION_LINES}, line {LINE_COLUMNS} columns; tuples, pairs, twins, words and \
             allowances: see xtask/src/tidy/counts.rs) or than {BASELINE} allows:\n  {}",
            grown.join("\n  ")
        );
    }
    Ok(())
}

fn read_baseline() -> Result<Findings> {
    let text = std::fs::read_to_string(BASELINE).unwrap_or_default();
    text.lines()
        .map(|line| {
            let (size, place) = line.split_once(' ').context("baseline line without a size")?;
            Ok((place.to_owned(), size.parse()?))
        })
        .collect()
}

fn measure(path: &Path, found: &mut Findings) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let is_test = path.components().any(|part| part.as_os_str() == "tests");
    let code: Vec<&str> = text.lines().take_while(|line| *line != "#[cfg(test)]").collect();
    let mut note = |kind: &str, size: usize, limit: usize| {
        if size > limit {
            let entry = found.entry(format!("{kind} {}", path.display())).or_default();
            *entry = (*entry).max(size);
        }
    };
    if !is_test {
        note("file", code.len(), FILE_LINES);
    }
    for line in text.lines().filter(|line| !line.contains("http")) {
        note("line", line.chars().count(), LINE_COLUMNS);
    }
    for (name, size) in functions(&code) {
        note(&format!("function {name}"), size, FUNCTION_LINES);
    }
    Ok(())
}

/// Functions with the lines from `fn` to the closing brace of the same indentation (the sources
/// are formatted, so that is where they end).
fn functions(code: &[&str]) -> Vec<(String, usize)> {
    let mut sizes = Vec::new();
    for (start, line) in code.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else { continue };
        let end = code[start..]
            .iter()
            .position(|l| l.trim_end() == format!("{}}}", " ".repeat(indent)))
            .unwrap_or(0);
        sizes.push((name.to_owned(), end + 1));
    }
    sizes
}

fn function_name(line: &str) -> Option<&str> {
    let at = if line.starts_with("fn ") { 0 } else { line.find(" fn ")? + 1 };
    let head = &line[..at];
    let is_item = head.split_whitespace().all(|word| {
        word.starts_with("pub") || ["const", "unsafe", "extern", "async", "crate)"].contains(&word)
    });
    let name = line[at + 3..].split(['(', '<']).next()?;
    (is_item && !line.ends_with(';')).then_some(name)
}
