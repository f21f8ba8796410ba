//! What happened in a state that is wrong: which writes were lost, what each of them is, and what
//! had been said before the power failed.

use std::fmt;
use std::sync::Arc;

use device::{Cut, Event};
use rt::{World, WorldConfig};
use serde::Serialize;

use crate::cut::CutWord;
use crate::explore::{Finding, Verdict, medium};
use crate::log::{Log, LogError, Note};
use crate::oracle::{Oracle, Rules};
use crate::recover::Kind;

mod owners;

use owners::Owners;

/// Notes before the cut that are shown.
const NOTES: usize = 6;
/// Entries of a picture.
const PICTURE: usize = 72;

/// A write that a state lacks, whole or in part, or has before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostWrite {
    /// Its number in the log.
    pub entry: usize,
    /// First sector.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub what: String,
    /// `lost`, `torn`, or `early` for one that was in flight and is there.
    pub fate: &'static str,
    /// Of a torn one, the bytes that are there.
    pub kept_bytes: u64,
}

/// A finding as a story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The number of the state.
    pub state: u64,
    /// Who refuses it.
    pub verdict: Verdict,
    /// What is wrong with it.
    pub message: String,
    /// Entries of the log that had completed.
    pub upto: usize,
    /// Entries of the log.
    pub entries: usize,
    /// Flushes that had completed, and where the last one stands.
    pub flushes: usize,
    /// Writes that no flush covered when the power failed.
    pub at_stake: usize,
    /// What was lost, torn or early.
    pub writes: Vec<LostWrite>,
    /// The last marks and calls before the cut, oldest first, each with its place in the log.
    pub before: Vec<(usize, String)>,
    /// Calls that had returned and left nothing, since nothing promised it, each with the call that
    /// would have kept it.
    pub missing: Vec<String>,
    /// The log around the cut, a letter for each entry: `w` write, `W` FUA write, `z` zeroes or
    /// discard, `F` flush, `m` mark, `c` call; `x` what was lost, `t` torn, `e` there before its
    /// time; `|` where the power fails.
    pub picture: String,
    /// The cut as a word ([`crate::cut`]).
    pub cut: String,
    /// A command that judges this state again, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// Further states that fail in this way.
    pub also: u64,
}

/// The story of a finding. Recovers the state without its losses, to know whose blocks they are.
///
/// # Errors
/// The log cannot be read.
pub fn story(log: &Log, kind: Kind, finding: &Finding) -> Result<Story, LogError> {
    let cut = &finding.cut;
    let now = Owners::of(kind, Arc::new(medium(log, &Cut::clean(cut.upto))?))?;
    let end = Owners::of(kind, Arc::new(medium(log, &Cut::clean(log.len()))?))?;
    // A log without calls, or a damaged tree before the run, has none.
    let oracle = Oracle::new(log, kind, Rules::Posix).ok();
    let entries = &log.writes().entries;
    let write = |index: usize, fate: &'static str, kept_bytes: u64| -> Result<_, LogError> {
        let entry = &entries[index];
        let pieces: Vec<_> = log.pieces(entry).collect();
        let first = match pieces.first() {
            Some((_, _, piece)) => log.page(*piece)?,
            None => log.page(crate::log::PieceId::ZERO)?,
        };
        let (start, bytes) = (entry.start().bytes(), entry.sectors() * 512);
        let what = match entry.event {
            Event::Zero { discard: true, .. } => "a discard".to_owned(),
            Event::Zero { .. } => "zeroes".to_owned(),
            _ => None
                .or_else(|| owners::by_content(kind, start, &first))
                .or_else(|| now.name(&(start..start + bytes)))
                .or_else(|| end.name(&(start..start + bytes)))
                .unwrap_or_else(|| "a block that belongs to nothing".to_owned()),
        };
        Ok(LostWrite { entry: index, sector: entry.start().0, bytes, what, fate, kept_bytes })
    };
    let mut writes = Vec::new();
    for &index in &cut.drop {
        writes.push(write(index, "lost", 0)?);
    }
    for (index, there) in &cut.torn {
        let kept = there.iter().filter(|there| **there).count() as u64 * 512;
        writes.push(write(*index, "torn", kept)?);
    }
    for &index in cut.early.iter().filter(|index| cut.torn.iter().all(|torn| torn.0 != **index)) {
        writes.push(write(index, "early", 0)?);
    }
    writes.sort_by_key(|write| write.entry);
    let flush = |entry: &&device::Entry<_>| matches!(entry.event, Event::Flush);
    Ok(Story {
        state: finding.index,
        verdict: finding.verdict,
        message: finding.message.clone(),
        upto: cut.upto,
        entries: entries.len(),
        flushes: entries[..cut.upto].iter().filter(flush).count(),
        at_stake: log.writes().volatile_in(log.flushed(cut.upto)..cut.upto).len(),
        writes,
        before: before(log, cut.upto, oracle.as_ref()),
        missing: missing(log, kind, cut, oracle.as_ref())?,
        picture: picture(log, cut),
        cut: CutWord(cut).to_string(),
        repeat: None,
        also: finding.also,
    })
}

/// The log around a cut, as [`Story::picture`] says.
fn picture(log: &Log, cut: &Cut) -> String {
    let entries = &log.writes().entries;
    let torn = |index: &usize| cut.torn.iter().any(|torn| torn.0 == *index);
    let letter = |index: usize| match entries[index].event {
        _ if cut.drop.contains(&index) => 'x',
        _ if torn(&index) => 't',
        _ if cut.early.contains(&index) => 'e',
        Event::Write { fua: true, .. } => 'W',
        Event::Write { .. } => 'w',
        Event::Zero { .. } => 'z',
        Event::Flush => 'F',
        Event::Mark(_) => match log.note(index) {
            Some(Note::Mark(_)) => 'm',
            _ => 'c',
        },
    };
    // What was lost first is shown, where that is not too far away.
    let lost = cut.drop.iter().copied().chain(cut.torn.iter().map(|torn| torn.0));
    let first = lost.min().unwrap_or(cut.upto).min(cut.upto.saturating_sub(PICTURE / 2));
    let first = first.max(cut.upto.saturating_sub(PICTURE - 8));
    let end = (first + PICTURE).min(entries.len());
    let before: String = (first..cut.upto).map(letter).collect();
    let after: String = (cut.upto..end).map(letter).collect();
    format!("{first} {before}|{after} {end}")
}

/// The last marks and the last calls before a place.
fn before(log: &Log, upto: usize, oracle: Option<&Oracle>) -> Vec<(usize, String)> {
    let mark = |index: usize| match log.note(index)? {
        Note::Mark(text) => Some((index, format!("mark \"{text}\""))),
        Note::Call(_) => None,
    };
    let call = |index: usize| match log.note(index)? {
        Note::Call(_) => Some((index, oracle?.call(index))),
        Note::Mark(_) => None,
    };
    let last = || (0..upto).rev();
    let marks = last().filter_map(mark).take(NOTES);
    let mut before: Vec<_> = marks.chain(last().filter_map(call).take(NOTES)).collect();
    before.sort_unstable();
    before
}

/// What the calls left that is not there, though they had returned.
fn missing(
    log: &Log,
    kind: Kind,
    cut: &Cut,
    oracle: Option<&Oracle>,
) -> Result<Vec<String>, LogError> {
    let Some(oracle) = oracle else { return Ok(Vec::new()) };
    let medium = Arc::new(medium(log, cut)?);
    Ok(World::new(WorldConfig::default()).run("missing", |cx| {
        let Ok(fs) = kind.mount(cx, medium) else { return Vec::new() };
        let missing = oracle.missing(cx, &fs, cut.upto);
        fs.shutdown_hard();
        missing
    }))
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.verdict {
            Verdict::Damaged => "the file system is damaged",
            Verdict::Refused => "the check refuses it",
            Verdict::Broken => "a promise of the file system is broken",
            Verdict::Unsynced => "the program did not sync it",
        };
        writeln!(f, "state {}: {who}: {}", self.state, self.message)?;
        writeln!(
            f,
            "  the power fails behind entry {} of {}, {} flushes done, {} writes not flushed",
            self.upto, self.entries, self.flushes, self.at_stake
        )?;
        for (index, text) in &self.before {
            writeln!(f, "  {index:>8}  {text}")?;
        }
        if self.writes.is_empty() {
            writeln!(f, "  no write is lost: what completed until then is there, in order")?;
        }
        for write in &self.writes {
            let fate = match write.fate {
                "torn" => format!("torn, {} of its bytes there", write.kept_bytes),
                "early" => "there, and was in flight".to_owned(),
                other => other.to_owned(),
            };
            writeln!(
                f,
                "  {:>8}  {fate}: {} bytes at sector {}: {}",
                write.entry, write.bytes, write.sector, write.what
            )?;
        }
        for missing in &self.missing {
            writeln!(f, "            {missing}")?;
        }
        writeln!(f, "  log {}", self.picture)?;
        match &self.repeat {
            Some(command) => writeln!(f, "  again: {command}")?,
            None => writeln!(f, "  cut {}", self.cut)?,
        }
        if self.also > 0 {
            writeln!(f, "  {} further states fail like this", self.also)?;
        }
        Ok(())
    }
}
