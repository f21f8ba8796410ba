//! Where the log ends and where it begins.

use std::sync::Arc;

use base::Page;
use block::{BioFlags, DeviceError, Queue};
use rt::Cx;

use super::damage::{Broken, Damaged};
use super::record::{self, Record};
use crate::error::{Result, XfsError};
use crate::format::Geometry;
use crate::format::log::{LOG_BLOCK, Lsn, OpFlags, RECORD_MAGIC, RawRecordHeader};
use crate::log::record::{advance, next_cycle};
use crate::log::{LogError, LogGeometry, LogHead};

/// What is wrong with a log that has a hole.
pub const HOLE: &str = "blocks are not of their cycle";
/// A sequence number that says nothing.
const NULL_LSN: Lsn = Lsn { cycle: u32::MAX, block: u32::MAX };
/// Blocks behind the head in which records may have been written in any order: eight records of
/// 256 KiB.
pub(super) const WINDOW: u32 = 8 * 512;
/// Records that are checked by their checksum before the head is believed.
const CHECKED: usize = 8;
/// Blocks at the ends of the ring that are asked for its cycles.
const EDGE: u32 = 8;
/// Blocks that are read at once.
pub(super) const CHUNK: u32 = 256;
/// The log's limits: 2 GiB and one block less; a few records.
const BLOCKS: std::ops::Range<u32> = 512..1 << 23;

/// The log as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundHead {
    /// Head and tail.
    pub head: LogHead,
    /// The last record says that the file system was unmounted, or there is no record at all.
    pub clean: bool,
    /// It carries no UUID: a change of the file system's was cut off.
    pub unnamed: bool,
    /// What lies at the head is a damaged record.
    pub damaged: Option<Damaged>,
    /// Blocks say that the log ends here, and the superblock or a later record knows better: a
    /// block was damaged. Linux finds no end, or that one.
    pub hole: Option<Lsn>,
}

/// Finds head and tail. May park.
///
/// # Errors
/// The device's; where there is no record that could be the last one; where its tail cannot be;
/// where the superblock is newer than the last one.
pub fn find(cx: &mut Cx, queue: &Arc<Queue>, geometry: LogGeometry) -> Result<FoundHead> {
    if !BLOCKS.contains(&geometry.blocks) {
        return Err(LogError::Size { blocks: geometry.blocks }.into());
    }
    let mut ring = Ring { queue: queue.clone(), geometry };
    let found = match ring.by_cycles(cx) {
        Err(XfsError::Device(error)) => return Err(XfsError::Device(error)),
        Err(XfsError::Log(LogError::Device(error))) => return Err(LogError::Device(error).into()),
        found => found,
    };
    let newest = geometry.newest;
    let end = found.as_ref().map_or(Lsn { cycle: 1, block: 0 }, |found| found.head.head);
    if newest.cycle == 0 || newest == NULL_LSN || newest <= end {
        return found;
    }
    match ring.known_from(cx, newest)? {
        Some(last) => Ok(FoundHead { hole: Some(end), ..last }),
        None => found.and(Err(LogError::Ahead { newest, head: end }.into())),
    }
}

impl FoundHead {
    /// It holds nothing, and nothing of it is lost.
    pub fn is_clean(&self) -> bool {
        self.clean && self.damaged.is_none() && self.hole.is_none()
    }
}

impl Ring {
    /// By the cycles of blocks.
    fn by_cycles(&mut self, cx: &mut Cx) -> Result<FoundHead> {
        let Some(Ends { written, order }) = self.ends(cx)? else {
            let start = Lsn { cycle: 1, block: 0 };
            return Ok(FoundHead {
                head: LogHead { head: start, tail: start, previous: 0 },
                clean: true,
                unnamed: false,
                damaged: None,
                hole: None,
            });
        };
        let last = self.last_good(cx, order)?;
        let found = self.head_of(&last)?;
        let end = found.head.head;
        let Some(Broken { damaged, passed }) = self.damage(cx, end, written)? else {
            return Ok(found);
        };
        let last = passed.map(|lsn| self.known_from(cx, lsn)).transpose()?.flatten();
        Ok(match last {
            Some(last) => FoundHead { hole: Some(end), ..last },
            None => FoundHead { damaged: Some(damaged), ..found },
        })
    }

    /// The log that ends with this record.
    fn head_of(&self, last: &Record) -> Result<FoundHead> {
        last.check_identity(&self.geometry)?;
        let head = last.end(&self.geometry);
        let clean = last.is_unmount();
        let tail = if clean { head } else { last.header().tail_lsn() };
        if !clean {
            check_tail(&self.geometry, last.lsn, tail, head)?;
        }
        let previous = last.lsn.block;
        let unnamed = last.header().h_fs_uuid == [0; 16];
        let head = LogHead { head, tail, previous };
        Ok(FoundHead { head, clean, unnamed, damaged: None, hole: None })
    }

    /// The log up to the last record of those that follow on the one at `known`; none unless all of
    /// it is whole.
    fn known_from(&mut self, cx: &mut Cx, known: Lsn) -> Result<Option<FoundHead>> {
        if known.block >= self.geometry.blocks {
            return Ok(None);
        }
        let Some(mut last) = self.whole_at(cx, known)? else { return Ok(None) };
        for _ in 0..self.geometry.blocks {
            let end = last.end(&self.geometry);
            let Some(next) = self.whole_at(cx, end)? else { break };
            last = next;
        }
        let Ok(found) = self.head_of(&last) else { return Ok(None) };
        let mut at = found.head.tail;
        while self.geometry.position(at) < self.geometry.position(found.head.head) {
            let Some(record) = self.whole_at(cx, at)? else { return Ok(None) };
            at = record.end(&self.geometry);
        }
        Ok(Some(found))
    }

    /// The record at `lsn`, if it is whole.
    fn whole_at(&mut self, cx: &mut Cx, lsn: Lsn) -> Result<Option<Record>> {
        match record::read(cx, &self.queue, &self.geometry, lsn) {
            Ok(record) => Ok(record.sum_is_right().then_some(record)),
            Err(XfsError::Device(error)) => Err(XfsError::Device(error)),
            Err(XfsError::Log(LogError::Device(error))) => Err(LogError::Device(error).into()),
            Err(_) => Ok(None),
        }
    }
}

/// Whether the log holds nothing that must be recovered. A log whose end cannot be found is not
/// clean; recovering it says why. May park.
///
/// # Errors
/// The device failed.
pub(crate) fn is_clean(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
) -> std::result::Result<bool, DeviceError> {
    match find(cx, queue, LogGeometry::of(geometry)) {
        Ok(found) => Ok(found.is_clean()),
        Err(XfsError::Device(error) | XfsError::Log(LogError::Device(error))) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Was the first block written in the cycle of the last one, or in the one behind it; and was it
/// ever written? In version 4 it may not be, if those behind it were not, either. A log where it
/// was not may still have an end, but xfs_repair takes it for none. May park.
///
/// # Errors
/// The device failed.
pub fn starts_whole(cx: &mut Cx, queue: &Arc<Queue>, geometry: LogGeometry) -> Result<bool> {
    let mut ring = Ring { queue: queue.clone(), geometry };
    let (first, last) = (ring.cycle(cx, 0)?, ring.cycle(cx, geometry.blocks - 1)?);
    if first == 0 && last == 0 {
        return Ok(geometry.v4 && is_zeroed(cx, queue, geometry)?);
    }
    Ok(first == last || first.checked_sub(1) == Some(last))
}

/// Nothing was written to the log, or all of it is gone: its first blocks, and the last one. May
/// park.
///
/// # Errors
/// The device failed.
pub fn is_zeroed(cx: &mut Cx, queue: &Arc<Queue>, geometry: LogGeometry) -> Result<bool> {
    let mut ring = Ring { queue: queue.clone(), geometry };
    let page = ring.blocks(cx, 0, CHUNK.min(geometry.blocks))?;
    let start = page.chunks_exact(LOG_BLOCK).all(|block| cycle_of(block) == 0);
    Ok(start && ring.cycle(cx, geometry.blocks - 1)? == 0)
}

/// The tail must lie before the record that names it (or be that record) within one turn.
fn check_tail(geometry: &LogGeometry, lsn: Lsn, tail: Lsn, head: Lsn) -> Result<()> {
    let inside = tail.block < geometry.blocks && tail.cycle > 0 && tail <= lsn;
    let turn = geometry.position(head).saturating_sub(geometry.position(tail));
    if !inside || turn > geometry.bytes() {
        return Err(LogError::Tail { lsn, tail }.into());
    }
    Ok(())
}

fn no_head(block: u32) -> XfsError {
    LogError::NoHead { block }.into()
}

/// The cycle that a block of the log was written in.
pub(super) fn cycle_of(block: &[u8]) -> u32 {
    let word = |at: usize| u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"));
    match word(0) {
        RECORD_MAGIC => word(4),
        cycle => cycle,
    }
}

pub(super) struct Ring {
    pub(super) queue: Arc<Queue>,
    pub(super) geometry: LogGeometry,
}

/// Blocks at which a log ends.
struct Ends {
    /// Behind it nothing was written in the newest cycle.
    written: u32,
    /// Before it everything was.
    order: u32,
}

impl Ring {
    fn blocks(&self, cx: &mut Cx, block: u32, count: u32) -> Result<Page> {
        record::read_run(cx, &self.queue, &self.geometry, block, count)
    }

    fn cycle(&mut self, cx: &mut Cx, block: u32) -> Result<u32> {
        Ok(cycle_of(&self.blocks(cx, block, 1)?))
    }

    /// Where what was written in the newest cycle ends; None if nothing was ever written.
    fn ends(&mut self, cx: &mut Cx) -> Result<Option<Ends>> {
        let (first, last) = self.edges(cx)?;
        if first == 0 {
            return Ok(None);
        }
        let (written, old) = if first == last {
            (self.geometry.blocks, first.wrapping_sub(1))
        } else {
            // If the ring was never full, `last` is 0.
            (self.first_with(cx, first, last)?, last)
        };
        Ok(Some(Ends { written, order: self.first_hole(cx, written, old)? }))
    }

    /// The cycles of the first block and of the last one; of their neighbours, where those two do
    /// not go together.
    fn edges(&mut self, cx: &mut Cx) -> Result<(u32, u32)> {
        let (first, last) = (self.cycle(cx, 0)?, self.cycle(cx, self.geometry.blocks - 1)?);
        // Two apart they are where the last record goes round the corner and is torn there.
        let fit = |first: u32, last: u32| {
            let next = next_cycle(last);
            first == last || first == next || first == next_cycle(next)
        };
        for near in (0..EDGE).filter(|_| !fit(first, last)) {
            let (other, far) = (self.cycle(cx, near)?, self.geometry.blocks - 1 - near);
            let another = self.cycle(cx, far)?;
            let pairs = [(other, last), (first, another), (other, another)];
            if let Some(pair) = pairs.into_iter().find(|&(first, last)| fit(first, last)) {
                return Ok(pair);
            }
        }
        Ok((first, last))
    }

    /// By bisection: the first block of the part that was written in cycle `last`, behind what was
    /// written later, up to `first`. Blocks of other cycles are damaged, and passed over.
    fn first_with(&mut self, cx: &mut Cx, first: u32, last: u32) -> Result<u32> {
        let (mut newer, mut older) = (0, self.geometry.blocks - 1);
        while older - newer > 1 {
            let middle = newer + (older - newer) / 2;
            let mut at = middle;
            let old = loop {
                match self.cycle(cx, at)? {
                    cycle if cycle == last => break true,
                    cycle if (last..=first).contains(&cycle) || at + 1 == older => break false,
                    _ => at += 1,
                }
            };
            match old {
                true => older = middle,
                false => newer = at,
            }
        }
        Ok(older)
    }

    /// Records may have reached the device out of order: the first block within the window before
    /// `end` that is of an older cycle is where the order ends.
    fn first_hole(&mut self, cx: &mut Cx, end: u32, old: u32) -> Result<u32> {
        let back = WINDOW.min(self.geometry.blocks);
        let before = back.saturating_sub(end);
        if before > 0 && old > 0 {
            // The window begins at the far end of the ring, one cycle earlier.
            let from = self.geometry.blocks - before;
            let hole = self.find_cycle(cx, from, before, old.wrapping_sub(1))?;
            if let Some(hole) = hole {
                return Ok(hole);
            }
        }
        let from = end - (back - before);
        Ok(self.find_cycle(cx, from, end - from, old)?.unwrap_or(end))
    }

    fn find_cycle(
        &mut self,
        cx: &mut Cx,
        mut from: u32,
        mut count: u32,
        cycle: u32,
    ) -> Result<Option<u32>> {
        while count > 0 {
            let part = count.min(CHUNK);
            let page = self.blocks(cx, from, part)?;
            let found = page.chunks_exact(LOG_BLOCK).position(|block| cycle_of(block) == cycle);
            if let Some(index) = found {
                return Ok(Some(from + index as u32));
            }
            (from, count) = (from + part, count - part);
        }
        Ok(None)
    }

    /// The last record before `end` that is whole, and that all records in the window before it
    /// are whole too.
    fn last_good(&mut self, cx: &mut Cx, end: u32) -> Result<Record> {
        let headers = self.headers_before(cx, end)?;
        let mut good: Option<Record> = None;
        for &block in &headers {
            let Some(record) = self.whole(cx, block, end)? else { break };
            // What follows must follow: an older record behind a torn one is not the log's end.
            if good.as_ref().is_some_and(|good| good.end(&self.geometry) != record.lsn) {
                break;
            }
            good = Some(record);
        }
        // The oldest of them may be a damaged one: then it is the one before it.
        if let (None, Some(&oldest)) = (&good, headers.first())
            && let Some(&before) = self.headers_before(cx, oldest)?.last()
        {
            good = self.whole(cx, before, oldest)?;
        }
        good.ok_or_else(|| no_head(end))
    }

    /// The places of the last headers before `end`, oldest first: all of the window, or the last
    /// one where it lies further back.
    fn headers_before(&mut self, cx: &mut Cx, end: u32) -> Result<Vec<u32>> {
        let count = self.geometry.blocks;
        let (mut headers, mut cycle) = (Vec::new(), None);
        let (mut at, mut seen) = (end, 0);
        while seen < count && headers.len() < CHECKED && (seen < WINDOW || headers.is_empty()) {
            if at == 0 {
                // Round the corner lies the cycle before.
                at = count;
                cycle = cycle.map(|cycle: u32| cycle - 1);
            }
            let part = at.min(CHUNK).min(count - seen);
            let page = self.blocks(cx, at - part, part)?;
            for (index, block) in page.chunks_exact(LOG_BLOCK).enumerate().rev() {
                if block[..4] != RECORD_MAGIC.to_be_bytes() {
                    continue;
                }
                // Anything of another cycle only looks like a header: it was put there to cover
                // what a crash had left.
                let own = cycle_of(block);
                if own == *cycle.get_or_insert(own) && own > 0 {
                    headers.push(at - part + index as u32);
                }
            }
            (at, seen) = (at - part, seen + part);
        }
        headers.truncate(CHECKED);
        headers.reverse();
        Ok(headers)
    }

    /// The record at `block`, if it is whole; `end` is where what was written ends.
    pub(super) fn whole(&mut self, cx: &mut Cx, block: u32, end: u32) -> Result<Option<Record>> {
        let page = self.blocks(cx, block, 1)?;
        let Ok(raw) = RawRecordHeader::parse(&page, block) else { return Ok(None) };
        let lsn = raw.lsn();
        let size = raw.total_blocks();
        let room = match end > block {
            true => end - block,
            false => self.geometry.blocks - block + end,
        };
        if size > room {
            return Ok(None);
        }
        let record = record::read(cx, &self.queue, &self.geometry, lsn)?;
        Ok(record.sum_is_right().then_some(record))
    }
}

impl Record {
    /// True if it says that the file system was unmounted.
    fn is_unmount(&self) -> bool {
        let flags = self.data().get(9).copied().unwrap_or(0);
        self.header().h_num_logops.get() == 1
            && OpFlags::from_bits_retain(flags).contains(OpFlags::UNMOUNT)
    }
}

/// Writes older cycle numbers into what lies ahead of the head, where blocks of another cycle than
/// the one before lie there: those of records that a crash cut would join what is written next,
/// and holes in what is written next would not be seen among blocks that were never written.
pub(super) fn clear_ahead(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    head: &LogHead,
) -> Result<()> {
    let used = (geometry.position(head.head) - geometry.position(head.tail)) / LOG_BLOCK as u64;
    let free = geometry.blocks.saturating_sub(used as u32);
    let mut left = WINDOW.min(free);
    let mut at = head.head;
    while left > 0 {
        let part = left.min(CHUNK).min(geometry.blocks - at.block);
        let len = part as usize * LOG_BLOCK;
        let mut page = queue.read(cx, geometry.sector(at.block), len)?;
        let other = |block: &[u8]| cycle_of(block) != at.cycle.wrapping_sub(1);
        if page.chunks_exact(LOG_BLOCK).any(other) {
            fill_old(page.make_mut(), geometry, at, head.tail);
            queue.write(cx, geometry.sector(at.block), page, BioFlags::META)?;
        }
        at = advance(at, part, geometry.blocks);
        left -= part;
    }
    Ok(())
}

/// Blocks that look like headers of the cycle before.
fn fill_old(page: &mut [u8], geometry: &LogGeometry, at: Lsn, tail: Lsn) {
    page.fill(0);
    for (index, block) in page.chunks_exact_mut(LOG_BLOCK).enumerate() {
        let raw = RawRecordHeader::view_mut(block).expect("a block holds a header");
        let cycle = at.cycle - 1;
        raw.h_magicno.set(RECORD_MAGIC);
        raw.h_cycle.set(cycle);
        raw.h_version.set(crate::format::log::VERSION_2);
        raw.h_lsn.set(Lsn { cycle, block: at.block + index as u32 }.bits());
        raw.h_tail_lsn.set(tail.bits());
        raw.h_fmt.set(crate::format::log::FORMAT_LITTLE);
        raw.h_fs_uuid = geometry.uuid;
    }
    debug_assert!(next_cycle(at.cycle) > at.cycle);
}
