//! Threads with a table of open files of their own.
//!
//! A thread that waits inside the kernel for the pages of a file to be written cannot be
//! interrupted. Where this very process must write them, as behind a FUSE mount, and is killed, the
//! wait ends only when the last descriptor of the mount's device is closed: when the last thread
//! ends that has it in its table. So whoever waits like that must not have it.
//!
//! Unsafe: two system calls without pointers. What [`leave_files`] closes are this thread's copies
//! of descriptors; their owners are other threads and keep theirs. Tested through the mount.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

/// Gives the calling thread a table of open files of its own, with the null device as standard
/// streams and nothing else. Call it before the thread owns a descriptor: those of other threads
/// mean nothing in it from now on, and must neither be used nor dropped by it.
///
/// # Errors
/// The kernel refuses (before Linux 5.9, or by a filter): nothing has changed.
pub fn leave_files() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (0, libc::c_uint::MAX);
    // SAFETY: numbers only; see the head of this module for what is closed.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    for _stream in 0..3 {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        let _stays_open = null.map(IntoRawFd::into_raw_fd);
    }
    Ok(())
}

/// Returns when the host has handed the pages of a file, as they are at this moment, to its file
/// system, and that has taken them. No attributes, and nothing of what `fsync` does below it.
/// Blocks the thread, which cannot be interrupted.
///
/// # Errors
/// Writing failed, now or earlier and nobody was told.
pub fn write_pages(file: impl AsFd) -> io::Result<()> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: numbers only, and the descriptor is open while it is borrowed.
    let result = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, how) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
