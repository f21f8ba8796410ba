//! Results in a file: one JSON line for each piece of work, so that a run that was ended goes on,
//! and the results of shards are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::Nanos;
use crash::Outcome;
use serde::{Deserialize, Serialize};

use super::place;
use crate::app::App;

/// What decides about the states and their verdicts: options by name, and what they are.
pub type Plan = BTreeMap<String, String>;

/// In what two plans differ, in words.
pub fn difference(there: &Plan, here: &Plan) -> Option<String> {
    let names: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
    let value = |plan: &Plan, name| plan.get(name).map_or_else(|| "none".to_owned(), Clone::clone);
    let differs = names.into_iter().filter(|name| there.get(*name) != here.get(*name));
    let words =
        differs.map(|name| format!("{name}: {}, not {}", value(there, name), value(here, name)));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// What a line says: everything that was done until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was explored: lines of different plans are not put together.
    pub plan: Plan,
    /// The shard, `I/N`, from 1; several of a merged result.
    pub shards: Vec<String>,
    /// What was done, from the beginning.
    pub outcome: Outcome,
}

/// Bytes of a line at most: [`crash::finding::KINDS_MAX`] findings with long cuts are fewer.
const LINE_MAX: u64 = 64 << 20;

/// The last whole line of a file or an object.
///
/// # Errors
/// It cannot be read, or has other lines.
pub fn last(app: &App, path: &Path) -> Result<Option<Line>> {
    let shown = || path.display().to_string();
    let mut lines: Box<dyn BufRead> = match place::address(path) {
        Some(url) => Box::new(Cursor::new(place::read(app, url)?.unwrap_or_default())),
        None => Box::new(BufReader::new(File::open(path).with_context(shown)?)),
    };
    let (mut found, mut line) = (None, Vec::new());
    for number in 1.. {
        let first = lines.fill_buf().with_context(shown)?.first().copied();
        let Some(first) = first else { break };
        let what = || format!("{}: line {number}: no results of this version of iopath", shown());
        // A run that was killed may have left half a line, or an empty one that ends it.
        if found.is_none() && !matches!(first, b'{' | b'\n') {
            bail!("{}: it begins with {:?}", what(), char::from(first));
        }
        line.clear();
        lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).with_context(shown)?;
        if line.len() as u64 == LINE_MAX {
            bail!("{}: it is longer than {LINE_MAX} bytes", what());
        }
        match serde_json::from_slice(&line) {
            Ok(line) => found = Some(line),
            Err(error) if found.is_none() && !is_half(&line, &error) => {
                bail!("{}: {error}", what())
            }
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Is this how a line begins, which was not written to its end?
fn is_half(line: &[u8], error: &serde_json::Error) -> bool {
    let begin = b"{\"plan\":{";
    let begins = line.starts_with(begin) || begin.starts_with(line.trim_ascii_end());
    begins && !error.is_data()
}

/// Where a run keeps its results.
pub struct Results {
    kept: Kept,
    line: Line,
}

/// Nothing is in a file behind its last whole line.
fn ends_a_line(file: &mut File) -> std::io::Result<bool> {
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last == *b"\n")
}

/// Nothing can be appended to an object: it has one line, the last.
enum Kept {
    File(File),
    Object { url: String, written: Option<Nanos> },
}

/// An object is written at most so often while a run goes on.
const OBJECT_EVERY: Nanos = Nanos::from_secs(5);

impl Results {
    /// Opens or makes the file or object; goes on behind its last line.
    ///
    /// # Errors
    /// It cannot be written, or holds results of another exploration.
    pub fn open(app: &App, path: &Path, plan: Plan, shard: &str) -> Result<Results> {
        let shown = || path.display().to_string();
        let outcome = Outcome::default();
        let mut line = Line { plan, shards: vec![shard.into()], outcome };
        let kept = match place::address(path) {
            Some(url) => {
                place::is_written(url)?;
                Kept::Object { url: url.to_owned(), written: None }
            }
            None => {
                let mut open = File::options();
                open.read(true).append(true).create(true);
                let file = open.open(path).with_context(shown)?;
                if let Err(TryLockError::WouldBlock) = file.try_lock() {
                    bail!("{}: another run is writing to it", shown());
                }
                Kept::File(file)
            }
        };
        if let Some(earlier) = last(app, path)? {
            if let Some(how) = difference(&earlier.plan, &line.plan) {
                bail!(
                    "{}: these are results of another exploration ({how}): give another file, or \
                     remove it",
                    shown()
                );
            }
            if earlier.shards != line.shards {
                let part = earlier.shards.join(" and ");
                bail!("{}: these are results of part {part}, not of {shard}", shown());
            }
            line.outcome = earlier.outcome;
        }
        let mut results = Results { kept, line };
        if let Kept::File(file) = &mut results.kept
            && !ends_a_line(file).with_context(shown)?
        {
            file.write_all(b"\n").with_context(shown)?;
        }
        Ok(results)
    }

    /// What earlier runs did: this one goes on there.
    pub fn before(&self) -> &Outcome {
        &self.line.outcome
    }

    /// Writes what was done so far, by earlier runs too.
    ///
    /// # Errors
    /// Writing failed.
    pub fn note(&mut self, app: &App, outcome: &Outcome) -> Result<()> {
        self.line.outcome.clone_from(outcome);
        let line = self.line()?;
        let now = app.cx.now();
        match &mut self.kept {
            Kept::File(file) => file.write_all(&line).context("writing the results")?,
            Kept::Object { url, written } => {
                if written.is_none_or(|last| now - last >= OBJECT_EVERY) {
                    place::put(app, url, &mut &line[..])?;
                    *written = Some(now);
                }
            }
        }
        Ok(())
    }

    /// Nothing more comes: an object gets its last line.
    ///
    /// # Errors
    /// Writing failed.
    pub fn end(&self, app: &App) -> Result<()> {
        match &self.kept {
            Kept::File(_) => Ok(()),
            Kept::Object { url, .. } => place::put(app, url, &mut &self.line()?[..]),
        }
    }

    fn line(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&self.line)?;
        text.push(b'\n');
        Ok(text)
    }
}
