//! Open files.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::OpenFlags;

use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::mounted::{Fs, Mounted};

/// How a file is opened, as `std::fs::OpenOptions`.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    flags: OpenFlags,
    mode: u16,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is allowed yet; a new file gets mode 0o644.
    pub fn new() -> OpenOptions {
        OpenOptions { flags: OpenFlags::empty(), mode: 0o644 }
    }

    fn flag(mut self, flag: OpenFlags, on: bool) -> OpenOptions {
        self.flags.set(flag, on);
        self
    }

    /// Reading is allowed.
    pub fn read(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::READ, on)
    }

    /// Writing is allowed.
    pub fn write(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::WRITE, on)
    }

    /// Writing is allowed, and every write goes to the end of the file.
    pub fn append(self, on: bool) -> OpenOptions {
        let write = on || self.flags.contains(OpenFlags::WRITE);
        self.flag(OpenFlags::APPEND, on).write(write)
    }

    /// A file that does not exist is made.
    pub fn create(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::CREATE, on)
    }

    /// A file is made; one that exists is `EEXIST`.
    pub fn create_new(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::CREATE | OpenFlags::EXCL, on)
    }

    /// The file is emptied.
    pub fn truncate(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::TRUNC, on)
    }

    /// Permission bits of a file that is made.
    pub fn mode(mut self, mode: u16) -> OpenOptions {
        self.mode = mode & 0o7777;
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR` a directory for writing, `ENXIO` a device, FIFO or socket,
    /// `EROFS`, `ENOSPC`, those of the walk.
    pub fn open(self, fs: &Fs, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let OpenOptions { flags, mode } = self;
        let mounted = fs.mounted();
        let file = mounted.call(path, |cx, names, path| names.open(cx, path, flags, mode))?;
        let path = path.to_owned();
        Ok(File { file: Some(file), mounted: mounted.clone(), path, position: 0 })
    }
}

/// An open file. Closing it by dropping waits for nothing: [`File::sync_all`] makes it durable.
pub struct File {
    /// None once it was closed.
    file: Option<vfs::File>,
    mounted: Arc<Mounted>,
    path: PathBuf,
    /// Where `Read` and `Write` go on, bytes.
    position: u64,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("position", &self.position).finish()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let _nothing_to_do = self.mounted.enter("close", |cx| file.close(cx));
        }
    }
}

impl File {
    fn call<T>(
        &self,
        work: impl FnOnce(&mut Cx, &vfs::File) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let file = self.file.as_ref().expect("it is closed by `drop` only");
        let done = self.mounted.enter("file", |cx| work(cx, file));
        done.map_err(|errno| Error::new(self.mounted.place(&self.path), errno))
    }

    /// The attributes now.
    ///
    /// # Errors
    /// `EIO`.
    pub fn metadata(&self) -> Result<Metadata> {
        self.call(|cx, file| file.attr(cx)).map(Metadata)
    }

    /// Reads up to `buffer.len()` bytes at byte `offset`; less only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` not open for reading; `EISDIR`; `EIO`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.call(|cx, file| file.read_at(cx, offset, buffer))
    }

    /// Writes at byte `offset`; answers less than all only if an error follows.
    ///
    /// # Errors
    /// `EBADF` not open for writing; `ENOSPC`, `EFBIG`, `EIO`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.call(|cx, file| file.write_at(cx, offset, bytes))
    }

    /// Writes all of it at byte `offset`.
    ///
    /// # Errors
    /// As [`File::write_at`]; a part may have been written.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            let count = self.write_at(bytes, offset)?;
            (bytes, offset) = (&bytes[count..], offset + count as u64);
        }
        Ok(())
    }

    /// Cuts the file, or lets it grow by a hole.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `EIO`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.call(|cx, file| file.truncate(cx, size))
    }

    /// Returns when content and attributes survive a power cut.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: an earlier write found no place.
    pub fn sync_all(&self) -> Result<()> {
        self.call(|cx, file| file.fsync(cx))
    }

    /// Returns when the content, and what is needed to read it, survive a power cut.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.call(|cx, file| file.fdatasync(cx))
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let appends = self.call(|_, file| Ok(file.flags().contains(OpenFlags::APPEND)))?;
        if appends {
            let count = self.call(|cx, file| file.write(cx, bytes))?;
            self.position = self.metadata()?.len();
            return Ok(count);
        }
        let count = self.write_at(bytes, self.position)?;
        self.position += count as u64;
        Ok(count)
    }

    /// Nothing is held back here; [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let before = || Error::new(self.mounted.place(&self.path), Errno::EINVAL);
        self.position = to.filter(|&to| to <= i64::MAX as u64).ok_or_else(before)?;
        Ok(self.position)
    }
}
