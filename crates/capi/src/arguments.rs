//! Checks and converts arguments that come from C.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Failed;

/// A path.
///
/// # Safety
/// `path` is null, or a string that ends with zero and lives as long as the result.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failed> {
    if path.is_null() {
        return Err(Failed::argument("a path is NULL"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A name or label in UTF-8.
///
/// # Safety
/// As of [`path`].
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failed> {
    // SAFETY: the caller's promise.
    let path = unsafe { path(text) }?;
    path.to_str().ok_or_else(|| Failed::argument("a name is not UTF-8"))
}

/// What a pointer points to.
///
/// # Safety
/// `pointer` is null, or points to a value that lives as long as the result and that nobody
/// changes meanwhile.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Failed> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failed::argument("a pointer is NULL"))
}

/// As [`shared`], for a value that the call alone has.
///
/// # Safety
/// As of [`shared`], and nobody else has it.
pub(crate) unsafe fn alone<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failed> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failed::argument("a pointer is NULL"))
}

/// Where the caller wants a result: looked at before anything is done.
///
/// # Safety
/// `pointer` is null, or points to memory for a `T`, of any content, that the call alone has.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<&'a mut MaybeUninit<T>, Failed> {
    // SAFETY: the caller's promise; memory of any content is a `MaybeUninit`.
    let place = unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() };
    place.ok_or_else(|| Failed::argument("a pointer for the result is NULL"))
}

/// Checks the size that a struct of the caller says it has.
pub(crate) fn ensure_size<T>(size: u32, name: &str) -> Result<(), Failed> {
    match size as usize >= size_of::<T>() {
        true => Ok(()),
        false => Err(Failed::argument(&format!("size of {name} is too small"))),
    }
}

/// Memory of the caller to read from.
///
/// # Safety
/// `bytes` points to `count` bytes that nobody changes meanwhile, or `count` is 0.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, count: usize) -> Result<&'a [u8], Failed> {
    match (bytes.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failed::argument("a buffer is NULL")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes, count) }),
    }
}

/// Memory of the caller to write to.
///
/// # Safety
/// `bytes` points to `count` bytes that the call alone has, or `count` is 0.
pub(crate) unsafe fn bytes_mut<'a>(bytes: *mut u8, count: usize) -> Result<&'a mut [u8], Failed> {
    match (bytes.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failed::argument("a buffer is NULL")),
        // SAFETY: the caller's promise. Of memory without content the host has made zeros, or the
        // caller's own bytes: all bit patterns are bytes.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(bytes, count) }),
    }
}
