//! Results in a file: one JSON line for each piece of work, so that a run that was ended goes on,
//! and the results of shards are merged.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::Nanos;
use crash::{Finding, Outcome};
use serde::{Deserialize, Serialize};

use super::place;
use crate::app::App;

/// What a line says: everything that was done until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was explored: lines of different plans are not put together.
    pub plan: String,
    /// The shard, `I/N`, from 1; several of a merged result.
    pub shards: Vec<String>,
    /// What was done, from the beginning.
    pub outcome: Outcome,
}

/// The last whole line of a file or an object.
///
/// # Errors
/// It cannot be read, or has no such line.
pub fn last(app: &App, path: &Path) -> Result<Option<Line>> {
    let shown = || path.display().to_string();
    let lines: Box<dyn BufRead> = match place::address(path) {
        Some(url) => Box::new(Cursor::new(place::read(app, url)?.unwrap_or_default())),
        None => Box::new(BufReader::new(File::open(path).with_context(shown)?)),
    };
    let mut found = None;
    for (number, line) in lines.split(b'\n').enumerate() {
        let line = line.with_context(shown)?;
        match serde_json::from_slice(&line) {
            Ok(line) => found = Some(line),
            // A run that was killed may have left half a line, the last one.
            Err(_) if found.is_some() => {}
            Err(error) => bail!("{}: line {}: {error}", shown(), number + 1),
        }
    }
    Ok(found)
}

/// Where a run keeps its results.
pub struct Results {
    kept: Kept,
    line: Line,
    /// What earlier runs did.
    before: Outcome,
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
    pub fn open(app: &App, path: &Path, plan: &str, shard: &str) -> Result<Results> {
        let shown = || path.display().to_string();
        let mut before = Outcome::default();
        let line = Line { plan: plan.into(), shards: vec![shard.into()], outcome: before.clone() };
        let kept = match place::address(path) {
            Some(url) => {
                place::is_written(url)?;
                Kept::Object { url: url.to_owned(), written: None }
            }
            None => {
                let mut open = File::options();
                open.read(true).write(true).create(true).truncate(false);
                Kept::File(open.open(path).with_context(shown)?)
            }
        };
        if let Some(earlier) = last(app, path)? {
            if (&earlier.plan, &earlier.shards) != (&line.plan, &line.shards) {
                bail!(
                    "{}: these are results of {}, part {}; this is {plan}, part {shard}: give \
                     another file, or remove it",
                    shown(),
                    earlier.plan,
                    earlier.shards.join(" and ")
                );
            }
            before = earlier.outcome;
        }
        let mut results = Results { kept, line, before };
        if let Kept::File(file) = &mut results.kept
            && file.seek(SeekFrom::End(0)).with_context(shown)? > 0
        {
            file.write_all(b"\n").with_context(shown)?; // Ends half a line.
        }
        Ok(results)
    }

    /// The state at which this run goes on.
    pub fn next(&self) -> u64 {
        self.before.next
    }

    /// Writes what was done so far, and answers it together with earlier runs.
    ///
    /// # Errors
    /// Writing failed.
    pub fn note(&mut self, app: &App, outcome: &Outcome) -> Result<Outcome> {
        let whole = joined(self.before.clone(), outcome.clone());
        self.line.outcome.clone_from(&whole);
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
        Ok(whole)
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

/// Two parts of one exploration together.
pub fn joined(first: Outcome, second: Outcome) -> Outcome {
    let mut findings = first.findings;
    for finding in second.findings {
        let look = finding.look();
        match findings.iter_mut().find(|known| known.look() == look) {
            Some(known) if *known != finding => {
                let also = known.also + finding.also + 1;
                if finding.index < known.index {
                    *known = Finding { also, ..finding };
                } else {
                    known.also = also;
                }
            }
            Some(_) => {}
            None => findings.push(finding),
        }
    }
    findings.sort_by_key(|finding| finding.index);
    Outcome {
        planned: first.planned.max(second.planned),
        distinct: first.distinct.max(second.distinct),
        judged: first.judged + second.judged,
        recovered: first.recovered + second.recovered,
        asked: first.asked + second.asked,
        entries: first.entries.max(second.entries),
        wrong: first.wrong + second.wrong,
        findings,
        complete: second.complete,
        next: first.next.max(second.next),
    }
}
