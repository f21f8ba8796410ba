//! Calls without the interpreter's lock, and the conversion of their errors.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use image::{Errno, Error};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rt::SpinLock;

pyo3::create_exception!(
    extxfs,
    CorruptError,
    PyOSError,
    "The image is damaged at this place: an OSError with the errno EUCLEAN."
);

/// An exception that a device in Python raised, for the error that comes of it.
pub type Raised = Arc<SpinLock<Option<PyErr>>>;

/// What the handles of one image know of it.
pub struct Mount {
    /// The image, as messages name it.
    pub image: OsString,
    raised: Raised,
}

impl Mount {
    pub fn new(image: OsString, raised: Raised) -> Mount {
        Mount { image, raised }
    }

    /// Runs a call that may wait, without the interpreter's lock.
    ///
    /// # Errors
    /// `OSError` of the image's error, with `path` and `second` as its file names; `RuntimeError` a
    /// panic.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        path: Option<&Path>,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        match detached(py, work)? {
            Ok(value) => Ok(value),
            Err(error) => Err(self.error(py, &error, path)),
        }
    }

    /// As [`run`](Mount::run), for the traits of `std::io`.
    ///
    /// # Errors
    /// As [`run`](Mount::run).
    pub fn run_io<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> PyResult<T> {
        match detached(py, work)? {
            Ok(value) => Ok(value),
            Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
                Some(error) => Err(self.error(py, error, Some(path))),
                None => Err(error.into()),
            },
        }
    }

    fn error(&self, py: Python<'_>, error: &Error, path: Option<&Path>) -> PyErr {
        let mut place = self.image.clone();
        if let Some(path) = path {
            place.push(":");
            place.push(path);
        }
        let raised = os_error(py, error, &place);
        let cause = self.raised.lock_irq().take();
        if cause.is_some() {
            raised.set_cause(py, cause);
        }
        raised
    }
}

fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| panicked(&*panic))
}

/// Runs a call on no mounted image, as [`Mount::run`].
///
/// # Errors
/// As [`Mount::run`]; `place` is the file name.
pub fn run<T: Send>(
    py: Python<'_>,
    place: &OsStr,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    detached(py, work)?.map_err(|error| os_error(py, &error, place))
}

fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    PyRuntimeError::new_err(format!("internal error of extxfs: {words}"))
}

fn os_error(py: Python<'_>, error: &Error, place: &OsStr) -> PyErr {
    let errno = error.errno().0;
    let words = error.reason().map_or_else(|| text_of(py, errno), Ok);
    match words {
        Err(error) => error,
        Ok(words) if error.errno() == Errno::EUCLEAN => {
            CorruptError::new_err((errno, words, place.to_owned()))
        }
        Ok(words) => PyOSError::new_err((errno, words, place.to_owned())),
    }
}

fn text_of(py: Python<'_>, errno: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (errno,))?.extract()
}
