//! A device that shows a run of sectors at another place, to which they are copied later.

use std::ops::Range;
use std::sync::Arc;

use base::Sector;
use block::{Device, DeviceInfo, DeviceIo, Op};

/// Sectors that are copied before the changes of a plan are written.
#[derive(Clone)]
pub struct MovedRun {
    /// The first one now.
    pub from: u64,
    /// Where they will be.
    pub to: Range<u64>,
}

/// What the device will be for whoever reads no more at once than the run or what lies around it.
pub struct MovedDevice {
    pub below: Arc<dyn Device>,
    pub run: MovedRun,
}

impl Device for MovedDevice {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, io: DeviceIo) {
        let (start, MovedRun { from, to }) = (io.sector.0, &self.run);
        if io.op != Op::Read || start < to.start || start + io.count > to.end {
            return self.below.submit(io);
        }
        let mut moved = io.wrap(|io, result| io.complete(result));
        moved.sector = Sector(from + (start - to.start));
        self.below.submit(moved);
    }

    fn name(&self) -> String {
        self.below.name()
    }
}
