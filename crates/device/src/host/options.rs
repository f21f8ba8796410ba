//! How an image is opened, and why it cannot be.

use std::io;
use std::path::{Path, PathBuf};

/// How requests reach the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// [`Engine::Uring`] with direct I/O where the host and this build have it, else
    /// [`Engine::Psync`].
    #[default]
    Auto,
    /// io_uring (the feature `io-uring`): requests are in flight while the caller goes on; one
    /// thread takes completions.
    Uring,
    /// preadv and pwritev in the calling thread: no thread is switched, which is the fastest way
    /// into the host's page cache.
    Psync,
}

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Also for writing. Without it the device is read-only, and may be shared with other readers.
    pub write: bool,
    /// Past the host's page cache (O_DIRECT).
    pub direct: bool,
    /// How requests reach the host.
    pub engine: Engine,
}

impl OpenOptions {
    /// For reading, through the page cache.
    pub fn read_only() -> OpenOptions {
        OpenOptions::default()
    }

    /// For reading and writing, through the page cache.
    pub fn read_write() -> OpenOptions {
        OpenOptions { write: true, ..OpenOptions::default() }
    }
}

/// Why a path could not be opened as a device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host refused.
    #[error("{}: {what}: {error}", path.display())]
    Host {
        /// The path that was given.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The host's answer.
        error: io::Error,
    },
    /// Somebody else has it open through iopath or another program that locks images.
    #[error("{}: in use by {by}", path.display())]
    Locked {
        /// The path that was given.
        path: PathBuf,
        /// Who, as far as the host shows.
        by: String,
    },
    /// The kernel uses it: as backing of a loop device, mounted, as swap.
    #[error("{}: in use by the kernel: {by}", path.display())]
    Busy {
        /// The path that was given.
        path: PathBuf,
        /// The loop device, mount point or holder.
        by: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is {kind}, neither an image file nor a block device", path.display())]
    Kind {
        /// The path that was given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A network block device that cannot be used.
    #[cfg(unix)]
    #[error(transparent)]
    Nbd(#[from] crate::nbd::NbdError),
    /// Too short for one sector.
    #[error("{}: {bytes} bytes are less than one block of {block}", path.display())]
    Size {
        /// The path that was given.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The logical block.
        block: u32,
    },
}

impl OpenError {
    pub(super) fn host(path: &Path, what: &'static str, error: impl Into<io::Error>) -> OpenError {
        OpenError::Host { path: path.to_owned(), what, error: error.into() }
    }
}

/// The address, where the path is that of a network block device.
pub(super) fn nbd_url(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| path.starts_with("nbd://") || path.starts_with("nbd+unix://"))
}
