//! What can go wrong while metadata are read.

use base::Errno;
use block::DeviceError;

use crate::error::XfsError;
use crate::format::Corrupt;

/// Why a structure could not be read.
#[derive(Clone, Debug, thiserror::Error)]
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
