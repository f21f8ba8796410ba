//! A device whose sectors a Python object holds: a file behind fsspec, or any file object.

use base::Errno;
use block::{Cause, Device, DeviceInfo, DeviceIo, Op};
use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Raised;

/// Calls `read(offset, size) -> bytes` and, where it may write, `write(offset, data)` and `flush()`
/// of the object, each for one request, in the thread that made it.
pub struct PyDevice {
    object: Py<PyAny>,
    info: DeviceInfo,
    name: String,
    raised: Raised,
}

impl PyDevice {
    /// The device of an object with `size` and `writable`; what it raises goes to `raised`.
    ///
    /// # Errors
    /// The object has no such attributes.
    pub fn new(object: &Bound<'_, PyAny>, name: &str, raised: Raised) -> PyResult<PyDevice> {
        let size: u64 = object.getattr("size")?.extract()?;
        let writable: bool = object.getattr("writable")?.extract()?;
        let info = DeviceInfo {
            read_only: !writable,
            volatile_cache: writable,
            discard: false,
            write_zeroes: false,
            ..DeviceInfo::plain(size / 512)
        };
        Ok(PyDevice { object: object.clone().unbind(), info, name: name.to_owned(), raised })
    }

    fn carry_out(&self, py: Python<'_>, io: &mut DeviceIo) -> PyResult<()> {
        let object = self.object.bind(py);
        let (offset, len) = (io.sector.bytes(), io.bytes() as usize);
        match io.op {
            Op::Read => {
                let answer = object.call_method1("read", (offset, len))?;
                let mut bytes = answer.cast::<PyBytes>()?.as_bytes();
                if bytes.len() != len {
                    let words = format!("{} of {len} bytes at {offset}", bytes.len());
                    return Err(PyEOFError::new_err(words));
                }
                for segment in &mut io.segs {
                    let (part, rest) = bytes.split_at(segment.len as usize);
                    segment.bytes_mut().copy_from_slice(part);
                    bytes = rest;
                }
            }
            Op::Write => {
                let data = PyBytes::new_with(py, len, |mut data| {
                    for segment in &io.segs {
                        let (part, rest) = data.split_at_mut(segment.len as usize);
                        part.copy_from_slice(segment.bytes());
                        data = rest;
                    }
                    Ok(())
                })?;
                object.call_method1("write", (offset, data))?;
            }
            Op::Flush => {
                object.call_method0("flush")?;
            }
            Op::Discard | Op::WriteZeroes => unreachable!("the device says that it has neither"),
        }
        Ok(())
    }
}

/// The cause that an exception stands for: its errno if it has one.
fn cause_of(py: Python<'_>, error: &PyErr) -> Cause {
    let errno = error.value(py).getattr("errno").and_then(|errno| errno.extract::<i32>());
    errno.map_or(Cause::Io, |errno| Cause::from_errno(Errno(errno)))
}

impl Device for PyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        let done = Python::try_attach(|py| {
            self.carry_out(py, &mut io).map_err(|error| {
                let cause = cause_of(py, &error);
                *self.raised.lock_irq() = Some(error);
                cause
            })
        });
        match done {
            Some(Ok(())) => io.succeed(),
            Some(Err(cause)) => io.fail(cause),
            // The interpreter is on its way out.
            None => io.fail(Cause::Io),
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
