//! Reports at the end of a command with `--rescue` what it could not read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Result;
use base::range::RangeSet64;
use base::unit::SECTOR_SIZE;
use block::{Queue, QueueConfig};

use crate::app::{App, Opened};
use crate::session;
use crate::storage::Storage;
use crate::{text, trees};

/// Files and places with lost content that get a line each.
const LINES_MAX: usize = 1000;

/// Says what could not be read, and of which files it was. What was met makes a success a failure.
///
/// # Errors
/// Those of `result`.
pub fn report(app: &mut App, result: Result<ExitCode>) -> Result<ExitCode> {
    let mut failed = false;
    for opened in std::mem::take(&mut app.rescued) {
        let met = opened.rescued.met();
        failed |= !met.is_empty() || !opened.rescued.unread.is_empty();
        let runs: Vec<_> =
            met.iter().map(|run| run.start * SECTOR_SIZE..run.end * SECTOR_SIZE).collect();
        if !runs.is_empty() {
            lines(app, &opened, &runs);
        }
    }
    let code = result?;
    Ok(if failed && code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code })
}

/// A line for each file with lost content, then one for each place that belongs to none.
fn lines(app: &mut App, opened: &Opened, runs: &[Range<u64>]) {
    let target = &opened.target;
    let owners = owners(app, opened, runs).unwrap_or_default();
    let mut files = BTreeMap::<&[u8], (u64, u64)>::new();
    let mut free = RangeSet64::new();
    runs.iter().for_each(|run| free.insert(run.clone()));
    for Owner { place, path, offset } in &owners {
        let (bytes, first) = files.entry(path).or_insert((0, *offset));
        *bytes += place.end - place.start;
        *first = (*first).min(*offset);
        free.remove(place.clone());
    }
    let lost = "could not be read and are zeros";
    let of_files = files.iter().map(|(path, (bytes, first))| {
        format!("{target}:{}: {bytes} bytes {lost}, first at {first}", text::escape(path))
    });
    let of_none = free.iter().map(|run| {
        let bytes = run.end - run.start;
        format!("{target}: {bytes} bytes {lost}, at {} of the file system", run.start)
    });
    let all: Vec<String> = of_files.chain(of_none).collect();
    for line in all.iter().take(LINES_MAX) {
        app.out.problem(line);
    }
    if let Some(rest) = all.len().checked_sub(LINES_MAX).filter(|&rest| rest > 0) {
        app.out.problem(format!("{target}: and {rest} more files or places"));
    }
}

/// A part of a file that lies on a place.
struct Owner {
    /// On the device, in bytes.
    place: Range<u64>,
    path: Vec<u8>,
    /// Of the part in the file.
    offset: u64,
}

/// The parts of files that touch `runs`, which ascend: every file is asked for its map.
fn owners(app: &mut App, opened: &Opened, runs: &[Range<u64>]) -> Result<Vec<Owner>> {
    let device = opened.rescued.device().clone();
    let queue = Queue::new(app.cx.runtime(), device, QueueConfig::default())?;
    let storage = Storage {
        target: opened.target.clone(),
        queue,
        container: None,
        volumes: Vec::new(),
        closed: None,
        cut: false.into(),
    };
    let session = session::mount(app, &storage, false)?;
    let mut owners = Vec::new();
    let top = session.find(app, b"/", false)?;
    let fs = session.fs.clone();
    trees::each(app, &session, b"/", &top, &mut |app, path, attr| {
        // What has no map has no content that lies somewhere.
        for part in fs.fiemap(app.cx, attr.ino, 0, i64::MAX as u64).unwrap_or_default() {
            let Some(first) = part.content() else { continue };
            let place = first.bytes()..first.bytes() + part.len;
            let next = runs.partition_point(|run| run.end <= place.start);
            for run in runs[next..].iter().take_while(|run| run.start < place.end) {
                let (from, to) = (run.start.max(place.start), run.end.min(place.end));
                let offset = part.offset + (from - place.start);
                owners.push(Owner { place: from..to, path: path.to_vec(), offset });
            }
        }
        Ok(())
    })?;
    session::close(app, session)?;
    Ok(owners)
}
