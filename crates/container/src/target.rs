//! Where the bytes of a container go that is written to: a file of the host.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Page;
use block::{Device, Op};
use rustix::fs::{FallocateFlags, fallocate};

use crate::source::Source;
use crate::{DeviceSource, Error, FileSource};

/// A source that is written to. What was written is read from then on; it is kept over a power cut
/// from the next [`Target::flush`] on.
pub trait Target: Source {
    /// Writes bytes; the file grows where they pass its end, with zeros before them.
    ///
    /// # Errors
    /// The host refuses, or there is no space.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Gives the space of a range back: a hole, which reads as zeros. Does nothing where that is
    /// not known.
    ///
    /// # Errors
    /// The host refuses.
    fn punch(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// The host failed: what was written may be lost.
    fn flush(&self) -> io::Result<()>;

    /// Whether writes are taken.
    fn is_writable(&self) -> bool {
        true
    }
}

/// Writes to a target, with an error that names it.
pub(crate) fn write(target: &dyn Target, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let (name, len) = (target.name().to_owned(), bytes.len() as u64);
    target.write_at(offset, bytes).map_err(|error| Error::Write { name, offset, len, error })
}

/// Makes everything durable that was written to a target.
pub(crate) fn flush(target: &dyn Target) -> Result<(), Error> {
    let name = target.name().to_owned();
    target.flush().map_err(|error| Error::Write { name, offset: 0, len: 0, error })
}

/// A regular file of the host, open for writing and locked as its device is.
pub struct FileTarget {
    name: String,
    file: File,
    size: AtomicU64,
    _claim: Arc<dyn Device>,
}

impl FileTarget {
    /// Opens a file and locks it against every other opener.
    ///
    /// # Errors
    /// The host refuses, or somebody else has it open.
    pub fn open(path: &Path) -> Result<FileTarget, Error> {
        let options = device::OpenOptions { write: true, ..device::OpenOptions::read_only() };
        let claim = device::open(path, options)?;
        let name = path.display().to_string();
        let size = FileSource::look(path, None)?.size();
        let opened = File::options().read(true).write(true).open(path);
        match opened {
            Ok(file) => Ok(FileTarget { name, file, size: AtomicU64::new(size), _claim: claim }),
            Err(error) => Err(Error::Read { name, offset: 0, len: 0, error }),
        }
    }
}

impl Source for FileTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

impl Target for FileTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.size.fetch_max(offset + bytes.len() as u64, Ordering::AcqRel);
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, how, range.start, range.end - range.start)?)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Target for DeviceSource {
    /// Blocks that are written in part are read first.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in self.pieces(offset, bytes.len())? {
            let bytes = &bytes[piece.range];
            let mut page = match bytes.len() == piece.whole {
                true => Page::zeroed(piece.whole),
                false => self.blocks(piece.start, piece.whole)?,
            };
            page.make_mut()[piece.skip..piece.skip + bytes.len()].copy_from_slice(bytes);
            self.request(Op::Write, piece.start, Some(page))?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.request(Op::Flush, 0, None).map(drop)
    }

    fn is_writable(&self) -> bool {
        !self.device.info().read_only
    }
}
