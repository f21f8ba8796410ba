//! fio's iolog, versions 2 and 3: what was asked of the device, to be asked again with
//! `fio --read_iolog`. Source: fio(1), "TRACE FILE FORMAT".

use super::{TraceEvent, TraceKind};
use crate::{BioFlags, Op};
use std::io::{self, Write};

/// The version of an iolog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Waits between the operations.
    V2,
    /// A time before each operation.
    V3,
}

/// Gaps below this are no waits: fio leaves them out.
const WAIT_MIN_US: u64 = 100;

/// Writes every bio (event Q) as an operation on `file`. A flush is a `sync`; a write that wants a
/// flush before or durability after it is followed by a `datasync`; discards and writes of zeroes
/// are a `trim`. Times are in microseconds: from the first event (version 3), or waits (version 2).
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    version: Version,
    file: &str,
    events: &[TraceEvent],
) -> io::Result<()> {
    let number = if version == Version::V2 { 2 } else { 3 };
    writeln!(out, "fio version {number} iolog")?;
    let first = events.first().map_or(0, |event| event.time.0);
    let mut last = first;
    let stamp = |now: u64| match version {
        Version::V2 => String::new(),
        Version::V3 => format!("{} ", (now - first) / 1000),
    };
    for action in ["add", "open"] {
        writeln!(out, "{}{file} {action}", stamp(first))?;
    }
    let mut end = first;
    for event in events.iter().filter(|event| event.kind == TraceKind::Queued) {
        let now = event.time.0.max(end);
        end = now;
        let wait = (now - last) / 1000;
        if version == Version::V2 && wait >= WAIT_MIN_US {
            writeln!(out, "{file} wait {wait} 0")?;
            last = now;
        }
        let action = match event.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard | Op::WriteZeroes => "trim",
        };
        let (offset, length) = (event.sector.bytes(), event.count * 512);
        let (offset, length) = if event.op == Op::Flush { (0, 0) } else { (offset, length) };
        writeln!(out, "{}{file} {action} {offset} {length}", stamp(now))?;
        if event.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA) && event.op != Op::Flush {
            writeln!(out, "{}{file} datasync 0 0", stamp(now))?;
        }
    }
    writeln!(out, "{}{file} close", stamp(end))
}
