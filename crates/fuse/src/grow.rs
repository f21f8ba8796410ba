//! Asks a mount to become larger.
//!
//! Unsafe: one ioctl(2), whose request reads the eight bytes of a number and writes nothing.

#![allow(unsafe_code)]

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::Setter;

use crate::abi::RESIZE_FS;

/// Makes the file system that is mounted at `dir` as large as `bytes`, in whole blocks: see
/// [`vfs::FileSystem::grow`]. Its device is so long by now. Blocks the thread.
///
/// # Errors
/// Those of [`vfs::FileSystem::grow`]; `EPERM`: of another user; `ENOTTY`: not a mount of ours.
pub fn grow(dir: &Path, bytes: u64) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty())?;
    let blocks = bytes / rustix::fs::fstatvfs(&root)?.f_frsize.max(1);
    // SAFETY: the request is of this number, which outlives the call.
    Ok(unsafe { rustix::ioctl::ioctl(&root, Setter::<{ RESIZE_FS }, u64>::new(blocks)) }?)
}
