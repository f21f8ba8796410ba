//! Reading blocks.

use std::sync::Arc;

use base::{FsBlock, Page, Sector};
use block::{DeviceError, Queue};
use rt::{Cx, Meter};
use vfs::check::Tasks;

/// Bytes that one read asks for at most.
const READ_MAX: u64 = 256 << 10;

/// Inodes that are worth a task of their own, where nobody says how many tasks there are.
const WORTH: u64 = 16_384;

/// A task, its queue and the size of a block.
pub struct Io<'a> {
    cx: &'a mut Cx,
    queue: &'a Arc<Queue>,
    block_size: u32,
    /// How many tasks look at the file system at once.
    pub tasks: Tasks,
    /// Counts inodes, or what takes as long.
    pub meter: Meter,
}

impl<'a> Io<'a> {
    /// Blocks are taken as 1 KiB until [`Io::set_block_size`].
    pub fn new(cx: &'a mut Cx, queue: &'a Arc<Queue>) -> Io<'a> {
        let meter = Meter::default();
        Io { cx, queue, block_size: 1024, tasks: Tasks::ONE, meter }
    }

    /// So many tasks, or one for each processor where the file system is large.
    pub fn set_tasks(&mut self, wanted: Option<usize>) {
        self.tasks = Tasks::new(self.cx.runtime(), wanted, WORTH);
    }

    /// Once the superblock is known.
    pub fn set_block_size(&mut self, block_size: u32) {
        self.block_size = block_size;
    }

    /// The task.
    pub fn cx(&mut self) -> &mut Cx {
        self.cx
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<Queue> {
        self.queue
    }

    /// Bytes of the device.
    pub fn device_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// How many blocks one read should ask for at most.
    pub fn batch(&self) -> u64 {
        READ_MAX / u64::from(self.block_size)
    }

    /// Reads `count` blocks. The caller has checked that they lie on the device. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&mut self, block: u64, count: u64) -> Result<Page, DeviceError> {
        let sector = FsBlock(block).sector(self.block_size);
        self.queue.read(self.cx, sector, (count * u64::from(self.block_size)) as usize)
    }

    /// Reads the bytes of the primary superblock. None where the device is too short for one.
    ///
    /// # Errors
    /// The device's.
    pub fn read_super(&mut self) -> Result<Option<Page>, DeviceError> {
        read_super(self.cx, self.queue)
    }
}

/// Reads the first 4 KiB, or less of a shorter device, and returns what begins at byte 1024.
///
/// # Errors
/// The device's.
pub fn read_super(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Option<Page>, DeviceError> {
    let unit = u64::from(queue.info().logical_block).max(2048);
    if queue.bytes() < unit {
        return Ok(None);
    }
    let page = queue.read(cx, Sector(0), unit as usize)?;
    Ok(Some(Page::from_slice(&page[1024..2048])))
}
