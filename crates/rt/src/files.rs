//! Threads with a table of open files of their own.
//!
//! A thread that waits inside the kernel for the pages of a file to be written cannot be
//! interrupted. Where this very process must write them, as behind a FUSE mount, and is killed, the
//! wait ends only when the last descriptor of the mount's device is closed: when the last thread
//! ends that has it in its table. So whoever waits like that must not have it.
//!
//! Nor may it be a task. A task that ends calls those who keep something for its I/O context, and
//! they may hand requests of others to a device, in this very thread: with a table in which the
//! device's file is not.
//!
//! Unsafe: two system calls without pointers. What [`leave_files`] closes are this thread's copies
//! of descriptors; their owners are other threads and keep theirs. Tested through the mount.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

/// Starts a thread of the host, which is no task and must do nothing for one but wake it. It has a
/// table of open files of its own, with the null device as standard streams and nothing else; or
/// it shares that of all others, where the kernel refuses (before Linux 5.9, or by a filter):
/// `work` gets it. Descriptors of other threads must neither be used nor dropped by it.
///
/// # Panics
/// Where the system refuses a thread.
pub fn spawn_apart(name: &str, work: impl FnOnce(bool) + Send + 'static) {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let apart = leave_files().is_ok();
        work(apart);
    });
    started.expect("the system gives us a thread");
}

/// Leaves the table of open files that this thread shares. On an error nothing has changed.
fn leave_files() -> io::Result<()> {
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
/// Writing failed, now or earlier, and nothing was reported.
pub fn write_pages(file: impl AsFd) -> io::Result<()> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: numbers only, and the descriptor is open while it is borrowed.
    let result = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, how) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
