//! Records that were written and are damaged.
//!
//! A power cut tears a record between blocks: each block is there in the newest cycle, or still in
//! the one before, or was never written. A record that is not whole though none of its blocks is
//! of an older cycle was written, and damaged later. So was one whose blocks look as if they had
//! not been, where what lies behind it was written only once it was there ([`Behind`]). Recovery
//! ends before both, as Linux does; but behind a damaged one may lie what was promised.

use std::collections::BTreeSet;
use std::sync::Arc;

use block::Queue;
use rt::Cx;

use super::head::{self, Ring, WINDOW};
use super::record::{self, Record};
use crate::error::{Result, XfsError};
use crate::format::log::{LOG_BLOCK, Lsn, OpFlags, RECORD_MAGIC, RawRecordHeader};
use crate::log::record::advance;
use crate::log::{LogError, LogGeometry};

/// Blocks in which damage is looked for: what may be on its way at once, and as much again.
const LIMIT: u32 = 2 * WINDOW;

/// Records that Linux has on their way at once, at the most (`logbufs`).
const BUFFERS: u32 = 8;

/// A damaged record, before which recovery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where it lies.
    pub at: Lsn,
    /// Whole records behind it.
    pub behind: u32,
    /// Where what was written ends.
    pub end: Lsn,
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damaged { at, behind, .. } = self;
        write!(f, "the record at {at} is damaged; recovery ends before it")?;
        match behind {
            0 => Ok(()),
            1 => write!(f, ", and gives up a whole one behind it"),
            behind => write!(f, ", and gives up {behind} whole ones behind it"),
        }
    }
}

impl Ring {
    /// What lies at `head`, where the order ends; none where nothing does, or a torn record. What
    /// was written ends before block `written`.
    pub(super) fn damage(
        &mut self,
        cx: &mut Cx,
        head: Lsn,
        written: u32,
    ) -> Result<Option<Broken>> {
        let count = self.geometry.blocks;
        let left = (written % count + count - head.block) % count;
        if left == 0 || left > LIMIT {
            return Ok(None);
        }
        let end = advance(head, left, count);
        let next = next_record(cx, &self.queue, &self.geometry, head, end)?.unwrap_or(end);
        let mut bytes = Vec::new();
        let len = (next.block + count - head.block) % count;
        record::read_blocks(cx, &self.queue, &self.geometry, head.block, len, &mut bytes)?;
        let mut blocks = (0..).zip(bytes.chunks_exact(LOG_BLOCK));
        let older = |at: u32| advance(head, at, count).cycle.wrapping_sub(1);
        // A log that was emptied has zeros ahead of its head.
        let unwritten = |at, cycle| cycle == 0 || cycle == older(at);
        let torn = blocks.any(|(at, block)| unwritten(at, head::cycle_of(block)));
        if let Ok(raw) = RawRecordHeader::parse(&bytes[..LOG_BLOCK], head.block)
            && raw.lsn() == head
            && raw.total_blocks() > left
        {
            return Ok(None);
        }
        let mut behind = Behind::default();
        let mut next = Some(next).filter(|&next| next != end);
        while let Some(at) = next {
            if let Some(record) = self.whole(cx, at.block, written)? {
                behind.add(&record);
            }
            behind.records += 1;
            next = next_record(cx, &self.queue, &self.geometry, at, end)?;
        }
        let damaged = Damaged { at: head, behind: behind.whole, end };
        let passed = behind.tail.filter(|&(tail, _)| tail > head).map(|(_, record)| record);
        let broken = Broken { damaged, passed };
        Ok((!torn || passed.is_some() || behind.prove()).then_some(broken))
    }
}

/// What lies where the order of a log ends.
pub(super) struct Broken {
    pub damaged: Damaged,
    /// A record behind it whose tail lies behind it, too: it counts no more.
    pub passed: Option<Lsn>,
}

/// What the records behind a place say of it.
#[derive(Default)]
struct Behind {
    /// Headers of records.
    records: u32,
    /// Those that are whole.
    whole: u32,
    /// The newest tail that one names, and which: what lies before it was there.
    tail: Option<(Lsn, Lsn)>,
    /// Checkpoints that begin behind the place.
    started: BTreeSet<u32>,
    /// A checkpoint that began before the place ends behind it.
    spanned: bool,
    /// Records up to the first end of a checkpoint.
    committed: Option<u32>,
}

impl Behind {
    /// Takes the next record that is whole.
    fn add(&mut self, record: &Record) {
        self.tail = self.tail.max(Some((record.header().tail_lsn(), record.lsn)));
        for (tid, flags) in record.operations() {
            if flags.contains(OpFlags::START) {
                self.started.insert(tid);
            } else if flags.contains(OpFlags::COMMIT) {
                // What began in a record that is not whole does not show.
                self.spanned |= self.records == self.whole && !self.started.contains(&tid);
                self.committed.get_or_insert(self.records + 1);
            }
        }
        self.whole += 1;
    }

    /// Was the place on the device when these were written? The end of a checkpoint is written with
    /// a flush when its other records are there (since Linux 5.14; before, each record was written
    /// through the device's cache), and a record when the one eight before it is there.
    fn prove(&self) -> bool {
        let room = |records: u32| self.records >= records + BUFFERS;
        self.spanned && room(0) || self.committed.is_some_and(room)
    }
}

/// The first place behind `after` and before `end` where a header says that it lies there.
pub(super) fn next_record(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    after: Lsn,
    end: Lsn,
) -> Result<Option<Lsn>> {
    let mut at = advance(after, 1, geometry.blocks);
    while geometry.position(at) < geometry.position(end) {
        let left = (geometry.position(end) - geometry.position(at)) / LOG_BLOCK as u64;
        let part = (left.min(u64::from(head::CHUNK)) as u32).min(geometry.blocks - at.block);
        let page = record::read_run(cx, queue, geometry, at.block, part)?;
        for (index, block) in (0..).zip(page.chunks_exact(LOG_BLOCK)) {
            let here = advance(at, index, geometry.blocks);
            let parsed = RawRecordHeader::parse(block, here.block);
            if parsed.is_ok_and(|raw| raw.lsn() == here) {
                return Ok(Some(here));
            }
        }
        at = advance(at, part, geometry.blocks);
    }
    Ok(None)
}

/// A change of a record, by which it would be whole.
pub struct Change {
    /// The byte, from the start of what the checksum is made over.
    pub at: usize,
    /// The bits to change.
    pub bits: u8,
}

/// Puts damaged records right, where `correct` names the change: it gets the number of bytes that
/// the checksum (CRC-32C) is made over, and the bits in which the stored one differs. Answers where
/// the records lie. May park.
///
/// # Errors
/// The device's; where the log has no end.
pub fn restore_records(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: LogGeometry,
    correct: &dyn Fn(usize, u32) -> Option<Change>,
) -> Result<Vec<Lsn>> {
    let mut restored = Vec::new();
    let mut restore = |cx: &mut Cx, at: Lsn| -> Result<bool> {
        let done = !restored.contains(&at) && restore_at(cx, queue, &geometry, at, correct)?;
        restored.extend(done.then_some(at));
        Ok(done)
    };
    let found = loop {
        let found = head::find(cx, queue, geometry)?;
        match found.damaged {
            Some(damaged) if restore(cx, damaged.at)? => {}
            _ => break found,
        }
    };
    let (mut at, end) = (found.head.tail, found.head.head);
    while geometry.position(at) < geometry.position(end) {
        match record::read(cx, queue, &geometry, at) {
            Ok(record) if record.verify(&geometry).is_ok() => at = record.end(&geometry),
            Err(XfsError::Log(LogError::Device(error))) => {
                return Err(LogError::Device(error).into());
            }
            _ if restore(cx, at)? => {}
            _ => break,
        }
    }
    Ok(restored)
}

/// Tries to put the record at `at` right.
fn restore_at(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    at: Lsn,
    correct: &dyn Fn(usize, u32) -> Option<Change>,
) -> Result<bool> {
    let mut first = record::read_run(cx, queue, geometry, at.block, 1)?;
    // What is known goes without saying.
    let raw = RawRecordHeader::view_mut(first.make_mut()).expect("a block holds a header");
    raw.h_magicno.set(RECORD_MAGIC);
    raw.h_cycle.set(at.cycle);
    raw.h_lsn.set(at.bits());
    if RawRecordHeader::parse(&first, at.block).is_err() {
        return Ok(false);
    }
    let Ok(mut record) = Record::starting_with(cx, queue, geometry, at, first.to_vec()) else {
        return Ok(false);
    };
    if record.verify(geometry).is_err() {
        let Some(change) = correct(record.summed(), record.gap()) else { return Ok(false) };
        record.change(&change);
        if record.verify(geometry).is_err() {
            return Ok(false);
        }
    }
    record.write(cx, queue, geometry)?;
    Ok(true)
}
