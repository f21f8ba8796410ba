//! Listings of directories, in batches.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use image::ReadDir;
use pyo3::prelude::*;

use crate::call::Mount;
use crate::slot::Slot;
use rt::SpinLock;

/// Names that one call brings over.
const BATCH: usize = 512;

/// Name, inode number, and the type as the upper bits of `st_mode` (0 where the directory does not
/// record it).
type Entry = (OsString, u64, u32);

/// Iterates over lists of (name, inode number, type) of a directory.
#[pyclass(frozen, module = "extxfs._native")]
pub struct Names {
    list: Slot<Arc<SpinLock<Option<ReadDir>>>>,
    mount: Arc<Mount>,
    path: PathBuf,
}

impl Names {
    pub fn new(list: ReadDir, mount: &Arc<Mount>, path: PathBuf) -> Names {
        let list = Slot::new("listing", Arc::new(SpinLock::named("listing", Some(list))));
        Names { list, mount: mount.clone(), path }
    }
}

fn batch(list: &mut ReadDir) -> image::Result<Vec<Entry>> {
    let mut names = Vec::new();
    for entry in list.by_ref().take(BATCH) {
        let entry = entry?;
        let kind = entry.known_type().map_or(0, |kind| u32::from(kind.mode_bits()));
        names.push((entry.file_name(), entry.ino(), kind));
    }
    Ok(names)
}

#[pymethods]
impl Names {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<Entry>>> {
        let shared = self.list.get()?;
        // Taken out for the call: a second thread meanwhile sees the end.
        let Some(mut list) = shared.lock_irq().take() else { return Ok(None) };
        let (list, names) = self.mount.run(py, Some(&self.path), move || {
            let names = batch(&mut list);
            Ok((list, names))
        })?;
        *shared.lock_irq() = Some(list);
        let names = self.mount.run(py, Some(&self.path), || names)?;
        Ok((!names.is_empty()).then_some(names))
    }

    /// Gives the directory back; a second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let list = self.list.take()?;
        self.mount.run(py, None, || {
            drop(list);
            Ok(())
        })
    }
}
