//! Where the bytes of a container come from: a file of the host, or any device.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{BioFlags, Device, DeviceIo, Op, Segment, Segments};

use crate::Error;

/// Bytes that do not change while they are read.
pub trait Source: Send + Sync {
    /// How people call it: a path or an address.
    fn name(&self) -> &str;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from byte `offset` on. Waits in the calling thread.
    ///
    /// # Errors
    /// The file or the way to it failed, or it ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// These bytes will be read soon: a source that answers late may fetch them now. Does not wait;
    /// what lies behind the end is left out.
    fn will_read(&self, _range: Range<u64>) {}

    /// Requests that are worth having under way at once, each in a thread of its own; 0: the
    /// caller's thread does it.
    fn threads(&self) -> usize {
        0
    }
}

/// Fills `buf` from `source`, with an error that names it.
pub(crate) fn read(source: &dyn Source, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
    let len = buf.len() as u64;
    source.read_at(offset, buf).map_err(|error| Error::Read {
        name: source.name().to_owned(),
        offset,
        len,
        error,
    })
}

/// Up to `len` bytes from `offset` on; fewer where the source ends.
pub(crate) fn read_some(source: &dyn Source, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let there = source.size().saturating_sub(offset).min(len as u64);
    let mut bytes = vec![0; there as usize];
    read(source, offset, &mut bytes)?;
    Ok(bytes)
}

/// A regular file of the host. It stays locked as its device is.
pub struct FileSource {
    name: String,
    file: File,
    size: u64,
    _claim: Option<Arc<dyn Device>>,
}

impl FileSource {
    /// Opens a file for reading and locks it, as [`device::open`] does.
    ///
    /// # Errors
    /// The host refuses, or somebody else writes to it.
    pub fn open(path: &Path) -> Result<FileSource, Error> {
        let claim = device::open(path, device::OpenOptions::read_only())?;
        FileSource::look(path, Some(claim))
    }

    /// A file whose lock is held by `claim`, or that is only looked at.
    ///
    /// # Errors
    /// The host refuses.
    pub fn look(path: &Path, claim: Option<Arc<dyn Device>>) -> Result<FileSource, Error> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((size, file)) => Ok(FileSource { name, file, size, _claim: claim }),
            Err(error) => Err(Error::Read { name, offset: 0, len: 0, error }),
        }
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Any device as bytes: block devices, network block devices, stripes. In real time only.
pub struct DeviceSource {
    name: String,
    pub(crate) device: Arc<dyn Device>,
}

impl DeviceSource {
    /// The bytes of a device.
    pub fn new(device: Arc<dyn Device>) -> DeviceSource {
        DeviceSource { name: device.name(), device }
    }

    /// Reads whole logical blocks, in one request.
    pub(crate) fn blocks(&self, start: u64, len: usize) -> io::Result<Page> {
        let mut segs = self.request(Op::Read, start, Some(Page::zeroed(len)))?;
        let seg = segs.pop().ok_or_else(|| io::Error::other("a request without its memory"))?;
        Ok(seg.page)
    }

    /// Carries out one request, and waits for it.
    pub(crate) fn request(&self, op: Op, start: u64, page: Option<Page>) -> io::Result<Segments> {
        let (sender, receiver) = sync_channel(1);
        let segs = page.into_iter().map(Segment::whole).collect();
        let at = Sector::from_bytes(start);
        let io = DeviceIo::new(op, at, segs, BioFlags::empty(), move |segs, result| {
            let _receiver_waits = sender.send((segs, result));
        });
        self.device.submit(io);
        let (segs, result) = receiver.recv().map_err(io::Error::other)?;
        result.map_err(io::Error::other)?;
        Ok(segs)
    }

    /// Cuts a range at requests that the device takes: whole logical blocks around each piece, and
    /// the piece's place in the range.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> io::Result<Vec<Piece>> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= self.size());
        if end.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let info = self.device.info();
        let block = u64::from(info.logical_block);
        let most = (u64::from(info.max_bytes).min(1 << 20) / block * block).max(block);
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < len {
            let at = offset + done as u64;
            let start = at / block * block;
            let whole = (at - start + (len - done) as u64).next_multiple_of(block).min(most);
            let skip = (at - start) as usize;
            let part = (whole as usize - skip).min(len - done);
            pieces.push(Piece { start, whole: whole as usize, skip, range: done..done + part });
            done += part;
        }
        Ok(pieces)
    }
}

/// A request of a range: whole logical blocks, and which of their bytes are which of the range.
pub(crate) struct Piece {
    pub start: u64,
    pub whole: usize,
    pub skip: usize,
    pub range: Range<usize>,
}

impl Source for DeviceSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.device.info().sectors * SECTOR_SIZE
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        for piece in self.pieces(offset, buf.len())? {
            let page = self.blocks(piece.start, piece.whole)?;
            let part = piece.range.len();
            buf[piece.range].copy_from_slice(&page[piece.skip..piece.skip + part]);
        }
        Ok(())
    }
}
