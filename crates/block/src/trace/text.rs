//! The lines that blkparse(1) prints with its default formats.

use super::blktrace::{letters, message, sectors};
use super::{ProcessNames, TraceEvent, TraceKind};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes a line for each event: device, processor, number, time, task, event, letters, place and
/// length, name of the task. Numbers run for each processor.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, events: &[TraceEvent], names: &ProcessNames) -> io::Result<()> {
    let mut numbers: BTreeMap<u16, u64> = BTreeMap::new();
    for event in events {
        let (sec, nsec) = (event.time.0 / 1_000_000_000, event.time.0 % 1_000_000_000);
        let cpu = event.cpu;
        if let Some(text) = message(event) {
            let number = 0;
            let (task, kind, rwbs) = (0, "m", "N");
            writeln!(
                out,
                "  8,0   {cpu:2} {number:>8} {sec:5}.{nsec:09} {task:5} {kind:>2} {rwbs:>3} {text}"
            )?;
            continue;
        }
        let number = numbers.entry(cpu).or_default();
        *number += 1;
        let kind = event.kind as u8 as char;
        let rwbs = letters(event);
        let head = format!(
            "  8,0   {cpu:2} {number:8} {sec:5}.{nsec:09} {:5} {kind:>2} {rwbs:>3} ",
            event.task
        );
        let name = names.name(event.task);
        let place = match sectors(event) {
            0 => String::new(),
            count => format!("{} + {count} ", event.sector),
        };
        match event.kind {
            TraceKind::Unplugged => writeln!(out, "{head}[{name}] {}", event.count)?,
            TraceKind::Split => {
                let cut = event.sector + event.count;
                writeln!(out, "{head}{} / {cut} [{name}]", event.sector)?;
            }
            TraceKind::Completed if place.is_empty() => {
                writeln!(out, "{head}{} [0]", event.sector)?;
            }
            TraceKind::Completed => writeln!(out, "{head}{place}[0]")?,
            _ => writeln!(out, "{head}{place}[{name}]")?,
        }
    }
    Ok(())
}
