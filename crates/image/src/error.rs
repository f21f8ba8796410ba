//! Errors: what failed, where, and the errno that a system call would have returned.

use std::fmt;
use std::io;

use base::Errno;

/// The result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: a place (`disk.img:/etc/hosts`), the reason, and an error number.
///
/// Turns into an [`io::Error`] of the kind that the number has in `std`.
#[derive(Debug)]
pub struct Error {
    place: String,
    errno: Errno,
    /// Why, where there is more to say than the number does.
    reason: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(place: impl Into<String>, errno: Errno) -> Error {
        Error { place: place.into(), errno, reason: None }
    }

    pub(crate) fn because(
        place: impl Into<String>,
        errno: Errno,
        reason: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error { place: place.into(), errno, reason: Some(reason.into()) }
    }

    /// The number, as Linux defines it: `ENOENT`, `ENOSPC`, ..
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The reason as text, without the place, if it says more than the number.
    pub fn reason(&self) -> Option<String> {
        self.reason.as_ref().map(ToString::to_string)
    }

    /// The image, and the path in it where there is one.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{}: {reason}", self.place),
            None => write!(f, "{}: {}", self.place, self.errno),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reason.as_deref().and_then(|reason| reason.source())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.errno.kind(), error)
    }
}
