//! The binary records of blktrace(8), versions 7 and 8, in either byte order.
//!
//! Source of the layout: linux/blktrace_api.h as an interface, blktrace(8); tried with blktrace
//! 1.3.0 and with what our own queues write.

use std::collections::BTreeMap;

use block::{BioFlags, Op};

use super::{Event, Kind, Trace, of_events};

/// The magic, without the version in its low byte.
const MAGIC: u32 = 0x6561_7400;
/// Set in the event where the record comes from a group: eight bytes of its id are in front.
const OF_GROUP: u16 = 1 << 8;
/// Categories.
const WRITE: u16 = 1 << 1;
const FLUSH: u16 = 1 << 2;
const SYNC: u16 = 1 << 3;
const NOTIFY: u16 = 1 << 10;
const AHEAD: u16 = 1 << 11;
const META: u16 = 1 << 12;
const DISCARD: u16 = 1 << 13;
const FUA: u16 = 1 << 15;

/// Whether a file begins with a record.
pub fn is_one(bytes: &[u8]) -> bool {
    order(bytes).is_some()
}

/// Whether the byte order is little-endian, and the version.
fn order(bytes: &[u8]) -> Option<(bool, u8)> {
    let head: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    [true, false].into_iter().find_map(|little| {
        let word = if little { u32::from_le_bytes(head) } else { u32::from_be_bytes(head) };
        (word & !0xff == MAGIC).then_some((little, word as u8))
    })
}

/// A record's numbers, read one after another.
struct Words<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Words<'_> {
    fn number(&mut self, len: usize) -> u64 {
        let (own, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        if self.little { own.iter().rev().fold(0, add) } else { own.iter().fold(0, add) }
    }
}

struct Record {
    event: Event,
    action: u16,
    category: u16,
    payload: usize,
}

fn record(bytes: &[u8], little: bool, version: u8) -> Record {
    let mut words = Words { bytes, little };
    let _magic = words.number(4);
    let sequence = words.number(4) as u32;
    let (time, sector, len) = (words.number(8), words.number(8), words.number(4));
    // Version 8 has a wider action, behind the process.
    let (action, pid) = match version {
        8 => {
            let pid = words.number(4);
            (words.number(8), pid)
        }
        _ => (words.number(4), words.number(4)),
    };
    let device = words.number(4) as u32;
    let _cpu_and_error = words.number(6);
    let payload = words.number(2) as usize;
    let (action, category) = (action as u16 & !OF_GROUP, (action >> 16) as u16);
    let kind = match action {
        7 => Kind::Issued,
        8 => Kind::Done,
        _ => Kind::Asked,
    };
    let set = |bit: u16| category & bit != 0;
    let op = match (set(DISCARD), set(WRITE), len) {
        (true, _, _) => Op::Discard,
        (_, _, 0) => Op::Flush,
        (_, true, _) => Op::Write,
        _ => Op::Read,
    };
    let bits = [
        (SYNC, BioFlags::SYNC),
        (META, BioFlags::META),
        (FUA, BioFlags::FUA),
        (AHEAD, BioFlags::RAHEAD),
        (FLUSH, BioFlags::PREFLUSH),
    ];
    let flags =
        bits.iter().filter(|(bit, _)| set(*bit)).fold(BioFlags::empty(), |all, (_, f)| all | *f);
    let device = (device >> 20, device & 0xf_ffff);
    let pid = pid as u32;
    let count = len / 512;
    let event = Event { time, sequence, device, pid, kind, op, flags, sector, count };
    Record { event, action, category, payload }
}

/// Reads files, each of one or of all processors.
///
/// # Errors
/// A record that is none, with the file and its place.
pub fn read(files: &[(String, Vec<u8>)], device: Option<(u32, u32)>) -> Result<Trace, String> {
    let (mut events, mut names, mut notes) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (file, bytes) in files {
        let mut at = 0;
        while at < bytes.len() {
            let Some((little, version @ (7 | 8))) = order(&bytes[at..]) else {
                return Err(format!("{file}: byte {at}: no record of blktrace version 7 or 8"));
            };
            let size = if version == 8 { 64 } else { 48 };
            let Some(head) = bytes.get(at..at + size) else { break };
            let Record { event, action, category, payload } = record(head, little, version);
            let Some(rest) = bytes.get(at + size..at + size + payload) else { break };
            at += size + payload;
            if category & NOTIFY != 0 {
                if action == 0 && event.pid != 0 {
                    let text = String::from_utf8_lossy(&rest[rest.len().saturating_sub(16)..]);
                    names.insert(event.pid, text.trim_end_matches('\0').to_owned());
                }
            } else if matches!(action, 1 | 7 | 8) {
                events.push(event);
            }
        }
        if at < bytes.len() {
            notes.push(format!("{file} ends inside of a record, which is left out"));
        }
    }
    let mut trace = of_events(events, device)?;
    trace.names = names;
    trace.notes.extend(notes);
    Ok(trace)
}
