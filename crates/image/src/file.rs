//! Open files.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Errno;
use rt::Cx;
use vfs::{FallocMode, OpenFlags, SeekWhence};

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
        self.flag(OpenFlags::APPEND, on)
    }

    /// A file that does not exist is made.
    pub fn create(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::CREATE, on)
    }

    /// A file is made; if it exists, opening fails with `EEXIST`.
    pub fn create_new(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::EXCL, on)
    }

    /// The file is truncated to zero.
    pub fn truncate(self, on: bool) -> OpenOptions {
        self.flag(OpenFlags::TRUNC, on)
    }

    /// Permission bits of a file that is made.
    pub fn mode(mut self, mode: u16) -> OpenOptions {
        self.mode = mode & 0o7777;
        self
    }

    /// What the switches mean together, as std has it.
    fn checked(&self) -> std::result::Result<OpenFlags, Errno> {
        const MAKING: OpenFlags = OpenFlags::CREATE.union(OpenFlags::EXCL);
        let mut flags = self.flags;
        let has = |flag| flags.intersects(flag);
        let (write, append) = (has(OpenFlags::WRITE), has(OpenFlags::APPEND));
        let means_nothing = match (write || append, append) {
            (false, _) => has(MAKING | OpenFlags::TRUNC) || !has(OpenFlags::READ),
            (true, false) => false,
            (true, true) => has(OpenFlags::TRUNC) && !has(OpenFlags::EXCL),
        };
        if means_nothing {
            return Err(Errno::EINVAL);
        }
        flags.set(OpenFlags::CREATE, flags.intersects(MAKING));
        flags.set(OpenFlags::WRITE, write || append);
        Ok(flags)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `EINVAL` neither reading nor writing, making or emptying without writing, or emptying what
    /// is appended to; `ENOENT`, `EEXIST`, `EISDIR` a directory for writing, `ENXIO` a device, FIFO
    /// or socket, `EROFS`, `ENOSPC`, those of the walk.
    pub fn open(self, fs: &Fs, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let flags = self.checked().map_err(|errno| Error::new(fs.mounted().place(path), errno))?;
        let mode = self.mode;
        let mounted = fs.mounted();
        let file = mounted.call(path, |cx, names, path| names.open(cx, path, flags, mode))?;
        let path = path.to_owned();
        Ok(File { file: Some(file), mounted: mounted.clone(), path, position: AtomicU64::new(0) })
    }
}

/// An open file. Closing it by dropping waits for nothing: [`File::sync_all`] makes it durable.
///
/// As with `std::fs::File`, `&File` reads, writes and seeks as well. Threads that share one should
/// use [`File::read_at`] and [`File::write_at`]: the position is not locked over a call.
pub struct File {
    /// None once it was closed.
    file: Option<vfs::File>,
    mounted: Arc<Mounted>,
    path: PathBuf,
    /// Where `Read` and `Write` go on, bytes.
    position: AtomicU64,
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

    /// Writes at byte `offset`; returns less than all only if an error follows.
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

    /// Truncates the file, or extends it by a hole.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `EIO`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.call(|cx, file| file.truncate(cx, size))
    }

    /// Reserves space for a range of bytes; the file grows where it must. What is reserved reads as
    /// zeros, what was there stays.
    ///
    /// # Errors
    /// `EBADF` not open for writing; `EINVAL` an empty range; `ENOSPC`, `EFBIG`; `EOPNOTSUPP` the
    /// format cannot.
    pub fn allocate(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let mode = FallocMode::Allocate { keep_size: false };
        self.call(|cx, file| file.fallocate(cx, mode, range.start, len))
    }

    /// The first byte at or after `offset` that is not in a hole; whole blocks count as data.
    ///
    /// # Errors
    /// `ENXIO` no data follows.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek_for(SeekWhence::Data, offset)
    }

    /// The first byte at or after `offset` that is in a hole; the end of the file is one.
    ///
    /// # Errors
    /// `ENXIO` behind the end of the file.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek_for(SeekWhence::Hole, offset)
    }

    fn seek_for(&self, whence: SeekWhence, offset: u64) -> Result<u64> {
        self.call(|cx, file| self.mounted.fs.seek(cx, file.ino(), offset, whence))
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

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.position.load(Ordering::Relaxed);
        let count = self.read_at(buffer, at)?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let appends = self.call(|_, file| Ok(file.flags().contains(OpenFlags::APPEND)))?;
        let (at, count) = if appends {
            let count = self.call(|cx, file| file.write(cx, bytes))?;
            (self.metadata()?.len(), count)
        } else {
            let at = self.position.load(Ordering::Relaxed);
            let count = self.write_at(bytes, at)?;
            (at + count as u64, count)
        };
        self.position.store(at, Ordering::Relaxed);
        Ok(count)
    }

    /// Nothing is held back here; [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.position.load(Ordering::Relaxed).checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let before = || Error::new(self.mounted.place(&self.path), Errno::EINVAL);
        let to = to.filter(|&to| to <= i64::MAX as u64).ok_or_else(before)?;
        self.position.store(to, Ordering::Relaxed);
        Ok(to)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    /// Nothing is held back here; [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
