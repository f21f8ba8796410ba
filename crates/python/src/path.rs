//! Paths and names, in and out: `str` with surrogate escapes, or `bytes`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A path, of the image or of the host: `str`, `bytes` or `os.PathLike`.
pub struct Given(pub PathBuf);

impl FromPyObject<'_, '_> for Given {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Given> {
        let path = match object.cast::<PyBytes>() {
            Ok(bytes) => PathBuf::from(OsString::from_vec(bytes.as_bytes().to_vec())),
            Err(_) => object.extract::<PathBuf>()?,
        };
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Given(path))
    }
}
