//! The text of blkparse(1), in its default format:
//! `major,minor cpu sequence seconds pid action RWBS sector + sectors [process]`.

use std::collections::BTreeMap;

use block::{BioFlags, Op};

use super::{Event, Kind, Trace, of_events};

/// Reads texts.
///
/// # Errors
/// No line is one of blkparse.
pub fn read(files: &[(String, Vec<u8>)], device: Option<(u32, u32)>) -> Result<Trace, String> {
    let (mut events, mut names, mut notes) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (file, bytes) in files {
        let text = String::from_utf8_lossy(bytes);
        let (mut own, mut strange) = (0, 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match parse(line) {
                Some((event, name)) => {
                    own += 1;
                    name.into_iter().for_each(|name| {
                        names.insert(event.pid, name);
                    });
                    events.push(event);
                }
                None => strange += 1,
            }
        }
        if own == 0 {
            return Err(format!(
                "{file}: neither blktrace, nor text of blkparse, nor a list of fio"
            ));
        }
        if strange > 0 {
            notes.push(format!("{file}: {strange} lines that are no Q, D or C are left out"));
        }
    }
    let mut trace = of_events(events, device)?;
    trace.names = names;
    trace.notes.extend(notes);
    Ok(trace)
}

fn parse(line: &str) -> Option<(Event, Option<String>)> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next()?.split_once(',')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let _cpu: u32 = words.next()?.parse().ok()?;
    let sequence = words.next()?.parse().ok()?;
    let (seconds, nanos) = words.next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let nanos: u64 = format!("{nanos:0<9}").get(..9)?.parse().ok()?;
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    let pid = words.next()?.parse().ok()?;
    let kind = match words.next()? {
        "Q" => Kind::Asked,
        "D" => Kind::Issued,
        "C" => Kind::Done,
        _ => return None,
    };
    let letters = words.next()?;
    let rest: Vec<&str> = words.collect();
    let (sector, count) = match rest.as_slice() {
        [sector, "+", count, ..] => (sector.parse().ok()?, count.parse().ok()?),
        _ => (0, 0),
    };
    let (op, flags) = meaning(letters, count)?;
    let name = rest.last().filter(|_| kind != Kind::Done);
    let name = name.and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let event = Event { time, sequence, device, pid, kind, op, flags, sector, count };
    Some((event, name.map(str::to_owned)))
}

/// The operation and the flags of the letters: `F` before the direction is a flush before, behind
/// it it is FUA.
fn meaning(letters: &str, count: u64) -> Option<(Op, BioFlags)> {
    let way = letters.find(['R', 'W', 'D', 'N'])?;
    let op = match (letters.as_bytes()[way], count) {
        (b'D', _) => Op::Discard,
        (_, 0) => Op::Flush,
        (b'W', _) => Op::Write,
        _ => Op::Read,
    };
    let mut flags = BioFlags::empty();
    if letters[..way].contains('F') {
        flags |= BioFlags::PREFLUSH;
    }
    for letter in letters[way + 1..].chars() {
        flags |= match letter {
            'F' => BioFlags::FUA,
            'S' => BioFlags::SYNC,
            'M' => BioFlags::META,
            'A' => BioFlags::RAHEAD,
            _ => BioFlags::empty(),
        };
    }
    Some((op, flags))
}
