//! Locks this process, so that a flaw in a parser gives a hostile image access to little more than
//! the image.
//!
//! ```text
//!   Landlock        which files may be opened, made and removed; no TCP but what is named
//!   seccomp         which system calls there are: none that executes, traces, mounts, ..
//!   capabilities    those that the work needs, and no new privileges for ever
//!   limits          memory; no core dumps
//! ```
//!
//! [`lock`] comes before the first byte of the image is parsed and before the second thread:
//! Landlock holds for the calling thread and for those that it starts later. [`Locked::settle`]
//! comes when everything is open: from then on nothing is opened, connected or set up any more, in
//! any thread.
//!
//! What the kernel lacks is left out, and [`Locked`] says what holds. A library must not lock the
//! process of its user, so nothing below the command calls this.
//!
//! Landlock does not cover every call that takes a path: `stat`, `chmod`, `chown`, `utimensat` and
//! extended attributes are left to seccomp, whose list has them only where the process writes files
//! of the host ([`Policy::writes_host_files`]).
#![deny(unsafe_code)]
#![deny(missing_docs)]
#![cfg(target_os = "linux")]

mod calls;
mod files;
mod rights;

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use rustix::thread::CapabilitySet;

/// What a process may still do once it is locked.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Files, and folders with all that is in them, that may be read.
    pub read: Vec<PathBuf>,
    /// Folders whose names may be listed, with those below.
    pub list: Vec<PathBuf>,
    /// Files, and folders with all that is in them, that may be read and written.
    pub write: Vec<PathBuf>,
    /// Folders in which names may be made and removed; they may be read and written too.
    pub make: Vec<PathBuf>,
    /// Owners, modes, times and extended attributes of the host's files may be set.
    pub writes_host_files: bool,
    /// Sockets may be made and connected: the image is on a server.
    pub network: bool,
    /// Rings of io_uring may be made, until [`Locked::settle`].
    pub rings: bool,
    /// Capabilities that are kept where the process has them.
    pub capabilities: Option<CapabilitySet>,
    /// Bytes of private memory that the process may have.
    pub memory_bytes: Option<u64>,
}

/// Why a process could not be locked. It may be locked in part, and should end.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub struct LockError {
    what: &'static str,
    error: io::Error,
}

impl LockError {
    fn new(what: &'static str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        LockError { what, error: io::Error::other(error) }
    }
}

/// What holds in a locked process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locked {
    /// The version of Landlock's interface, 0 where the kernel has none.
    pub landlock: u32,
    /// Whether seccomp filters system calls.
    pub seccomp: bool,
    /// Capabilities that were kept, by number of bits.
    pub capabilities: u32,
    /// Bytes of private memory that the process may have.
    pub memory_bytes: Option<u64>,
    network: bool,
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.landlock {
            0 => write!(f, "no Landlock")?,
            version => write!(f, "Landlock {version}")?,
        }
        write!(f, ", {}", if self.seccomp { "seccomp" } else { "no seccomp" })?;
        write!(f, ", {} capabilities", self.capabilities)?;
        if let Some(bytes) = self.memory_bytes {
            write!(f, ", {} MiB of memory", bytes >> 20)?;
        }
        Ok(())
    }
}

/// Locks this process. Call it before there is another thread.
///
/// # Errors
/// The kernel refuses what it has. A kernel without Landlock or seccomp is no error.
pub fn lock(policy: &Policy) -> Result<Locked, LockError> {
    let capabilities = rights::limit(policy)?;
    let landlock = files::restrict(policy)?;
    let seccomp = calls::filter(policy)?;
    Ok(Locked {
        landlock,
        seccomp,
        capabilities,
        memory_bytes: policy.memory_bytes,
        network: policy.network,
    })
}

impl Locked {
    /// From now on no thread of this process makes a ring or, but where the policy has a network,
    /// opens a file or makes a socket.
    ///
    /// # Errors
    /// The kernel refuses the second filter.
    pub fn settle(&self) -> Result<(), LockError> {
        match self.seccomp {
            true => calls::settle(self.network),
            false => Ok(()),
        }
    }
}
