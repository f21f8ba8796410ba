//! The binary format of blktrace(8), for blkparse(1), btt(1), iowatcher and `fio --read_iolog`.
//!
//! A record has 48 bytes, little-endian here, and a payload: magic with version 7, sequence, time
//! in ns, sector, bytes, action (event in the low half, category in the high one), pid, device,
//! cpu, error, payload's length. blkparse reads one file for each processor, which must hold that
//! processor's records only; the other tools read one merged file. Source: blktrace(8), blkparse(1)
//! and linux/blktrace_api.h as an interface; tried with blktrace 1.2.0.

use super::{ProcessNames, TraceEvent, TraceKind};
use crate::{BioFlags, Op};
use std::io::{self, Write};

const MAGIC: u32 = 0x6561_7407;
/// Major 8, minor 0: what tools know as `sda`.
const DEVICE: u32 = 8 << 20;

/// Categories.
const READ: u16 = 1 << 0;
const WRITE: u16 = 1 << 1;
const FLUSH: u16 = 1 << 2;
const SYNC: u16 = 1 << 3;
const QUEUE: u16 = 1 << 4;
const ISSUE: u16 = 1 << 6;
const COMPLETE: u16 = 1 << 7;
const NOTIFY: u16 = 1 << 10;
const AHEAD: u16 = 1 << 11;
const META: u16 = 1 << 12;
const DISCARD: u16 = 1 << 13;
const FUA: u16 = 1 << 15;

/// What a notification shows.
const PROCESS: u16 = 0;
const TIMESTAMP: u16 = 1;
const MESSAGE: u16 = 2;

/// One record before it is bytes.
struct Record<'a> {
    sequence: u32,
    event: &'a TraceEvent,
    action: (u16, u16),
    payload: &'a [u8],
}

/// Event number and category of the phase; `None` for what is a message.
fn phase(kind: TraceKind) -> Option<(u16, u16)> {
    Some(match kind {
        TraceKind::Queued => (1, QUEUE),
        TraceKind::BackMerge => (2, QUEUE),
        TraceKind::FrontMerge => (3, QUEUE),
        TraceKind::Get => (4, QUEUE),
        TraceKind::Sleeping => (5, QUEUE),
        TraceKind::Dispatched => (7, ISSUE),
        TraceKind::Completed => (8, COMPLETE),
        TraceKind::Plugged => (9, QUEUE),
        TraceKind::Unplugged => (10, QUEUE),
        TraceKind::Inserted => (12, QUEUE),
        TraceKind::Split => (13, QUEUE),
        TraceKind::Timer | TraceKind::Message => return None,
    })
}

/// The categories of operation and flags. A draining barrier has the bit of a flush, as it had
/// when there were such barriers.
fn category(event: &TraceEvent) -> u16 {
    let op = match event.op {
        Op::Read => READ,
        Op::Write | Op::WriteZeroes => WRITE,
        Op::Flush => FLUSH,
        Op::Discard => WRITE | DISCARD,
    };
    let flags = [
        (BioFlags::SYNC, SYNC),
        (BioFlags::META, META),
        (BioFlags::FUA, FUA),
        (BioFlags::RAHEAD, AHEAD),
        (BioFlags::PREFLUSH, FLUSH),
        (BioFlags::BARRIER, FLUSH),
    ];
    flags.iter().filter(|(flag, _)| event.flags.contains(*flag)).fold(op, |all, (_, bit)| all | bit)
}

/// The text of an event that is a message, else `None`.
pub(super) fn message(event: &TraceEvent) -> Option<String> {
    match event.elevator_note() {
        Some(note) => Some(format!("ioc {} {note}", note.ioc)),
        None if event.kind == TraceKind::Timer => Some("timer of the elevator".to_owned()),
        None => None,
    }
}

/// Sectors of the record: P and U are about none.
pub(super) fn sectors(event: &TraceEvent) -> u64 {
    match event.kind {
        TraceKind::Plugged | TraceKind::Unplugged => 0,
        _ => event.count,
    }
}

/// The letters that blkparse prints for the record.
pub(super) fn letters(event: &TraceEvent) -> String {
    if matches!(event.kind, TraceKind::Plugged | TraceKind::Unplugged) {
        return "N".to_owned();
    }
    let bits = category(event);
    let mut text = String::new();
    if bits & FLUSH != 0 {
        text.push('F');
    }
    text.push(match bits {
        bits if bits & DISCARD != 0 => 'D',
        bits if bits & WRITE != 0 => 'W',
        _ if event.count > 0 => 'R',
        _ => 'N',
    });
    let rest = [(FUA, 'F'), (AHEAD, 'A'), (SYNC, 'S'), (META, 'M')];
    text.extend(rest.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, letter)| letter));
    text
}

/// Writes the names of the tasks and the beginning of time. They belong to processor 0.
///
/// # Errors
/// Those of `out`.
pub fn write_head(out: &mut dyn Write, names: &ProcessNames) -> io::Result<()> {
    let mut event = TraceEvent::blank(base::Nanos::ZERO, TraceKind::Message);
    let notify = |what| (what, NOTIFY);
    put(out, Record { sequence: 0, event: &event, action: notify(TIMESTAMP), payload: &[0; 8] })?;
    for (task, name) in names.iter() {
        let mut comm = [0; 16];
        let len = name.floor_char_boundary(15);
        comm[..len].copy_from_slice(&name.as_bytes()[..len]);
        event.task = task;
        put(out, Record { sequence: 0, event: &event, action: notify(PROCESS), payload: &comm })?;
    }
    Ok(())
}

/// Writes `events` as records, numbered from 1.
///
/// # Errors
/// Those of `out`.
pub fn write<'a>(
    out: &mut dyn Write,
    events: impl Iterator<Item = &'a TraceEvent>,
) -> io::Result<()> {
    let mut sequence = 0;
    for event in events {
        if let Some(text) = message(event) {
            let payload = text.as_bytes();
            put(out, Record { sequence: 0, event, action: (MESSAGE, NOTIFY), payload })?;
            continue;
        }
        let Some((number, phase)) = phase(event.kind) else { continue };
        sequence += 1;
        let category = match event.kind {
            TraceKind::Plugged | TraceKind::Unplugged => 0,
            _ => category(event),
        };
        let cut = (event.sector.0 + event.count).to_be_bytes();
        let count = event.count.to_be_bytes();
        let payload: &[u8] = match event.kind {
            TraceKind::Unplugged => &count,
            TraceKind::Split => &cut,
            _ => &[],
        };
        put(out, Record { sequence, event, action: (number, phase | category), payload })?;
    }
    Ok(())
}

fn put(out: &mut dyn Write, record: Record<'_>) -> io::Result<()> {
    let Record { sequence, event, action: (number, category), payload } = record;
    let notify = category == NOTIFY;
    let (sector, bytes) = match (notify, event.kind) {
        (true, _) | (_, TraceKind::Plugged | TraceKind::Unplugged) => (0, 0),
        _ => (event.sector.0, (event.count * 512).min(u64::from(u32::MAX)) as u32),
    };
    let mut raw = [0; 48];
    let mut at = 0;
    let mut field = |bytes: &[u8]| {
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    field(&MAGIC.to_le_bytes());
    field(&sequence.to_le_bytes());
    field(&event.time.0.to_le_bytes());
    field(&sector.to_le_bytes());
    field(&bytes.to_le_bytes());
    field(&(u32::from(category) << 16 | u32::from(number)).to_le_bytes());
    field(&event.task.to_le_bytes());
    field(&DEVICE.to_le_bytes());
    field(&u32::from(event.cpu).to_le_bytes());
    field(&0u16.to_le_bytes());
    field(&(payload.len() as u16).to_le_bytes());
    out.write_all(&raw)?;
    out.write_all(payload)
}
