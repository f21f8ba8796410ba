//! Tables that are kept as text beside a test.

use std::path::Path;

/// Holds `text` against the file that is kept at `path`, absolute; with `IOPATH_BLESS` in the
/// environment the file becomes the text, for a deliberate change.
///
/// # Panics
/// They differ; the file cannot be written.
#[track_caller]
pub fn compare(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("IOPATH_BLESS").is_some() {
        std::fs::write(path, text).expect("the table can be written");
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        kept == text,
        "{} differs, first in {differs:?}; IOPATH_BLESS=1 takes this over:\n{text}",
        path.display()
    );
}

/// A table with one line for each different outcome: before it the names of the `outcomes` that
/// have it, in the order in which they came.
pub fn by_outcome<'n>(outcomes: impl Iterator<Item = (&'n str, String)>) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, outcome) in outcomes {
        match lines.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, names)) => names.push(name),
            None => lines.push((outcome, vec![name])),
        }
    }
    lines.iter().map(|(line, names)| format!("{}:\n    {line}\n", names.join(", "))).collect()
}
