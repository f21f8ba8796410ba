//! The native part of the Python package `extxfs`: handles of `iopath-image` for Python.
//!
//! Above it stands thin Python (`python/extxfs`), which makes paths, `io` objects, `os` results and
//! the fsspec file system of these handles. Below it is `image`, in real time.
//!
//! - Every call that may wait runs without the interpreter's lock ([`call::Mount::run`]).
//! - An error is an `OSError` with errno and the place (`disk.img:/etc/x`) as its filename; a panic
//!   is a `RuntimeError`, and the handle stays usable as far as the panic left it.
//! - A handle belongs to the process that opened it: threads of the file system do not survive
//!   `fork`, so a child is refused ([`slot`]).
//!
//! Unsafe code is in [`buffer`] only: reads and writes in the caller's memory.

#![deny(unsafe_code)]
#![deny(missing_docs)]

mod buffer;
mod call;
mod device;
mod file;
mod fs;
mod list;
mod make;
mod path;
mod repair;
mod slot;
mod stat;

use pyo3::prelude::*;

/// The module `extxfs._native`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::call::CorruptError;
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::fs::Fs;
    #[pymodule_export]
    use super::list::Names;
    #[pymodule_export]
    use super::make::{check, mkfs};
    #[pymodule_export]
    use super::repair::{repair, repair_plan, undo};

    /// For `os.register_at_fork`: the handles of the parent are none of this process.
    #[pyfunction]
    fn forked() {
        slot::forked();
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
