//! Partitions: a part of another device, found by MBR or GPT.
//!
//! Sources: UEFI Specification 2.10, chapter 5 (GPT, protective MBR); for the MBR and its chain of
//! extended boot records the common PC practice. Numbers are those of Linux: MBR 1 to 4, logical
//! partitions from 5, GPT by the place in its table.

mod table;

pub use table::{PartitionError, TableKind};

use base::Sector;
use block::{Device, DeviceInfo, DeviceIo, HostRange, Op, Queue, QueueConfig};
use rt::Cx;
use std::sync::Arc;

/// One entry of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Number, from 1, as in `sda1`.
    pub number: u32,
    /// First sector of 512 bytes on the device.
    pub start: Sector,
    /// Number of sectors of 512 bytes; above 0.
    pub count: u64,
    /// Type: two hexadecimal digits (MBR) or a GUID (GPT).
    pub kind: String,
    /// Name (GPT), empty without one.
    pub name: String,
    /// The unique GUID (GPT).
    pub guid: Option<String>,
    /// Marked as bootable.
    pub bootable: bool,
}

/// The partition table of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// Which kind of table.
    pub kind: TableKind,
    /// The partitions in the order of their numbers. They lie on the device; those of a GPT do not
    /// overlap.
    pub partitions: Vec<PartitionEntry>,
}

/// A part of another device, with sector addresses of its own.
pub struct Partition {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    start: Sector,
    name: String,
}

impl Partition {
    /// Reads the partition table of `device`. Parks.
    ///
    /// # Errors
    /// Where the device fails, has no table, or a damaged one; the error names the check.
    pub fn list(cx: &mut Cx, device: &Arc<dyn Device>) -> Result<PartitionTable, PartitionError> {
        let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::default())
            .map_err(|error| PartitionError::Queue(error.to_string()))?;
        let block = device.info().logical_block as usize;
        let result = table::read(device.info(), &mut |sector, len| {
            // The table's own blocks may be smaller than those of the device.
            let first = sector.bytes() as usize / block * block;
            let skip = sector.bytes() as usize - first;
            let whole = (skip + len).next_multiple_of(block);
            let page = queue.read(cx, Sector::from_bytes(first as u64), whole)?;
            Ok(page[skip..skip + len].to_vec())
        });
        queue.drain(cx);
        result
    }

    /// Opens the partition `number` of `device`. Parks while the table is read.
    ///
    /// # Errors
    /// As [`Partition::list`], and where there is no such partition.
    pub fn open(
        cx: &mut Cx,
        device: &Arc<dyn Device>,
        number: u32,
    ) -> Result<Partition, PartitionError> {
        let entry = Partition::find(cx, device, number)?;
        Partition::part(device, entry.start, entry.count, number)
    }

    /// The entry of the partition `number` in the table of `device`. Parks while it is read.
    ///
    /// # Errors
    /// As [`Partition::open`].
    pub fn find(
        cx: &mut Cx,
        device: &Arc<dyn Device>,
        number: u32,
    ) -> Result<PartitionEntry, PartitionError> {
        let table = Partition::list(cx, device)?;
        let known = table.partitions.iter().map(|entry| entry.number.to_string());
        let known = known.collect::<Vec<_>>().join(", ");
        let entry = table.partitions.into_iter().find(|entry| entry.number == number);
        entry.ok_or(PartitionError::NoSuch { number, known })
    }

    /// The `count` sectors from `start` of `device` as a device, called number `number`.
    ///
    /// # Errors
    /// Where they do not lie on the device or are not whole logical blocks of it.
    pub fn part(
        device: &Arc<dyn Device>,
        start: Sector,
        count: u64,
        number: u32,
    ) -> Result<Partition, PartitionError> {
        let info = device.info();
        let fits = start.0.checked_add(count).is_some_and(|end| end <= info.sectors);
        if !fits || count == 0 {
            let size = info.sectors;
            return Err(PartitionError::OutOfRange { number, start: start.0, count, size });
        }
        let block = info.block_sectors();
        if !start.0.is_multiple_of(block) || !count.is_multiple_of(block) {
            let block = info.logical_block;
            return Err(PartitionError::Unaligned { number, start: start.0, count, block });
        }
        let chunk =
            if start.bytes().is_multiple_of(u64::from(info.chunk)) { info.chunk } else { 0 };
        let info = DeviceInfo { sectors: count, chunk, ..info.clone() };
        let name = format!("{}@{number}", device.name());
        Ok(Partition { inner: device.clone(), info, start, name })
    }

    /// First sector on the device that it is a part of.
    pub fn start(&self) -> Sector {
        self.start
    }
}

impl Device for Partition {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        if io.op != Op::Flush {
            // The queue has checked the range; this check guards the neighbours against everybody
            // else.
            if io.sector.0.checked_add(io.count).is_none_or(|end| end > self.info.sectors) {
                return io.fail(block::Cause::OutOfRange);
            }
            io.shift(self.start.0);
        }
        self.inner.submit(io);
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        self.inner.host_range(self.start.bytes() + offset, len)
    }
}
