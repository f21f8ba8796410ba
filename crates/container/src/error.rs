//! Why an image cannot be opened or read: which file, which place, which value.

use std::io;

use base::Errno;

/// Why a container, or what it holds, cannot be used. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file below failed.
    #[error("{name}: read of {len} bytes at byte {offset}: {error}")]
    Read {
        /// The file.
        name: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The answer of whatever holds it.
        error: io::Error,
    },
    /// The file below failed to take bytes, or to keep them.
    #[error("{name}: write of {len} bytes at byte {offset}: {error}")]
    Write {
        /// The file.
        name: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The answer of whatever holds it.
        error: io::Error,
    },
    /// The container contradicts itself or its format.
    #[error("{name}: damaged {format} image: {place}: {what}")]
    Damaged {
        /// The file.
        name: String,
        /// The format.
        format: &'static str,
        /// Where in the file, or of what.
        place: String,
        /// What was found there.
        what: String,
    },
    /// The container is sound as far as was looked, and uses something that is not supported.
    #[error("{name}: {format}: {what}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Unsupported {
        /// The file.
        name: String,
        /// The format.
        format: &'static str,
        /// What is not supported.
        what: String,
        /// How to go on; may be empty.
        hint: String,
    },
    /// No key slot of an encrypted volume fits the key.
    #[error("{name}: {format}: the key fits no slot ({tried})")]
    WrongKey {
        /// The volume.
        name: String,
        /// The format.
        format: &'static str,
        /// What was tried.
        tried: String,
    },
    /// A file cannot be opened.
    #[error(transparent)]
    Open(#[from] device::OpenError),
    /// A library panicked on this image.
    #[error("{name}: {format}: the library `{library}` panicked while {doing}: {what}")]
    Panic {
        /// The file.
        name: String,
        /// The format.
        format: &'static str,
        /// The crate.
        library: &'static str,
        /// What it was asked for.
        doing: String,
        /// Its message.
        what: String,
    },
}

/// Names a file and its format in errors.
#[derive(Clone)]
pub(crate) struct Subject {
    pub name: String,
    pub format: &'static str,
}

impl Error {
    /// A part of the file below cannot be read (`EIO`), as bad sectors of a disk.
    pub fn is_bad_sector(&self) -> bool {
        matches!(self, Error::Read { error, .. } if Errno::from_io(error) == Errno::EIO)
    }
}

impl Subject {
    pub fn damaged(&self, place: impl Into<String>, what: impl Into<String>) -> Error {
        let (place, what) = (place.into(), what.into());
        Error::Damaged { name: self.name.clone(), format: self.format, place, what }
    }

    pub fn unsupported(&self, what: impl Into<String>, hint: impl Into<String>) -> Error {
        let (what, hint) = (what.into(), hint.into());
        Error::Unsupported { name: self.name.clone(), format: self.format, what, hint }
    }
}

/// How to read an image that is refused, with the tool that knows every format.
pub(crate) const CONVERT: &str = "convert it: qemu-img convert -O raw IMAGE disk.img";
