//! What a repair sees: the device, and over it the blocks that it would write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, Page, Sector};
use block::{BioFlags, DeviceError, Overlay, Queue, QueueConfig};
use rt::{Cx, Meter};

use crate::plan::Change;

mod moved;

use moved::MovedDevice;
pub use moved::MovedRun;

/// Bytes that one read of the device asks for at most.
const AHEAD: u64 = 128 << 10;
/// The smallest unit of a device.
const SECTOR: u64 = 512;

/// A device under changes in memory: the write set of a plan. Nothing here writes the device.
pub struct View<'a> {
    cx: &'a mut Cx,
    queue: &'a Arc<Queue>,
    block_size: u64,
    /// Bytes of the device, or those that it will have.
    bytes: u64,
    changes: BTreeMap<u64, Box<[u8]>>,
    /// What was read last: first block and content.
    ahead: Option<(u64, Page)>,
    /// What lies elsewhere before the changes are written.
    pub moved: Option<MovedRun>,
    /// Counts what is done of the plan.
    pub meter: Meter,
}

impl<'a> View<'a> {
    /// Without changes, in blocks of 1 KiB.
    pub fn new(cx: &'a mut Cx, queue: &'a Arc<Queue>) -> View<'a> {
        let bytes = queue.info().bytes();
        let (changes, meter) = (BTreeMap::new(), Meter::default());
        View { cx, queue, block_size: 1024, bytes, changes, ahead: None, moved: None, meter }
    }

    /// Changes the unit. Nothing is changed yet.
    pub fn set_block_size(&mut self, block_size: u32) {
        let same = self.block_size == u64::from(block_size);
        assert!(same || self.changes.is_empty(), "the unit of changes stays");
        if !same {
            self.block_size = block_size.into();
            self.ahead = None;
        }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.block_size as usize
    }

    /// Whole blocks of the device.
    pub fn blocks(&self) -> u64 {
        self.bytes / self.block_size
    }

    /// Shows a device that will have so many bytes: zeros follow on what it has.
    pub fn lengthen(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Seconds since 1970, for times that a repair writes.
    pub fn now(&self) -> u32 {
        self.cx.realtime().sec as u32
    }

    /// The device's own content of a block; zeros behind its end. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn original(&mut self, block: u64) -> Result<Vec<u8>, DeviceError> {
        let mut content = Vec::with_capacity(self.block_size());
        self.append_original(block, 0..self.block_size(), &mut content)?;
        Ok(content)
    }

    /// Appends a part of the device's own content of a block.
    fn append_original(
        &mut self,
        block: u64,
        part: Range<usize>,
        to: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        let there = self.queue.info().bytes() / self.block_size;
        if block >= there {
            to.resize(to.len() + part.len(), 0);
            return Ok(());
        }
        let known = self.ahead.take().filter(|(first, page)| {
            (*first..*first + page.len() as u64 / self.block_size).contains(&block)
        });
        let (first, page) = match known {
            Some(known) => known,
            None => {
                // Aligned, so that devices with large sectors take it.
                let ahead = AHEAD / self.block_size;
                let first = block - block % ahead;
                let count = ahead.min(there - first);
                let sector = FsBlock(first).sector(self.block_size as u32);
                let len = (count * self.block_size) as usize;
                (first, self.queue.read(self.cx, sector, len)?)
            }
        };
        let at = (block - first) as usize * self.block_size();
        to.extend_from_slice(&page[at + part.start..at + part.end]);
        self.ahead = Some((first, page));
        Ok(())
    }

    /// A block as it will be. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&mut self, block: u64) -> Result<Vec<u8>, DeviceError> {
        match self.changes.get(&block) {
            Some(content) => Ok(content.to_vec()),
            None => self.original(block),
        }
    }

    /// Takes a block into the write set. Blocks behind the end of the device are left out.
    pub fn write(&mut self, block: u64, content: &[u8]) {
        assert_eq!(content.len() as u64, self.block_size, "a whole block");
        if block < self.blocks() {
            self.changes.insert(block, content.into());
        }
    }

    /// Reads bytes wherever they lie, under the changes. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn read_bytes(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            let block = at / self.block_size;
            let from = (at % self.block_size) as usize;
            let part = from..self.block_size().min(from + len - bytes.len());
            match self.changes.get(&block) {
                Some(content) => bytes.extend_from_slice(&content[part]),
                None => self.append_original(block, part, &mut bytes)?,
            }
        }
        Ok(bytes)
    }

    /// Writes bytes wherever they lie. Parks on reads of what is around them.
    ///
    /// # Errors
    /// The device's.
    pub fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let block = at / self.block_size;
            let mut content = self.read(block)?;
            let from = (at % self.block_size) as usize;
            let part = (content.len() - from).min(bytes.len() - done);
            content[from..from + part].copy_from_slice(&bytes[done..done + part]);
            self.write(block, &content);
            done += part;
        }
        Ok(())
    }

    /// Bytes of the changes.
    pub fn held(&self) -> u64 {
        self.changes.len() as u64 * self.block_size
    }

    /// A queue that shows the device with all changes; what is written to it stays in `Overlay`.
    ///
    /// # Errors
    /// The queue's.
    pub fn overlay(&mut self) -> Result<(Arc<Overlay>, Arc<Queue>), DeviceError> {
        let below = self.queue.device().clone();
        let below = match self.moved.clone() {
            Some(run) => Arc::new(MovedDevice { below, run }),
            None => below,
        };
        let overlay = Arc::new(Overlay::new(below));
        let queue = Queue::new(self.queue.runtime(), overlay.clone(), QueueConfig::default());
        let queue = queue.expect("the default elevator exists");
        for (block, content) in &self.changes {
            let sector = Sector::from_bytes(block * self.block_size);
            queue.write(self.cx, sector, Page::from_slice(content), BioFlags::empty())?;
        }
        Ok((overlay, queue))
    }

    /// Takes over what was written to an overlay. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn absorb(&mut self, overlay: &Overlay) -> Result<(), DeviceError> {
        for (sector, content) in overlay.written() {
            self.write_bytes(sector * SECTOR, &content[..])?;
        }
        Ok(())
    }

    /// The task, for what works on a queue of its own.
    pub fn cx(&mut self) -> &mut Cx {
        self.cx
    }

    /// The changes that differ from what is there, in the order of their places. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn into_changes(mut self) -> Result<Vec<Change>, DeviceError> {
        let mut list = Vec::new();
        for (block, new) in std::mem::take(&mut self.changes) {
            let old = self.original(block)?.into_boxed_slice();
            if old != new {
                list.push(Change { offset: block * self.block_size, old, new });
            }
        }
        Ok(list)
    }
}
