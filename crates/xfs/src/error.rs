//! The errors of a mounted file system, and the errno that a caller gets.

mod log;

use base::Errno;
use block::DeviceError;
use thiserror::Error;

pub use self::log::LogError;
use crate::format::{Corrupt, Unsupported};

/// One variant per kind of trouble; the numbers are inside.
#[derive(Debug, Error)]
pub enum XfsError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A block on the device is wrong.
    #[error("{0}")]
    Corrupt(#[from] Corrupt),
    /// The log is wrong, or was not written.
    #[error("{0}")]
    Log(#[from] LogError),
    /// A feature that is refused.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// A block size that this implementation does not take.
    #[error("blocks of {0} bytes are not supported: 1 to 64 KiB are")]
    BlockSize(u32),
    /// The file system was shut down after an error; nothing is written any more.
    #[error("the file system was shut down: {0}")]
    Shutdown(&'static str),
    /// No space is left.
    #[error("no space left on the file system")]
    NoSpace,
    /// Any other answer to a caller.
    #[error("{0}")]
    Answer(Errno),
}

impl XfsError {
    /// The answer that a system call would give.
    pub fn to_errno(&self) -> Errno {
        match self {
            XfsError::Device(error) => error.to_errno(),
            XfsError::Corrupt(_) => Errno::EUCLEAN,
            XfsError::Log(error) => error.to_errno(),
            XfsError::Unsupported(_) | XfsError::BlockSize(_) => Errno::EOPNOTSUPP,
            XfsError::Shutdown(_) => Errno::EIO,
            XfsError::NoSpace => Errno::ENOSPC,
            XfsError::Answer(errno) => *errno,
        }
    }
}

impl From<Errno> for XfsError {
    fn from(errno: Errno) -> XfsError {
        XfsError::Answer(errno)
    }
}

impl From<Fault> for XfsError {
    fn from(fault: Fault) -> XfsError {
        match fault {
            Fault::Device(error) => XfsError::Device(error),
            Fault::Corrupt(corrupt) => XfsError::Corrupt(corrupt),
            other => XfsError::Answer(other.to_errno()),
        }
    }
}

/// Short for a result of this crate.
pub type Result<T, E = XfsError> = std::result::Result<T, E>;

/// Why a structure could not be read.
#[derive(Clone, Debug, Error)]
pub enum Fault {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Something that is sound and cannot be read here.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// Something inside answered this.
    #[error("{0}")]
    Answer(Errno),
}

impl From<XfsError> for Fault {
    fn from(error: XfsError) -> Fault {
        match error {
            XfsError::Device(error) => Fault::Device(error),
            XfsError::Corrupt(corrupt) => Fault::Corrupt(corrupt),
            other => Fault::Answer(other.to_errno()),
        }
    }
}

impl Fault {
    /// The answer that a system call would give.
    pub fn to_errno(&self) -> Errno {
        match self {
            Fault::Device(error) => error.to_errno(),
            Fault::Corrupt(_) => Errno::EFSCORRUPTED,
            Fault::Unsupported(_) => Errno::EOPNOTSUPP,
            Fault::Answer(errno) => *errno,
        }
    }
}
