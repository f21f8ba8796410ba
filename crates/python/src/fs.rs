//! A mounted image.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use image::{DirBuilder, FileType, Image, OpenOptions, RenameFlags};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rt::SpinLock;

use crate::buffer::Source;
use crate::call::{Mount, Raised};
use crate::device::PyDevice;
use crate::file::{File, bytes_at};
use crate::list::Names;
use crate::path::Given;
use crate::slot::Slot;
use crate::stat::{Stat, nanoseconds, stat_of, time_of};

/// A mounted image. Paths begin at its root.
#[pyclass(frozen, module = "extxfs._native")]
pub struct Fs {
    fs: Slot<image::Fs>,
    mount: Arc<Mount>,
    format: &'static str,
}

impl Fs {
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        path: &Given,
        work: impl FnOnce(&image::Fs, &Path) -> image::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.fs.get()?;
        self.mount.run(py, Some(&path.0), || work(&fs, &path.0))
    }

    /// Opens a file for the length of a call.
    fn open_read(&self, py: Python<'_>, path: &Given) -> PyResult<image::File> {
        self.call(py, path, |fs, path| fs.open(path))
    }
}

#[pymethods]
impl Fs {
    /// Mounts an image file, a block device or `nbd://host/export`; `device` is an object with
    /// `read(offset, size)`, `write(offset, data)`, `flush()`, `size` and `writable` instead, and
    /// `image` its name then.
    #[new]
    #[pyo3(signature = (image, write, partition, cache_size, device))]
    fn new(
        py: Python<'_>,
        image: Given,
        write: bool,
        partition: Option<u32>,
        cache_size: Option<u64>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Fs> {
        let mut options = Image::options().write(write);
        if let Some(number) = partition {
            options = options.partition(number);
        }
        if let Some(bytes) = cache_size {
            options = options.cache_size(bytes);
        }
        let place = image.0.as_os_str().to_owned();
        let raised: Raised = Arc::new(SpinLock::named("exception of a device", None));
        let name = place.to_string_lossy().into_owned();
        let device =
            device.map(|object| PyDevice::new(object, &name, raised.clone())).transpose()?;
        let mount = Arc::new(Mount::new(place, raised));
        let (fs, format) = mount.run(py, None, || {
            let image = match device {
                Some(device) => options.open_device(&name, Arc::new(device))?,
                None => options.open(&image.0)?,
            };
            let format = image.format()?.name();
            Ok((image.fs()?, format))
        })?;
        Ok(Fs { fs: Slot::new("file system", fs), mount, format })
    }

    /// `ext` or `xfs`.
    #[getter]
    fn format(&self) -> &'static str {
        self.format
    }

    /// Writes everything out and unmounts; a second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.fs.take()? {
            Some(fs) => self.mount.run(py, None, || fs.unmount().map(drop)),
            None => Ok(()),
        }
    }

    /// Is it unmounted?
    #[getter]
    fn closed(&self) -> bool {
        self.fs.is_closed()
    }

    /// Returns when everything done before survives a power cut.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs.get()?;
        self.mount.run(py, None, || fs.sync())
    }

    /// Block size; bytes: all, free, available; inodes: all, free; longest name; id.
    #[expect(clippy::type_complexity, reason = "the numbers of os.statvfs_result")]
    fn space(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64, u32, u64)> {
        let fs = self.fs.get()?;
        let space = self.mount.run(py, None, || fs.space())?;
        Ok((
            space.block_size,
            space.bytes,
            space.bytes_free,
            space.bytes_available,
            space.inodes,
            space.inodes_free,
            space.name_max,
            space.id,
        ))
    }

    /// The attributes of a path.
    #[pyo3(signature = (path, follow = true))]
    fn stat(&self, py: Python<'_>, path: Given, follow: bool) -> PyResult<Stat> {
        let found = self.call(py, &path, |fs, path| match follow {
            true => fs.metadata(path),
            false => fs.symlink_metadata(path),
        })?;
        Ok(stat_of(&found))
    }

    /// Birth in nanoseconds since 1970; None where the format does not record it.
    fn birth(&self, py: Python<'_>, path: Given) -> PyResult<Option<i128>> {
        let found = self.call(py, &path, |fs, path| fs.metadata(path))?;
        Ok(found.created().map(nanoseconds))
    }

    /// The names of a directory.
    fn names(&self, py: Python<'_>, path: Given) -> PyResult<Names> {
        let list = self.call(py, &path, |fs, path| fs.read_dir(path))?;
        Ok(Names::new(list, &self.mount, path.0))
    }

    /// Opens a file; `how` has the letters `r` read, `w` write, `a` append, `c` create, `x` create
    /// anew, `t` truncate.
    #[pyo3(signature = (path, how, mode = 0o644))]
    fn open(&self, py: Python<'_>, path: Given, how: &str, mode: u16) -> PyResult<File> {
        let has = |letter| how.contains(letter);
        let options = OpenOptions::new()
            .read(has('r'))
            .write(has('w'))
            .create(has('c'))
            .truncate(has('t'))
            .mode(mode);
        let options = if has('x') { options.create_new(true) } else { options };
        let options = if has('a') { options.append(true) } else { options };
        let file = self.call(py, &path, |fs, path| options.open(fs, path))?;
        Ok(File::new(file, &self.mount, &path.0))
    }

    /// The content of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: Given) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.open_read(py, &path)?;
        let size = self.mount.run(py, Some(&path.0), || Ok(file.metadata()?.len()))?;
        bytes_at(py, &self.mount, &path.0, &file, 0, size as usize)
    }

    /// Parts of a file: (first byte, byte behind the last), clipped to its end.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        path: Given,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let file = self.open_read(py, &path)?;
        let size = self.mount.run(py, Some(&path.0), || Ok(file.metadata()?.len()))?;
        let read = |(start, end): (u64, u64)| {
            let len = end.min(size).saturating_sub(start) as usize;
            bytes_at(py, &self.mount, &path.0, &file, start, len)
        };
        ranges.into_iter().map(read).collect()
    }

    /// Makes a file with this content, or replaces the content of the one that is there.
    #[pyo3(signature = (path, data, exclusive = false))]
    fn write_bytes(
        &self,
        py: Python<'_>,
        path: Given,
        data: Source,
        exclusive: bool,
    ) -> PyResult<usize> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let options = options.create_new(exclusive);
        self.call(py, &path, |fs, path| {
            let options = if exclusive { options } else { options.create(true) };
            let file = options.open(fs, path)?;
            file.write_all_at(data.bytes(), 0)
        })?;
        Ok(data.bytes().len())
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode = 0o755, parents = false))]
    fn mkdir(&self, py: Python<'_>, path: Given, mode: u16, parents: bool) -> PyResult<()> {
        let how = DirBuilder::new().mode(mode).recursive(parents);
        self.call(py, &path, |fs, path| how.create(fs, path))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: Given) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.remove_dir(path))
    }

    /// Removes a directory and everything below it.
    fn rmtree(&self, py: Python<'_>, path: Given) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.remove_dir_all(path))
    }

    /// Removes a name of anything but a directory.
    fn unlink(&self, py: Python<'_>, path: Given) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.remove_file(path))
    }

    /// Moves a name; `flags` as renameat2(2): 1 without replacing, 2 both names change places.
    #[pyo3(signature = (old, new, flags = 0))]
    fn rename(&self, py: Python<'_>, old: Given, new: Given, flags: u32) -> PyResult<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        self.call(py, &old, |fs, old| fs.rename_with(old, &new.0, flags))
    }

    /// Makes a further name `new` for the file `old`.
    fn link(&self, py: Python<'_>, old: Given, new: Given) -> PyResult<()> {
        self.call(py, &new, |fs, new| fs.hard_link(&old.0, new))
    }

    /// Makes a symbolic link `path` that holds `target`.
    fn symlink(&self, py: Python<'_>, target: Given, path: Given) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.symlink(&target.0, path))
    }

    /// What a symbolic link holds.
    fn readlink(&self, py: Python<'_>, path: Given) -> PyResult<OsString> {
        self.call(py, &path, |fs, path| fs.read_link(path)).map(OsString::from)
    }

    /// The path without symbolic links, `.` and `..`.
    fn canonical(&self, py: Python<'_>, path: Given) -> PyResult<OsString> {
        self.call(py, &path, |fs, path| fs.canonicalize(path)).map(OsString::from)
    }

    /// Copies content and permission bits of a file; returns the bytes.
    fn copy(&self, py: Python<'_>, old: Given, new: Given) -> PyResult<u64> {
        self.call(py, &old, |fs, old| fs.copy(old, &new.0))
    }

    /// Makes a FIFO, a socket, a device or an empty file: `mode` with its type, as `st_mode`.
    #[pyo3(signature = (path, mode, rdev = 0))]
    fn mknod(&self, py: Python<'_>, path: Given, mode: u32, rdev: u64) -> PyResult<()> {
        let kind =
            if mode >> 12 == 0 { Some(FileType::Regular) } else { FileType::from_mode(mode) };
        let none = || PyValueError::new_err(format!("no type of a file: mode {mode:#o}"));
        let kind = kind.ok_or_else(none)?;
        self.call(py, &path, |fs, path| fs.make_node(path, kind, mode as u16 & 0o7777, rdev))
    }

    /// Sets permission, set-id and sticky bits.
    fn chmod(&self, py: Python<'_>, path: Given, mode: u16) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.set_mode(path, mode))
    }

    /// Sets owner and group; None leaves what is there.
    #[pyo3(signature = (path, uid, gid, follow = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: Given,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.call(py, &path, |fs, path| match follow {
            true => fs.chown(path, uid, gid),
            false => fs.lchown(path, uid, gid),
        })
    }

    /// Sets the times of the last read and the last change, nanoseconds since 1970.
    #[pyo3(signature = (path, accessed, modified, follow = true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: Given,
        accessed: i128,
        modified: i128,
        follow: bool,
    ) -> PyResult<()> {
        let (accessed, modified) = (time_of(accessed)?, time_of(modified)?);
        self.call(py, &path, |fs, path| match follow {
            true => fs.set_times(path, accessed, modified),
            false => fs.set_times_nofollow(path, accessed, modified),
        })
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: Given,
        name: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.call(py, &path, |fs, path| fs.xattr(path, name))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute.
    fn setxattr(&self, py: Python<'_>, path: Given, name: &str, value: Source) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.set_xattr(path, name, value.bytes()))
    }

    /// The names of the extended attributes.
    fn listxattr(&self, py: Python<'_>, path: Given) -> PyResult<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        let names = self.call(py, &path, |fs, path| fs.xattrs(path))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: Given, name: &str) -> PyResult<()> {
        self.call(py, &path, |fs, path| fs.remove_xattr(path, name))
    }
}
