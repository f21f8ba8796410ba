//! Image files where the host is not Linux, by the standard library alone: positioned reads and
//! writes in the calling thread, and its locks on files.
//!
//! FLUSH is [`File::sync_data`], FUA a flush after the write, DISCARD does nothing, WRITE_ZEROES
//! writes zeros. There are no block devices, no direct I/O and no locks on parts of a file: what is
//! used in part is locked as a whole.

use super::options::{Engine, OpenError, OpenOptions, nbd_url};
use base::unit::SECTOR_SIZE;
use base::{Errno, Page};
use block::{BioFlags, Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op};
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one request.
const MAX_BYTES: u32 = 4 << 20;
/// Segments of one request.
const MAX_SEGMENTS: u16 = 1024;
/// Zeros that are written at once.
const ZEROS: usize = 64 << 10;

/// An open image file. Requests complete inside `submit`. The lock goes with the file.
pub struct FileDevice {
    path: PathBuf,
    file: File,
    info: DeviceInfo,
}

/// Opens an image file, and locks it against every other opener until the last reference is
/// dropped. On Unix an address (`nbd://..`, `nbd+unix://..`) opens a network block device.
///
/// # Errors
/// Where the host refuses, somebody else uses it, or it is no file.
pub fn open(path: &Path, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, options, true)
}

/// As [`open`]: the file is locked as a whole.
///
/// # Errors
/// As [`open`].
pub fn open_part(
    path: &Path,
    options: OpenOptions,
    _bytes: Range<u64>,
) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, options, true)
}

/// Opens an image file for a look at what nobody changes, its partition table: it is not locked.
///
/// # Errors
/// As [`open`].
pub fn open_unlocked(path: &Path, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, OpenOptions { write: false, ..options }, false)
}

/// Makes an image file of `bytes` bytes that reads as zeros, for reading and writing. An existing
/// file loses its content, unless somebody uses it.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path, bytes: u64) -> Result<Arc<dyn Device>, OpenError> {
    create_with(path, bytes, OpenOptions::read_write())
}

/// As [`create`], with options; `write` is taken as set.
///
/// # Errors
/// As [`open`].
pub fn create_with(
    path: &Path,
    bytes: u64,
    options: OpenOptions,
) -> Result<Arc<dyn Device>, OpenError> {
    let options = OpenOptions { write: true, ..options };
    if nbd_url(path).is_some() {
        return open(path, options);
    }
    refuse_unknown(path, options)?;
    let mut make = std::fs::OpenOptions::new();
    make.read(true).write(true).create(true).truncate(false);
    let file = make.open(path).map_err(|e| OpenError::host(path, "create", e))?;
    lock(path, &file, true)?;
    file.set_len(0).map_err(|e| OpenError::host(path, "truncate", e))?;
    file.set_len(bytes).map_err(|e| OpenError::host(path, "set the size", e))?;
    device_of(path, file, options)
}

fn open_as(path: &Path, options: OpenOptions, locked: bool) -> Result<Arc<dyn Device>, OpenError> {
    #[cfg(unix)]
    if let Some(url) = nbd_url(path) {
        return Ok(crate::nbd::connect(url, options.write)?);
    }
    if nbd_url(path).is_some() {
        return Err(OpenError::host(path, "connect", io::ErrorKind::Unsupported));
    }
    let meta = std::fs::metadata(path).map_err(|e| OpenError::host(path, "stat", e))?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a directory" } else { "no regular file" };
        return Err(OpenError::Kind { path: path.to_owned(), kind });
    }
    refuse_unknown(path, options)?;
    let mut open = std::fs::OpenOptions::new();
    let file = open.read(true).write(options.write).open(path);
    let file = file.map_err(|error| OpenError::host(path, "open", error))?;
    if locked {
        lock(path, &file, options.write)?;
    }
    device_of(path, file, options)
}

/// What this host does not have.
fn refuse_unknown(path: &Path, options: OpenOptions) -> Result<(), OpenError> {
    let unsupported = |what| Err(OpenError::host(path, what, io::ErrorKind::Unsupported));
    match options {
        OpenOptions { direct: true, .. } => unsupported("direct I/O"),
        OpenOptions { engine: Engine::Uring, .. } => unsupported("set up io_uring"),
        _ => Ok(()),
    }
}

fn lock(path: &Path, file: &File, write: bool) -> Result<(), OpenError> {
    match if write { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => Ok(()),
        // A host file system without locks: nothing can be promised, nothing is refused.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(OpenError::host(path, "lock", error)),
        Err(TryLockError::WouldBlock) => {
            Err(OpenError::Locked { path: path.to_owned(), by: "another process".to_owned() })
        }
    }
}

fn device_of(path: &Path, file: File, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    let bytes = file.metadata().map_err(|e| OpenError::host(path, "stat", e))?.len();
    if bytes < SECTOR_SIZE {
        let (path, block) = (path.to_owned(), SECTOR_SIZE as u32);
        return Err(OpenError::Size { path, bytes, block });
    }
    let info = DeviceInfo {
        logical_block: SECTOR_SIZE as u32,
        physical_block: 4096,
        max_bytes: MAX_BYTES,
        max_segments: MAX_SEGMENTS,
        volatile_cache: true,
        fua: true,
        read_only: !options.write,
        depth: 128,
        ..DeviceInfo::plain(bytes / SECTOR_SIZE)
    };
    Ok(Arc::new(FileDevice { path: path.to_owned(), file, info }))
}

impl FileDevice {
    fn carry_out(&self, io: &mut DeviceIo) -> Result<(), DeviceError> {
        let start = io.sector.bytes();
        let durable = io.flags.contains(BioFlags::FUA);
        let done = match io.op {
            Op::Read => self.read(io, start),
            Op::Write => self.write(io, start, durable),
            Op::Flush => self.file.sync_data(),
            Op::Discard => Ok(()),
            Op::WriteZeroes => self.write_zeroes(start..start + io.bytes()),
        };
        done.map_err(|error| io.error(Cause::from_errno(Errno::from_io(&error))))
    }

    fn read(&self, io: &mut DeviceIo, mut at: u64) -> io::Result<()> {
        for seg in &mut io.segs {
            let bytes = seg.bytes_mut();
            read_exact_at(&self.file, bytes, at)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn write(&self, io: &DeviceIo, mut at: u64, durable: bool) -> io::Result<()> {
        for seg in &io.segs {
            write_all_at(&self.file, seg.bytes(), at)?;
            at += seg.bytes().len() as u64;
        }
        if durable { self.file.sync_data() } else { Ok(()) }
    }

    fn write_zeroes(&self, bytes: Range<u64>) -> io::Result<()> {
        let zeros = Page::zeroed(ZEROS);
        let mut at = bytes.start;
        while at < bytes.end {
            let part = (bytes.end - at).min(ZEROS as u64) as usize;
            write_all_at(&self.file, &zeros[..part], at)?;
            at += part as u64;
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        let result = self.carry_out(&mut io);
        io.complete(result);
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(unix)]
use std::os::unix::fs::FileExt;

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_read(bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            done => (bytes, at) = (&mut bytes[done..], at + done as u64),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_write(bytes, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            done => (bytes, at) = (&bytes[done..], at + done as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Sector;
    use block::{Queue, QueueConfig};
    use rt::Runtime;

    fn in_folder(work: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder");
        work(folder.path());
    }

    /// What was written is read, by another opener too, and zeros where they were asked for.
    #[test]
    fn requests_reach_the_file() {
        in_folder(|folder| {
            let path = folder.join("disk.img");
            let device = create(&path, 1 << 20).expect("made");
            let runtime = Runtime::real(1);
            let queue = Queue::new(&runtime, device, QueueConfig::default()).expect("a queue");
            runtime.enter("write", |cx| {
                let page = Page::from_slice(&[7; 8192]);
                queue.write(cx, Sector(8), page, BioFlags::FUA).expect("written");
                queue.write_zeroes(cx, Sector(8), 8).expect("zeroed");
                queue.flush(cx).expect("flushed");
            });
            drop(queue);
            let bytes = std::fs::read(&path).expect("the file");
            assert_eq!(bytes.len(), 1 << 20);
            let at = |from: usize| (bytes[from], bytes[from + 4095]);
            assert_eq!((at(0), at(4096), at(8192), at(12288)), ((0, 0), (0, 0), (7, 7), (0, 0)));
            let queue = open(&path, OpenOptions::read_only()).expect("it opens");
            let queue = Queue::new(&runtime, queue, QueueConfig::default()).expect("a queue");
            let read = runtime.enter("read", |cx| queue.read(cx, Sector(8), 8192));
            assert_eq!(&*read.expect("read"), &bytes[4096..12288]);
        });
    }

    /// Readers share, a writer does not, and whoever looks at the table only asks for no lock.
    #[test]
    fn an_open_file_is_locked() {
        in_folder(|folder| {
            let path = folder.join("disk.img");
            let writer = create(&path, 4096).expect("made");
            let refused = open(&path, OpenOptions::read_only()).err();
            assert!(matches!(refused, Some(OpenError::Locked { .. })), "{refused:?}");
            assert!(matches!(create(&path, 8192).err(), Some(OpenError::Locked { .. })));
            assert!(open_unlocked(&path, OpenOptions::read_only()).is_ok());
            drop(writer);
            let _readers = [(); 2].map(|()| open(&path, OpenOptions::read_only()).expect("shared"));
            let part = open_part(&path, OpenOptions::read_write(), 0..512).err();
            assert!(matches!(part, Some(OpenError::Locked { .. })), "{part:?}");
        });
    }

    #[test]
    fn what_this_host_does_not_have_is_refused() {
        in_folder(|folder| {
            let path = folder.join("disk.img");
            std::fs::write(&path, [0; 511]).expect("a file");
            let short = open(&path, OpenOptions::read_only()).err();
            assert!(matches!(short, Some(OpenError::Size { bytes: 511, .. })), "{short:?}");
            let kind = open(folder, OpenOptions::read_only()).err();
            assert!(matches!(kind, Some(OpenError::Kind { kind: "a directory", .. })), "{kind:?}");
            let ring = OpenOptions { engine: Engine::Uring, ..OpenOptions::default() };
            for options in [OpenOptions { direct: true, ..OpenOptions::default() }, ring] {
                let refused = open(&path, options).err();
                let is_unsupported = |error: &OpenError| match error {
                    OpenError::Host { error, .. } => error.kind() == io::ErrorKind::Unsupported,
                    _ => false,
                };
                assert!(refused.as_ref().is_some_and(is_unsupported), "{refused:?}");
            }
        });
    }
}
