//! What is different about a block device of the host: its sizes, discard and zeroing.
//!
//! # Invariant of the unsafe code
//!
//! Two `ioctl`s that read an array of two numbers on our stack, on a descriptor that the caller
//! keeps open.

#![allow(unsafe_code)]

use super::file::FileDevice;
use super::options::{OpenError, OpenOptions};
use block::DeviceInfo;
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `_IO(0x12, 119)`, linux/fs.h.
const BLKDISCARD: libc::c_ulong = 0x1277;
/// `_IO(0x12, 127)`, linux/fs.h.
const BLKZEROOUT: libc::c_ulong = 0x127f;

/// What the host reports about the device.
pub(super) fn describe(
    path: &Path,
    file: &File,
    meta: &Metadata,
    options: OpenOptions,
) -> Result<DeviceInfo, OpenError> {
    let bytes = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(|e| OpenError::host(path, "size", e))?;
    let logical = rustix::fs::ioctl_blksszget(file)
        .map_err(|e| OpenError::host(path, "logical block size", e))?;
    let physical = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical);
    let number = meta.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let attribute = |name: &str| {
        let folder = format!("/sys/dev/block/{major}:{minor}");
        // A partition has no queue of its own.
        [format!("{folder}/queue/{name}"), format!("{folder}/../queue/{name}")]
            .iter()
            .find_map(|path| fs::read_to_string(path).ok())
            .map(|text| text.trim().to_owned())
    };
    let mut info = FileDevice::info_of(path, bytes, logical, physical, options)?;
    info.rotational = attribute("rotational").as_deref() == Some("1");
    info.discard = attribute("discard_max_bytes").is_some_and(|max| max != "0");
    Ok(info)
}

/// Whether the kernel refuses to write to it; it lets root open it for writing all the same.
pub(super) fn is_read_only(meta: &Metadata) -> bool {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    text.is_ok_and(|text| text.trim() == "1")
}

pub(super) fn discard(file: &File, start: u64, len: u64) -> rustix::io::Result<()> {
    range_ioctl(file, BLKDISCARD, start, len)
}

pub(super) fn write_zeroes(file: &File, start: u64, len: u64) -> rustix::io::Result<()> {
    range_ioctl(file, BLKZEROOUT, start, len)
}

fn range_ioctl(
    file: &File,
    request: libc::c_ulong,
    start: u64,
    len: u64,
) -> rustix::io::Result<()> {
    let range = [start, len];
    // SAFETY: both requests read two u64 from the pointer, which lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, range.as_ptr()) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}
