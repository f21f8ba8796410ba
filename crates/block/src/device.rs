//! The trait of every device (real, layered or modelled), and the request as a device sees it.

use crate::bio::bytes_of;
use crate::queue::Flight;
use crate::{BioFlags, Cause, DeviceError, DeviceInfo, Op, Segment, Segments};
use base::Sector;
use base::unit::SECTOR_SIZE;
use std::fmt;
#[cfg(not(windows))]
use std::os::fd::BorrowedFd as HostFile;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle as HostFile;

/// A run of bytes of a file of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostRange<'a> {
    /// The file.
    pub file: HostFile<'a>,
    /// First byte in it.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Something that stores sectors.
pub trait Device: Send + Sync {
    /// What it is and can. The same answer every time.
    fn info(&self) -> &DeviceInfo;

    /// Sectors that it has now, where it may have become longer since it was opened: a file that
    /// somebody has lengthened. Where its length is its own affair (the disk in a container), it
    /// becomes at least `bytes` long first, if it can. Waits in the calling thread. None (the
    /// default): as many as [`Device::info`] says.
    fn lengthen(&self, _bytes: u64) -> Option<u64> {
        None
    }

    /// Takes a request. Never parks the task: completes the request at once or later, from any
    /// thread, by [`DeviceIo::complete`]. (A device on a host file may use the calling thread for a
    /// system call.)
    ///
    /// The queue has checked range, alignment, size, segments, and that the device has the
    /// operation. Where [`DeviceIo::more`] is set, the same caller hands over another request at
    /// once, so that a device may collect them.
    fn submit(&self, io: DeviceIo);

    /// How people call it: a path, or a kind with numbers.
    fn name(&self) -> String;

    /// Where the host keeps `len` bytes from byte `offset` on of the device, where reading them
    /// there gives the same as a request: for whoever has the host's kernel move them. None (the
    /// default) where requests do more than that, or go elsewhere. The caller has checked the
    /// range.
    fn host_range(&self, _offset: u64, _len: u64) -> Option<HostRange<'_>> {
        None
    }
}

/// Called with the segments when a request is done.
type Done = Box<dyn FnOnce(Segments, Result<(), DeviceError>) + Send>;

/// Whom a finished request goes back to.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every request is a queue's, and lives briefly"
)]
pub(crate) enum Owner {
    /// A closure.
    Call(Done),
    /// A queue.
    Queue(Flight),
}

/// A request as a device sees it: maybe of several bios.
///
/// It must be completed exactly once; one that is dropped completes itself with
/// [`Cause::Dropped`], so nobody waits for ever.
pub struct DeviceIo {
    /// What to do.
    pub op: Op,
    /// First sector of 512 bytes.
    pub sector: Sector,
    /// Number of sectors; 0 for a flush.
    pub count: u64,
    /// The memory, in the order of the sectors. A device may put other pages of the same lengths
    /// in place while it fills a read.
    pub segs: Segments,
    /// FUA only where the device understands it; never PREFLUSH.
    pub flags: BioFlags,
    /// The issuing I/O context, for models and traces.
    pub ioc: u64,
    /// Another request follows from the same caller at once.
    pub more: bool,
    /// How far [`DeviceIo::shift`] has moved the request.
    shifted: u64,
    owner: Option<Owner>,
}

impl DeviceIo {
    /// A request with a closure as its end. For tests and for devices that make requests of their
    /// own; a queue's requests end in the queue.
    pub fn new(
        op: Op,
        sector: Sector,
        segs: Segments,
        flags: BioFlags,
        end: impl FnOnce(Segments, Result<(), DeviceError>) + Send + 'static,
    ) -> DeviceIo {
        let count = bytes_of(&segs) / SECTOR_SIZE;
        DeviceIo::with_owner(op, sector, count, segs, flags, Owner::Call(Box::new(end)))
    }

    /// As [`DeviceIo::new`], without memory: a discard or a write of zeroes on `count` sectors, or
    /// a flush.
    pub fn ranged(
        op: Op,
        sector: Sector,
        count: u64,
        flags: BioFlags,
        end: impl FnOnce(Segments, Result<(), DeviceError>) + Send + 'static,
    ) -> DeviceIo {
        DeviceIo::with_owner(op, sector, count, Segments::new(), flags, Owner::Call(Box::new(end)))
    }

    pub(crate) fn with_owner(
        op: Op,
        sector: Sector,
        count: u64,
        segs: Segments,
        flags: BioFlags,
        owner: Owner,
    ) -> DeviceIo {
        let owner = Some(owner);
        DeviceIo { op, sector, count, segs, flags, ioc: 0, more: false, shifted: 0, owner }
    }

    /// The first sector behind it.
    pub fn end_sector(&self) -> Sector {
        self.sector + self.count
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.count * SECTOR_SIZE
    }

    /// Moves the request `sectors` sectors up, as a partition does. Errors come in the numbers that
    /// the issuer knows.
    pub fn shift(&mut self, sectors: u64) {
        self.sector = self.sector + sectors;
        self.shifted += sectors;
    }

    /// The request is done. On an error its range (clipped to the request) failed, and everything
    /// outside of it was carried out.
    pub fn complete(mut self, result: Result<(), DeviceError>) {
        self.finish(result);
    }

    /// Done, all of it.
    pub fn succeed(self) {
        self.complete(Ok(()));
    }

    /// All of it failed.
    pub fn fail(self, cause: Cause) {
        let error = self.error(cause);
        self.complete(Err(error));
    }

    /// The error that says that all of this request failed.
    pub fn error(&self, cause: Cause) -> DeviceError {
        DeviceError { op: self.op, sector: self.sector, count: self.count, cause }
    }

    /// A request with the same content whose end is `hook`: it gets the original request back,
    /// with the segments in it, and completes it when and how it likes. For devices that wrap
    /// another one.
    pub fn wrap(
        mut self,
        hook: impl FnOnce(DeviceIo, Result<(), DeviceError>) + Send + 'static,
    ) -> DeviceIo {
        let segs = std::mem::take(&mut self.segs);
        let (op, sector, count, flags) = (self.op, self.sector, self.count, self.flags);
        let (ioc, more) = (self.ioc, self.more);
        let owner = Owner::Call(Box::new(move |segs, result| {
            self.segs = segs;
            hook(self, result);
        }));
        let mut io = DeviceIo::with_owner(op, sector, count, segs, flags, owner);
        io.ioc = ioc;
        io.more = more;
        io
    }

    /// The segments with the byte offset of each one from the start of the device.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &Segment)> {
        let mut at = self.sector.bytes();
        self.segs.iter().map(move |seg| {
            let offset = at;
            at += seg.len as u64;
            (offset, seg)
        })
    }

    fn finish(&mut self, result: Result<(), DeviceError>) {
        let Some(owner) = self.owner.take() else { return };
        let segs = std::mem::take(&mut self.segs);
        let shifted = self.shifted;
        let result = result.map_err(|mut error| {
            error.sector.0 = error.sector.0.saturating_sub(shifted);
            error
        });
        match owner {
            Owner::Call(end) => end(segs, result),
            Owner::Queue(flight) => flight.complete(segs, result),
        }
    }
}

impl Drop for DeviceIo {
    fn drop(&mut self) {
        if self.owner.is_some() {
            let error = self.error(Cause::Dropped);
            self.finish(Err(error));
        }
    }
}

impl fmt::Debug for DeviceIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceIo({} {} + {}, {:?})", self.op, self.sector, self.count, self.flags)
    }
}
