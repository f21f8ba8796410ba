//! An image file, or a block device, by preadv and pwritev in the calling thread.
//!
//! FLUSH is fdatasync, FUA is RWF_DSYNC, DISCARD punches a hole, WRITE_ZEROES makes a zero range.

use super::blockdev;
use super::claim::Claim;
use super::options::{OpenError, OpenOptions};
use base::unit::SECTOR_SIZE;
use base::{Errno, Sector};
use block::{BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, HostRange, Op, Segment};
use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;
use smallvec::SmallVec;
use std::fs::{File, Metadata};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Segments of one system call (IOV_MAX).
const MAX_SEGMENTS: u16 = 1024;
/// Bytes of one request: full with 4 KiB pages.
const MAX_BYTES: u32 = 4 << 20;

/// An open image file or block device. Requests complete inside `submit`.
pub struct FileDevice {
    path: PathBuf,
    pub(super) file: File,
    _claim: Option<Claim>,
    pub(super) info: DeviceInfo,
    is_block: bool,
}

impl FileDevice {
    pub(super) fn new(
        path: &Path,
        file: File,
        claim: Option<Claim>,
        info: DeviceInfo,
        is_block: bool,
    ) -> FileDevice {
        FileDevice { path: path.to_owned(), file, _claim: claim, info, is_block }
    }

    /// What a regular file is as a device.
    pub(super) fn describe(
        path: &Path,
        file: &File,
        meta: &Metadata,
        options: OpenOptions,
    ) -> Result<DeviceInfo, OpenError> {
        let logical_block = if options.direct { direct_block(file) } else { 512 };
        FileDevice::info_of(path, meta.len(), logical_block, 4096, options)
    }

    pub(super) fn info_of(
        path: &Path,
        bytes: u64,
        logical_block: u32,
        physical_block: u32,
        options: OpenOptions,
    ) -> Result<DeviceInfo, OpenError> {
        if bytes < logical_block as u64 {
            return Err(OpenError::Size { path: path.to_owned(), bytes, block: logical_block });
        }
        let sectors = (bytes - bytes % logical_block as u64) / SECTOR_SIZE;
        Ok(DeviceInfo {
            logical_block,
            physical_block: physical_block.max(logical_block),
            max_bytes: MAX_BYTES,
            max_segments: MAX_SEGMENTS,
            volatile_cache: true,
            fua: true,
            read_only: !options.write,
            depth: 128,
            ..DeviceInfo::plain(sectors)
        })
    }

    /// Carries a request out, from byte `done` of its data on, in the calling thread.
    ///
    /// Where the host fails it, every segment is tried alone, so that the error names no more than
    /// what really failed.
    pub(super) fn carry_out(&self, io: &mut DeviceIo, done: u64) -> Result<(), DeviceError> {
        let (op, start, count) = (io.op, io.sector.bytes(), io.bytes());
        let whole = io.error(Cause::Io);
        let fail = |error: rustix::io::Errno| {
            let cause = Cause::from_errno(Errno(error.raw_os_error()));
            DeviceError { cause, ..whole.clone() }
        };
        match op {
            Op::Read | Op::Write => self.transfer(io, done),
            Op::Flush => rustix::fs::fdatasync(&self.file).map_err(fail),
            Op::Discard => self.discard(start, count).map_err(fail),
            Op::WriteZeroes => self.write_zeroes(start, count).map_err(fail),
        }
    }

    fn transfer(&self, io: &mut DeviceIo, mut done: u64) -> Result<(), DeviceError> {
        let (op, sector) = (io.op, io.sector);
        let total = io.bytes();
        let mut failed: Option<(u64, u64, Cause)> = None;
        let mut alone = false;
        while done < total {
            let (index, within) = locate(&io.segs, done);
            let rest = if alone { &mut io.segs[index..=index] } else { &mut io.segs[index..] };
            let asked = if alone { rest[0].len as u64 - within as u64 } else { total - done };
            let at = sector.bytes() + done;
            let moved = match op {
                Op::Read => read_into(&self.file, rest, within, at),
                _ => write_from(&self.file, rest, within, at, io.flags.contains(BioFlags::FUA)),
            };
            match moved {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) if !alone && io.segs.len() - index > 1 => alone = true,
                Ok(0) | Err(_) => {
                    let cause = match moved {
                        Err(error) => Cause::from_errno(Errno(error.raw_os_error())),
                        Ok(_) => Cause::Io, // The file has become shorter.
                    };
                    let end = done + asked;
                    failed = Some(match failed {
                        Some((start, _, cause)) => (start, end, cause),
                        None => (done - done % SECTOR_SIZE, end, cause),
                    });
                    done = end;
                }
                Ok(bytes) => done += bytes as u64,
            }
        }
        match failed {
            None => Ok(()),
            Some((start, end, cause)) => {
                let sector = sector + Sector::from_bytes(start).0;
                Err(DeviceError { op, sector, count: (end - start) / SECTOR_SIZE, cause })
            }
        }
    }

    fn discard(&self, start: u64, len: u64) -> rustix::io::Result<()> {
        if self.is_block {
            return blockdev::discard(&self.file, start, len);
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, punch, start, len) {
            // Nobody may rely on a discard, so a host without holes just keeps the content.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    fn write_zeroes(&self, start: u64, len: u64) -> rustix::io::Result<()> {
        if self.is_block {
            return blockdev::write_zeroes(&self.file, start, len);
        }
        let keep = FallocateFlags::KEEP_SIZE;
        for flags in [FallocateFlags::ZERO_RANGE | keep, FallocateFlags::PUNCH_HOLE | keep] {
            match rustix::fs::fallocate(&self.file, flags, start, len) {
                Err(rustix::io::Errno::OPNOTSUPP) => continue,
                result => return result,
            }
        }
        let zero = base::Page::zeroed(64 << 10);
        let mut at = start;
        while at < start + len {
            let part = (start + len - at).min(zero.len() as u64) as usize;
            self.file.write_all_at(&zero[..part], at).map_err(|error| {
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
            })?;
            at += part as u64;
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lengthen(&self, _bytes: u64) -> Option<u64> {
        // Of a block device, too. Nobody uses the position.
        let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)).ok()?;
        Some(end / SECTOR_SIZE)
    }

    fn submit(&self, mut io: DeviceIo) {
        let result = self.carry_out(&mut io, 0);
        io.complete(result);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        Some(HostRange { file: self.file.as_fd(), offset, len })
    }
}

/// The segment that holds byte `done` of the data, and the byte inside it.
fn locate(segs: &[Segment], done: u64) -> (usize, usize) {
    let mut before = 0;
    for (index, seg) in segs.iter().enumerate() {
        if before + seg.len as u64 > done {
            return (index, (done - before) as usize);
        }
        before += seg.len as u64;
    }
    unreachable!("the caller asks for a byte of the data")
}

fn read_into(
    file: &File,
    segs: &mut [Segment],
    within: usize,
    at: u64,
) -> rustix::io::Result<usize> {
    if let [seg] = segs {
        return rustix::io::pread(file, &mut seg.bytes_mut()[within..], at);
    }
    let mut skip = within;
    let mut slices: SmallVec<[IoSliceMut<'_>; 16]> = segs
        .iter_mut()
        .take(MAX_SEGMENTS as usize)
        .map(|seg| IoSliceMut::new(&mut seg.bytes_mut()[std::mem::take(&mut skip)..]))
        .collect();
    rustix::io::preadv(file, &mut slices, at)
}

fn write_from(
    file: &File,
    segs: &[Segment],
    within: usize,
    at: u64,
    durable: bool,
) -> rustix::io::Result<usize> {
    if let ([seg], false) = (segs, durable) {
        return rustix::io::pwrite(file, &seg.bytes()[within..], at);
    }
    let mut skip = within;
    let slices: SmallVec<[IoSlice<'_>; 16]> = segs
        .iter()
        .take(MAX_SEGMENTS as usize)
        .map(|seg| IoSlice::new(&seg.bytes()[std::mem::take(&mut skip)..]))
        .collect();
    if !durable {
        return rustix::io::pwritev(file, &slices, at);
    }
    rustix::io::pwritev2(file, &slices, at, ReadWriteFlags::DSYNC)
}

/// The unit that direct I/O on this file accepts: what a read of 512 bytes at 512 answers.
fn direct_block(file: &File) -> u32 {
    let mut page = base::Page::zeroed(4096);
    match rustix::io::pread(file, &mut page.make_mut()[..512], 512) {
        Err(rustix::io::Errno::INVAL) => 4096,
        _ => 512,
    }
}
