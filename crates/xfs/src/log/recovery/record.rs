//! One record: read, checked, its cycle words put back.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use base::{Page, Sector};
use block::{BioFlags, Queue};
use rt::Cx;

use super::damage::Change;
use crate::error::Result;
use crate::format::log::{
    CYCLE_DATA, FORMAT_LITTLE, HEADER_SUMMED, LOG_BLOCK, Lsn, OpFlags, RawExtHeader, RawOpHeader,
    RawRecordHeader, record_checksum, unpacked,
};
use crate::log::record::advance;
use crate::log::{LogError, LogGeometry, OP_HEADER};

/// A record as it lies in the log.
pub(crate) struct Record {
    pub lsn: Lsn,
    bytes: Vec<u8>,
    headers: usize,
}

/// Reads the record at `lsn`. May park.
///
/// # Errors
/// The device's; where there is no header of that number.
pub(super) fn read(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    lsn: Lsn,
) -> Result<Record> {
    let mut bytes = Vec::new();
    read_blocks(cx, queue, geometry, lsn.block, 1, &mut bytes)?;
    Record::starting_with(cx, queue, geometry, lsn, bytes)
}

/// Reads `count` blocks from `block` on, without going round; also where the device's blocks are
/// larger than the log's. May park.
///
/// # Errors
/// The device's.
pub(super) fn read_run(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    block: u32,
    count: u32,
) -> Result<Page> {
    let unit = queue.info().block_sectors();
    let (first, end) = (geometry.sector(block).0, geometry.sector(block + count).0);
    let (from, upto) = (first - first % unit, end.next_multiple_of(unit));
    let read = queue.read(cx, Sector(from), (upto - from) as usize * LOG_BLOCK);
    let page = read.map_err(LogError::Device)?;
    if (from, upto) == (first, end) {
        return Ok(page);
    }
    let at = (first - from) as usize * LOG_BLOCK;
    Ok(Page::from_slice(&page[at..at + count as usize * LOG_BLOCK]))
}

/// Writes blocks from `block` on, without going round; also where the device's blocks are larger
/// than the log's. May park.
fn put_blocks(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    block: u32,
    bytes: &[u8],
) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let unit = queue.info().block_sectors();
    let first = geometry.sector(block).0;
    let (from, at) = (first - first % unit, (first % unit) as usize * LOG_BLOCK);
    let len = (at + bytes.len()).next_multiple_of(unit as usize * LOG_BLOCK);
    let mut page = queue.read(cx, Sector(from), len).map_err(LogError::Device)?;
    page.make_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    queue.write(cx, Sector(from), page, BioFlags::META).map_err(LogError::Device)?;
    Ok(())
}

pub(super) fn read_blocks(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &LogGeometry,
    block: u32,
    count: u32,
    to: &mut Vec<u8>,
) -> Result<()> {
    let first = count.min(geometry.blocks - block);
    for (block, count) in [(block, first), (0, count - first)] {
        if count > 0 {
            to.extend_from_slice(&read_run(cx, queue, geometry, block, count)?);
        }
    }
    Ok(())
}

impl Record {
    /// The record at `lsn` of which `bytes` is the first block.
    pub(super) fn starting_with(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        geometry: &LogGeometry,
        lsn: Lsn,
        mut bytes: Vec<u8>,
    ) -> Result<Record> {
        let raw = RawRecordHeader::parse(&bytes, lsn.block)?;
        if raw.lsn() != lsn {
            return Err(LogError::NoRecord { block: lsn.block }.into());
        }
        let (headers, total) = (raw.header_blocks(), raw.total_blocks());
        if total > geometry.blocks {
            return Err(LogError::NoRecord { block: lsn.block }.into());
        }
        if total > 1 {
            let next = advance(lsn, 1, geometry.blocks).block;
            read_blocks(cx, queue, geometry, next, total - 1, &mut bytes)?;
        }
        Ok(Record { lsn, bytes, headers })
    }

    pub fn header(&self) -> &RawRecordHeader {
        RawRecordHeader::view(&self.bytes).expect("a record has its header")
    }

    /// The data, with cycle numbers in the first word of each block.
    pub fn data(&self) -> &[u8] {
        let start = self.headers * LOG_BLOCK;
        &self.bytes[start..start + self.header().h_len.get() as usize]
    }

    /// The first block behind it.
    pub fn end(&self, geometry: &LogGeometry) -> Lsn {
        advance(self.lsn, self.header().total_blocks(), geometry.blocks)
    }

    fn sum(&self) -> u32 {
        let (headers, _) = self.bytes.split_at(self.headers * LOG_BLOCK);
        let (main, extended) = headers.split_at(LOG_BLOCK);
        record_checksum(main, extended, self.data())
    }

    /// The bits in which its checksum differs from the one that it has.
    pub fn gap(&self) -> u32 {
        self.header().h_crc.get() ^ self.sum()
    }

    /// The parts that the checksum is made over, in their order, as they lie in the bytes.
    fn summed_parts(&self) -> Vec<Range<usize>> {
        let len = self.data().len();
        let extended = (1..self.headers.min(len.div_ceil(CYCLE_DATA)))
            .map(|header| header * LOG_BLOCK..header * LOG_BLOCK + size_of::<RawExtHeader>());
        let start = self.headers * LOG_BLOCK;
        let data = iter::once(start..start + len);
        iter::once(0..HEADER_SUMMED).chain(extended).chain(data).collect()
    }

    /// Bytes that the checksum is made over.
    pub fn summed(&self) -> usize {
        self.summed_parts().iter().map(ExactSizeIterator::len).sum()
    }

    /// Changes a byte.
    pub fn change(&mut self, change: &Change) {
        let mut at = change.at;
        for part in self.summed_parts() {
            if at < part.len() {
                self.bytes[part.start + at] ^= change.bits;
                return;
            }
            at -= part.len();
        }
    }

    /// Writes it to its place. May park.
    ///
    /// # Errors
    /// The device's.
    pub fn write(&self, cx: &mut Cx, queue: &Arc<Queue>, geometry: &LogGeometry) -> Result<()> {
        let before = (geometry.blocks - self.lsn.block) as usize * LOG_BLOCK;
        let (near, far) = self.bytes.split_at(before.min(self.bytes.len()));
        put_blocks(cx, queue, geometry, self.lsn.block, near)?;
        put_blocks(cx, queue, geometry, 0, far)
    }

    /// True if it is whole. `mkfs.xfs` leaves the sum out of its unmount record, so that 0 must
    /// count as right; what is recovered is held to its sum ([`Record::verify`]).
    pub fn sum_is_right(&self) -> bool {
        let found = self.header().h_crc.get();
        found == 0 || found == self.sum()
    }

    /// Checks what ties it to this file system.
    pub fn check_identity(&self, geometry: &LogGeometry) -> Result<()> {
        let (lsn, raw) = (self.lsn, self.header());
        // A record without one is anybody's: a change of the UUID writes it in between.
        if raw.h_fs_uuid != geometry.uuid && raw.h_fs_uuid != [0; 16] {
            return Err(LogError::Uuid { lsn }.into());
        }
        let format = raw.h_fmt.get();
        if format != FORMAT_LITTLE {
            return Err(LogError::Format { lsn, format }.into());
        }
        Ok(())
    }

    /// Checks sum, UUID and format.
    pub fn verify(&self, geometry: &LogGeometry) -> Result<()> {
        let (found, expected) = (self.header().h_crc.get(), self.sum());
        if found != expected && !(geometry.v4 && found == 0) {
            return Err(LogError::Checksum { lsn: self.lsn, found, expected }.into());
        }
        self.check_identity(geometry)
    }

    /// The transactions and flags of its operations, as far as they can be read.
    pub fn operations(&self) -> Vec<(u32, OpFlags)> {
        let data = self.unpacked();
        let (mut rest, mut found) = (&data[..], Vec::new());
        for _ in 0..self.header().h_num_logops.get() {
            let Some(raw) = RawOpHeader::view(rest) else { break };
            found.push((raw.oh_tid.get(), raw.flags()));
            rest = rest.get(OP_HEADER + raw.oh_len.get() as usize..).unwrap_or_default();
        }
        found
    }

    /// The data with the words that the headers kept back in their places.
    pub fn unpacked(&self) -> Vec<u8> {
        unpacked(&self.bytes[..self.headers * LOG_BLOCK], self.data())
    }
}
