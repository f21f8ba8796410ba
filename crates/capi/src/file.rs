//! Open files.

use std::ffi::{c_char, c_int};

use image::{File, OpenOptions};

use crate::arguments::{bytes, bytes_mut, path, place, shared};
use crate::error::{Failed, done, run};
use crate::fs::iopath_fs;
use crate::types::iopath_stat;

/// An open file.
#[allow(non_camel_case_types)]
pub struct iopath_file(File);

/// Opens a file. `flags` as of open(2): O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC,
/// O_APPEND; others are refused with -EINVAL. `mode` is for a new file. `*out` is closed with
/// iopath_fclose.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_openfile(
    fs: *const iopath_fs,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    out: *mut *mut iopath_file,
) -> c_int {
    const KNOWN: c_int = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_CLOEXEC;
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        if flags & !KNOWN != 0 {
            return Err(Failed::argument("a flag that iopath_openfile does not know"));
        }
        let (read, write) = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            _ => (true, true),
        };
        let has = |flag| flags & flag != 0;
        let options = OpenOptions::new()
            .read(read)
            .write(write)
            .append(has(libc::O_APPEND))
            .create(has(libc::O_CREAT))
            .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
            .truncate(has(libc::O_TRUNC))
            .mode((mode & 0o7777) as u16);
        // SAFETY: a handle of `iopath_open` and a string of the caller.
        let file = unsafe { options.open(&shared(fs)?.0, path(name)?)? };
        out.write(Box::into_raw(Box::new(iopath_file(file))));
        Ok(())
    })
}

/// Frees the handle. What was written is on the image after iopath_fsync, iopath_sync or
/// iopath_close, or some seconds later.
///
/// # Safety
/// See the head of the header. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_fclose(file: *mut iopath_file) -> c_int {
    done(|| {
        if !file.is_null() {
            // SAFETY: a handle of `iopath_openfile`, which nobody uses any more.
            drop(unsafe { Box::from_raw(file) });
        }
        Ok(())
    })
}

/// Reads up to `count` bytes at `offset`: how many there were, 0 at the end.
///
/// # Safety
/// See the head of the header; `buffer` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_pread(
    file: *const iopath_file,
    buffer: *mut u8,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: a handle of `iopath_openfile`, and memory of the caller.
    run(|| Ok(unsafe { shared(file)?.0.read_at(bytes_mut(buffer, count)?, offset)? } as i64))
}

/// Writes up to `count` bytes at `offset` (O_APPEND: at the end): how many were taken.
///
/// Errors: -ENOSPC, -EDQUOT, -EFBIG; -EBADF: opened for reading.
///
/// # Safety
/// See the head of the header; `buffer` is memory of `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_pwrite(
    file: *const iopath_file,
    buffer: *const u8,
    count: usize,
    offset: u64,
) -> i64 {
    // SAFETY: a handle of `iopath_openfile`, and memory of the caller.
    run(|| Ok(unsafe { shared(file)?.0.write_at(bytes(buffer, count)?, offset)? } as i64))
}

/// Returns when the file is on the image: its data, size and attributes.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_fsync(file: *const iopath_file) -> c_int {
    // SAFETY: a handle of `iopath_openfile`.
    done(|| Ok(unsafe { shared(file) }?.0.sync_all()?))
}

/// Sets the size in bytes: cuts the file, or lets it grow by a hole.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_ftruncate(file: *const iopath_file, size: u64) -> c_int {
    // SAFETY: a handle of `iopath_openfile`.
    done(|| Ok(unsafe { shared(file) }?.0.set_len(size)?))
}

/// The attributes of an open file.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_fstat(file: *const iopath_file, out: *mut iopath_stat) -> c_int {
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        // SAFETY: a handle of `iopath_openfile`.
        let meta = unsafe { shared(file) }?.0.metadata()?;
        out.write((&meta).into());
        Ok(())
    })
}
