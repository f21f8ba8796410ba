//! Writes that stay in memory, over a device that is only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use rt::SpinLock;

use crate::{Cause, Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig, Segment};

const UNIT: usize = SECTOR_SIZE as usize;

/// A device whose writes stay in memory, over one that is only read: what a log would bring to the
/// device can be looked at without writing it. Memory grows with what is written, by sectors.
pub struct Overlay {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    written: Arc<SpinLock<BTreeMap<u64, Box<[u8; UNIT]>>>>,
}

impl Overlay {
    /// Over a device. Nothing that writes ever reaches it.
    pub fn new(below: Arc<dyn Device>) -> Overlay {
        let info = DeviceInfo {
            read_only: false,
            discard: false,
            write_zeroes: false,
            fua: false,
            ..below.info().clone()
        };
        Overlay { below, info, written: Arc::new(SpinLock::new(BTreeMap::new())) }
    }

    /// A queue of its own over the device of `below`.
    pub fn queue(below: &Queue) -> Arc<Queue> {
        Overlay::shared(below).1
    }

    /// As [`Overlay::queue`], with the overlay, to look at what was written.
    pub fn shared(below: &Queue) -> (Arc<Overlay>, Arc<Queue>) {
        let overlay = Arc::new(Overlay::new(below.device().clone()));
        let queue = Queue::new(below.runtime(), overlay.clone(), QueueConfig::default());
        (overlay, queue.expect("the default elevator exists"))
    }

    /// The sectors that were written, by their numbers, with their content.
    pub fn written(&self) -> Vec<(u64, Box<[u8; UNIT]>)> {
        let written = self.written.lock_irq();
        written.iter().map(|(&sector, content)| (sector, content.clone())).collect()
    }
}

/// Puts what was written over what was read.
fn patch(written: &BTreeMap<u64, Box<[u8; UNIT]>>, mut sector: u64, segs: &mut [Segment]) {
    for seg in segs {
        let count = seg.len as u64 / SECTOR_SIZE;
        if written.range(sector..sector + count).next().is_some() {
            let bytes = seg.bytes_mut();
            for (at, content) in written.range(sector..sector + count) {
                let offset = (at - sector) as usize * UNIT;
                bytes[offset..offset + UNIT].copy_from_slice(&content[..]);
            }
        }
        sector += count;
    }
}

impl Device for Overlay {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        match io.op {
            Op::Read => {
                let written = self.written.clone();
                self.below.submit(io.wrap(move |mut io, result| {
                    let sector = io.sector.0;
                    patch(&written.lock_irq(), sector, &mut io.segs);
                    io.complete(result);
                }));
            }
            Op::Write => {
                let mut written = self.written.lock_irq();
                for (offset, seg) in io.pieces() {
                    for (index, bytes) in seg.bytes().chunks_exact(UNIT).enumerate() {
                        let at = offset / SECTOR_SIZE + index as u64;
                        written.insert(at, Box::new(bytes.try_into().expect("512 bytes")));
                    }
                }
                drop(written);
                io.succeed();
            }
            Op::Flush => io.succeed(),
            // Announced as not understood, so that a queue sends neither.
            Op::Discard | Op::WriteZeroes => io.fail(Cause::ReadOnly),
        }
    }

    fn name(&self) -> String {
        format!("{} under changes in memory", self.below.name())
    }
}
