//! Memory of Python objects, used without the interpreter's lock.
//!
//! Invariant: a `PyBuffer` keeps its memory where it is until it is released, and the view here
//! lives within one call, in which the buffer is held. Like `readinto` and `write` of Python's own
//! files, nothing keeps other threads from the memory meanwhile: one that reads or writes it while
//! a call is under way sees old or new bytes. `PyBuffer` upholds the first half; the tests of
//! `readinto` and `write` with `bytearray`, `memoryview` and `mmap` run it.
#![allow(unsafe_code)]

use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Memory to read from, of any object with a contiguous buffer.
pub struct Source(PyBuffer<u8>);

/// Memory to write into.
pub struct Target(PyBuffer<u8>);

/// The buffer as bytes, whatever its items are.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let view = match PyBuffer::<u8>::get(object) {
        Ok(buffer) => buffer,
        // Items of another kind: a cast to bytes, as Python's own files do by themselves.
        Err(_) => {
            let view = object.py().import("builtins")?.call_method1("memoryview", (object,))?;
            PyBuffer::<u8>::get(&view.call_method1("cast", ("B",))?)?
        }
    };
    if !view.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    Ok(view)
}

impl FromPyObject<'_, '_> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Source> {
        bytes_of(&object).map(Source)
    }
}

impl FromPyObject<'_, '_> for Target {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Target> {
        let buffer = bytes_of(&object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        Ok(Target(buffer))
    }
}

impl Source {
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: contiguous, `len` bytes, held by `self` for as long as the slice lives.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), len) }
    }
}

impl Target {
    pub fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and writable; `&mut self` makes it the only slice of ours.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), len) }
    }
}
