//! Directories.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use image::ReadDir;

use crate::arguments::{alone, path, place, shared};
use crate::error::{Failed, done};
use crate::fs::iopath_fs;
use crate::types::{iopath_dirent, type_bits};

/// An open directory, for one thread at a time.
#[allow(non_camel_case_types)]
pub struct iopath_dir {
    names: ReadDir,
    name: CString,
}

/// Opens a directory. `*out` is closed with iopath_closedir.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_opendir(
    fs: *const iopath_fs,
    name: *const c_char,
    out: *mut *mut iopath_dir,
) -> c_int {
    done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        // SAFETY: a handle of `iopath_open` and a string of the caller.
        let names = unsafe { shared(fs)?.0.read_dir(path(name)?)? };
        let dir = Box::new(iopath_dir { names, name: CString::default() });
        out.write(Box::into_raw(dir));
        Ok(())
    })
}

/// The next name, without `.` and `..`: 1, or 0 at the end.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_readdir(dir: *mut iopath_dir, out: *mut iopath_dirent) -> c_int {
    let mut found = 0;
    let result = done(|| {
        // SAFETY: memory of the caller.
        let out = unsafe { place(out) }?;
        // SAFETY: a handle of `iopath_opendir`, which one thread uses at a time.
        let dir = unsafe { alone(dir) }?;
        let Some(entry) = dir.names.next() else { return Ok(()) };
        let entry = entry?;
        dir.name = CString::new(entry.file_name().into_vec())
            .map_err(|_| Failed::number(libc::EUCLEAN, "a name with a zero in it"))?;
        found = 1;
        let name = dir.name.as_c_str();
        let entry = iopath_dirent {
            ino: entry.ino(),
            type_: entry.known_type().map_or(0, type_bits),
            name_len: name.count_bytes() as u32,
            name: name.as_ptr(),
        };
        out.write(entry);
        Ok(())
    });
    if result == 0 { found } else { result }
}

/// Frees the handle.
///
/// # Safety
/// See the head of the header. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_closedir(dir: *mut iopath_dir) -> c_int {
    done(|| {
        if !dir.is_null() {
            // SAFETY: a handle of `iopath_opendir`, which nobody uses any more.
            drop(unsafe { Box::from_raw(dir) });
        }
        Ok(())
    })
}
