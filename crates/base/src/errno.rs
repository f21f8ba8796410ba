//! Error numbers as Linux defines them for x86-64: what a file system returns to its caller.

use std::fmt;
use std::io::ErrorKind;

/// A Linux error number, greater than zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = concat!($text, ".")] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, or `None` for a number that this table does not list.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The explanation that `strerror` would print.
            pub fn text(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "Unknown error",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    ENOTBLK = 15, "Block device required";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    ETIME = 62, "Timer expired";
    ENOLINK = 67, "Link has been severed";
    EPROTO = 71, "Protocol error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    EILSEQ = 84, "Invalid or incomplete multibyte or wide character";
    ENOTSUP = 95, "Operation not supported";
    ENOBUFS = 105, "No buffer space available";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EALREADY = 114, "Operation already in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    EDQUOT = 122, "Disk quota exceeded";
    ENOKEY = 126, "Required key not available";
    ECANCELED = 125, "Operation canceled";
}

impl Errno {
    /// Linux gives `EOPNOTSUPP` and `ENOTSUP` the same number.
    pub const EOPNOTSUPP: Errno = Errno::ENOTSUP;
    /// ext4 reports a damaged structure as `EFSCORRUPTED`, which is `EUCLEAN`.
    pub const EFSCORRUPTED: Errno = Errno::EUCLEAN;
    /// ext4 reports a wrong checksum as `EFSBADCRC`, which is `EBADMSG`.
    pub const EFSBADCRC: Errno = Errno::EBADMSG;
    /// `getxattr` on a name that is not there: Linux's `ENOATTR` is `ENODATA`.
    pub const ENOATTR: Errno = Errno::ENODATA;

    /// The number of a `std::io::Error`, or [`Errno::EIO`] where it carries none. Other systems
    /// than Linux number differently: there its kind decides.
    pub fn from_io(error: &std::io::Error) -> Errno {
        if cfg!(target_os = "linux") {
            return Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
        }
        let kind = error.kind();
        KINDS.iter().find(|known| known.1 == kind).map_or(Errno::EIO, |known| known.0)
    }

    /// The kind that `std` gives errors of this number.
    pub fn kind(self) -> ErrorKind {
        match cfg!(target_os = "linux") {
            true => std::io::Error::from_raw_os_error(self.0).kind(),
            false => self.kind_elsewhere(),
        }
    }

    /// As [`Errno::kind`], by [`KINDS`].
    fn kind_elsewhere(self) -> ErrorKind {
        KINDS.iter().find(|known| known.0 == self).map_or(ErrorKind::Other, |known| known.1)
    }
}

/// Numbers whose errors have a kind of their own in `std`. Of several with one kind, the first is
/// what that kind means.
const KINDS: &[(Errno, ErrorKind)] = &[
    (Errno::EACCES, ErrorKind::PermissionDenied),
    (Errno::EPERM, ErrorKind::PermissionDenied),
    (Errno::ENOENT, ErrorKind::NotFound),
    (Errno::EEXIST, ErrorKind::AlreadyExists),
    (Errno::EINTR, ErrorKind::Interrupted),
    (Errno::EAGAIN, ErrorKind::WouldBlock),
    (Errno::EINVAL, ErrorKind::InvalidInput),
    (Errno::EPIPE, ErrorKind::BrokenPipe),
    (Errno::ETIMEDOUT, ErrorKind::TimedOut),
    (Errno::ECONNREFUSED, ErrorKind::ConnectionRefused),
    (Errno::ENOMEM, ErrorKind::OutOfMemory),
    (Errno::ENOTDIR, ErrorKind::NotADirectory),
    (Errno::EISDIR, ErrorKind::IsADirectory),
    (Errno::ENOTEMPTY, ErrorKind::DirectoryNotEmpty),
    (Errno::EROFS, ErrorKind::ReadOnlyFilesystem),
    (Errno::ESTALE, ErrorKind::StaleNetworkFileHandle),
    (Errno::ENOSPC, ErrorKind::StorageFull),
    (Errno::ESPIPE, ErrorKind::NotSeekable),
    (Errno::EDQUOT, ErrorKind::QuotaExceeded),
    (Errno::EFBIG, ErrorKind::FileTooLarge),
    (Errno::EBUSY, ErrorKind::ResourceBusy),
    (Errno::ETXTBSY, ErrorKind::ExecutableFileBusy),
    (Errno::EDEADLK, ErrorKind::Deadlock),
    (Errno::EXDEV, ErrorKind::CrossesDevices),
    (Errno::EMLINK, ErrorKind::TooManyLinks),
    (Errno::ENAMETOOLONG, ErrorKind::InvalidFilename),
    (Errno::E2BIG, ErrorKind::ArgumentListTooLong),
    (Errno::ENOSYS, ErrorKind::Unsupported),
    (Errno::ENOTSUP, ErrorKind::Unsupported),
];

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}: {}", self.text()),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        if cfg!(target_os = "linux") {
            return std::io::Error::from_raw_os_error(errno.0);
        }
        std::io::Error::new(errno.kind(), errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_host() {
        for (errno, text) in [(Errno::ENOENT, "No such file"), (Errno::EUCLEAN, "needs cleaning")] {
            let host = std::io::Error::from(errno).to_string();
            assert!(host.contains(text), "{host} does not contain {text}");
        }
        // Numbers without a kind; that of ELOOP is not stable.
        let without = ["Uncategorized", "FilesystemLoop"];
        for errno in (1..134).map(Errno).filter(|errno| errno.name().is_some()) {
            let host = std::io::Error::from(errno).kind();
            match errno.kind_elsewhere() {
                ErrorKind::Other => assert!(without.contains(&&*format!("{host:?}")), "{errno}"),
                ours => assert_eq!(ours, host, "{errno}"),
            }
        }
        assert_eq!(Errno::ENOSPC.to_string(), "ENOSPC: No space left on device");
        assert_eq!(format!("{:?}", Errno(9999)), "Errno(9999)");
    }
}
