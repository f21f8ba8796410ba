//! A cut as a word, so that a command can name it: `37,lost:12,torn:33:0-7,early:38`.
//!
//! The first number is how many entries of the log had completed. `lost` names an entry that is not
//! there, `torn` one of which only some sectors are there (numbers of sectors in the write, and
//! ranges of them, with `+` between them), `early` one that was in flight and is there.

use std::fmt;
use std::ops::Range;

use device::{Cut, Event};

use crate::log::Log;
use crate::recover::Kind;

/// A cut as a word.
#[derive(Debug)]
pub struct CutWord<'a>(pub &'a Cut);

impl fmt::Display for CutWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { upto, drop, torn, early } = self.0;
        write!(f, "{upto}")?;
        drop.iter().try_for_each(|index| write!(f, ",lost:{index}"))?;
        for (index, there) in torn {
            write!(f, ",torn:{index}:{}", sectors(there))?;
        }
        early.iter().try_for_each(|index| write!(f, ",early:{index}"))
    }
}

/// The numbers of the flags that are set, as ranges.
fn sectors(there: &[bool]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (number, _) in there.iter().enumerate().filter(|(_, there)| **there) {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => ranges.push((number, number)),
        }
    }
    let word = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(word).collect::<Vec<_>>().join("+")
}

/// Reads a cut of a log.
///
/// # Errors
/// A sentence with the part that is wrong: it is no such word, or the log has no such entry.
pub fn parse(text: &str, log: &Log) -> Result<Cut, String> {
    let mut parts = text.split(',');
    let upto = number(parts.next().unwrap_or_default())?;
    if upto > log.len() {
        return Err(format!("{upto}: the log has {} entries", log.len()));
    }
    let mut cut = Cut::clean(upto);
    for part in parts {
        let mut words = part.split(':');
        let kind = words.next().unwrap_or_default();
        let index = number(words.next().unwrap_or_default()).map_err(|_| wrong(part))?;
        let sectors = words.next();
        if index >= log.len() || !log.writes().entries[index].changes() {
            return Err(format!("{part}: entry {index} of the log is no write"));
        }
        match (kind, sectors) {
            ("lost", None) if index < upto => cut.drop.push(index),
            ("early", None) if index >= upto => cut.early.push(index),
            ("torn", Some(sectors)) => cut.torn.push((index, flags(sectors, index, log, part)?)),
            ("lost" | "early", None) => {
                let fits = if kind == "lost" { "below" } else { "from" };
                return Err(format!("{part}: such entries are {fits} {upto}, where the cut is"));
            }
            _ => return Err(wrong(part)),
        }
        if words.next().is_some() {
            return Err(wrong(part));
        }
    }
    cut.drop.sort_unstable();
    Ok(cut)
}

fn wrong(part: &str) -> String {
    format!("{part}: not a part of a cut; known: lost:ENTRY, torn:ENTRY:SECTORS, early:ENTRY")
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text}: a cut begins with a number of entries"))
}

/// A flag for each sector of a write.
fn flags(sectors: &str, index: usize, log: &Log, part: &str) -> Result<Vec<bool>, String> {
    let entry = &log.writes().entries[index];
    if !matches!(entry.event, Event::Write { .. }) {
        return Err(format!("{part}: entry {index} of the log has no content that can be torn"));
    }
    let mut flags = vec![false; entry.sectors() as usize];
    for range in sectors.split('+').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            return Err(wrong(part));
        };
        match flags.get_mut(first..=last) {
            Some(chosen) if first <= last => chosen.fill(true),
            _ => return Err(format!("{part}: the write has {} sectors", entry.sectors())),
        }
    }
    Ok(flags)
}

/// The sectors of a superblock with one checksum.
fn superblock(kind: Kind) -> Range<u64> {
    match kind {
        Kind::Ext4 => 2..4,
        Kind::Xfs => 0..1,
        Kind::Foreign(foreign) => foreign.superblock(),
    }
}

/// What Linux said of a file system that it did not mount, with the reason where the cut has torn
/// its superblock.
pub(crate) fn torn_superblock(log: &Log, kind: Kind, cut: &Cut, said: String) -> String {
    let torn = |(index, there): &&(usize, Vec<bool>)| {
        let start = log.writes().entries[*index].start().0;
        let is_there = |sector: u64| there.get(sector.checked_sub(start)? as usize).copied();
        // One that the write does not reach is as it was.
        let mut parts = superblock(kind).map(|sector| is_there(sector).unwrap_or(false));
        let first = parts.next();
        parts.any(|part| Some(part) != first)
    };
    match cut.torn.iter().find(torn) {
        Some((index, _)) => format!(
            "{said}: the superblock is torn between its sectors (entry {index}); it has one \
             checksum, and Linux refuses it, which is the kernel's own limit on disks that tear \
             writes by the sector (--disk nvme-awun=4K is one that does not)"
        ),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        let log = crate::Crash::on(crate::Kind::Ext4).record(|fs| {
            fs.write("/a", &[7; 20_000])?;
            fs.fsync("/a")
        });
        let is_write = |at: &usize| matches!(log.writes().entries[*at].event, Event::Write { .. });
        let writes: Vec<usize> = (0..log.len()).filter(is_write).collect();
        let large = |at: &&usize| log.writes().entries[**at].sectors() > 3;
        let torn = *writes.iter().find(large).unwrap();
        let count = log.writes().entries[torn].sectors() as usize;
        let mut there = vec![false; count];
        (there[0], there[2], there[3]) = (true, true, true);
        let cut = Cut {
            upto: log.len() - 1,
            drop: vec![writes[0], writes[1]],
            torn: vec![(torn, there)],
            early: vec![],
        };
        let word = CutWord(&cut).to_string();
        assert!(word.ends_with(&format!("torn:{torn}:0+2-3")), "{word}");
        assert_eq!(parse(&word, &log), Ok(cut));
        let wrong = |text: &str, why: &str| {
            let said = parse(text, &log).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        };
        wrong("", "begins with a number");
        wrong("99999", "the log has");
        wrong("5,lost", "known: lost:ENTRY");
        wrong("5,gone:1", "known: lost:ENTRY");
        wrong("5,lost:99999", "no write");
        wrong(&format!("0,lost:{torn}"), "where the cut is");
        wrong(&format!("{},early:{torn}", log.len()), "where the cut is");
        wrong(&format!("0,torn:{torn}:{count}"), "the write has");
        wrong(&format!("0,torn:{torn}:3-1"), "the write has");
        wrong(&format!("0,torn:{torn}:a"), "known: lost:ENTRY");
    }
}
