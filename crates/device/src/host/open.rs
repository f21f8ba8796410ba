//! Opening what lies behind a path: an image file or a block device.

use super::blockdev;
use super::claim::{self, Claim};
use super::file::FileDevice;
use super::options::{Engine, OpenError, OpenOptions, nbd_url};
use block::Device;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Opens an image file or a block device, and locks it against every other opener until the last
/// reference is dropped. An address (`nbd://..`, `nbd+unix://..`) opens a network block device,
/// which is as exclusive as its server makes it.
///
/// # Errors
/// Where the host refuses, somebody else uses it (the error says who), or it is no storage.
pub fn open(path: &Path, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, options, Use::Whole)
}

/// Opens an image file of which only these bytes are used, as [`open`]: others may use other parts
/// of it. A block device and a network block device are opened as wholes.
///
/// # Errors
/// As [`open`].
pub fn open_part(
    path: &Path,
    options: OpenOptions,
    bytes: Range<u64>,
) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, options, Use::Part(bytes))
}

/// Opens an image file for a look at what nobody changes, its partition table: it is not locked.
///
/// # Errors
/// As [`open`].
pub fn open_unlocked(path: &Path, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_as(path, OpenOptions { write: false, ..options }, Use::Look)
}

/// What of a file is used.
enum Use {
    Whole,
    Part(Range<u64>),
    Look,
}

fn open_as(path: &Path, options: OpenOptions, used: Use) -> Result<Arc<dyn Device>, OpenError> {
    if let Some(url) = nbd_url(path) {
        return Ok(crate::nbd::connect(url, options.write)?);
    }
    let meta = std::fs::metadata(path).map_err(|e| OpenError::host(path, "stat", e))?;
    let kind = meta.file_type();
    let other = match () {
        () if kind.is_file() || kind.is_block_device() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_fifo() => Some("a fifo"),
        () => Some("a socket"),
    };
    if let Some(kind) = other {
        return Err(OpenError::Kind { path: path.to_owned(), kind });
    }
    let is_block = kind.is_block_device();
    if !is_block {
        claim::refuse_loop(path, &meta, options.write)?;
    }
    if is_block && options.write && blockdev::is_read_only(&meta) {
        let error = std::io::Error::from_raw_os_error(libc::EROFS);
        return Err(OpenError::host(path, "open", error));
    }
    let file = open_file(path, options, is_block)?;
    let claim = match used {
        Use::Look if !is_block => None,
        Use::Part(bytes) if !is_block => {
            Some(Claim::take(path, &file, Some(bytes), options.write)?)
        }
        _ => Some(Claim::take(path, &file, None, options.write)?),
    };
    let device = if is_block {
        blockdev::describe(path, &file, &meta, options)?
    } else {
        FileDevice::describe(path, &file, &meta, options)?
    };
    let device = FileDevice::new(path, file, claim, device, is_block);
    let engine = match options.engine {
        Engine::Auto if options.direct => Engine::Uring,
        Engine::Auto => Engine::Psync,
        chosen => chosen,
    };
    if engine == Engine::Psync {
        return Ok(Arc::new(device));
    }
    behind_ring(path, device, options.engine)
}

/// Puts a ring in front of a device; where there is none, only a caller who asked for one minds.
fn behind_ring(
    path: &Path,
    device: FileDevice,
    engine: Engine,
) -> Result<Arc<dyn Device>, OpenError> {
    #[cfg(feature = "io-uring")]
    let (device, error) = match super::uring::UringDevice::new(device) {
        Ok(device) => return Ok(Arc::new(device)),
        Err((device, error)) => (*device, error),
    };
    #[cfg(not(feature = "io-uring"))]
    let error = std::io::Error::other("built without the feature `io-uring`");
    match engine {
        Engine::Auto => Ok(Arc::new(device)),
        _ => Err(OpenError::host(path, "set up io_uring", error)),
    }
}

fn open_file(path: &Path, options: OpenOptions, is_block: bool) -> Result<File, OpenError> {
    let mut flags = libc::O_CLOEXEC;
    if options.direct {
        flags |= libc::O_DIRECT;
    }
    if is_block {
        flags |= libc::O_EXCL; // The kernel's own claim: fails where it is mounted or held.
    }
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(options.write).custom_flags(flags);
    open.open(path).map_err(|error| {
        if is_block && error.raw_os_error() == Some(libc::EBUSY) {
            let by = claim::holder_of_device(path).unwrap_or_else(|| "somebody".to_owned());
            return OpenError::Busy { path: path.to_owned(), by };
        }
        OpenError::host(path, "open", error)
    })
}

/// Makes an image file of `bytes` bytes that reads as zeros (sparse), for reading and writing. An
/// existing file loses its content, unless somebody uses it.
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
    if nbd_url(path).is_some() {
        return open(path, OpenOptions { write: true, ..options });
    }
    let meta = std::fs::metadata(path);
    if let Ok(meta) = &meta {
        if !meta.is_file() {
            return open(path, OpenOptions { write: true, ..options });
        }
        claim::refuse_loop(path, meta, true)?;
    }
    {
        let mut make = std::fs::OpenOptions::new();
        make.read(true).write(true).create(true).truncate(false);
        let file = make.open(path).map_err(|e| OpenError::host(path, "create", e))?;
        let _claim = Claim::take(path, &file, None, true)?;
        file.set_len(0).map_err(|e| OpenError::host(path, "truncate", e))?;
        file.set_len(bytes).map_err(|e| OpenError::host(path, "set the size", e))?;
    }
    open(path, OpenOptions { write: true, ..options })
}
