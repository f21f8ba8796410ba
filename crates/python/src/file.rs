//! Open files.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{Source, Target};
use crate::call::Mount;
use crate::slot::Slot;
use crate::stat::{Stat, stat_of};

/// Bytes of a read whose memory is taken without asking how long the file is.
const UNASKED_MAX: usize = 1 << 20;

/// An open file with a position, without a buffer.
#[pyclass(frozen, module = "extxfs._native")]
pub struct File {
    file: Slot<Arc<image::File>>,
    mount: Arc<Mount>,
    path: PathBuf,
}

impl File {
    pub fn new(file: image::File, mount: &Arc<Mount>, path: &Path) -> File {
        let file = Slot::new("file", Arc::new(file));
        File { file, mount: mount.clone(), path: path.to_owned() }
    }

    /// Runs a call on the file without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&image::File) -> image::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.get()?;
        self.mount.run(py, Some(&self.path), || work(&file))
    }

    /// As `call`, for what moves the position.
    fn stream<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut &image::File) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.get()?;
        self.mount.run_io(py, &self.path, || work(&mut &*file))
    }

    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |file| Ok(file.metadata()?.len()))
    }
}

/// Reads `size` bytes from byte `offset` on into a new `bytes`; less only at the end of the file.
///
/// # Errors
/// Those of the read.
pub fn bytes_at<'py>(
    py: Python<'py>,
    mount: &Mount,
    path: &Path,
    file: &image::File,
    offset: u64,
    size: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut filled = 0;
    let bytes = PyBytes::new_with(py, size, |buffer| {
        filled = mount.run(py, Some(path), || {
            let mut filled = 0;
            while filled < buffer.len() {
                match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            Ok(filled)
        })?;
        Ok(())
    })?;
    Ok(if filled == size { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..filled]) })
}

#[pymethods]
impl File {
    /// Reads into a buffer at the position; returns the bytes.
    fn readinto(&self, py: Python<'_>, mut buffer: Target) -> PyResult<usize> {
        self.stream(py, |file| file.read(buffer.bytes()))
    }

    /// Reads at most `size` bytes at the position; -1 for all that follow.
    #[pyo3(signature = (size = -1))]
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file.get()?;
        // Neither waits: the position is a number beside the file.
        let at = (&*file).stream_position()?;
        let bytes = self.read_at(py, at, usize::try_from(size).unwrap_or(usize::MAX))?;
        (&*file).seek(SeekFrom::Start(at + bytes.as_bytes().len() as u64))?;
        Ok(bytes)
    }

    /// Reads at most `size` bytes at byte `offset`; the position stays.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        mut size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file.get()?;
        if size > UNASKED_MAX {
            // No more memory than there is file.
            size = self.len(py)?.saturating_sub(offset).min(size as u64) as usize;
        }
        if size == 0 {
            // Says whether the file is open for reading.
            self.call(py, |file| file.read_at(&mut [], offset))?;
        }
        bytes_at(py, &self.mount, &self.path, &file, offset, size)
    }

    /// Reads into a buffer at byte `offset`; the position stays.
    fn readinto_at(&self, py: Python<'_>, offset: u64, mut buffer: Target) -> PyResult<usize> {
        self.call(py, |file| file.read_at(buffer.bytes(), offset))
    }

    /// Writes at the position, or at the end if opened to append; returns the bytes.
    fn write(&self, py: Python<'_>, data: Source) -> PyResult<usize> {
        self.stream(py, |file| file.write(data.bytes()))
    }

    /// Writes all of it at byte `offset`; the position stays.
    fn write_at(&self, py: Python<'_>, offset: u64, data: Source) -> PyResult<usize> {
        self.call(py, |file| file.write_all_at(data.bytes(), offset))?;
        Ok(data.bytes().len())
    }

    /// Moves the position: from the start (0), the position (1), the end (2), to data (3), to a
    /// hole (4).
    #[pyo3(signature = (offset, whence = 0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let negative = || PyValueError::new_err(format!("negative seek position {offset}"));
        let start = || u64::try_from(offset).map_err(|_| negative());
        let to = match whence {
            0 => SeekFrom::Start(start()?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            3 => {
                let from = start()?;
                SeekFrom::Start(self.call(py, |file| file.seek_data(from))?)
            }
            4 => {
                let from = start()?;
                SeekFrom::Start(self.call(py, |file| file.seek_hole(from))?)
            }
            _ => return Err(PyValueError::new_err(format!("invalid whence ({whence})"))),
        };
        self.stream(py, |file| file.seek(to))
    }

    /// Sets the size in bytes.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(size))
    }

    /// Reserves space.
    fn allocate(&self, py: Python<'_>, offset: u64, size: usize) -> PyResult<()> {
        let end = offset.saturating_add(size as u64);
        self.call(py, |file| file.allocate(offset..end))
    }

    /// Returns when content (and attributes, unless `data_only`) survive a power cut.
    #[pyo3(signature = (data_only = false))]
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.call(py, |file| if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// The attributes now.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.call(py, |file| file.metadata()).map(|metadata| stat_of(&metadata))
    }

    /// Closes it; a second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file.take()?;
        self.mount.run(py, None, || {
            drop(file);
            Ok(())
        })
    }

    /// Is it closed?
    #[getter]
    fn closed(&self) -> bool {
        self.file.is_closed()
    }
}
