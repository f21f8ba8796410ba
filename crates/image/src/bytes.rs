//! Paths and names as the bytes that a file system holds. On Windows names are UTF-8, a backslash
//! separates, and what is no UTF-8 in an image shows the replacement character.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

/// The bytes of a path or of a name.
#[cfg(unix)]
pub(crate) fn of(text: &OsStr) -> Cow<'_, [u8]> {
    Cow::Borrowed(std::os::unix::ffi::OsStrExt::as_bytes(text))
}

/// The bytes of a path or of a name.
#[cfg(not(unix))]
pub(crate) fn of(text: &OsStr) -> Cow<'_, [u8]> {
    Cow::Owned(text.to_string_lossy().replace('\\', "/").into_bytes())
}

/// The name with these bytes.
#[cfg(unix)]
pub(crate) fn name(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// The name with these bytes.
#[cfg(not(unix))]
pub(crate) fn name(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
